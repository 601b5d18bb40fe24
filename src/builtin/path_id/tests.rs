//! The vectors of builtins.md section 7, on artificial trees.

use super::super::machine::{Machine, property};
use super::*;
use crate::model::Action;
use crate::rules::ask::BuiltinName;

const HOST: &str = "/devices/pci0000:00";

/// A path of devices, each below the one before: `pci 0000:00:1f.2`, `scsi:scsi_host host3`,
/// `- ata1` (no subsystem). Returns the last devpath.
fn grow(machine: &Machine, top: &str, devices: &[&str]) -> String {
    let mut devpath = top.to_owned();
    for device in devices {
        let (kind, name) = device.split_once(' ').unwrap();
        let (subsystem, devtype) = kind.split_once(':').unwrap_or((kind, ""));
        devpath = format!("{devpath}/{name}");
        let uevent = format!("DEVTYPE={devtype}");
        let attributes: &[(&str, &str)] = if devtype.is_empty() { &[] } else { &[("uevent", &uevent)] };
        machine.device(&devpath, if subsystem == "-" { "" } else { subsystem }, attributes);
    }
    devpath
}

/// What the builtin finds for a device: `PATH=... TAG=...`, or `failure`.
#[track_caller]
fn found(machine: &Machine, devpath: &str, subsystem: &str) -> Vec<String> {
    let event = machine.event(Action::Add, devpath, subsystem, &[]);
    let result = machine.call(BuiltinName::PathId, &event);
    assert_eq!(result.success, !result.properties.is_empty());
    let show = |(name, value): &(BString, Option<BString>)| {
        format!("{}={}", name.strip_prefix(b"ID_").unwrap().as_bstr(), value.as_ref().unwrap())
    };
    result.properties.iter().map(show).collect()
}

/// ID_PATH alone.
#[track_caller]
fn path(machine: &Machine, devpath: &str, subsystem: &str) -> String {
    let event = machine.event(Action::Add, devpath, subsystem, &[]);
    let result = machine.call(BuiltinName::PathId, &event);
    property(&result, "ID_PATH").map_or("failure".into(), |path| path.to_string())
}

/// ID_PATH of the last of some devices.
#[track_caller]
fn path_of(devices: &[&str]) -> String {
    let machine = Machine::new();
    let devpath = grow(&machine, HOST, devices);
    let subsystem = devices.last().unwrap().split([' ', ':']).next().unwrap().to_owned();
    path(&machine, &devpath, &subsystem)
}

#[test]
fn only_the_topmost_of_a_chain_is_left_and_the_nearest_is_named() {
    assert_eq!(path_of(&["pci 0000:00:01.0", "pci 0000:59:00.0", "net eth0"]), "pci-0000:59:00.0");
}

#[test]
fn buses_name_their_devices() {
    for (devices, wanted) in [
        (vec!["platform a000000.virtio_mmio", "virtio virtio0", "net eth0"], "platform-a000000.virtio_mmio"),
        (vec!["xen vif-0", "net eth0"], "xen-vif-0"),
        (vec!["ccwgroup 0.0.f5f0", "net eth0"], "ccwgroup-0.0.f5f0"),
        (vec!["iucv netiucv0", "net eth0"], "iucv-netiucv0"),
        (vec!["pci 0000:28:00.0", "bcma bcma0:1", "net wlan0"], "pci-0000:28:00.0-bcma-1"),
        (vec!["pci 0000:52:00.0", "block vda"], "failure"),
        (vec!["pci 0000:52:00.0", "virtio virtio1", "block vda"], "pci-0000:52:00.0"),
        (vec!["platform mmc_host", "mmc_host mmc0", "mmc mmc0:1", "block mmcblk0"], "platform-mmc_host"),
        (vec!["platform spi0", "spi_master spi0", "spi spi0.1", "misc x"], "platform-spi0-cs-1"),
        (vec!["amba f0000.mmci", "block mmcblk0"], "amba-f0000.mmci"),
        (vec!["platform i8042", "serio serio1", "input input3"], "platform-i8042-serio-1"),
        (vec!["acpi LNXSYSTM:00", "acpi PNP0C0C:00", "input input0"], "acpi-PNP0C0C:00"),
        (vec!["pci 0000:01:00.0", "cciss c0d2", "block cciss!c0d2"], "pci-0000:01:00.0-cciss-disk2"),
        (vec!["pci 0000:01:00.0", "cciss junk", "block x"], "failure"),
        (vec!["mem null"], "failure"),
    ] {
        assert_eq!(path_of(&devices), wanted, "{devices:?}");
    }
}

