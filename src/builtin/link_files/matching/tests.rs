use super::*;
use crate::world::tree::Tree;
use std::borrow::Cow;

/// A section of these assignments.
fn section(assignments: &[(&str, &str)]) -> Matching {
    let tree = Tree::new();
    let roots = tree.roots();
    let host = Host::new(roots, "quiet".into());
    let mut matching = Matching::default();
    for (key, value) in assignments {
        let _ = matching.assign(key, value, &host).expect(key);
    }
    matching
}

struct Link {
    facts: LinkFacts<'static>,
    name: &'static str,
    devtype: Option<&'static str>,
    properties: Properties,
}

impl Link {
    fn named(name: &'static str) -> Link {
        let facts = LinkFacts {
            ifi_type: Some(1),
            address: Cow::Borrowed(&[2, 0, 0, 0, 0, 8]),
            kind: Cow::Borrowed(b"veth"),
            ..LinkFacts::default()
        };
        Link { facts, name, devtype: None, properties: Properties::new() }
    }

    fn property(mut self, name: &str, value: &str) -> Link {
        self.properties.set(name, value);
        self
    }

    fn is_for(&self, assignments: &[(&str, &str)]) -> bool {
        section(assignments).matches(&Subject {
            link: &self.facts,
            name: self.name.as_bytes(),
            devtype: self.devtype.map(str::as_bytes),
            driver: self.properties.get("ID_NET_DRIVER").map(|driver| driver.as_bytes()),
            properties: &self.properties,
        })
    }
}

#[test]
fn names_match_by_pattern_and_a_negated_one_wins() {
    for (assignments, names) in [
        (vec![("OriginalName", "*")], "br0 br1 br2"),
        (vec![("OriginalName", "br0 br2")], "br0 br2"),
        (vec![("OriginalName", "!br0")], "br1 br2"),
        (vec![("OriginalName", "!br0 br1")], "br2"),
        (vec![("OriginalName", "br0"), ("OriginalName", "!br0")], ""),
        (vec![("OriginalName", "br?"), ("OriginalName", "!br0")], "br1 br2"),
        (vec![("OriginalName", "br0"), ("OriginalName", "")], "br0 br1 br2"),
        (vec![("OriginalName", "br0"), ("OriginalName", ""), ("OriginalName", "br1")], "br1"),
    ] {
        let found: Vec<&str> =
            ["br0", "br1", "br2"].into_iter().filter(|name| Link::named(name).is_for(&assignments)).collect();
        assert_eq!(found.join(" "), names, "{assignments:?}");
    }
}

#[test]
fn original_names_must_be_possible() {
    for (value, bad) in [
        ("all eth*", Some("all")),
        ("a/b", Some("a/b")),
        ("en*", None),
        ("abcdefghijklmnop", Some("abcdefghijklmnop")),
    ] {
        let tree = Tree::new();
        let roots = tree.roots();
        let host = Host::new(roots, "".into());
        let outcome = Matching::default().assign("OriginalName", value, &host).unwrap();
        assert_eq!(outcome.err(), bad.map(|bad| format!("no interface names: {bad}")), "{value}");
    }
}

#[test]
fn a_missing_value_satisfies_no_pattern_and_violates_no_negated_one() {
    let bare = Link::named("br0");
    assert!(!bare.is_for(&[("Path", "*")]) && bare.is_for(&[("Path", "!*")]));
    assert!(!bare.is_for(&[("Driver", "*")]) && bare.is_for(&[("Driver", "!*")]));
    let full = Link::named("br0").property("ID_PATH", "pci-0000:00:03.0").property("ID_NET_DRIVER", "e1000");
    assert!(full.is_for(&[("Path", "pci-*"), ("Driver", "e1000")]));
    assert!(!full.is_for(&[("Path", "!pci-*")]));
}

#[test]
fn all_properties_must_match() {
    let with = |value: Option<(&str, &str)>, text: &str| {
        let link = Link::named("br0");
        let link = value.map_or_else(|| Link::named("br0"), |(name, value)| link.property(name, value));
        link.is_for(&[("OriginalName", "*"), ("Property", text)])
    };
    assert!(with(None, "!W_A=12 W_B=y"));
    assert!(!with(Some(("W_B", "y")), "!W_A=12 W_B=y"));
    assert!(with(Some(("W_A", "11")), "!W_A=12 W_B=y"));
    assert!(with(Some(("W_A", "a b")), "\"W_A=a *\""));
    assert!(!with(Some(("W_A", "1")), "W_A=1 W_B=*"));
    // A word without `=` voids the assignment.
    assert!(with(None, "W_A=1 junk"));
}

