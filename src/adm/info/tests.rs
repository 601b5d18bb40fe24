use super::*;
use crate::world::tree::Tree;

/// A disk behind a controller, an interface, a driver, and records of the first two.
fn machine() -> Tree {
    let tree = Tree::new();
    let pci = "sys/devices/pci0/0000:01";
    tree.file(&format!("{pci}/uevent"), "DRIVER=ahci\nPCI_ID=1\n")
        .link(&format!("{pci}/subsystem"), "../../../bus/pci")
        .link(&format!("{pci}/driver"), "../../../bus/pci/drivers/ahci")
        .link("sys/bus/pci/devices/0000:01", "../../../devices/pci0/0000:01")
        .file(&format!("{pci}/vendor"), "0x8086\n")
        .file(&format!("{pci}/remove"), "")
        .mode(&format!("{pci}/remove"), 0o200)
        .dir("sys/bus/pci/drivers/ahci")
        .dir("sys/module/loop/parameters");
    let disk = format!("{pci}/block/sda");
    tree.file(&format!("{disk}/uevent"), "MAJOR=8\nMINOR=16\nDEVNAME=bus!x/sda\nDEVTYPE=disk\nDISKSEQ=9\n")
        .link(&format!("{disk}/subsystem"), "../../../../../class/block")
        .link("sys/class/block/sda", "../../devices/pci0/0000:01/block/sda")
        .link("sys/dev/block/8:16", "../../devices/pci0/0000:01/block/sda")
        .file(&format!("{disk}/size"), "10\n")
        .file(&format!("{disk}/queue/depth"), "2\n")
        .file(&format!("{disk}/stat"), "1\n2\n")
        .file(&format!("{disk}/backing"), "/image\n")
        .file(&format!("{disk}/dev"), "8:16\n")
        .file(&format!("{disk}/sda1/uevent"), "")
        .link(&format!("{disk}/sda1/subsystem"), "../../../../../../class/block")
        .file(&format!("{disk}/sda1/start"), "1\n");
    tree.file("sys/devices/virtual/net/lo/uevent", "INTERFACE=lo\nIFINDEX=1\n")
        .file("sys/devices/virtual/net/lo/ifindex", "1\n")
        .link("sys/devices/virtual/net/lo/subsystem", "../../../../class/net")
        .link("sys/class/net/lo", "../../devices/virtual/net/lo");
    tree.file(
        "run/udev/data/b8:16",
        "S:disk/by-id/x\nS:a\nL:7\nI:725464701\nE:FOO=b ar\nE:DEVTYPE=other\nG:old\nG:new\nQ:new\nV:1\n",
    );
    tree.file("run/udev/data/n1", "");
    tree
}

const DISK: &str = "/sys/class/block/sda";

fn info(tree: &Tree, words: &[&str]) -> (Outcome, String) {
    let mut out = Vec::new();
    let outcome = run(&mut Parser::from_args(words), &tree.roots(), &mut out);
    (outcome, String::from_utf8(out).expect("text"))
}

fn shown(tree: &Tree, words: &[&str]) -> String {
    let (outcome, text) = info(tree, words);
    assert_eq!(outcome, Ok(ExitCode::SUCCESS), "{words:?}");
    text
}

const DISK_HEAD: &str = "P: /devices/pci0/0000:01/block/sda\nM: sda\nJ: b8:16\nU: block\nT: disk\nD: b 8:16\n\
    N: bus!x/sda\nL: 7\nS: disk/by-id/x\nS: a\nQ: 9\n";
const DISK_TAIL: &str = "E: USEC_INITIALIZED=725464701\nE: FOO=b ar\n\
    E: DEVLINKS=/dev/disk/by-id/x /dev/a\nE: TAGS=:old:new:\nE: CURRENT_TAGS=:new:\n\n";

