//! The daemon as a process: starting, readiness, clients, ending. Devices and rules are tested elsewhere.

mod support;

use mudev::daemon::sources::status::{LinkRow, Status};
use mudev::daemon::trace::{compile, replay};
use mudev::model::control::{Datagram, Message, VERSION_B};
use mudev::sys::process::{pipe, read, wait_readable};
use mudev::sys::unix;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use support::{LIMIT, isolated, run, wait_for};

const MUDEV: &str = env!("CARGO_BIN_EXE_mudev");

fn mudevd() -> Command {
    let mut command = Command::new(MUDEV);
    command.arg("daemon").env_clear().stdin(Stdio::null());
    command
}

/// A daemon in the foreground, ready.
fn start(arguments: &[&str]) -> Child {
    let ready = Path::new("/run/ready");
    let manager = UnixDatagram::bind(ready).expect("a socket to be told at");
    let child = mudevd().args(arguments).env("NOTIFY_SOCKET", ready).spawn().expect("it starts");
    manager.set_read_timeout(Some(LIMIT)).expect("a limit");
    let mut buffer = [0; 200];
    let n = manager.recv(&mut buffer).expect("it tells that it is ready");
    let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
    assert!(text.starts_with("READY=1\nSTATUS=Processing with "), "{text}");
    std::fs::remove_file(ready).expect("ours");
    child
}

fn ended(mut child: Child) -> ExitStatus {
    wait_for("the end of the daemon", || child.try_wait().expect("our child"))
}

fn connect(name: &str) -> OwnedFd {
    support::cell::connect(Path::new("/run/udev").join(name)).expect("the daemon listens")
}

fn send(client: &OwnedFd, version: &str, message: Message) {
    let datagram = Datagram { version: version.into(), message };
    unix::send(client.as_fd(), &datagram.render().expect("it fits")).expect("it is taken");
}

/// Waits until the daemon closes the connection.
fn closed(client: &OwnedFd) -> bool {
    wait_readable(client.as_fd(), LIMIT).expect("poll")
        && unix::receive(client.as_fd(), &mut [0; 8]).is_ok_and(|r| r.len == 0)
}

fn tell(messages: &[Message]) {
    let client = connect("control");
    messages.iter().for_each(|message| send(&client, VERSION_B, message.clone()));
    send(&client, VERSION_B, Message::End);
    assert!(closed(&client));
}

fn ask(request: &str) -> String {
    let client = connect("mudev.status");
    unix::send(client.as_fd(), request.as_bytes()).expect("it is taken");
    let (mut json, mut buffer) = (Vec::new(), vec![0; 65536]);
    loop {
        assert!(wait_readable(client.as_fd(), LIMIT).expect("poll"));
        match unix::receive(client.as_fd(), &mut buffer).expect("an answer").len {
            0 => return String::from_utf8(json).expect("JSON is UTF-8"),
            n => json.extend_from_slice(&buffer[..n]),
        }
    }
}

fn status() -> Status {
    serde_json::from_str(&ask("status")).expect("status")
}

