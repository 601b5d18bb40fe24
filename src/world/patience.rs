//! Whether a call waited: for hardware, a lock, another process.
//!
//! Must stay true: what counts is the call's own wait. Not that other processes were given the processor (on a
//! busy machine anything may seem to take long), and not that a page had to be read in for it.

use crate::sys::clock::{ThreadUse, thread_use};
use std::time::{Duration, Instant};

/// A call that waits longer than this is not to be made on the loop.
pub const LONG: Duration = Duration::from_millis(5);

/// Makes a call, and tells whether it took [`LONG`] because it waited or worked itself. Costs two system
/// calls more.
pub fn watch<T>(call: impl FnOnce() -> T) -> (T, bool) {
    let before = thread_use();
    let (value, long) = time(call);
    (value, long && waited(before, thread_use()))
}

/// Makes a call, and tells whether it took [`LONG`], for whatever reason.
pub fn time<T>(call: impl FnOnce() -> T) -> (T, bool) {
    let start = Instant::now();
    let value = call();
    (value, start.elapsed() > LONG)
}

/// Whether the thread gave its processor away of its own accord, or used it for long. With a page that
/// had to be read in nobody can tell.
fn waited(before: ThreadUse, after: ThreadUse) -> bool {
    let slept = after.waits > before.waits && after.major_faults == before.major_faults;
    slept || after.cpu.saturating_sub(before.cpu) > LONG
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_that_waited_or_worked_count() {
        let used = |waits, major_faults, millis| ThreadUse {
            waits,
            major_faults,
            cpu: Duration::from_millis(millis),
        };
        let before = used(3, 1, 100);
        assert!(!waited(before, used(3, 1, 101)), "another process was given the processor");
        assert!(waited(before, used(4, 1, 100)), "it slept");
        assert!(!waited(before, used(4, 2, 100)), "a page was read in");
        assert!(waited(before, used(3, 1, 106)), "it was busy itself");
    }

    #[test]
    fn a_sleep_is_a_wait() {
        assert_eq!(watch(|| std::thread::sleep(2 * LONG)), ((), true));
        assert_eq!(watch(|| 1), (1, false));
        assert_eq!(time(|| std::thread::sleep(2 * LONG)), ((), true));
    }
}
