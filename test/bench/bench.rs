//! `make bench`: mudev beside Debian's udevd and a bare loop, on the same kernel, in the same run.
//!
//! Every measurement is a fresh *cell*: a process of its own with private namespaces (../support/cell.rs),
//! one daemon, one load. The process tree of the daemon is reaped by the cell, so that its CPU is
//! that of every worker, program and helper. Options: `--pairs 50,500,2000 --variants A,B,F,S,N --runs 5
//! --only mudevd,udevd,floor,mudevd-sysfs --quick`.

#[path = "../support/cell.rs"]
mod cell;
mod claims;
mod floor;
mod load;

use cell::{Group, Monitor, Notify};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Floor,
    Udevd,
    Mudevd,
    /// mudevd, which reads attributes of interfaces from sysfs in place of its table.
    Sysfs,
}

impl Subject {
    const ALL: [Subject; 4] = [Subject::Floor, Subject::Udevd, Subject::Mudevd, Subject::Sysfs];

    fn name(self) -> &'static str {
        match self {
            Subject::Floor => "floor",
            Subject::Udevd => "udevd",
            Subject::Mudevd => "mudevd",
            Subject::Sysfs => "mudevd-sysfs",
        }
    }

    fn parse(name: &str) -> Option<Subject> {
        Subject::ALL.into_iter().find(|s| s.name() == name)
    }

    fn command(self, variant: Variant) -> Result<Command> {
        Ok(match self {
            Subject::Floor => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg(if variant == Variant::B { "--floor-spawn" } else { "--floor" });
                command
            }
            Subject::Udevd => {
                // The name chooses the daemon; the symlink of the package is an absolute one.
                let link = Path::new("/run/systemd-udevd");
                let _ = std::os::unix::fs::symlink(udevadm()?, link);
                Command::new(link)
            }
            Subject::Mudevd => Command::new(mudevd()),
            Subject::Sysfs => {
                let mut command = Command::new(mudevd());
                command.env("MUDEV_LINKS", "sysfs");
                command
            }
        })
    }
}

fn udevadm() -> Result<PathBuf> {
    Ok(cell::peer_root().ok_or("Debian's udev is not unpacked: make peer")?.join("bin/udevadm"))
}

/// The daemon of this tree, or `BENCH_MUDEVD` (to compare two builds; the name must be mudevd).
fn mudevd() -> PathBuf {
    if let Some(path) = std::env::var_os("BENCH_MUDEVD") {
        return path.into();
    }
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/release/mudevd")
}

/// What a machine full of containers has.
const MANY_PAIRS: usize = 5000;

/// Which rules stand beside Debian's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Variant {
    /// 15 link attributes stored.
    A,
    /// A and a program for every added link.
    B,
    /// A and rules of the shape of many packages.
    F,
    /// A and the rules of a login manager.
    S,
    /// The experiment that mudev comes from: A, while another process reads the same files in sysfs and a third one keeps
    /// RTNL busy.
    N,
}

impl Variant {
    fn parse(name: &str) -> Option<Variant> {
        match name {
            "A" => Some(Variant::A),
            "B" => Some(Variant::B),
            "F" => Some(Variant::F),
            "S" => Some(Variant::S),
            "N" => Some(Variant::N),
            _ => None,
        }
    }

    /// Who is measured with it, on how many pairs.
    fn measures(self, subject: Subject, pairs: usize) -> bool {
        match self {
            Variant::N => subject != Subject::Floor && pairs <= 500,
            _ => subject != Subject::Sysfs,
        }
    }

    fn write_rules(self, folder: &Path) -> std::io::Result<()> {
        std::fs::write(folder.join("90-attributes.rules"), load::link_attribute_rules())?;
        if self == Variant::B {
            std::fs::write(folder.join("91-run.rules"), load::run_rules())?;
        }
        if self == Variant::F {
            for (name, text) in load::field_rules() {
                std::fs::write(folder.join(name), text)?;
            }
        }
        if self == Variant::S {
            for (name, text) in load::seat_rules() {
                std::fs::write(folder.join(name), text)?;
            }
        }
        Ok(())
    }
}

/// What one cell found. Written to the parent as `key value` lines.
#[derive(Clone, Debug, Default)]
struct Measure(BTreeMap<String, f64>);

