use super::*;
use crate::links::{Origin, wire};
use crate::model::Uevent;
use crate::world::patience;
use crate::world::tree::Tree;

const JOB: JobId = JobId(1);

fn event(action: &str, devpath: &str, subsystem: &str, more: &str) -> Event {
    let text = format!("ACTION={action}\0DEVPATH={devpath}\0SUBSYSTEM={subsystem}\0SEQNUM=1\0{more}");
    Event::new(Uevent::from_lines(text.as_bytes().split(|&b| b == 0)).expect("an event"))
}

/// A battery on top of a chip, and what is asked of it.
struct Setting {
    tree: Tree,
    attributes: AttributeReader,
    event: Event,
}

const BATTERY: &str = "/devices/chip/power_supply/bat";

impl Setting {
    fn new() -> Setting {
        let tree = Tree::new();
        tree.file(&format!("sys{BATTERY}/uevent"), "")
            .file(&format!("sys{BATTERY}/type"), "Battery\n")
            .file(&format!("sys{BATTERY}/capacity"), "50\n")
            .link(&format!("sys{BATTERY}/subsystem"), "../../../../class/power_supply")
            .file("sys/devices/chip/uevent", "")
            .file("sys/devices/chip/model", "fast\n")
            .link("sys/devices/chip/subsystem", "../../bus/acme");
        let attributes = AttributeReader::new(&tree.roots());
        Setting { tree, attributes, event: event("add", BATTERY, "power_supply", "") }
    }

    fn ask(&mut self, subject: &Subject, name: &str, facts: &[Fact]) -> Result<Attr, Need> {
        self.attributes.attr(&mut Table::new(), JOB, &self.event, subject, &name.into(), facts)
    }

    /// What a helper is asked to read.
    fn by_helper(&self, devpath: &str, name: &str) -> Result<Attr, Need> {
        let sys = self.tree.path("sys").into_os_string().into_encoded_bytes().into();
        let place = AttrPlace { devpath: devpath.into(), name: name.into() };
        Err(Need::Helper(Operation::ReadAttr { sys, place }))
    }
}

fn value(text: &str) -> Result<Attr, Need> {
    Ok(Attr::Value(text.into()))
}

/// A helper has read an attribute; whose, nobody looks at.
fn read(value: Result<&str, Errno>, waited: bool) -> Fact {
    let place = AttrPlace { devpath: "".into(), name: "".into() };
    Fact::Helper(OperationReply::Attr { place, value: value.map(BString::from), waited })
}

#[test]
fn what_asks_the_hardware_is_read_by_a_helper_and_all_else_at_once() {
    let mut s = Setting::new();
    assert_eq!(s.ask(&Subject::Event, "type", &[]), value("Battery"));
    assert_eq!(s.ask(&Subject::Parent(0), "model", &[]), value("fast"));
    assert_eq!(s.ask(&Subject::Event, "none", &[]), Ok(Attr::Missing), "no helper is started for nothing");
    let named = Subject::Named { subsystem: "acme".into(), sysname: "none".into() };
    assert_eq!(s.ask(&named, "model", &[]), Ok(Attr::NoDevice));

    let need = s.by_helper(BATTERY, "capacity");
    assert_eq!(s.ask(&Subject::Event, "capacity", &[]), need);
    assert_eq!(s.ask(&Subject::Event, "capacity", &[read(Ok("50"), false)]), value("50"));
    for reply in [OperationReply::TimedOut, OperationReply::Died, OperationReply::Refused] {
        assert_eq!(s.ask(&Subject::Event, "capacity", &[Fact::Helper(reply)]), Ok(Attr::Missing));
    }
    assert_eq!(s.ask(&Subject::Event, "capacity", &[read(Err(Errno(libc::EIO)), true)]), Ok(Attr::Missing));
}

#[test]
fn what_was_slow_once_is_tried_by_a_helper_and_its_word_counts_from_then_on() {
    let mut s = Setting::new();
    let suspect = |s: &mut Setting| {
        let long = || std::thread::sleep(2 * patience::LONG);
        s.attributes.slow.read("acme".into(), "model".into(), long);
    };
    let need = s.by_helper("/devices/chip", "model");
    for (waited, expected) in [(false, value("fast")), (true, need.clone())] {
        suspect(&mut s);
        assert_eq!(s.ask(&Subject::Parent(0), "model", &[]), need);
        assert_eq!(s.ask(&Subject::Parent(0), "model", &[read(Ok("fast"), waited)]), value("fast"));
        assert_eq!(s.ask(&Subject::Parent(0), "model", &[]), expected, "waited: {waited}");
    }
}

