use super::*;
use crate::engine::{Engine, EngineConfig, Input, JobId};
use crate::links::Table;
use crate::model::effect::Done;
use crate::model::event::OrderedSet;
use crate::model::record::Record;
use crate::model::{Errno, Now, Uevent};
use crate::rules::compile::{CompileOptions, compile};
use crate::rules::memory_world::Nobody;
use crate::tasks::gone::Removed;
use crate::tasks::unfinished::{Left, Removal};
use crate::world::tree::Tree;

fn uevent() -> Uevent {
    let text = "ACTION=add\0DEVPATH=/devices/d\0SUBSYSTEM=block\0MAJOR=8\0MINOR=1\0DEVNAME=d\0SEQNUM=1";
    Uevent::from_lines(text.as_bytes().split(|&b| b == 0)).unwrap()
}

fn event() -> Event {
    Event::new(uevent())
}

fn names(names: &[&str]) -> Vec<BString> {
    names.iter().map(|name| BString::from(*name)).collect()
}

/// Performs effects in turns of so many parts: how each went and in how many turns, and what stands then.
fn perform(effects: &[Effect], parts: usize) -> (Vec<Done>, usize, Vec<String>) {
    let tree = Tree::new();
    // One tag cannot be indexed, one symlink not be made.
    tree.file("run/udev/tags/bad", "").dir("dev/taken/in");
    let (mut stores, event) = (Stores::in_tree(&tree), event());
    let (mut done, mut turns) = (Vec::new(), 0);
    for effect in effects {
        let mut facts = Vec::new();
        loop {
            turns += 1;
            stores.turn.begin_short(parts);
            match stores.perform(&mut Table::new(), JobId(1), &event, effect, &facts) {
                Ok(how) => break done.push(how),
                Err(Need::Turn(progress)) => facts = vec![Fact::Turn(progress)],
                Err(need) => panic!("needs {need:?}"),
            }
        }
    }
    let mut state = Vec::new();
    list(&tree.root, &tree.root, &mut state);
    state.sort();
    (done, turns, state)
}

fn list(root: &std::path::Path, folder: &std::path::Path, state: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let target = std::fs::read_link(&path).unwrap_or_default();
        state.push(format!("{} {}", path.strip_prefix(root).unwrap().display(), target.display()));
        if path.is_dir() && !path.is_symlink() {
            list(root, &path, state);
        }
    }
}

#[test]
fn wherever_turns_end_the_same_is_done_and_the_same_fails() {
    let id = event().device.id().unwrap();
    let devnode = BString::from("/dev/d");
    let links = |release: &[&str], claim: &[&str]| Effect::Symlinks {
        id: id.clone(),
        devnode: devnode.clone(),
        priority: 0,
        release: names(release).into_iter().collect(),
        claim: names(claim).into_iter().collect(),
    };
    let tags = |names: &[&str]| -> OrderedSet { names.iter().copied().collect() };
    let effects = [
        links(&[], &["a", "taken", "b/c", "m"]),
        // `taken` is claimed, too, and goes with them.
        links(&["a", "b/c", "none"], &["e", "m"]),
        Effect::AddTags { id: id.clone(), tags: tags(&["x", "bad", "y", "z"]) },
        Effect::RemoveTags { id: id.clone(), tags: tags(&["x", "z", "other"]) },
    ];
    let (done, turns, state) = perform(&effects, 100);
    assert_eq!((turns, &done[..2]), (4, &[Done::Ok, Done::Ok][..]));
    assert_eq!(done[2..], [Done::Failed(Errno(libc::ENOTDIR)), Done::Ok]);
    for wanted in ["dev/m d", "dev/e d", "run/udev/links/m/b8:1 0:/dev/d", "run/udev/tags/y/b8:1 "] {
        assert!(state.iter().any(|line| line == wanted), "{wanted}: {state:?}");
    }
    assert!(!state.iter().any(|line| line.starts_with("dev/a") || line.starts_with("dev/b")), "{state:?}");
    for (parts, expected) in [(1, 17), (2, 9), (3, 7)] {
        assert_eq!(perform(&effects, parts), (done.clone(), expected, state.clone()), "{parts}");
    }
}

