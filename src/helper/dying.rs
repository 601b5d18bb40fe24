//! Processes of ours that were told to end, or have ended, and are not reaped yet. Nobody waits for them:
//! they are looked at from time to time.

use crate::model::Now;
use crate::sys::child::Child;
use std::time::Duration;

/// Between two looks. One that hangs in the kernel may do so for long.
const PAUSE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub struct Dying {
    children: Vec<Child>,
    looked_at: Now,
}

impl Dying {
    /// It is reaped when it has ended.
    pub fn push(&mut self, child: Child) {
        self.children.push(child);
    }

    /// Reaps those that have ended by now.
    pub fn reap(&mut self, now: Now) {
        self.looked_at = now;
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    /// When to look again.
    pub fn timeout(&self) -> Option<Now> {
        (!self.children.is_empty()).then_some(self.looked_at + PAUSE)
    }
}
