//! Everything that reads bytes from outside (fuzz/targets.rs): each target runs over its stored corpus
//! (fuzz/TARGET/) and over mutations of it from a fixed seed. `make fuzz` runs the same targets guided by coverage
//! (fuzz/run.sh), or, where that cannot be built, in here for FUZZ_SECONDS each with a new seed, which is printed. A find
//! is stored in the corpus and stays.

#[path = "support/random.rs"]
mod random;
#[path = "fuzz/targets.rs"]
mod targets;

use bstr::ByteSlice;
use random::Random;
use std::path::Path;
use std::time::{Duration, Instant};

/// Changes a few places: flips, inserts, deletes, repeats, cuts, and borrows from another seed.
fn mutate(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    const TOKENS: [&[u8]; 16] = [
        b"\0",
        b"\n",
        b"=",
        b"\"",
        b"\\",
        b"$",
        b"%",
        b"{",
        b"}",
        b"[",
        b"]",
        b"|",
        b"*",
        b"\xff",
        b"\xff\xff\xff\xff",
        b"/../",
    ];
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..1 + random.below(6) {
        let at = random.below(bytes.len() + 1);
        match random.below(6) {
            0 if at < bytes.len() => bytes[at] = random.next() as u8,
            1 => drop(bytes.splice(at..at, TOKENS[random.below(TOKENS.len())].iter().copied())),
            2 => drop(bytes.drain(at..(at + random.below(8)).min(bytes.len()))),
            3 => {
                let end = (at + random.below(64)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, piece));
            }
            4 => bytes.truncate(at),
            _ => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len() + 1);
                let end = (from + random.below(64)).min(other.len());
                drop(bytes.splice(at..at, other[from..end].iter().copied()));
            }
        }
    }
    bytes
}

/// Runs a target over its corpus and over mutations of it.
fn sweep(name: &str) {
    let target = targets::TARGETS.iter().find(|target| target.0 == name).expect("a target").1;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("test/fuzz").join(name);
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).expect("the corpus").map(|e| e.expect("readable").path()).collect();
    files.sort();
    let seeds: Vec<Vec<u8>> = files.iter().map(|f| std::fs::read(f).expect("readable")).collect();
    assert!(!seeds.is_empty(), "no corpus in {}", folder.display());
    let try_one = |bytes: &[u8]| {
        if let Err(panic) = std::panic::catch_unwind(|| target(bytes)) {
            println!("{name}: fails on {:?}", bytes.as_bstr());
            std::panic::resume_unwind(panic);
        }
    };
    for seed in &seeds {
        try_one(seed);
        // Every cut of the smaller ones.
        for end in 0..seed.len().min(512) {
            try_one(&seed[..end]);
        }
    }
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|s| s.parse::<u64>().ok());
    let seed = match seconds {
        Some(_) => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |d| d.as_nanos() as u64),
        None => 4711,
    };
    println!("{name}: {} seeds, random seed {seed}", seeds.len());
    let mut random = Random(seed);
    let end = seconds.map(|s| Instant::now() + Duration::from_secs(s));
    let mut runs = 0;
    while end.map_or(runs < 2000, |end| Instant::now() < end) {
        try_one(&mutate(&mut random, &seeds));
        runs += 1;
    }
}

#[test]
fn rules_compile_or_complain() {
    sweep("rules");
}

#[test]
fn rules_have_one_outcome_however_they_are_evaluated() {
    sweep("eval");
}

#[test]
fn patterns_match_what_fnmatch_matches() {
    sweep("pattern");
}

#[test]
fn templates_without_substitutions_keep_their_text() {
    sweep("subst");
}

#[test]
fn uevents_are_checked() {
    sweep("uevent");
}

#[test]
fn records_come_back_as_they_were_written() {
    sweep("record");
}

#[test]
fn properties_are_what_was_set_last() {
    sweep("properties");
}

#[test]
fn announcements_and_control_datagrams_are_checked() {
    sweep("announcement");
    sweep("control");
}

#[test]
fn rtnetlink_messages_are_checked() {
    sweep("netlink");
}

/// A target without a test, or a folder without a target, would be forgotten.
#[test]
fn every_target_has_its_corpus_and_its_test() {
    let source = include_str!("fuzz.rs");
    for (name, _) in targets::TARGETS {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("test/fuzz").join(name).is_dir(), "{name}");
        assert!(source.contains(&format!("sweep(\"{name}\")")), "{name}");
    }
}
