//! One target of ../targets.rs, by name in FUZZ_TARGET, under libFuzzer.
#![no_main]

#[path = "../targets.rs"]
mod targets;

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

fuzz_target!(|bytes: &[u8]| {
    static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let found = targets::TARGETS.iter().find(|target| target.0 == name);
        found.unwrap_or_else(|| panic!("FUZZ_TARGET={name:?} names no target")).1
    });
    target(bytes);
});