#[test]
fn options_that_only_tell_something() {
    let output = |arguments: &[&str]| mudevd().args(arguments).output().expect("it runs");
    assert_eq!(output(&["-V"]).stdout, b"255\n");
    let help = String::from_utf8(output(&["--help"]).stdout).expect("text");
    for option in ["--coldplug", "--children-max", "--ready-fd", "--rules-dir", "--proc-dir"] {
        assert!(help.contains(option), "{option}");
    }
    assert_eq!(output(&["-c", "many", "--timeout-signal=SIGNOTHING", "word", "-V"]).stdout, b"255\n");
    for wrong in [&["--frob"][..], &["-t"], &["--ready-fd=many"], &["--events=-", "--daemon"]] {
        let output = output(wrong);
        assert_eq!(output.status.code(), Some(1), "{wrong:?}");
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn it_serves_clients_of_both_dialects_and_ends_by_message() {
    isolated("it_serves_clients_of_both_dialects_and_ends_by_message", || {
        let child = start(&[]);
        let silent = connect("control");
        tell(&[Message::Ping]);
        let eudev = connect("control");
        send(&eudev, "udev-3.2.14", Message::Ping);
        assert!(closed(&eudev));
        tell(&[Message::SetLogLevel(7), Message::SetChildrenMax(3), Message::Reload, Message::Ping]);
        let now = status();
        assert_eq!((now.log_level.as_str(), now.children_max, now.clients), ("debug", 3, 1));
        assert!(now.ready && !now.exiting);
        assert_eq!(now.pid, child.id());
        let exit = connect("control");
        send(&exit, VERSION_B, Message::Exit);
        assert!(closed(&exit) && closed(&silent));
        assert!(ended(child).success());
        assert!(!Path::new("/run/udev/queue").exists());
    });
}

#[test]
fn bad_messages_harm_nobody() {
    isolated("bad_messages_harm_nobody", || {
        let child = start(&[]);
        for bad in [&b"x"[..], &[0; 280], &[0xff; 281], &[0xff; 65536]] {
            let client = connect("control");
            unix::send(client.as_fd(), bad).expect("it is taken");
            assert!(closed(&client));
            let client = connect("mudev.status");
            unix::send(client.as_fd(), bad).expect("it is taken");
            drop(client);
        }
        assert!(ask("frob").contains("error"));
        tell(&[Message::Ping]);
        assert_eq!(status().clients, 0);
        run(&format!("kill -TERM {}", child.id()));
        assert!(ended(child).success());
    });
}

#[test]
fn sixty_clients_wait_side_by_side() {
    isolated("sixty_clients_wait_side_by_side", || {
        let child = start(&[]);
        let clients: Vec<OwnedFd> = (0..60).map(|_| connect("control")).collect();
        clients.iter().for_each(|c| send(c, VERSION_B, Message::Ping));
        clients.iter().rev().for_each(|c| send(c, VERSION_B, Message::End));
        assert!(clients.iter().all(closed));
        run(&format!("kill -INT {}", child.id()));
        assert!(ended(child).success());
    });
}

#[test]
fn the_link_table_follows_the_kernel() {
    isolated("the_link_table_follows_the_kernel", || {
        let child = start(&[]);
        let rows = || serde_json::from_str::<Vec<LinkRow>>(&ask("links")).expect("links");
        assert_eq!(rows().iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["lo"]);
        run("ip link add va type veth peer name vb");
        run("ip link set va mtu 1400 alias text up");
        let va = wait_for("va", || rows().into_iter().find(|r| r.name == "va" && r.alias == "text" && r.up));
        assert_eq!((va.mtu, va.kind.as_str()), (1400, "veth"));
        run("ip link del va");
        wait_for("its end", || (rows().len() == 1).then_some(()));
        assert_eq!(status().links, 1);
        run(&format!("kill -TERM {}", child.id()));
        assert!(ended(child).success());
    });
}

#[test]
fn detached_it_is_ready_when_the_parent_ends() {
    isolated("detached_it_is_ready_when_the_parent_ends", || {
        assert!(ended(mudevd().arg("--daemon").spawn().expect("it starts")).success());
        let pid = status().pid;
        let proc = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        match std::fs::write("/proc/self/oom_score_adj", "-1000") {
            Ok(()) => assert_eq!(proc("oom_score_adj"), "-1000\n"),
            Err(error) => println!("oom_score_adj: not tested, we may not set it: {error}"),
        }
        let fd = |n: u32| std::fs::read_link(format!("/proc/{pid}/fd/{n}")).expect("open");
        for n in 0..3 {
            assert_eq!(fd(n), Path::new("/dev/null"));
        }
        let stat = proc("stat");
        let session = stat.rsplit(") ").next().and_then(|s| s.split(' ').nth(3)).map(str::to_owned);
        assert_eq!(session, Some(pid.to_string()), "it leads a session");
        let exit = connect("control");
        send(&exit, VERSION_B, Message::Exit);
        assert!(closed(&exit));
    });
}

#[test]
fn detached_it_fails_when_it_cannot_start() {
    isolated("detached_it_fails_when_it_cannot_start", || {
        std::fs::write("/run/file", "").expect("written");
        let mut command = mudevd();
        command.args(["--daemon", "--run-dir=/run/file"]).stderr(Stdio::piped());
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("/run/file/udev"));
    });
}

#[test]
fn a_descriptor_is_written_to_once_it_is_ready() {
    isolated("a_descriptor_is_written_to_once_it_is_ready", || {
        use std::os::unix::process::CommandExt;
        let (reader, writer) = pipe().expect("a pipe");
        let mut command = mudevd();
        command.arg("--ready-fd=7");
        let raw = std::os::fd::AsRawFd::as_raw_fd(&writer);
        // SAFETY: dup2 is safe between fork and exec.
        unsafe {
            command.pre_exec(move || support::cell::check(libc::dup2(raw, 7)).map(drop));
        }
        let child = command.spawn().expect("it starts");
        drop(writer);
        let mut buffer = [0; 8];
        assert!(wait_readable(reader.as_fd(), LIMIT).expect("poll"));
        assert_eq!((read(reader.as_fd(), &mut buffer).expect("a byte"), buffer[0]), (1, b'\n'));
        assert!(wait_readable(reader.as_fd(), LIMIT).expect("poll"));
        assert_eq!(read(reader.as_fd(), &mut buffer).expect("the end"), 0, "and it is closed");
        run(&format!("kill -TERM {}", child.id()));
        assert!(ended(child).success());
    });
}

/// A daemon in the foreground with these sockets passed to it, in this order.
fn start_with_sockets(sockets: [&OwnedFd; 2], arguments: &str) -> Child {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("/bin/sh");
    let script = format!("LISTEN_PID=$$ LISTEN_FDS=2 exec \"$0\" daemon {arguments}");
    command.args(["-c", &script, MUDEV]).stdin(Stdio::null());
    // Out of the way of the places that they go to.
    let high = sockets.map(|s| {
        let raw = std::os::fd::AsRawFd::as_raw_fd(s);
        // SAFETY: no memory is involved. The child's exec closes it.
        support::cell::check(unsafe { libc::fcntl(raw, libc::F_DUPFD_CLOEXEC, 100) }).expect("a descriptor")
    });
    // SAFETY: dup2 is safe between fork and exec.
    unsafe {
        command.pre_exec(move || {
            for (from, place) in high.iter().zip([3, 4]) {
                support::cell::check(libc::dup2(*from, place))?;
            }
            Ok(())
        });
    }
    command.spawn().expect("it starts")
}

#[test]
fn a_passed_socket_that_does_not_listen_to_the_kernel_is_made_to() {
    isolated("a_passed_socket_that_does_not_listen_to_the_kernel_is_made_to", || {
        std::fs::create_dir("/run/udev").expect("made");
        for groups in [0, 2] {
            let control = unix::listen_seqpacket(Path::new("/run/udev/control")).expect("bound");
            let uevents = mudev::sys::netlink::open_uevent(groups).expect("bound");
            std::fs::write("/run/udev/1.rules", "SUBSYSTEM==\"net\", ENV{SEEN}=\"1\"\n").expect("written");
            let child = start_with_sockets([&control, &uevents], "--rules-dir=/run/udev");
            drop((control, uevents));
            tell(&[Message::Ping]);
            run("ip link add heard type bridge");
            let index = std::fs::read_to_string("/sys/class/net/heard/ifindex").expect("there");
            let record = format!("/run/udev/data/n{}", index.trim());
            wait_for("the record", || std::fs::metadata(&record).ok());
            run("ip link del heard");
            run(&format!("kill -TERM {}", child.id()));
            assert!(ended(child).success(), "group {groups}");
            std::fs::remove_file("/run/udev/control").expect("it stays with who made it");
        }
    });
}

#[test]
fn who_waits_for_the_end_of_a_list_of_events_can_be_ended() {
    isolated("who_waits_for_the_end_of_a_list_of_events_can_be_ended", || {
        use std::os::unix::process::ExitStatusExt;
        let mut child = mudevd().arg("--events=-").stdin(Stdio::piped()).spawn().expect("it starts");
        let mut input = child.stdin.take().expect("piped");
        // More than the pipe takes: it reads.
        input.write_all(&[b'\n'; 256 << 10]).expect("read");
        run(&format!("kill -TERM {}", child.id()));
        assert_eq!(ended(child).signal(), Some(libc::SIGTERM));
        let output = mudevd().arg("--events=/dev/zero").output().expect("it starts");
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("more than 256 MiB"), "{output:?}");
    });
}

