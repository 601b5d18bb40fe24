//! The vectors of builtins.md section 7, on artificial trees.

use super::super::machine::{Machine, property};
use super::found::PciAddress;
use super::words::*;
use crate::model::Action;
use crate::rules::ask::BuiltinName;
use bstr::ByteSlice;

const HOST: &str = "/devices/pci0000:00";

/// The names but for the one by address, in the order in which they were set, `PATH=enp2s0 SLOT=ens1`.
#[track_caller]
fn names_of(machine: &Machine, devpath: &str, devtype: &str) -> String {
    let more: &[(&str, &str)] = if devtype.is_empty() { &[] } else { &[("DEVTYPE", devtype)] };
    let event = machine.event(Action::Add, devpath, "net", more);
    let result = machine.call(BuiltinName::NetId, &event);
    if !result.success {
        return "failure".into();
    }
    let names = result.properties.iter().filter_map(|(name, value)| {
        let name = name.strip_prefix(b"ID_NET_NAME_").or(name.strip_prefix(b"ID_NET_"))?.as_bstr();
        let shown = !matches!(name.as_bytes(), b"MAC" | b"NAMING_SCHEME");
        shown.then(|| format!("{name}={}", value.as_ref().unwrap()))
    });
    names.collect::<Vec<_>>().join(" ")
}

/// A PCI card on a bus of its own, with an interface.
struct Card {
    machine: Machine,
    pci: String,
    net: String,
}

impl Card {
    fn new(scheme: &'static str, address: &str, multifunction: bool, pci: &[(&str, &str)]) -> Card {
        let machine = Machine { scheme, ..Machine::new() };
        let path = format!("{HOST}/{address}");
        machine.device(HOST, "", &[]);
        machine.pci(&path, multifunction, pci);
        let net = format!("{path}/net/eth0");
        Card { machine, pci: path, net }
    }

    fn net(self, attributes: &[(&str, &str)]) -> Card {
        self.machine.net(&self.net, attributes);
        self
    }

    /// `/sys/bus/pci/slots/<name>/address`.
    fn slot(self, name: &str, address: &str) -> Card {
        self.machine.tree.file(&format!("sys/bus/pci/slots/{name}/address"), format!("{address}\n"));
        self
    }

    #[track_caller]
    fn names(&self) -> String {
        names_of(&self.machine, &self.net, "")
    }
}

#[test]
fn a_pci_address_is_hexadecimal_in_and_decimal_out() {
    for (address, multifunction, path) in [
        ("0000:02:00.1", true, "PATH=enp2s0f1"),
        ("0000:02:00.0", true, "PATH=enp2s0f0"),
        ("0000:02:00.2", false, "PATH=enp2s0f2"),
        ("10001:0a:1f.0", false, "PATH=enP65537p10s31"),
        ("0000:ff:1f.7", false, "PATH=enp255s31f7"),
    ] {
        assert_eq!(Card::new("v261", address, multifunction, &[]).net(&[]).names(), path, "{address}");
    }
}

#[test]
fn ports_of_one_card_are_told_apart() {
    for (scheme, address, attributes, path) in [
        ("v261", "0001:0a:1f.0", vec![("phys_port_name", "p1")], "PATH=enP1p10s31np1"),
        ("v261", "0000:0a:00.0", vec![("dev_port", "1")], "PATH=enp10s0d1"),
        ("v261", "0000:0d:00.0", vec![("phys_port_name", ""), ("dev_port", "2")], "PATH=enp13s0d2"),
        ("v261", "0000:0c:00.0", vec![("phys_port_name", "pf0vf3")], "PATH=enp12s0r3"),
        ("v252", "0000:0c:00.0", vec![("phys_port_name", "pf0vf3")], "PATH=enp12s0npf0vf3"),
        ("v261", "0000:44:01.0", vec![("phys_port_name", "pf1vf2x")], "PATH=enp68s1r2"),
        ("v261", "0000:44:02.0", vec![("phys_port_name", "c1pf0vf3")], "PATH=enp68s2nc1pf0vf3"),
        ("v261", "0000:0b:00.0", vec![("dev_port", "-")], ""),
        ("v261", "0000:40:01.0", vec![("type", "32"), ("dev_id", "0x2")], "PATH=ibp64s1"),
        ("v261", "0000:40:03.0", vec![("type", "32"), ("dev_port", "3")], "PATH=ibp64s3d3"),
        ("v239", "0000:40:01.0", vec![("type", "32")], ""),
    ] {
        assert_eq!(Card::new(scheme, address, false, &[]).net(&attributes).names(), path, "{address}");
    }
}

