use super::file::Wanted;
use super::parser::Parser;
use super::values::*;
use super::*;
use crate::builtin::ini::Assignment;
use crate::builtin::machine::Machine;
use crate::world::temporary_folder;
use crate::world::tree::Tree;
use bstr::BString;

fn host(tree: &Tree, command_line: &str) -> Host {
    let roots = tree.roots();
    Host::new(roots, command_line.into())
}

/// Loads the tree; the log without the path of the tree.
fn load(tree: &Tree) -> (LinkFiles, Vec<String>) {
    let (files, log) = LinkFiles::load(&host(tree, "quiet"));
    let root = format!("{}/", tree.root.display());
    (files, log.into_iter().map(|line| line.replace(&root, "")).collect())
}

/// What one file says in its [Link] section, and the complaints about it without the file's name.
fn link(section: &str) -> (Wanted, Vec<String>) {
    let tree = Tree::new();
    tree.file("etc/systemd/network/a.link", format!("[Match]\nOriginalName=*\n[Link]\n{section}"));
    let (mut files, log) = load(&tree);
    let log = log.into_iter().map(|line| line.replace("etc/systemd/network/a.link", "a")).collect();
    (files.files.remove(0).wanted, log)
}

/// Paths of the files that are used, with `D` in front of drop-ins.
fn used(tree: &Tree) -> Vec<String> {
    let root = format!("{}/", tree.root.display());
    let show = |path: &BString| path.to_string().replace(&root, "").replace("systemd/network/", "");
    let (files, _) = load(tree);
    files
        .iter()
        .flat_map(|f| {
            [show(&f.path)].into_iter().chain(f.drop_ins.iter().map(|d| "D ".to_owned() + &show(d)))
        })
        .collect()
}

const ANY: &str = "[Match]\nOriginalName=*\n";

#[test]
fn one_list_over_all_folders_is_sorted_by_name_and_higher_ones_hide() {
    let tree = Tree::new();
    tree.file("usr/lib/systemd/network/99-default.link", ANY)
        .file("usr/lib/systemd/network/10-a.link", ANY)
        .file("usr/local/lib/systemd/network/10-a.link", ANY)
        .file("run/systemd/network/20-b.link", ANY)
        .file("etc/systemd/network/20-b.link", ANY)
        .file("etc/systemd/network/30-c.network", ANY);
    assert_eq!(used(&tree), ["usr/local/lib/10-a.link", "etc/20-b.link", "usr/lib/99-default.link"]);
}

#[test]
fn an_empty_file_and_dev_null_hide_the_lower_file_and_blanks_are_no_mask() {
    let tree = Tree::new();
    for name in ["a", "b", "c"] {
        tree.file(&format!("usr/lib/systemd/network/{name}.link"), ANY);
    }
    tree.file("etc/systemd/network/a.link", "")
        .link("etc/systemd/network/b.link", "/dev/null")
        .file("etc/systemd/network/c.link", "\n");
    let (files, log) = load(&tree);
    assert_eq!(files.iter().count(), 0);
    assert_eq!(log, ["etc/systemd/network/c.link: no valid setting in [Match], the file is ignored"]);
}

#[test]
fn drop_ins_come_from_all_folders_and_hide_like_files() {
    let tree = Tree::new();
    tree.file("usr/lib/systemd/network/10-a.link", ANY)
        .file("run/systemd/network/10-a.link.d/10-y.conf", "[Link]\nMTUBytes=1400\n")
        .file("usr/lib/systemd/network/10-a.link.d/20-x.conf", "[Link]\nAlias=low\n")
        .file("etc/systemd/network/10-a.link.d/20-x.conf", "[Link]\nAlias=high\n")
        .file("usr/lib/systemd/network/10-a.link.d/30-z.conf", "[Link]\nAlias=hidden\n")
        .file("etc/systemd/network/10-a.link.d/30-z.conf", "")
        .link("etc/systemd/network/10-a.link.d/40-null.conf", "/dev/null")
        .file("etc/systemd/network/10-.link.d/x.conf", "[Link]\nAlias=prefix\n")
        .file("etc/systemd/network/link.d/x.conf", "[Link]\nAlias=all\n")
        .file("etc/systemd/network/missing.link.d/x.conf", ANY);
    assert_eq!(
        used(&tree),
        ["usr/lib/10-a.link", "D run/10-a.link.d/10-y.conf", "D etc/10-a.link.d/20-x.conf"]
    );
    let (files, _) = load(&tree);
    let settings = &files.files[0].wanted.settings;
    assert_eq!((settings.mtu, settings.alias.clone()), (Some(1400), Some("high".into())));
}