/// Leaves only network interfaces for enumeration, so that a test that has devices triggered troubles no
/// other daemon on this machine.
fn hide_other_devices() {
    run("mkdir -p /run/net");
    run("mount --bind /sys/class/net /run/net");
    run("mount -t tmpfs none /sys/class");
    run("mkdir /sys/class/net");
    run("mount --bind /run/net /sys/class/net");
    run("mount -t tmpfs none /sys/bus");
}

#[test]
fn lost_events_are_made_up_for() {
    isolated("lost_events_are_made_up_for", || {
        hide_other_devices();
        std::fs::create_dir_all("/run/udev/rules.d").expect("made");
        std::fs::write("/run/udev/rules.d/1.rules", "SUBSYSTEM==\"net\", ENV{SEEN}=\"1\"\n")
            .expect("written");
        let control = unix::listen_seqpacket(Path::new("/run/udev/control")).expect("bound");
        let uevents = mudev::sys::netlink::open_uevent(1).expect("bound");
        mudev::sys::netlink::set_receive_buffer(uevents.as_fd(), 4096).expect("set");
        let child = start_with_sockets([&control, &uevents], "--rules-dir=/run/udev/rules.d");
        drop((control, uevents));
        tell(&[Message::Ping]);
        run("ip link add old0 type veth peer name old1");
        let names = || -> Vec<String> {
            let entries = std::fs::read_dir("/sys/class/net").expect("there").flatten();
            entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
        };
        let index = |name: &str| {
            let text = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).expect("there");
            text.trim().to_owned()
        };
        let record =
            |index: &str| std::fs::read_to_string(format!("/run/udev/data/n{index}")).unwrap_or_default();
        let old = index("old0");
        wait_for("the first record", || record(&old).contains("E:SEEN=1").then_some(()));
        run("ip link add kept0 type veth peer name kept1");
        let kept = index("kept0");
        wait_for("the second record", || record(&kept).contains("E:SEEN=1").then_some(()));
        let listener = mudev::sys::netlink::open_uevent(2).expect("bound");
        run(&format!("kill -STOP {}", child.id()));
        for n in 0..100 {
            run(&format!("ip link add a{n} type veth peer name b{n}"));
        }
        // By now the buffer is full: these are lost for sure.
        run("ip link del old0");
        run("ip link set kept0 name moved0");
        run(&format!("kill -CONT {}", child.id()));
        wait_for("the loss to be noticed", || (status().turns.uevents_lost > 0).then_some(()));
        for name in names().iter().filter(|name| *name != "lo") {
            let index = index(name);
            wait_for(&format!("the record of {name}"), || record(&index).contains("E:SEEN=1").then_some(()));
        }
        let file = format!("/run/udev/data/n{old}");
        wait_for("the end of the old record", || (!Path::new(&file).exists()).then_some(()));
        let (mut removed, mut changed) = (false, false);
        let mut buffer = vec![0; 16384];
        wait_for("what was lost to be announced", || {
            while let Ok(got) = mudev::sys::netlink::receive(listener.as_fd(), &mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..got.len]).into_owned();
                let has = |line: &str| text.split('\0').any(|l| l == line);
                removed |= has("ACTION=remove") && has("INTERFACE=old0") && has("SEEN=1");
                changed |= has("ACTION=change") && has("INTERFACE=moved0");
            }
            (removed && changed).then_some(())
        });
        run(&format!("kill -TERM {}", child.id()));
        assert!(ended(child).success());
    });
}