#[test]
fn firmware_numbers_the_onboard_links() {
    for (scheme, pci, port, onboard) in [
        ("v261", vec![("acpi_index", "3")], "0", "ONBOARD=eno3"),
        ("v261", vec![("acpi_index", "0")], "0", "ONBOARD=eno0"),
        ("v239", vec![("acpi_index", "0")], "0", ""),
        ("v261", vec![("acpi_index", "0x10")], "0", "ONBOARD=eno16"),
        ("v261", vec![("acpi_index", "65535")], "0", "ONBOARD=eno65535"),
        ("v247", vec![("acpi_index", "65535")], "0", ""),
        ("v261", vec![("acpi_index", "65536")], "0", ""),
        ("v261", vec![("acpi_index", "junk"), ("index", "7")], "0", "ONBOARD=eno7"),
        ("v261", vec![("acpi_index", "70000"), ("index", "7")], "0", ""),
        ("v261", vec![("index", "5")], "1", "ONBOARD=eno5d1"),
        ("v261", vec![("index", "5")], "-", ""),
    ] {
        let names = Card::new(scheme, "0000:02:00.0", false, &pci).net(&[("dev_port", port)]).names();
        let found = names.split(' ').find(|name| name.starts_with("ONBOARD")).unwrap_or_default();
        assert_eq!(found, onboard, "{pci:?}");
    }
}

#[test]
fn a_hotplug_slot_names_the_card_in_it() {
    let card = Card::new("v261", "0000:17:00.0", true, &[]).net(&[("dev_port", "1")]).slot("4", "0000:17:00");
    assert_eq!(card.names(), "PATH=enp23s0f0d1 SLOT=ens4f0d1");
    for name in ["0", "6-1", "x7", "08"] {
        let card = Card::new("v261", "0000:17:00.0", false, &[]).net(&[]).slot(name, "0000:17:00");
        assert_eq!(card.names(), "PATH=enp23s0", "{name}");
    }
    let card = Card::new("v261", "0000:17:00.0", false, &[]).net(&[]).slot("010", "0000:17:00");
    assert_eq!(card.names(), "PATH=enp23s0 SLOT=ens8");
}

#[test]
fn a_slot_on_a_bridge_counts_by_scheme() {
    for (scheme, address, multifunction, slot) in [
        ("v261", "0000:18:00.1", true, None),
        ("v252", "0000:18:00.1", true, Some("SLOT=ens5f1")),
        ("v254", "0000:18:00.1", true, Some("SLOT=ens5f1")),
        ("v252", "0000:18:00.0", false, None),
        ("v247", "0000:18:00.1", true, None),
        ("v245", "0000:18:00.0", false, Some("SLOT=ens5")),
    ] {
        let machine = Machine { scheme, ..Machine::new() };
        let bridge = format!("{HOST}/0000:00:1d.0");
        machine.pci(&bridge, false, &[("modalias", "pci:v00008086d00000000sv00000000sd00000000bc06sc04i00")]);
        machine.pci(&format!("{bridge}/{address}"), multifunction, &[]);
        let net = format!("{bridge}/{address}/net/eth0");
        machine.net(&net, &[]);
        machine.tree.file("sys/bus/pci/slots/5/address", "0000:00:1d\n");
        let names = names_of(&machine, &net, "");
        assert_eq!(names.split(' ').find(|n| n.starts_with("SLOT")), slot, "{scheme} {address}");
    }
}

#[test]
fn s390_numbers_slots_by_function_id() {
    for (address, id, slot, names) in [
        ("0000:1d:00.0", "0x10", "00000010", "PATH=enp29s0 SLOT=ens16"),
        ("0002:1e:00.0", "0x11", "00000011", "PATH=enP2p30s0 SLOT=ens17"),
        ("0000:1f:00.0", "0x12", "00000013", "PATH=enp31s0"),
        ("0000:1f:00.0", "0", "00000000", "PATH=enp31s0"),
    ] {
        let card = Card::new("v261", address, false, &[("function_id", id)]).net(&[]).slot(slot, "");
        assert_eq!(card.names(), names, "{id}");
    }
}