#[test]
fn a_drop_in_may_bring_the_match() {
    let tree = Tree::new();
    tree.file("etc/systemd/network/a.link", "[Link]\nMTUBytes=1400\n");
    assert_eq!(used(&tree), [""; 0]);
    tree.file("run/systemd/network/a.link.d/m.conf", ANY);
    assert_eq!(used(&tree), ["etc/a.link", "D run/a.link.d/m.conf"]);
    tree.file("run/systemd/network/a.link.d/n.conf", "[Match]\nOriginalName=\n");
    assert_eq!(used(&tree), [""; 0]);
}

#[test]
fn broken_text_in_any_part_drops_the_file() {
    for broken in ["[Link\nMTUBytes=1\n".as_bytes(), b"[Link]\nAlias=\xff\n"] {
        let tree = Tree::new();
        tree.file("etc/systemd/network/a.link", ANY).file("etc/systemd/network/a.link.d/b.conf", broken);
        let (files, log) = load(&tree);
        assert_eq!((files.iter().count(), log.len()), (0, 1), "{log:?}");
        assert!(
            log[0].starts_with("etc/systemd/network/a.link.d/b.conf:")
                && log[0].ends_with("the file is ignored")
        );
    }
}

#[test]
fn a_false_condition_removes_the_file_without_a_word() {
    for (condition, count) in [("quiet", 1), ("!quiet", 0), ("debug", 0)] {
        let tree = Tree::new();
        tree.file("etc/systemd/network/a.link", format!("[Match]\nKernelCommandLine={condition}\n"));
        let (files, log) = load(&tree);
        assert_eq!((files.iter().count(), log.len()), (count, 0), "{condition}");
    }
}

#[test]
fn all_is_told_that_does_not_count() {
    let tree = Tree::new();
    tree.file(
        "etc/systemd/network/a.link",
        "x=1\n[Match]\nOriginalName=* all\nOrignalName=x\n[X-Mine]\nA=1\n[Other]\nA=1\nno\n[Link]\nMTUBytes=junk\n\
         Duplex=full\nPort=tp\nPort=mii\nUDPSegmentationOffload=1\nMACAddress=2:0:0:0:0:8\nMACAddressPolicy=random\n\
         [SR-IOV]\nVirtualFunction=1\nFoo=1\n[SR-IOV]\nVirtualFunction=2\n",
    );
    let (files, log) = load(&tree);
    assert_eq!(files.iter().count(), 1);
    let mut log: Vec<&str> =
        log.iter().map(|line| line.strip_prefix("etc/systemd/network/a.link:").expect("the file")).collect();
    log.sort();
    assert_eq!(
        log,
        [
            " MACAddress= has no effect with this MACAddressPolicy=",
            " not carried out by this version, it comes later: Duplex= in [Link], Port= in [Link], \
             VirtualFunction= in [SR-IOV]",
            "11: MTUBytes=junk: no size, ignored",
            "15: UDPSegmentationOffload=1: was taken out of the kernel, ignored",
            "1: assignment before any section, ignored",
            "20: unknown key Foo= in [SR-IOV], ignored",
            "3: OriginalName=* all: no interface names: all, ignored",
            "4: unknown key OrignalName= in [Match], ignored",
            "8: unknown section [Other], ignored",
            "9: no '=' in this line, ignored",
        ]
    );
}

