//! The corpus (test/cases/README.md) and its judges. A case that fails prints what was expected and what came out;
//! all cases are run before the test fails.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/memory.rs"]
mod memory;

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[derive(Clone, Debug, Default)]
struct FakeDevice {
    devpath: String,
    subsystem: String,
    /// Kind (b or c), number, name of the node.
    node: Option<(char, u32, u32, String)>,
    driver: Option<String>,
    properties: Vec<(String, String)>,
    attributes: Vec<(String, Vec<u8>)>,
}

impl FakeDevice {
    fn sysname(&self) -> &str {
        self.devpath.rsplit('/').next().unwrap_or("")
    }

    /// Name of its record.
    fn id(&self) -> String {
        match &self.node {
            Some((kind, major, minor, _)) => format!("{kind}{major}:{minor}"),
            None => format!("+{}:{}", self.subsystem, self.sysname()),
        }
    }

    fn uevent_lines(&self) -> String {
        let mut text = String::new();
        if let Some((_, major, minor, name)) = &self.node {
            text += &format!("MAJOR={major}\nMINOR={minor}\nDEVNAME={name}\n");
        }
        if let Some(driver) = &self.driver {
            text += &format!("DRIVER={driver}\n");
        }
        for (key, value) in &self.properties {
            text += &format!("{key}={value}\n");
        }
        text
    }
}

#[derive(Clone, Debug, Default)]
struct Case {
    title: String,
    devices: Vec<FakeDevice>,
    files: Vec<(String, u32, Vec<u8>)>,
    rules: Vec<(String, String)>,
    steps: Vec<Step>,
    /// Why Debian 12's udev differs.
    peer_differs: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct Step {
    action: String,
    sysname: String,
    expect: Vec<Expect>,
}

#[derive(Clone, Debug)]
enum Expect {
    Property(String, Option<String>),
    Links(Vec<String>),
    Tags(Vec<String>),
    Symlink(String, Option<String>),
    Mode(u32),
    Owner(u32),
    Group(u32),
    Run(Vec<String>),
    NoRecord,
}

fn parse(path: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(path).expect("cases can be read");
    let mut machines: BTreeMap<String, Vec<FakeDevice>> = BTreeMap::new();
    let mut machine: Option<String> = None;
    let mut cases: Vec<Case> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let at = || format!("{}:{}: {line}", path.display(), number + 1);
        if let Some(rule) = line.strip_prefix('|') {
            let rules = &mut cases.last_mut().unwrap_or_else(|| panic!("{}", at())).rules;
            let text = &mut rules.last_mut().unwrap_or_else(|| panic!("{}", at())).1;
            *text += rule.strip_prefix(' ').unwrap_or(rule);
            *text += "\n";
            continue;
        }
        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        if word == "repeat" {
            let (count, rule) = rest.split_once(" | ").unwrap_or_else(|| panic!("{}", at()));
            let rules = &mut cases.last_mut().unwrap_or_else(|| panic!("{}", at())).rules;
            let text = &mut rules.last_mut().unwrap_or_else(|| panic!("{}", at())).1;
            for n in 0..count.parse::<u32>().unwrap_or_else(|_| panic!("{}", at())) {
                *text += &rule.replace("@N@", &n.to_string());
                *text += "\n";
            }
            continue;
        }
        let words: Vec<&str> = rest.split_whitespace().collect();
        if word == "machine" {
            machine = Some(rest.to_owned());
            machines.entry(rest.to_owned()).or_default();
            continue;
        }
        if word == "case" {
            machine = None;
            cases.push(Case { title: rest.to_owned(), ..Case::default() });
            continue;
        }
        let devices = match &machine {
            Some(name) => machines.get_mut(name).expect("entered above"),
            None => &mut cases.last_mut().unwrap_or_else(|| panic!("{}", at())).devices,
        };
        match word {
            "device" => {
                devices.push(parse_device(&words));
                continue;
            }
            "attr" => {
                let (name, value) = rest.split_once(' ').unwrap_or_else(|| panic!("{}", at()));
                let device = devices.last_mut().unwrap_or_else(|| panic!("{}", at()));
                device.attributes.push((name.to_owned(), unquote(value)));
                continue;
            }
            _ => {}
        }
        let case = cases.last_mut().unwrap_or_else(|| panic!("{}", at()));
        match word {
            "on" => case.devices.extend(machines.get(rest).unwrap_or_else(|| panic!("{}", at())).clone()),
            "rules" => case.rules.push((rest.to_owned(), String::new())),
            "file" => {
                let (mode, value) =
                    rest[words[0].len()..].trim().split_once(' ').unwrap_or_else(|| panic!("{}", at()));
                let mode = u32::from_str_radix(mode, 8).unwrap_or_else(|_| panic!("{}", at()));
                case.files.push((words[0].to_owned(), mode, unquote(value)));
            }
            "event" => case.steps.push(Step {
                action: words[0].to_owned(),
                sysname: words[1].to_owned(),
                expect: Vec::new(),
            }),
            "peer" => case.peer_differs = Some(rest.to_owned()),
            _ => {
                let step = case.steps.last_mut().unwrap_or_else(|| panic!("{}", at()));
                parse_expectation(step, word, rest).unwrap_or_else(|| panic!("{}", at()));
            }
        }
    }
    cases
}