#[test]
fn crypto_queues_are_named_by_what_they_do() {
    let machine = Machine::new();
    let ap = grow(&machine, "/devices", &["ap card00"]);
    assert_eq!(path(&machine, &ap, "ap"), "ap-card00");
    machine.tree.file(&format!("sys{ap}/type"), "11\n").file(&format!("sys{ap}/ap_functions"), "0x1\n");
    assert_eq!(path(&machine, &ap, "ap"), "ap-11-0x1");
}

/// usb2 below a PCI controller with a device and an interface.
fn usb(protocol: &str, speed: &str, device: &str) -> (Machine, String) {
    let machine = Machine::new();
    let hub = grow(&machine, HOST, &["pci 0000:00:14.0", "usb:usb_device usb2"]);
    machine.tree.file(&format!("sys{hub}/bDeviceProtocol"), format!("{protocol}\n"));
    machine.tree.file(&format!("sys{hub}/speed"), format!("{speed}\n"));
    let port = format!("usb:usb_device {}", device.split(':').next().unwrap());
    let interface = format!("usb:usb_interface {device}");
    let last = grow(
        &machine,
        &hub,
        if device.contains(':') { vec![&*port, &*interface] } else { vec![&*port] }.as_slice(),
    );
    (machine, last)
}

#[test]
fn usb_devices_are_named_by_ports_and_the_host_is_always_0() {
    let (machine, interface) = usb("03", "5000", "2-1.4:1.0");
    let net = grow(&machine, &interface, &["net eth0"]);
    assert_eq!(
        found(&machine, &net, "net"),
        [
            "PATH_WITH_USB_REVISION=pci-0000:00:14.0-usbv3-0:1.4:1.0",
            "PATH=pci-0000:00:14.0-usb-0:1.4:1.0",
            "PATH_TAG=pci-0000_00_14_0-usb-0_1_4_1_0"
        ]
    );
    let (machine, device) = usb("00", "480", "2-2");
    assert_eq!(path(&machine, &device, "usb"), "pci-0000:00:14.0-usb-0:2");
    let hub = device.strip_suffix("/2-2").unwrap();
    assert_eq!(path(&machine, hub, "usb"), "pci-0000:00:14.0");
}

#[test]
fn the_root_hub_tells_the_revision() {
    for (protocol, speed, revision) in [
        ("01", "480", Some("usbv2")),
        ("02", "480", Some("usbv2")),
        ("03", "5000", Some("usbv3")),
        ("00", "12", Some("usbv1")),
        ("00", "480", Some("usbv2")),
        ("ff", "480", None),
        ("10", "480", None),
    ] {
        let (machine, interface) = usb(protocol, speed, "2-1:1.0");
        let all = found(&machine, &interface, "usb");
        let with = all.iter().find_map(|line| line.strip_prefix("PATH_WITH_USB_REVISION=pci-0000:00:14.0-"));
        assert_eq!(with.map(|w| w.split('-').next().unwrap()), revision, "{protocol} {speed}");
        assert!(all.contains(&"PATH=pci-0000:00:14.0-usb-0:1:1.0".into()), "{all:?}");
    }
}

#[test]
fn a_usb_disk_has_both_paths() {
    let (machine, interface) = usb("3", "5000", "2-2:1.0");
    let disk = grow(
        &machine,
        &interface,
        &["scsi:scsi_host host6", "scsi:scsi_target target6:0:0", "scsi:scsi_device 6:0:0:0", "block sda"],
    );
    assert_eq!(
        found(&machine, &disk, "block"),
        [
            "PATH_WITH_USB_REVISION=pci-0000:00:14.0-usbv3-0:2:1.0-scsi-0:0:0:0",
            "PATH=pci-0000:00:14.0-usb-0:2:1.0-scsi-0:0:0:0",
            "PATH_TAG=pci-0000_00_14_0-usb-0_2_1_0-scsi-0_0_0_0"
        ]
    );
}

/// A disk on an ATA port; returns the devpath of the SCSI device.
fn ata(port_no: &str, numbers: &str) -> (Machine, String) {
    let machine = Machine::new();
    let controller = grow(&machine, HOST, &["pci 0000:00:1f.2"]);
    let device = grow(
        &machine,
        &controller,
        &[
            "- ata3",
            "scsi:scsi_host host3",
            "scsi:scsi_target target3:0:0",
            &format!("scsi:scsi_device {numbers}"),
        ],
    );
    let port = format!("{controller}/ata3/ata_port/ata3");
    machine.device(&port, "ata_port", &[("port_no", port_no)]);
    (machine, device)
}

