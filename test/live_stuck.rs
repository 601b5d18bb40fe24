//! Those who do not read, and those who are stopped: the log's reader, who waits for readiness, clients. The
//! daemon neither waits for them nor keeps more than a bound for them, and the tool says clearly what is wrong.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/fuse.rs"]
mod fuse;
#[path = "support/live.rs"]
mod live;

use fuse::{Fuse, Gate, Step};
use live::{Live, eventually, in_cell, tool_path};
use mudev::model::control::{Datagram, Message, VERSION_B};
use mudev::sys::{process, unix};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

/// Exit status, output and error output of the tool.
fn adm(words: &[&str]) -> (i32, String, String) {
    let output =
        Command::new(tool_path()).args(words).stdin(Stdio::null()).output().expect("starts the tool");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// Has the daemon write a line of its log for each of these messages.
fn make_it_log(lines: usize) {
    let client = cell::connect(Path::new("/run/udev/control")).expect("the daemon listens");
    let send = |message| {
        let datagram = Datagram { version: VERSION_B.into(), message };
        unix::send(client.as_fd(), &datagram.render().expect("it fits")).expect("it is taken");
    };
    (0..lines).for_each(|_| send(Message::StartExecQueue));
    send(Message::End);
    let closed = process::wait_readable(client.as_fd(), live::LIMIT).expect("poll");
    assert!(closed, "the daemon hangs");
}

/// A daemon whose log nobody reads says 5,000 lines, answers, and says at the end how many were dropped.
/// `read` reads what there is and says whether the count was among it.
fn says_what_was_dropped(stderr: OwnedFd, mut read: impl FnMut() -> bool) {
    let live = Live::start_with("", |command| {
        command.arg("--debug").stderr(Stdio::from(stderr));
    });
    make_it_log(5000);
    let (code, out, error) = adm(&["status"]);
    assert!(code == 0 && out.contains("ready"), "{out}{error}");
    eventually("the count is said without a new line", &mut read);
    live.stop();
}

/// Whether a text says that lines were dropped.
fn has_count(text: &str) -> bool {
    let count = text.lines().find_map(|l| l.strip_suffix(" lines were dropped because nobody reads the log"));
    let count = count.and_then(|l| l.strip_prefix("mudevd: ")).and_then(|n| n.parse::<u32>().ok());
    count.is_some_and(|n| n > 1000)
}

#[test]
fn a_log_that_nobody_reads_holds_up_nothing_and_its_losses_are_counted() {
    in_cell(|| {
        let (reader, writer) = process::pipe().expect("a pipe");
        let mut reader = File::from(reader);
        let mut text = Vec::new();
        says_what_was_dropped(writer, || {
            // It is not to end: there is a writer.
            let _ = reader.read_to_end(&mut text);
            has_count(&String::from_utf8_lossy(&text))
        });
        assert!(text.ends_with(b"\n") && !text.contains(&0), "no line is torn");
    });
}

#[test]
fn a_log_that_goes_to_a_socket_is_no_different() {
    in_cell(|| {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
        ours.set_nonblocking(true).expect("ours");
        let mut text = Vec::new();
        says_what_was_dropped(theirs.into(), || {
            let _ = (&ours).read_to_end(&mut text);
            has_count(&String::from_utf8_lossy(&text))
        });
    });
}

#[test]
fn without_proc_the_log_is_asked_for_room_first() {
    in_cell(|| {
        let (reader, writer) = process::pipe().expect("a pipe");
        let mut reader = File::from(reader);
        std::fs::create_dir("/run/empty").expect("made");
        let live = Live::start_with("", |command| {
            command.args(["--debug", "--proc-dir=/run/empty"]).stderr(Stdio::from(writer));
        });
        make_it_log(5000);
        assert_eq!(adm(&["status"]).0, 0);
        let mut text = Vec::new();
        eventually("the count is said", || {
            let _ = reader.read_to_end(&mut text);
            has_count(&String::from_utf8_lossy(&text))
        });
        live.stop();
    });
}

#[test]
fn a_log_on_a_full_file_system_is_no_different() {
    in_cell(|| {
        std::fs::create_dir("/run/full").expect("made");
        cell::mount("none", "/run/full", "tmpfs", 0, "size=64k").expect("a small file system");
        let log = File::create("/run/full/log").expect("a log");
        let live = Live::start_with("", |command| {
            command.arg("--debug").stderr(Stdio::from(log));
        });
        make_it_log(5000);
        assert_eq!(adm(&["status"]).0, 0);
        cell::mount("none", "/run/full", "", libc::MS_REMOUNT, "size=1m").expect("room");
        eventually("the count is said", || {
            let text = std::fs::read("/run/full/log").unwrap_or_default();
            String::from_utf8_lossy(&text)
                .contains(" lines were dropped because the log cannot be written: No space left on device")
        });
        live.stop();
    });
}

#[test]
fn whoever_waits_for_readiness_and_does_not_read_is_told_later() {
    use std::os::unix::process::CommandExt;
    in_cell(|| {
        let (reader, writer) = process::pipe().expect("a pipe");
        let mut filler = File::from(writer.try_clone().expect("a copy"));
        unix::set_nonblocking(filler.as_fd()).expect("it is ours");
        while std::io::Write::write(&mut filler, &[b'x'; 4096]).is_ok() {}
        // Out of the way of the place that it goes to.
        // SAFETY: no memory is involved; the child's exec closes it.
        let raw = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 100) };
        let live = Live::start_with("", |command| {
            command.arg("--ready-fd=7");
            // SAFETY: dup2 is safe between fork and exec.
            unsafe {
                command.pre_exec(move || cell::check(libc::dup2(raw, 7)).map(drop));
            }
        });
        // SAFETY: just made, and ours.
        drop((writer, filler, unsafe { OwnedFd::from_raw_fd(raw) }));
        assert_eq!(adm(&["status"]).0, 0);
        let mut reader = File::from(reader);
        let mut last = Vec::new();
        eventually("the newline comes and the pipe is closed", || {
            let ended = reader.read_to_end(&mut last).is_ok();
            ended && last.ends_with(b"x\n")
        });
        live.stop();
    });
}

