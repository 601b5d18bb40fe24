use super::super::host::Host;
use super::super::machine::{Machine, property};
use super::*;
use crate::model::record::Record;
use crate::rules::ask::BuiltinName;
use std::sync::Arc;

const NET: &str = "/devices/virtual/net";
const MACHINE_ID: &str = "0123456789abcdef0123456789abcdef\n";

/// A machine with one .link file that is for all links, and an interface.
fn machine(name: &str, section: &str, attributes: &[(&str, &str)]) -> Machine {
    let machine = Machine::new();
    machine.net(&format!("{NET}/{name}"), attributes);
    machine.tree.file("etc/machine-id", MACHINE_ID);
    machine.tree.file("etc/systemd/network/a.link", format!("[Match]\nOriginalName=*\n[Link]\n{section}"));
    machine
}

fn event(machine: &Machine, action: Action, name: &str, properties: &[(&str, &str)]) -> Event {
    machine.event(action, &format!("{NET}/{name}"), "net", properties)
}

/// What would be sent to the kernel.
fn settings(machine: &Machine, event: &Event) -> (Settings, Vec<String>) {
    let roots = machine.tree.roots();
    let command_line = machine.command_line.into();
    let (files, log) = LinkFiles::load(&Host::new(roots, command_line));
    assert_eq!(log, [""; 0]);
    let sysfs = Sysfs::new(&machine.tree.roots());
    let link = LinkFacts::of_files(&sysfs, event);
    let scheme = NamingScheme::named(machine.scheme.as_bytes()).unwrap();
    let context = Context { scheme, sysfs: &sysfs, link_files: &files, driver: None, dry: false };
    let name = present_name(event, scheme);
    let setup = Setup { context: &context, event, link: &link, file: files.iter().next().unwrap(), name };
    let mut messages = Vec::new();
    (setup.settings(&mut messages), messages)
}

/// The address that would be set, as text.
fn address(machine: &Machine, event: &Event) -> Option<String> {
    let bytes = settings(machine, event).0.address?;
    Some(bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":"))
}

fn name(machine: &Machine, event: &Event) -> String {
    let result = machine.call(BuiltinName::NetSetupLink, event);
    property(&result, "ID_NET_NAME").map_or("none".into(), |name| name.to_string())
}

const RANDOM: [(&str, &str); 1] = [("addr_assign_type", "1")];

#[test]
fn persistent_addresses_are_hashes_of_machine_and_name() {
    let id = std::array::from_fn(|i| [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef][i % 8]);
    assert_eq!(persistent_bits(&id, b"enp3s0"), 0x1732a05994642112);
    assert_eq!(persistent_bits(&id, b"br0"), 0x4c341eb517d4512d);
    for (name, wanted) in [
        ("br0", "2e:51:d4:17:b5:1e"),
        ("enp3s0", "12:21:64:94:59:a0"),
        ("t0", "3a:5b:17:ea:ef:c7"),
        ("va", "b2:06:8c:6c:c5:15"),
        ("vb", "4e:59:dd:b1:02:8c"),
        ("m0", "82:4a:c5:12:a1:e3"),
    ] {
        let machine = machine(name, "MACAddressPolicy=persistent\n", &RANDOM);
        assert_eq!(address(&machine, &event(&machine, Action::Add, name, &[])).as_deref(), Some(wanted));
    }
}

#[test]
fn the_name_in_the_hash_is_the_first_property_that_exists() {
    let machine = machine("br0", "MACAddressPolicy=persistent\nNamePolicy=path\n", &RANDOM);
    let all = [
        ("ID_NET_NAME_ONBOARD", "onb0"),
        ("ID_NET_NAME_SLOT", "slo0"),
        ("ID_NET_NAME_PATH", "pat0"),
        ("ID_NET_NAME_MAC", "mac0"),
    ];
    let add = event(&machine, Action::Add, "br0", &all);
    assert_eq!(address(&machine, &add).as_deref(), Some("ae:8c:5f:f4:64:78"));
    assert_eq!(name(&machine, &add), "pat0");
    let add = event(&machine, Action::Add, "br0", &[("ID_NET_NAME_MAC", "enx0200")]);
    assert_eq!(address(&machine, &add).as_deref(), Some("b2:a2:a5:97:2f:c8"));
    let add = event(&machine, Action::Add, "br0", &[("ID_NET_NAME_FROM_DATABASE", "db0")]);
    assert_eq!(address(&machine, &add).as_deref(), Some("2e:51:d4:17:b5:1e"));
}

