//! Processes of ours that were told to end, or have ended, and are not reaped yet. Nobody waits for them:
//! they are looked at from time to time.

use crate::model::Now;
use crate::sys::child::{Child, Ended};
use bstr::{BStr, BString};
use std::io;
use std::time::Duration;

/// Between two looks. One that hangs in the kernel may do so for long.
const PAUSE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub struct Dying {
    /// And the device that each has worked for, if one must be remembered.
    children: Vec<(Child, BString)>,
    looked_at: Now,
}

impl Dying {
    /// It is reaped when it has ended.
    pub fn push(&mut self, child: Child) {
        self.push_for(BString::default(), child);
    }

    /// The same for one that has worked for a device.
    pub fn push_for(&mut self, device: BString, child: Child) {
        self.children.push((child, device));
    }

    /// Whether one is left that has worked for this device.
    pub fn has(&self, device: &BStr) -> bool {
        !device.is_empty() && self.children.iter().any(|(_, its)| its == device)
    }

    /// How many are left.
    pub fn count(&self) -> usize {
        self.children.len()
    }

    /// Reaps those that have ended by now.
    pub fn reap(&mut self, now: Now) {
        self.looked_at = now;
        self.children.retain_mut(|(child, device)| match child.try_wait() {
            Ok(Some(Ended::NotExecuted(errno))) if device.is_empty() => {
                log::error!("A helper cannot be executed: {}", io::Error::from_raw_os_error(errno));
                false
            }
            ended => matches!(ended, Ok(None)),
        });
    }

    /// When to look again.
    pub fn timeout(&self) -> Option<Now> {
        (!self.children.is_empty()).then_some(self.looked_at + PAUSE)
    }
}