#[test]
fn ata_disks_are_named_by_port_and_target() {
    let (machine, device) = ata("2", "3:0:0:0");
    let wanted = [
        "PATH=pci-0000:00:1f.2-ata-2.0",
        "PATH_TAG=pci-0000_00_1f_2-ata-2_0",
        "PATH_ATA_COMPAT=pci-0000:00:1f.2-ata-2",
    ];
    let disk = grow(&machine, &device, &["block sda"]);
    let partition = grow(&machine, &disk, &["block sda1"]);
    let generic = grow(&machine, &device, &["scsi_generic sg0"]);
    assert_eq!(found(&machine, &disk, "block"), wanted);
    assert_eq!(found(&machine, &partition, "block"), wanted);
    assert_eq!(found(&machine, &generic, "scsi_generic"), wanted);
    assert_eq!(found(&machine, &device, "scsi"), wanted);
}

#[test]
fn behind_a_port_multiplier_the_bus_tells_the_disk() {
    for (numbers, place) in [("3:0:1:0", "ata-1.1"), ("3:2:1:0", "ata-1.2.0")] {
        let (machine, device) = ata("1", numbers);
        let all = found(&machine, &device, "scsi");
        assert_eq!(all[0], format!("PATH=pci-0000:00:1f.2-{place}"));
        assert_eq!(all[2], "PATH_ATA_COMPAT=pci-0000:00:1f.2-ata-1");
    }
}

#[test]
fn fibre_channel_disks_are_named_by_port_name() {
    for (lun, text) in [
        ("5", "lun-5"),
        ("255", "lun-255"),
        ("256", "lun-0x0100000000000000"),
        ("16640", "lun-0x4100000000000000"),
    ] {
        let machine = Machine::new();
        let device = grow(
            &machine,
            HOST,
            &[
                "pci 0000:57:00.0",
                "scsi:scsi_host host9",
                "- rport-9:0-0",
                "scsi:scsi_target target9:0:0",
                &format!("scsi:scsi_device 9:0:0:{lun}"),
                "block sda",
            ],
        );
        assert_eq!(path(&machine, &device, "block"), "failure", "without the transport's class");
        machine.device("/devices/fc/target9:0:0", "fc_transport", &[("port_name", "0x50060e8005000001")]);
        assert_eq!(
            path(&machine, &device, "block"),
            format!("pci-0000:57:00.0-fc-0x50060e8005000001-{text}")
        );
    }
}

#[test]
fn hosts_count_from_the_first_of_their_adapter() {
    let machine = Machine::new();
    let adapter = grow(&machine, HOST, &["pci 0000:51:00.0"]);
    grow(&machine, &adapter, &["scsi:scsi_host host7"]);
    let disk = grow(
        &machine,
        &adapter,
        &["scsi:scsi_host host8", "scsi:scsi_target target8:0:3", "scsi:scsi_device 8:0:3:2", "block sda"],
    );
    assert_eq!(path(&machine, &disk, "block"), "pci-0000:51:00.0-scsi-1:0:3:2");
    assert_eq!(
        path_of(&[
            "pci 0000:53:00.0",
            "virtio virtio2",
            "scsi:scsi_host host9",
            "scsi:scsi_target target9:0:0",
            "scsi:scsi_device 9:0:0:1",
            "block sdb"
        ]),
        "pci-0000:53:00.0-scsi-0:0:0:1"
    );
}

#[test]
fn sas_disks_are_named_by_address_or_by_phy() {
    let sas = |num_phys: &str, phy: &str, expander: bool| {
        let machine = Machine::new();
        let mut devices = vec!["pci 0000:56:00.0", "scsi:scsi_host host2"];
        if expander {
            devices.extend(["- port-2:0", "- expander-2:0"]);
        }
        devices.extend([
            "- port-2:0:1",
            "- end_device-2:0:1",
            "scsi:scsi_target target2:0:1",
            "scsi:scsi_device 2:0:1:0",
            "block sda",
        ]);
        let disk = grow(&machine, HOST, &devices);
        machine.device("/devices/sas/port-2:0:1", "sas_port", &[("num_phys", num_phys)]);
        let end = [("sas_address", "0x5000c50012345678"), ("phy_identifier", phy)];
        machine.device("/devices/sas/end_device-2:0:1", "sas_device", &end);
        let address = [("sas_address", "0x500605b000000001")];
        machine.device("/devices/sas/expander-2:0", "sas_device", &address);
        path(&machine, &disk, "block")
    };
    assert_eq!(sas("4", "3", false), "pci-0000:56:00.0-sas-0x5000c50012345678-lun-0");
    assert_eq!(sas("1", "3", false), "pci-0000:56:00.0-sas-phy3-lun-0");
    assert_eq!(sas("1", "5", true), "pci-0000:56:00.0-sas-exp0x500605b000000001-phy5-lun-0");
}