#[test]
fn acpi_numbers_slots_by_sun() {
    let sun = |scheme, value: &str| {
        let card = Card::new(scheme, "0000:20:00.0", false, &[("firmware_node/sun", value)]).net(&[]);
        card.slot("13", if value == "14" { "0000:20:00" } else { "0000:99:00" }).names()
    };
    assert_eq!(sun("v261", "9"), "PATH=enp32s0 SLOT=ens9");
    assert_eq!(sun("v261", "0"), "PATH=enp32s0");
    assert_eq!(sun("v261", "14"), "PATH=enp32s0 SLOT=ens14");
    assert_eq!(sun("v255", "9"), "PATH=enp32s0");
}

#[test]
fn sun_of_the_port_above_counts_unless_that_bridge_has_other_cards() {
    let bridge_alias = "pci:v00008086d00000000sv00000000sd00000000bc06sc04i00";
    for (function, multifunction, modalias, level, slot) in [
        ("0", false, bridge_alias, 1, None),
        ("1", true, bridge_alias, 1, Some("SLOT=ens11f1")),
        ("0", false, "pci:v00008086d00000000sv00000000sd00000000bc02sc00i00", 1, Some("SLOT=ens11")),
        ("0", false, "", 2, None),
    ] {
        let machine = Machine::new();
        let upper = format!("{HOST}/0000:00:01.0");
        let port = format!("{upper}/0000:21:00.0");
        machine.pci(&upper, false, &[]).pci(&port, false, &[("modalias", modalias)]);
        let owner = if level == 1 { &port } else { &upper };
        machine.tree.file(&format!("sys{owner}/firmware_node/sun"), "11\n");
        let nic = format!("{port}/0000:22:00.{function}");
        machine.pci(&nic, multifunction, &[]);
        let net = format!("{nic}/net/eth0");
        machine.net(&net, &[]);
        let names = names_of(&machine, &net, "");
        assert_eq!(names.split(' ').find(|n| n.starts_with("SLOT")), slot, "{modalias} {level}");
    }
}

#[test]
fn with_ari_the_slot_counts_into_the_function() {
    let card = |scheme| Card::new(scheme, "0000:27:01.2", false, &[("ari_enabled", "1")]).net(&[]).names();
    assert_eq!(card("v261"), "PATH=enp39s1f10");
    assert_eq!(card("v238"), "PATH=enp39s1f2");
}

#[test]
fn virtio_is_looked_through_and_other_buses_are_not() {
    let machine = Machine::new();
    let nic = format!("{HOST}/0000:00:03.0");
    machine.pci(&nic, false, &[]).device(&format!("{nic}/virtio0"), "virtio", &[]);
    machine.net(&format!("{nic}/virtio0/net/eth0"), &[]);
    machine.device(&format!("{nic}/mlx5_core.eth.0"), "auxiliary", &[]);
    machine.net(&format!("{nic}/mlx5_core.eth.0/net/eth1"), &[]);
    machine.device("/devices/platform/a0", "platform", &[]);
    machine
        .device("/devices/platform/a0/virtio1", "virtio", &[])
        .net("/devices/platform/a0/virtio1/net/eth2", &[]);
    assert_eq!(names_of(&machine, &format!("{nic}/virtio0/net/eth0"), ""), "PATH=enp0s3");
    assert_eq!(names_of(&machine, &format!("{nic}/mlx5_core.eth.0/net/eth1"), ""), "");
    assert_eq!(names_of(&machine, "/devices/platform/a0/virtio1/net/eth2", ""), "");
    machine.tree.file(&format!("sys{nic}/virtio0/net/eth0/dev_port"), "1\n");
    assert_eq!(names_of(&machine, &format!("{nic}/virtio0/net/eth0"), ""), "PATH=enp0s3d1");
}

