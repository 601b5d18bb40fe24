use super::super::filter::AttrMatch;
use super::super::tree::Tree;
use super::*;
use crate::model::device::last_component;
use crate::rules::glob::Glob;

fn machine() -> Tree {
    let tree = Tree::new();
    let disk = "sys/devices/pci0/00:1/block/sda";
    tree.file("sys/devices/pci0/uevent", "")
        .file("sys/devices/pci0/00:1/uevent", "")
        .link("sys/devices/pci0/00:1/subsystem", "../../../bus/pci")
        .link("sys/bus/pci/devices/00:1", "../../../devices/pci0/00:1")
        .dir("sys/bus/pci/drivers/ahci")
        .file(&format!("{disk}/uevent"), "MAJOR=8\nMINOR=0\nDEVNAME=sda\nDEVTYPE=disk\n")
        .file(&format!("{disk}/size"), "10\n")
        .link(&format!("{disk}/subsystem"), "../../../../../class/block")
        .file(&format!("{disk}/sda1/uevent"), "MAJOR=8\nMINOR=1\nDEVNAME=sda1\nDEVTYPE=partition\n")
        .link(&format!("{disk}/sda1/subsystem"), "../../../../../../class/block")
        .link("sys/class/block/sda", "../../devices/pci0/00:1/block/sda")
        .link("sys/class/block/sda1", "../../devices/pci0/00:1/block/sda/sda1")
        .link("sys/dev/block/8:0", "../../devices/pci0/00:1/block/sda")
        .link("sys/dev/block/8:1", "../../devices/pci0/00:1/block/sda/sda1")
        .file("sys/devices/virtual/net/lo/uevent", "INTERFACE=lo\nIFINDEX=1\n")
        .file("sys/devices/virtual/net/lo/ifindex", "1\n")
        .link("sys/devices/virtual/net/lo/subsystem", "../../../../class/net")
        .link("sys/class/net/lo", "../../devices/virtual/net/lo")
        .file("sys/class/net/bonding_masters", "")
        .link("sys/class/net/gone", "../../devices/virtual/net/gone")
        .dir("sys/devices/virtual/net/no-device")
        .link("sys/class/net/no-device", "../../devices/virtual/net/no-device")
        .file("sys/module/loop/uevent", "")
        .dir("sys/module/builtin-only")
        .file("run/udev/data/b8:0", "S:disk/by-id/x\nI:42\nE:ID_FS_TYPE=ext4\nG:seat\nG:tpm\nQ:tpm\nV:1\n")
        .file("run/udev/data/n1", "")
        .file("run/udev/tags/seat/b8:0", "")
        .file("run/udev/tags/seat/b8:1", "")
        .file("run/udev/tags/seat/b9:9", "")
        .file("run/udev/tags/seat/.tmp", "")
        .file("run/udev/tags/tpm/b8:0", "");
    tree
}

fn names(tree: &Tree, kind: Kind, filter: &Filter) -> Vec<String> {
    let sysfs = Sysfs::new(&tree.roots());
    let found = Enumerator::new(&sysfs, &tree.roots().run).enumerate(kind, filter, &[]);
    found.iter().map(|f| format!("{}/{}", f.subsystem, last_component(&f.devpath))).collect()
}

fn glob(pattern: &str) -> Glob {
    Glob::new(pattern.as_bytes(), false)
}

const ALL_DEVICES: [&str; 4] = ["pci/00:1", "block/sda", "block/sda1", "net/lo"];

#[test]
fn each_kind_has_its_lists() {
    let tree = machine();
    let filter = Filter::default();
    assert_eq!(names(&tree, Kind::Devices, &filter), ALL_DEVICES);
    // A module that is built in has no uevent file, perhaps.
    let subsystems =
        ["subsystem/pci", "drivers/drivers", "drivers/ahci", "module/builtin-only", "module/loop"];
    assert_eq!(names(&tree, Kind::Subsystems, &filter), subsystems);
    let all = [&subsystems[..3], &ALL_DEVICES, &subsystems[3..]].concat();
    assert_eq!(names(&tree, Kind::All, &filter), all);
}

