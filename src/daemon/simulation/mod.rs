//! Seeded runs of the daemon against a kernel and a store with faults: messages that are lost, late or overtaken,
//! helpers and programs that fail, file system calls that fail, deaths in front of any of them.
//!
//! A seed gives a list of steps ([`Step`]), each with dice of its own, so that a run can be repeated, and repeated with
//! fewer steps. When the steps are through and everything has become quiet, what is on disk, in the link table and in the
//! announcements must be what the devices that are then there call for ([`check`]), whatever happened before.
//!
//! `SIM_SEED=7 cargo test --lib simulation` repeats one run, `SIM_RUNS=5000` makes so many.

mod check;
mod kernel;
// The tests of the engine have it too, and the layers have no place for it in common.
#[allow(clippy::duplicate_mod)]
#[path = "../../../test/support/random.rs"]
mod random;
mod shell;

use crate::engine::{EngineConfig, Input};
use crate::model::Now;
use crate::rules::compile::{CompileOptions, SourceFile, compile};
use crate::rules::memory_world::Nobody;
use crate::rules::program::RuleSet;
use crate::sys::faults::{self, Killed, Plan};
use crate::world::Roots;
use crate::world::tree::Tree;
use kernel::Kernel;
use random::Random;
use shell::{Announced, Daemon};
use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What they make of a device depends on the device as its last event finds it, and on nothing before.
const RULES: &str = r#"
SUBSYSTEM=="net", ACTION=="add", KERNEL=="e*", NAME="n$env{IFINDEX}"
SUBSYSTEM=="net", ENV{MTU}="$attr{mtu}", ENV{ALIAS}="$attr{ifalias}", TAG+="net"
SUBSYSTEM=="net|misc", PROGRAM=="/p %k", ENV{R}="$result"
SUBSYSTEM=="block", ENV{SIZE}="$attr{size}", TAG+="disk", SYMLINK+="by/$kernel shared/disk"
SUBSYSTEM=="block", TAG+="many", TAG+="more", TAG+="most", SYMLINK+="also/$kernel odd/$kernel odd/disk"
SUBSYSTEM=="block", KERNEL=="*[02468]", OPTIONS+="link_priority=5"
SUBSYSTEM=="misc", ENV{VALUE}="$attr{value}", TAG+="misc", TAG+="node", SYMLINK+="shared/misc", RUN+="/r"
SUBSYSTEM=="plain", ENV{VALUE}="$attr{value}", TAG+="plain"
"#;

/// Steps of one run.
const STEPS: usize = 70;
/// Turns and other moves after which what is not quiet hangs.
const PATIENCE: usize = 20_000;