fn parse_device(words: &[&str]) -> FakeDevice {
    let mut device =
        FakeDevice { devpath: words[0].to_owned(), subsystem: words[1].to_owned(), ..FakeDevice::default() };
    let mut rest = &words[2..];
    if let [kind @ ("b" | "c"), number, name, more @ ..] = rest {
        let (major, minor) = number.split_once(':').expect("MAJOR:MINOR");
        device.node = Some((
            kind.chars().next().unwrap_or('c'),
            major.parse().unwrap(),
            minor.parse().unwrap(),
            (*name).to_owned(),
        ));
        rest = more;
    }
    for word in rest {
        let (key, value) = word.split_once('=').expect("KEY=VALUE");
        match key {
            "driver" => device.driver = Some(value.to_owned()),
            _ => device.properties.push((key.to_owned(), value.to_owned())),
        }
    }
    device
}

fn parse_expectation(step: &mut Step, word: &str, rest: &str) -> Option<()> {
    let list = || rest.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let expect = match word {
        "prop" => {
            let (name, value) = rest.split_once(" = ")?;
            Expect::Property(name.to_owned(), Some(value.to_owned()))
        }
        "noprop" => Expect::Property(rest.to_owned(), None),
        "links" => Expect::Links(list()),
        "tags" => Expect::Tags(list()),
        "symlink" => {
            let (link, target) = rest.split_once(" -> ")?;
            Expect::Symlink(link.to_owned(), Some(target.to_owned()))
        }
        "nosymlink" => Expect::Symlink(rest.to_owned(), None),
        "mode" => Expect::Mode(u32::from_str_radix(rest, 8).ok()?),
        "owner" => Expect::Owner(rest.parse().ok()?),
        "group" => Expect::Group(rest.parse().ok()?),
        "norecord" => Expect::NoRecord,
        "run" => {
            if let Some(Expect::Run(list)) = step.expect.iter_mut().find(|e| matches!(e, Expect::Run(_))) {
                list.push(rest.to_owned());
                return Some(());
            }
            Expect::Run(if rest.is_empty() { Vec::new() } else { vec![rest.to_owned()] })
        }
        _ => return None,
    };
    step.expect.push(expect);
    Some(())
}

fn unquote(text: &str) -> Vec<u8> {
    let inner = text.trim_start().strip_prefix('"').and_then(|t| t.strip_suffix('"')).expect("a quoted text");
    let mut bytes = Vec::new();
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => bytes.push(b'\n'),
            Some(b't') => bytes.push(b'\t'),
            Some(b'x') => {
                let digits = [rest.next().unwrap_or(b'0'), rest.next().unwrap_or(b'0')];
                let digits = std::str::from_utf8(&digits).expect("two hex digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("two hex digits"));
            }
            Some(other) => bytes.push(other),
            None => panic!("ends in a backslash: {text}"),
        }
    }
    bytes
}

fn all_cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("test/cases");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("test/cases").map(|e| e.expect("readable").path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "case"));
    files.sort();
    let cases: Vec<Case> = files.iter().flat_map(|f| parse(f)).collect();
    assert!(cases.len() > 80, "only {} cases found", cases.len());
    cases
}

/// The tree of one case on disk.
struct Tree {
    root: PathBuf,
}