#[test]
fn filters_are_alternatives_within_a_kind_and_conditions_between_kinds() {
    let tree = machine();
    let check = |filter: Filter, expected: &[&str]| {
        assert_eq!(names(&tree, Kind::Devices, &filter), expected, "{filter:?}");
    };
    let none = Filter::default;
    check(Filter { subsystems: vec![glob("net"), glob("p*")], ..none() }, &["pci/00:1", "net/lo"]);
    check(Filter { not_subsystems: vec![glob("block"), glob("")], ..none() }, &["pci/00:1", "net/lo"]);
    check(Filter { sysnames: vec![glob("sda?"), glob("lo")], ..none() }, &["block/sda1", "net/lo"]);
    let attr = |name: &str, values: &[&str]| AttrMatch {
        name: name.into(),
        values: values.iter().map(|v| glob(v)).collect(),
    };
    let (size, ten) = (|| attr("size", &[]), || attr("size", &["7", "1*"]));
    check(Filter { attrs: vec![size()], ..none() }, &["block/sda"]);
    check(Filter { attrs: vec![ten()], ..none() }, &["block/sda"]);
    check(Filter { attrs: vec![size(), attr("ifindex", &[])], ..none() }, &[]);
    check(Filter { attrs: vec![attr("size", &["2"])], ..none() }, &[]);
    check(Filter { not_attrs: vec![ten()], subsystems: vec![glob("block")], ..none() }, &["block/sda1"]);
    check(
        Filter { properties: vec![(glob("ID_FS*"), glob("ext4")), (glob("IFINDEX"), glob("1"))], ..none() },
        &["block/sda", "net/lo"],
    );
    check(Filter { initialized: Some(true), ..none() }, &["block/sda", "net/lo"]);
    check(Filter { initialized: Some(false), ..none() }, &["pci/00:1", "block/sda1"]);
    check(Filter { tags: vec!["seat".into()], ..none() }, &["block/sda", "block/sda1"]);
    check(Filter { tags: vec!["seat".into(), "tpm".into()], ..none() }, &["block/sda", "block/sda1"]);
    check(Filter { tags: vec!["tpm".into()], ..none() }, &["block/sda"]);
    check(Filter { tags: vec!["none".into()], ..none() }, &[]);
}

#[test]
fn a_parent_means_itself_and_everything_below() {
    let tree = machine();
    let filter = Filter { parents: vec!["/devices/pci0/00:1".into()], ..Filter::default() };
    assert_eq!(names(&tree, Kind::Devices, &filter), ["pci/00:1", "block/sda", "block/sda1"]);
    let filter = Filter { tags: vec!["seat".into()], parents: vec!["/devices/pci".into()], ..filter };
    assert_eq!(names(&tree, Kind::Devices, &filter), [""; 0], "a name is not cut in the middle");
}

#[test]
fn parents_are_included_on_demand_and_otherwise_if_they_match() {
    let tree = machine();
    let filter = |sysnames: &[&str], include_parents| {
        let sysnames = sysnames.iter().map(|name| glob(name)).collect();
        Filter { sysnames, include_parents, ..Filter::default() }
    };
    let chain = ["/pci0", "pci/00:1", "block/sda", "block/sda1"];
    assert_eq!(names(&tree, Kind::Devices, &filter(&["sda1"], true)), chain);
    let driver = ["/bus", "subsystem/pci", "drivers/drivers", "drivers/ahci"];
    assert_eq!(names(&tree, Kind::Subsystems, &filter(&["ahci"], true)), driver);
    assert_eq!(names(&tree, Kind::Subsystems, &filter(&["drivers"], false)), [""; 0]);
    let both = filter(&["drivers", "ahci"], false);
    assert_eq!(names(&tree, Kind::Subsystems, &both), ["drivers/drivers", "drivers/ahci"]);
    // What was found otherwise than by the lists has no parents.
    let tagged = Filter { tags: vec!["tpm".into()], ..filter(&[], true) };
    assert_eq!(names(&tree, Kind::Devices, &tagged), ["block/sda"]);
    let below = Filter { parents: vec!["/devices/pci0/00:1/block".into()], ..filter(&[], true) };
    assert_eq!(names(&tree, Kind::Devices, &below), ["block/sda", "block/sda1"]);
}