#[test]
fn the_hash_is_of_the_name_before_a_rename() {
    let machine = machine("br0", "MACAddressPolicy=persistent\nName=enp3s0\n", &RANDOM);
    let add = event(&machine, Action::Add, "br0", &[]);
    assert_eq!(address(&machine, &add).as_deref(), Some("2e:51:d4:17:b5:1e"));
    assert_eq!(name(&machine, &add), "enp3s0");
}

#[test]
fn old_schemes_make_no_address_of_the_sysname() {
    let machine = Machine { scheme: "v240", ..machine("br0", "MACAddressPolicy=persistent\n", &RANDOM) };
    let (settings, messages) = settings(&machine, &event(&machine, Action::Add, "br0", &[]));
    assert_eq!(settings.address, None);
    assert_eq!(messages, ["br0: no persistent address: there is no name to make it from"]);
}

#[test]
fn without_a_machine_id_there_is_a_warning() {
    let machine = machine("br0", "MACAddressPolicy=persistent\n", &RANDOM);
    std::fs::remove_file(machine.tree.path("etc/machine-id")).unwrap();
    let (settings, messages) = settings(&machine, &event(&machine, Action::Add, "br0", &[]));
    assert_eq!((settings.address, messages.len()), (None, 1));
}

#[test]
fn policies_replace_what_they_do_not_want() {
    for (policy, assign_type, changes) in [
        ("persistent", "0", false),
        ("persistent", "1", true),
        ("persistent", "2", false),
        ("persistent", "3", false),
        ("persistent", "-", false),
        ("random", "0", true),
        ("random", "1", false),
        ("random", "3", false),
        ("none", "1", false),
    ] {
        let machine =
            machine("br0", &format!("MACAddressPolicy={policy}\n"), &[("addr_assign_type", assign_type)]);
        let found = settings(&machine, &event(&machine, Action::Add, "br0", &[])).0.address;
        assert_eq!(found.is_some(), changes, "{policy} {assign_type}");
        if let Some(address) = found {
            assert_eq!(address[0] & 3, 2, "local and for one receiver");
        }
    }
    let tunnel = [("type", "778"), ("address", "01:02:03:04"), ("addr_assign_type", "1")];
    let machine = machine("gre0", "MACAddressPolicy=persistent\n", &tunnel);
    assert_eq!(address(&machine, &event(&machine, Action::Add, "gre0", &[])), None);
}

#[test]
fn two_random_addresses_differ() {
    let machine = machine("br0", "MACAddressPolicy=random\n", &[]);
    let add = event(&machine, Action::Add, "br0", &[]);
    assert_ne!(address(&machine, &add), address(&machine, &add));
}

#[test]
fn infiniband_keeps_the_first_twelve_bytes() {
    let present: Vec<u8> = (0..20).collect();
    let made = made_address(0x0807060504030201, ARPHRD_INFINIBAND, &present).unwrap();
    assert_eq!(made, [&present[..12], &[1, 2, 3, 4, 5, 6, 7, 8]].concat());
    assert_eq!(made_address(0, ARPHRD_INFINIBAND, &present), None);
    assert_eq!(made_address(1, ARPHRD_INFINIBAND, &present[..6]), None);
    assert_eq!(made_address(0, ARPHRD_ETHER, &present[..6]), Some(vec![2, 0, 0, 0, 0, 0]));
}

#[test]
fn a_given_address_must_fit() {
    let ib: String = (0..20).map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":");
    for (given, ifi_type, present, set) in [
        ("02:00:00:00:00:09", "1", "52:54:00:12:34:56", Some("02:00:00:00:00:09")),
        ("03:00:00:00:00:09", "1", "52:54:00:12:34:56", Some("02:00:00:00:00:09")),
        ("52:54:00:12:34:56", "1", "52:54:00:12:34:56", None),
        ("00:00:00:00:00:00", "1", "52:54:00:12:34:56", None),
        ("ff:ff:ff:ff:ff:ff", "1", "52:54:00:12:34:56", None),
        ("10.0.0.1", "1", "52:54:00:12:34:56", None),
        ("02:00:00:00:00:09", "32", &ib, None),
        ("10.0.0.1", "778", "0a:00:00:02", Some("0a:00:00:01")),
        ("02:00:00:00:00:09", "1", "", None),
    ] {
        let attributes = [("type", ifi_type), ("address", present)];
        let machine = machine("br0", &format!("MACAddress={given}\n"), &attributes);
        assert_eq!(address(&machine, &event(&machine, Action::Add, "br0", &[])).as_deref(), set, "{given}");
    }
}

