//! Attacks on the running daemon, in a cell on the real kernel: storms of events with kills and stops, stores that
//! are full, read-only or gone, what does not answer, clients and programs that misbehave. After each the daemon must know what a fresh one
//! knows ([`ground::Ground::judge`]).
//!
//! `make check` runs each attack once. `make attack SECONDS=600` goes on with attacks by chance, several at a time before
//! they are judged; `SEED=` repeats a run as far as the kernel's timing lets it be repeated.

#[path = "../support/cell.rs"]
mod cell;
#[path = "../support/fuse.rs"]
mod fuse;
mod ground;
#[path = "../support/loops.rs"]
mod loops;
mod others;
#[path = "../support/random.rs"]
mod random;
#[path = "../support/rtnl.rs"]
mod rtnl;
mod slow;
mod state;
mod stores;
mod storms;

use ground::Ground;
use std::path::Path;
use std::time::{Duration, Instant};

/// One way to harm the daemon; while it lasts, others are served ([`Ground::others_are_served`]), and when it returns, what it did to the surroundings is undone.
#[derive(Clone, Copy)]
pub struct Attack {
    name: &'static str,
    run: fn(&mut Ground),
}

fn attacks(only: &str) -> Vec<Attack> {
    let mut attacks = [storms::ATTACKS, stores::ATTACKS, others::ATTACKS, slow::ATTACKS].concat();
    attacks.retain(|attack| attack.name.contains(only));
    attacks
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().filter(|text| !text.is_empty()).map(|text| text.parse().expect(name))
}

/// A folder of our own, outside of what is attacked.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("mudev-attacks-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for rules and logs");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// Runs in a cell of its own, where the machine's rules do not matter.
fn in_cell(body: impl FnOnce() + Send) {
    if unsafe { libc::geteuid() } != 0 {
        panic!("attacks on the real kernel need root, for namespaces");
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            cell::enter(None).expect("enters a cell");
            for folder in ["/usr/lib/systemd/network", "/etc/systemd/network"] {
                if Path::new(folder).is_dir() {
                    cell::mount("none", folder, "tmpfs", 0, "").expect("hides the machine's links");
                }
            }
            body();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn after_every_attack_the_daemon_knows_what_a_fresh_one_knows() {
    let seconds = number("ATTACK_SECONDS");
    let seed = number("ATTACK_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let only = std::env::var("ATTACK").unwrap_or_default();
    println!("seed {seed}: repeat with make attack SEED={seed}");
    let folder = Folder::new();
    in_cell(|| {
        let mut ground = Ground::new(seed, if seconds.is_some() { 100 } else { 20 }, &folder.0);
        let mut attacks = attacks(&only);
        assert!(!attacks.is_empty(), "no attack has {only:?} in its name");
        let began = Instant::now();
        // Once each, in an order of its own; four before the daemon is judged.
        for place in (1..attacks.len()).rev() {
            let other = ground.random.below(place + 1);
            attacks.swap(place, other);
        }
        for round in attacks.chunks(4) {
            run(&mut ground, round, seed, began);
        }
        while seconds.is_some_and(|seconds| began.elapsed() < Duration::from_secs(seconds)) {
            let count = 1 + ground.random.below(3);
            let round: Vec<Attack> =
                (0..count).map(|_| attacks[ground.random.below(attacks.len())]).collect();
            run(&mut ground, &round, seed, began);
        }
        ground.stop();
    });
}

fn run(ground: &mut Ground, round: &[Attack], seed: u64, began: Instant) {
    let names: Vec<&str> = round.iter().map(|attack| attack.name).collect();
    let title = format!("{} (seed {seed})", names.join(", then "));
    println!("{:6.1} s: {title}", began.elapsed().as_secs_f32());
    for attack in round {
        (attack.run)(ground);
    }
    ground.judge(&title);
}