#[test]
fn settings_have_ranges() {
    for (line, good) in [
        ("MTUBytes=1K", true),
        ("MTUBytes=0x500", false),
        ("MTUBytes=-1", false),
        ("TransmitQueues=0", false),
        ("TransmitQueues=16384", true),
        ("ReceiveQueues=16385", false),
        ("TransmitQueueLength=0", true),
        ("TransmitQueueLength=4294967294", true),
        ("TransmitQueueLength=4294967295", false),
        ("GenericSegmentOffloadMaxBytes=64K", true),
        ("GenericSegmentOffloadMaxSegments=4294967296", false),
        ("Name=abcdefghijklmno", true),
        ("Name=abcdefghijklmnop", false),
        ("Name=a b", false),
        ("Alias=\"quoted\"", true),
        ("Alias=ü", false),
        ("MACAddress=junk", false),
        ("MACAddressPolicy=always", false),
        ("Description=anything at all", true),
    ] {
        let (_, log) = link(line);
        assert_eq!(log.is_empty(), good, "{line} {log:?}");
    }
    assert_eq!(link(&format!("Alias={}", "x".repeat(255))).1.len(), 0);
    assert_eq!(link(&format!("Alias={}", "x".repeat(256))).1.len(), 1);
}

#[test]
fn a_bad_value_leaves_the_good_one_before_it() {
    let (wanted, _) = link("MTUBytes=1400\nMTUBytes=junk\nName=a\nName=b\nAlias=x\nAlias=\n");
    assert_eq!(wanted.settings.mtu, Some(1400));
    assert_eq!(wanted.name.as_deref(), Some("b"));
    assert_eq!(wanted.settings.alias, None);
}

#[test]
fn policies_replace_and_names_append() {
    let (wanted, log) =
        link("NamePolicy=kernel mac\nNamePolicy=slot junk path\nAlternativeName=a b\nAlternativeName=c 1\n");
    assert_eq!(wanted.name_policy, [NamePolicy::Slot, NamePolicy::Path]);
    assert_eq!(wanted.alt_names, ["a", "b", "c"]);
    assert_eq!(
        log,
        [
            "a:5: NamePolicy=slot junk path: no policies: junk, ignored",
            "a:7: AlternativeName=c 1: no alternative names: 1, ignored"
        ]
    );
    let (wanted, log) = link(
        "AlternativeNamesPolicy=mac\nAlternativeNamesPolicy=keep database\nAlternativeName=a\nAlternativeName=\n",
    );
    assert_eq!((wanted.alt_names_policy, wanted.alt_names.len()), (vec![NamePolicy::Database], 0));
    assert_eq!(log, ["a:5: AlternativeNamesPolicy=keep database: no policies: keep, ignored"]);
}

#[test]
fn sizes_have_base_1024() {
    for (text, bytes) in [
        ("1400", Some(1400)),
        ("1400B", Some(1400)),
        ("1K", Some(1024)),
        ("1.5K", Some(1536)),
        ("1.5 K", Some(1536)),
        ("2M", Some(2 << 20)),
        ("3.999999999999999G", Some(4294967294)),
        ("4G", None),
        ("1T", None),
        ("0x500", None),
        ("1k", None),
        (".5K", None),
        ("K", None),
        ("", None),
        ("99999999999999999999", None),
    ] {
        assert_eq!(parse_size(text), bytes, "{text}");
    }
}

