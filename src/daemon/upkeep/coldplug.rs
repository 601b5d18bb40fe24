//! Triggering devices: all of them at the start (`--coldplug`), and again after a loss of events.
//!
//! Devices are triggered by a helper, a batch after the other and the next one only when the kernel's
//! events of the last are in the queue: so a machine of any size never overruns the socket.
//!
//! Must stay true: after a loss nobody knows which events are missing, so every device that is there is
//! looked at once more ([`super::resync`]); it comes to an end however small the buffer is (batches shrink
//! when what we trigger is lost itself) and however much the machine has to say.

use super::super::work::{Caller, Work};
use crate::helper::messages::MAX_MESSAGE;
use crate::model::operation::{Operation, OperationReply};
use crate::model::{Now, SeqNum, Trigger};
use crate::world::enumerate::{Enumerator, Filter, Kind};
use bstr::BString;
use std::collections::VecDeque;
use std::time::Duration;

/// Subsystems that systemd's unit lets go first.
const PRIORITIZED: [&str; 6] = ["module", "block", "tpmrm", "net", "tty", "input"];

/// Devices in one batch, and bytes of their paths.
const BATCH: usize = 64;
const BATCH_BYTES: usize = MAX_MESSAGE / 2;

/// Events that may wait while the next batch is triggered.
const MAX_QUEUED: usize = 512;

/// Where more than that wait, the next batch comes after this time nevertheless.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a batch is tried whose helper dies; that may have been another's doing.
const ATTEMPTS: u8 = 3;

/// A batch is given up after this time.
const LIMIT: Duration = Duration::from_secs(180);

/// After a loss the devices are looked at when it has been quiet this long: during a flood it would
/// be for nothing.
const QUIET: Duration = Duration::from_millis(200);

/// Where it does not become quiet, they are looked at after this time.
const LATEST: Duration = Duration::from_secs(10);

/// How often what triggered events have caused is waited for: what they caused, what that caused, ...
const GENERATIONS: u8 = 4;

/// See the module.
#[derive(Debug)]
pub struct Coldplug {
    started: bool,
    waiting: VecDeque<(Trigger, BString)>,
    /// What a helper triggers just now.
    in_flight: Option<(Trigger, Vec<BString>)>,
    /// How often the helper of the first that waits has died.
    failures: u8,
    /// Devices in one batch.
    batch: usize,
    /// When the next batch is triggered whatever else waits.
    patient_until: Now,
    /// When to look for what was lost, and when at the latest.
    resync_at: Option<Now>,
    resync_by: Option<Now>,
    /// Everything up to these numbers is waited for, and how many generations that makes.
    through: Option<(Reached, u8)>,
}

/// How far the machine has come: the highest numbers, or the lowest that are not through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Of events.
    pub event: Option<SeqNum>,
    /// Of what was begun because nodes were written to ([`crate::tasks::follow_ups`]); it causes events.
    pub follow_up: Option<u64>,
}

impl Reached {
    /// Whether nothing up to `until` is open; `self` is the lowest that is.
    fn is_beyond(self, until: Reached) -> bool {
        self.event.is_none_or(|open| Some(open) > until.event)
            && self.follow_up.is_none_or(|open| Some(open) > until.follow_up)
    }
}

impl Default for Coldplug {
    fn default() -> Coldplug {
        Coldplug {
            started: false,
            waiting: VecDeque::new(),
            in_flight: None,
            failures: 0,
            batch: BATCH,
            patient_until: Now::ZERO,
            resync_at: None,
            resync_by: None,
            through: None,
        }
    }
}