#[test]
fn the_type_is_devtype_or_the_hardware() {
    let mut link = Link::named("br0");
    assert!(link.is_for(&[("Type", "ether")]) && !link.is_for(&[("Type", "wlan")]));
    link.devtype = Some("wlan");
    assert!(link.is_for(&[("Type", "wlan")]) && !link.is_for(&[("Type", "ether")]));
    link.devtype = None;
    for (number, name) in
        [(772, "loopback"), (32, "infiniband"), (0xfffe, "none"), (776, "sit"), (778, "ipgre")]
    {
        link.facts.ifi_type = Some(number);
        assert!(link.is_for(&[("Type", name)]), "{name}");
    }
    link.facts.ifi_type = Some(12345);
    assert!(!link.is_for(&[("Type", "*")]));
    assert!(HARDWARE.is_sorted());
}

#[test]
fn the_kind_is_that_of_the_kernel() {
    let mut link = Link::named("br0");
    assert!(link.is_for(&[("Kind", "veth bridge")]) && !link.is_for(&[("Kind", "!veth")]));
    link.facts.kind = Cow::Borrowed(b"");
    assert!(!link.is_for(&[("Kind", "*")]) && link.is_for(&[("Kind", "!veth")]));
}

#[test]
fn addresses_match_exactly() {
    let mut link = Link::named("br0");
    assert!(link.is_for(&[("MACAddress", "2:0:0:0:0:8")]));
    assert!(link.is_for(&[("MACAddress", "02-00-00-00-00-09 0200.0000.0008")]));
    assert!(!link.is_for(&[("MACAddress", "02:00:00:00:00:09")]));
    assert!(!link.is_for(&[("PermanentMACAddress", "2:0:0:0:0:8")]));
    link.facts.perm_address = Cow::Borrowed(&[2, 0, 0, 0, 0, 8]);
    assert!(link.is_for(&[("PermanentMACAddress", "2:0:0:0:0:8")]));
}

#[test]
fn addresses_have_several_forms() {
    let ib: Vec<u8> = (0..20).collect();
    let ib_text = ib.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":");
    for (text, bytes) in [
        ("52:54:00:12:34:56", Some(vec![0x52, 0x54, 0, 0x12, 0x34, 0x56])),
        ("52-54-00-12-34-56", Some(vec![0x52, 0x54, 0, 0x12, 0x34, 0x56])),
        ("5254.0012.3456", Some(vec![0x52, 0x54, 0, 0x12, 0x34, 0x56])),
        ("2:0:0:0:0:8", Some(vec![2, 0, 0, 0, 0, 8])),
        ("192.168.1.9", Some(vec![192, 168, 1, 9])),
        ("fe80::1", Some([&[0xfe, 0x80][..], &[0; 13], &[1]].concat())),
        (&ib_text, Some(ib)),
        ("525400123456", None),
        ("52:54:00:12:34", None),
        ("52:54:00:12:34:567", None),
        ("!52:54:00:12:34:56", None),
        ("52:54:00:12:34:5g", None),
        ("", None),
    ] {
        assert_eq!(parse_address(text), bytes, "{text}");
    }
}

#[test]
fn conditions_keep_their_last_assignment() {
    let holds = |assignments: &[(&str, &str)]| {
        let section = section(assignments);
        (!section.is_empty()).then(|| section.conditions_hold())
    };
    assert_eq!(holds(&[("KernelCommandLine", "quiet")]), Some(true));
    assert_eq!(holds(&[("KernelCommandLine", "!quiet")]), Some(false));
    assert_eq!(holds(&[("KernelCommandLine", "!quiet"), ("KernelCommandLine", "quiet")]), Some(true));
    assert_eq!(holds(&[("KernelCommandLine", "quiet"), ("Architecture", "z80")]), Some(false));
    assert_eq!(holds(&[("KernelCommandLine", "x"), ("KernelCommandLine", "")]), None);
}

#[test]
fn a_section_without_a_valid_setting_is_empty() {
    assert!(section(&[]).is_empty());
    assert!(section(&[("OriginalName", "all")]).is_empty());
    assert!(section(&[("MACAddress", "junk")]).is_empty());
    assert!(section(&[("Property", "junk")]).is_empty());
    assert!(section(&[("OriginalName", "*"), ("OriginalName", "")]).is_empty());
    assert!(!section(&[("Kind", "veth")]).is_empty());
}