#[test]
fn a_virtual_function_is_named_after_its_physical_one() {
    for (scheme, virtfn, names) in [
        ("v261", "virtfn3", "ONBOARD=eno2v3 PATH=enp5s0f0v3 SLOT=ens44f0v3"),
        ("v238", "virtfn3", "LABEL_ONBOARD=enVirtual PATH=enp5s2f3"),
        ("v261", "", "LABEL_ONBOARD=Virtual PATH=enp5s2f3"),
    ] {
        let machine = Machine { scheme, ..Machine::new() };
        let (pf, vf) = (format!("{HOST}/0000:05:00.0"), format!("{HOST}/0000:05:02.3"));
        machine.pci(&pf, true, &[("acpi_index", "2"), ("label", "Physical")]);
        machine.pci(&vf, false, &[("label", "Virtual")]);
        machine.tree.link(&format!("sys{vf}/physfn"), "../0000:05:00.0");
        machine.tree.link(&format!("sys{pf}/virtfn0"), "../0000:05:02.0");
        if !virtfn.is_empty() {
            machine.tree.link(&format!("sys{pf}/{virtfn}"), "../0000:05:02.3");
        }
        machine.tree.file("sys/bus/pci/slots/44/address", "0000:05:00\n");
        machine.net(&format!("{vf}/net/eth0"), &[]);
        assert_eq!(names_of(&machine, &format!("{vf}/net/eth0"), ""), names, "{scheme} {virtfn}");
    }
}

#[test]
fn usb_links_are_named_by_ports_below_their_controller() {
    for (interface, devtype, slot, names) in [
        ("2-1.4:1.6", "wwan", "", "PATH=wwp0s20u1u4i6"),
        ("2-1.4:1.0", "", "", "PATH=enp0s20u1u4"),
        ("2-1.4:2.0", "", "", "PATH=enp0s20u1u4c2"),
        ("3-1:1.2", "", "3", "PATH=enp0s20u1i2 SLOT=ens3u1i2"),
    ] {
        let machine = Machine::new();
        let pci = format!("{HOST}/0000:00:14.0");
        machine.pci(&pci, false, &[]);
        if !slot.is_empty() {
            machine.tree.file(&format!("sys/bus/pci/slots/{slot}/address"), "0000:00:14\n");
        }
        let usb = format!("{pci}/usb2/2-1");
        machine.device(&format!("{pci}/usb2"), "usb", &[("uevent", "DEVTYPE=usb_device")]);
        machine.device(&usb, "usb", &[("uevent", "DEVTYPE=usb_device")]);
        let usb = format!("{usb}/{interface}");
        machine.device(&usb, "usb", &[("uevent", "DEVTYPE=usb_interface")]);
        machine.net(&format!("{usb}/net/eth0"), &[]);
        assert_eq!(names_of(&machine, &format!("{usb}/net/eth0"), devtype), names, "{interface}");
    }
}

#[test]
fn usb_without_pci_has_a_name_from_v253() {
    for (scheme, names) in [("v261", "PATH=enu1u2c2"), ("v253", "PATH=enu1u2c2"), ("v252", "")] {
        let machine = Machine { scheme, ..Machine::new() };
        let usb = "/devices/platform/soc/usb1/1-1.2:2.0";
        machine.device("/devices/platform/soc", "platform", &[]);
        machine.device(usb, "usb", &[("uevent", "DEVTYPE=usb_interface")]);
        machine.net(&format!("{usb}/net/eth0"), &[]);
        assert_eq!(names_of(&machine, &format!("{usb}/net/eth0"), ""), names, "{scheme}");
    }
}

