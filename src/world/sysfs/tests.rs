use super::super::tree::Tree;
use super::paths::fold_symlink;
use super::read::{ATTRIBUTE_MAX, PAGE};
use super::*;
use crate::model::{DeviceId, IfIndex};

/// A disk behind a PCI host, a partition, an interface, a module, a driver.
fn machine() -> Tree {
    let tree = Tree::new();
    let disk = "sys/devices/pci0000:00/0000:00:01.0/block/sda";
    tree.file("sys/devices/pci0000:00/uevent", "")
        .file("sys/devices/pci0000:00/0000:00:01.0/uevent", "DRIVER=ahci\nPCI_ID=8086:2922\n")
        .link("sys/devices/pci0000:00/0000:00:01.0/subsystem", "../../../bus/pci")
        .link("sys/devices/pci0000:00/0000:00:01.0/driver", "../../../bus/pci/drivers/ahci")
        .dir("sys/bus/pci/drivers/ahci")
        .link("sys/bus/pci/devices/0000:00:01.0", "../../../devices/pci0000:00/0000:00:01.0")
        .file(&format!("{disk}/uevent"), "MAJOR=8\nMINOR=0\nDEVNAME=sda\nDEVTYPE=disk\nBAD KEY=1\nE=\n")
        .link(&format!("{disk}/subsystem"), "../../../../../class/block")
        .file(&format!("{disk}/size"), "100\n")
        .file(&format!("{disk}/empty"), "")
        .file(&format!("{disk}/zeros"), "a\0b\n\0\r\n")
        .file(&format!("{disk}/secret"), "x")
        .mode(&format!("{disk}/secret"), 0o200)
        .dir(&format!("{disk}/queue"))
        .link(&format!("{disk}/device"), "../..")
        .link(&format!("{disk}/loop"), "loop")
        .file(&format!("{disk}/sda1/uevent"), "MAJOR=8\nMINOR=1\nDEVNAME=sda1\nDEVTYPE=partition\n")
        .link(&format!("{disk}/sda1/subsystem"), "../../../../../../class/block")
        .link("sys/class/block/sda", "../../devices/pci0000:00/0000:00:01.0/block/sda")
        .link("sys/dev/block/8:0", "../../devices/pci0000:00/0000:00:01.0/block/sda")
        .file("sys/devices/virtual/net/v0/uevent", "INTERFACE=v0\nIFINDEX=7\n")
        .file("sys/devices/virtual/net/v0/ifindex", "7\n")
        .link("sys/devices/virtual/net/v0/subsystem", "../../../../class/net")
        .link("sys/class/net/v0", "../../devices/virtual/net/v0")
        .dir("sys/devices/virtual/net/v0/queues/rx-0")
        .file("sys/module/loop/uevent", "")
        .file("sys/devices/odd!name/uevent", "")
        .link("sys/devices/odd!name/subsystem", "../../class/odd")
        .link("sys/class/odd/odd!name", "../../devices/odd!name")
        .file("secret/file", "outside");
    tree
}

const DISK: &[u8] = b"/devices/pci0000:00/0000:00:01.0/block/sda";

#[test]
fn attributes_are_regular_readable_files_and_three_symlinks() {
    let tree = machine();
    let sysfs = Sysfs::new(&tree.roots());
    let value = |text: &[u8]| Attr::Value(text.into());
    for (name, expected) in [
        (&b"size"[..], value(b"100")),
        (b"empty", value(b"")),
        (b"zeros", value(b"a\0b")),
        (b"subsystem", value(b"block")),
        (b"device/driver", Attr::Missing),
        (b"device/uevent", value(b"DRIVER=ahci\nPCI_ID=8086:2922")),
        (b"../../uevent", value(b"DRIVER=ahci\nPCI_ID=8086:2922")),
        (b"../../../../../../secret/file", value(b"outside")),
        (b"driver", Attr::Missing),
        (b"device", Attr::Missing),
        (b"loop", Attr::Missing),
        (b"queue", Attr::Missing),
        (b"secret", Attr::Missing),
        (b"", Attr::Missing),
        (b"none", Attr::Missing),
        (b"a\0b", Attr::Missing),
    ] {
        assert_eq!(sysfs.attr(DISK, name), expected, "{}", name.as_bstr());
    }
    let error = |name: &[u8]| sysfs.read_attr(DISK, name).unwrap_err();
    assert_eq!(error(b"queue"), Errno(libc::EISDIR));
    assert_eq!(error(b"device"), Errno(libc::EINVAL));
    assert_eq!(error(b"secret"), Errno(libc::EPERM));
    assert_eq!(error(b"none"), Errno(libc::ENOENT));
}

