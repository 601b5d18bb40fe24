//! The tool beside Debian's `udevadm` 252, on the devices of this machine and records that the test writes: what both
//! print must be the same, and so must be how they exit. The tables of `adm::trigger` and `adm::info` say
//! literally what is right, without a judge; this test finds what the tables do not think of.
//!
//! Must stay true: nothing is triggered (`--dry-run` always), and all of it happens in a cell.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/live.rs"]
mod live;

use live::{in_cell, tool_path};
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

/// Words behind `trigger --dry-run --verbose`, separated by `|`; one call a line.
const TRIGGER: &str = "
-t|devices
-t|subsystems
-t|all
-s|net
-s|n*|-s|mem
-s|
-S|tty|-S|mem
-s|module
-t|all|-s|module
-t|all|-S|drivers
-t|subsystems|-y|drivers
-t|subsystems|-y|drivers|-y|pci
-t|all|-p|DRIVER=*
-t|all|--initialized-match
-t|subsystems|--initialized-nomatch
-a|dev
-a|dev=1:*
-a|dev|-a|mtu
-a|mtu=65536|-a|mtu=1500
-a|mtu=none|-a|mtu
-a|mtu|-a|mtu=none
-a|power/control=auto
-a|subsystem=net
-a|driver=*
-a|none
-s|net|-A|mtu=65536
-s|net|-A|mtu|-A|mtu=none
-A|
-p|DEVLINKS=*/dev/la*
-p|TAGS=*:t1:*
-p|CURRENT_TAGS=*
-p|USEC_INITIALIZED=4*
-p|DEVNAME=/dev/null
-p|DEVNAME=null
-p|SUBSYSTEM=mem|-p|SUBSYSTEM=net
-p|DEVPATH=*/net/*
-p|MAJOR=1
-p|DEVTYPE=disk
-p|DEVMODE=0666
-p|A=b=c
-p|*=ext4
-p|EMPTY=
-p|*=*
-p|NONE=*
-g|t1
-g|t1|-g|t2
-g|t1|-s|net
-g|t1|-t|subsystems
-g|none
-g|
-y|lo
-y|tty[0-3]|-y|null
-y|
-b|/sys/class/net/lo
-b|/class/net/lo
-b|class/net/lo
-b|/dev/null
-b|null
-b|/sys/devices
-b|/sys/devices/virtual
-b|/sys/bus
-b|/sys/bus/pci
-b|/sys/bus/platform|-t|subsystems
-b|/sys/module
-b|/sys/class
-b|/sys/class/net/lo|-s|mem
-b|dev-null.device
-b|/sys/none
-b|/run/syslo
-b|
--name-match=null
--name-match=/dev/la one
--name-match=char/1:3
--name-match=/dev/char/1:3
--name-match=none
--name-match=
--name-match=regular
--name-match=dev-null.device
--name-match=/sys/class/net/lo
--prioritized-subsystem=net,mem
--prioritized-subsystem=module,block,tpmrm,net,tty,input|-t|all
--prioritized-subsystem=
--initialized-match
--initialized-match|--initialized-nomatch
/dev/null
/dev/null|/sys/class/net/lo
/dev/char/1:3
/dev/null/
//dev/null
/sys/class/net/lo/
/sys/class/net
/sys/class/net/lo/mtu
/sys/class/net/lo/queues/rx-0
/sys/module
/class/net/lo
/run/syslo
sys-class-net-lo.device
dev--null.device
none.device
lo
null

/
-c|frob
-c|help
-t|frob
--none
--ini
";

/// Words behind `info`.
const INFO: &str = "

/dev/null
/sys/class/net/lo
/dev/null|/sys/class/net/lo
-q|name|/dev/null
-q|name|-r|/dev/null
-q|name|/sys/class/net/lo
-q|name|/dev/null|/sys/class/net/lo|/dev/zero
-q|symlink|/dev/zero
-q|symlink|/dev/random
-q|symlink|-r|/dev/random
-q|path|/dev/null
-q|property|/dev/null
-q|env|/sys/class/net/lo
-q|property|-x|/dev/null
-q|property|-P|X_|/dev/null
-q|property|--property=A,MAJOR|/dev/null
-q|property|--property=A|--property=|/dev/null
-q|property|--value|--property=MAJOR|/dev/null
-q|property|--value|-x|/dev/null
-q|frob|/dev/null
-q|path|/dev/null|/dev/none|/dev/zero
-q|path|/dev/zero|-p|/class/net/lo|-n|null
-n|null
-n|/dev/null|-q|path
-n|char/1:3|-q|path
-n|la one|-q|path
-n|/sys/class/net/lo
-n|
-p|/sys/class/net/lo|-q|path
-p|class/net/lo|-q|path
-p|/class/net/lo/|-q|path
-p|sys/class/net/lo
-p|/bus/platform
-p|/bus/platform/drivers
-p|/module/printk
-p|/power
-p|/devices/virtual
-p|/devices/virtual/net
-p|
-e
-e|-q|path
-q|property|-e
-e|/dev/null
-t
-t|/dev/null
-t|/sys/class/net/lo
-t|/sys/devices/system/cpu/cpu0
-t|/sys/bus/platform/drivers
-t|/sys/module/printk
-t|/sys/class/net
-t|/dev/null|/dev/zero
-a
-a|/dev/null|/dev/zero
-d|/
-d|/dev
-d|/none
-x|-d|/
-P|ROOT_|-d|/
-d|/|/dev/null
-w0|-q|path|/dev/null
-w0|-q|path|/dev/zero
-w0.01|-q|path|/dev/zero|/dev/null
-wfoo|/dev/null
//dev/null|-q|path
/dev/null/
/dev/char/1:3|-q|name
/dev/char/1:|-q|name
/run/syslo|-q|path
sys-class-net-lo.device|-q|path
dev-nul\\x6c.device|-q|path
dev-null-.device
-dev-null.device
none.device
/sys
/dev
/
/etc/passwd
/sys/class/net/lo/mtu
/sys/class/net/lo/queues/rx-0
lo
--frob
";

/// Records, tags and symlinks that the lines speak of.
fn furnish() {
    for (path, text) in [
        ("data/c1:3", "S:la one\nL:7\nI:42\nE:A=b=c\nE:FS=ext4\nE:Q=it's \"x\" $y\nG:t1\nQ:t1\nV:1\n"),
        ("data/c1:8", "S:rnd\nI:43\nE:EMPTY=\nV:1\n"),
        ("data/n1", "I:44\nG:t2\nQ:t2\nV:1\n"),
        ("data/+module:printk", "I:45\nG:t1\nQ:t1\nV:1\n"),
        ("data/+subsystem:platform", "I:46\nE:B=1\nV:1\n"),
        ("tags/t1/c1:3", ""),
        ("tags/t1/+module:printk", ""),
        ("tags/t2/n1", ""),
    ] {
        let path = Path::new("/run/udev").join(path);
        std::fs::create_dir_all(path.parent().expect("below /run")).expect("folder");
        std::fs::write(path, text).expect("writes");
    }
    symlink("null", "/dev/la one").expect("symlink");
    symlink("/sys/class/net/lo", "/run/syslo").expect("symlink");
    std::fs::write("/dev/regular", "").expect("writes");
}

/// Exit status, output and, to show it, error output.
fn call(tool: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(tool)
        .args(words)
        .env("LC_ALL", "C")
        .env("SYSTEMD_IGNORE_CHROOT", "1")
        .stdin(Stdio::null())
        .output()
        .expect("starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// What both must have: without the lines of id and driver subsystem, which only newer releases print, and with the
/// properties of a record sorted, since releases disagree where SUBSYSTEM stands.
fn comparable(text: &str) -> String {
    let bare = |line: &str| line.trim_start_matches(['|', ' ', ':']).to_owned();
    let is_new = |line: &str| bare(line).starts_with("J: ") || bare(line).starts_with("B: ");
    let mut lines: Vec<&str> = text.split_inclusive('\n').filter(|line| !is_new(line)).collect();
    for properties in lines.chunk_by_mut(|a, b| bare(a).starts_with("E: ") && bare(b).starts_with("E: ")) {
        properties.sort();
    }
    lines.concat()
}

/// The calls on which the two differ, with what they said. Devices come and go on a busy machine: what differs is looked
/// at some times more.
fn differences(peer: &Path, fixed: &[&str], lines: &str) -> Vec<String> {
    const LOOKS: usize = 5;
    let mut found = Vec::new();
    for line in lines.trim_matches('\n').split('\n') {
        let words: Vec<&str> = fixed.iter().copied().chain(line.split('|')).collect();
        let mut last = None;
        for _ in 0..LOOKS {
            let (theirs, ours) = (call(peer, &words), call(&tool_path(), &words));
            if (theirs.0, comparable(&theirs.1)) == (ours.0, comparable(&ours.1)) {
                last = None;
                break;
            }
            last = Some((theirs, ours));
        }
        if let Some((theirs, ours)) = last {
            found.push(difference(&words, &theirs, &ours));
        }
    }
    found
}

fn difference(
    words: &[&str],
    theirs: &(Option<i32>, String, String),
    ours: &(Option<i32>, String, String),
) -> String {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (a, b) = (lines(&comparable(&theirs.1)), lines(&comparable(&ours.1)));
    let few = |set: Vec<&String>| set.into_iter().take(6).cloned().collect::<Vec<_>>();
    format!(
        "{words:?}: exit {:?} and {:?}\n  only 252: {:?}\n  only ours: {:?}\n  said: {:?} and {:?}",
        theirs.0,
        ours.0,
        few(a.difference(&b).collect()),
        few(b.difference(&a).collect()),
        theirs.2.trim(),
        ours.2.trim()
    )
}

#[test]
fn the_tool_prints_what_debians_prints() {
    let Some(peer) = cell::peer_root().map(|root| root.join("bin/udevadm")) else {
        println!("skipped: Debian's udev is not unpacked below target/peer/root (make peer)");
        return;
    };
    let version = Command::new(&peer).arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        println!("skipped: Debian's udevadm does not run here");
        return;
    }
    in_cell(|| {
        furnish();
        let mut found = differences(&peer, &["trigger", "--dry-run", "--verbose"], TRIGGER);
        found.extend(differences(&peer, &["info"], INFO));
        assert!(found.is_empty(), "{} calls differ:\n{}", found.len(), found.join("\n"));
    });
}
