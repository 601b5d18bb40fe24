//! Where attacks happen: a cell with a daemon in it that is started, killed and looked at, and beside it, for a
//! moment, a second one that knows nothing of the past.
//!
//! What a daemon has made of the devices must be what a fresh one makes of them: [`Ground::judge`].

use crate::cell::{self, Group, Message, Monitor, Notify};
use crate::loops::Loop;
use crate::random::Random;
use crate::state::{self, Disks, State};
use mudev::daemon::sources::status::{LinkRow, Status};
use mudev::sys::unix;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before the attack counts as won. The machine may be busy.
pub const LIMIT: Duration = Duration::from_secs(40);

/// How long others may wait while an attack goes on: a storm before them, on a busy machine, but no time-out.
const SOON: Duration = Duration::from_secs(10);

/// For how long nothing may have come in before it counts as quiet: longer than the daemon waits before it takes
/// a second look at what is gone.
const QUIET: Duration = Duration::from_millis(250);

/// How many descriptors a daemon may have more than when it had just started, and how many processes: its
/// helpers stay for a while.
const MORE_DESCRIPTORS: usize = 24;
const MOST_PROCESSES: usize = 10;

/// The same for all attacks: what it says of a device depends on nothing but the device, so that one event after a
/// storm says the same as all of them.
const RULES: &str = r#"
SUBSYSTEM=="net", ENV{A_NAME}="$kernel", ENV{A_TYPE}="$attr{type}", ENV{A_IFLINK}="$attr{iflink}", TAG+="net"
SUBSYSTEM=="net", ENV{IFINDEX}=="*[02468]", TAG+="even"
SUBSYSTEM=="net", KERNEL=="m*", ENV{A_MTU}="$attr{mtu}", ENV{A_ALIAS}="$attr{ifalias}"
SUBSYSTEM=="net", KERNEL=="p*", PROGRAM=="/bin/echo said", ENV{A_SAID}="%c"
SUBSYSTEM=="net", KERNEL=="r*", RUN+="/bin/true"
SUBSYSTEM=="net", IMPORT{builtin}="net_id"
SUBSYSTEM=="block", KERNEL=="loop[1-9]??*|zram[1-9]*", SYMLINK+="att/disk/$kernel att/any-disk", TAG+="disk", MODE="0640"
SUBSYSTEM=="block", KERNEL=="loop[1-9]??*", ENV{A_SIZE}="$attr{size}", OPTIONS+="watch"
SUBSYSTEM=="block", KERNEL=="*[02468]", OPTIONS+="link_priority=7"
SUBSYSTEM=="mem", SYMLINK+="att/mem/$kernel att/any-mem", TAG+="mem", TAG+="char"
SUBSYSTEM=="tty", TAG+="char", ENV{A_TTY}="$kernel"
SUBSYSTEM=="tty", KERNEL=="tty[0-9]", SYMLINK+="att/any-tty"
KERNEL=="null|tty7", OPTIONS+="link_priority=5"
"#;

/// A daemon's process and the sockets to watch it.
pub struct Ground {
    pub random: Random,
    pub udev: Monitor,
    pub disks: Disks,
    pub loops: Vec<Loop>,
    pub folder: PathBuf,
    /// How much of everything makes an attack, in percent.
    pub size: usize,
    child: Option<Child>,
    /// Of the daemon when it had started.
    descriptors: usize,
    memory: usize,
    names: u32,
}

impl Ground {
    /// A cell of its own for the calling thread, with a daemon.
    pub fn new(seed: u64, size: usize, folder: &Path) -> Ground {
        std::fs::write(folder.join("50-attacks.rules"), RULES).expect("writes rules");
        let mut ground = Ground {
            random: Random(seed),
            udev: Monitor::join(Group::Udev).expect("listens to announcements"),
            disks: Disks::default(),
            loops: Vec::new(),
            folder: folder.to_owned(),
            size,
            child: None,
            descriptors: 0,
            memory: 0,
            names: 0,
        };
        ground.start();
        ground.measure();
        ground
    }

    /// Notes what the daemon needs when nothing has happened to it yet.
    fn measure(&mut self) {
        self.settle();
        self.descriptors = self.descriptors_now();
        self.memory = self.memory_now();
    }

    /// Starts the daemon, which looks at all devices first, and waits until it is ready.
    pub fn start(&mut self) {
        self.start_with(|_| {});
    }