#[test]
fn long_attributes_come_whole_and_too_long_ones_not_at_all() {
    let tree = Tree::new();
    let long = [b'x'; PAGE * 3 + 5];
    tree.file("sys/devices/d/long", long).file("sys/devices/d/huge", vec![b'x'; ATTRIBUTE_MAX + 1]);
    let page = [&[b'x'; PAGE - 1][..], b"\n", b"more\n"].concat();
    tree.file("sys/devices/d/page", &page);
    let sysfs = Sysfs::new(&tree.roots());
    assert_eq!(sysfs.value(b"/devices/d", b"long").unwrap().len(), long.len());
    assert_eq!(sysfs.value(b"/devices/d", b"page").unwrap().len(), page.len() - 1);
    assert_eq!(sysfs.read_attr(b"/devices/d", b"huge"), Err(Errno(libc::EFBIG)));
}

#[test]
fn the_walk_skips_directories_that_are_no_devices() {
    let tree = machine();
    let sysfs = Sysfs::new(&tree.roots());
    let walk = |devpath: &[u8]| {
        let parents = sysfs.parents(devpath);
        let text = parents.iter().map(|p| format!("{} {} {}", p.devpath, p.subsystem, p.driver));
        text.collect::<Vec<_>>()
    };
    let expected = ["/devices/pci0000:00/0000:00:01.0 pci ahci", "/devices/pci0000:00  "];
    assert_eq!(walk(DISK), expected);
    assert_eq!(sysfs.parent(&[DISK, b"/sda1"].concat()).unwrap(), DISK);
    assert_eq!(walk(b"/devices/virtual/net/v0"), [""; 0]);
    assert_eq!(walk(b"/devices/virtual/net/v0/queues/rx-0"), ["/devices/virtual/net/v0 net "]);
    assert_eq!(walk(b"/module/loop"), ["/module  "]);
    assert_eq!(
        walk(b"/bus/pci/drivers/ahci"),
        ["/bus/pci/drivers drivers ", "/bus/pci subsystem ", "/bus  "]
    );
    assert_eq!(walk(b"/"), [""; 0]);
}

#[test]
fn a_bus_may_have_its_root_device_below_virtual() {
    let tree = Tree::new();
    tree.file("sys/devices/virtual/workqueue/uevent", "").file("sys/devices/virtual/workqueue/w/uevent", "");
    let sysfs = Sysfs::new(&tree.roots());
    let parent = sysfs.parent(b"/devices/virtual/workqueue/w");
    assert_eq!(parent.unwrap(), "/devices/virtual/workqueue");
}

#[test]
fn devices_are_found_by_subsystem_and_name() {
    let tree = machine();
    let sysfs = Sysfs::new(&tree.roots());
    for (subsystem, name, devpath) in [
        ("block", "sda", "/devices/pci0000:00/0000:00:01.0/block/sda"),
        ("pci", "0000:00:01.0", "/devices/pci0000:00/0000:00:01.0"),
        ("subsystem", "pci", "/bus/pci"),
        ("subsystem", "net", "/class/net"),
        ("module", "loop", "/module/loop"),
        ("drivers", "pci:ahci", "/bus/pci/drivers/ahci"),
        ("drivers", "pci:drivers", "/bus/pci/drivers"),
        ("odd", "odd/name", "/devices/odd!name"),
        ("odd", "odd!name", "/devices/odd!name"),
    ] {
        let found = sysfs.device_of(subsystem.as_bytes(), name.as_bytes());
        assert_eq!(found.expect(name), devpath, "{subsystem}/{name}");
    }
    for (subsystem, name) in
        [("block", "sdb"), ("..", "x"), ("net", ".."), ("", "v0"), ("net", ""), ("drivers", "..:x")]
    {
        assert_eq!(sysfs.device_of(subsystem.as_bytes(), name.as_bytes()), None, "{subsystem}/{name}");
    }
}

