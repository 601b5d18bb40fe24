//! Random rules, run by Debian's `udevadm test` and by ours on the same device of the same kernel: the
//! properties, symlinks, tags and commands they come to must be the same.
//!
//! The seed is fixed and printed; `RULES_SEED` and `RULES_CASES` choose others. Debian 12 has udev 252 and
//! we follow later ones, so what differs by intention is left out of the rules, here, with the reason:
//!
//! | not generated | because |
//! |---|---|
//! | `SYMLINK-=`, `i"..."`, `OPTIONS="dump"`, `CONST{cvm}` | 252 does not know them and drops the line |
//! | property names with other bytes than letters, digits, `_`, `.` | refused since 258 |
//! | assignments to the names protected since 258 | 252 lets them pass |
//! | empty OWNER or GROUP, names nobody has | the whole line is dropped since 258 |
//! | a TAG that comes out empty | 252 stores it, and its `test` crashes at once |
//! | surrogates in `e"..."` | 252 lets them pass |
//! | `$links` | the order of several is that of a hash table |
//! | lines of 16 KiB | 252 keeps the lines before one |

#[path = "support/cell.rs"]
mod cell;
#[path = "support/live.rs"]
mod live;
#[path = "support/random.rs"]
mod random;

use random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const SEED: u64 = 1;
const CASES: usize = 300;
const RULES: &str = "/run/udev/rules.d/99-random.rules";
/// Taken in turn, if they are there. The serial port has parents, a driver and attributes; /dev/null is
/// everywhere.
const DEVICES: [&str; 2] = ["/sys/class/tty/ttyS0", "/sys/class/mem/null"];

#[test]
fn random_rules_do_what_they_do_in_debian() {
    let Some(peer) = cell::peer_root() else {
        println!("skipped: Debian's udev is not unpacked below target/peer/root (make peer)");
        return;
    };
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: a private place takes root");
        return;
    }
    let number = |name: &str, usual: u64| -> u64 {
        std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
    };
    let (seed, cases) = (number("RULES_SEED", SEED), number("RULES_CASES", CASES as u64));
    live::in_cell(|| {
        let devices: Vec<&str> = DEVICES.into_iter().filter(|path| Path::new(path).exists()).collect();
        println!("{cases} cases on {devices:?}, seed {seed}");
        let peer = peer.join("bin/udevadm");
        let mut random = Random(seed);
        let mut differing = 0;
        for case in 0..cases {
            let device = devices[case as usize % devices.len()];
            let rules = Rules { random: &mut random }.file();
            let action = if random.below(6) == 0 { "change" } else { "add" };
            std::fs::write(RULES, &rules).expect("/run is ours");
            let expected = Verdict::of(&peer, "udevadm", action, device);
            let found = Verdict::of(Path::new(env!("CARGO_BIN_EXE_mudev")), "mudevadm", action, device);
            if expected != found {
                differing += 1;
                println!(
                    "case {case}, {action} {device}:\n{rules}  Debian: {expected:?}\n  mudev:  {found:?}\n"
                );
            }
        }
        assert_eq!(differing, 0, "of {cases} cases with seed {seed}, see above");
    });
}

/// What the rules came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdict {
    properties: BTreeMap<String, String>,
    links: BTreeSet<String>,
    tags: BTreeSet<String>,
    /// In order.
    commands: Vec<String>,
}

impl Verdict {
    fn of(program: &Path, name: &str, action: &str, device: &str) -> Verdict {
        for folder in ["data", "links", "tags", "watch"] {
            let _ = std::fs::remove_dir_all(Path::new("/run/udev").join(folder));
        }
        std::fs::create_dir_all("/run/udev/data").expect("/run is ours");
        let mut command = Command::new(program);
        command.arg0(name).args(["test", &format!("--action={action}"), device]);
        let output = command.output().expect("it can be started");
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("DEVPATH="), "{name}: {}\n{text}{errors}", output.status);
        Verdict::read(&text)
    }

    fn read(text: &str) -> Verdict {
        let mut verdict = Verdict::default();
        for line in text.lines() {
            if let Some(command) = line.strip_prefix("run: ") {
                // 252 substitutes a command once more when it prints it.
                verdict.commands.push(command.replace("%%", "%").replace("$$", "$"));
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            match key {
                // When the device was first seen: now.
                "USEC_INITIALIZED" => {}
                // Their order is not defined.
                "DEVLINKS" => verdict.links = value.split(' ').map(str::to_owned).collect(),
                "TAGS" => verdict.tags = value.split(':').map(str::to_owned).collect(),
                "CURRENT_TAGS" => {}
                _ => drop(verdict.properties.insert(key.to_owned(), value.to_owned())),
            }
        }
        verdict
    }
}