impl Measure {
    fn get(&self, key: &str) -> f64 {
        self.0.get(key).copied().unwrap_or(f64::NAN)
    }

    fn set(&mut self, key: &str, value: f64) {
        self.0.insert(key.to_owned(), value);
    }

    /// Best of several runs: noise only adds.
    fn merge(&mut self, other: &Measure) {
        for (key, value) in &other.0 {
            let old = self.0.entry(key.clone()).or_insert(*value);
            *old = old.min(*value);
        }
    }
}

/// Runs one cell in this process, which is for nothing else.
fn cell_main(subject: Subject, variant: Variant, pairs: usize, strace: bool) -> Result<Measure> {
    cell::enter(cell::peer_root().as_deref())?;
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    variant.write_rules(Path::new("/run/udev/rules.d"))?;
    if std::env::var_os("BENCH_CHECK_BUILTINS").is_some() {
        mark_missing_builtins()?;
    }
    let notify = Notify::bind(Path::new("/run/notify"))?;
    let mut kernel = Monitor::join(Group::Kernel)?;
    let mut udev = Monitor::join(Group::Udev)?;

    let mut command = subject.command(variant)?;
    if strace {
        let traced = command;
        command = Command::new("strace");
        command
            .args(["-f", "-qq", "-c", "-o", "/run/strace"])
            .arg(traced.get_program())
            .args(traced.get_args());
    }
    let log = std::fs::File::create("/run/log")?;
    command.env("NOTIFY_SOCKET", "/run/notify").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let started = Instant::now();
    let mut child = command.spawn()?;
    notify
        .wait_ready(Duration::from_secs(20))
        .map_err(|e| format!("{} was not ready: {e}", subject.name()))?;
    let mut measure = Measure::default();
    measure.set("ready_ms", started.elapsed().as_secs_f64() * 1e3);
    let daemon = if strace { first_child(child.id()).ok_or("strace has no child")? } else { child.id() };
    measure
        .set("ready_cpu", process_cpu(daemon) + children(daemon).into_iter().map(process_cpu).sum::<f64>());

    let creating = AtomicBool::new(true);
    let probing = AtomicBool::new(true);
    std::thread::scope(|scope| -> Result<()> {
        let start = Instant::now();
        let creator = scope.spawn(|| -> std::io::Result<Duration> {
            let start = Instant::now();
            let mut links = load::Links::open()?;
            let made = (0..pairs).try_for_each(|n| links.add_veth(&format!("a{n}"), &format!("b{n}")));
            creating.store(false, Ordering::Release);
            made.map(|()| start.elapsed())
        });
        let prober = scope.spawn(|| probe(&probing, strace));
        if variant == Variant::N {
            scope.spawn(|| load::read_attributes(&probing));
            scope.spawn(|| load::keep_rtnl_busy(&probing));
        }
        let outcome = listen(&mut kernel, &mut udev, &creating, start);
        probing.store(false, Ordering::Release);
        let sent = prober.join().expect("the prober does not panic");
        measure.set("creation_s", creator.join().expect("the creator does not panic")?.as_secs_f64());
        let heard = outcome?;
        measure.set("events", heard.events as f64);
        measure.set("wall_s", heard.last.duration_since(start).as_secs_f64());
        let mut latencies: Vec<f64> = sent
            .iter()
            .filter(|(_, at)| *at < heard.last)
            .filter_map(|(uuid, at)| Some(heard.probes.get(uuid)?.duration_since(*at).as_secs_f64() * 1e3))
            .collect();
        latencies.sort_by(f64::total_cmp);
        if !latencies.is_empty() {
            let at = |q: f64| latencies[((latencies.len() - 1) as f64 * q).round() as usize];
            measure.set("p50_ms", at(0.5));
            measure.set("p99_ms", at(0.99));
            measure.set("max_ms", at(1.0));
        }
        Ok(())
    })?;

    measure.set("memory_mb", peak_memory(daemon));
    measure.set("tree_mb", tree_memory());
    unsafe { libc::kill(daemon as i32, libc::SIGTERM) };
    let (user, system) = reap_all(Duration::from_secs(20));
    let _ = child.try_wait();
    let usage = user + system;
    measure.set("cpu_s", usage);
    measure.set("user_s", user);
    measure.set("system_s", system);
    measure.set("event_cpu_s", usage - measure.get("ready_cpu"));
    measure.set("missing_builtins", missing_builtins_called() as f64);
    let log = std::fs::read_to_string("/run/log").unwrap_or_default();
    if std::env::var_os("BENCH_LOG").is_some() {
        eprintln!("--- {} {variant:?} {pairs}\n{log}", subject.name());
    }
    if strace {
        let table = std::fs::read_to_string("/run/strace")?;
        if let Some(total) = table.lines().rev().find(|l| l.trim_end().ends_with("total")) {
            let calls: f64 = total.split_whitespace().nth(3).and_then(|n| n.parse().ok()).unwrap_or(f64::NAN);
            measure.set("syscalls", calls);
        }
        if std::env::var_os("BENCH_LOG").is_some() {
            eprintln!("{table}");
        }
    }
    Ok(measure)
}