#[test]
fn iscsi_disks_are_named_by_portal_and_target() {
    let machine = Machine::new();
    let disk = grow(
        &machine,
        "/devices/platform",
        &[
            "scsi:scsi_host host5",
            "- session4",
            "scsi:scsi_target target5:0:0",
            "scsi:scsi_device 5:0:0:1",
            "block sda",
        ],
    );
    let session = [("targetname", "iqn.2001-04.com.example:t1")];
    machine.device("/devices/iscsi/session4", "iscsi_session", &session);
    let connection = [("persistent_address", "192.168.1.9"), ("persistent_port", "3260")];
    machine.device("/devices/iscsi/connection4:0", "iscsi_connection", &connection);
    assert_eq!(path(&machine, &disk, "block"), "ip-192.168.1.9:3260-iscsi-iqn.2001-04.com.example:t1-lun-1");
}

#[test]
fn hyper_v_disks_are_named_by_the_id_of_their_channel() {
    let machine = Machine::new();
    let channel = grow(&machine, "/devices", &["acpi VMBUS:00", "vmbus 0123"]);
    machine.tree.file(&format!("sys{channel}/device_id"), "{f8b3781a-1e82-4818-a1c3-63d806ec15bb}\n");
    let disk = grow(
        &machine,
        &channel,
        &["scsi:scsi_host host0", "scsi:scsi_target target0:0:0", "scsi:scsi_device 0:0:0:7", "block sda"],
    );
    assert_eq!(path(&machine, &disk, "block"), "acpi-VMBUS:00-vmbus-f8b3781a1e824818a1c363d806ec15bb-lun-7");
}

#[test]
fn firewire_disks_are_named_by_their_id() {
    let machine = Machine::new();
    let device =
        grow(&machine, HOST, &["pci 0000:05:00.0", "scsi:scsi_host host1", "scsi:scsi_device 1:0:0:0"]);
    machine.tree.file(&format!("sys{device}/ieee1394_id"), "0010b9f7010b0f85:0:0\n");
    let disk = grow(&machine, &device, &["block sda"]);
    assert_eq!(path(&machine, &disk, "block"), "pci-0000:05:00.0-ieee1394-0x0010b9f7010b0f85:0:0");
}

#[test]
fn tapes_tell_their_mode() {
    for (tape, tail) in [("nst0", ""), ("st0", ""), ("nst0a", "-nst0a"), ("nstl", "-nstl"), ("stm", "-stm")] {
        let machine = Machine::new();
        let device = grow(
            &machine,
            HOST,
            &[
                "pci 0000:05:00.0",
                "scsi:scsi_host host1",
                "scsi:scsi_device 1:0:0:0",
                &format!("scsi_tape {tape}"),
            ],
        );
        // The letter stands right behind `st`: what has a number there has no mode.
        let tail = if tape.contains('0') { "" } else { tail };
        assert_eq!(
            path(&machine, &device, "scsi_tape"),
            format!("pci-0000:05:00.0-scsi-0:0:0:0{tail}"),
            "{tape}"
        );
    }
}

#[test]
fn namespaces_of_nvme_are_numbered() {
    let machine = Machine::new();
    let controller = grow(&machine, HOST, &["pci 0000:54:00.0", "nvme nvme0"]);
    assert_eq!(path(&machine, &controller, "nvme"), "pci-0000:54:00.0");
    let disk = grow(&machine, &controller, &["block nvme0n1"]);
    machine.tree.file(&format!("sys{disk}/nsid"), "1\n");
    assert_eq!(path(&machine, &disk, "block"), "pci-0000:54:00.0-nvme-1");
    let partition = grow(&machine, &disk, &["block nvme0n1p1"]);
    assert_eq!(path(&machine, &partition, "block"), "failure");
}

#[test]
fn a_multipath_namespace_takes_the_path_of_its_controller() {
    for (controller, wanted) in [
        ("/devices/pci0000:00/0000:55:00.0", "pci-0000:55:00.0-nvme-2"),
        ("/devices/virtual/nvme-fabrics", "failure"),
    ] {
        let machine = Machine::new();
        if !controller.contains("virtual") {
            machine.device(controller, "pci", &[]);
        }
        grow(&machine, controller, &["nvme nvme1"]);
        let disk = grow(
            &machine,
            "/devices/virtual/nvme-subsystem",
            &["nvme-subsystem nvme-subsys1", "block nvme1n2"],
        );
        machine.tree.file(&format!("sys{disk}/nsid"), "2\n");
        assert_eq!(path(&machine, &disk, "block"), wanted);
    }
}