#[test]
fn a_record_has_its_lines_in_the_order_of_the_table() {
    let tree = machine();
    let uevent = "E: DEVNAME=/dev/bus!x/sda\nE: DEVTYPE=other\nE: DISKSEQ=9\nE: MAJOR=8\nE: MINOR=16\n";
    let (path, subsystem) = ("E: DEVPATH=/devices/pci0/0000:01/block/sda\n", "E: SUBSYSTEM=block\n");
    let record = [DISK_HEAD, path, uevent, subsystem, DISK_TAIL].concat();
    for words in [&[DISK][..], &["-p", "/class/block/sda"], &["b8:16"], &["-n", "block/8:16"]] {
        assert_eq!(shown(&tree, words), record, "{words:?}");
    }
    assert_eq!(
        shown(&tree, &["/sys/bus/pci/drivers/ahci"]),
        "P: /bus/pci/drivers/ahci\nM: ahci\nJ: +drivers:pci:ahci\nU: drivers\nB: pci\n\
         E: DEVPATH=/bus/pci/drivers/ahci\nE: SUBSYSTEM=drivers\n\n"
    );
    assert_eq!(
        shown(&tree, &["n1"]),
        "P: /devices/virtual/net/lo\nM: lo\nJ: n1\nU: net\nI: 1\nE: DEVPATH=/devices/virtual/net/lo\n\
         E: INTERFACE=lo\nE: IFINDEX=1\nE: SUBSYSTEM=net\n\n"
    );
    tree.file("sys/devices/pci0/uevent", "");
    assert_eq!(shown(&tree, &["/sys/devices/pci0"]), "P: /devices/pci0\nM: pci0\nR: 0\n\n", "no subsystem");
}

/// A device can be named in all these ways; see also view.rs.
#[test]
fn a_device_has_many_names() {
    let tree = machine();
    tree.link("link", tree.path("sys/class/net/lo").to_str().unwrap());
    let link = tree.path("link").into_os_string().into_string().unwrap();
    for words in [
        &["/sys/class/net/lo"][..],
        &["/sys/class/net/lo/"],
        &["/sys//class/net/./lo"],
        &["//sys/class/net/lo"],
        &["n1"],
        &["+net:lo"],
        &["sys-class-net-lo.device"],
        &["sys-class-net-l\\x6f.device"],
        &["-p", "/sys/class/net/lo"],
        &["-p", "/class/net/lo"],
        &["-p", "class/net/lo"],
        &[&link],
    ] {
        assert_eq!(
            shown(&tree, &[&["-q", "path"], words].concat()),
            "/devices/virtual/net/lo\n",
            "{words:?}"
        );
    }
    for words in
        [&["/dev/block/8:16"][..], &["-n", "block/8:16"], &["dev-block-8:16.device"], &["+block:sda"]]
    {
        assert_eq!(shown(&tree, &[&["-q", "name"], words].concat()), "bus!x/sda\n", "{words:?}");
    }
    for (words, expected) in [
        (
            &["sda"][..],
            "Bad argument \"sda\", expected an absolute path in /dev/ or /sys/, a device id or a unit name \
             (tried {cwd}/sda)",
        ),
        (&["/class/net/lo"], "Unknown device \"/class/net/lo\": No such device"),
        (&["class/net/lo"], "Unknown device \"class/net/lo\": No such device (tried {cwd}/class/net/lo)"),
        (&["-p", "sys/class/net/lo"], "Unknown device \"/sys/sys/class/net/lo\": No such device"),
        (
            &["-n", "/sys/class/net/lo"],
            "Unknown device \"/sys/class/net/lo\": No such device (tried /dev/sys/class/net/lo)",
        ),
        (&["-n", "n1"], "Unknown device \"n1\": No such device (tried /dev/n1)"),
        (&["+net:none"], "Unknown device \"+net:none\": No such device (tried {cwd}/+net:none)"),
        (&["n9"], "Unknown device \"n9\": No such device (tried {cwd}/n9)"),
        (
            &["none-x.device"],
            "Unknown device \"none-x.device\": No such device (tried /none/x, {cwd}/none-x.device)",
        ),
        (&[""], "Bad argument \"\", expected an absolute path in /dev/ or /sys/, a device id or a unit name"),
    ] {
        let cwd = std::env::current_dir().unwrap().into_os_string().into_string().unwrap();
        let expected = expected.replace("{cwd}", &cwd);
        assert_eq!(info(&tree, words), (Err(Stop::Failed(expected)), String::new()), "{words:?}");
    }
}