/// Builtins that mudev has; the others of Debian's rules must not be called by the load.
const WRITTEN: [&str; 4] = ["net_id", "net_driver", "net_setup_link", "path_id"];

/// Copies Debian's rules to the folder that hides them, with each call of a builtin that is not written yet
/// replaced by a property, so that the records tell whether the load would have called it.
fn mark_missing_builtins() -> std::io::Result<()> {
    for entry in std::fs::read_dir("/usr/lib/udev/rules.d")? {
        let path = entry?.path();
        let mut text = String::new();
        for line in std::fs::read_to_string(&path)?.lines() {
            text += &mark_line(line);
            text += "\n";
        }
        std::fs::write(Path::new("/run/udev/rules.d").join(path.file_name().expect("a file")), text)?;
    }
    Ok(())
}

fn mark_line(line: &str) -> String {
    for key in ["IMPORT{builtin}=\"", "RUN{builtin}+=\""] {
        let Some((before, rest)) = line.split_once(key) else { continue };
        let Some((call, after)) = rest.split_once('"') else { continue };
        let name = call.split_whitespace().next().unwrap_or("");
        if !WRITTEN.contains(&name) {
            return format!("{before}ENV{{BENCH_CALLED_{}}}=\"1\"{}", name.to_uppercase(), mark_line(after));
        }
    }
    line.to_owned()
}

fn missing_builtins_called() -> usize {
    let records = std::fs::read_dir("/run/udev/data").into_iter().flatten().flatten();
    records
        .filter(|e| e.file_name().to_string_lossy().starts_with('n'))
        .filter(|e| std::fs::read_to_string(e.path()).is_ok_and(|t| t.contains("E:BENCH_CALLED_")))
        .count()
}