/// What of an earlier run is left of devices: record, tag, claim, symlinks.
fn leave(id: &str, node: &str, number_symlink: &str) {
    use std::os::unix::fs::symlink;
    for folder in ["/run/udev/data", "/run/udev/tags/left", "/run/t/dev/block", "/run/t/dev/char"] {
        std::fs::create_dir_all(folder).expect("made");
    }
    let claims = format!("/run/udev/links/by-{node}");
    std::fs::create_dir_all(&claims).expect("made");
    std::fs::write(format!("/run/udev/data/{id}"), format!("S:by-{node}\nE:A=1\nG:left\nV:1\n"))
        .expect("written");
    std::fs::write(format!("/run/udev/tags/left/{id}"), "").expect("written");
    symlink(format!("0:/dev/{node}"), format!("{claims}/{id}")).expect("made");
    symlink(node, format!("/run/t/dev/by-{node}")).expect("made");
    symlink(format!("../{node}"), format!("/run/t/dev/{number_symlink}")).expect("made");
}

fn is_left(id: &str) -> [bool; 2] {
    [format!("/run/udev/data/{id}"), format!("/run/udev/tags/left/{id}")]
        .map(|path| Path::new(&path).exists())
}

#[test]
fn what_devices_left_that_vanished_while_no_daemon_ran_is_removed_at_the_start() {
    isolated("what_devices_left_that_vanished_while_no_daemon_ran_is_removed_at_the_start", || {
        leave("b250:250", "gone", "block/250:250");
        leave("c1:3", "null", "char/1:3");
        let named = ["n1", "n4711", "+platform:no-such-device", "+module:no-such-module", "+unheard:of"];
        for id in named {
            std::fs::write(format!("/run/udev/data/{id}"), "E:A=1\nG:left\nV:1\n").expect("written");
            std::fs::write(format!("/run/udev/tags/left/{id}"), "").expect("written");
        }
        let child = start(&["--dev-dir=/run/t/dev"]);
        for id in ["b250:250", "n4711", "+platform:no-such-device", "+module:no-such-module"] {
            wait_for(id, || (is_left(id) == [false; 2]).then_some(()));
        }
        let links = ["/run/t/dev/by-gone", "/run/t/dev/block/250:250", "/run/udev/links/by-gone/b250:250"];
        for link in links {
            wait_for(link, || std::fs::symlink_metadata(link).is_err().then_some(()));
        }
        // What is there stays, and what nobody can know of.
        for id in ["c1:3", "n1", "+unheard:of"] {
            assert_eq!(is_left(id), [true; 2], "{id}");
        }
        for link in ["/run/t/dev/by-null", "/run/t/dev/char/1:3", "/run/udev/links/by-null/c1:3"] {
            assert!(std::fs::symlink_metadata(link).is_ok(), "{link}");
        }
        run(&format!("kill -TERM {}", child.id()));
        assert!(ended(child).success());
    });
}

