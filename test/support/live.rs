//! mudevd on the real kernel, in a cell (cell.rs): started with rules, watched by raw listeners, ended with
//! the test. No sleeps: everything waits for a condition, with a limit.
#![allow(dead_code)]

use crate::cell::{self, Group, Message, Monitor, Notify};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up. Generous: the machine may be busy.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Runs a test in a thread with a cell of its own.
pub fn in_cell(test: impl FnOnce() + Send) {
    if unsafe { libc::geteuid() } != 0 {
        panic!("tests on the real kernel need root, for namespaces");
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            cell::enter(None).expect("enters a cell");
            hide_the_machines_rules().expect("hides the machine's rules");
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn hide_the_machines_rules() -> std::io::Result<()> {
    for folder in ["/usr/lib/udev/rules.d", "/usr/local/lib/udev/rules.d", "/etc/udev/rules.d"] {
        if Path::new(folder).is_dir() {
            cell::mount("none", folder, "tmpfs", 0, "")?;
        }
    }
    for folder in ["/usr/lib/systemd/network", "/etc/systemd/network"] {
        if Path::new(folder).is_dir() {
            cell::mount("none", folder, "tmpfs", 0, "")?;
        }
    }
    Ok(())
}

/// A running mudevd.
pub struct Live {
    pub child: Child,
    pub udev: Monitor,
    pub kernel: Monitor,
    /// Numbers of all announcements that were read so far.
    seen: std::collections::HashSet<String>,
}

impl Live {
    /// Starts mudevd with these rules and waits until it is ready.
    pub fn start(rules: &str) -> Live {
        Live::start_with(rules, |_| {})
    }

    /// The same; `change` may add options and environment.
    pub fn start_with(rules: &str, change: impl FnOnce(&mut Command)) -> Live {
        std::fs::write("/run/udev/rules.d/50-test.rules", rules).expect("writes rules");
        let udev = Monitor::join(Group::Udev).expect("listens to announcements");
        let kernel = Monitor::join(Group::Kernel).expect("listens to the kernel");
        let mut command = Command::new(daemon_path());
        command.env("RUST_BACKTRACE", "1");
        let child = spawn_ready(command, change);
        Live { child, udev, kernel, seen: Default::default() }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the announcement `ACTION DEVPATH`.
    pub fn announced(&mut self, action: &str, devpath: &str) -> Message {
        let title = format!("{action} {devpath}");
        self.announced_that(&title, |m| m.title() == title)
    }

    /// Waits for an announcement that `wanted` accepts.
    pub fn announced_that(&mut self, what: &str, mut wanted: impl FnMut(&Message) -> bool) -> Message {
        let seen = &mut self.seen;
        let found = self.udev.wait_for(LIMIT, |m| {
            seen.insert(m.get("SEQNUM").to_owned());
            wanted(m)
        });
        match found {
            Some(message) => message,
            None => panic!("no announcement: {what}\n--- log\n{}", log()),
        }
    }

    /// Waits until every uevent of an interface that the kernel sent so far was announced; returns the
    /// announcements. A `change` of `lo`, which only this namespace sees, marks the end of the kernel's part.
    ///
    /// An `add` and its `remove` that both still waited may cancel out: such pairs are not waited for longer
    /// than until all else has come.
    pub fn settled(&mut self) -> Vec<Message> {
        let uuid = fresh_uuid();
        write_uevent("/sys/class/net/lo", &format!("change {uuid}"));
        let mut wanted = std::collections::HashMap::new();
        let end = self.kernel.wait_for(LIMIT, |m| {
            if m.get("DEVPATH").contains("/net/") {
                wanted.insert(
                    m.get("SEQNUM").to_owned(),
                    (m.get("DEVPATH").to_owned(), m.get("ACTION").to_owned()),
                );
            }
            m.get("SYNTH_UUID") == uuid
        });
        assert!(end.is_some(), "the kernel sent no event for lo");
        wanted.retain(|number, _| !self.seen.contains(number));
        let mut messages = Vec::new();
        let end = Instant::now() + LIMIT;
        let mut quiet_since = Instant::now();
        loop {
            while let Some(message) = self.udev.try_next() {
                quiet_since = Instant::now();
                self.seen.insert(message.get("SEQNUM").to_owned());
                wanted.remove(message.get("SEQNUM"));
                messages.push(message);
            }
            let cancelled = wanted.values().all(|(devpath, action)| {
                let other = if action == "add" { "remove" } else { "add" };
                wanted.values().any(|(d, a)| d == devpath && a == other)
            });
            if wanted.is_empty() || cancelled && quiet_since.elapsed() > Duration::from_millis(300) {
                return messages;
            }
            assert!(Instant::now() < end, "not announced: {wanted:?}\n--- log\n{}", log());
            cell::wait_readable(&[self.udev.fd()], Duration::from_millis(50));
        }
    }

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_none())
    }

    /// Ends it with SIGTERM; it must exit with status 0.
    pub fn stop(mut self) {
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let end = Instant::now() + LIMIT;
        loop {
            match self.child.try_wait().expect("waits for the daemon") {
                Some(status) => {
                    assert!(status.success(), "mudevd exited with {status}\n{}", log());
                    return;
                }
                None if Instant::now() > end => panic!("mudevd did not end after SIGTERM\n{}", log()),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of mudevd\n{}", log());
        }
    }
}

/// Starts `command` with its log in /run/log and waits for `READY=1`.
pub fn spawn_ready(mut command: Command, change: impl FnOnce(&mut Command)) -> Child {
    let notify = Notify::bind(Path::new("/run/notify")).expect("binds the notify socket");
    let log_file = std::fs::File::create("/run/log").expect("creates the log");
    command.env("NOTIFY_SOCKET", "/run/notify").stdin(Stdio::null());
    command.stdout(log_file.try_clone().expect("a second handle")).stderr(log_file);
    change(&mut command);
    let mut child = command.spawn().expect("starts the daemon");
    if let Err(error) = notify.wait_ready(LIMIT) {
        let _ = child.kill();
        panic!("the daemon was not ready: {error}\n--- log\n{}", log());
    }
    child
}

/// Processes that the daemon has started under the name of its helpers.
pub fn helpers(daemon: u32) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/{daemon}/task/{daemon}/children")).unwrap_or_default();
    let is_helper = |pid: &&str| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"mudev-helper"))
    };
    list.split_whitespace().filter(is_helper).filter_map(|pid| pid.parse().ok()).collect()
}