/// Writes `change` for /dev/null every 10 ms (`BENCH_PROBE_MS`: fewer, to count instructions); returns what was sent when.
fn probe(probing: &AtomicBool, rare: bool) -> Vec<(String, Instant)> {
    let mut sent = Vec::new();
    let usual = std::env::var("BENCH_PROBE_MS").ok().and_then(|ms| ms.parse().ok()).unwrap_or(10);
    let pause = Duration::from_millis(if rare { 1000 } else { usual });
    let mut next = Instant::now();
    while probing.load(Ordering::Acquire) {
        let uuid = format!("{:08x}-0000-4000-8000-{:012x}", std::process::id(), sent.len());
        let file = std::fs::OpenOptions::new().write(true).open("/sys/devices/virtual/mem/null/uevent");
        let at = Instant::now();
        if file.and_then(|mut f| f.write_all(format!("change {uuid}").as_bytes())).is_ok() {
            sent.push((uuid, at));
        }
        next += pause;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    sent
}

struct Heard {
    events: usize,
    last: Instant,
    probes: HashMap<String, Instant>,
}

/// Listens until every event of a network interface that the kernel sent was announced.
fn listen(kernel: &mut Monitor, udev: &mut Monitor, creating: &AtomicBool, start: Instant) -> Result<Heard> {
    // Number -> what became of which device. An `add` and its `remove` that both still wait may cancel out,
    // so such pairs need not be announced; then the end is when nothing came for a while.
    let mut open: HashMap<u64, (String, String)> = HashMap::new();
    let mut quiet_since = Instant::now();
    // An announcement may be read before the kernel's message is.
    let mut early: HashSet<u64> = HashSet::new();
    let mut heard = Heard { events: 0, last: start, probes: HashMap::new() };
    let limit = start + Duration::from_secs(180);
    loop {
        let done_creating = !creating.load(Ordering::Acquire);
        let mut idle = true;
        while let Some(message) = kernel.try_next() {
            let Ok(number) = message.get("SEQNUM").parse() else { continue };
            if message.get("DEVPATH").starts_with("/devices/virtual/net/") {
                idle = false;
                heard.events += 1;
                if !early.remove(&number) {
                    open.insert(
                        number,
                        (message.get("DEVPATH").to_owned(), message.get("ACTION").to_owned()),
                    );
                }
            }
        }
        while let Some(message) = udev.try_next() {
            if message.get("DEVPATH").starts_with("/devices/virtual/net/") {
                idle = false;
                let number = message.get("SEQNUM").parse().unwrap_or(0);
                if open.remove(&number).is_none() {
                    early.insert(number);
                }
                heard.last = message.at;
            } else if let Some(uuid) = message.properties.get("SYNTH_UUID") {
                heard.probes.insert(uuid.clone(), message.at);
            }
        }
        if !idle {
            quiet_since = Instant::now();
        } else {
            let quiet = quiet_since.elapsed() > Duration::from_millis(500);
            if done_creating && (open.is_empty() || quiet && only_cancelled(&open)) {
                return Ok(heard);
            }
            if Instant::now() > limit {
                return Err(format!("{} of {} events were never announced", open.len(), heard.events).into());
            }
            cell::wait_readable(&[kernel.fd(), udev.fd()], Duration::from_millis(50));
        }
    }
}

/// Whether each device that is left has both its `add` and its `remove` open.
fn only_cancelled(open: &HashMap<u64, (String, String)>) -> bool {
    let mut actions: HashMap<&str, (usize, usize)> = HashMap::new();
    for (devpath, action) in open.values() {
        let counts = actions.entry(devpath).or_default();
        match action.as_str() {
            "add" => counts.0 += 1,
            "remove" => counts.1 += 1,
            _ => return false,
        }
    }
    actions.values().all(|(adds, removes)| adds == removes)
}

fn first_child(pid: u32) -> Option<u32> {
    children(pid).into_iter().next()
}

fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// CPU seconds of one process, its threads included and its children not.
fn process_cpu(pid: u32) -> f64 {
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // The clock of another process (clock_getcpuclockid(3)).
    let clock = (!(pid as libc::clockid_t) << 3) | 2;
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// VmHWM of the daemon itself, in MB.
fn peak_memory(pid: u32) -> f64 {
    status_kb(&format!("/proc/{pid}/status"), "VmHWM:") / 1024.0
}

fn status_kb(file: &str, key: &str) -> f64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(key));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(f64::NAN)
}

/// Proportional memory of all our descendants at the end, in MB.
fn tree_memory() -> f64 {
    let mut pending: Vec<u32> = vec![std::process::id()];
    let mut total = 0.0;
    while let Some(pid) = pending.pop() {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|c| c.parse().ok()) {
                let pss = status_kb(&format!("/proc/{child}/smaps_rollup"), "Pss:");
                total += if pss.is_nan() { 0.0 } else { pss / 1024.0 };
                pending.push(child);
            }
        }
    }
    total
}

/// Waits for every descendant (we are their reaper) and sums their CPU seconds.
fn reap_all(limit: Duration) -> (f64, f64) {
    let end = Instant::now() + limit;
    let (mut user, mut system) = (0.0, 0.0);
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    loop {
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        let pid = unsafe { libc::wait4(-1, std::ptr::null_mut(), libc::WNOHANG, &raw mut usage) };
        if pid < 0 {
            return (user, system);
        }
        if pid == 0 {
            if Instant::now() > end {
                eprintln!("bench: descendants did not end in time");
                return (f64::NAN, f64::NAN);
            }
            std::thread::sleep(Duration::from_millis(2));
            continue;
        }
        if std::env::var_os("BENCH_LOG").is_some() {
            let ms = |t: libc::timeval| seconds(t) * 1e3;
            eprintln!(
                "process {pid}: user {:.1} ms, system {:.1} ms, {} page faults, {} waits, {} preemptions",
                ms(usage.ru_utime),
                ms(usage.ru_stime),
                usage.ru_minflt,
                usage.ru_nvcsw,
                usage.ru_nivcsw
            );
        }
        user += seconds(usage.ru_utime);
        system += seconds(usage.ru_stime);
    }
}