#[test]
fn four_thousand_devices_are_looked_at_in_slices() {
    isolated("four_thousand_devices_are_looked_at_in_slices", || {
        use std::os::unix::fs::symlink;
        let sys = Path::new("/run/t/sys");
        std::fs::create_dir_all(sys.join("class/c")).expect("made");
        std::fs::create_dir_all("/run/t/dev").expect("made");
        const DEVICES: usize = 4000;
        for n in 0..DEVICES {
            let device = sys.join(format!("devices/d{n}"));
            std::fs::create_dir_all(&device).expect("made");
            std::fs::write(device.join("uevent"), "").expect("made");
            symlink(format!("../../devices/d{n}"), sys.join(format!("class/c/d{n}"))).expect("made");
            symlink("../../class/c", device.join("subsystem")).expect("made");
        }
        let child = start(&["--sys-dir=/run/t/sys", "--dev-dir=/run/t/dev"]);
        run("rm -r /run/udev/data");
        // An event shows that the folder is gone.
        run("ip link add a0 type veth peer name a1");
        let is_triggered = |n: usize| {
            let file = sys.join(format!("devices/d{n}/uevent"));
            std::fs::read(file).is_ok_and(|text| text == b"add").then_some(())
        };
        (0..DEVICES).for_each(|n| wait_for("the trigger", || is_triggered(n)));
        let turn = status().turns.longest_turn_usec;
        assert!(turn < 60_000, "the longest turn took {turn} us");
        run(&format!("kill -TERM {}", child.id()));
        assert!(ended(child).success());
    });
}