#[test]
fn queries_answer_one_question() {
    let tree = machine();
    for (words, expected) in [
        (&["-q", "name"][..], "bus!x/sda\n"),
        (&["-rq", "name"], "/dev/bus!x/sda\n"),
        (&["--query=symlink"], "disk/by-id/x a\n"),
        (&["-q", "symlink", "-r"], "/dev/disk/by-id/x /dev/a\n"),
        (&["-q", "symlink", "--value"], "disk/by-id/x\na\n\n"),
        (&["-q", "path"], "/devices/pci0/0000:01/block/sda\n"),
        (&["-q", "env", "--property=FOO,MAJOR"], "MAJOR=8\nFOO=b ar\n"),
        (&["-q", "property", "--property=FOO", "--property", "MINOR", "--value"], "16\nb ar\n"),
        (&["-q", "property", "--property="], ""),
        (&["-xq", "property", "--property=FOO"], "FOO='b ar'\n"),
        (&["-q", "property", "-P", "X_", "--property=FOO"], "X_FOO='b ar'\n"),
        (&["-q", "property", "--json=short", "--property=FOO"], "FOO=b ar\n"),
    ] {
        assert_eq!(shown(&tree, &[words, &[DISK]].concat()), expected, "{words:?}");
    }
    assert_eq!(shown(&tree, &["-q", "symlink", "n1"]), "\n");
    // Devices of options come before words, wherever they stand.
    let both = "/devices/virtual/net/lo\n/devices/pci0/0000:01/block/sda\n";
    assert_eq!(shown(&tree, &["-q", "path", "n1", DISK]), both);
    assert_eq!(shown(&tree, &["-q", "path", DISK, "-p", "/class/net/lo"]), both);
}

#[test]
fn the_last_of_the_options_that_choose_wins_and_a_query_is_none_of_them() {
    let tree = machine();
    let all = shown(&tree, &["-e"]);
    assert!(
        all.contains("P: /devices/pci0/0000:01/block/sda\n") && all.contains("P: /devices/virtual/net/lo\n")
    );
    for words in [
        &["-e", "-q", "path"][..],
        &["-q", "property", "-e"],
        &["-e", "-q", "property", "--value", "--property=MAJOR"],
        &["-a", "-e"],
        &["-t", "-d", "/", "-e"],
        &["-e", DISK],
    ] {
        assert_eq!(shown(&tree, words), all, "{words:?}");
    }
    let walk = shown(&tree, &["-a", "n1"]);
    for words in [&["-a", "-q", "path", "n1"][..], &["-q", "path", "-a", "n1"], &["-t", "-a", "n1"]] {
        assert_eq!(shown(&tree, words), walk, "{words:?}");
    }
    assert_eq!(shown(&tree, &["-a", "-t", "-q", "name", "n1"]), shown(&tree, &["-t", "n1"]));
    for words in [&["-d", "/", "n1"][..], &["-q", "path", "-d", "/", "n1"], &["-c", "n1"], &["-c", "-n", "x"]]
    {
        let text = "no device may be given with -d/--device-id-of-file and -c/--cleanup-db";
        assert_eq!(info(&tree, words), (Err(Stop::failed(text)), String::new()), "{words:?}");
    }
}

#[test]
fn json_has_names_before_properties_and_only_strings() {
    let tree = machine();
    assert_eq!(
        shown(&tree, &["--json=short", "n1"]),
        "{\"SYSNAME\":\"lo\",\"DEVICE_ID\":\"n1\",\"DEVPATH\":\"/devices/virtual/net/lo\",\
         \"INTERFACE\":\"lo\",\"IFINDEX\":\"1\",\"SUBSYSTEM\":\"net\"}\n"
    );
    assert_eq!(
        shown(&tree, &["--json=pretty", "n1"]),
        "{\n\t\"SYSNAME\" : \"lo\",\n\t\"DEVICE_ID\" : \"n1\",\n\t\"DEVPATH\" : \"/devices/virtual/net/lo\",\n\t\
         \"INTERFACE\" : \"lo\",\n\t\"IFINDEX\" : \"1\",\n\t\"SUBSYSTEM\" : \"net\"\n}\n"
    );
    assert_eq!(shown(&tree, &["--json=help", "none"]), "pretty\nshort\noff\n");
    assert_eq!(shown(&tree, &["--json=short", "--json=off", "n1"]), shown(&tree, &["n1"]));
    let all = shown(&tree, &["-e", "--json=pretty"]);
    let objects: Vec<serde_json::Value> =
        serde_json::Deserializer::from_str(&all).into_iter().collect::<Result<_, _>>().unwrap();
    assert_eq!(objects.len(), shown(&tree, &["-e"]).matches("P: ").count());
    assert!(objects.iter().any(|o| o["SYSNAME"] == "sda" && o["MAJOR"] == "8"));
}