/// One thing that happens.
#[derive(Clone, Debug)]
enum What {
    Add(&'static str),
    AddPartition,
    /// An attribute changes, and an event tells so.
    Set,
    /// The same where the kernel tells of it in no message.
    SetSilently,
    Rename,
    Remove,
    Trigger,
    /// The next two uevents are sent at once.
    Overtake,
    /// The kernel goes on with what takes it several steps.
    Kernel(usize),
    /// A turn of the daemon's loop, with so many starts at most; or it is started.
    Turn(usize),
    /// A program ends.
    Complete,
    Time(Duration),
    LoseUevents(usize),
    LoseNotes(usize),
    LoseHelper,
    /// Somebody holds RTNL, or lets it go.
    HoldRtnl(bool),
    /// The daemon dies in front of its n-th call from now on.
    Kill(u64),
    /// Calls are interrupted.
    Interrupt(u64),
    /// From now on nothing can be written or opened, in one of several ways.
    Fail(Failing),
    /// The n-th call from now on fails with this.
    FailOnce(u64, i32),
    /// That is over.
    Heal,
    /// Somebody removes all claims while nothing is under way, the daemon dies, disks go: the records still know.
    DieWithoutClaims,
    /// Somebody removes what the daemon has written, and triggers all devices.
    Vandalize(&'static str),
    StopQueue,
    StartQueue,
    Reload,
}

#[derive(Clone, Copy, Debug)]
enum Failing {
    Full,
    ReadOnly,
    NoDescriptors,
}

/// Parts of `/run` that are removed; the whole is renamed.
const PARTS: [&str; 5] = ["udev", "udev/data", "udev/tags", "udev/links", "udev/tags/disk"];

#[derive(Clone, Debug)]
struct Step {
    salt: u64,
    what: What,
}

fn steps(random: &mut Random) -> Vec<Step> {
    let mut step = || {
        let n = 1 + random.below(6);
        let what = match random.below(100) {
            0..8 => What::Add(["net", "net", "block", "misc", "plain"][random.below(5)]),
            8..10 => What::AddPartition,
            10..17 => What::Set,
            17..20 => What::SetSilently,
            20..23 => What::Rename,
            23..30 => What::Remove,
            30..33 => What::Trigger,
            33..36 => What::Overtake,
            36..52 => What::Kernel(n),
            52..74 => What::Turn(n),
            74..84 => What::Complete,
            84..89 => What::Time(Duration::from_millis([1, 6, 210][random.below(3)])),
            89 => What::LoseUevents(n),
            90..92 => What::LoseNotes(n),
            92 if n > 3 => What::LoseHelper,
            92 => What::HoldRtnl(n < 3),
            93 if n == 1 => What::DieWithoutClaims,
            93 => What::Kill(1 + random.below(120) as u64),
            94 => {
                let failing = [Failing::Full, Failing::ReadOnly, Failing::NoDescriptors];
                What::Fail(failing[random.below(3)])
            }
            95 => {
                let errno = [libc::ENOSPC, libc::EROFS, libc::EMFILE, libc::ENOMEM];
                What::FailOnce(1 + random.below(60) as u64, errno[random.below(errno.len())])
            }
            96 if n == 1 => What::Interrupt(2 + random.below(5) as u64),
            96 => What::Heal,
            97 if n > 3 => What::Vandalize(PARTS[random.below(PARTS.len())]),
            97 => What::StopQueue,
            98 => What::StartQueue,
            _ => What::Reload,
        };
        Step { salt: random.next(), what }
    };
    let mut steps: Vec<Step> = (0..STEPS).map(|_| step()).collect();
    // Who dies while the store fails, or while others remove what is in it, leaves what nobody can know of.
    let may_die = random.chance(1, 2);
    steps.retain(|step| match step.what {
        What::Kill(_) | What::DieWithoutClaims => may_die,
        What::Vandalize(_) | What::Fail(_) | What::FailOnce(..) => !may_die,
        _ => true,
    });
    steps
}

/// What can be said of a whole run.
#[derive(Default)]
struct History {
    /// Of daemons that have died.
    lives: Vec<(Vec<Announced>, HashSet<u64>)>,
    /// The daemon died or folds events: not every event has its announcement.
    is_troubled: bool,
    /// The last event that nobody got because the daemon had not yet been started.
    first: u64,
}

struct Sim {
    tree: Tree,
    roots: Roots,
    rules: Arc<RuleSet>,
    config: EngineConfig,
    kernel: Kernel,
    daemon: Option<Daemon>,
    now: Now,
    history: History,
}

fn rules() -> Arc<RuleSet> {
    let file = SourceFile { path: "sim.rules".into(), content: RULES.as_bytes().to_vec() };
    let compiled = compile(&[file], &CompileOptions { resolve_names: Default::default(), accounts: &Nobody });
    assert!(compiled.diagnostics.is_empty(), "{:?}", compiled.diagnostics);
    Arc::new(compiled.rules)
}

impl Sim {
    fn new(rules: Arc<RuleSet>, random: &mut Random) -> Sim {
        let tree = Tree::in_memory();
        tree.dir("run").dir("dev").dir("sys");
        let roots = tree.roots();
        // In one of four runs whatever can be folded is folded.
        let coalesce_above = if random.chance(1, 4) { 3 } else { 1000 };
        let config = EngineConfig { coalesce_above, ..EngineConfig::default() };
        Sim {
            kernel: Kernel::new(&roots, Now::from_secs(100)),
            tree,
            roots,
            rules,
            config,
            daemon: None,
            now: Now::from_secs(100),
            history: History { is_troubled: coalesce_above == 3, ..History::default() },
        }
    }

    /// Any device, if there is one.
    fn any(&self, random: &mut Random, subsystem: &str) -> Option<String> {
        let of = |d: &&kernel::Device| d.subsystem.starts_with(subsystem);
        let ids: Vec<String> = self.kernel.devices.values().filter(of).map(|d| d.id()).collect();
        (!ids.is_empty()).then(|| ids[random.below(ids.len())].clone())
    }

    fn step(&mut self, step: &Step) {
        let random = &mut Random(step.salt);
        let number = random.below(100) as u32;
        match &step.what {
            What::Add(subsystem) => self.kernel.add(subsystem, None),
            What::AddPartition => {
                if let Some(disk) = self.any(random, "block") {
                    self.kernel.add("block", Some(&disk));
                }
            }
            What::Set => {
                if let Some(id) = self.any(random, "") {
                    self.kernel.set(&id, number);
                }
            }
            What::SetSilently => {
                if let Some(id) = self.any(random, "net") {
                    self.kernel.set_alias(&id, number);
                    self.kernel.trigger("change", &id);
                }
            }
            What::Rename => {
                if let Some(id) = self.any(random, "net") {
                    self.kernel.rename(&id, format!("u{}", step.salt % 10_000_000));
                }
            }
            What::Remove => {
                if let Some(id) = self.any(random, "") {
                    self.kernel.remove(&id);
                }
            }
            What::Trigger => {
                if let Some(id) = self.any(random, "") {
                    self.kernel.trigger(if random.chance(1, 3) { "add" } else { "change" }, &id);
                }
            }
            What::Overtake => self.kernel.swap_next = true,
            What::Kernel(n) => (0..*n).for_each(|_| self.kernel.step()),
            What::Turn(starts) => self.turn(random, *starts),
            What::Complete => self.with_daemon(|daemon, _| daemon.complete_one(random)),
            What::Time(time) => {
                self.now += *time;
                self.kernel.now = self.now;
                let now = self.now;
                self.with_daemon(|daemon, kernel| daemon.on_time(now, kernel));
            }
            What::LoseUevents(n) => self.kernel.lose_uevents = *n,
            What::LoseNotes(n) => self.kernel.lose_notes = *n,
            What::HoldRtnl(held) => self.kernel.is_rtnl_held = *held,
            What::LoseHelper => self.kernel.drop_helper(),
            What::Kill(call) => faults::set(Plan { kill_at: Some(*call), ..Plan::default() }),
            What::Interrupt(every) => faults::set(Plan { interrupt_every: *every, ..Plan::default() }),
            What::Fail(failing) => {
                faults::set(match failing {
                    Failing::Full => Plan { full: true, ..Plan::default() },
                    Failing::ReadOnly => Plan { read_only: true, ..Plan::default() },
                    Failing::NoDescriptors => Plan { no_descriptors: true, ..Plan::default() },
                });
            }
            What::FailOnce(call, errno) => {
                faults::set(Plan { fail_at: Some((*call, *errno)), ..Plan::default() });
            }
            What::Heal => faults::set(Plan::default()),
            What::DieWithoutClaims => {
                // If it does not, the end of the run says so.
                let _ = self.finish(random);
                if let Some(daemon) = self.daemon.take_if(|daemon| daemon.is_quiet()) {
                    let _ = std::fs::remove_dir_all(self.roots.run.join("udev/links"));
                    self.bury(daemon);
                    let doomed = (0..number % 4).filter_map(|_| self.any(random, "block"));
                    doomed.collect::<Vec<_>>().iter().for_each(|id| self.kernel.remove(id));
                }
            }
            What::Vandalize(part) => {
                let path = self.roots.run.join(part);
                if *part == PARTS[0] {
                    let _ = std::fs::rename(&path, self.roots.run.join(format!("away{number}")));
                } else {
                    let _ = std::fs::remove_dir_all(&path);
                }
                self.kernel.trigger_all();
            }
            What::StopQueue => self.tell(random, Input::StopQueue),
            What::StartQueue => self.tell(random, Input::StartQueue),
            What::Reload => {
                let rules = rules();
                self.tell(random, Input::Rules(rules));
            }
        }
    }

    fn tell(&mut self, random: &mut Random, input: Input) {
        self.with_daemon(|daemon, kernel| daemon.input(input, kernel, random));
    }

    /// Does something with the daemon, if one runs; it may die of it.
    fn with_daemon(&mut self, work: impl FnOnce(&mut Daemon, &mut Kernel)) {
        let Some(mut daemon) = self.daemon.take() else { return };
        match catch_unwind(AssertUnwindSafe(|| work(&mut daemon, &mut self.kernel))) {
            Ok(()) => self.daemon = Some(daemon),
            Err(payload) if payload.is::<Killed>() => self.bury(daemon),
            Err(payload) => resume_unwind(payload),
        }
    }

    /// What remains when a daemon has died.
    fn bury(&mut self, mut daemon: Daemon) {
        self.history.lives.push((std::mem::take(&mut daemon.announced), daemon.made_up.clone()));
        drop(daemon);
        self.died();
    }

    fn died(&mut self) {
        faults::set(Plan::default());
        self.kernel.hang_up();
        self.history.is_troubled = true;
    }

    fn start(&mut self) {
        let Sim { roots, config, rules, kernel, now, .. } = self;
        let open = || Daemon::open(roots, config.clone(), rules.clone(), kernel, *now);
        match catch_unwind(AssertUnwindSafe(open)) {
            Ok(Ok(daemon)) => self.daemon = Some(daemon),
            Ok(Err(_)) => self.kernel.hang_up(),
            Err(payload) if payload.is::<Killed>() => self.died(),
            Err(payload) => resume_unwind(payload),
        }
    }

    fn turn(&mut self, random: &mut Random, starts: usize) {
        if self.daemon.is_none() {
            self.history.first = self.kernel.sent.last().map_or(0, |event| event.seqnum);
            self.start();
        }
        self.with_daemon(|daemon, kernel| daemon.turn(kernel, random, starts));
    }

    /// Lets everything end that is under way, without further faults.
    fn finish(&mut self, random: &mut Random) -> Result<(), String> {
        faults::set(Plan::default());
        self.kernel.lose_uevents = 0;
        self.kernel.lose_notes = 0;
        self.kernel.is_rtnl_held = false;
        self.turn(random, 1);
        self.tell(random, Input::StartQueue);
        self.become_quiet(random)
    }

    fn become_quiet(&mut self, random: &mut Random) -> Result<(), String> {
        for _ in 0..PATIENCE {
            while self.kernel.has_steps() {
                self.kernel.step();
            }
            self.turn(random, 10);
            let now = self.now;
            self.with_daemon(|daemon, kernel| {
                daemon.complete_one(random);
                daemon.on_time(now, kernel);
            });
            let Some(daemon) = &self.daemon else { continue };
            let is_read = self.kernel.is_read() && self.kernel.notes.is_empty();
            if is_read && !self.kernel.has_steps() && self.kernel.replies.is_empty() && daemon.is_quiet() {
                return Ok(());
            }
            let is_still = is_read && !self.kernel.has_steps() && self.kernel.replies.is_empty();
            if let Some(at) = daemon.timeout().filter(|_| is_still && !daemon.has_work()) {
                self.now = self.now.max(at);
                self.kernel.now = self.now;
            }
        }
        let state = self.daemon.as_ref().map(Daemon::describe);
        Err(format!("it does not become quiet\n   {state:?}"))
    }
}

/// Runs these steps; an error says what is not as it must be.
fn run(seed: u64, rules: &Arc<RuleSet>, steps: &[Step]) -> Result<(), String> {
    let random = &mut Random(!seed);
    let outcome = catch_unwind(AssertUnwindSafe(|| -> Result<(), String> {
        faults::set(Plan::default());
        let mut sim = Sim::new(rules.clone(), random);
        steps.iter().for_each(|step| sim.step(step));
        sim.finish(random)?;
        check::check(&sim)
    }));
    faults::set(Plan::default());
    match outcome {
        Ok(result) => result,
        Err(payload) => {
            let text = payload.downcast_ref::<String>().cloned();
            Err(text
                .or_else(|| payload.downcast_ref::<&str>().map(|text| text.to_string()))
                .unwrap_or_default())
        }
    }
}

/// As few of the steps as still fail, and how.
fn shrink(seed: u64, rules: &Arc<RuleSet>, mut steps: Vec<Step>) -> (Vec<Step>, String) {
    let mut failure = run(seed, rules, &steps).err().unwrap_or_default();
    let mut size = steps.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + size).min(steps.len()));
            match run(seed, rules, &fewer) {
                Err(error) => (steps, failure) = (fewer, error),
                Ok(()) => at += size,
            }
        }
        size /= 2;
    }
    (steps, failure)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect(name))
}