#[test]
fn a_removed_folder_is_made_anew_with_all_that_was_in_it() {
    isolated("a_removed_folder_is_made_anew_with_all_that_was_in_it", || {
        hide_other_devices();
        std::fs::create_dir_all("/run/rules").expect("made");
        std::fs::write("/run/rules/1.rules", "SUBSYSTEM==\"net\", ENV{SEEN}=\"1\", TAG+=\"seen\"\n")
            .expect("written");
        let child = start(&["--rules-dir=/run/rules"]);
        let index = |name: &str| {
            let text = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).expect("there");
            text.trim().to_owned()
        };
        let has_record = |name: &str| {
            let id = format!("n{}", index(name));
            std::fs::read_to_string(format!("/run/udev/data/{id}")).is_ok_and(|r| r.contains("E:SEEN=1"))
                && Path::new(&format!("/run/udev/tags/seen/{id}")).exists()
        };
        run("ip link add a0 type veth peer name a1");
        wait_for("the first record", || has_record("a0").then_some(()));
        for (n, removed) in ["/run/udev", "/run/udev/data", "/run/udev/tags"].into_iter().enumerate() {
            // The daemon may be writing to it still.
            wait_for("the removal", || std::fs::remove_dir_all(removed).ok());
            run(&format!("ip link add b{n} type veth peer name c{n}"));
            for name in ["a0", "a1", &format!("b{n}"), &format!("c{n}")] {
                wait_for(&format!("{name} after {removed}"), || has_record(name).then_some(()));
            }
        }
        tell(&[Message::Ping]);
        assert!(status().ready);
        wait_for("an idle queue", || (!Path::new("/run/udev/queue").exists()).then_some(()));
        run(&format!("kill -TERM {}", child.id()));
        assert!(ended(child).success());
    });
}

#[test]
fn a_low_limit_of_open_files_is_raised_for_the_daemon_alone() {
    isolated("a_low_limit_of_open_files_is_raised_for_the_daemon_alone", || {
        let mut command = Command::new("/bin/sh");
        let child =
            command.args(["-c", "ulimit -S -n 32; exec \"$0\" daemon", MUDEV]).spawn().expect("it starts");
        wait_for("the daemon", || Path::new("/run/udev/control").exists().then_some(()));
        let clients: Vec<OwnedFd> = (0..100).map(|_| connect("control")).collect();
        clients.iter().for_each(|c| send(c, VERSION_B, Message::Ping));
        clients.iter().for_each(|c| send(c, VERSION_B, Message::End));
        assert!(clients.iter().all(closed));
        run(&format!("kill -TERM {}", child.id()));
        assert!(ended(child).success());
    });
}

/// Sets how many files a process may have open.
fn limit_descriptors(pid: u32, soft: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let (pid, null) = (pid as libc::pid_t, std::ptr::null_mut());
    // SAFETY: the kernel reads and writes our own structs.
    unsafe {
        support::cell::check(libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &mut limit))
            .expect("the limit");
        limit.rlim_cur = soft.min(limit.rlim_max);
        support::cell::check(libc::prlimit(pid, libc::RLIMIT_NOFILE, &limit, null)).expect("set");
    }
}

#[test]
fn clients_that_find_no_descriptor_left_are_served_when_there_is_one() {
    isolated("clients_that_find_no_descriptor_left_are_served_when_there_is_one", || {
        let log = std::fs::File::create("/run/log").expect("made");
        let mut command = mudevd();
        command.stderr(log);
        let child = command.spawn().expect("it starts");
        wait_for("the daemon", || Path::new("/run/udev/mudev.status").exists().then_some(()));
        let before = status().turns.turns;
        limit_descriptors(child.id(), 3);
        let complaints = |log: &str| log.matches("Cannot accept a client").count();
        let log = || std::fs::read_to_string("/run/log").expect("there");
        let clients: Vec<OwnedFd> = (0..5)
            .map(|_| {
                let client = connect("control");
                send(&client, VERSION_B, Message::Ping);
                send(&client, VERSION_B, Message::End);
                client
            })
            .collect();
        let asker = connect("mudev.status");
        unix::send(asker.as_fd(), b"status").expect("it is taken");
        wait_for("both to be told of", || (complaints(&log()) >= 2).then_some(()));
        limit_descriptors(child.id(), 1000);
        assert!(clients.iter().all(closed));
        assert!(wait_readable(asker.as_fd(), LIMIT).expect("poll"));
        assert!(status().turns.turns - before < 100, "it spins");
        assert_eq!(complaints(&log()), 2, "once for each socket: {}", log());
        run(&format!("kill -TERM {}", child.id()));
        assert!(ended(child).success());
    });
}