#[test]
fn the_walk_shows_what_rules_can_match() {
    let tree = machine();
    let walk = shown(&tree, &["-a", DISK]);
    let (introduction, devices) = walk.split_once("  looking at device").unwrap();
    assert!(introduction.starts_with('\n') && introduction.ends_with(".\n\n"));
    assert_eq!(introduction.lines().count(), 7, "as many as udevadm prints");
    assert_eq!(
        devices,
        " '/devices/pci0/0000:01/block/sda':\n    KERNEL==\"sda\"\n    SUBSYSTEM==\"block\"\n    \
         DRIVER==\"\"\n    ATTR{queue/depth}==\"2\"\n    ATTR{size}==\"10\"\n\n  \
         looking at parent device '/devices/pci0/0000:01':\n    KERNELS==\"0000:01\"\n    \
         SUBSYSTEMS==\"pci\"\n    DRIVERS==\"ahci\"\n    ATTRS{remove}==\"(not readable)\"\n    \
         ATTRS{vendor}==\"0x8086\"\n\n"
    );
    assert_eq!(
        shown(&tree, &["-a", "--json=short", DISK]),
        "\x1e{\"DEVPATH\":\"/devices/pci0/0000:01/block/sda\",\"KERNEL\":\"sda\",\"SUBSYSTEM\":\"block\",\
         \"DRIVER\":null,\"ATTR\":{\"queue/depth\":\"2\",\"size\":\"10\"}}\n\
         \x1e{\"DEVPATH\":\"/devices/pci0/0000:01\",\"KERNELS\":\"0000:01\",\"SUBSYSTEMS\":\"pci\",\
         \"DRIVERS\":\"ahci\",\"ATTRS\":{\"remove\":\"(not readable)\",\"vendor\":\"0x8086\"}}\n"
    );
    assert_eq!(
        shown(&tree, &["-a", "--json=pretty", "/sys/bus/pci/drivers/ahci"])
            .split_inclusive("}\n")
            .next()
            .unwrap(),
        "\x1e{\n\t\"DEVPATH\" : \"/bus/pci/drivers/ahci\",\n\t\"KERNEL\" : \"ahci\",\n\t\
         \"SUBSYSTEM\" : \"drivers\",\n\t\"DRIVER\" : null,\n\t\"ATTR\" : null\n}\n"
    );
}

#[test]
fn an_attribute_that_acts_when_it_is_read_is_left_alone() {
    let tree = machine();
    tree.file("sys/class/zram-control/hot_add", "7\n").file("sys/class/zram-control/hot_remove", "1\n");
    let walk = shown(&tree, &["-a", "/sys/class/zram-control"]);
    assert!(walk.contains("hot_remove") && !walk.contains("hot_add"), "{walk}");
    assert!(!shown(&tree, &["-a", "/sys/class/net"]).contains("hot_add"));
}

#[test]
fn the_tree_has_children_below_their_parents() {
    let tree = machine();
    let all = shown(&tree, &["-t"]);
    let drawn: Vec<&str> = all.lines().filter(|line| !line.contains(": ")).collect();
    let drawn: Vec<String> =
        drawn.iter().map(|line| line.replace("├─", "|-").replace("└─", "`-").replace("│", "|")).collect();
    assert_eq!(
        drawn,
        [
            "|-/bus/pci",
            "| `-drivers",
            "|   `-ahci",
            "|-/devices/pci0/0000:01",
            "| `-block/sda",
            "|-/devices/virtual/net/lo",
            "`-/module/loop",
            "",
            "7 items shown."
        ]
    );
    let drawn = |device: &str| {
        let tree = shown(&tree, &["-t", device]);
        let tree = tree.replace("├─", "|-").replace("└─", "`-").replace("│", "|");
        tree.lines().filter(|line| !line.contains(": ")).collect::<Vec<_>>().join("\n")
    };
    // Those above it, but no others of theirs.
    tree.file("sys/devices/pci0/uevent", "");
    assert_eq!(
        drawn("/sys/class/block/sda"),
        "`-/devices/pci0/0000:01\n  `-block/sda\n    `-sda1\n\n3 items shown."
    );
    assert_eq!(drawn("/sys/bus/pci/drivers/ahci"), "`-/bus/pci\n  `-drivers\n    `-ahci\n\n3 items shown.");
    assert_eq!(drawn("/sys/module/loop"), "`-/module/loop\n  `-parameters\n\n2 items shown.");
}