/// Values to compare with: names and numbers of the devices, globs, alternatives, what others assign.
const VALUES: [&str; 30] = [
    "ttyS0",
    "tty",
    "tty*",
    "*",
    "?*",
    "",
    "port",
    "serial",
    "pnp",
    "26",
    "4",
    "2*",
    "[0-9]*",
    "0",
    "x|26",
    "|x",
    "a||b",
    "v1",
    "v2",
    "v*",
    "port|serial",
    "[!a]*",
    "0x0",
    "ctrl|port",
    "serial-base",
    "???",
    "none",
    "v1 v2",
    "add",
    "[[:alpha:]]*",
];

const SUBSTITUTIONS: [&str; 32] = [
    "%k",
    "%n",
    "%b",
    "$id",
    "$driver",
    "%d",
    "$attr{irq}",
    "%s{id}",
    "$env{A}",
    "%E{B}",
    "%M:%m",
    "%c",
    "%c{1}",
    "%c{2+}",
    "%P",
    "$name",
    "%r",
    "%S",
    "$devnode",
    "$devpath",
    "%p",
    "$$",
    "%%",
    "$idx",
    "$foo",
    "%y",
    "$env{none}",
    "$attr{driver}",
    "$attr{none}",
    "w1  w2",
    ";?",
    "$attr{uevent}",
];

const ATTRIBUTES: [&str; 10] =
    ["irq", "type", "line", "uartclk", "none", "port", "device/driver", "subsystem", "driver", "uevent"];

/// Makes rules files.
struct Rules<'r> {
    random: &'r mut Random,
}