/// The executable under the name of the daemon.
pub fn daemon_path() -> PathBuf {
    named("mudevd")
}

/// The executable under the name of the tool.
pub fn tool_path() -> PathBuf {
    named("mudevadm")
}

/// With `JUDGE=1` in the environment Debian's daemon and tool stand in for ours: what they do too is right.
fn named(name: &str) -> PathBuf {
    let (name, target) = match cell::peer_root().filter(|_| std::env::var_os("JUDGE").is_some()) {
        Some(peer) if name == "mudevd" => ("systemd-udevd", peer.join("bin/udevadm")),
        Some(peer) => ("udevadm", peer.join("bin/udevadm")),
        None => (name, PathBuf::from(env!("CARGO_BIN_EXE_mudev"))),
    };
    let link = Path::new("/run").join(name);
    let _ = std::os::unix::fs::symlink(target, &link);
    link
}

pub fn log() -> String {
    String::from_utf8_lossy(&std::fs::read("/run/log").unwrap_or_default()).into_owned()
}

/// Runs `ip` and expects it to succeed.
pub fn ip(arguments: &str) {
    run("ip", &arguments.split_whitespace().collect::<Vec<_>>());
}

pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Writes to the uevent file of a device: `ACTION [UUID [KEY=VALUE...]]`.
pub fn write_uevent(syspath: &str, text: &str) {
    std::fs::write(Path::new(syspath).join("uevent"), text)
        .unwrap_or_else(|e| panic!("{syspath}/uevent: {e}"));
}

pub fn fresh_uuid() -> String {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("{:08x}-0000-4000-8000-{number:012x}", std::process::id())
}

pub fn ifindex(name: &str) -> u32 {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex"));
    text.unwrap_or_else(|e| panic!("{name}: {e}")).trim().parse().expect("a number")
}

/// The record with this id, or an empty text.
pub fn record(id: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(format!("/run/udev/data/{id}")).unwrap_or_default()).into_owned()
}

/// Waits until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < end, "never came true: {what}\n--- log\n{}", log());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What the latencies of [`unrelated_events_go_through`] may be: wide enough for a busy machine and a debug build.
const MEDIAN: Duration = Duration::from_millis(10);
const WORST_OF_HUNDRED: Duration = Duration::from_millis(100);

/// A `change` of /dev/null every 10 ms, a hundred times; each answer is waited for.
pub fn unrelated_events_go_through(live: &mut Live, while_what: &str) {
    let mut latencies: Vec<Duration> = (0..100)
        .map(|_| {
            let uuid = fresh_uuid();
            let start = Instant::now();
            write_uevent("/sys/devices/virtual/mem/null", &format!("change {uuid}"));
            live.announced_that("change of null", |m| m.get("SYNTH_UUID") == uuid);
            let took = start.elapsed();
            std::thread::sleep(Duration::from_millis(10).saturating_sub(took));
            took
        })
        .collect();
    latencies.sort();
    println!("{while_what}: median {:?}, p99 {:?}", latencies[50], latencies[98]);
    assert!(latencies[50] < MEDIAN, "{while_what}: median {:?}", latencies[50]);
    assert!(latencies[98] < WORST_OF_HUNDRED, "{while_what}: p99 {:?}", latencies[98]);
}

/// Lets a process open `room` files more than it has, or, without a number, as many as it likes.
pub fn limit_descriptors(pid: u32, room: Option<usize>) {
    let is_open = |n: &u64| Path::new(&format!("/proc/{pid}/fd/{n}")).exists();
    let soft = room.map(|room| (0..).filter(|n| !is_open(n)).nth(room).expect("there is no end"));
    let limit = libc::rlimit { rlim_cur: soft.unwrap_or(4096), rlim_max: 4096 };
    let set = unsafe { libc::prlimit(pid as i32, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
    cell::check(set).expect("sets the limit");
}