    /// The same; `change` may add options.
    pub fn start_with(&mut self, change: impl FnOnce(&mut Command)) {
        assert!(self.child.is_none(), "one daemon at a time");
        self.child = Some(spawn(&self.folder, "log", change));
    }

    /// The same, without waiting until it is ready: nobody may be told.
    pub fn start_unheard(&mut self, change: impl FnOnce(&mut Command)) {
        assert!(self.child.is_none(), "one daemon at a time");
        self.child = Some(launch(&self.folder, "log", change));
    }

    pub fn pid(&self) -> i32 {
        self.child.as_ref().expect("a daemon runs").id() as i32
    }

    pub fn signal(&self, signal: i32) {
        unsafe { libc::kill(self.pid(), signal) };
    }

    /// Kills it and all its helpers' chances to be told.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Ends it as a service manager does.
    pub fn stop(&mut self) {
        self.signal(libc::SIGTERM);
        let mut child = self.child.take().expect("a daemon runs");
        let status = self.eventually("the daemon ends", |_| child.try_wait().expect("our child"));
        assert!(status.success(), "{status}\n{}", self.log());
    }

    pub fn log(&self) -> String {
        text(&self.folder.join("log"))
    }

    /// A name for an interface that no other has had; `kind` says which rules hold.
    pub fn name(&mut self, kind: char) -> String {
        self.names += 1;
        format!("{kind}{}", self.names)
    }

    /// How many, where a long run takes `full`; at least one.
    pub fn of(&self, full: usize) -> usize {
        (full * self.size / 100).max(1)
    }

    /// Whether it came out so, in `n` of `of` cases.
    pub fn chance(&mut self, n: usize, of: usize) -> bool {
        self.random.below(of) < n
    }

    /// A disk that the rules speak of.
    pub fn add_loop(&mut self) -> Option<usize> {
        match Loop::add() {
            Ok(disk) => {
                self.disks.insert(&disk.name());
                self.loops.push(disk);
                Some(self.loops.len() - 1)
            }
            Err(error) => {
                println!("no loop device: {error}");
                None
            }
        }
    }

