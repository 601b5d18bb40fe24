//! Attributes that are slow to read: once known they are read by helpers (design.md section 4).
//!
//! Must stay true: what counts is that the read waited, not that we were not running. On a busy machine
//! any read may seem to take long, and a helper per attribute would be the slowest of all.

use crate::sys::clock::{ThreadUse, thread_use};
use bstr::{BStr, BString};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// An attribute that once took longer than this is from then on read by a helper.
const SLOW: Duration = Duration::from_millis(5);

/// Attributes remembered at most.
const MAX: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub struct SlowAttributes {
    /// (subsystem, attribute)
    known: HashSet<(BString, BString)>,
    /// What the thread had used when this turn first read an attribute.
    before: Option<ThreadUse>,
}

impl SlowAttributes {
    /// Whether this one took long before.
    pub fn contains(&self, subsystem: &BStr, name: &BStr) -> bool {
        !self.known.is_empty() && self.known.contains(&(subsystem.to_owned(), name.to_owned()))
    }

    /// The loop has waited: what was used before counts no more. Only reads wait within a turn, so one look
    /// at the clock serves all of them.
    pub fn begin_turn(&mut self) {
        self.before = None;
    }

    /// Reads an attribute, and remembers it if that was slow.
    pub fn measure<T>(&mut self, subsystem: &BStr, name: &BStr, read: impl FnOnce() -> T) -> T {
        let before = *self.before.get_or_insert_with(thread_use);
        let start = Instant::now();
        let value = read();
        let took = start.elapsed();
        if took > SLOW && self.known.len() < MAX {
            let after = thread_use();
            self.before = Some(after);
            if waited(before, after) {
                log::info!("Attribute {name} of {subsystem} took {took:?}: a helper reads it from now on");
                self.known.insert((subsystem.to_owned(), name.to_owned()));
            }
        }
        value
    }
}

/// Whether the thread gave its processor away of its own accord, or used it for long.
fn waited(before: ThreadUse, after: ThreadUse) -> bool {
    after.waits > before.waits || after.cpu.saturating_sub(before.cpu) > SLOW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reads_that_waited_or_worked_count() {
        let used = |waits, millis| ThreadUse { waits, cpu: Duration::from_millis(millis) };
        assert!(!waited(used(3, 100), used(3, 101)), "another process was given the processor");
        assert!(waited(used(3, 100), used(4, 100)), "it slept");
        assert!(waited(used(3, 100), used(3, 106)), "it was busy itself");
    }

    #[test]
    fn a_read_that_sleeps_is_remembered_by_subsystem_and_name() {
        let mut slow = SlowAttributes::default();
        let (block, name) = (BStr::new("block"), BStr::new("size"));
        assert_eq!(slow.measure(block, name, || 1), 1);
        assert!(!slow.contains(block, name));
        slow.measure(block, name, || std::thread::sleep(2 * SLOW));
        assert!(slow.contains(block, name) && !slow.contains(BStr::new("scsi"), name));
    }
}
