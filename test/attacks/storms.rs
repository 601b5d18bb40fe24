//! Storms of devices that come, change and go, while the daemon is killed, stopped or left alone.

use crate::Attack;
use crate::ground::{Ground, text, write_uevent};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[
    Attack { name: "a storm of interfaces", run: interfaces },
    Attack { name: "kills in a storm", run: kills },
    Attack { name: "stops in a storm", run: stops },
    Attack { name: "more than the sockets hold while it is stopped", run: overruns },
    Attack { name: "disks that come and go", run: disks },
    Attack { name: "kills while disks come and go", run: kills_and_disks },
    Attack { name: "names that move on", run: renames },
];

/// `ip` commands that make and unmake interfaces; about half of what they make stays.
fn commands(ground: &mut Ground, count: usize) -> String {
    let mut text = String::new();
    for _ in 0..count {
        let kind = ['a', 'm', 'p', 'r'][ground.random.below(4)];
        let name = ground.name(kind);
        match ground.random.below(6) {
            0 => text += &format!("link add {name} type bridge\n"),
            1 => {
                let port = ground.name('a');
                text +=
                    &format!("link add {name} type bridge\nlink add {port} type veth peer name {port}x\n");
                text += &format!("link set {port} master {name}\n");
            }
            _ => text += &format!("link add {name} type veth peer name {name}x\n"),
        }
        if ground.chance(1, 3) {
            let new = ground.name(kind);
            text += &format!("link set {name} name {new}\n");
            text += &after(ground, &new);
        } else {
            text += &after(ground, &name);
        }
    }
    text
}

/// What happens to an interface once it is there.
fn after(ground: &mut Ground, name: &str) -> String {
    match ground.random.below(6) {
        0 => format!("link set {name} up\nlink set {name} mtu {}\n", 1200 + ground.random.below(200)),
        1 => format!("link set {name} alias x{}\n", ground.random.below(9)),
        2 => format!("link property add dev {name} altname {name}-alt\n"),
        _ if ground.chance(2, 3) => format!("link del {name}\n"),
        _ => String::new(),
    }
}

/// `ip` at work on many commands; what one of them meets that is gone is no matter.
pub struct Batch(Child);