#[test]
fn a_reload_resolves_names_as_the_settings_say_then() {
    isolated("a_reload_resolves_names_as_the_settings_say_then", || {
        std::fs::create_dir_all("/run/etc/udev").expect("made");
        std::fs::create_dir_all("/run/rules").expect("made");
        for file in ["passwd", "group"] {
            std::fs::copy(Path::new("/etc").join(file), Path::new("/run/etc").join(file)).expect("there");
        }
        let rule = "SUBSYSTEM==\"net\", OWNER=\"no-such-user\", ENV{SEEN}=\"1\"\n";
        std::fs::write("/run/rules/1.rules", rule).expect("written");
        std::fs::write("/run/etc/udev/udev.conf", "resolve_names=early\n").expect("written");
        let child = start(&["--etc-dir=/run/etc", "--rules-dir=/run/rules"]);
        let lines_with = |setting: &str| {
            std::fs::write("/run/etc/udev/udev.conf", format!("resolve_names={setting}\n")).expect("written");
            tell(&[Message::Reload, Message::Ping]);
            status().rule_lines
        };
        // A name that is unknown makes the line invalid; one that nobody asks for does not.
        assert_eq!((status().rule_lines, lines_with("never"), lines_with("early")), (0, 1, 0));
        run(&format!("kill -TERM {}", child.id()));
        assert!(ended(child).success());
    });
}

#[test]
fn sockets_are_passed_in_any_order() {
    isolated("sockets_are_passed_in_any_order", || {
        std::fs::create_dir_all("/run/udev").expect("made");
        for control_first in [true, false] {
            let _ = std::fs::remove_file("/run/udev/control");
            let control = unix::listen_seqpacket(Path::new("/run/udev/control")).expect("bound");
            let uevents = mudev::sys::netlink::open_uevent(1).expect("bound");
            // A client that came before the daemon is served.
            let early = connect("control");
            send(&early, VERSION_B, Message::Ping);
            send(&early, VERSION_B, Message::End);
            let sockets = if control_first { [&control, &uevents] } else { [&uevents, &control] };
            let child = start_with_sockets(sockets, "--debug");
            assert!(closed(&early), "{control_first}");
            run(&format!("kill -TERM {}", child.id()));
            assert!(ended(child).success());
        }
    });
}

/// A socket unit may leave out PassCredentials=.
#[test]
fn a_client_that_came_before_credentials_were_asked_for_is_served() {
    isolated("a_client_that_came_before_credentials_were_asked_for_is_served", || {
        std::fs::create_dir_all("/run/udev").expect("made");
        let control = unix::listen_seqpacket(Path::new("/run/udev/control")).expect("bound");
        unix::pass_credentials(control.as_fd(), false).expect("set");
        let early = connect("control");
        send(&early, VERSION_B, Message::Ping);
        send(&early, VERSION_B, Message::End);
        let uevents = mudev::sys::netlink::open_uevent(1).expect("bound");
        let child = start_with_sockets([&control, &uevents], "--debug");
        assert!(closed(&early), "it is let go when all it wanted is done");
        let late = connect("control");
        send(&late, VERSION_B, Message::End);
        assert!(closed(&late));
        run(&format!("kill -TERM {}", child.id()));
        assert!(ended(child).success());
    });
}