#[test]
fn buses_without_slots_have_names_of_their_own() {
    for (subsystem, device, scheme, attributes, names) in [
        ("ccwgroup", "/devices/qeth/0.0.f5f0", "v261", vec![], "PATH=encf5f0"),
        ("ccwgroup", "/devices/qeth/0.0.0000", "v261", vec![], "PATH=enc0"),
        ("ccw", "/devices/qeth/0.1.0a00", "v261", vec![], "PATH=enc1.0a00"),
        ("ccw", "/devices/qeth/0.0.12345", "v261", vec![], "PATH=enc12345"),
        ("ccw", "/devices/qeth/f5f0", "v261", vec![], ""),
        ("platform", "/devices/platform/HISI00C2:00", "v261", vec![], "PATH=enahisic2i0"),
        ("platform", "/devices/platform/APM0D05:0a", "v261", vec![], "PATH=enaapmd05i10"),
        ("platform", "/devices/platform/hisi00C2:01", "v261", vec![], ""),
        ("platform", "/devices/platform/fec.0", "v261", vec![], ""),
        ("vio", "/devices/vio/30000002", "v261", vec![], "SLOT=env2"),
        ("vio", "/devices/vio/3000001a", "v261", vec![], "SLOT=env26"),
        ("vio", "/devices/vio/300002", "v261", vec![], ""),
        ("xen", "/devices/vif-0", "v261", vec![], "SLOT=enX0"),
        ("xen", "/devices/vif-01", "v261", vec![], ""),
        ("xen", "/devices/vif-0", "v249", vec![], ""),
        ("netdevsim", "/devices/netdevsim10", "v261", vec![("phys_port_name", "p2")], "PATH=eni10np2"),
        ("netdevsim", "/devices/netdevsim10", "v261", vec![], ""),
        ("netdevsim", "/devices/netdevsim10", "v241", vec![("phys_port_name", "p2")], ""),
    ] {
        let machine = Machine { scheme, ..Machine::new() };
        machine.device(device, subsystem, &[]);
        let net = format!("{device}/net/eth0");
        machine.net(&net, &attributes);
        assert_eq!(names_of(&machine, &net, ""), names, "{device} {scheme}");
    }
}

#[test]
fn bcma_cores_are_a_suffix() {
    for (core, names) in [("bcma0:1", "PATH=wlp40s0b1"), ("bcma0:0", "PATH=wlp40s0")] {
        let card = Card::new("v261", "0000:28:00.0", false, &[]);
        let core = format!("{}/{core}", card.pci);
        card.machine.device(&core, "bcma", &[]);
        card.machine.net(&format!("{core}/net/wlan0"), &[]);
        assert_eq!(names_of(&card.machine, &format!("{core}/net/wlan0"), "wlan"), names);
    }
}

#[test]
fn the_address_is_a_name_if_it_is_permanent() {
    let mac = |attributes: &[(&str, &str)], scheme| {
        let machine = Machine { scheme, ..Machine::new() };
        machine.net("/devices/virtual/net/x0", attributes);
        let event = machine.event(Action::Add, "/devices/virtual/net/x0", "net", &[]);
        let result = machine.call(BuiltinName::NetId, &event);
        property(&result, "ID_NET_NAME_MAC").map(|name| name.to_string())
    };
    assert_eq!(mac(&[], "v261").as_deref(), Some("enx525400123456"));
    assert_eq!(mac(&[("addr_assign_type", "1")], "v261"), None);
    assert_eq!(mac(&[("addr_assign_type", "-")], "v261"), None);
    assert_eq!(mac(&[("address", "00:00:00:00:00:00")], "v261").as_deref(), Some("enx000000000000"));
    assert_eq!(mac(&[("type", "256")], "v261").as_deref(), Some("slx525400123456"));
    assert_eq!(mac(&[("type", "772")], "v261"), None);
    assert_eq!(mac(&[("type", "32")], "v261"), None);
    assert_eq!(mac(&[("type", "290")], "v261").as_deref(), Some("mcx525400123456"));
    assert_eq!(mac(&[("type", "290")], "v259"), None);
}

#[test]
fn stacked_links_are_left_alone() {
    for iflink in ["0", "4"] {
        let card = Card::new("v261", "0000:02:00.0", false, &[]).net(&[("iflink", iflink)]);
        let event = card.machine.event(Action::Add, &card.net, "net", &[]);
        let result = card.machine.call(BuiltinName::NetId, &event);
        assert!(result.success && result.properties.is_empty(), "{result:?}");
    }
}

#[test]
fn without_iflink_it_fails_and_without_type_it_finds_nothing() {
    assert_eq!(Card::new("v261", "0000:02:00.0", false, &[]).net(&[("iflink", "-")]).names(), "failure");
    assert_eq!(Card::new("v261", "0000:02:00.0", false, &[]).net(&[("type", "-")]).names(), "");
    let machine = Machine::new();
    machine.device("/devices/x", "block", &[]);
    assert!(
        !machine.call(BuiltinName::NetId, &machine.event(Action::Add, "/devices/x", "block", &[])).success
    );
}