impl Rules<'_> {
    fn one(&mut self, of: &[&'static str]) -> &'static str {
        of[self.random.below(of.len())]
    }

    fn value(&mut self) -> &'static str {
        self.one(&VALUES)
    }

    fn op(&mut self) -> &'static str {
        self.one(&["==", "==", "==", "!="])
    }

    fn key(&mut self) -> &'static str {
        self.one(&["A", "B", "C"])
    }

    fn file(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..3 + self.random.below(11) {
            text += &self.line();
            text += "\n";
        }
        text + "ENV{END}=\"v%b|%d|%c|$env{A}|$env{B}|$env{C}\"\n"
    }

    fn line(&mut self) -> String {
        let mut tokens = Vec::new();
        for _ in 0..[0, 0, 1, 1, 1, 2][self.random.below(6)] {
            tokens.push(self.comparison());
        }
        if self.random.below(3) == 0 {
            for _ in 0..[1, 1, 2, 3][self.random.below(4)] {
                tokens.push(self.parent());
            }
        }
        for _ in 0..[1, 1, 2, 3][self.random.below(4)] {
            tokens.push(self.effect());
        }
        if self.random.below(8) == 0 {
            tokens.push(format!("GOTO=\"g{}\"", self.random.below(3)));
        }
        for i in (1..tokens.len()).rev() {
            tokens.swap(i, self.random.below(i + 1));
        }
        if self.random.below(5) == 0 {
            tokens.insert(0, format!("LABEL=\"g{}\"", self.random.below(3)));
        }
        tokens.join(if self.random.below(10) == 0 { ", \\\n  " } else { ", " })
    }

    fn comparison(&mut self) -> String {
        let (op, value) = (self.op(), self.value());
        match self.random.below(16) {
            0 => format!("ACTION{op}\"{}\"", self.one(&["add", "remove", "add|change", "a*"])),
            1 | 2 => format!("KERNEL{op}\"{value}\""),
            3..=5 => format!("ENV{{{}}}{op}\"{value}\"", self.key()),
            6 => format!("SUBSYSTEM{op}\"{value}\""),
            7 => format!("DRIVER{op}\"{value}\""),
            8 | 9 => format!("ATTR{{{}}}{op}\"{value}\"", self.one(&ATTRIBUTES)),
            10 => {
                let paths = ["irq", "none", "/dev", "/none", "power", "../ttyS0/irq", "device", "*/driver"];
                format!("TEST{op}\"{}\"", self.one(&paths))
            }
            11 => format!("SYMLINK{op}\"{}\"", self.one(&["l*", "l1", "", "?*", "*"])),
            12 => {
                let names = ["kernel.ostype", "kernel/ostype", "kernel.none", "net.ipv4.conf.lo.mtu"];
                let name = self.one(&names);
                format!("SYSCTL{{{name}}}{op}\"{}\"", self.one(&["Linux", "L*", "", "?*", "*"]))
            }
            13 => format!("TAG{op}\"{}\"", self.one(&["t1", "t*", "", "?*", "t1|t2", "|t2"])),
            14 => format!("DEVPATH{op}\"{}\"", self.one(&["*ttyS0", "/devices/*", "*", "none"])),
            _ => format!("RESULT{op}\"{value}\""),
        }
    }

    fn parent(&mut self) -> String {
        let (op, value) = (self.op(), self.value());
        match self.random.below(6) {
            0 => {
                let names = ["00:00", "00:00*", "ttyS0", "*", "none", ""];
                format!("KERNELS{op}\"{}\"", self.one(&names))
            }
            1 => format!("SUBSYSTEMS{op}\"{value}\""),
            2 => format!("DRIVERS{op}\"{value}\""),
            3 => {
                let name = self.one(&["irq", "id", "type", "driver", "subsystem", "none"]);
                let values = ["PNP*", "26", "4", "*", "", "?*", "port", "serial"];
                format!("ATTRS{{{name}}}{op}\"{}\"", self.one(&values))
            }
            4 => format!("TAGS{op}\"{}\"", self.one(&["t1", "t*", "?*", "none"])),
            _ => format!("ATTRS{{{}}}{op}\"*\"", self.one(&["id", "line"])),
        }
    }

    fn text(&mut self, start: &str) -> String {
        let mut text = start.to_owned();
        for _ in 0..self.random.below(4) {
            text += match self.random.below(5) {
                0 | 1 => self.one(&["1", "2", "-", "_"]),
                _ => self.one(&SUBSTITUTIONS),
            };
        }
        text
    }

    fn effect(&mut self) -> String {
        match self.random.below(15) {
            0..=3 => format!("ENV{{{}}}=\"{}\"", self.key(), self.text("v")),
            4 => format!("ENV{{{}}}+=\"{}\"", self.key(), self.text("v")),
            5 => format!("ENV{{{}}}=\"\"", self.key()),
            6 => format!("SYMLINK{}\"l{}\"", self.one(&["+=", "=", ":="]), self.text("")),
            7 => format!("RUN{}\"/bin/r {}\"", self.one(&["+=", "+=", "="]), self.text("v")),
            8 => {
                let program = self.one(&["/bin/echo ", "/bin/echo ", "/bin/false "]);
                format!("PROGRAM{}\"{program}{}\"", self.op(), self.one(&["a b  c", "%k x", "26", "v1"]))
            }
            9 => {
                let lines = ["A=imp", "B = x", "C", "D1=2", "A='q w'", "#A=1"];
                format!("IMPORT{{program}}{}\"/bin/echo {}\"", self.op(), self.one(&lines))
            }
            10 => format!("TAG+=\"{}\"", self.one(&["t1", "t2", "a.b", "%k", "x%n"])),
            11 => format!("RUN{{builtin}}+=\"kmod load {}\"", self.text("v")),
            12 => format!("IMPORT{{db}}{}\"{}\"", self.op(), self.one(&["A", "SUBSYSTEM", "none"])),
            13 => {
                let names = ["quiet", "root", "console", "ro", "none", "panic", "init"];
                format!("IMPORT{{cmdline}}{}\"{}\"", self.op(), self.one(&names))
            }
            _ => format!("OPTIONS=\"string_escape={}\"", self.one(&["none", "replace"])),
        }
    }
}