/// The symlinks of an event whose device has no record.
fn claiming(id: &DeviceId, links: &[&str]) -> Effect {
    let (release, claim) = (OrderedSet::default(), links.iter().copied().collect());
    Effect::Symlinks { id: id.clone(), devnode: "/dev/d".into(), priority: 0, release, claim }
}

#[test]
fn claims_of_which_no_record_knows_go_with_the_next_event() {
    for parts in [1, 2, 100] {
        let tree = Tree::new();
        let (mut stores, event) = (Stores::in_tree(&tree), event());
        let id = event.device.id().unwrap();
        for (links, expected) in [
            (&["a", "b", "c", "e/f"][..], &["a", "b", "c", "e/f"][..]),
            (&["d", "b"], &["b", "d"]),
            (&[], &[]),
        ] {
            let mut facts = Vec::new();
            loop {
                stores.turn.begin_short(parts);
                let effect = claiming(&id, links);
                match stores.perform(&mut Table::new(), JobId(1), &event, &effect, &facts) {
                    Ok(done) => break assert_eq!(done, Done::Ok),
                    Err(Need::Turn(progress)) => facts = vec![Fact::Turn(progress)],
                    Err(need) => panic!("{need:?}"),
                }
            }
            assert_eq!(stores.claims.claims().symlinks_of(&id), expected, "{parts}");
            for link in ["a", "b", "c", "d", "e/f"] {
                let is_there = tree.path("dev").join(link).is_symlink();
                assert_eq!(is_there, expected.contains(&link), "{link}, {parts}");
            }
        }
    }
}

#[test]
fn what_an_event_that_ended_half_way_has_left_goes_in_portions_behind_the_record() {
    let tree = Tree::new();
    let (mut stores, event) = (Stores::in_tree(&tree), event());
    let id = event.device.id().unwrap();
    let mut perform = |effect: &Effect, facts: &[Fact]| {
        stores.turn.begin_short(2);
        stores.perform(&mut Table::new(), JobId(1), &event, effect, facts)
    };
    let effect = claiming(&id, &["a", "b", "c", "d"]);
    let Err(Need::Turn(progress)) = perform(&effect, &[]) else { panic!("it has time for two") };
    assert_eq!(perform(&effect, &[Fact::Turn(progress)]), Ok(Done::Ok));
    stores.unfinished.end_half_way(&id);
    let record = crate::model::record::Record { symlinks: ["b"].into_iter().collect(), ..Default::default() };
    let effect = Effect::WriteRecord {
        id: id.clone(),
        record: Arc::new(record),
        sticky: Sticky::No,
        keep_empty: true,
        is_end: false,
    };
    stores.turn.begin_short(2);
    let tried = stores.perform(&mut Table::new(), JobId(1), &event, &effect, &[]);
    let Err(Need::Turn(progress)) = tried else { panic!("three symlinks are to go: {tried:?}") };
    assert!(stores.database.has_record(&id) && stores.claims.claims().symlinks_of(&id).len() == 2);
    // It is not written again.
    std::fs::remove_file(tree.path("run/udev/data/b8:1")).unwrap();
    let tried = stores.perform(&mut Table::new(), JobId(1), &event, &effect, &[Fact::Turn(progress)]);
    assert_eq!(tried, Ok(Done::Ok));
    assert_eq!(stores.claims.claims().symlinks_of(&id), ["b"]);
    assert!(!tree.path("run/udev/data/b8:1").exists());
}

/// Stores in which an earlier daemon has left a device with these symlinks and tags.
fn stores_of_old(tree: &Tree, links: &[&str], tags: &[&str]) -> (Stores, DeviceId) {
    let id = event().device.id().unwrap();
    let mut before = Stores::in_tree(tree);
    assert!(before.claims.apply(&id, b"/dev/d", 0, &[], &names(links)).is_empty());
    before.database.add_tags(&id, &names(tags)).unwrap();
    let record = record_with(links, tags);
    before.database.write_record(&id, &record, Sticky::No, true).unwrap();
    (Stores::in_tree(tree), id)
}

fn record_with(links: &[&str], tags: &[&str]) -> Record {
    let set = |names: &[&str]| names.iter().copied().collect::<OrderedSet>();
    Record { symlinks: set(links), tags: set(tags), ..Record::default() }
}