#[test]
fn a_remove_is_named_too() {
    let card = Card::new("v261", "0000:02:00.0", false, &[]).net(&[]);
    let event = card.machine.event(Action::Remove, &card.net, "net", &[]);
    assert!(property(&card.machine.call(BuiltinName::NetId, &event), "ID_NET_NAME_PATH").is_some());
}

#[test]
fn the_scheme_is_told() {
    let card = Card::new("v255", "0000:02:00.0", false, &[]).net(&[]);
    let event = card.machine.event(Action::Add, &card.net, "net", &[]);
    let result = card.machine.call(BuiltinName::NetId, &event);
    assert_eq!(result.properties[0], ("ID_NET_NAMING_SCHEME".into(), Some("v255".into())));
}

#[test]
fn properties_can_forbid_attributes_of_their_own_device() {
    for (on_net, on_pci, names) in [
        (vec![("ID_NET_NAME_ALLOW", "0")], "", "failure"),
        (vec![("ID_NET_NAME_ALLOW_IFLINK", "0")], "", "failure"),
        (vec![("ID_NET_NAME_ALLOW_TYPE", "no")], "", ""),
        (vec![("ID_NET_NAME_ALLOW_PHYS_PORT_NAME", "junk")], "", "ONBOARD=eno3d2 PATH=enp2s0d2"),
        (vec![("ID_NET_NAME_ALLOW", "0"), ("ID_NET_NAME_ALLOW_IFLINK", "1")], "", ""),
        (vec![("ID_NET_NAME_ALLOW_ACPI_INDEX", "0")], "", "ONBOARD=eno3np1 PATH=enp2s0np1"),
        (vec![], "E:ID_NET_NAME_ALLOW=0\nV:1\n", "PATH=enp2s0np1"),
        (
            vec![],
            "E:ID_NET_NAME_ALLOW=0\nE:ID_NET_NAME_ALLOW_LABEL=1\nV:1\n",
            "LABEL_ONBOARD=L PATH=enp2s0np1",
        ),
        (vec![], "", "LABEL_ONBOARD=L ONBOARD=eno3np1 PATH=enp2s0np1"),
    ] {
        let card = Card::new("v261", "0000:02:00.0", false, &[("acpi_index", "3"), ("label", "L")])
            .net(&[("phys_port_name", "p1"), ("dev_port", "2")]);
        if !on_pci.is_empty() {
            card.machine.tree.file("run/udev/data/+pci:0000:02:00.0", on_pci);
        }
        let event = card.machine.event(Action::Add, &card.net, "net", &on_net);
        let result = card.machine.call(BuiltinName::NetId, &event);
        let found: Vec<String> = result
            .properties
            .iter()
            .filter(|(name, _)| name != "ID_NET_NAMING_SCHEME" && name != "ID_NET_NAME_MAC")
            .map(|(name, value)| {
                let name = name.replace("ID_NET_NAME_", "").replace("ID_NET_", "");
                format!("{}={}", name.as_bstr(), value.as_ref().unwrap())
            })
            .collect();
        let found = if result.success { found.join(" ") } else { "failure".into() };
        let wanted = match names.starts_with("ONBOARD") {
            true => format!("LABEL_ONBOARD=L {names}"),
            false => names.into(),
        };
        assert_eq!(found, wanted, "{on_net:?} {on_pci}");
    }
}

#[test]
fn names_of_alternative_length_are_the_longest() {
    for (length, found) in [(127, true), (128, false)] {
        let port = "p".repeat(length - "enp2s0n".len());
        let card = Card::new("v261", "0000:02:00.0", false, &[]).net(&[("phys_port_name", &port)]);
        assert_eq!(card.names().starts_with("PATH="), found, "{length}");
    }
}