impl Coldplug {
    /// All devices were triggered.
    fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_none()
    }

    /// Whether devices were triggered, and what that caused is through. `open` are the lowest numbers that
    /// wait or run, `newest` the highest that came in. What has nothing to do with it does not matter: a
    /// machine that never stops sending events becomes ready all the same.
    fn is_through(&mut self, open: Reached, newest: Reached) -> bool {
        if !self.is_over() {
            return false;
        }
        loop {
            let (until, generation) = *self.through.get_or_insert((newest, 1));
            if !open.is_beyond(until) {
                return false;
            }
            if until == newest || generation >= GENERATIONS {
                return true;
            }
            self.through = Some((newest, generation + 1));
        }
    }

    /// When there is something to do.
    pub fn timeout(&self) -> Option<Now> {
        let next = (!self.waiting.is_empty() && self.in_flight.is_none()).then_some(self.patient_until);
        [self.resync_at, next].into_iter().flatten().min()
    }

    /// Syspaths that wait to be triggered.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &BString> {
        self.waiting.iter().map(|(_, path)| path)
    }

    /// Has these triggered, in this order.
    fn add(&mut self, wanted: impl IntoIterator<Item = (Trigger, BString)>) {
        self.started = true;
        self.through = None;
        self.waiting.extend(wanted);
    }

    /// All devices are looked at as soon as it is quiet.
    pub(crate) fn look_at_all(&mut self, now: Now) {
        self.resync_at = Some(now + QUIET);
        self.resync_by.get_or_insert(now + LATEST);
    }

    /// Events were lost, perhaps those that we have caused ourselves.
    pub(crate) fn on_loss(&mut self, now: Now) {
        self.look_at_all(now);
        if self.started {
            self.batch = (self.batch / 4).max(1);
        }
    }

    /// Whether it is time to look for what was lost.
    pub(crate) fn is_resync_due(&mut self, now: Now, is_quiet: bool) -> bool {
        if self.resync_at.is_none_or(|at| at > now) {
            return false;
        }
        if !is_quiet && self.resync_by.is_some_and(|by| by > now) {
            self.resync_at = Some(now + QUIET);
            return false;
        }
        (self.resync_at, self.resync_by) = (None, None);
        true
    }

    /// The batch has its reply. That of a dead helper waits again: nobody knows how far it came.
    fn on_reply(&mut self, reply: &OperationReply, now: Now) {
        self.patient_until = now + PATIENCE;
        let Some((action, paths)) = self.in_flight.take() else { return };
        match reply {
            OperationReply::Triggered { done, failed } => {
                self.failures = 0;
                log::debug!("Triggered {done} devices, {failed} did not take it");
            }
            OperationReply::Died if self.failures + 1 < ATTEMPTS => {
                self.failures += 1;
                log::warn!("The helper that triggered {} devices died, they are tried again", paths.len());
                paths.into_iter().rev().for_each(|path| self.waiting.push_front((action, path)));
            }
            other => {
                self.failures = 0;
                log::error!("Cannot trigger {} devices: {other:?}", paths.len());
            }
        }
    }

    /// The next batch, all of one action.
    fn take_batch(&mut self) -> Option<(Trigger, Vec<BString>)> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let &(first, _) = self.waiting.front()?;
        while let Some((action, path)) = self.waiting.front().filter(|_| batch.len() < self.batch) {
            bytes += path.len() + 4;
            if *action != first || (bytes > BATCH_BYTES && !batch.is_empty()) {
                break;
            }
            batch.extend(self.waiting.pop_front().map(|(_, path)| path));
        }
        Some((first, batch))
    }

    /// Has every device triggered, in the order of interop.md 7.3.
    pub(crate) fn start(&mut self, work: &Work) {
        let prioritized = PRIORITIZED.map(BString::from);
        let found = Enumerator::new(&work.sysfs, &work.roots.run).enumerate(
            Kind::All,
            &Filter::default(),
            &prioritized,
        );
        log::debug!("Triggering {} devices", found.len());
        self.trigger(work, found.into_iter().map(|found| (Trigger::Add, found.devpath)));
    }

    /// Has these triggered, by devpath, in this order.
    pub(crate) fn trigger(&mut self, work: &Work, wanted: impl IntoIterator<Item = (Trigger, BString)>) {
        self.add(wanted.into_iter().map(|(action, devpath)| (action, work.syspath(&devpath))));
    }

    /// Whether what was triggered, if anything was, is through. `is_scanning`: more is about to be.
    pub(crate) fn is_all_through(&mut self, work: &Work, is_scanning: bool) -> bool {
        let (engine, follow_ups) = (&work.engine, &work.stores.follow_ups);
        let open = Reached { event: engine.oldest(), follow_up: follow_ups.oldest() };
        let newest = Reached { event: engine.newest(), follow_up: follow_ups.newest() };
        !self.started || (!is_scanning && self.is_through(open, newest))
    }

    /// The next batch, if the time has come for it. `is_read`: all uevents that had come are in the queue.
    pub(crate) fn go_on(&mut self, work: &mut Work, is_read: bool) {
        if self.in_flight.is_some() {
            return;
        }
        let is_busy = work.engine.queue_len().0 > MAX_QUEUED || !is_read || self.failures > 0;
        if is_busy && work.now < self.patient_until {
            return;
        }
        let Some((action, syspaths)) = self.take_batch() else { return };
        self.in_flight = Some((action, syspaths.clone()));
        let operation = Operation::Trigger { text: action.text().into(), syspaths };
        work.request_helper(Caller::Coldplug, operation, work.now + LIMIT);
    }

    /// The batch has its reply.
    pub(crate) fn replied(&mut self, work: &mut Work, reply: &OperationReply) {
        self.on_reply(reply, work.now);
        // What the batch caused is read before anyone calls it through.
        work.intake.set_ready();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::messages::encode;

    const SECOND: Now = Now::from_secs(1);

    fn paths(sizes: impl IntoIterator<Item = usize>) -> Vec<(Trigger, BString)> {
        sizes.into_iter().map(|size| (Trigger::Add, BString::from(vec![b'x'; size]))).collect()
    }

    fn batch(coldplug: &mut Coldplug) -> usize {
        coldplug.take_batch().map_or(0, |(_, batch)| batch.len())
    }

    #[test]
    fn batches_are_bounded_in_number_and_bytes() {
        let mut coldplug = Coldplug::default();
        assert!(coldplug.is_over());
        coldplug.add(paths([20; 100]));
        assert_eq!((batch(&mut coldplug), batch(&mut coldplug)), (64, 36));
        assert!(coldplug.is_over());
        coldplug.add(paths([10_000; 10]));
        assert_eq!(batch(&mut coldplug), 3);
        let (_, syspaths) = coldplug.take_batch().unwrap();
        let encoded = encode(&Operation::Trigger { text: "change".into(), syspaths });
        assert!(encoded.len() < MAX_MESSAGE);
        coldplug.waiting = paths([MAX_MESSAGE]).into();
        assert_eq!(batch(&mut coldplug), 1, "one that is too long alone must not hold up the rest");
    }

    #[test]
    fn a_batch_has_one_action() {
        let mut coldplug = Coldplug::default();
        coldplug.add([
            (Trigger::Add, "a".into()),
            (Trigger::Change, "b".into()),
            (Trigger::Change, "c".into()),
        ]);
        assert_eq!(coldplug.take_batch(), Some((Trigger::Add, vec!["a".into()])));
        assert_eq!(coldplug.take_batch(), Some((Trigger::Change, vec!["b".into(), "c".into()])));
        assert_eq!(coldplug.take_batch(), None);
    }

    #[test]
    fn a_batch_whose_helper_dies_is_tried_again_a_few_times() {
        let mut coldplug = Coldplug::default();
        coldplug.add([(Trigger::Add, "a".into()), (Trigger::Add, "b".into()), (Trigger::Change, "c".into())]);
        let first = coldplug.take_batch();
        for attempt in 1..=ATTEMPTS {
            coldplug.in_flight.clone_from(&first);
            assert!(!coldplug.is_over() && coldplug.timeout().is_none());
            coldplug.on_reply(&OperationReply::Died, SECOND);
            assert_eq!(coldplug.timeout(), Some(SECOND + PATIENCE));
            let next = coldplug.take_batch();
            match attempt < ATTEMPTS {
                true => assert_eq!(next, first),
                false => assert_eq!(next, Some((Trigger::Change, vec!["c".into()])), "the others go on"),
            }
        }
        coldplug.on_reply(&OperationReply::Triggered { done: 1, failed: 0 }, SECOND);
        assert!(coldplug.is_over() && coldplug.failures == 0);
    }

    #[test]
    fn what_we_trigger_gets_less_at_a_time_when_it_is_lost() {
        let mut coldplug = Coldplug::default();
        coldplug.on_loss(SECOND);
        coldplug.add(paths([1; 200]));
        assert_eq!(batch(&mut coldplug), BATCH, "the loss came before");
        let sizes: Vec<usize> = (0..5)
            .map(|_| {
                coldplug.on_loss(SECOND);
                batch(&mut coldplug)
            })
            .collect();
        assert_eq!(sizes, [16, 4, 1, 1, 1]);
    }

    #[test]
    fn a_loss_is_looked_at_when_it_is_quiet_or_after_a_while() {
        let mut coldplug = Coldplug::default();
        assert!(!coldplug.is_resync_due(SECOND, true) && coldplug.timeout().is_none());
        coldplug.on_loss(SECOND);
        assert!(!coldplug.is_resync_due(SECOND, true), "more may come");
        assert!(coldplug.is_resync_due(Now::from_secs(2), true));
        assert!(!coldplug.is_resync_due(Now::from_secs(3), true), "once");
        coldplug.on_loss(SECOND);
        assert!(!coldplug.is_resync_due(Now::from_secs(2), false));
        coldplug.on_loss(Now::from_secs(10));
        assert!(!coldplug.is_resync_due(Now::from_secs(10) + QUIET, false), "it goes on");
        assert!(coldplug.is_resync_due(Now::from_secs(2) + LATEST, false));
    }

    #[test]
    fn it_is_through_when_all_that_it_caused_is_whatever_else_comes() {
        let none = Reached { event: None, follow_up: None };
        let n = |number| Reached { event: Some(SeqNum(number)), ..none };
        let mut coldplug = Coldplug::default();
        coldplug.add(paths([1]));
        assert!(!coldplug.is_through(none, n(9)), "not yet triggered");
        batch(&mut coldplug);
        assert!(!coldplug.is_through(n(5), n(9)));
        assert!(!coldplug.is_through(n(9), n(11)));
        assert!(!coldplug.is_through(n(11), n(11)), "10 and 11 may be what it caused");
        assert!(coldplug.is_through(none, n(11)));

        let mut restless = Coldplug::default();
        restless.add(paths([1]));
        batch(&mut restless);
        let turns = (1..100).find(|&turn| restless.is_through(n(10 * turn), n(10 * turn + 5)));
        assert_eq!(turns, Some(u64::from(GENERATIONS) + 1));
        assert!(Coldplug::default().is_through(none, none), "nothing ever came");
    }

    #[test]
    fn it_is_not_through_while_tables_of_disks_that_it_wrote_to_are_read_again() {
        let at = |event: u64, follow_up: u64| Reached {
            event: Some(SeqNum(event)).filter(|n| n.0 > 0),
            follow_up: Some(follow_up).filter(|&n| n > 0),
        };
        let mut coldplug = Coldplug::default();
        coldplug.add(paths([1]));
        batch(&mut coldplug);
        assert!(!coldplug.is_through(at(9, 0), at(9, 0)));
        assert!(!coldplug.is_through(at(0, 1), at(9, 1)), "event 9 has written to a disk");
        assert!(!coldplug.is_through(at(10, 0), at(12, 1)), "its table was read again");
        assert!(coldplug.is_through(at(0, 0), at(12, 1)));

        let mut restless = Coldplug::default();
        restless.add(paths([1]));
        batch(&mut restless);
        let turns = (1..100).find(|&turn| restless.is_through(at(0, turn), at(9, turn + 1)));
        assert!(turns.is_some(), "disks that are written to all the time do not hold it up");
    }
}