/// Starts a cell and reads its findings.
fn run_cell(subject: Subject, variant: Variant, pairs: usize, strace: bool) -> Result<Measure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--cell", subject.name(), &format!("{variant:?}"), &pairs.to_string()]);
    if strace {
        command.arg("--strace");
    }
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{} {variant:?} {pairs}: no result", subject.name()).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let mut measure = Measure::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        measure.set(key, value.parse()?);
    }
    Ok(measure)
}

struct Options {
    pairs: Vec<usize>,
    variants: Vec<Variant>,
    subjects: Vec<Subject>,
    runs: usize,
    claims: bool,
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        pairs: vec![50, 500, 2000],
        variants: vec![Variant::A, Variant::B, Variant::F, Variant::S, Variant::N],
        subjects: Subject::ALL.to_vec(),
        runs: 5,
        claims: true,
    };
    let mut args = args.iter();
    let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    while let Some(arg) = args.next() {
        let mut value = || args.next().map(String::as_str).ok_or(format!("{arg} wants a value"));
        match arg.as_str() {
            "--pairs" => {
                options.pairs =
                    list(value()?).iter().map(|n| n.parse()).collect::<std::result::Result<_, _>>()?
            }
            "--variants" => {
                options.variants = list(value()?)
                    .iter()
                    .map(|v| Variant::parse(v).ok_or("variants: A, B, F, S, N"))
                    .collect::<std::result::Result<_, _>>()?;
            }
            "--only" => {
                options.subjects = list(value()?)
                    .iter()
                    .map(|s| Subject::parse(s).ok_or("subjects: floor, udevd, mudevd, mudevd-sysfs"))
                    .collect::<std::result::Result<_, _>>()?;
                options.claims = options.subjects.contains(&Subject::Mudevd);
            }
            "--runs" => options.runs = value()?.parse()?,
            "--quick" => {
                options.pairs = vec![50, 200];
                options.runs = 1;
            }
            // cargo bench says that it is a benchmark.
            "--bench" => {}
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Ok(options)
}

fn report(options: &Options) -> Result<()> {
    println!("{}", machine());
    let mut results: BTreeMap<(Variant, usize, Subject), Measure> = BTreeMap::new();
    println!(
        "\n| variant | pairs | daemon | CPU s | us/event | wall s | creation s | probe p50 ms | p99 ms | max ms | peak MB | tree MB | ready ms | events |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for &variant in &options.variants {
        for &pairs in &options.pairs {
            for &subject in options.subjects.iter().filter(|&&subject| variant.measures(subject, pairs)) {
                let mut best: Option<Measure> = None;
                let runs = match (subject, pairs) {
                    // A burst of ten milliseconds depends on where the scheduler puts three processes.
                    (_, ..=100) => 4 * options.runs,
                    // One run of the large ones is enough for the slow peer.
                    (Subject::Udevd, 501..) => 1,
                    _ => options.runs,
                };
                for _ in 0..runs {
                    match run_cell(subject, variant, pairs, false) {
                        Ok(measure) => match &mut best {
                            Some(best) => best.merge(&measure),
                            None => best = Some(measure),
                        },
                        Err(error) => eprintln!("bench: {error}"),
                    }
                }
                let Some(best) = best else { continue };
                let g = |key| best.get(key);
                println!(
                    "| {variant:?} | {pairs} | {} | {:.3} | {:.1} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} | {:.1} | {:.1} | {} |",
                    subject.name(),
                    g("cpu_s"),
                    g("event_cpu_s") * 1e6 / g("events"),
                    g("wall_s"),
                    g("creation_s"),
                    g("p50_ms"),
                    g("p99_ms"),
                    g("max_ms"),
                    g("memory_mb"),
                    g("tree_mb"),
                    g("ready_ms"),
                    g("events")
                );
                results.insert((variant, pairs, subject), best);
            }
        }
    }
    if options.pairs.contains(&2000) && options.variants.contains(&Variant::A) {
        let mut many = run_cell(Subject::Mudevd, Variant::A, MANY_PAIRS, false)?;
        for _ in 1..options.runs.min(3) {
            many.merge(&run_cell(Subject::Mudevd, Variant::A, MANY_PAIRS, false)?);
        }
        results.insert((Variant::A, MANY_PAIRS, Subject::Mudevd), many);
    }
    print_experiment(&results);
    println!("\nSystem calls per event (strace -f -c, 50 pairs, variant A):");
    for &subject in options.subjects.iter().filter(|&&subject| Variant::A.measures(subject, 50)) {
        match run_cell(subject, Variant::A, 50, true) {
            Ok(m) => println!("  {:7} {:.1}", subject.name(), m.get("syscalls") / m.get("events")),
            Err(error) => eprintln!("bench: {error}"),
        }
    }
    let claims = if options.claims { claims::measure(&mudevd())? } else { Vec::new() };
    verdict(&results, &claims);
    if options.subjects.contains(&Subject::Mudevd) {
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var("BENCH_CHECK_BUILTINS", "1") };
        let called = run_cell(Subject::Mudevd, Variant::A, 20, false)?.get("missing_builtins");
        println!("\nbuiltins that are not written yet, called by events of 40 links: {called}");
        if called > 0.0 {
            println!("The comparison is VOID.");
        }
    }
    Ok(())
}