/// A file system with one empty file, whose writes wait until the gate opens.
fn slow_file(name: &str) -> (Fuse, Gate) {
    let gate = Gate::closed();
    let file = fuse::File::text(name, "").waits(Step::Write, gate.clone());
    (Fuse::mount(Path::new("/run/slow"), vec![file]).expect("FUSE"), gate)
}

#[test]
fn a_log_on_a_file_system_that_does_not_answer_is_no_different() {
    in_cell(|| {
        let (slow, gate) = slow_file("log");
        let log = File::options().write(true).open(slow.file("log")).expect("a log");
        let live = Live::start_with("", |command| {
            command.arg("--debug").stderr(Stdio::from(log));
        });
        make_it_log(5000);
        assert_eq!(adm(&["status"]).0, 0);
        eventually("the helper waits for the file", || gate.waiting() > 0);
        gate.open();
        eventually("the count is said", || {
            has_count(&String::from_utf8_lossy(&std::fs::read(slow.file("log")).unwrap_or_default()))
        });
        live.stop();
    });
}

#[test]
fn a_trace_on_a_file_system_that_does_not_answer_holds_up_nothing() {
    in_cell(|| {
        let (slow, gate) = slow_file("trace");
        let mut live = Live::start_with("ENV{FINE}=\"1\"\n", |command| {
            command.arg("--record=/run/slow/trace");
        });
        eventually("the helper waits for the file", || gate.waiting() > 0);
        live::ip("link add v0 type veth peer name v1");
        live.announced("add", "/devices/virtual/net/v0");
        assert_eq!(adm(&["status"]).0, 0);
        gate.open();
        live.stop();
        let text = std::fs::read_to_string(slow.file("trace")).expect("a trace");
        assert!(text.contains("/devices/virtual/net/v0") && text.ends_with("}\n"), "it is whole");
    });
}

/// Opens a gate when a test ends, also by a failure: who waits there could not be waited for.
struct OpenAtLast(Gate);

