use super::machine::{Machine, property};
use super::*;
use crate::links::{Origin, wire};
use crate::model::{Action, Errno, Event, IfIndex};
use crate::sys::inotify::Inotify;

/// Roots of a tree but for the real /sys, so that links come from the table.
fn builtins(machine: &Machine) -> Builtins {
    let roots = Roots { sys: "/sys".into(), ..machine.tree.roots() };
    Builtins::load(&roots, b"", None).0
}

/// A table with link 5, which is stacked on link 4.
fn table(kind: &str) -> Table {
    let mut table = Table::new();
    let info = wire::Builder::new(0, 0, 0).attribute(wire::IFLA_INFO_KIND, kind.as_bytes()).finish();
    let message = wire::Builder::new(wire::RTM_NEWLINK, 0, 0)
        .payload(
            &[&[0, 0][..], &1u16.to_ne_bytes(), &5u32.to_ne_bytes(), &0x1002u32.to_ne_bytes(), &[0xff; 4]]
                .concat(),
        )
        .text(wire::IFLA_IFNAME, b"va0")
        .u32(wire::IFLA_MTU, 1500)
        .u32(wire::IFLA_LINK, 4)
        .attribute(wire::IFLA_ADDRESS, &[2, 0, 0, 0, 0, 1])
        .attribute(wire::IFLA_LINKINFO, &info[16..])
        .finish();
    table.apply(&message, Origin::Notification, &mut Vec::new());
    assert!(matches!(table.lookup(IfIndex(5)), Lookup::Known(link) if *link.kind == *kind.as_bytes()));
    table
}

fn net_event(machine: &Machine, action: Action) -> Event {
    machine.event(action, "/devices/virtual/net/mudev-not-there", "net", &[])
}

fn run(
    builtins: &Builtins,
    builtin: BuiltinName,
    event: &Event,
    table: &Table,
    facts: &[Fact],
) -> Result<BuiltinResult, Need> {
    let argv = [builtin.as_str().into()];
    let sysfs = Sysfs::new(&builtins.host.roots);
    builtins.run(&Call { builtin, argv: &argv, event, facts, dry: false }, &sysfs, table)
}

#[test]
fn an_unknown_link_is_asked_for_once() {
    let machine = Machine::new();
    let (builtins, event) = (builtins(&machine), net_event(&machine, Action::Add));
    for builtin in [BuiltinName::NetId, BuiltinName::NetDriver, BuiltinName::NetSetupLink] {
        let first = run(&builtins, builtin, &event, &Table::new(), &[]);
        assert_eq!(first, Err(Need::Link(IfIndex(5))), "{builtin:?}");
        let gone = run(&builtins, builtin, &event, &Table::new(), &[Fact::Link]);
        let Ok(result) = gone else { panic!("{builtin:?} asks twice") };
        assert_eq!(result.success, builtin != BuiltinName::NetId, "{builtin:?}");
        assert!(result.properties.is_empty());
    }
}

#[test]
fn a_stacked_link_of_the_table_is_left_alone_without_a_look_at_sysfs() {
    let machine = Machine::new();
    let (builtins, event) = (builtins(&machine), net_event(&machine, Action::Add));
    let tried = run(&builtins, BuiltinName::NetId, &event, &table("veth"), &[]);
    assert_eq!(tried, Ok(success(vec![])));
}

/// Names of the files in a folder that `work` opens.
fn opened(folder: &std::path::Path, work: impl FnOnce()) -> Vec<String> {
    let inotify = Inotify::new().unwrap();
    let path = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes()).unwrap();
    inotify.watch(&path, libc::IN_OPEN).unwrap();
    work();
    let mut buffer = [0; 4096];
    let mut names = Vec::new();
    while let Ok(events) = inotify.read(&mut buffer) {
        names.extend(events.map(|event| event.name.to_string()));
    }
    names
}