#[test]
fn only_what_differs_is_sent() {
    let section = "Alias=x\nMTUBytes=1400\nTransmitQueueLength=500\nGenericSegmentOffloadMaxSegments=3\n";
    let add = |section: &str, attributes: &[(&str, &str)]| {
        let machine = machine("br0", section, attributes);
        settings(&machine, &event(&machine, Action::Add, "br0", &[])).0
    };
    assert_eq!(
        add(section, &[]),
        Settings {
            alias: Some("x".into()),
            mtu: Some(1400),
            tx_queue_len: Some(500),
            gso_max_segments: Some(3),
            ..Settings::default()
        }
    );
    let same = [("ifalias", "x"), ("mtu", "1400"), ("tx_queue_len", "500")];
    assert_eq!(add(section, &same), Settings { gso_max_segments: Some(3), ..Settings::default() });
    assert!(add("MTUBytes=0\n", &[]).is_empty());
}

#[test]
fn names_are_tried_in_the_order_of_the_policy() {
    let long = [
        ("ID_NET_NAME_ONBOARD", "abcdefghijklmnop"),
        ("ID_NET_NAME_SLOT", "a/b"),
        ("ID_NET_NAME_PATH", "exact15chars000"),
    ];
    let bad = [("ID_NET_NAME_ONBOARD", "123"), ("ID_NET_NAME_SLOT", "a b"), ("ID_NET_NAME_PATH", "a%b")];
    for (section, assign_type, properties, wanted) in [
        ("NamePolicy=onboard slot path\nName=zz0\n", "1", &long[..], "exact15chars000"),
        ("NamePolicy=onboard slot path\nName=zz0\n", "1", &bad[..], "zz0"),
        ("NamePolicy=onboard slot path\n", "1", &bad[..], "br0"),
        ("NamePolicy=keep path\n", "3", &long[..], "br0"),
        ("NamePolicy=keep path\n", "4", &long[..], "br0"),
        ("NamePolicy=keep path\n", "1", &long[..], "exact15chars000"),
        ("NamePolicy=kernel path\n", "2", &long[..], "br0"),
        ("NamePolicy=kernel path\n", "3", &long[..], "exact15chars000"),
        ("NamePolicy=kernel path\n", "-", &long[..], "exact15chars000"),
        ("Name=zz0\n", "1", &long[..], "zz0"),
        ("", "1", &long[..], "br0"),
    ] {
        let machine = machine("br0", section, &[("name_assign_type", assign_type)]);
        assert_eq!(
            name(&machine, &event(&machine, Action::Add, "br0", properties)),
            wanted,
            "{section} {assign_type}"
        );
    }
}

#[test]
fn old_schemes_leave_renamed_links_alone() {
    for (scheme, wanted) in [("v239", "br0"), ("v240", "zz0")] {
        let machine = Machine { scheme, ..machine("br0", "Name=zz0\n", &[("name_assign_type", "4")]) };
        assert_eq!(name(&machine, &event(&machine, Action::Add, "br0", &[])), wanted);
    }
}

#[test]
fn net_ifnames_disables_the_policy_only() {
    let path = [("ID_NET_NAME_PATH", "pat0")];
    for (command_line, section, wanted) in [
        ("net.ifnames=0", "NamePolicy=path\n", "br0"),
        ("net.ifnames=0", "NamePolicy=path\nName=zz0\n", "zz0"),
        ("net.ifnames", "NamePolicy=path\n", "pat0"),
        ("net.ifnames=1", "NamePolicy=path\n", "pat0"),
        ("", "NamePolicy=path\n", "pat0"),
    ] {
        let section = format!("{section}AlternativeNamesPolicy=path\nAlternativeName=alt0\n");
        let machine = Machine { command_line, ..machine("br0", &section, &[]) };
        let result = machine.call(BuiltinName::NetSetupLink, &event(&machine, Action::Add, "br0", &path));
        assert_eq!(property(&result, "ID_NET_NAME").unwrap(), wanted, "{command_line}");
        let alt_names: &[&str] = if wanted == "pat0" { &["alt0"] } else { &["alt0", "pat0"] };
        assert_eq!(result.alt_names, alt_names, "{command_line}");
    }
}