#[test]
fn filters_choose_what_is_exported() {
    let tree = machine();
    for (words, expected) in [
        (&["--subsystem-match=net"][..], "P: /devices/virtual/net/lo\n"),
        (&["--initialized-match", "--subsystem-nomatch=net"], "P: /devices/pci0/0000:01/block/sda\n"),
        (&["--attr-match=size=1?", "--property-match=FOO=b*"], "P: /devices/pci0/0000:01/block/sda\n"),
        (&["--sysname-match=none"], ""),
    ] {
        let text = shown(&tree, &[&["-e"], words].concat());
        let first: String = text.lines().filter(|l| l.starts_with("P: ")).map(|l| format!("{l}\n")).collect();
        assert_eq!(first, expected, "{words:?}");
    }
}

#[test]
fn a_device_that_fails_does_not_hide_the_others() {
    let tree = machine();
    let (outcome, text) = info(&tree, &["-q", "path", "b9:9", "n1"]);
    assert_eq!((outcome, &*text), (Ok(ExitCode::FAILURE), "/devices/virtual/net/lo\n"));
    let (outcome, text) = info(&tree, &["-q", "path", "n1", "b9:9"]);
    assert!(matches!(outcome, Err(Stop::Failed(_))) && text == "/devices/virtual/net/lo\n");
    // One that is there but has not what is asked for ends it, as with udevadm.
    let (outcome, text) = info(&tree, &["-q", "name", DISK, "n1", DISK]);
    assert_eq!(
        (outcome, &*text),
        (Err(Stop::failed("/devices/virtual/net/lo has no device node")), "bus!x/sda\n")
    );
}

#[test]
fn what_cannot_be_answered_is_an_error() {
    let tree = machine();
    for words in [
        &[][..],
        &["-q", "frob", DISK],
        &["-q", "name", "n1"],
        &["sda"],
        &["b9:9"],
        &["/sys/class/none"],
        &["none.device"],
        &["-n", "none"],
        &["-p", "none"],
        &["-a", DISK, "n1"],
        &["-t", DISK, "n1"],
        &["-x", "--value", "-q", "property", DISK],
        &["-d", "/none"],
        &["--json=yes", DISK],
        &["-w=0.01", "/sys/bus/pci/devices/0000:01"],
        &["--frob"],
    ] {
        assert!(matches!(info(&tree, words).0, Err(Stop::Failed(_))), "{words:?}");
    }
}

#[test]
fn a_device_with_a_record_need_not_be_waited_for() {
    assert_eq!(shown(&machine(), &["-w0.01", "-q", "path", "n1"]), "/devices/virtual/net/lo\n");
    let unknown = ["-q", "path", "/sys/devices/pci0/0000:01"];
    assert_eq!(shown(&machine(), &[&["-w0"], &unknown[..]].concat()), "/devices/pci0/0000:01\n");
}

#[test]
fn the_number_of_a_file_system_is_printed() {
    let tree = machine();
    let meta = std::fs::metadata(tree.path("run")).unwrap();
    let (major, minor) = (libc::major(meta.dev()), libc::minor(meta.dev()));
    let run = tree.path("run").into_os_string().into_string().unwrap();
    for (words, expected) in [
        (&["-d", &run][..], format!("{major}:{minor}\n")),
        (&["-xd", &run], format!("INFO_MAJOR={major}\nINFO_MINOR={minor}\n")),
        (&["-P", "X", "-d", &run], format!("XMAJOR={major}\nXMINOR={minor}\n")),
    ] {
        assert_eq!(shown(&tree, words), expected);
    }
}