    /// Waits until `condition` gives something.
    pub fn eventually<T>(&mut self, what: &str, mut condition: impl FnMut(&mut Ground) -> Option<T>) -> T {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(value) = condition(self) {
                return value;
            }
            if Instant::now() > end {
                let status = ask("status").unwrap_or_default();
                panic!("never came true: {what}\n--- status {status}\n--- log\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Waits for the announcement of an event of `lo` that is made now: all older events of interfaces are through.
    fn pass_an_event(&mut self) -> Message {
        let uuid = fresh_uuid();
        write_uevent("lo", &format!("change {uuid}"));
        match self.udev.wait_for(LIMIT, |message| message.get("SYNTH_UUID") == uuid) {
            Some(message) => message,
            None => {
                let status = ask("status").unwrap_or_default();
                panic!("an event is not announced\n--- status {status}\n--- log\n{}", self.log())
            }
        }
    }

    /// While an attack goes on: an event of a device that it does not concern is announced, and the tool is answered.
    pub fn others_are_served(&mut self, while_what: &str) {
        let uuid = fresh_uuid();
        let written = std::fs::write("/sys/devices/virtual/mem/null/uevent", format!("change {uuid}"));
        written.expect("an event of another device");
        let announced = self.udev.wait_for(SOON, |message| message.get("SYNTH_UUID") == uuid);
        if announced.is_none() {
            let status = ask("status").unwrap_or_default();
            panic!(
                "while {while_what}: no event of another device\n--- status {status}\n--- log\n{}",
                self.log()
            );
        }
        let began = Instant::now();
        let tool = self.folder.join("mudevadm");
        let _ = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mudev"), &tool);
        let output = Command::new(tool).arg("status").output().expect("runs the tool");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "while {while_what}: {}, {said}\n--- log\n{}",
            output.status,
            self.log()
        );
        assert!(began.elapsed() < SOON, "while {while_what}: the answer took {:?}", began.elapsed());
    }

    /// Waits until nothing waits, nothing runs, and nothing has come in for a while.
    pub fn settle(&mut self) -> Status {
        self.pass_an_event();
        let mut last = None;
        let mut since = Instant::now();
        self.eventually("nothing to do any more", |_| {
            let status = status()?;
            let is_idle = status.waiting + status.running + status.children_running == 0
                && status.helpers_working + status.helper_requests_waiting == 0
                && !status.links_stale
                && !Path::new("/run/udev/queue").exists();
            if !is_idle || last != Some(status.counters) {
                since = Instant::now();
                last = Some(status.counters);
            }
            (since.elapsed() > QUIET).then_some(status)
        })
    }

    /// Waits until all is quiet, and holds what the daemon has made of the devices against what a fresh daemon makes of
    /// them, and against what the kernel says.
    pub fn judge(&mut self, attack: &str) {
        self.settle();
        let mut ours = state::capture(&self.disks);
        self.judge_links(attack);
        self.judge_process(attack);
        let fresh = self.fresh();
        // Others' tests make and remove disks, whose removal may be on its way.
        let end = Instant::now() + Duration::from_secs(3);
        let mut wrong = state::differences(&ours, &fresh);
        while !wrong.is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100));
            let again = state::capture(&self.disks);
            // What only the events of the fresh daemon have mended counts as wrong.
            ours.retain(|key, _| again.contains_key(key));
            wrong = state::differences(&ours, &fresh);
        }
        assert!(
            wrong.is_empty(),
            "after {attack} the daemon knows other than a fresh one:\n{}\n--- log\n{}",
            wrong.join("\n"),
            self.log()
        );
    }

    /// What a daemon that knows nothing of the past makes of the devices.
    fn fresh(&self) -> State {
        let (folder, disks) = (&self.folder, &self.disks);
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                cell::enter_beside().expect("enters a cell beside ours");
                disks.forget_modes();
                let mut ground = Ground {
                    random: Random(0),
                    udev: Monitor::join(Group::Udev).expect("listens to announcements"),
                    disks: disks.clone(),
                    loops: Vec::new(),
                    folder: folder.clone(),
                    size: 0,
                    child: Some(spawn(folder, "log.fresh", |_| {})),
                    descriptors: 0,
                    memory: 0,
                    names: 0,
                };
                ground.settle();
                state::capture(disks)
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// `mudevadm links` against `ip link`.
    fn judge_links(&mut self, attack: &str) {
        let end = Instant::now() + Duration::from_secs(3);
        loop {
            let ours: Vec<LinkRow> = serde_json::from_str(&ask("links").expect("links")).expect("links");
            let ours: BTreeMap<u32, [String; 6]> =
                ours.into_iter().map(|row| (row.ifindex, columns(&row))).collect();
            let kernel = kernel_links();
            if ours == kernel {
                return;
            }
            if Instant::now() > end {
                let differ = |index: &&u32| ours.get(*index) != kernel.get(*index);
                let wrong: Vec<String> = (ours.keys().chain(kernel.keys()).filter(differ).take(20))
                    .map(|index| format!("{index}: is {:?}, kernel {:?}", ours.get(index), kernel.get(index)))
                    .collect();
                let wrong = wrong.join("\n");
                panic!(
                    "after {attack} links are not as the kernel has them:\n{wrong}\n--- log\n{}",
                    self.log()
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// No zombie, no crowd of helpers, no heap of descriptors, no memory lost.
    fn judge_process(&mut self, attack: &str) {
        let most = self.descriptors + MORE_DESCRIPTORS + 2 * self.loops.len();
        self.eventually(&format!("after {attack}: few processes and descriptors"), |ground| {
            let children = children(ground.pid());
            let zombies = children.iter().filter(|(_, state)| state == "Z").count();
            let few = children.len() <= MOST_PROCESSES && zombies == 0 && ground.descriptors_now() <= most;
            few.then_some(())
        });
        const GROWTH: usize = 64 << 20;
        let memory = self.memory_now();
        assert!(memory < self.memory + GROWTH, "after {attack} the daemon holds {memory} bytes");
        let log = self.log();
        assert!(!log.contains("panicked"), "after {attack}:\n{log}");
    }

    pub fn descriptors_now(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).map_or(0, Iterator::count)
    }

    /// Anonymous memory in bytes.
    fn memory_now(&self) -> usize {
        let status = text(Path::new(&format!("/proc/{}/status", self.pid())));
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        line.and_then(|kib| kib.trim().trim_end_matches(" kB").parse::<usize>().ok()).unwrap_or(0) << 10
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a daemon with a fresh log and waits until it is ready.
fn spawn(folder: &Path, log: &str, change: impl FnOnce(&mut Command)) -> Child {
    let socket = folder.join(format!("notify.{log}"));
    let notify = Notify::bind(&socket).expect("binds the notify socket");
    let child = launch(folder, log, |command| {
        command.env("NOTIFY_SOCKET", &socket);
        change(command);
    });
    if let Err(error) = notify.wait_ready(LIMIT) {
        panic!("the daemon was not ready: {error}\n--- log\n{}", text(&folder.join(log)));
    }
    child
}

fn launch(folder: &Path, log: &str, change: impl FnOnce(&mut Command)) -> Child {
    let link = folder.join("mudevd");
    let _ = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mudev"), &link);
    let file = File::create(folder.join(log)).expect("creates the log");
    let mut command = Command::new(link);
    command.args(["--coldplug", "--rules-dir"]).arg(folder);
    command.env("RUST_BACKTRACE", "1").stdin(Stdio::null());
    command.stdout(file.try_clone().expect("a second handle")).stderr(file);
    change(&mut command);
    command.spawn().expect("starts the daemon")
}

/// A file's text, empty if there is none.
pub fn text(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// The answer of the daemon to `status` or `links`; None where nobody answers (yet).
pub fn ask(request: &str) -> Option<String> {
    let client = crate::cell::connect(Path::new("/run/udev/mudev.status")).ok()?;
    unix::send(client.as_fd(), request.as_bytes()).ok()?;
    let (mut json, mut buffer) = (Vec::new(), vec![0; 65536]);
    loop {
        if !mudev::sys::process::wait_readable(client.as_fd(), LIMIT).ok()? {
            return None;
        }
        match unix::receive(client.as_fd(), &mut buffer).ok()?.len {
            0 => return String::from_utf8(json).ok(),
            n => json.extend_from_slice(&buffer[..n]),
        }
    }
}

pub fn status() -> Option<Status> {
    serde_json::from_str(&ask("status")?).ok()
}

fn fresh_uuid() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{:08x}-0000-4000-8000-{:012x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Writes to the uevent file of an interface, if it is there.
pub fn write_uevent(name: &str, text: &str) {
    let _ = std::fs::write(format!("/sys/class/net/{name}/uevent"), text);
}

/// Pid and state of the processes that a process has started.
pub fn children(pid: i32) -> Vec<(i32, String)> {
    let list = text(Path::new(&format!("/proc/{pid}/task/{pid}/children")));
    let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
    let state = |pid: i32| {
        let stat = text(Path::new(&format!("/proc/{pid}/stat")));
        stat.rsplit_once(") ").map(|(_, rest)| rest.chars().take(1).collect()).unwrap_or_default()
    };
    pids.map(|pid| (pid, state(pid))).collect()
}

/// The kernel tells nobody of a new alias or alternative name of a link that is down.
fn columns(row: &LinkRow) -> [String; 6] {
    let told = |text: String| if row.up { text } else { String::new() };
    [
        row.name.clone(),
        row.mtu.to_string(),
        told(row.alias.clone()),
        row.address.clone(),
        row.master.to_string(),
        told(row.alt_names.join(" ")),
    ]
}

/// What the kernel has, asked by another program.
fn kernel_links() -> BTreeMap<u32, [String; 6]> {
    let output = Command::new("ip").args(["-j", "link"]).output().expect("runs ip");
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON of ip");
    let rows = rows.as_array().cloned().unwrap_or_default();
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let index_of = |name: &str| {
        rows.iter()
            .find(|row| text(row, "ifname") == name)
            .map_or(0, |row| row["ifindex"].as_u64().unwrap_or(0))
    };
    let row = |row: &serde_json::Value| {
        let alternatives = row["altnames"].as_array().cloned().unwrap_or_default();
        let alternatives: Vec<&str> = alternatives.iter().filter_map(|name| name.as_str()).collect();
        let is_up = row["flags"].as_array().is_some_and(|flags| flags.iter().any(|flag| flag == "UP"));
        let told = |text: String| if is_up { text } else { String::new() };
        let columns = [
            text(row, "ifname"),
            row["mtu"].to_string(),
            told(text(row, "ifalias")),
            text(row, "address"),
            index_of(&text(row, "master")).to_string(),
            told(alternatives.join(" ")),
        ];
        (row["ifindex"].as_u64().unwrap_or(0) as u32, columns)
    };
    rows.iter().map(row).collect()
}