/// A link on a platform device with a device tree.
fn devicetree(
    scheme: &'static str,
    own: Option<&str>,
    parent: Option<&str>,
    aliases: &[(&str, &str)],
) -> Machine {
    let machine = Machine { scheme, ..Machine::new() };
    let base = "sys/firmware/devicetree/base";
    machine.device("/devices/platform/soc", "platform", &[]).net("/devices/platform/soc/net/eth0", &[]);
    machine.tree.link("proc/device-tree", "/sys/firmware/devicetree/base");
    for (name, node) in aliases {
        machine.tree.file(&format!("{base}/aliases/{name}"), format!("{node}\0"));
        machine.tree.dir(&format!("{base}{node}"));
    }
    for (device, node) in [("soc/net/eth0", own), ("soc", parent)] {
        if let Some(node) = node {
            let up = "../".repeat(device.split('/').count() + 2);
            machine.tree.link(
                &format!("sys/devices/platform/{device}/of_node"),
                &format!("{up}firmware/devicetree/base{node}"),
            );
        }
    }
    machine
}

#[test]
fn the_device_tree_numbers_links_by_alias() {
    let two = [("ethernet7", "/soc/mac@7"), ("ethernet0", "/soc/mac@0")];
    for (scheme, own, parent, aliases, devtype, names) in [
        ("v261", None, Some("/soc/mac@7"), two.to_vec(), "", "ONBOARD=end7"),
        ("v261", Some("/soc/mac@7"), None, two.to_vec(), "", "ONBOARD=end7"),
        ("v255", Some("/soc/mac@7"), None, two.to_vec(), "", ""),
        ("v261", Some("/soc/mac@0"), Some("/soc/mac@7"), two.to_vec(), "", "ONBOARD=end0"),
        ("v251", None, Some("/soc/mac@7"), two.to_vec(), "", ""),
        ("v261", None, Some("/soc/e"), vec![("ethernet", "/soc/e")], "", "ONBOARD=end0"),
        ("v261", None, Some("/soc/e"), vec![("ethernet", "/soc/e"), ("ethernet0", "/soc/f")], "", ""),
        ("v261", None, Some("/soc/f"), vec![("ethernet", "/soc/e"), ("ethernet0", "/soc/f")], "", ""),
        ("v261", None, Some("/soc/e"), vec![("ethernet08", "/soc/e")], "", ""),
        ("v261", None, Some("/soc/e"), vec![("ethernetx", "/soc/e")], "", ""),
        (
            "v261",
            None,
            Some("/soc/w"),
            vec![("wifi2", "/soc/w"), ("ethernet5", "/soc/w")],
            "wlan",
            "ONBOARD=wld2",
        ),
        ("v261", None, Some("/soc/w"), vec![("ethernet7", "/soc/w")], "wlan", "ONBOARD=wld7"),
        ("v261", None, Some("/soc/w"), vec![("wifi", "/soc/w")], "wlan", "ONBOARD=wld0"),
        ("v258", None, Some("/soc/w"), vec![("wifi2", "/soc/w"), ("ethernet5", "/soc/w")], "wlan", ""),
        (
            "v261",
            None,
            Some("/soc/w"),
            vec![("wifi2", "/soc/w"), ("ethernet5", "/soc/w")],
            "",
            "ONBOARD=end5",
        ),
    ] {
        let machine = devicetree(scheme, own, parent, &aliases);
        let found = names_of(&machine, "/devices/platform/soc/net/eth0", devtype);
        assert_eq!(found, names, "{scheme} {own:?} {parent:?} {aliases:?} {devtype}");
    }
}

proptest::proptest! {
    #[test]
    fn no_name_of_a_device_panics(name in "[0-9a-fA-Z:._-]{0,14}|pf[0-9]{0,12}vf[0-9]{0,12}|.{0,8}") {
        let name = name.as_bytes();
        let _ = (PciAddress::parse(name), usb_specifier(name), bcma_specifier(name), ccw_id(name));
        let _ = (vio_slot(name), platform_id(name), xen_index(name), named_port(name, true));
    }
}

#[test]
fn absurd_addresses_do_not_overflow() {
    let card = Card::new("v261", "ffffffff:ffffffff:ffffffff.4294967295", true, &[("ari_enabled", "1")]);
    assert_eq!(card.net(&[]).names(), "PATH=enP4294967295p4294967295s4294967295f4294967295");
    let card = Card::new("v261", "100000000:00:00.0", true, &[]);
    assert_eq!(card.net(&[]).names(), "");
}
