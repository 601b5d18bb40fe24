//! One event being worked on: the phases of rules.md 9.1 and 9.2, as a machine that says one thing
//! it wants, is told how that went, and says the next.
//!
//! [`Job::step`] is the machine. What is done in each phase stands in the file of its part of an event: [`before`] the
//! rules, [`evaluate`] them, [`rename`], [`device`] (node, symlinks, tags, watch), [`record`], [`run`], [`announce`]. A
//! phase sets the next one and returns what the job says; without anything to say the next phase follows at once.
//!
//! Must stay true: at most one reply is outstanding; the record is on disk before the announcement
//! goes out; whatever fails, exactly one announcement is made for the event (and one for each
//! SYNTH_UUID that the queue swallowed); a job that is dropped leaves nothing to undo in here.

mod announce;
mod before;
mod device;
mod evaluate;
mod record;
mod rename;
mod run;
mod status;

use super::EngineConfig;
use super::messages::{JobId, JobReply, JobRequest, Notice};
use super::queue::{QueuedId, Ready, Swallowed};
use crate::model::effect::{Done, Effect};
use crate::model::{Action, DeviceId, Errno, Event, Now};
use crate::rules::eval::{EvalConfig, Evaluation};
use crate::rules::outcome::Outcome;
use crate::rules::skip::Specialised;
pub use device::node_change;
pub use status::JobStatus;
use std::sync::Arc;

/// What a job says next.
#[derive(Debug)]
pub enum JobStep {
    /// [`Job::request`] says what it wants. A reply will come.
    Request,
    /// No reply comes.
    Tell(Vec<Notice>),
    /// Come back at this time.
    WaitUntil(Now),
    /// The rules have worked for a while: come back now or later.
    Pause,
    /// A reply is outstanding.
    Waiting,
    /// [`Job::give_rules`] must come first.
    WantRules,
    Finished,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Lock,
    LockWait { until: Now },
    ReadOnly,
    ReadRecord,
    MarkProcessing,
    RemoveTags,
    RemoveRecord,
    DropWatch,
    Rules,
    RestoreWatch,
    RestoreRecord,
    AnnounceRenaming,
    Rename,
    AltNames,
    Node,
    Symlinks,
    NumberSymlink,
    Tags,
    Record,
    Delay { item: usize, until: Now },
    Run { item: usize },
    Watch,
    FinalRecord,
    Unlock,
    Announce { copy: usize },
    Finished,
}

/// Which reply is outstanding, and so what a failure means.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Awaiting {
    Nothing,
    /// Whoever performs the effect logs a failure, which has no other consequence.
    Any,
    /// A failure fails the event.
    Must,
    Lock,
    OldRecord,
    OldWatch,
    /// A failure fails the event. Else the old record is no more.
    OwnRecord,
    Rename,
    Answer,
    /// To this entry of the RUN list.
    Ran(usize),
}

/// See the module.
pub struct Job {
    pub id: JobId,
    /// Its place in the queue.
    pub queued: QueuedId,
    /// Renaming an interface does not change it.
    device_id: Option<DeviceId>,
    /// When the event was received: USEC_INITIALIZED of a new device.
    received: Now,
    /// When work on it began: the time budget of its programs counts from here.
    pub started: Now,
    since: Now,
    /// The event, and what its rules have decided of it so far.
    outcome: Outcome,
    /// While rules are evaluated.
    evaluation: Option<Box<Evaluation>>,
    phase: Phase,
    /// Where the last request was made; the phase is that which follows.
    asked_in: Phase,
    awaiting: Awaiting,
    /// What is to be performed, as long as its reply is outstanding.
    effect: Option<Effect>,
    swallowed: Vec<Swallowed>,
    /// The record on disk carries ID_PROCESSING and must be mended if the rules fail.
    marked: bool,
    /// The node was watched until this event began, and must be again if the event fails: the record then says how the
    /// device was before.
    was_watched: bool,
    /// A record of what the rules left was written in this event, be it only to say that programs run.
    recorded: bool,
    locked: bool,
    /// The rules pause once the job has told what they say.
    pauses: bool,
    failure: Option<Errno>,
    log_level: Option<log::LevelFilter>,
}

impl Job {
    /// A job at its beginning.
    pub fn new(id: JobId, ready: Ready, now: Now) -> Job {
        let event = Event::new(ready.uevent);
        let phase = match event.action {
            Action::Remove => Phase::ReadRecord,
            _ => Phase::Lock,
        };
        Job {
            id,
            queued: ready.id,
            device_id: event.device.id(),
            received: ready.received,
            started: now,
            since: now,
            outcome: Outcome::new(event),
            evaluation: None,
            phase,
            asked_in: phase,
            awaiting: Awaiting::Nothing,
            effect: None,
            swallowed: ready.swallowed,
            marked: false,
            was_watched: false,
            recorded: false,
            locked: false,
            pauses: false,
            failure: None,
            log_level: None,
        }
    }

    /// The event as it stands.
    pub fn event(&self) -> &Event {
        &self.outcome.event
    }

    /// Renaming an interface does not change it.
    pub fn device_id(&self) -> Option<&DeviceId> {
        self.device_id.as_ref()
    }

    /// The rules to evaluate: those that are in force when evaluation begins.
    pub fn give_rules(&mut self, program: Arc<Specialised>, config: EvalConfig) {
        self.evaluation = Some(Box::new(Evaluation::start(program, config)));
    }