#[test]
fn an_id_leads_to_the_device_that_has_it_and_to_no_other() {
    let tree = machine();
    let sysfs = Sysfs::new(&tree.roots());
    for (id, devpath) in [
        ("b8:0", Some("/devices/pci0000:00/0000:00:01.0/block/sda")),
        ("c8:0", None),
        ("b8:1", None),
        ("n7", Some("/devices/virtual/net/v0")),
        ("n8", None),
        ("+pci:0000:00:01.0", Some("/devices/pci0000:00/0000:00:01.0")),
        ("+drivers:pci:ahci", Some("/bus/pci/drivers/ahci")),
        ("+module:loop", Some("/module/loop")),
        ("+block:sda", None),
    ] {
        let found = sysfs.device_of_id(&DeviceId::parse(id.as_bytes()).unwrap());
        assert_eq!(found, devpath.map(BString::from), "{id}");
    }
}

#[test]
fn a_device_is_described_by_its_uevent_file_and_symlinks() {
    let tree = machine();
    let sysfs = Sysfs::new(&tree.roots());
    let syspath = tree.path("sys/class/block/sda");
    let disk = sysfs.device(syspath.as_os_str().as_bytes()).unwrap();
    assert_eq!(disk, sysfs.device(b"/sys/class/block/sda").unwrap());
    assert_eq!((&disk.devpath[..], &disk.subsystem[..]), (DISK, &b"block"[..]));
    assert_eq!(disk.devnode.as_ref().unwrap(), "/dev/sda");
    assert_eq!(sysfs.uevent_properties(DISK).len(), 4);
    assert_eq!(sysfs.devtype(DISK).unwrap(), "disk");
    assert_eq!(sysfs.properties(b"/devices/virtual/net/v0").get("SUBSYSTEM").unwrap(), "net");
    assert_eq!(sysfs.device(b"/class/net/v0").unwrap().ifindex, Some(IfIndex(7)));
    for nothing in [&b"/sys"[..], b"/", b"", b"/devices", b"/devices/virtual", b"/none", b"/../secret"] {
        assert_eq!(sysfs.device(nothing), None, "{}", nothing.as_bstr());
    }
}

#[test]
fn a_node_leads_to_its_device() {
    let sysfs = Sysfs::new(&Roots::default());
    assert_eq!(sysfs.device_of_node(Path::new("/dev/null")).unwrap(), "/devices/virtual/mem/null");
    assert_eq!(sysfs.device_of_node(Path::new("/dev")), None);
    assert_eq!(sysfs.device_of_node(Path::new("/dev/none-such")), None);
}

