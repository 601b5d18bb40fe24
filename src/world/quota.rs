//! How many lines of the log strangers may cause: those whose messages the daemon refuses get a few lines in a time,
//! and one more line that says how many were left out.
//!
//! Such a line has one of the targets in here: `log::warn!(target: quota::EVENTS, ...)`. All others are said
//! whenever there is something to say.
//!
//! Must stay true: each kind has its own count, so that one does not hide another; the number of lines left out is
//! said once, when their time is over or the log ends.

use crate::model::Now;
use std::time::Duration;

/// Lines of one kind in [`PERIOD`].
const MAX_LINES: u32 = 10;

/// The time that starts with the first line of a kind.
const PERIOD: Duration = Duration::from_secs(10);

/// Events that the kernel has not sent, or that are none.
pub const EVENTS: &str = "refused events";
/// Clients of control and status that are turned away, and messages that have no effect.
pub const CLIENTS: &str = "refused clients";
/// Messages of rtnetlink that are not understood.
pub const LINKS: &str = "messages of links";

const KINDS: [&str; 3] = [EVENTS, CLIENTS, LINKS];

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// None: no line yet, or its time is over.
    until: Option<Now>,
    said: u32,
    left_out: u64,
}

impl Count {
    /// Ends the time, and says how many lines were left out.
    fn end(&mut self, kind: &str) -> Option<String> {
        let Count { left_out, .. } = std::mem::take(self);
        let lines = if left_out == 1 { "line" } else { "lines" };
        (left_out > 0).then(|| format!("{left_out} more {lines} about {kind} left out"))
    }
}

/// The lines of each kind that were said.
#[derive(Debug, Default)]
pub struct Quota([Count; KINDS.len()]);

impl Quota {
    /// Whether a line of this target is said now; otherwise it is counted.
    pub fn admits(&mut self, target: &str, now: Now) -> bool {
        let Some(at) = KINDS.iter().position(|&kind| kind == target) else { return true };
        let count = &mut self.0[at];
        if count.left_out == 0 && count.until.is_some_and(|until| until <= now) {
            *count = Count::default();
        }
        count.until.get_or_insert(now + PERIOD);
        let is_said = count.said < MAX_LINES;
        match is_said {
            true => count.said += 1,
            false => count.left_out += 1,
        }
        is_said
    }

    /// When [`Quota::take_due`] has something to say.
    pub fn timeout(&self) -> Option<Now> {
        self.0.iter().filter(|count| count.left_out > 0).filter_map(|count| count.until).min()
    }

    /// How many lines were left out, of the kinds whose time is over.
    pub fn take_due(&mut self, now: Now) -> Vec<String> {
        self.take(|count| count.until.is_some_and(|until| until <= now))
    }

    /// The same, of all.
    pub fn take_all(&mut self) -> Vec<String> {
        self.take(|_| true)
    }

    fn take(&mut self, is_over: impl Fn(&Count) -> bool) -> Vec<String> {
        let counts = KINDS.iter().zip(&mut self.0).filter(|(_, count)| count.left_out > 0 && is_over(count));
        counts.filter_map(|(kind, count)| count.end(kind)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(quota: &mut Quota, target: &str, lines: u32, second: u64) -> usize {
        (0..lines).filter(|_| quota.admits(target, Now::from_secs(second))).count()
    }

    #[test]
    fn a_flood_of_one_kind_is_counted_and_summed_up_and_hides_no_other() {
        let mut quota = Quota::default();
        assert_eq!(said(&mut quota, EVENTS, 1000, 5), 10);
        assert_eq!(said(&mut quota, CLIENTS, 2, 5), 2);
        assert_eq!(said(&mut quota, "mudev::daemon", 1000, 5), 1000, "whoever else speaks is heard");
        assert_eq!(quota.timeout(), Some(Now::from_secs(15)));
        assert!(quota.take_due(Now::from_secs(14)).is_empty());
        // The loop may come late: what is left out is still summed up before the next line is said.
        assert_eq!(said(&mut quota, EVENTS, 10, 16), 0);
        let due = quota.take_due(Now::from_secs(16));
        assert_eq!(due, ["1000 more lines about refused events left out"]);
        assert_eq!((quota.timeout(), said(&mut quota, EVENTS, 11, 17)), (None, 10));
        assert_eq!(quota.take_all(), ["1 more line about refused events left out"]);
        assert!(quota.take_all().is_empty());
    }

    #[test]
    fn a_few_lines_now_and_then_are_all_said() {
        let mut quota = Quota::default();
        let said: usize = (0..20).map(|n| said(&mut quota, LINKS, 10, n * 10)).sum();
        assert_eq!((said, quota.timeout()), (200, None));
    }
}