#[test]
fn who_asks_for_subsystems_gets_no_others_by_tag_or_parent() {
    let tree = machine();
    tree.file("run/udev/tags/seat/+module:loop", "").dir("sys/bus/pci/slots");
    let tagged = Filter { tags: vec!["seat".into()], ..Filter::default() };
    assert_eq!(names(&tree, Kind::Subsystems, &tagged), ["module/loop"]);
    let below = |parent: &str| Filter { parents: vec![parent.into()], ..Filter::default() };
    let bus = ["subsystem/pci", "drivers/drivers", "drivers/ahci"];
    assert_eq!(names(&tree, Kind::Subsystems, &below("/bus/pci")), bus);
    assert_eq!(names(&tree, Kind::Subsystems, &below("/devices/pci0")), [""; 0]);
    // A crawl finds every folder there: outside of /sys/devices a device needs no uevent file.
    let all = ["subsystem/pci", "subsystem/devices", "drivers/drivers", "drivers/ahci", "subsystem/slots"];
    assert_eq!(names(&tree, Kind::Devices, &below("/bus/pci")), all);
    assert_eq!(names(&tree, Kind::Devices, &below("/module/loop")), ["module/loop"]);
}

#[test]
fn properties_match_as_they_are_printed() {
    let tree = machine();
    let has =
        |name: &str, value: &str| Filter { properties: vec![(glob(name), glob(value))], ..Filter::default() };
    for (name, value, expected) in [
        ("DEVLINKS", "*/dev/disk/*", &["block/sda"][..]),
        ("TAGS", "*:tpm:*", &["block/sda"]),
        ("TAGS", ":seat:", &[]),
        ("CURRENT_TAGS", "*", &["block/sda"]),
        ("USEC_INITIALIZED", "4?", &["block/sda"]),
        ("DEVNAME", "/dev/sda?", &["block/sda1"]),
        ("DEVNAME", "sda", &[]),
        ("DEVPATH", "/devices/*/lo", &["net/lo"]),
        ("SUBSYSTEM", "pci", &["pci/00:1"]),
        ("MAJOR", "8", &["block/sda", "block/sda1"]),
        ("DRIVER", "*", &[]),
    ] {
        assert_eq!(names(&tree, Kind::Devices, &has(name, value)), expected, "{name}={value}");
    }
}

#[test]
fn parents_come_first_stacked_disks_last_and_a_card_is_completed_by_its_control() {
    let sorted = [
        "/bus/pci",
        "/devices/a",
        "/devices/a/b",
        "/devices/a!",
        "/devices/s/sound/card0",
        "/devices/s/sound/card0/pcmC0D0p",
        "/devices/s/sound/card0/controlC0",
        "/devices/s/sound/card1",
        "/devices/virtual/block/loop0",
        "/devices/virtual/tty/tty1",
        "/module/x",
        "/devices/virtual/block/dm-0",
        "/devices/virtual/block/md0",
    ];
    for (i, a) in sorted.iter().enumerate() {
        for (j, b) in sorted.iter().enumerate() {
            assert_eq!(compare(a.as_bytes(), b.as_bytes()), i.cmp(&j), "{a} {b}");
        }
    }
}

#[test]
fn prioritized_subsystems_come_first_with_their_parents() {
    let found = |text: &str| {
        let (subsystem, devpath) = text.split_once(' ').unwrap();
        Found { devpath: devpath.into(), subsystem: subsystem.into() }
    };
    let mut all: Vec<Found> =
        ["x /d/a", "x /d/b", "block /d/b/sda", "net /d/a/eth0", "module /module/m", "x /d/c"]
            .map(found)
            .into();
    order(&mut all, &["module".into(), "block".into(), "none".into(), "net".into()]);
    let devpaths: Vec<_> = all.iter().map(|f| f.devpath.to_string()).collect();
    assert_eq!(devpaths, ["/module/m", "/d/b", "/d/b/sda", "/d/a", "/d/a/eth0", "/d/c"]);
}

#[test]
fn the_running_kernel_has_its_devices_in_order() {
    let roots = super::super::Roots::default();
    let sysfs = Sysfs::new(&roots);
    let found = Enumerator::new(&sysfs, &roots.run).enumerate(Kind::All, &Filter::default(), &[]);
    let at = |devpath: &str| found.iter().position(|f| f.devpath == devpath);
    assert!(at("/devices/virtual/mem/null").is_some() && at("/bus/platform").is_some());
    for (index, device) in found.iter().enumerate() {
        if let Some(parent) = sysfs.parent(&device.devpath).and_then(|p| at(&p.to_string())) {
            assert!(parent < index, "{} comes before its parent", device.devpath);
        }
    }
    let unique: HashSet<_> = found.iter().map(|f| &f.devpath).collect();
    assert_eq!(unique.len(), found.len());
}
