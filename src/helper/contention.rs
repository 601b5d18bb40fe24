//! When the request helper rests because somebody else keeps the RTNL lock.
//!
//! A process that waits for RTNL while its owner runs on another processor does not sleep: the kernel lets it spin
//! until the owner lets go (kernel, kernel/locking/mutex.c, "optimistic spinning"). While somebody creates hundreds
//! of interfaces in a row, each change of ours spins for about as long as one creation takes, and costs five to ten
//! times the CPU that it needs. So a change that was dear is followed by a rest, in which the next changes gather;
//! they are cheap once the creator pauses. Rests in a row are bounded: a process that keeps the lock busy for ever
//! must not hold up events.

use std::time::Duration;

/// A change that needs more CPU than this has spun. Measured: 5 µs for a persistent address of a veth, 40 to 100 µs
/// with spinning.
const DEAR: Duration = Duration::from_micros(30);
/// Some creations of an interface.
const REST: Duration = Duration::from_millis(1);
/// All rests in a row. So much longer may an event wait.
const MAX_RESTS: u32 = 20;

/// Counts rests in a row.
#[derive(Debug, Default)]
pub(super) struct Contention {
    rests: u32,
}

impl Contention {
    /// How long to rest after a change that used that much CPU.
    pub(super) fn rest_after(&mut self, used: Duration) -> Option<Duration> {
        if used <= DEAR {
            self.rests = 0;
            return None;
        }
        self.rests = self.rests.saturating_add(1);
        (self.rests <= MAX_RESTS).then_some(REST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: Duration = Duration::from_micros(5);
    const SPUN: Duration = Duration::from_micros(90);

    #[test]
    fn only_what_was_dear_is_followed_by_a_rest() {
        let mut contention = Contention::default();
        assert_eq!(contention.rest_after(CHEAP), None);
        assert_eq!(contention.rest_after(SPUN), Some(REST));
        assert_eq!(contention.rest_after(CHEAP), None);
    }

    #[test]
    fn rests_in_a_row_are_bounded_until_the_lock_was_free_once() {
        let mut contention = Contention::default();
        let in_a_row = |contention: &mut Contention| {
            (0..1000).filter_map(|_| contention.rest_after(SPUN)).sum::<Duration>()
        };
        assert_eq!(in_a_row(&mut contention), REST * MAX_RESTS);
        assert_eq!(in_a_row(&mut contention), Duration::ZERO);
        contention.rest_after(CHEAP);
        assert_eq!(in_a_row(&mut contention), REST * MAX_RESTS);
    }
}