impl Tree {
    fn build(case: &Case, number: usize, judge: &str) -> std::io::Result<Tree> {
        let root = std::env::temp_dir().join(format!("mudev-corpus-{}-{judge}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        for folder in [
            "sys/dev/block",
            "sys/dev/char",
            "sys/class",
            "sys/bus",
            "dev",
            "run/udev/rules.d",
            "proc",
            "etc",
        ] {
            std::fs::create_dir_all(root.join(folder))?;
        }
        let tree = Tree { root };
        for account in ["passwd", "group"] {
            std::fs::copy(format!("/etc/{account}"), tree.root.join("etc").join(account))?;
        }
        std::fs::write(tree.root.join("proc/cmdline"), "quiet\n")?;
        tree.node(Path::new("null"), 'c', 1, 3)?;
        for device in &case.devices {
            tree.build_device(device)?;
        }
        tree.executable("say", b"#!/bin/sh\nprintf %s \"$1\"\n")?;
        tree.executable(
            "log",
            format!("#!/bin/sh\necho \"log $*\" >>{}/ran\n", tree.root.display()).as_bytes(),
        )?;
        for (name, mode, text) in &case.files {
            std::fs::write(tree.root.join(name), text)?;
            std::fs::set_permissions(tree.root.join(name), PermissionsExt::from_mode(*mode))?;
        }
        for (name, text) in &case.rules {
            let text = text.replace("@T@", &tree.root.to_string_lossy());
            std::fs::write(tree.root.join(format!("run/udev/rules.d/{name}.rules")), text)?;
        }
        Ok(tree)
    }

    fn executable(&self, name: &str, text: &[u8]) -> std::io::Result<()> {
        std::fs::write(self.root.join(name), text)?;
        std::fs::set_permissions(self.root.join(name), PermissionsExt::from_mode(0o755))
    }

    fn node(&self, name: &Path, kind: char, major: u32, minor: u32) -> std::io::Result<()> {
        let path = self.root.join("dev").join(name);
        std::fs::create_dir_all(path.parent().expect("below dev"))?;
        let path = std::ffi::CString::new(path.to_string_lossy().as_bytes())?;
        let mode = if kind == 'b' { libc::S_IFBLK } else { libc::S_IFCHR } | 0o600;
        cell::check(unsafe { libc::mknod(path.as_ptr(), mode, libc::makedev(major, minor)) }).map(drop)
    }

    fn build_device(&self, device: &FakeDevice) -> std::io::Result<()> {
        let folder = self.root.join("sys").join(&device.devpath[1..]);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("uevent"), device.uevent_lines())?;
        let up = "../".repeat(device.devpath.matches('/').count());
        let class = match device.subsystem.as_str() {
            bus @ ("pci" | "usb" | "scsi") => format!("bus/{bus}"),
            class => format!("class/{class}"),
        };
        let members = self.root.join("sys").join(&class);
        let members = if class.starts_with("bus") { members.join("devices") } else { members };
        std::fs::create_dir_all(&members)?;
        std::os::unix::fs::symlink(format!("{up}{class}"), folder.join("subsystem"))?;
        let down = if class.starts_with("bus") { "../../.." } else { "../.." };
        std::os::unix::fs::symlink(format!("{down}{}", device.devpath), members.join(device.sysname()))?;
        if let Some(driver) = &device.driver {
            let drivers = self.root.join("sys").join(&class).join("drivers").join(driver);
            std::fs::create_dir_all(&drivers)?;
            std::os::unix::fs::symlink(format!("{up}{class}/drivers/{driver}"), folder.join("driver"))?;
        }
        for (name, value) in &device.attributes {
            let file = folder.join(name);
            std::fs::create_dir_all(file.parent().expect("below the device"))?;
            std::fs::write(file, value)?;
        }
        if let Some((kind, major, minor, name)) = &device.node {
            self.node(Path::new(name), *kind, *major, *minor)?;
            let list = if *kind == 'b' { "block" } else { "char" };
            let numbers = self.root.join("sys/dev").join(list).join(format!("{major}:{minor}"));
            std::os::unix::fs::symlink(format!("../..{}", device.devpath), numbers)?;
        }
        Ok(())
    }