impl Drop for OpenAtLast {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Whether a process has a file of the slow file system open.
fn has_slow_file(pid: u32) -> bool {
    let list = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    let mut targets = list.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.any(|target| target.starts_with("/run/slow"))
}

#[test]
fn files_that_cannot_be_closed_hold_up_neither_the_daemon_nor_programs_nor_its_end() {
    use std::os::unix::process::CommandExt;
    in_cell(|| {
        let gate = Gate::closed();
        gate.open();
        let names = ["input", "output", "log", "ready", "trace"];
        let file = |name: &&str| {
            let file = fuse::File::text(name, "");
            [Step::Write, Step::Flush, Step::Attributes]
                .into_iter()
                .fold(file, |file, step| file.waits(step, gate.clone()))
        };
        let slow = Fuse::mount(Path::new("/run/slow"), names.iter().map(file).collect()).expect("FUSE");
        let open = |name: &str| File::options().read(true).write(true).open(slow.file(name)).expect("a file");
        let ready = open("ready");
        // SAFETY: no memory is involved; closed below, and by the child's exec.
        let raw = unsafe { libc::fcntl(ready.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 100) };
        let rules = "KERNEL==\"null\", PROGRAM==\"/bin/echo said\", ENV{SAID}=\"%c\"\n\
                     KERNEL==\"null\", PROGRAM!=\"/nowhere\", ENV{NOWHERE}=\"1\"\n";
        let mut live = Live::start_with(rules, |command| {
            command.args(["--debug", "--record=/run/slow/trace", "--ready-fd=7"]);
            command.stdin(open("input")).stdout(open("output")).stderr(open("log"));
            // SAFETY: dup2 is safe between fork and exec.
            unsafe {
                command.pre_exec(move || cell::check(libc::dup2(raw, 7)).map(drop));
            }
        });
        let _opened = OpenAtLast(gate.clone());
        // SAFETY: just made, and ours.
        drop((ready, unsafe { OwnedFd::from_raw_fd(raw) }));
        let written = |name: &str| std::fs::read(slow.file(name)).unwrap_or_default();
        eventually("its helper says that it is ready", || written("ready") == b"\n");
        assert!(!written("log").is_empty() && !has_slow_file(live.pid()));
        gate.close();
        make_it_log(5000);
        eventually("a helper waits for the file", || gate.waiting() > 0);
        for _ in 0..50 {
            let uuid = live::fresh_uuid();
            live::write_uevent("/sys/devices/virtual/mem/null", &format!("change {uuid}"));
            let event = live.announced_that("null", |m| m.get("SYNTH_UUID") == uuid);
            assert_eq!((event.get("SAID"), event.get("NOWHERE")), ("said", "1"));
        }
        // Helpers start, and the rules are looked at again.
        live::ip("link add v0 type veth peer name v1");
        live.announced("add", "/devices/virtual/net/v0");
        assert_eq!(adm(&["control", "--reload"]).0, 0);
        assert!(!has_slow_file(live.pid()));
        signal(&live, libc::SIGTERM);
        eventually("it ends", || !live.alive());
        assert!(live.child.try_wait().is_ok_and(|status| status.is_some_and(|status| status.success())));
    });
}

#[test]
fn a_trace_on_a_full_file_system_ends_with_one_message() {
    in_cell(|| {
        std::fs::create_dir("/run/full").expect("made");
        cell::mount("none", "/run/full", "tmpfs", 0, "size=16k").expect("a small file system");
        let mut live = Live::start_with("ENV{FINE}=\"1\"\n", |command| {
            command.arg("--record=/run/full/trace");
        });
        let message = "The trace ends here, its file cannot be written: No space left on device";
        for n in 0.. {
            live::ip(&format!("link add v{n} type veth peer name w{n}"));
            live.announced("add", &format!("/devices/virtual/net/v{n}"));
            if live::log().contains(message) {
                break;
            }
            assert!(n < 200, "{}", live::log());
        }
        live::ip("link add last0 type veth peer name last1");
        live.announced("add", "/devices/virtual/net/last0");
        assert_eq!(live::log().matches("The trace ends").count(), 1);
        live.stop();
    });
}

#[test]
fn a_trace_goes_to_no_fifo() {
    in_cell(|| {
        live::run("mkfifo", &["/run/fifo"]);
        let record = |reader: Option<File>| {
            let mut command = Command::new(live::daemon_path());
            let output = command.args(["--record=/run/fifo"]).stdin(Stdio::null()).output().expect("runs");
            drop(reader);
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (code, error) = record(None);
        assert!(code == Some(1) && error.contains("Cannot write /run/fifo: "), "{code:?} {error}");
        let (code, error) = record(File::options().read(true).write(true).open("/run/fifo").ok());
        let refused = error.contains("Cannot write /run/fifo: not a regular file");
        assert!(code == Some(1) && refused, "{code:?} {error}");
    });
}

fn signal(live: &Live, signal: i32) {
    unsafe { libc::kill(live.pid() as i32, signal) };
}

#[test]
fn a_stopped_daemon_is_named_after_a_short_time() {
    in_cell(|| {
        let live = Live::start("");
        signal(&live, libc::SIGSTOP);
        let named = format!("mudevd (process {}), which is stopped, does not answer", live.pid());
        for (words, limit) in [
            (&["status"][..], 5),
            (&["links"], 5),
            (&["control", "--ping", "--timeout=3"], 6),
            (&["settle", "--timeout=0"], 8),
        ] {
            let began = std::time::Instant::now();
            let (code, out, error) = adm(words);
            assert!(code == 1 && out.is_empty() && error.contains(&named), "{words:?}: {code} {error}");
            assert!(began.elapsed().as_secs() < limit, "{words:?}: {:?}", began.elapsed());
        }
        signal(&live, libc::SIGCONT);
        assert_eq!(adm(&["status"]).0, 0);
        live.stop();
    });
}

#[test]
fn where_no_daemon_runs_that_is_said_at_once() {
    in_cell(|| {
        let says = |name: &str, text: &str| {
            for words in [&["status"][..], &["links"], &["control", "--reload"]] {
                let (code, out, error) = adm(words);
                let who = if words[0] == "control" { "no daemon runs here" } else { "no mudevd runs here" };
                let is_said = error.contains(who) && error.contains(text) && !error.contains("os error");
                assert!(code == 1 && out.is_empty() && is_said, "{name} {words:?}: {code} {error}");
            }
            assert_eq!(adm(&["settle"]), (0, String::new(), String::new()), "{name}");
        };
        says("nothing", "");
        let mut live = Live::start("");
        signal(&live, libc::SIGKILL);
        eventually("it has ended", || !live.alive());
        assert!(Path::new("/run/udev/mudev.status").exists(), "its socket stays");
        says("a dead one", "its socket is of one that has ended");
    });
}

/// A daemon that speaks Varlink only, as udev 262: replies to one call, when `reply` says so.
fn varlink(reply: bool) -> std::thread::JoinHandle<()> {
    std::fs::create_dir_all("/run/udev").expect("made");
    let listener = std::os::unix::net::UnixListener::bind("/run/udev/io.systemd.Udev").expect("bound");
    std::os::unix::fs::symlink("io.systemd.Udev", "/run/udev/control").expect("linked");
    std::thread::spawn(move || {
        // Some only look who is here.
        for client in listener.incoming().map(|client| client.expect("a client")) {
            let mut call = [0; 200];
            let n = (&client).read(&mut call).expect("a call");
            if n == 0 {
                continue;
            }
            assert_eq!(&call[..n], b"{\"method\":\"io.systemd.service.Ping\"}\0");
            if reply {
                std::io::Write::write_all(&mut &client, b"{}\0").expect("replied");
            }
            return;
        }
    })
}

#[test]
fn settle_waits_for_the_queue_of_a_daemon_that_speaks_another_protocol() {
    in_cell(|| {
        let other = varlink(true);
        let (code, _, error) = adm(&["control", "--reload"]);
        assert!(code == 1 && error.contains("speaks Varlink only"), "{error}");
        assert!(error.contains(&format!("(process {})", std::process::id())), "{error}");
        std::fs::write("/run/udev/queue", "").expect("written");
        let began = std::time::Instant::now();
        let (code, _, error) = adm(&["settle", "--timeout=1"]);
        assert!(code == 1 && error.contains("Timed out"), "{error}");
        assert!(began.elapsed().as_millis() >= 1000);
        other.join().expect("it was called");
        // And nobody is undone by a second daemon.
        std::fs::remove_file("/run/udev/io.systemd.Udev").expect("ours");
        std::fs::remove_file("/run/udev/control").expect("ours");
        let other = varlink(true);
        let output = Command::new(live::daemon_path()).stdin(Stdio::null()).output().expect("runs");
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && log.contains("another daemon"), "{log}");
        std::fs::remove_file("/run/udev/queue").expect("ours");
        assert_eq!(adm(&["settle"]).0, 0);
        other.join().expect("it was called");
    });
}
