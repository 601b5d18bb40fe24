use super::*;
use crate::engine::EngineConfig;
use crate::links::Origin;
use crate::links::wire::{Builder, IFLA_IFNAME, NLMSG_DONE, RTM_NEWLINK};
use crate::model::effect::{Effect, Sticky};
use crate::model::record::Record;
use crate::model::{Errno, Event, IfIndex, Uevent};
use crate::world::tree::Tree;
use std::sync::Arc;

fn event(action: &str, minor: usize) -> Event {
    let text = format!(
        "ACTION={action}\0DEVPATH=/devices/d{minor}\0SUBSYSTEM=block\0MAJOR=8\0MINOR={minor}\0SEQNUM=1\0"
    );
    Event::new(Uevent::from_lines(text.as_bytes().split(|&b| b == 0)).expect("an event"))
}

/// Does again all that failed.
fn finish(stores: &mut Stores, links: &mut Table) -> Vec<(Trigger, BString)> {
    let engine = Engine::new(EngineConfig::default(), Arc::default());
    stores.begin_finishing();
    loop {
        stores.turn.begin_short(1);
        if let Some(wanted) = stores.go_on_finishing(links, &engine) {
            return wanted;
        }
    }
}

#[test]
fn while_links_may_be_missing_none_counts_as_gone() {
    let tree = Tree::new();
    let (mut stores, mut links) = (Stores::in_tree(&tree), Table::new());
    links.speak_for_sysfs();
    for ifindex in [5, 6] {
        let id = DeviceId::Net(IfIndex(ifindex));
        stores.database.write_record(&id, &Arc::default(), Sticky::No, true).unwrap();
        stores.unfinished.is_left(&id, Left::IfGone);
    }
    let exist = || [5, 6].map(|n| tree.path(&format!("run/udev/data/n{n}")).exists());
    finish(&mut stores, &mut links);
    assert_eq!((exist(), stores.unfinished.gone.len()), ([true, true], 2), "it is asked again");

    let (seq, _) = links.begin_dump();
    let row = Builder::new(RTM_NEWLINK, 0, seq).ifinfo(5).text(IFLA_IFNAME, b"l0").finish();
    let done = Builder::new(NLMSG_DONE, 0, seq).payload(&[0; 4]).finish();
    let mut changes = Vec::new();
    links.apply(&row, Origin::Reply, &mut changes);
    let reply = links.apply(&done, Origin::Reply, &mut changes).reply.unwrap();
    assert!(links.end_dump(&reply, &mut changes) && !links.is_stale());
    finish(&mut stores, &mut links);
    assert_eq!((exist(), stores.unfinished.gone.len()), ([true, false], 0));
}

/// Stores in which the device of `event("remove", 1)` is there, and its record could not be removed.
fn stores_with_a_record(tree: &Tree) -> (Stores, DeviceId) {
    let mut stores = Stores::in_tree(tree);
    tree.dir("sys/dev/block/8:1");
    let event = event("remove", 1);
    let id = event.device.id().unwrap();
    let record = Record { tags: ["x", "y", "z"].into_iter().collect(), ..Record::default() };
    stores.database.write_record(&id, &Arc::new(record.clone()), Sticky::No, true).unwrap();
    stores.database.add_tags(&id, record.tags.as_slice()).unwrap();
    stores.unfinished.on_failure(&event, &Effect::RemoveRecord { id: id.clone() }, Errno(libc::EROFS));
    (stores, id)
}

#[test]
fn a_remove_that_failed_is_finished_although_its_device_is_there() {
    let tree = Tree::new();
    let (mut stores, id) = stores_with_a_record(&tree);
    assert_eq!(stores.presence(&Table::new(), &id), Presence::There);
    finish(&mut stores, &mut Table::new());
    assert!(!stores.database.has_record(&id) && !tree.path("run/udev/tags/x/b8:1").exists());
    assert!(!stores.is_unfinished());
}

#[test]
fn what_a_later_event_has_made_is_not_removed_for_an_earlier_remove() {
    let (tree, mut links) = (Tree::new(), Table::new());
    let (mut stores, id) = stores_with_a_record(&tree);
    stores.unfinished.on_begin(&id);
    finish(&mut stores, &mut links);
    assert!(stores.database.has_record(&id) && tree.path("run/udev/tags/x/b8:1").exists());

    // The event comes while it is being removed.
    let engine = Engine::new(EngineConfig::default(), Arc::default());
    let tree = Tree::new();
    let (mut stores, id) = stores_with_a_record(&tree);
    stores.begin_finishing();
    while tree.path("run/udev/tags/x/b8:1").exists() {
        stores.turn.begin_short(1);
        assert_eq!(stores.go_on_finishing(&mut links, &engine), None);
    }
    assert!(stores.unfinished.is_finishing());
    stores.unfinished.on_begin(&id);
    stores.turn.begin_short(1000);
    while stores.go_on_finishing(&mut links, &engine).is_none() {}
    assert!(stores.database.has_record(&id), "the event decides");
}