#[test]
fn alternative_names_are_sorted_and_each_there_once() {
    let section = "AlternativeName=alt1 alt2 alt1\nAlternativeNamesPolicy=database onboard slot path mac\n";
    let machine = machine("br0", section, &[]);
    let properties = [
        ("ID_NET_NAME_FROM_DATABASE", "db0"),
        ("ID_NET_NAME_ONBOARD", "onb0"),
        ("ID_NET_NAME_SLOT", "slo0"),
        ("ID_NET_NAME_PATH", "pat0"),
        ("ID_NET_NAME_MAC", "mac0"),
    ];
    let result = machine.call(BuiltinName::NetSetupLink, &event(&machine, Action::Add, "br0", &properties));
    assert_eq!(result.alt_names, ["alt1", "alt2", "db0", "mac0", "onb0", "pat0", "slo0"]);
    let result = machine.call(BuiltinName::NetSetupLink, &event(&machine, Action::Move, "br0", &properties));
    assert_eq!(result.alt_names, [""; 0]);
}

/// An event whose record says these properties.
fn with_record(mut event: Event, properties: &[(&str, &str)]) -> Event {
    let properties = properties.iter().copied().collect();
    event.old = Some(Arc::new(Record { properties, ..Record::default() }));
    event
}

fn shown(result: &BuiltinResult, machine: &Machine) -> Vec<String> {
    let root = machine.tree.root.display().to_string();
    let show = |(name, value): &(BString, Option<BString>)| match value {
        Some(value) => format!("{name}={value}").replace(&root, ""),
        None => format!("-{name}"),
    };
    result.properties.iter().map(show).collect()
}

#[test]
fn each_action_does_its_part() {
    let machine = machine("br0", "Name=zz0\n", &[]);
    let file = "ID_NET_LINK_FILE=/etc/systemd/network/a.link";
    for (action, wanted) in [
        (Action::Add, vec![file, "ID_NET_NAME=zz0"]),
        (Action::Bind, vec![file, "ID_NET_NAME=br0"]),
        (Action::Move, vec![file, "ID_NET_NAME=br0"]),
        (Action::Change, vec!["ID_NET_LINK_FILE=/x.link", "ID_NET_LINK_FILE_DROPINS=/y", "ID_NET_NAME=br0"]),
        (Action::Online, vec!["ID_NET_LINK_FILE=/x.link", "ID_NET_LINK_FILE_DROPINS=/y", "ID_NET_NAME=br0"]),
        (Action::Unbind, vec!["ID_NET_LINK_FILE=/x.link", "ID_NET_LINK_FILE_DROPINS=/y", "ID_NET_NAME=br0"]),
    ] {
        let event = with_record(
            event(&machine, action, "br0", &[]),
            &[("ID_NET_LINK_FILE", "/x.link"), ("OTHER", "1"), ("ID_NET_LINK_FILE_DROPINS", "/y")],
        );
        assert_eq!(shown(&machine.call(BuiltinName::NetSetupLink, &event), &machine), wanted, "{action:?}");
    }
}

#[test]
fn loopback_is_for_no_file_but_has_a_name_on_change() {
    let machine = machine("lo", "Name=zz0\n", &[("flags", "0x9"), ("type", "772")]);
    let result = machine.call(BuiltinName::NetSetupLink, &event(&machine, Action::Add, "lo", &[]));
    assert!(result.success && result.properties.is_empty());
    let result = machine.call(BuiltinName::NetSetupLink, &event(&machine, Action::Change, "lo", &[]));
    assert_eq!(shown(&result, &machine), ["ID_NET_NAME=lo"]);
}

