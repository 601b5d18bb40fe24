use super::*;
use crate::world::tree::Tree;

fn machine() -> Tree {
    let tree = Tree::new();
    for (devpath, class) in
        [("virtual/mem/null", "mem"), ("virtual/mem/zero", "mem"), ("virtual/net/lo", "net")]
    {
        let name = devpath.rsplit('/').next().unwrap();
        tree.file(&format!("sys/devices/{devpath}/uevent"), "")
            .link(&format!("sys/devices/{devpath}/subsystem"), &format!("../../../../class/{class}"))
            .link(&format!("sys/class/{class}/{name}"), &format!("../../devices/{devpath}"));
    }
    tree.dir("run");
    tree
}

fn trigger(tree: &Tree, words: &[&str]) -> (Result<ExitCode, Stop>, String) {
    let mut out = Vec::new();
    let outcome = run(&mut Parser::from_args(words), &tree.roots(), &mut out);
    (outcome, String::from_utf8(out).unwrap())
}

#[test]
fn a_dry_run_lists_what_would_be_triggered() {
    let tree = machine();
    let (null, zero, lo) = (
        "/sys/devices/virtual/mem/null\n",
        "/sys/devices/virtual/mem/zero\n",
        "/sys/devices/virtual/net/lo\n",
    );
    for (words, expected) in [
        (&[][..], [null, zero, lo].concat()),
        (&["-s", "mem"], [null, zero].concat()),
        (&["-S", "mem"], lo.to_owned()),
        (&["--prioritized-subsystem=none,net"], [lo, null, zero].concat()),
        (&["/sys/class/mem/null"], null.to_owned()),
        (&["-b", "/class/net/lo", "-y", "l*"], lo.to_owned()),
        (&["--initialized-match"], String::new()),
        (&["-t", "subsystems"], String::new()),
    ] {
        let (outcome, printed) = trigger(&tree, &[&["-n", "-v"], words].concat());
        assert_eq!((outcome, printed), (Ok(ExitCode::SUCCESS), expected), "{words:?}");
    }
    assert_eq!(tree.read("sys/devices/virtual/mem/null/uevent"), b"");
}

#[test]
fn action_and_uuid_are_written_and_printed() {
    let tree = machine();
    let (outcome, printed) = trigger(&tree, &["--uuid", "--action=add", "-y", "null"]);
    assert_eq!((outcome, printed.len()), (Ok(ExitCode::SUCCESS), 37));
    let written = tree.read("sys/devices/virtual/mem/null/uevent");
    assert_eq!(written.as_bstr(), format!("add {}", printed.trim()));
    assert_eq!(tree.read("sys/devices/virtual/net/lo/uevent"), b"");
}

#[test]
fn one_device_that_fails_does_not_stop_the_others() {
    let tree = machine();
    std::fs::remove_file(tree.path("sys/devices/virtual/mem/null/uevent")).unwrap();
    tree.dir("sys/devices/virtual/mem/null/uevent");
    assert_eq!(trigger(&tree, &["-q"]).0, Ok(ExitCode::FAILURE));
    assert_eq!(tree.read("sys/devices/virtual/net/lo/uevent"), b"change");
    for (errno, judgement) in [
        (libc::ENOENT, Judgement::Gone),
        (libc::ENODEV, Judgement::Ignored),
        (libc::EROFS, Judgement::Hopeless),
        (libc::EACCES, Judgement::Failed),
        (libc::EINVAL, Judgement::Failed),
    ] {
        assert_eq!(judge(&io::Error::from_raw_os_error(errno)), judgement);
    }
}

#[test]
fn a_bad_time_to_wait_for_the_daemon_is_the_usual_one() {
    let tree = machine();
    for (word, seconds) in [("--wait-daemon", 5), ("--wait-daemon=x", 5), ("--wait-daemon=7", 7)] {
        let roots = tree.roots();
        let options = parse(&mut Parser::from_args([word]), &Devices::new(&roots), &mut Vec::new()).unwrap();
        assert_eq!(options.unwrap().wait_daemon, Some(Duration::from_secs(seconds)), "{word}");
    }
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let tree = machine();
    for words in [
        &["-t", "some"][..],
        &["-c", "frob"],
        &["null"],
        &["/sys/class/mem/none"],
        &["-b", "/none"],
        &["--name-match=none"],
        &["--frob"],
    ] {
        assert!(matches!(trigger(&tree, words).0, Err(Stop::Failed(_))), "{words:?}");
    }
    let (outcome, printed) = trigger(&tree, &["-c", "help"]);
    assert_eq!(outcome, Ok(ExitCode::SUCCESS));
    assert_eq!(printed, "add\nremove\nchange\nmove\nonline\noffline\nbind\nunbind\n");
}

