//! Helpers that were killed in their work. Most die at once; one that hangs in the kernel, for a dead disk, may
//! do so for ever, and keeps its device from costing a second one.
//!
//! Must stay true: each is said once when it hangs and once when it has ended; their number is bounded by
//! who asks [`Hanging::room`] before another helper gets work.

use super::subject::Subject;
use crate::model::Now;
use crate::sys::child::Child;
use bstr::BStr;
use std::time::Duration;

/// A killed helper that has not ended after this time hangs.
const GRACE: Duration = Duration::from_millis(500);

/// Between the first looks at one, and between the later ones.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// Those that work for disks and do not end, at most: more than a machine has controllers.
const MAX_FOR_DISKS: usize = 24;

/// Those that work for others, at most.
const MAX_FOR_OTHERS: usize = 8;

#[derive(Debug)]
struct Killed {
    child: Child,
    subject: Subject,
    /// When it was given its work, and when it was killed.
    since: Now,
    killed: Now,
    is_said: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Hanging {
    killed: Vec<Killed>,
    looked_at: Now,
    /// That there are too many was said: for others, for disks.
    is_full_said: [bool; 2],
}

/// One helper that has been at its work for long, for `status`.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SlowHelper {
    pub pid: i32,
    /// What it does, and to whom.
    pub work: String,
    /// When it began, in seconds of CLOCK_MONOTONIC.
    pub since: f64,
    /// It was told to end, and hangs in the kernel.
    pub hangs: bool,
}

impl SlowHelper {
    pub(super) fn new(child: &Child, subject: &Subject, since: Now, hangs: bool) -> SlowHelper {
        SlowHelper { pid: child.pid(), work: subject.to_string(), since: since.as_secs_f64(), hangs }
    }
}

impl Hanging {
    /// This helper was killed at its work, which it has had since then.
    pub fn push(&mut self, child: Child, subject: Subject, since: Now, now: Now) {
        self.looked_at = now;
        self.killed.push(Killed { child, subject, since, killed: now, is_said: false });
    }

    /// Forgets those that have ended, says who hangs; if it is time to look.
    pub fn look(&mut self, now: Now) {
        if self.timeout().is_none_or(|at| at > now) {
            return;
        }
        self.looked_at = now;
        self.killed.retain_mut(|one| {
            let pid = one.child.pid();
            let hangs = matches!(one.child.try_wait(), Ok(None));
            match hangs {
                true if !one.is_said && one.killed + GRACE <= now => {
                    one.is_said = true;
                    log::error!(
                        "A helper (process {pid}) hangs in the kernel ({}): until it ends nothing else is tried there",
                        one.subject
                    );
                }
                false if one.is_said => {
                    let seconds = (now - one.since).as_secs();
                    log::warn!("The helper that hung (process {pid}, {}) has ended after {seconds} s", one.subject);
                }
                _ => {}
            }
            hangs
        });
        for for_disks in [false, true] {
            self.is_full_said[usize::from(for_disks)] &= self.room(for_disks) == 0;
        }
    }

    /// When to look again.
    pub fn timeout(&self) -> Option<Now> {
        let youngest = self.killed.iter().map(|one| one.killed).max()?;
        let pause = self.looked_at.saturating_sub(youngest).clamp(FIRST_PAUSE, LAST_PAUSE);
        Some(self.looked_at + pause)
    }

    /// Whether one that was killed at this device has not ended yet.
    pub fn has(&self, device: &BStr) -> bool {
        !device.is_empty() && self.killed.iter().any(|one| one.subject.device == device)
    }

    /// Whether that has been so for long.
    pub fn hangs_at(&self, device: &BStr) -> bool {
        !device.is_empty() && self.killed.iter().any(|one| one.is_said && one.subject.device == device)
    }

    /// How many more may hang.
    pub fn room(&self, for_disks: bool) -> usize {
        let max = if for_disks { MAX_FOR_DISKS } else { MAX_FOR_OTHERS };
        max.saturating_sub(self.killed.iter().filter(|one| one.subject.is_for_disk == for_disks).count())
    }

    /// Says that nothing can be tried, once for each time that it becomes so.
    pub fn say_full(&mut self, for_disks: bool) {
        if !std::mem::replace(&mut self.is_full_said[usize::from(for_disks)], true) {
            let what = if for_disks { "disks" } else { "what is no disk" };
            log::error!(
                "As many helpers hang in the kernel as may: nothing more is tried for {what} until one ends"
            );
        }
    }

    /// Those that hang.
    pub fn list(&self) -> impl Iterator<Item = SlowHelper> {
        let hung = self.killed.iter().filter(|one| one.is_said);
        hung.map(|one| SlowHelper::new(&one.child, &one.subject, one.since, true))
    }
}
