//! Cases from the field that need a kernel; the others are in test/cases/field.case. Each is named after its case.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/live.rs"]
mod live;
#[path = "support/loops.rs"]
mod loops;

use live::{Live, daemon_path, eventually, fresh_uuid, ifindex, in_cell, ip, record, write_uevent};
use loops::Loop;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NET: &str = "/devices/virtual/net";

/// Triggers an event and waits until it was handled.
fn trigger(live: &mut Live, action: &str, syspath: &str) -> cell::Message {
    let uuid = fresh_uuid();
    write_uevent(syspath, &format!("{action} {uuid}"));
    live.announced_that(action, |m| m.get("SYNTH_UUID") == uuid)
}

#[test]
fn f09_a_symlink_where_a_folder_is_and_a_folder_where_a_symlink_is() {
    in_cell(|| {
        let (x, y) = (Loop::add().expect("a loop device"), Loop::add().expect("a loop device"));
        let rules = format!(
            "KERNEL==\"{}\", SYMLINK+=\"folder\", SYMLINK+=\"taken/below\", SYMLINK+=\"x/\", SYMLINK+=\"mine\", ENV{{END}}=\"1\"\n\
             KERNEL==\"{}\", SYMLINK+=\"mine/below\", SYMLINK+=\"yours\", ENV{{END}}=\"1\"\n",
            x.name(),
            y.name()
        );
        std::fs::create_dir("/dev/folder").expect("a folder");
        std::os::unix::fs::symlink("null", "/dev/taken").expect("a symlink");
        let mut live = Live::start(&rules);
        for disk in [&x, &y] {
            trigger(&mut live, "change", &disk.syspath());
            assert!(record(&disk.id()).contains("E:END=1"), "the event went on");
        }
        assert!(Path::new("/dev/folder").is_dir(), "the folder is no symlink");
        assert_eq!(std::fs::read_link("/dev/taken").expect("a symlink"), Path::new("null"));
        let leads_to = |link: &str| std::fs::canonicalize(link).expect("the symlink is there");
        assert_eq!(leads_to("/dev/mine"), x.node());
        assert_eq!(leads_to("/dev/yours"), y.node());
        live.stop();
    });
}

#[test]
fn f11_new_names_that_are_alternative_names() {
    in_cell(|| {
        let rules = "ENV{SYNTH_UUID}==\"?*\", SUBSYSTEM==\"net\", KERNEL==\"e0\", NAME=\"own\", ENV{MINE}=\"1\"\n\
                     ENV{SYNTH_UUID}==\"?*\", SUBSYSTEM==\"net\", KERNEL==\"f0\", NAME=\"theirs\", ENV{MINE}=\"1\"\n\
                     ENV{SEEN}=\"$env{INTERFACE}\"\n";
        let mut live = Live::start(rules);
        ip("link add e0 type veth peer name e1");
        ip("link add f0 type veth peer name f1");
        ip("link property add dev e0 altname own");
        ip("link property add dev f1 altname theirs");
        let (e0, f0) = (ifindex("e0"), ifindex("f0"));
        for name in ["e0", "f0"] {
            live.announced("add", &format!("{NET}/{name}"));
        }
        let renamed = trigger(&mut live, "add", "/sys/class/net/e0");
        assert_eq!((renamed.get("INTERFACE"), renamed.get("UDEV_WORKER_FAILED")), ("own", ""));
        assert_eq!(ifindex("own"), e0);
        let failed = trigger(&mut live, "add", "/sys/class/net/f0");
        assert_eq!((failed.get("INTERFACE"), failed.get("UDEV_WORKER_ERRNO_NAME")), ("f0", "EEXIST"));
        assert!(record(&format!("n{f0}")).contains("E:MINE=1"), "its properties are kept");
        ip("link set f0 name byhand");
        live.announced("move", &format!("{NET}/byhand"));
        let seen = trigger(&mut live, "change", "/sys/class/net/byhand");
        assert_eq!((seen.get("INTERFACE"), seen.get("SEEN")), ("byhand", "byhand"));
        live.stop();
    });
}

#[test]
fn f12_a_program_that_leaves_a_child_with_its_pipe_ends_at_once_with_its_whole_output() {
    in_cell(|| {
        let leaves = "/bin/sh -c 'sleep 100 & echo A=left'";
        let rules = format!(
            "SUBSYSTEM!=\"net\", GOTO=\"end\"\nACTION!=\"change\", GOTO=\"end\"\n\
             PROGRAM==\"{leaves}\", ENV{{OUT}}=\"%c\"\nIMPORT{{program}}==\"{leaves}\"\nRUN+=\"{leaves}\"\nLABEL=\"end\"\n"
        );
        let mut live = Live::start(&rules);
        ip("link add g0 type veth peer name g1");
        live.announced("add", &format!("{NET}/g0"));
        let began = Instant::now();
        let message = trigger(&mut live, "change", "/sys/class/net/g0");
        assert!(began.elapsed() < Duration::from_secs(50), "nobody waited for what holds the pipe");
        assert_eq!((message.get("OUT"), message.get("A")), ("A=left", "left"));
        live.stop();
    });
}

#[test]
fn f19_no_result_of_many_programs_that_end_at_once_is_lost() {
    in_cell(|| {
        let rules = "SUBSYSTEM!=\"net\", GOTO=\"end\"\n\
                     PROGRAM==\"/bin/echo one-%k\", ENV{ONE}=\"%c\"\n\
                     IMPORT{program}==\"/bin/echo TWO=two-%k\"\n\
                     PROGRAM==\"/bin/echo three-%k\", ENV{THREE}=\"%c\"\n\
                     LABEL=\"end\"\n";
        let mut live = Live::start(rules);
        for n in 0..20 {
            ip(&format!("link add h{n} type veth peer name i{n}"));
        }
        let messages = live.settled();
        let mut complete = 0;
        for message in messages.iter().filter(|m| m.get("ACTION") == "add" && m.get("SUBSYSTEM") == "net") {
            let name = message.get("INTERFACE");
            for (key, word) in [("ONE", "one"), ("TWO", "two"), ("THREE", "three")] {
                assert_eq!(message.get(key), format!("{word}-{name}"));
            }
            complete += usize::from(name.starts_with(['h', 'i']));
        }
        assert_eq!(complete, 40);
        live.stop();
    });
}

#[test]
fn f20_a_second_daemon_ends_and_says_whom_it_found() {
    in_cell(|| {
        let mut live = Live::start("ENV{X}=\"1\"\n");
        let second = Command::new(daemon_path()).stdin(Stdio::null()).output().expect("starts a second");
        assert_eq!(second.status.code(), Some(1));
        let message = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(message.contains(&live.pid().to_string()), "it names the process: {message}");
        eventually("the first one still serves", || live.alive());
        ip("link add k0 type veth peer name k1");
        live.announced("add", &format!("{NET}/k0"));
        live.stop();
    });
}