#[test]
fn uuids_say_that_they_are_random() {
    assert_eq!(uuid_v4([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    assert_eq!(uuid_v4([0; 16]), "00000000-0000-4000-8000-000000000000");
}

#[test]
fn an_announcement_ends_the_waiting_for_its_uuid_alone() {
    let marks = [("u1", "/a"), ("u2", "/b")].map(|(u, d)| (d.into(), Mark::Uuid(u.into())));
    let mut pending: Pending = marks.into();
    let uevent = |uuid: &str| {
        let text = format!("ACTION=change DEVPATH=/a SUBSYSTEM=s SEQNUM=1 SYNTH_UUID={uuid}");
        Uevent::from_lines(text.split(' ').map(str::as_bytes)).unwrap()
    };
    assert_eq!(take_settled(&mut pending, &uevent("0")), None);
    assert_eq!(take_settled(&mut pending, &uevent("u2")), Some("/b".into()));
    assert_eq!(take_settled(&mut pending, &uevent("u2")), None);
    assert_eq!(pending.len(), 1);
}

/// Triggers two devices on a kernel that answers like this, and gives what it took.
fn trigger_on(
    words: &[&str],
    takes_uuids: bool,
    mut kernel: impl FnMut(&[u8]) -> io::Result<()>,
) -> (Vec<String>, Pending, ExitCode) {
    let tree = machine();
    let (roots, mut out, mut taken) = (tree.roots(), Vec::new(), Vec::new());
    let devices = Devices::new(&roots);
    let options = parse(&mut Parser::from_args(words), &devices, &mut out).unwrap().unwrap();
    let mut write = |_: &Path, text: &[u8]| {
        kernel(text).inspect(|()| taken.push(String::from_utf8(text.to_vec()).unwrap()))
    };
    let mut writer = Writer { write: &mut write, takes_uuids, last_event: &|| SeqNum(7) };
    let paths = ["/a", "/b"].map(BString::from).into_iter();
    let (pending, code) = write_all(paths, &options, &devices, &mut writer, &mut out).unwrap();
    assert_eq!(out, b"", "no UUID is printed that the kernel did not take");
    (taken, pending, code)
}

#[test]
fn a_kernel_that_takes_no_uuid_gets_the_bare_action() {
    let einval = || Err(io::Error::from_raw_os_error(libc::EINVAL));
    let mut refused = 0;
    let (taken, pending, code) = trigger_on(&["--settle"], true, |text| match text.contains(&b' ') {
        true => {
            refused += 1;
            einval()
        }
        false => Ok(()),
    });
    assert_eq!((taken, code, refused), (vec!["change".into(), "change".into()], ExitCode::SUCCESS, 1));
    let mark = || Mark::After(Action::Change, SeqNum(7));
    assert_eq!(pending, [("/a".into(), mark()), ("/b".into(), mark())].into());
    // Of one that would say nothing it is known beforehand.
    let (taken, pending, _) = trigger_on(&["--settle"], false, |_| Ok(()));
    assert_eq!((taken, pending.len()), (vec!["change".into(), "change".into()], 2));
    // Nobody wants to know: no UUID, whatever the kernel.
    let (taken, pending, _) = trigger_on(&[], true, |_| Ok(()));
    assert_eq!((taken, pending.len()), (vec!["change".into(), "change".into()], 0));
    // No other write would work either; it need not be said.
    let mut tried = 0;
    let (taken, _, code) = trigger_on(&["-q"], true, |_| {
        tried += 1;
        Err(io::Error::from_raw_os_error(libc::EROFS))
    });
    assert_eq!((taken, code, tried), (vec![], ExitCode::FAILURE, 1));
    // The action itself is unknown.
    let (taken, _, code) = trigger_on(&["-c", "bind", "--settle"], true, |_| einval());
    assert_eq!((taken, code), (vec![], ExitCode::FAILURE));
    let (taken, _, code) = trigger_on(&["--uuid"], true, |text| match text {
        b"change" => Ok(()),
        _ => einval(),
    });
    assert_eq!((taken, code), (vec![], ExitCode::FAILURE), "an event without its UUID is not wanted");
}

#[test]
fn an_event_without_a_uuid_is_known_by_device_action_and_number() {
    let mut pending: Pending =
        ["/a", "/b"].map(|d| (d.into(), Mark::After(Action::Change, SeqNum(7)))).into();
    let uevent = |action: &str, devpath: &str, seqnum: u32| {
        let text = format!("ACTION={action} DEVPATH={devpath} SUBSYSTEM=s SEQNUM={seqnum}");
        Uevent::from_lines(text.split(' ').map(str::as_bytes)).unwrap()
    };
    for other in [uevent("change", "/a", 7), uevent("add", "/a", 8), uevent("change", "/c", 8)] {
        assert_eq!(take_settled(&mut pending, &other), None);
    }
    assert_eq!(take_settled(&mut pending, &uevent("change", "/a", 8)), Some("/a".into()));
    assert_eq!(take_settled(&mut pending, &uevent("change", "/a", 9)), None);
    assert_eq!(pending.len(), 1);
}

#[test]
fn uuids_are_refused_where_the_kernel_has_none() {
    for (release, expected) in
        [("", true), ("6.18.44", true), ("4.13.0-rc1", true), ("4.12.14-150", false), ("4.9.337", false)]
    {
        assert_eq!(takes_uuids(release), expected, "{release}");
    }
    let tree = machine();
    tree.file("proc/sys/kernel/osrelease", "4.9.337\n");
    let (outcome, printed) = trigger(&tree, &["--uuid"]);
    let text = "--uuid needs kernel 4.13, older ones take no UUIDs";
    assert_eq!((outcome, printed), (Err(Stop::failed(text)), String::new()));
    assert_eq!(tree.read("sys/devices/virtual/net/lo/uevent"), b"");
}

/// A disk behind a controller of a bus without a root device of its own, two character devices, an interface,
/// a module without a uevent file, and records of some of them.
fn station() -> Tree {
    let tree = machine();
    let pci = "sys/devices/pci0/0000:01";
    tree.file("sys/devices/pci0/uevent", "")
        .file(&format!("{pci}/uevent"), "DRIVER=ahci\n")
        .link(&format!("{pci}/subsystem"), "../../../bus/pci")
        .link("sys/bus/pci/devices/0000:01", "../../../devices/pci0/0000:01")
        .dir("sys/bus/pci/drivers/ahci")
        .dir("sys/bus/pci/slots")
        .dir("sys/module/loop/parameters")
        .file(&format!("{pci}/block/sda/uevent"), "MAJOR=8\nMINOR=0\nDEVNAME=sda\nDEVTYPE=disk\n")
        .link(&format!("{pci}/block/sda/subsystem"), "../../../../../class/block")
        .file(&format!("{pci}/block/sda/size"), "10\n")
        .link("sys/class/block/sda", "../../devices/pci0/0000:01/block/sda")
        .link("sys/dev/block/8:0", "../../devices/pci0/0000:01/block/sda")
        .file("sys/devices/virtual/mem/null/uevent", "MAJOR=1\nMINOR=3\nDEVNAME=null\n")
        .link("sys/dev/char/1:3", "../../devices/virtual/mem/null")
        .file("sys/devices/virtual/net/lo/uevent", "INTERFACE=lo\nIFINDEX=1\n")
        .file("sys/devices/virtual/net/lo/ifindex", "1\n")
        .file("sys/devices/virtual/net/lo/mtu", "65536\n");
    tree.file("run/udev/data/b8:0", "S:la one\nS:x/y\nI:42\nE:A=b=c\nG:t1\nG:t2\nQ:t2\nV:1\n")
        .file("run/udev/data/n1", "I:43\nG:t1\nQ:t1\nV:1\n")
        .file("run/udev/data/+module:loop", "I:44\nG:t1\nQ:t1\nV:1\n");
    for entry in ["t1/b8:0", "t2/b8:0", "t1/n1", "t1/+module:loop"] {
        tree.file(&format!("run/udev/tags/{entry}"), "");
    }
    tree
}

/// What 252 and 262 print (262 alone where 252 has no such option), measured on a kernel with devices of the
/// same shape.
#[test]
fn devices_are_chosen_as_udevadm_chooses_them() {
    let tree = station();
    let disk = "devices/pci0/0000:01/block/sda";
    let controller = "devices/pci0/0000:01";
    let (lo, null, zero) = ("devices/virtual/net/lo", "devices/virtual/mem/null", "devices/virtual/mem/zero");
    let (module, bus) = ("module/loop", "bus/pci");
    let (drivers, driver) = ("bus/pci/drivers", "bus/pci/drivers/ahci");
    let host = "devices/pci0";
    for (words, expected) in [
        // Properties match as they are printed.
        (&["-p", "DEVLINKS=*/dev/la*"][..], &[disk][..]),
        (&["-p", "DEVLINKS=/dev/la one /dev/x/y"], &[disk]),
        (&["-p", "TAGS=:t1:t2:"], &[disk]),
        (&["-p", "TAGS=*:t1:*"], &[disk, lo]),
        (&["-p", "CURRENT_TAGS=*:t2:*"], &[disk]),
        (&["-p", "USEC_INITIALIZED=*"], &[disk, lo]),
        (&["-p", "DEVNAME=/dev/sda"], &[disk]),
        (&["-p", "DEVNAME=sda"], &[]),
        (&["-p", "SUBSYSTEM=net", "-p", "MAJOR=1"], &[null, lo]),
        (&["-p", "DEVPATH=/devices/*/lo"], &[lo]),
        (&["-p", "DRIVER=a*"], &[controller]),
        (&["-p", "A=b=c"], &[disk]),
        (&["-p", "*=4?"], &[disk, lo]),
        (&["-p", "NONE=*"], &[]),
        // Values of one attribute are alternatives, names are not; a name alone makes void what was before.
        (&["-a", "size=10", "-a", "size=7"], &[disk]),
        (&["-a", "size", "-a", "mtu"], &[]),
        (&["-a", "mtu=1", "-a", "mtu"], &[lo]),
        (&["-a", "mtu", "-a", "mtu=1"], &[]),
        (&["-a", "mtu=[1-9]*"], &[lo]),
        (&["-a", "subsystem=net"], &[lo]),
        (&["-s", "net", "-A", "mtu=1"], &[lo]),
        (&["-s", "net", "-A", "mtu"], &[]),
        (&["-s", "net", "-A", "mtu", "-A", "mtu=1"], &[lo]),
        // Tags are alternatives.
        (&["-g", "t2"], &[disk]),
        (&["-g", "t1", "-g", "t2"], &[disk, lo, module]),
        (&["-g", "t1", "-t", "subsystems"], &[module]),
        (&["-g", "t1", "-b", "/sys/devices/pci0"], &[disk]),
        // Parents.
        (&["--include-parents", "-y", "sda"], &[host, controller, disk]),
        (&["--include-parents", "-y", "sda", "-S", "pci", "-A", "none"], &[host, controller, disk]),
        (&["--include-parents", "-y", "lo"], &[lo]),
        (&["--include-parents", "-g", "t2"], &[disk]),
        (&["--include-parents", "/sys/class/block/sda"], &[disk]),
        (&["--include-parents", "-t", "subsystems", "-y", "ahci"], &["bus", bus, drivers, driver]),
        (&["--include-parents", "-t", "subsystems", "-g", "t1"], &["module", module]),
        // Kinds.
        (&["-t", "subsystems"], &[bus, drivers, driver, module]),
        (&["-t", "subsystems", "-y", "drivers"], &[]),
        (&["-t", "subsystems", "-s", "drivers"], &[drivers, driver]),
        (&["-t", "all"], &[bus, drivers, driver, controller, disk, null, zero, lo, module]),
        (&["-s", "module"], &[]),
        (&["-b", "/sys/bus/pci", "-t", "subsystems"], &[bus, drivers, driver]),
        (&["-b", "/sys/bus/pci"], &[bus, "bus/pci/devices", drivers, driver, "bus/pci/slots"]),
        (&["-b", "/sys/class/net/lo", "-t", "subsystems"], &[]),
        (&["-b", "/sys/class/mem"], &["class/mem"]),
        (&["/sys/module/loop"], &[module, "module/loop/parameters"]),
        // Names.
        (&["b8:0"], &[disk]),
        (&["n1"], &[lo]),
        (&["+net:lo"], &[lo]),
        (&["+module:loop"], &[module, "module/loop/parameters"]),
        (&["/dev/block/8:0"], &[disk]),
        (&["sys-class-net-lo.device"], &[lo]),
        (&["--name-match=block/8:0"], &[disk]),
        (&["--name-match=/dev/char/1:3"], &[null]),
        (&["--name-match=c1:3"], &[null]),
        (&["--name-match=dev-char-1:3.device"], &[null]),
        (&["--name-match=/sys/class/net/lo"], &[lo]),
        (&["-b", "class/net/lo"], &[lo]),
        (&["-b", "devices/pci0"], &[controller, disk]),
        (&["-b", "/class/net/lo", "-b", "n1"], &[lo]),
        (&["-b", "/sys/class/net/lo/", "-y", "lo"], &[lo]),
        // Order.
        (&["--prioritized-subsystem=mem,block"], &[null, zero, controller, disk, lo]),
        (
            &["--prioritized-subsystem=block", "--prioritized-subsystem=mem"],
            &[controller, disk, null, zero, lo],
        ),
        (&["--initialized-match", "--initialized-nomatch"], &[controller, null, zero]),
    ] {
        let expected: String = expected.iter().map(|devpath| format!("/sys/{devpath}\n")).collect();
        let (outcome, printed) = trigger(&tree, &[&["-n", "-v"], words].concat());
        assert_eq!((outcome, printed), (Ok(ExitCode::SUCCESS), expected), "{words:?}");
    }
    for words in
        [&["-p", "A"][..], &["-p", ""], &["-g", ""], &["--name-match=lo"], &["-b", "lo"], &["-b", "sda"]]
    {
        let (outcome, printed) = trigger(&tree, &[&["-n", "-v"], words].concat());
        assert!(matches!(outcome, Err(Stop::Failed(_))) && printed.is_empty(), "{words:?}");
    }
}