    /// Everything that `step` expects and that is not so, one line each.
    fn failures(&self, case: &Case, step: &Step, ran: &[String]) -> Vec<String> {
        let find = |sysname: &str| {
            case.devices.iter().find(|d| d.sysname() == sysname).expect("a device of the case")
        };
        let device = find(&step.sysname);
        let record_path = self.root.join("run/udev/data").join(device.id());
        let record = std::fs::read(&record_path).map(|b| String::from_utf8_lossy(&b).into_owned());
        let lines = record.as_deref().unwrap_or("");
        let starting = |prefix: &str| {
            let mut found: Vec<String> =
                lines.lines().filter_map(|l| l.strip_prefix(prefix)).map(str::to_owned).collect();
            found.sort();
            found
        };
        let node = device.node.as_ref().map(|(.., name)| self.root.join("dev").join(name));
        let meta = node.as_ref().and_then(|n| std::fs::metadata(n).ok());
        let mut wrong = Vec::new();
        let mut compare = |what: String, expected: String, found: String| {
            if expected != found {
                wrong.push(format!("{what}: expected {expected:?}, found {found:?}"));
            }
        };
        let sorted = |list: &[String]| {
            let mut list = list.to_vec();
            list.sort();
            list.join(" ")
        };
        for expect in &step.expect {
            match expect {
                Expect::Property(name, value) => {
                    let found = starting(&format!("E:{name}="));
                    let show = |v: Option<&String>| v.cloned().unwrap_or("(none)".to_owned());
                    compare(format!("property {name}"), show(value.as_ref()), show(found.first()));
                }
                Expect::Links(links) => compare("links".to_owned(), sorted(links), starting("S:").join(" ")),
                Expect::Tags(tags) => compare("tags".to_owned(), sorted(tags), starting("Q:").join(" ")),
                Expect::Symlink(link, target) => {
                    let path = self.root.join("dev").join(link);
                    let found = std::fs::read_link(&path).ok().map(|to| {
                        let full = path.parent().expect("below dev").join(to);
                        full.canonicalize().unwrap_or(full).display().to_string()
                    });
                    let wanted = target.as_ref().map(|sysname| {
                        let name = find(sysname).node.as_ref().expect("has a node").3.clone();
                        let full = self.root.join("dev").join(name);
                        full.canonicalize().unwrap_or(full).display().to_string()
                    });
                    let show = |v: Option<String>| v.unwrap_or("(none)".to_owned());
                    compare(format!("symlink {link}"), show(wanted), show(found));
                }
                Expect::Mode(mode) => {
                    let found = meta.as_ref().map_or(0, |m| m.mode() & 0o7777);
                    compare("mode".to_owned(), format!("{mode:04o}"), format!("{found:04o}"));
                }
                Expect::Owner(uid) => {
                    compare(
                        "owner".to_owned(),
                        uid.to_string(),
                        meta.as_ref().map_or(0, |m| m.uid()).to_string(),
                    );
                }
                Expect::Group(gid) => {
                    compare(
                        "group".to_owned(),
                        gid.to_string(),
                        meta.as_ref().map_or(0, |m| m.gid()).to_string(),
                    );
                }
                Expect::Run(list) => compare("run".to_owned(), list.join("; "), ran.join("; ")),
                Expect::NoRecord => {
                    compare(
                        "record".to_owned(),
                        "(none)".to_owned(),
                        record.as_deref().unwrap_or("(none)").to_owned(),
                    );
                }
            }
        }
        wrong
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// Feeds the step to `mudevd --events` over the tree.
fn run_mudevd(
    tree: &Tree,
    case: &Case,
    step: &Step,
    number: usize,
) -> std::io::Result<(Output, Vec<String>)> {
    let device = case.devices.iter().find(|d| d.sysname() == step.sysname).expect("a device of the case");
    let event = format!(
        "ACTION={}\nDEVPATH={}\nSUBSYSTEM={}\nSEQNUM={}\n{}\n",
        step.action,
        device.devpath,
        device.subsystem,
        number + 1,
        device.uevent_lines()
    );
    std::fs::write(tree.root.join("events"), event)?;
    let _ = std::fs::remove_file(tree.root.join("ran"));
    let dir = |option: &str, name: &str| format!("--{option}={}", tree.root.join(name).display());
    let output = Command::new(env!("CARGO_BIN_EXE_mudev"))
        .arg("daemon")
        .args([dir("sys-dir", "sys"), dir("dev-dir", "dev"), dir("run-dir", "run")])
        .args([dir("proc-dir", "proc"), dir("etc-dir", "etc"), dir("rules-dir", "run/udev/rules.d")])
        .arg(dir("events", "events"))
        .output()?;
    let ran = std::fs::read_to_string(tree.root.join("ran")).unwrap_or_default();
    Ok((output, ran.lines().map(str::to_owned).collect()))
}

/// Runs the step with Debian's udevadm, which thinks that the tree is the machine. The calling thread must
/// have a mount namespace of its own.
fn run_peer(tree: &Tree, case: &Case, step: &Step) -> std::io::Result<(Output, Vec<String>)> {
    let device = case.devices.iter().find(|d| d.sysname() == step.sysname).expect("a device of the case");
    let binary = cell::peer_root().expect("checked by the caller").join("bin/udevadm");
    // The tool is found by its name below the root that stays.
    let output = Command::new(binary)
        .args(["test", &format!("--action={}", step.action), &format!("/sys{}", device.devpath)])
        .env("SYSTEMD_DEVICE_VERIFY_SYSFS", "0")
        .output()?;
    let prefix = format!("{}/", tree.root.display());
    let ran = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|l| {
            l.strip_prefix("run: '")?.strip_suffix('\'')?.strip_prefix(&prefix).map(str::to_owned)
        })
        .collect();
    Ok((output, ran))
}

/// Makes the tree the machine of this thread: /sys, /dev and /run are bound from it.
fn become_machine(tree: &Tree) -> std::io::Result<()> {
    cell::check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    cell::mount("none", "/", "", libc::MS_REC | libc::MS_PRIVATE, "")?;
    for folder in ["sys", "dev", "run"] {
        cell::mount(&tree.root.join(folder).to_string_lossy(), &format!("/{folder}"), "", libc::MS_BIND, "")?;
    }
    // Rules of this machine must not take part.
    for folder in ["/usr/lib/udev/rules.d", "/etc/udev/rules.d", "/usr/local/lib/udev/rules.d"] {
        if Path::new(folder).is_dir() {
            cell::mount("none", folder, "tmpfs", 0, "")?;
        }
    }
    Ok(())
}

#[test]
fn mudevd_on_a_temporary_tree_agrees_with_the_corpus() {
    let mut failed = Vec::new();
    let cases = all_cases();
    for (number, case) in cases.iter().enumerate() {
        let tree = Tree::build(case, number, "mudevd").expect("builds a tree (as root: it makes nodes)");
        for (turn, step) in case.steps.iter().enumerate() {
            let (output, ran) = run_mudevd(&tree, case, step, turn).expect("runs mudevd");
            let mut wrong = tree.failures(case, step, &ran);
            if !output.status.success() {
                wrong.push(format!("exit {}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
            }
            if !wrong.is_empty() {
                failed.push(format!(
                    "{} ({} {})\n    {}\n    log: {}",
                    case.title,
                    step.action,
                    step.sysname,
                    wrong.join("\n    "),
                    String::from_utf8_lossy(&output.stderr).lines().take(5).collect::<Vec<_>>().join(" / ")
                ));
            }
        }
    }
    assert!(failed.is_empty(), "{} of {} cases:\n{}", failed.len(), cases.len(), failed.join("\n"));
}

#[test]
fn debians_udev_agrees_with_the_corpus_but_for_the_listed_differences() {
    if cell::peer_root().is_none() {
        // `make test` unpacks it; where there is no Debian there is no judge.
        println!("skipped: Debian's udev is not unpacked below target/peer/root");
        return;
    }
    let mut failed = Vec::new();
    for (number, case) in all_cases().iter().enumerate() {
        let tree = Tree::build(case, number, "peer").expect("builds a tree");
        let wrong = std::thread::scope(|scope| {
            let judge = || {
                become_machine(&tree).expect("a private mount namespace");
                let mut wrong = Vec::new();
                for step in &case.steps {
                    let (output, ran) = run_peer(&tree, case, step).expect("runs udevadm");
                    for line in tree.failures(case, step, &ran) {
                        wrong.push(format!("{} {}: {line}", step.action, step.sysname));
                    }
                    if !output.status.success() {
                        wrong.push(String::from_utf8_lossy(&output.stderr).into_owned());
                    }
                }
                wrong
            };
            scope.spawn(judge).join().expect("the judge does not panic")
        });
        match (&case.peer_differs, wrong.is_empty()) {
            (None, true) => {}
            (Some(reason), false) => println!("{}: differs: {reason}", case.title),
            (None, false) => failed.push(format!("{}\n    {}", case.title, wrong.join("\n    "))),
            (Some(_), true) => {
                failed.push(format!("{}: agrees, so the note of a difference is stale", case.title))
            }
        }
    }
    assert!(failed.is_empty(), "{} cases:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn the_evaluator_alone_agrees_with_the_corpus() {
    let cases: Vec<Case> = all_cases().into_iter().filter(|case| case.steps.len() == 1).collect();
    let mut report = Vec::new();
    for case in &cases {
        for failure in memory::failures(case, &case.steps[0]) {
            report.push(format!("{}: {failure}", case.title));
        }
    }
    assert!(cases.len() > 60, "only {} cases of one event", cases.len());
    assert!(report.is_empty(), "{}", report.join("\n"));
}