/// What the link table is worth: variant N, whose other figures mean little.
fn print_experiment(results: &BTreeMap<(Variant, usize, Subject), Measure>) {
    let cells = || results.iter().filter(|(key, _)| key.0 == Variant::N);
    if cells().next().is_none() {
        return;
    }
    println!("\nRules that ask 15 attributes, while others read the same files and keep RTNL busy:\n");
    println!("| pairs | daemon | real s | user s | system s | an unrelated event waits, p50 ms | p99 ms |");
    println!("|---|---|---|---|---|---|---|");
    for ((_, pairs, subject), measure) in cells() {
        let g = |key| measure.get(key);
        println!(
            "| {pairs} | {} | {:.3} | {:.3} | {:.3} | {:.2} | {:.2} |",
            subject.name(),
            g("wall_s"),
            g("user_s"),
            g("system_s"),
            g("p50_ms"),
            g("p99_ms")
        );
    }
}

/// One line of the last table: what must be reached, what is aimed at, what was found.
struct Goal {
    what: String,
    must: f64,
    aim: f64,
    found: f64,
}

fn verdict(results: &BTreeMap<(Variant, usize, Subject), Measure>, claims: &[(usize, f64)]) {
    let get = |variant, pairs, subject, key: &str| {
        results.get(&(variant, pairs, subject)).map_or(f64::NAN, |m| m.get(key))
    };
    use Subject::{Floor, Mudevd, Udevd};
    let mut goals = Vec::new();
    let mut goal = |what: &str, found: f64, must: f64, aim: f64| {
        goals.push(Goal { what: what.to_owned(), must, aim, found });
    };
    let a = |subject, key: &str| get(Variant::A, 500, subject, key);
    let b = |subject, key: &str| get(Variant::B, 500, subject, key);
    goal("A: CPU, part of Debian's udevd", a(Mudevd, "cpu_s") / a(Udevd, "cpu_s"), 0.2, 0.2);
    goal("A: CPU, times the floor", a(Mudevd, "cpu_s") / a(Floor, "cpu_s"), 4.0, 2.0);
    goal("B: CPU, part of Debian's udevd", b(Mudevd, "cpu_s") / b(Udevd, "cpu_s"), 0.5, 0.5);
    goal(
        "B: CPU, times the bare spawns (floor with spawns)",
        b(Mudevd, "cpu_s") / b(Floor, "cpu_s"),
        f64::INFINITY,
        1.3,
    );
    goal("A: wall, times the creation alone", a(Mudevd, "wall_s") / a(Floor, "creation_s"), 1.5, 1.1);
    let per_pair: Vec<f64> =
        [50, 500, 2000].iter().map(|&n| get(Variant::A, n, Mudevd, "event_cpu_s") / n as f64).collect();
    let (least, most) = per_pair.iter().fold((f64::MAX, f64::MIN), |(l, m), &v| (l.min(v), m.max(v)));
    let spread = if per_pair.iter().any(|v| v.is_nan()) { f64::NAN } else { most / least };
    goal("A: CPU per pair, most / least of 50, 500, 2000", spread, 1.2, 1.2);
    goal("A: probe p99 ms, 500 pairs", a(Mudevd, "p99_ms"), 10.0, 2.0);
    goal("B: probe p99 ms, 500 pairs", b(Mudevd, "p99_ms"), 10.0, 2.0);
    goal("A: peak memory MB, 500 pairs", a(Mudevd, "memory_mb"), 10.0, 5.0);
    let many = |key| get(Variant::A, MANY_PAIRS, Mudevd, key);
    let per_pair = |pairs: usize| get(Variant::A, pairs, Mudevd, "event_cpu_s") / pairs as f64;
    goal("A: CPU per pair, 5000 pairs, times that of 500", per_pair(MANY_PAIRS) / per_pair(500), 1.2, 1.05);
    goal("A: peak memory MB, 5000 pairs", many("memory_mb"), 40.0, 25.0);
    let times: Vec<f64> = claims.iter().map(|(_, us)| *us).collect();
    let (low, high) = times.iter().fold((f64::MAX, f64::MIN), |(l, m), &v| (l.min(v), m.max(v)));
    goal(
        "claims: time per claim, most / least of 10 to 5000",
        if times.is_empty() { f64::NAN } else { high / low },
        2.0,
        2.0,
    );
    goal(
        "claims: worst time per claim, microseconds",
        if times.is_empty() { f64::NAN } else { high },
        f64::INFINITY,
        50.0,
    );
    let ready =
        results.iter().filter(|(k, _)| k.0 == Variant::A && k.2 == Mudevd).map(|(_, m)| m.get("ready_ms"));
    goal("start-up with Debian's rules to ready, ms", ready.fold(f64::NAN, f64::min), 20.0, 5.0);
    let field = get(Variant::F, 500, Mudevd, "event_cpu_s") / a(Mudevd, "event_cpu_s");
    goal("field's rules: CPU, times Debian's own alone", field, 1.5, 1.1);
    let seat = get(Variant::S, 500, Mudevd, "event_cpu_s") / a(Mudevd, "event_cpu_s");
    goal("S: CPU, times A", seat, 1.3, 1.1);
    let size = |path: PathBuf| std::fs::metadata(path).map_or(f64::NAN, |m| m.len() as f64 / 1e6);
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    goal("executable MB, dynamic", size(top.join("target/release/mudev")), 3.0, 1.5);
    let fixed = top.join("target/x86_64-unknown-linux-gnu/release/mudev");
    goal("executable MB, static", size(fixed), 5.0, 2.5);

    println!("\n| measure | found | must | aim | |\n|---|---|---|---|---|");
    for Goal { what, must, aim, found } in &goals {
        let word = match () {
            () if found.is_nan() => "not measured",
            () if found <= aim => "aim reached",
            () if found <= must => "must reached",
            () => "**FALLS SHORT**",
        };
        let must = if must.is_finite() { format!("{must}") } else { String::new() };
        println!("| {what} | {found:.2} | {must} | {aim} | {word} |");
    }
    for (n, us) in claims {
        println!("claims: {n} devices, {us:.1} microseconds per claim");
    }
}