#[test]
fn a_veth_under_the_default_file_costs_two_attributes() {
    let machine = Machine::new();
    let net = "/devices/virtual/net/mudev-not-there";
    machine.net(net, &[("addr_assign_type", "1"), ("name_assign_type", "3")]);
    machine.tree.file(
        "usr/lib/systemd/network/99-default.link",
        "[Match]\nOriginalName=*\n[Link]\nNamePolicy=keep kernel database onboard slot path\n\
         AlternativeNamesPolicy=database onboard slot path mac\nMACAddressPolicy=persistent\n",
    );
    machine.tree.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    let (builtins, event, table) = (builtins(&machine), net_event(&machine, Action::Add), table("veth"));
    // Links from the table, the four other attributes from a folder that can be watched.
    let sysfs = Sysfs::new(&machine.tree.roots());
    let opened_by = |builtin: BuiltinName, facts: &[Fact]| {
        opened(&machine.tree.path(&format!("sys{net}")), || {
            let argv = [builtin.as_str().into()];
            let call = Call { builtin, argv: &argv, event: &event, facts, dry: false };
            let _ = builtins.run(&call, &sysfs, &table);
        })
    };
    for builtin in [BuiltinName::NetId, BuiltinName::NetDriver, BuiltinName::PathId] {
        assert_eq!(opened_by(builtin, &[]), [""; 0], "{builtin:?}");
    }
    // The first try asks for the address, the second one names.
    let driver = Fact::Driver(Ok("veth".into()));
    assert_eq!(opened_by(BuiltinName::NetSetupLink, std::slice::from_ref(&driver)), ["addr_assign_type"]);
    assert_eq!(opened_by(BuiltinName::NetSetupLink, &[driver, Fact::Rtnl(Ok(()))]), [""; 0]);
}

#[test]
fn one_question_answers_for_all_links_of_a_kind() {
    let machine = Machine::new();
    let (builtins, event) = (builtins(&machine), net_event(&machine, Action::Add));
    let driver = |table: &Table, facts: &[Fact]| run(&builtins, BuiltinName::NetDriver, &event, table, facts);
    let need = Err(Need::Driver { ifname: "mudev-not-there".into(), constant_of: Some("kind veth".into()) });
    assert_eq!(driver(&table("veth"), &[]), need);
    // Failures and silence teach nothing.
    for (answer, success) in [
        (Err(Errno(libc::EIO)), false),
        (Ok("".into()), false),
        (Err(Errno(libc::EOPNOTSUPP)), true),
        (Err(Errno(libc::ENODEV)), true),
    ] {
        let Ok(result) = driver(&table("veth"), &[Fact::Driver(answer.clone())]) else { panic!() };
        assert_eq!((result.success, result.properties.len()), (success, 0), "{answer:?}");
        assert_eq!(driver(&table("veth"), &[]), need);
    }
    let Ok(result) = driver(&table("veth"), &[Fact::Driver(Ok("veth".into()))]) else { panic!() };
    assert_eq!(property(&result, "ID_NET_DRIVER").unwrap(), "veth");
    assert_eq!(driver(&table("veth"), &[]), Ok(result));
    let other = Need::Driver { ifname: "mudev-not-there".into(), constant_of: Some("kind bridge".into()) };
    assert_eq!(driver(&table("bridge"), &[]), Err(other));
}

#[test]
fn old_kernels_are_asked_for_the_permanent_address_when_a_file_matches_it() {
    let file =
        "[Match]\nPermanentMACAddress=00:16:3e:00:00:07\n[Link]\nDescription=mine\nMACAddressPolicy=none\n";
    let setup = |release: &str, file: &str, facts: &[Fact]| {
        let machine = Machine::new();
        machine.tree.file("etc/systemd/network/10-mine.link", file);
        machine.tree.file("proc/sys/kernel/osrelease", release);
        let mut event = net_event(&machine, Action::Add);
        event.properties.set("ID_NET_DRIVER", "e1000");
        run(&builtins(&machine), BuiltinName::NetSetupLink, &event, &table(""), facts)
    };
    let found = |tried: Result<BuiltinResult, Need>| match tried {
        Ok(result) => property(&result, "ID_NET_LINK_FILE").is_some(),
        need => panic!("{need:?}"),
    };
    let old = "5.4.0-200-generic\n";
    let need = Err(Need::Helper(Operation::PermanentAddress { ifname: "mudev-not-there".into() }));
    assert_eq!(setup(old, file, &[]), need);
    let address = |bytes: &[u8]| Fact::Helper(OperationReply::Address(Ok(bytes.into())));
    assert!(found(setup(old, file, &[address(&[0, 0x16, 0x3e, 0, 0, 7])])));
    for other in [
        address(&[0, 0x16, 0x3e, 0, 0, 8]),
        address(b""),
        Fact::Helper(OperationReply::Address(Err(Errno(libc::ENODEV)))),
        Fact::Helper(OperationReply::TimedOut),
    ] {
        assert!(!found(setup(old, file, std::slice::from_ref(&other))), "{other:?}");
    }
    // No file asks, or the kernel has said that there is none.
    assert!(found(setup(old, "[Match]\nOriginalName=*\n", &[])));
    assert!(!found(setup("5.6.0\n", file, &[])));
    assert!(!found(setup("6.18.44\n", file, &[])));
}

