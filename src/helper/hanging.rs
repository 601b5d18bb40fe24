//! Helpers that were killed in their work. Most die at once; one that hangs in the kernel, for a dead disk, may
//! do so for ever, and keeps its device from costing a second one.
//!
//! Must stay true: each is said once when it hangs and once when it has ended; one that was killed a moment ago does
//! not count as one that hangs. The pool bounds their number: it asks [`Hanging::without_place`] before another
//! helper gets work.

use super::subject::Subject;
use crate::model::Now;
use crate::sys::child::Child;
use bstr::BStr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A killed helper that has not ended after this time hangs.
const GRACE: Duration = Duration::from_millis(500);

/// Between the first looks at one, and between the later ones.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// Those for disks that hang, beyond which requests are refused, and places for those and for slow ones: more than a
/// machine has controllers.
const MAX_FOR_DISKS: usize = 24;

/// The same for those that work for others.
const MAX_FOR_OTHERS: usize = 8;

fn max(for_disks: bool) -> usize {
    if for_disks { MAX_FOR_DISKS } else { MAX_FOR_OTHERS }
}

#[derive(Debug)]
struct Killed {
    child: Child,
    socket: OwnedFd,
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
    /// Its operation, and the device or file concerned.
    pub work: String,
    /// When it began, in seconds of CLOCK_MONOTONIC.
    pub since: f64,
    /// It was told to end, and hangs in the kernel.
    pub hangs: bool,
}

impl SlowHelper {
    pub(super) fn new(child: &Child, subject: &Subject, since: Now, hangs: bool) -> SlowHelper {
        SlowHelper {
            pid: child.pid(),
            work: subject.to_string(),
            since: since.since_boot().as_secs_f64(),
            hangs,
        }
    }
}

impl Hanging {
    /// This helper was killed at its work, which it has had since then. Nobody closes its socket before it has ended:
    /// its reply may be there, or come yet, with an open disk.
    pub fn push(&mut self, (child, socket): (Child, OwnedFd), subject: Subject, since: Now, now: Now) {
        self.looked_at = now;
        self.killed.push(Killed { child, socket, subject, since, killed: now, is_said: false });
    }

    /// Forgets those that have ended and logs which hang, if it is time to look. Returns the sockets of those that
    /// have ended, and the devices or files that they have worked on.
    #[must_use = "there may be an open disk in it"]
    pub fn look(&mut self, now: Now) -> Vec<(OwnedFd, Subject)> {
        if self.timeout().is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.looked_at = now;
        let ended = self.killed.extract_if(.., |one| {
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
                    let seconds = now.since(one.since).as_secs();
                    log::warn!("The helper that hung (process {pid}, {}) has ended after {seconds} s", one.subject);
                }
                _ => {}
            }
            !hangs
        });
        let ended = ended.map(|one| (one.socket, one.subject)).collect();
        for for_disks in [false, true] {
            self.is_full_said[usize::from(for_disks)] &= self.is_full(for_disks);
        }
        ended
    }

    /// When to look again.
    pub fn timeout(&self) -> Option<Now> {
        let youngest = self.killed.iter().map(|one| one.killed).max()?;
        let pause = self.looked_at.since(youngest).clamp(FIRST_PAUSE, LAST_PAUSE);
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

    /// How many of so many slow helpers and of those that were killed find no place beside the fast ones. Those that
    /// were killed a moment ago count: they may hang.
    pub fn without_place(&self, for_disks: bool, slow: usize) -> usize {
        (slow + self.of_kind(for_disks).count()).saturating_sub(max(for_disks))
    }

    /// Whether as many hang as may. One that was killed a moment ago does not count.
    pub fn is_full(&self, for_disks: bool) -> bool {
        self.of_kind(for_disks).filter(|one| one.is_said).count() >= max(for_disks)
    }

    fn of_kind(&self, for_disks: bool) -> impl Iterator<Item = &Killed> {
        self.killed.iter().filter(move |one| one.subject.is_for_disk == for_disks)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::operation::Operation;
    use crate::sys::child::{self, ExecStrings, Program, Spawn};
    use std::fs::File;
    use std::os::fd::AsFd;

    /// It is not killed, so it ends no sooner than one that hangs in the kernel.
    fn endless() -> (Child, OwnedFd) {
        let (null, mut argv) = (File::open("/dev/null").unwrap(), ExecStrings::new());
        argv.push(&[b"sleep"]);
        argv.push(&[b"1000"]);
        let stdio = [null.as_fd(); 3];
        let program = Program::Path(c"/bin/sleep".to_owned());
        let child = child::spawn(Spawn { program, argv, envp: ExecStrings::new(), stdio }).unwrap();
        (child, null.into())
    }

    #[test]
    fn who_was_killed_a_moment_ago_takes_a_place_but_does_not_hang_yet() {
        let subject = Subject::of(&Operation::PermanentAddress { ifname: "x".into() });
        let (mut hanging, now) = (Hanging::default(), Now::from_secs(10));
        for _ in 0..MAX_FOR_OTHERS {
            hanging.push(endless(), subject.clone(), now, now);
        }
        assert!(hanging.look(now + FIRST_PAUSE).is_empty());
        let state = |hanging: &Hanging| {
            (hanging.without_place(false, 1), hanging.is_full(false), hanging.list().count())
        };
        assert_eq!(state(&hanging), (1, false, 0));
        assert!(hanging.has("x".into()) && !hanging.hangs_at("x".into()));
        assert!(hanging.look(now + GRACE).is_empty());
        assert_eq!(state(&hanging), (1, true, MAX_FOR_OTHERS));
        assert!(
            hanging.without_place(true, 1) == 0 && !hanging.is_full(true) && hanging.hangs_at("x".into())
        );
        for one in &hanging.killed {
            one.child.signal(libc::SIGKILL).unwrap();
        }
        let (mut later, mut ended) = (now + GRACE, 0);
        while !hanging.killed.is_empty() {
            std::thread::yield_now();
            later += LAST_PAUSE;
            ended += hanging.look(later).len();
        }
        assert_eq!((state(&hanging), ended), ((0, false, 0), MAX_FOR_OTHERS));
    }
}
