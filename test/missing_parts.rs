//! A system that is not whole: no /proc (an early initramfs), no /sys, no /dev, a /run that cannot be written. The
//! daemon does what can be done, says once what is missing, and neither loops nor dies of it. And what whoever
//! starts it hands over, or forgets to.

mod support;

use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use support::{LIMIT, isolated, run, wait_for};

const MUDEV: &str = env!("CARGO_BIN_EXE_mudev");

const RULES: &str = "SUBSYSTEM!=\"net\", GOTO=\"end\"\n\
    ACTION==\"add\", ATTR{ifalias}=\"by a helper\"\n\
    PROGRAM==\"/bin/echo told\", ENV{TOLD}=\"%c\"\n\
    RUN+=\"/bin/true\"\n\
    LABEL=\"end\"\n";

struct Daemon {
    child: Child,
    null: File,
    /// Is told that it ends, too.
    _manager: UnixDatagram,
}

impl Daemon {
    /// Starts one, ready, once `take_away` has been done to the system.
    fn start(take_away: impl FnOnce()) -> Daemon {
        std::fs::create_dir_all("/run/rules").expect("made");
        std::fs::write("/run/rules/1.rules", RULES).expect("written");
        let null = File::options().read(true).write(true).open("/dev/null").expect("opens");
        let manager = UnixDatagram::bind("/run/ready").expect("a socket to be told at");
        take_away();
        let log = File::create("/run/log").expect("created");
        let mut command = Command::new(MUDEV);
        command.args(["daemon", "--rules-dir=/run/rules"]).env_clear().env("NOTIFY_SOCKET", "/run/ready");
        command.stdin(null.try_clone().expect("a copy")).stdout(log.try_clone().expect("a copy")).stderr(log);
        let child = command.spawn().expect("it starts");
        manager.set_read_timeout(Some(LIMIT)).expect("a limit");
        let ready = manager.recv(&mut [0; 200]);
        assert!(ready.is_ok(), "it tells that it is ready: {}", log_text());
        Daemon { child, null, _manager: manager }
    }

    fn run(&self, line: &str) {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().expect("a program"));
        let status = command.args(words).stdin(self.null.try_clone().expect("a copy")).status();
        assert!(status.expect("it runs").success(), "{line}");
    }

    /// Two interfaces come; their records say that all of their rules were followed.
    fn handles_events(&self) {
        self.run("ip link add w0 type veth peer name w1");
        wait_for("two records", || {
            let files = std::fs::read_dir("/run/udev/data").ok()?.flatten();
            let is_link = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with('n');
            let links = files.filter(|file| is_link(&file.file_name()));
            let texts = links.map(|file| std::fs::read_to_string(file.path()).unwrap_or_default());
            (texts.filter(|text| text.contains("E:TOLD=told\n")).count() == 2).then_some(())
        });
    }

    /// Ends it. What it has said, each line of which must be another.
    fn end(mut self) -> String {
        self.run(&format!("kill -TERM {}", self.child.id()));
        let status: ExitStatus = wait_for("its end", || self.child.try_wait().expect("our child"));
        let text = log_text();
        assert!(status.success(), "{status}: {text}");
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort();
        assert!(!lines.windows(2).any(|pair| pair[0] == pair[1]), "said twice: {text}");
        text
    }
}

fn log_text() -> String {
    std::fs::read_to_string("/run/log").unwrap_or_default()
}

fn cover(path: &str, options: &str) {
    support::cell::mount("none", path, "tmpfs", 0, options).expect("mounts");
}

#[test]
fn a_whole_system_lacks_nothing() {
    isolated("a_whole_system_lacks_nothing", || {
        let daemon = Daemon::start(|| {});
        daemon.handles_events();
        let alias = wait_for("the name", || std::fs::read_to_string("/sys/class/net/w0/ifalias").ok());
        assert_eq!(alias, "by a helper\n");
        assert_eq!(daemon.end(), "");
    });
}