#[test]
fn rules_that_do_not_ask_for_the_driver_get_it_with_the_settings() {
    let machine = Machine::new();
    machine.tree.file(
        "etc/systemd/network/10-mine.link",
        "[Match]\nDriver=veth\n[Link]\nDescription=mine\nMACAddressPolicy=none\n",
    );
    let (builtins, mut event) = (builtins(&machine), net_event(&machine, Action::Add));
    let setup = |event: &Event, facts: &[Fact]| {
        run(&builtins, BuiltinName::NetSetupLink, event, &table("veth"), facts)
    };
    assert_eq!(
        setup(&event, &[]),
        Err(Need::Driver { ifname: "mudev-not-there".into(), constant_of: Some("kind veth".into()) })
    );
    for (answer, driver, file) in [
        (Err(Errno(libc::EOPNOTSUPP)), None, false),
        (Err(Errno(libc::EIO)), None, false),
        (Ok("veth".into()), Some("veth"), true),
    ] {
        let Ok(result) = setup(&event, &[Fact::Driver(answer)]) else { panic!("asks twice") };
        assert!(result.success);
        assert_eq!(property(&result, "ID_NET_DRIVER"), driver.map(Into::into));
        assert_eq!(property(&result, "ID_NET_LINK_FILE").is_some(), file);
    }
    // Known by now for the whole kind; and what a rule found before counts more.
    assert!(matches!(setup(&event, &[]), Ok(result) if property(&result, "ID_NET_DRIVER").is_some()));
    event.properties.set("ID_NET_DRIVER", "other");
    let Ok(result) = setup(&event, &[]) else { panic!("asks for what is known") };
    assert_eq!(property(&result, "ID_NET_DRIVER"), None);
    assert_eq!(property(&result, "ID_NET_LINK_FILE"), None);
}

#[test]
fn in_a_tree_the_bound_driver_is_the_answer() {
    let machine = Machine::new();
    machine.device("/devices/pci0000:00/0000:00:03.0", "pci", &[]);
    machine.net("/devices/pci0000:00/0000:00:03.0/net/eth0", &[]);
    machine.tree.link("sys/devices/pci0000:00/0000:00:03.0/driver", "../../../bus/pci/drivers/e1000");
    let event = machine.event(Action::Add, "/devices/pci0000:00/0000:00:03.0/net/eth0", "net", &[]);
    let result = machine.call(BuiltinName::NetDriver, &event);
    assert_eq!(property(&result, "ID_NET_DRIVER").unwrap(), "e1000");
}

#[test]
fn on_a_change_the_link_is_not_asked_about() {
    let machine = Machine::new();
    let (builtins, event) = (builtins(&machine), net_event(&machine, Action::Change));
    let tried = run(&builtins, BuiltinName::NetSetupLink, &event, &Table::new(), &[]);
    let name = ("ID_NET_NAME".into(), Some("mudev-not-there".into()));
    assert_eq!(tried, Ok(success(vec![name])));
}

#[test]
fn what_is_not_written_fails_and_is_told_once() {
    let machine = Machine::new();
    let (builtins, event) = (builtins(&machine), net_event(&machine, Action::Add));
    let unwritten: Vec<BuiltinName> =
        BuiltinName::ALL.into_iter().filter(|builtin| !Builtins::is_written(*builtin)).collect();
    assert_eq!(unwritten.len(), 11);
    for builtin in &unwritten {
        assert_eq!(run(&builtins, *builtin, &event, &Table::new(), &[]), Ok(BuiltinResult::default()));
    }
    let used = [BuiltinName::Kmod, BuiltinName::NetId, BuiltinName::Blkid, BuiltinName::Kmod];
    assert_eq!(
        Builtins::unwritten_used(used),
        [
            "The builtin blkid is not written yet; rules that import from it do not match",
            "The builtin kmod is not written yet; rules that import from it do not match"
        ]
    );
}

#[test]
fn the_scheme_is_chosen_at_load_and_kept_on_reload() {
    let machine = Machine::new();
    let load = |command_line: &[u8], environment: Option<&[u8]>| {
        let (mut builtins, log) = Builtins::load(&machine.tree.roots(), command_line, environment);
        builtins.reload(&link_files::Texts::read(&machine.tree.roots()));
        (builtins.naming_scheme().name(), log.len())
    };
    assert_eq!(load(b"net.naming_scheme=v247", None), ("v247", 0));
    assert_eq!(load(b"net.naming_scheme=v247", Some(b"v249")), ("v249", 0));
    assert_eq!(load(b"net.naming-scheme=v999", None), ("v261", 1));
}
