//! Points in time. Whoever needs one is passed it as an argument, so that tests can choose it.

use std::ops::{Add, AddAssign};
use std::time::Duration;

/// A point in time: CLOCK_MONOTONIC since boot. Points can be compared, and moved by a [`Duration`]; two of them
/// cannot be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Now(Duration);

impl Now {
    /// The moment of boot: before all others.
    pub const ZERO: Now = Now(Duration::ZERO);
    /// After all others: never.
    pub const MAX: Now = Now(Duration::MAX);

    /// So long after boot.
    pub const fn after_boot(time: Duration) -> Now {
        Now(time)
    }

    /// So many seconds after boot.
    #[cfg(test)]
    pub const fn from_secs(seconds: u64) -> Now {
        Now(Duration::from_secs(seconds))
    }

    /// So many nanoseconds after boot, as messages between processes carry it.
    pub const fn from_nanos(nanoseconds: u64) -> Now {
        Now(Duration::from_nanos(nanoseconds))
    }

    /// How long after boot.
    pub const fn since_boot(self) -> Duration {
        self.0
    }

    /// How long ago `earlier` was; nothing if it is not earlier.
    pub const fn since(self, earlier: Now) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The moment so much later.
impl Add<Duration> for Now {
    type Output = Now;

    fn add(self, later: Duration) -> Now {
        Now(self.0 + later)
    }
}

impl AddAssign<Duration> for Now {
    fn add_assign(&mut self, later: Duration) {
        *self = *self + later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_since_a_later_moment_is_none() {
        let (early, late) = (Now::from_secs(3), Now::from_secs(3) + Duration::from_millis(1));
        assert!(early < late && late < Now::MAX);
        assert_eq!(late.since(early), Duration::from_millis(1));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(Now::after_boot(late.since_boot()), late);
    }
}