impl Batch {
    pub fn start(commands: &str) -> Batch {
        let mut child = Command::new("ip")
            .args(["-force", "-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("runs ip");
        let mut stdin = child.stdin.take().expect("piped");
        let commands = commands.to_owned();
        std::thread::spawn(move || stdin.write_all(commands.as_bytes()));
        Batch(child)
    }

    pub fn is_at_work(&mut self) -> bool {
        self.0.try_wait().expect("our child").is_none()
    }

    pub fn finish(mut self) {
        self.0.wait().expect("our child");
    }
}

fn names() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/net").expect("a list of interfaces").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// MTU and alias change without an event, so an event is made for who has them in its record.
fn tell_what_changed() {
    for name in names().iter().filter(|name| name.starts_with('m')) {
        write_uevent(name, "change");
    }
}

/// What storms have left is bounded.
fn clear(ground: &mut Ground) {
    let names: Vec<String> = names().into_iter().filter(|name| name != "lo").collect();
    if names.len() > 120 {
        let doomed = names.iter().filter(|_| ground.chance(2, 3));
        let commands: String = doomed.map(|name| format!("link del {name}\n")).collect();
        Batch::start(&commands).finish();
    }
}

fn interfaces(ground: &mut Ground) {
    let batch = begin(ground, 150);
    end(ground, batch);
}

/// A storm that goes on by itself: of so many commands in a long run.
pub fn begin(ground: &mut Ground, full: usize) -> Batch {
    let count = ground.of(full);
    Batch::start(&commands(ground, count))
}

/// The end of a storm: all is done, and of what is there not too much.
pub fn end(ground: &mut Ground, batch: Batch) {
    batch.finish();
    tell_what_changed();
    clear(ground);
}

/// Some time of a storm; nothing is waited for, the moment is the point.
pub fn moment(ground: &mut Ground, most: Duration) {
    let most = most.as_micros() as usize;
    std::thread::sleep(Duration::from_micros(ground.random.below(most) as u64));
}

fn kills(ground: &mut Ground) {
    let mut batch = begin(ground, 150);
    let mut kills = 0;
    while batch.is_at_work() || kills < 3 {
        moment(ground, Duration::from_millis(40));
        ground.kill();
        moment(ground, Duration::from_millis(10));
        ground.start();
        kills += 1;
        if kills == 6 {
            break;
        }
    }
    end(ground, batch);
}

fn stops(ground: &mut Ground) {
    let mut batch = begin(ground, 150);
    while batch.is_at_work() {
        ground.signal(libc::SIGSTOP);
        moment(ground, Duration::from_millis(60));
        ground.signal(libc::SIGCONT);
        moment(ground, Duration::from_millis(20));
    }
    end(ground, batch);
}

/// The buffer of the socket for links holds some ten thousand messages.
fn overruns(ground: &mut Ground) {
    let count = ground.of(60);
    let pairs: Vec<String> = (0..count).map(|_| ground.name('m')).collect();
    let made: String =
        pairs.iter().map(|name| format!("link add {name} type veth peer name {name}x\n")).collect();
    Batch::start(&made).finish();
    ground.signal(libc::SIGSTOP);
    let mut commands = String::new();
    for round in 0..ground.of(700) {
        for name in &pairs {
            commands += &format!("link set {name} mtu {}\nlink set {name} alias {round}\n", 1300 + round);
        }
    }
    Batch::start(&commands).finish();
    Batch::start(&format!("link del {}\n", pairs[0])).finish();
    ground.signal(libc::SIGCONT);
    tell_what_changed();
    let overruns = ground.settle().link_overruns;
    println!("         the socket of links was overrun {overruns} times");
    let gone: String = pairs.iter().skip(5).map(|name| format!("link del {name}\n")).collect();
    Batch::start(&gone).finish();
}

/// Adds disks, gives them content and takes it away again; `disturb` comes after each step.
fn work_on_disks(ground: &mut Ground, steps: usize, disturb: fn(&mut Ground)) {
    for _ in 0..steps {
        match ground.random.below(5) {
            0 | 1 if ground.loops.len() < 6 => drop(ground.add_loop()),
            2 if !ground.loops.is_empty() => {
                let disk = ground.random.below(ground.loops.len());
                let bytes = (1 + ground.random.below(8) as u64) << 20;
                let _ = ground.loops[disk].attach(bytes);
            }
            3 if !ground.loops.is_empty() => {
                let disk = ground.random.below(ground.loops.len());
                ground.loops[disk].detach();
            }
            _ if !ground.loops.is_empty() => {
                let disk = ground.random.below(ground.loops.len());
                drop(ground.loops.remove(disk));
            }
            _ => {}
        }
        disturb(ground);
    }
}

/// A compressed disk in memory comes, is told a size, and goes.
fn zram(ground: &mut Ground) {
    let control = Path::new("/sys/class/zram-control");
    let number = text(&control.join("hot_add"));
    let number = number.trim();
    if number.is_empty() {
        return println!("no zram device: the kernel has none to add");
    }
    ground.disks.insert(&format!("zram{number}"));
    let _ = std::fs::write(format!("/sys/class/block/zram{number}/disksize"), "1M");
    // A helper may have it open.
    ground.eventually("the zram device goes", |_| {
        std::fs::write(control.join("hot_remove"), number).ok().map(drop)
    });
}

fn disks(ground: &mut Ground) {
    work_on_disks(ground, 12, |_| {});
    zram(ground);
}

fn kills_and_disks(ground: &mut Ground) {
    work_on_disks(ground, 8, |ground| {
        if ground.chance(1, 3) {
            moment(ground, Duration::from_millis(15));
            ground.kill();
            ground.start();
        }
    });
}

fn renames(ground: &mut Ground) {
    let count = ground.of(20).max(3);
    let pairs: Vec<String> = (0..count).map(|_| ground.name('a')).collect();
    let made: String =
        pairs.iter().map(|name| format!("link add {name} type veth peer name {name}x\n")).collect();
    Batch::start(&made).finish();
    let mut commands = String::new();
    for _ in 0..4 {
        // Names go round: each gets that of the next.
        commands += &format!("link set {} name swap\n", pairs[0]);
        for pair in pairs.windows(2) {
            commands += &format!("link set {} name {}\n", pair[1], pair[0]);
        }
        commands += &format!("link set swap name {}\n", pairs[pairs.len() - 1]);
    }
    Batch::start(&commands).finish();
    let gone: String = pairs.iter().skip(3).map(|name| format!("link del {name}\n")).collect();
    Batch::start(&gone).finish();
}