/// What was compared, on what.
fn machine() -> String {
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output();
        output.map_or_else(|_| "unknown".to_owned(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
    };
    let cpus = std::thread::available_parallelism().map_or(0, |n| n.get());
    let peer = udevadm().map_or("absent".to_owned(), |p| run(&p.to_string_lossy(), &["--version"]));
    format!(
        "{}, kernel {}, {cpus} CPUs; Debian's udevd {peer}; mudev {}",
        run("date", &["-u", "+%Y-%m-%d"]),
        run("uname", &["-r"]),
        env!("CARGO_PKG_VERSION")
    )
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.first().map(String::as_str) {
        Some("--floor") => floor::main(false),
        Some("--floor-spawn") => floor::main(true),
        Some("--cell") => {
            let subject = args.get(1).and_then(|s| Subject::parse(s)).expect("a subject");
            let variant = args.get(2).and_then(|v| Variant::parse(v)).expect("a variant");
            let pairs = args.get(3).and_then(|n| n.parse().ok()).expect("a number of pairs");
            cell_main(subject, variant, pairs, args.iter().any(|a| a == "--strace")).map(|measure| {
                for (key, value) in &measure.0 {
                    println!("{key} {value}");
                }
            })
        }
        _ => options(&args).and_then(|options| report(&options)),
    };
    if let Err(error) = result {
        eprintln!("bench: {error}");
        std::process::exit(1);
    }
}