#[test]
fn the_first_file_that_matches_is_the_only_one() {
    let machine = machine("br0", "Name=zz0\n", &[]);
    machine.tree.file("run/systemd/network/b.link", "[Match]\nOriginalName=br0\n[Link]\nName=zz1\n");
    assert_eq!(name(&machine, &event(&machine, Action::Add, "br0", &[])), "zz0");
    machine.tree.file("run/systemd/network/0.link", "[Match]\nOriginalName=br1\n[Link]\nName=zz2\n");
    assert_eq!(name(&machine, &event(&machine, Action::Add, "br0", &[])), "zz0");
    machine.tree.file("etc/systemd/network/a.link", "");
    assert_eq!(name(&machine, &event(&machine, Action::Add, "br0", &[])), "zz1");
    machine.tree.file("run/systemd/network/b.link", "");
    let result = machine.call(BuiltinName::NetSetupLink, &event(&machine, Action::Add, "br0", &[]));
    assert!(result.success && result.properties.is_empty());
}

#[test]
fn drop_ins_are_listed_with_escapes() {
    let machine = machine("br0", "", &[]);
    let any = "[Match]\nOriginalName=*\n";
    machine
        .tree
        .file("etc/systemd/network/10-a.link", any)
        .file("run/systemd/network/10-a.link.d/10-y.conf", any)
        .file("etc/systemd/network/10-a.link.d/20-x.conf", any)
        .file("usr/lib/systemd/network/10-a.link.d/20-x.conf", any)
        .file("etc/systemd/network/10-a.link.d/30-a:b\\c.conf", any);
    let result = machine.call(BuiltinName::NetSetupLink, &event(&machine, Action::Add, "br0", &[]));
    assert_eq!(
        shown(&result, &machine)[1],
        "ID_NET_LINK_FILE_DROPINS=/run/systemd/network/10-a.link.d/10-y.conf:\
         /etc/systemd/network/10-a.link.d/20-x.conf:\
         /etc/systemd/network/10-a.link.d/30-a\\x3ab\\x5cc.conf"
    );
}

#[test]
fn properties_are_imported_then_set_then_dropped() {
    let section = "UnsetProperty=C ID_PATH\nProperty=B=new C=new ID_NET_NAME=mine\nImportProperty=A B C\n";
    let machine = machine("br0", section, &[]);
    let record = [("A", "old"), ("B", "old"), ("C", "old"), ("D", "old")];
    let event = with_record(event(&machine, Action::Add, "br0", &[]), &record);
    assert_eq!(
        shown(&machine.call(BuiltinName::NetSetupLink, &event), &machine),
        [
            "A=old",
            "B=new",
            "ID_NET_NAME=mine",
            "-C",
            "-ID_PATH",
            "ID_NET_LINK_FILE=/etc/systemd/network/a.link",
            "ID_NET_NAME=br0"
        ]
    );
}

#[test]
fn a_file_by_name_for_a_numbered_link_is_warned_about() {
    for (pattern, assign_type, warns) in
        [("eth0", "1", true), ("eth0", "3", false), ("*", "1", false), ("!x", "1", false)]
    {
        let machine = machine("eth0", "", &[("name_assign_type", assign_type)]);
        machine.tree.file("etc/systemd/network/a.link", format!("[Match]\nOriginalName={pattern}\n"));
        let result = machine.call(BuiltinName::NetSetupLink, &event(&machine, Action::Add, "eth0", &[]));
        assert_eq!(result.messages.len(), usize::from(warns), "{pattern} {assign_type}");
    }
}

#[test]
fn a_name_with_an_exclamation_mark_stays_as_it_is() {
    for (scheme, wanted) in [("v261", "a!b"), ("v257", "a/b")] {
        let machine = Machine { scheme, ..machine("a!b", "", &[]) };
        assert_eq!(name(&machine, &event(&machine, Action::Add, "a!b", &[])), wanted, "{scheme}");
    }
}

#[test]
fn arguments_are_an_error() {
    let machine = machine("br0", "", &[]);
    let event = event(&machine, Action::Add, "br0", &[]);
    let argv = ["net_setup_link".into(), "x".into()];
    let call =
        Call { builtin: BuiltinName::NetSetupLink, argv: &argv, event: &event, facts: &[], dry: false };
    let tried =
        machine.builtins().0.run(&call, &Sysfs::new(&machine.tree.roots()), &crate::links::Table::new());
    assert_eq!(tried, Ok(BuiltinResult::default()));
}