/// Runs at one time: closing inotify waits for other processors, not for ours.
const THREADS: usize = 24;

/// The failures of these seeds, in no order.
fn run_all(seeds: std::ops::Range<u64>, rules: &Arc<RuleSet>) -> Vec<(u64, String)> {
    let (next, failures) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    if let Err(failure) = run(seed, rules, &steps(&mut Random(seed))) {
                        failures.lock().expect("nobody panics with it").push((seed, failure));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("nobody panics with it");
    failures.sort();
    failures
}

#[test]
fn whatever_goes_wrong_in_the_end_the_daemon_knows_what_is_there() {
    let rules = rules();
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("SIM_RUNS").unwrap_or(300) + 1,
    };
    let mut kinds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (seed, failure) in run_all(seeds, &rules) {
        let first = failure.lines().next().unwrap_or_default();
        kinds.entry(first.chars().filter(|c| !c.is_ascii_digit()).collect()).or_default().push(seed);
    }
    // The first of each kind, with no more than it takes.
    for seed in kinds.values().filter_map(|seeds| seeds.first()) {
        let (fewest, failure) = shrink(*seed, &rules, steps(&mut Random(*seed)));
        let fewest: Vec<String> = fewest.iter().map(|step| format!("   {:?}", step.what)).collect();
        println!("--- SIM_SEED={seed}: {failure}\nafter\n{}", fewest.join("\n"));
    }
    assert!(kinds.is_empty(), "{kinds:?}");
}