#[test]
fn what_builtins_read_is_tried_again_with_what_helpers_have_read() {
    let s = Setting::new();
    let capacity = |facts: &[Fact]| {
        s.attributes.with_hardware(facts, |sysfs| sysfs.value(BATTERY.as_bytes(), b"capacity"))
    };
    assert_eq!(capacity(&[]).map(|_| Attr::Missing), s.by_helper(BATTERY, "capacity"));
    let place = AttrPlace { devpath: BATTERY.into(), name: "capacity".into() };
    let reply = OperationReply::Attr { place, value: Ok("50".into()), waited: true };
    assert_eq!(capacity(&[Fact::Helper(reply)]), Ok(Some("50".into())));
    assert_eq!(capacity(&[Fact::Helper(OperationReply::TimedOut)]), Ok(None), "the next one is not tried");
}

fn table(ifindex: u32, name: &str) -> Table {
    let mut table = Table::new();
    table.speak_for_sysfs();
    table.apply(&newlink(ifindex, name), Origin::Notification, &mut Vec::new());
    table
}

/// The kernel's message of such a row.
fn newlink(ifindex: u32, name: &str) -> Vec<u8> {
    let info = wire::Builder::new(0, 0, 0).attribute(wire::IFLA_INFO_KIND, b"veth").finish();
    wire::Builder::new(wire::RTM_NEWLINK, 0, 0)
        .ifinfo(ifindex)
        .text(wire::IFLA_IFNAME, name.as_bytes())
        .u32(wire::IFLA_MTU, 1500)
        .attribute(wire::IFLA_LINKINFO, &info[wire::HEADER..])
        .finish()
}

#[test]
fn the_link_table_speaks_for_interfaces() {
    let tree = Tree::new();
    tree.file("sys/devices/virtual/net/l0/mtu", "9\n").file("sys/devices/virtual/net/l0/uevent", "");
    let mut attributes = AttributeReader::new(&tree.roots());
    let event = event("add", "/devices/virtual/net/l0", "net", "IFINDEX=5\0INTERFACE=l0\0");
    let mut ask = |table: &mut Table, name: &str, facts: &[Fact]| {
        attributes.attr(table, JOB, &event, &Subject::Event, &name.into(), facts)
    };
    assert_eq!(ask(&mut Table::new(), "mtu", &[]), value("9"), "a tree of files speaks for itself");
    assert_eq!(ask(&mut table(5, "l0"), "mtu", &[]), value("1500"));
    assert_eq!(ask(&mut table(6, "l1"), "mtu", &[]), Err(Need::Link(IfIndex(5))));
    assert_eq!(
        ask(&mut table(6, "l1"), "mtu", &[Fact::Link, Fact::Link]),
        Ok(Attr::Missing),
        "asked in vain"
    );
    let fresh = |statistics| Err(Need::FreshLink { ifindex: IfIndex(5), statistics });
    assert_eq!(ask(&mut table(5, "l0"), "statistics/rx_bytes", &[]), fresh(true));
}

#[test]
fn what_a_job_may_have_changed_itself_is_asked_for_anew() {
    let tree = Tree::new();
    let mut attributes = AttributeReader::new(&tree.roots());
    let event = event("add", "/devices/virtual/net/l0", "net", "IFINDEX=5\0INTERFACE=l0\0");
    let mut table = table(5, "l0");
    table.caught_up();
    let ask = |attributes: &mut AttributeReader, table: &mut Table, name: &str| {
        attributes.attr(table, JOB, &event, &Subject::Event, &name.into(), &[])
    };
    assert_eq!(ask(&mut attributes, &mut table, "ifalias"), value(""));
    attributes.expect_change(&mut table, JOB);
    assert!(table.is_behind(), "what is announced is read first");
    table.caught_up();
    let fresh = Err(Need::FreshLink { ifindex: IfIndex(5), statistics: false });
    assert_eq!(
        ask(&mut attributes, &mut table, "ifalias"),
        fresh,
        "it is not announced while the link is down"
    );
    assert_eq!(ask(&mut attributes, &mut table, "mtu"), value("1500"), "it is announced");
    table.apply(&newlink(5, "l0"), Origin::Notification, &mut Vec::new());
    assert_eq!(ask(&mut attributes, &mut table, "ifalias"), value(""), "a later row");
}

#[test]
fn that_a_kind_of_interface_lacks_a_file_is_looked_for_once() {
    let tree = Tree::new();
    tree.dir("sys/devices/virtual/net/l1").dir("sys/devices/virtual/net/l2");
    let mut attributes = AttributeReader::new(&tree.roots());
    let mut ask = |n: u32, job: u64| {
        let (name, devpath) = (format!("l{n}"), format!("/devices/virtual/net/l{n}"));
        let event = event("add", &devpath, "net", &format!("IFINDEX={n}\0INTERFACE={name}\0"));
        attributes.attr(&mut table(n, &name), JobId(job), &event, &Subject::Event, &"idVendor".into(), &[])
    };
    assert_eq!(ask(1, 1), Ok(Attr::Missing));
    tree.file("sys/devices/virtual/net/l2/idVendor", "no veth has one\n");
    assert_eq!(ask(2, 2), Ok(Attr::Missing), "it is not even looked for");
}