#[test]
fn who_must_not_wait_reads_hardware_only_when_somebody_has_read_it() {
    let tree = Tree::new();
    let nic = "sys/devices/pci0000:00/0000:00:03.0";
    tree.file(&format!("{nic}/uevent"), "")
        .link(&format!("{nic}/subsystem"), "../../../bus/pci")
        .file(&format!("{nic}/config"), "secret")
        .file(&format!("{nic}/vendor"), "0x1af4\n")
        .file(&format!("{nic}/hwmon/hwmon0/temp1_input"), "42\n")
        .link(&format!("{nic}/hwmon/hwmon0/subsystem"), "../../../../../class/hwmon")
        .file(&format!("{nic}/power/control"), "auto\n")
        .file("sys/devices/b/power_supply/BAT0/uevent", "DEVTYPE=power_supply\nPOWER_SUPPLY_STATUS=Full\n")
        .link("sys/devices/b/power_supply/BAT0/subsystem", "../../../../class/power_supply");
    let waits = Sysfs::new(&tree.roots());
    let sysfs = Sysfs::new(&tree.roots()).without_hardware();
    let nic = b"/devices/pci0000:00/0000:00:03.0";
    let place = |name: &str| AttrPlace { devpath: nic.into(), name: name.into() };
    for (name, hardware) in [
        ("config", true),
        ("hwmon/hwmon0/temp1_input", true),
        ("vendor", false),
        ("power/control", false),
        ("label", false),
    ] {
        let read = |known, gave_up| sysfs.knowing(known, gave_up, |sysfs| sysfs.value(nic, name.as_bytes()));
        let value = waits.value(nic, name.as_bytes());
        match hardware {
            true => assert_eq!(read(vec![], false), Err(place(name))),
            false => assert_eq!(read(vec![], false), Ok(value), "{name}"),
        }
        let known = || vec![(place(name), Ok("x".into())), (place("y"), Ok("y".into()))];
        if hardware {
            assert_eq!(read(known(), false), Ok(Some("x".into())), "{name}");
            assert_eq!(read(vec![(place(name), Err(Errno(libc::EIO)))], false), Ok(None));
            assert_eq!(read(vec![], true), Ok(None), "nobody could read it");
        }
    }
    let battery = b"/devices/b/power_supply/BAT0";
    let wanted = sysfs.knowing(vec![], false, |sysfs| sysfs.properties(battery));
    assert_eq!(wanted, Err(AttrPlace { devpath: battery.into(), name: "uevent".into() }));
    assert_eq!(waits.properties(battery).get("POWER_SUPPLY_STATUS").unwrap(), "Full");
    assert_eq!(sysfs.device(battery).unwrap().id(), waits.device(battery).unwrap().id());
}

#[test]
fn a_name_with_dots_lies_in_sysfs_as_long_as_it_only_goes_up_to_a_device() {
    for (name, inside) in [
        ("size", true),
        ("", true),
        ("a/b", true),
        ("a..b", true),
        ("../idVendor", true),
        ("./../x/y", true),
        ("../..", true),
        ("../../../x", false),
        ("../../../../etc/passwd", false),
        ("device/../x", false),
        ("../x/..", false),
    ] {
        assert_eq!(Sysfs::is_inside(b"/devices/a/b", name.as_bytes()), inside, "{name}");
    }
}

#[test]
fn symlinks_are_folded_by_their_text() {
    let fold = |path: &str, target: &str| fold_symlink(path.as_bytes(), target.as_bytes());
    assert_eq!(fold("/class/net/lo", "../../devices/virtual/net/lo").unwrap(), "/devices/virtual/net/lo");
    assert_eq!(fold("/a", "b/./c").unwrap(), "/b/c");
    assert_eq!(fold("/a", "../b"), None);
    assert_eq!(fold("/a/b", ".."), None);
    assert_eq!(fold("/a/b", "/c"), None);
}

#[test]
fn only_want_of_descriptors_or_memory_is_noted_and_told_once() {
    let tree = Tree::new();
    let sysfs = Sysfs::new(&tree.roots());
    assert_eq!(sysfs.attr(b"/devices/none", b"size"), Attr::Missing);
    assert!(!sysfs.take_lack(), "what is not there is no want");
    for (errno, lacked) in
        [(libc::EMFILE, true), (libc::ENFILE, true), (libc::ENOMEM, true), (libc::EIO, false)]
    {
        sysfs.note(Errno(errno));
        assert_eq!((sysfs.take_lack(), sysfs.take_lack()), (lacked, false));
    }
}

#[test]
fn all_lists_of_the_running_kernel_lead_to_devices() {
    let sysfs = Sysfs::new(&Roots::default());
    for class in sysfs.list(b"/class", b"") {
        let class_path = [b"/class/", class.as_slice()].concat();
        for name in sysfs.list(&class_path, b"") {
            let path = [&class_path[..], b"/", &name].concat();
            let Some(devpath) = sysfs.resolve(&path) else { continue };
            assert_eq!(sysfs.real_path(&path, b""), Some(devpath.clone()), "{}", path.as_bstr());
        }
    }
}