#[test]
fn without_proc_programs_and_helpers_run() {
    isolated("without_proc_programs_and_helpers_run", || {
        let daemon = Daemon::start(|| drop(run("umount -l /proc")));
        daemon.handles_events();
        let alias = wait_for("the name", || std::fs::read_to_string("/sys/class/net/w0/ifalias").ok());
        assert_eq!(alias, "by a helper\n");
        let log = daemon.end();
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("/proc is not mounted"), "{log}");
    });
}

/// The name by which it was started leads elsewhere soon after.
#[test]
fn without_proc_helpers_are_of_the_executable_that_was_started() {
    isolated("without_proc_helpers_are_of_the_executable_that_was_started", || {
        std::fs::copy(MUDEV, "/run/mudev").expect("copied");
        std::fs::create_dir_all("/run/rules").expect("made");
        std::fs::write("/run/rules/1.rules", RULES).expect("written");
        run("umount -l /proc");
        let manager = UnixDatagram::bind("/run/ready").expect("a socket to be told at");
        let mut command = Command::new("./mudev");
        command.args(["daemon", "--rules-dir=/run/rules"]).current_dir("/run").env_clear();
        let mut child = command.env("NOTIFY_SOCKET", "/run/ready").spawn().expect("it starts");
        manager.set_read_timeout(Some(LIMIT)).expect("a limit");
        manager.recv(&mut [0; 200]).expect("it is ready");
        std::fs::remove_file("/run/mudev").expect("removed");
        std::fs::copy("/bin/false", "/run/mudev").expect("replaced");
        run("ip link add w0 type veth peer name w1");
        wait_for("the name that a helper writes", || {
            let alias = std::fs::read_to_string("/sys/class/net/w0/ifalias").ok()?;
            (alias == "by a helper\n").then_some(())
        });
        run(&format!("kill -TERM {}", child.id()));
        assert!(wait_for("its end", || child.try_wait().expect("our child")).success());
    });
}

#[test]
fn an_empty_proc_is_as_none() {
    isolated("an_empty_proc_is_as_none", || {
        let daemon = Daemon::start(|| cover("/proc", ""));
        daemon.handles_events();
        let log = daemon.end();
        assert_eq!((log.lines().count(), log.contains("/proc is not mounted")), (1, true), "{log}");
    });
}

#[test]
fn without_sys_links_and_programs_still_work() {
    isolated("without_sys_links_and_programs_still_work", || {
        let daemon = Daemon::start(|| cover("/sys", ""));
        daemon.handles_events();
        let log = daemon.end();
        assert!(log.contains("/sys is not mounted"), "{log}");
        // The attribute of each interface.
        assert_eq!(log.lines().count(), 3, "{log}");
    });
}

#[test]
fn without_dev_links_and_programs_still_work() {
    isolated("without_dev_links_and_programs_still_work", || {
        let daemon = Daemon::start(|| cover("/dev", ""));
        daemon.handles_events();
        let log = daemon.end();
        assert_eq!(log, "", "a /dev without nodes is what is at the start of an initramfs");
    });
}

#[test]
fn with_a_read_only_dev_links_and_programs_still_work() {
    isolated("with_a_read_only_dev_links_and_programs_still_work", || {
        let daemon = Daemon::start(|| cover("/dev", "ro"));
        daemon.handles_events();
        let log = daemon.end();
        assert_eq!((log.lines().count(), log.contains("/dev cannot be written to")), (1, true), "{log}");
    });
}

#[test]
fn with_nothing_but_run_links_and_programs_still_work() {
    isolated("with_nothing_but_run_links_and_programs_still_work", || {
        let daemon = Daemon::start(|| {
            cover("/dev", "ro");
            cover("/sys", "ro");
            run_without_dev("umount -l /proc");
        });
        daemon.handles_events();
        let log = daemon.end();
        for missing in ["/proc is", "/sys is", "/dev cannot"] {
            assert!(log.contains(missing), "{log}");
        }
    });
}

fn run_without_dev(line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let status = Command::new(words[0]).args(&words[1..]).status().expect("it runs");
    assert!(status.success(), "{line}");
}