#[test]
fn properties_are_expanded_and_those_of_the_kernel_refused() {
    let tree = Tree::new();
    tree.file("proc/sys/kernel/hostname", "box.example\n").file("etc/machine-id", "0123456789abcdef0123456789abcdef").file(
        "etc/systemd/network/a.link",
        "[Match]\nOriginalName=*\n[Link]\nProperty=A=1 \"B=x y\" H=%H L=%l%% M=%m T=%T/x V=%V\nProperty=INTERFACE=x .H=1 B-C=1 Z=%Z ok\n\
         ImportProperty=A DEVTYPE\nUnsetProperty=C D\n",
    );
    let (files, log) = load(&tree);
    let wanted = &files.files[0].wanted;
    let shown: Vec<String> =
        wanted.properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
    // As the environment of the test has it.
    let place = |survives| temporary_folder(survives, |name| std::env::var_os(name));
    let (t, v) = (format!("T={}/x", place(false).display()), format!("V={}", place(true).display()));
    assert_eq!(
        shown,
        ["A=1", "B=x y", "H=box.example", "L=box%", "M=0123456789abcdef0123456789abcdef", &t, &v]
    );
    assert_eq!(
        (&*wanted.import_properties, &*wanted.unset_properties),
        (&["A".to_owned()][..], &["C".to_owned(), "D".to_owned()][..])
    );
    assert_eq!(log.len(), 2, "{log:?}");
    assert!(log[0].ends_with("cannot be set: INTERFACE=x .H=1 B-C=1 Z=%Z ok, ignored"), "{log:?}");
}

#[test]
fn any_change_of_a_file_or_drop_in_is_seen() {
    let tree = Tree::new();
    let machine = Machine { tree, ..Machine::new() };
    let tree = &machine.tree;
    tree.file("etc/systemd/network/a.link", ANY).file("etc/systemd/network/a.link.d/b.conf", "[Link]\n");
    let (mut builtins, _) = machine.builtins();
    let mut changes = |what: &str, change: &dyn Fn()| {
        let has_changed = |builtins: &crate::builtin::Builtins| {
            let (folders, state) = builtins.link_files();
            state_of(&folders) != state
        };
        assert!(!has_changed(&builtins), "before: {what}");
        change();
        assert!(has_changed(&builtins), "{what}");
        builtins.reload(&Texts::read(&tree.roots()));
    };
    changes("a file grows", &|| _ = tree.file("etc/systemd/network/a.link", format!("{ANY}# x\n")));
    changes("a drop-in grows", &|| _ = tree.file("etc/systemd/network/a.link.d/b.conf", "[Link]\n# x\n"));
    changes("a file is added", &|| _ = tree.file("run/systemd/network/c.link", ANY));
    changes("a drop-in is added", &|| _ = tree.file("run/systemd/network/c.link.d/d.conf", ANY));
    changes("a drop-in is removed", &|| {
        std::fs::remove_file(tree.path("run/systemd/network/c.link.d/d.conf")).unwrap()
    });
    changes("a file is removed", &|| std::fs::remove_file(tree.path("run/systemd/network/c.link")).unwrap());
}

#[test]
fn the_default_file_of_the_field_is_read_without_a_word() {
    let (wanted, log) = link(
        "NamePolicy=keep kernel database onboard slot path\nAlternativeNamesPolicy=database onboard slot path mac\nMACAddressPolicy=persistent\n",
    );
    assert_eq!(log, [""; 0]);
    assert_eq!(wanted.mac_policy, MacPolicy::Persistent);
    assert_eq!(wanted.name_policy.len(), 6);
}

proptest::proptest! {
    #[test]
    fn no_value_panics(key in 0usize..100, value in r#"[0-9A-Za-z.:!%="' \\-]{0,24}|.{0,12}"#) {
        let tree = Tree::new();
        let host = host(&tree, "");
        let keys = [
            "Alias", "MACAddress", "NamePolicy", "Name", "AlternativeNamesPolicy", "AlternativeName",
            "TransmitQueues", "MTUBytes", "GenericSegmentOffloadMaxBytes", "Property", "ImportProperty",
            "PermanentMACAddress", "OriginalName", "Path", "Host", "Virtualization", "KernelCommandLine",
            "KernelVersion", "Credential", "Architecture", "Firmware",
        ];
        let mut parser = Parser::new(&host);
        for section in ["Match", "Link"] {
            let key = keys[key % keys.len()].to_owned();
            parser.assign(&Assignment { line: 1, section: section.into(), instance: 1, key, value: value.clone() });
        }
    }
}
