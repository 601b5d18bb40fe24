//! The time of one turn: how long somebody works before others come.

use crate::model::Now;
use crate::sys::clock::monotonic;
use std::time::Duration;

/// How long jobs are worked on in one turn, before sources are looked at again; and how long the rules of one
/// event, or an effect of many parts, go on before they pause.
pub const MAX_WORK: Duration = Duration::from_millis(1);

/// Symlinks and tags after which the clock is looked at: about half a millisecond of system calls.
pub(super) const PORTION: usize = 32;

/// The time that whoever works on something has before others come.
#[derive(Debug)]
pub struct Turn {
    until: Now,
    /// Parts until the next look at the clock.
    left: usize,
    pub(super) portion: usize,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn { until: Now::ZERO, left: PORTION, portion: PORTION }
    }
}

impl Turn {
    /// From here on there is time, until then.
    pub fn begin(&mut self, now: Now) {
        self.until = now + MAX_WORK;
        self.left = self.portion;
    }

    /// A turn that is over after this many parts.
    #[cfg(test)]
    pub fn begin_short(&mut self, parts: usize) {
        *self = Turn { until: Now::ZERO, left: parts, portion: parts };
    }

    /// Looks at the clock.
    pub fn has_time(&self) -> bool {
        monotonic() < self.until
    }

    /// Parts were done. Whether there is time for more; the clock is looked at once for each portion.
    pub fn goes_on(&mut self, done: usize) -> bool {
        self.left = self.left.saturating_sub(done);
        if self.left > 0 {
            return true;
        }
        self.left = self.portion;
        self.has_time()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_looked_at_once_for_each_portion() {
        let mut turn = Turn::default();
        // The time is over, but nobody looks.
        turn.begin(Now::ZERO);
        assert!((1..PORTION).all(|_| turn.goes_on(1)) && !turn.goes_on(1));
        turn.begin(monotonic() + Duration::from_secs(60));
        assert!((0..10 * PORTION).all(|_| turn.goes_on(1)));
    }
}