/// Records and sockets are what a udev is for: without a place for them it is none.
#[test]
fn a_run_that_cannot_be_written_is_one_clear_error() {
    isolated("a_run_that_cannot_be_written_is_one_clear_error", || {
        for (options, error) in
            [("ro", "Cannot create /run/udev: "), ("nr_inodes=2", "Cannot listen at /run/udev/")]
        {
            cover("/run", options);
            let output = Command::new(MUDEV).arg("daemon").env_clear().output().expect("it runs");
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
            assert!(text.starts_with("mudevd: ") && text.contains(error), "{text}");
        }
    });
}

/// Exit status, output and error output of a daemon that a shell starts; it ends when it is ready, if it gets that
/// far.
fn start_by_shell(script: &str) -> (Option<i32>, String, String) {
    let manager = UnixDatagram::bind("/run/ready").expect("a socket to be told at");
    manager.set_nonblocking(true).expect("set");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, MUDEV]).env_clear().env("NOTIFY_SOCKET", "/run/ready");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    wait_for("its end, or that it is ready", || {
        let is_ready = manager.recv(&mut [0; 200]).is_ok();
        if is_ready {
            run(&format!("kill -TERM {}", child.id()));
        }
        (is_ready || child.try_wait().expect("our child").is_some()).then_some(())
    });
    let (mut out, mut error) = (String::new(), String::new());
    child.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
    child.stderr.take().expect("piped").read_to_string(&mut error).expect("text");
    std::fs::remove_file("/run/ready").expect("ours");
    (child.wait().expect("its end").code(), out, error)
}

#[test]
fn a_descriptor_for_readiness_that_is_none_of_its_own_is_refused() {
    isolated("a_descriptor_for_readiness_that_is_none_of_its_own_is_refused", || {
        std::fs::create_dir_all("/run/rules").expect("made");
        let content = || std::fs::read_to_string("/run/file").expect("a file");
        let daemon = "exec \"$0\" daemon --rules-dir=/run/rules";
        for (script, reason) in [
            (format!("LISTEN_PID=$$ LISTEN_FDS=1 {daemon} --ready-fd=3 3>/run/file"), "LISTEN_FDS passes"),
            (
                format!("LISTEN_PID=$$ LISTEN_FDS=2 {daemon} --ready-fd=4 3</run/file 4>/run/file"),
                "LISTEN_FDS passes",
            ),
            (format!("{daemon} --ready-fd=3 3>&-; : >/run/file"), "--ready-fd=3: Bad file descriptor"),
            (format!("{daemon} --ready-fd=77"), "--ready-fd=77: Bad file descriptor"),
            (format!("{daemon} --ready-fd=0"), "--ready-fd must be"),
            (format!("{daemon} --ready-fd=2"), "--ready-fd must be"),
            (format!("LISTEN_PID=$$ LISTEN_FDS=1 {daemon} 3>/run/file"), "is no socket"),
            (format!("LISTEN_PID=$$ LISTEN_FDS=1 {daemon} 3>&-"), "was not passed to us"),
        ] {
            std::fs::write("/run/file", "").expect("written");
            let (code, _, error) = start_by_shell(&script);
            assert_eq!((code, error.lines().count()), (Some(1), 1), "{script}: {error}");
            assert!(error.contains(reason), "{script}: {error}");
            assert_eq!(content(), "", "{script}");
        }
        // Sockets for somebody else are none for us.
        let script = format!("LISTEN_PID=1 LISTEN_FDS=1 {daemon} --ready-fd=3 3>/run/file");
        assert_eq!(start_by_shell(&script), (Some(0), String::new(), String::new()));
        assert_eq!(content(), "\n");
    });
}

#[test]
fn standard_output_may_be_told_that_it_is_ready_and_is_closed_then() {
    isolated("standard_output_may_be_told_that_it_is_ready_and_is_closed_then", || {
        std::fs::create_dir_all("/run/rules").expect("made");
        let script = "exec \"$0\" daemon --rules-dir=/run/rules --ready-fd=1";
        assert_eq!(start_by_shell(script), (Some(0), "\n".into(), String::new()));
        assert!(Path::new("/run/udev/data").is_dir());
    });
}
