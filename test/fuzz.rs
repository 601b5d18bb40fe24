//! Everything that reads bytes from outside, as functions over bytes: each runs over its stored corpus
//! (test/fuzz/TARGET/) and over mutations of it from a fixed seed. `make fuzz` goes on for FUZZ_SECONDS per
//! target with a new seed, which is printed; a find is stored in the corpus and stays.

#[path = "support/random.rs"]
mod random;

use bstr::ByteSlice;
use mudev::model::{Uevent, announcement, control, record};
use mudev::rules::{compile, pattern, subst};
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

/// Runs `target` over its corpus and over mutations of it.
fn sweep(name: &str, target: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
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

struct NoAccounts;

impl compile::Accounts for NoAccounts {
    fn user(&self, name: &[u8]) -> Option<u32> {
        (name == b"root").then_some(0)
    }

    fn group(&self, name: &[u8]) -> Option<u32> {
        (name == b"root").then_some(0)
    }
}

#[test]
fn rules_compile_or_complain() {
    sweep("rules", |bytes| {
        let file = compile::SourceFile { path: "fuzz.rules".into(), content: bytes.to_vec() };
        let options = compile::CompileOptions {
            resolve_names: mudev::model::ResolveNames::Early,
            accounts: &NoAccounts,
        };
        let compiled = compile::compile(&[file], &options);
        assert!(compiled.rules.lines.len() <= bytes.len());
        for diagnostic in &compiled.diagnostics {
            let _ = format!("{diagnostic:?}");
        }
    });
}

/// Patterns against the C library's fnmatch(3), the reference of the language.
#[test]
fn patterns_match_what_fnmatch_matches() {
    sweep("pattern", |bytes| {
        let (pattern_text, subject) = bytes.split_once_str(b"\0").unwrap_or((bytes, b""));
        // Longer ones make fnmatch itself slow; a NUL or a `|` means something else to one of the two.
        if bytes.len() > 48 || subject.contains(&0) {
            return;
        }
        let ours = pattern::Pattern::compile(pattern_text, false).matches(subject);
        let subject = std::ffi::CString::new(subject).expect("no NUL");
        let theirs = pattern_text.split(|&b| b == b'|').any(|alternative| {
            let alternative = std::ffi::CString::new(alternative).expect("no NUL");
            unsafe { libc::fnmatch(alternative.as_ptr(), subject.as_ptr(), 0) == 0 }
        });
        let plain = pattern_text.find_byteset(b"*?[\\").is_none();
        assert!(ours == theirs || plain, "ours {ours}, fnmatch {theirs}");
        if plain {
            assert_eq!(ours, pattern_text.split(|&b| b == b'|').any(|a| a == subject.as_bytes()));
        }
    });
}

#[test]
fn templates_without_substitutions_keep_their_text() {
    sweep("subst", |bytes| {
        let (template, _) = subst::Template::parse(bytes);
        if bytes.find_byteset(b"$%").is_none() {
            assert_eq!(template.as_literal(), Some(bytes.as_bstr()));
        }
    });
}

#[test]
fn uevents_are_checked() {
    sweep("uevent", |bytes| {
        if let Ok(uevent) = Uevent::parse_kernel(bytes) {
            assert!(uevent.seqnum.0 > 0 && uevent.devpath.starts_with(b"/"));
            assert!(!uevent.devpath.contains_str("/../"));
        }
    });
}

#[test]
fn records_come_back_as_they_were_written() {
    sweep("record", |bytes| {
        let first = record::Record::parse(bytes);
        let again = record::Record::parse(&first.render());
        assert_eq!(first.render().as_bstr(), again.render().as_bstr());
    });
}

#[test]
fn announcements_and_control_datagrams_are_checked() {
    sweep("announcement", |bytes| drop(announcement::parse(bytes)));
    sweep("control", |bytes| {
        let _ = control::Datagram::parse(bytes);
        let mut connection = control::Connection::new();
        let _ = connection.on_datagram(bytes, Some(0));
        let _ = connection.on_datagram(bytes, None);
    });
}

#[test]
fn rtnetlink_messages_are_checked() {
    use mudev::links::{decode, wire};
    sweep("netlink", |bytes| {
        for frame in wire::frames(bytes).flatten() {
            let _ = decode::link(frame.payload);
            let _ = decode::reply(&frame);
        }
        let _ = decode::link(bytes);
    });
}
