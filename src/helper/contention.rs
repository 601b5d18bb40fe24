//! When the request helper rests because somebody else keeps the RTNL lock.
//!
//! A process that waits for RTNL while its owner runs on another processor does not sleep: the kernel lets it spin
//! until the owner lets go (kernel, kernel/locking/mutex.c, "optimistic spinning"). While somebody creates hundreds
//! of interfaces in a row, each change of ours spins for about as long as one creation takes, and costs five to ten
//! times the CPU that it needs. So a change that was dear is followed by a rest, in which the next changes gather;
//! they are cheap once the creator pauses. While they stay dear each rest is twice as long as the one before. All
//! rests in a second are bounded: a process that keeps the lock busy must not hold up events, and what waits for them
//! takes memory.

use crate::model::Now;
use std::time::Duration;

/// A change that needs more CPU than this has spun. Measured: 5 µs for a persistent address of a veth, 40 to 100 µs
/// with spinning.
const DEAR: Duration = Duration::from_micros(30);
/// The first rest: some creations of an interface.
const FIRST_REST: Duration = Duration::from_millis(1);
/// All rests in a [`WINDOW`]. So much longer may an event wait.
const MAX_RESTS: Duration = Duration::from_millis(20);
const WINDOW: Duration = Duration::from_secs(1);

/// Says when to rest, and how long.
#[derive(Debug)]
pub(super) struct Contention {
    next_rest: Duration,
    window_began: Now,
    /// In this window.
    rested: Duration,
}

impl Contention {
    /// Nothing was dear yet.
    pub(super) fn new() -> Contention {
        Contention { next_rest: FIRST_REST, window_began: Now::ZERO, rested: Duration::ZERO }
    }

    /// How long to rest after a change that used that much CPU and has ended now.
    pub(super) fn rest_after(&mut self, used: Duration, now: Now) -> Option<Duration> {
        if used <= DEAR {
            self.next_rest = FIRST_REST;
            return None;
        }
        if now.since(self.window_began) >= WINDOW {
            (self.window_began, self.rested) = (now, Duration::ZERO);
        }
        let rest = self.next_rest.min(MAX_RESTS.saturating_sub(self.rested));
        self.next_rest = self.next_rest.saturating_mul(2);
        self.rested += rest;
        Some(rest).filter(|rest| !rest.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: Duration = Duration::from_micros(5);
    const SPUN: Duration = Duration::from_micros(90);
    const NOW: Now = Now::from_secs(100);
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn only_what_was_dear_is_followed_by_a_rest_and_it_grows_while_all_is_dear() {
        let mut contention = Contention::new();
        let mut rest_after = |used| contention.rest_after(used, NOW);
        assert_eq!(rest_after(CHEAP), None);
        assert_eq!(rest_after(SPUN), Some(MS));
        assert_eq!(rest_after(SPUN), Some(2 * MS));
        assert_eq!(rest_after(CHEAP), None);
        assert_eq!(rest_after(SPUN), Some(MS));
    }

    #[test]
    fn rests_in_a_second_are_bounded_whatever_was_cheap_meanwhile() {
        let mut contention = Contention::new();
        let rests = |contention: &mut Contention, now: Now| {
            let used = [SPUN, SPUN, CHEAP].into_iter().cycle().take(3000);
            used.filter_map(|used| contention.rest_after(used, now)).sum::<Duration>()
        };
        assert_eq!(rests(&mut contention, NOW), MAX_RESTS);
        assert_eq!(rests(&mut contention, NOW + WINDOW / 2), Duration::ZERO);
        assert_eq!(rests(&mut contention, NOW + WINDOW), MAX_RESTS);
    }
}