#[test]
fn a_reload_is_told_to_the_service_manager() {
    isolated("a_reload_is_told_to_the_service_manager", || {
        std::fs::create_dir_all("/run/etc/udev").expect("made");
        std::fs::write("/run/etc/udev/udev.conf", "children_max=5\n").expect("written");
        let child = start(&["--etc-dir=/run/etc"]);
        tell(&[Message::SetLogLevel(3)]);
        assert_eq!((status().children_max, status().log_level.as_str()), (5, "error"));
        std::fs::write("/run/etc/udev/udev.conf", "children_max=6\n").expect("written");
        let manager = UnixDatagram::bind("/run/ready").expect("a socket to be told at");
        manager.set_read_timeout(Some(LIMIT)).expect("a limit");
        run(&format!("kill -HUP {}", child.id()));
        let mut buffer = [0; 200];
        let mut next = || {
            let n = manager.recv(&mut buffer).expect("a message");
            String::from_utf8_lossy(&buffer[..n]).into_owned()
        };
        assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(next(), "READY=1");
        assert_eq!((status().children_max, status().log_level.as_str()), (6, "error"));
        run(&format!("kill -TERM {}", child.id()));
        assert_eq!(next(), "STOPPING=1");
        assert!(ended(child).success());
    });
}

#[test]
fn events_of_a_file_are_handled_and_then_it_ends() {
    isolated("events_of_a_file_are_handled_and_then_it_ends", || {
        let text = "KERNEL[1.0] add /devices/x (y)\nACTION=add\nDEVPATH=/devices/x\nSUBSYSTEM=y\nSEQNUM=1\n\n\
            ACTION=change\nDEVPATH=/devices/x\nSUBSYSTEM=y\nSEQNUM=2\n";
        let roots = ["--run-dir=/run/t/run", "--sys-dir=/run/t/sys", "--dev-dir=/run/t/dev"];
        for dir in ["run", "sys", "dev"] {
            std::fs::create_dir_all(Path::new("/run/t").join(dir)).expect("made");
        }
        std::fs::create_dir_all("/run/t/rules").expect("made");
        let rule = "KERNEL==\"x\", ENV{SEEN}=\"$attr{a}\"\nKERNEL==\"x\", PROGRAM==\"/bin/echo y\", ENV{SAID}=\"$result\"\n";
        std::fs::write("/run/t/rules/1.rules", rule).expect("written");
        let mut command = mudevd();
        command
            .args(roots)
            .arg("--rules-dir=/run/t/rules")
            .args(["--events=-", "--record=/run/trace", "--debug"])
            .stdin(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("written");
        assert!(ended(child).success());
        assert!(!Path::new("/run/t/run/udev/control").exists(), "nobody is served");
        assert!(!Path::new("/run/t/run/udev/queue").exists());
        let mut trace = String::new();
        std::fs::File::open("/run/trace").and_then(|mut f| f.read_to_string(&mut trace)).expect("a trace");
        assert_eq!(trace.matches("\"uevent\"").count(), 2);
        assert!(trace.contains("\"done\""), "{trace}");
        let accounts = mudev::world::accounts::Accounts::new(&mudev::world::Roots::default());
        let outputs =
            replay(trace.as_bytes(), &|files| compile(files, &accounts.at_once())).expect("it is whole");
        assert!(outputs.iter().any(|o| o.contains("Announce") && o.contains("SAID")), "{outputs:#?}");
        assert_eq!(outputs.iter().filter(|o| o.contains("Announce")).count(), 2, "{outputs:#?}");
    });
}

#[test]
fn coldplug_triggers_everything_before_it_is_ready() {
    isolated("coldplug_triggers_everything_before_it_is_ready", || {
        let sys = Path::new("/run/t/sys");
        for n in 0..150 {
            let device = sys.join(format!("devices/d{n}"));
            std::fs::create_dir_all(&device).expect("made");
            std::fs::write(device.join("uevent"), "").expect("made");
            std::fs::create_dir_all(sys.join("class/c")).expect("made");
            let link = sys.join(format!("class/c/d{n}"));
            std::os::unix::fs::symlink(format!("../../devices/d{n}"), link).expect("made");
            std::os::unix::fs::symlink("../../class/c", device.join("subsystem")).expect("made");
        }
        std::fs::create_dir_all("/run/t/dev").expect("made");
        let child = start(&["--coldplug", "--sys-dir=/run/t/sys", "--dev-dir=/run/t/dev"]);
        for n in 0..150 {
            let text = std::fs::read(sys.join(format!("devices/d{n}/uevent"))).expect("there");
            assert_eq!(text, b"add", "{n}");
        }
        run(&format!("kill -TERM {}", child.id()));
        assert!(ended(child).success());
    });
}