    /// The request whose reply is outstanding.
    pub fn request(&self) -> Option<JobRequest<'_>> {
        match self.awaiting {
            Awaiting::Nothing => None,
            Awaiting::Answer => self.evaluation.as_ref()?.asked().map(JobRequest::Ask),
            Awaiting::Ran(item) => self.outcome.run.get(item).map(JobRequest::Run),
            _ => self.effect.as_ref().map(JobRequest::Perform),
        }
    }

    /// Whether more has begun than waiting for the lock: an exiting daemon finishes such jobs.
    pub fn has_begun(&self) -> bool {
        !matches!(self.phase, Phase::Lock | Phase::LockWait { .. })
    }

    fn is_removal(&self) -> bool {
        self.event().action == Action::Remove
    }

    /// A line for the administrator with the event's identity in front.
    fn log(&self, level: log::Level, text: impl std::fmt::Display) -> Notice {
        Notice::Log { level, text: format!("{}: {text}", self.event().title()) }
    }

    fn perform(&mut self, effect: Effect, awaiting: Awaiting, next: Phase) -> Option<JobStep> {
        self.awaiting = awaiting;
        self.effect = Some(effect);
        self.phase = next;
        Some(JobStep::Request)
    }

    /// What comes next. Call again after [`JobStep::Tell`], after every reply, and when a
    /// [`JobStep::WaitUntil`] has passed.
    pub fn step(&mut self, config: &EngineConfig, now: Now) -> JobStep {
        if self.awaiting != Awaiting::Nothing {
            return JobStep::Waiting;
        }
        loop {
            let phase = self.phase;
            let step = match phase {
                Phase::Lock => self.lock(),
                Phase::LockWait { until } if now < until => return JobStep::WaitUntil(until),
                Phase::LockWait { .. } => {
                    self.phase = Phase::Lock;
                    None
                }
                Phase::ReadOnly => self.read_only(config),
                Phase::DropWatch => self.drop_watch(),
                Phase::ReadRecord => self.read_record(),
                Phase::MarkProcessing => self.mark_processing(),
                Phase::RemoveTags => self.remove_tags(),
                Phase::RemoveRecord => self.remove_record(),
                Phase::Rules => self.evaluate(),
                Phase::RestoreWatch => self.restore_watch(),
                Phase::RestoreRecord => self.restore_record(),
                Phase::AnnounceRenaming => self.announce_renaming(),
                Phase::Rename => self.rename(),
                Phase::AltNames => self.alt_names(),
                Phase::Node => self.node(),
                Phase::Symlinks => self.symlinks(),
                Phase::NumberSymlink => self.number_symlink(now, config),
                Phase::Tags => self.tags(),
                Phase::Record => self.record_before_run(now, config),
                Phase::Delay { until, .. } if now < until => return JobStep::WaitUntil(until),
                Phase::Delay { item, .. } => {
                    self.phase = Phase::Run { item };
                    None
                }
                Phase::Run { item } => self.run(item, now, config),
                Phase::Watch => self.watch(),
                Phase::FinalRecord => self.final_record(),
                Phase::Unlock => self.unlock(),
                Phase::Announce { copy } => self.announce(copy),
                Phase::Finished => return JobStep::Finished,
            };
            if let Some(step) = step {
                if matches!(step, JobStep::Request) {
                    self.since = now;
                    self.asked_in = phase;
                }
                return step;
            }
        }
    }

    /// Takes the reply to the last request. The returned line, if any, is for the log.
    pub fn reply(&mut self, reply: JobReply, now: Now) -> Option<Notice> {
        let awaiting = std::mem::replace(&mut self.awaiting, Awaiting::Nothing);
        self.effect = None;
        self.since = now;
        match (awaiting, reply) {
            (Awaiting::Answer, JobReply::Answer(answer)) => {
                if let Some(evaluation) = &mut self.evaluation {
                    evaluation.answer(answer);
                }
                None
            }
            (Awaiting::Ran(_), JobReply::Ran) | (Awaiting::Any, JobReply::Done(_)) => None,
            (Awaiting::Lock, JobReply::Done(done)) => self.locked(done, now),
            (Awaiting::OldRecord, JobReply::Done(Done::Record(record))) => {
                if let Some(record) = record {
                    self.outcome.event.know_old(record);
                }
                None
            }
            (Awaiting::OldWatch, JobReply::Done(done)) => {
                self.was_watched = done == Done::WasWatched;
                None
            }
            (Awaiting::Rename, JobReply::Done(done)) => self.renamed(done),
            (
                Awaiting::OldRecord | Awaiting::OwnRecord | Awaiting::Must,
                JobReply::Done(Done::Failed(errno)),
            ) => Some(self.fail(errno)),
            (Awaiting::OwnRecord, JobReply::Done(_)) => {
                self.marked = false;
                None
            }
            (Awaiting::Must, JobReply::Done(_)) => None,
            // Only a trace that is run with other rules brings such a reply.
            (awaiting, reply) => {
                let text = format!("waits for {awaiting:?} and got {reply:?}");
                self.evaluation = None;
                self.fail(Errno(libc::EPROTO));
                Some(self.log(log::Level::Error, text))
            }
        }
    }

    /// Ends the event early: no RUN list, no record, one announcement that says why. Whoever met the reason has logged
    /// it.
    fn fail(&mut self, errno: Errno) -> Notice {
        self.failure = Some(errno);
        self.phase = match self.event().action {
            // What a removed device claimed is released whatever happens.
            Action::Remove if !matches!(self.phase, Phase::Unlock) => Phase::Symlinks,
            Action::Remove => Phase::Unlock,
            _ => Phase::RestoreWatch,
        };
        self.log(log::Level::Debug, format_args!("the event fails with {errno}"))
    }
}