#[test]
fn settings_are_asked_for_once_and_a_refusal_is_a_warning() {
    let machine = machine("br0", "MTUBytes=1400\n", &[]);
    let event = event(&machine, Action::Add, "br0", &[]);
    let roots = machine.tree.roots();
    let (files, _) = LinkFiles::load(&Host::new(roots, "".into()));
    let sysfs = Sysfs::new(&machine.tree.roots());
    let link = LinkFacts::of_files(&sysfs, &event);
    let argv = ["net_setup_link".into()];
    let run = |facts: &[Fact], dry: bool| {
        let call = Call { builtin: BuiltinName::NetSetupLink, argv: &argv, event: &event, facts, dry };
        let context =
            Context { scheme: NamingScheme::latest(), sysfs: &sysfs, link_files: &files, driver: None, dry };
        super::run(&context, &call, &link)
    };
    let settings = Settings { mtu: Some(1400), ..Settings::default() };
    assert_eq!(run(&[Fact::Link], false), Err(Need::Rtnl(set_link(crate::model::IfIndex(5), &settings, 0))));
    let messages = |tried: Result<BuiltinResult, Need>| match tried {
        Ok(result) => {
            assert!(result.success && property(&result, "ID_NET_NAME").is_some());
            result.messages.len()
        }
        Err(need) => panic!("{need:?}"),
    };
    assert_eq!(messages(run(&[Fact::Link, Fact::Rtnl(Ok(()))], false)), 0);
    assert_eq!(messages(run(&[Fact::Rtnl(Err(crate::model::Errno(libc::EINVAL)))], false)), 1);
    assert_eq!(messages(run(&[], true)), 0);
}

#[test]
fn a_setting_that_the_row_has_already_is_compared_with_a_fresh_row() {
    let wanted = |lines: &str| machine("br0", lines, &[]);
    let argv = ["net_setup_link".into()];
    for (lines, of_row, left_out) in [
        ("MTUBytes=1400\n", LinkFacts { mtu: Some(1400), ..LinkFacts::default() }, true),
        ("MTUBytes=1400\n", LinkFacts { mtu: Some(1300), ..LinkFacts::default() }, false),
        ("Alias=a\n", LinkFacts { alias: b"a".into(), ..LinkFacts::default() }, true),
        // One that is not set is enough.
        ("Alias=a\nMTUBytes=1400\n", LinkFacts { mtu: Some(1400), ..LinkFacts::default() }, true),
        ("TransmitQueueLength=5\n", LinkFacts { tx_queue_len: Some(5), ..LinkFacts::default() }, true),
        ("TransmitQueues=2\n", LinkFacts { tx_queues: Some(2), ..LinkFacts::default() }, true),
        ("ReceiveQueues=2\n", LinkFacts { rx_queues: Some(2), ..LinkFacts::default() }, true),
        (
            "MACAddressPolicy=none\nMACAddress=02:00:00:00:00:01\n",
            LinkFacts {
                ifi_type: Some(1),
                address: [2, 0, 0, 0, 0, 1].to_vec().into(),
                ..LinkFacts::default()
            },
            true,
        ),
        // Nothing is compared.
        ("Description=x\n", LinkFacts::default(), false),
        ("GenericSegmentOffloadMaxSegments=5\n", LinkFacts::default(), false),
    ] {
        let machine = wanted(lines);
        let event = event(&machine, Action::Add, "br0", &[]);
        let roots = machine.tree.roots();
        let (files, _) = LinkFiles::load(&Host::new(roots, "".into()));
        let sysfs = Sysfs::new(&machine.tree.roots());
        let run = |facts: &[Fact]| {
            let call =
                Call { builtin: BuiltinName::NetSetupLink, argv: &argv, event: &event, facts, dry: false };
            let context = Context {
                scheme: NamingScheme::latest(),
                sysfs: &sysfs,
                link_files: &files,
                driver: None,
                dry: false,
            };
            super::run(&context, &call, &of_row)
        };
        let fresh = Err(Need::FreshLink { ifindex: crate::model::IfIndex(5), statistics: false });
        assert_eq!(run(&[]) == fresh, left_out, "{lines}");
        assert_ne!(run(&[Fact::Link]), fresh, "{lines}");
    }
}