fn idle_engine() -> Engine {
    let rules = compile(&[], &CompileOptions { resolve_names: Default::default(), accounts: &Nobody });
    Engine::new(EngineConfig::default(), Arc::new(rules.rules))
}

#[test]
fn a_device_that_comes_back_while_what_it_left_is_removed_keeps_what_is_new() {
    let (old, tags) = (["a", "b", "c", "d", "e"], ["x"]);
    let go_on = |stores: &mut Stores, engine: &Engine, removal: &mut Removal| {
        stores.turn.begin_short(3);
        stores.go_on_removing(&mut Table::new(), engine, removal)
    };

    // It stays away.
    let tree = Tree::new();
    tree.dir("sys/dev/block");
    let (mut stores, id) = stores_of_old(&tree, &old, &tags);
    let mut engine = idle_engine();
    let mut removal = stores.begin_removing(&id, Left::IfGone);
    assert_eq!(go_on(&mut stores, &engine, &mut removal), Removed::Partly);
    assert_eq!(go_on(&mut stores, &engine, &mut removal), Removed::Whole);
    assert!(stores.claims.claims().is_empty() && !stores.database.has_record(&id));
    assert!(!stores.unfinished.ends_half_way(&id));

    // Its event waits.
    let tree = Tree::new();
    tree.dir("sys/dev/block");
    let (mut stores, id) = stores_of_old(&tree, &old, &tags);
    let mut removal = stores.begin_removing(&id, Left::IfGone);
    assert_eq!(go_on(&mut stores, &engine, &mut removal), Removed::Partly);
    let uevent = Input::Uevent(uevent());
    engine.handle(uevent, Now::ZERO);
    assert_eq!(go_on(&mut stores, &engine, &mut removal), Removed::IsBusy);

    // Its event was handled: no more goes than it wanted, and what it did not know of went with its record.
    let engine = idle_engine();
    tree.file("sys/dev/block/8:1/uevent", "");
    assert!(stores.claims.apply(&id, b"/dev/d", 0, &[], &names(&["a", "d"])).is_empty());
    let effect = Effect::WriteRecord {
        id: id.clone(),
        record: Arc::new(record_with(&["a", "d"], &["y"])),
        sticky: Sticky::No,
        keep_empty: true,
        is_end: false,
    };
    stores.turn.begin_short(100);
    assert_eq!(stores.perform(&mut Table::new(), JobId(1), &event(), &effect, &[]), Ok(Done::Ok));
    assert_eq!(go_on(&mut stores, &engine, &mut removal), Removed::IsThere);
    assert_eq!(
        (stores.claims.claims().symlinks_of(&id), stores.database.has_record(&id)),
        (names(&["a", "d"]), true)
    );
}

#[test]
fn a_device_whose_record_changes_while_it_is_brought_in_line_is_looked_at_anew() {
    let tree = Tree::new();
    tree.file("sys/devices/d/uevent", "MAJOR=8\nMINOR=1\nDEVNAME=d\n")
        .link("sys/dev/block/8:1", "../../devices/d");
    tree.link("sys/devices/d/subsystem", "../../class/block");
    let (mut stores, id) = stores_of_old(&tree, &["a"], &[]);
    // Its event ended before it had claimed all.
    let record = record_with(&["a", "b", "c", "d", "e"], &[]);
    stores.database.write_record(&id, &record, Sticky::No, true).unwrap();
    let (table, engine) = (Table::new(), idle_engine());
    let mut interrupted = stores.list_interrupted();
    let mut look = |stores: &mut Stores| {
        stores.turn.begin_short(2);
        stores.look_at_interrupted(&table, &engine, &mut interrupted, Now::ZERO)
    };
    assert!(look(&mut stores) && look(&mut stores));
    assert_eq!(stores.claims.claims().symlinks_of(&id), names(&["a", "b", "c"]));
    // An event comes and goes.
    assert!(stores.claims.apply(&id, b"/dev/d", 0, &names(&["b", "c"]), &[]).is_empty());
    stores.database.write_record(&id, &record_with(&["a", "e"], &[]), Sticky::No, true).unwrap();
    while look(&mut stores) {}
    assert_eq!(stores.claims.claims().symlinks_of(&id), names(&["a", "e"]));
}
