//! One event being worked on: the phases of rules.md 9.1 and 9.2, as a machine that says one thing
//! it wants, is told how that went, and says the next.
//!
//! Must stay true: at most one reply is outstanding; the record is on disk before the announcement
//! goes out; whatever fails, exactly one announcement is made for the event (and one for each
//! SYNTH_UUID that the queue swallowed); a job that is dropped leaves nothing to undo in here.

use super::queue::{EntryId, Ready, Swallowed};
use super::{EngineConfig, Input, JobId, JobStatus, Output};
use crate::model::device::{is_interface_name, last_component};
use crate::model::effect::{Done, Effect, NodeChange, Sticky};
use crate::model::event::OrderedSet;
use crate::model::record::Record;
use crate::model::{Action, DeviceId, Errno, Event, IfIndex, Now, announcement};
use crate::rules::eval::{EvalConfig, Evaluation, Note, TurnEnd};
use crate::rules::outcome::{Outcome, RunItem, Watch};
use crate::rules::skip::Specialised;
use crate::rules::{Answer, Ask};
use bstr::{BStr, BString, ByteSlice};
use std::sync::Arc;
use std::time::Duration;

/// A locked disk is tried again after this long (rules.md 12.3).
const LOCK_RETRY: Duration = Duration::from_millis(200);
/// A disk that is locked for longer fails the event.
const LOCK_LIMIT: Duration = Duration::from_secs(180);

/// What a job says next.
#[derive(Debug)]
pub enum Step {
    /// [`Job::asked`] has a question: a reply will come.
    Ask,
    /// One of Perform, Run: a reply will come.
    Request(Output),
    /// Log, LogLevel: no reply.
    Tell(Vec<Output>),
    /// Come back at this time.
    WaitUntil(Now),
    /// Its turn is over: come back now or later.
    Pause,
    /// A reply is outstanding.
    Waiting,
    /// [`Job::give_rules`] must come first.
    WantRules,
    Finished,
}

/// How a request went.
#[derive(Clone, Debug)]
pub enum Reply {
    Answer(Answer),
    Done(Done),
    Ran,
}

impl Reply {
    /// The reply as it comes from outside.
    pub fn into_input(self, job: JobId) -> Input {
        match self {
            Reply::Answer(answer) => Input::Answer { job, answer },
            Reply::Done(done) => Input::Performed { job, done },
            Reply::Ran => Input::Ran { job },
        }
    }
}

/// What the job was given by its engine for the rules.
pub struct RulesContext {
    pub program: Arc<Specialised>,
    pub config: EvalConfig,
}

/// The event on its way through the rules.
enum Stage {
    Before(Box<Outcome>),
    Rules(Box<Evaluation>),
    After(Box<Outcome>),
    /// Only while one of the others is being replaced.
    Moving,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Lock,
    LockWait { until: Now },
    ReadOnly,
    DropWatch,
    ReadRecord,
    MarkProcessing,
    RemoveTags,
    RemoveRecord,
    Rules,
    RestoreWatch,
    RestoreRecord,
    AnnounceRenaming,
    Rename,
    AltNames,
    Node,
    Links,
    NumberLink,
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

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Lock | Phase::LockWait { .. } => "lock",
            Phase::ReadOnly => "read-only",
            Phase::DropWatch | Phase::ReadRecord | Phase::MarkProcessing => "old record",
            Phase::RemoveTags | Phase::RemoveRecord => "remove record",
            Phase::Rules => "rules",
            Phase::RestoreWatch | Phase::RestoreRecord => "restore record",
            Phase::AnnounceRenaming | Phase::Rename | Phase::AltNames => "rename",
            Phase::Node => "node",
            Phase::Links | Phase::NumberLink => "symlinks",
            Phase::Tags => "tags",
            Phase::Record | Phase::FinalRecord => "record",
            Phase::Delay { .. } => "delay",
            Phase::Run { .. } => "run",
            Phase::Watch => "watch",
            Phase::Unlock => "unlock",
            Phase::Announce { .. } => "announce",
            Phase::Finished => "finished",
        }
    }
}

/// Which reply is outstanding, and so what a failure means.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Awaiting {
    Nothing,
    /// A failure is logged by who performs and otherwise ignored.
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
    pub entry: EntryId,
    /// Renaming an interface does not change it.
    device_id: Option<DeviceId>,
    /// When the event was received: USEC_INITIALIZED of a new device.
    received: Now,
    /// When work on it began: the time budget of its programs counts from here.
    pub started: Now,
    since: Now,
    stage: Stage,
    phase: Phase,
    /// Where the last request was made; the phase is that which follows.
    asked_in: Phase,
    awaiting: Awaiting,
    rules: Option<RulesContext>,
    swallowed: Vec<Swallowed>,
    /// The record on disk carries ID_PROCESSING and must be mended if the rules fail.
    marked: bool,
    /// The node was watched until this event began, and must be again if it fails: its record says how the device was
    /// before.
    was_watched: bool,
    /// A record of what the rules left was written in this event, be it to say that programs run.
    recorded: bool,
    locked: bool,
    /// The rules pause once what they have to say is told.
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
            entry: ready.entry,
            device_id: event.device.id(),
            received: ready.received,
            started: now,
            since: now,
            stage: Stage::Before(Box::new(Outcome::new(event))),
            phase,
            asked_in: phase,
            awaiting: Awaiting::Nothing,
            rules: None,
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
        match &self.stage {
            Stage::Before(outcome) | Stage::After(outcome) => &outcome.event,
            Stage::Rules(evaluation) => evaluation.event(),
            Stage::Moving => unreachable!("a stage is replaced within one function"),
        }
    }

    /// Renaming an interface does not change it.
    pub fn device_id(&self) -> Option<&DeviceId> {
        self.device_id.as_ref()
    }

    fn wants_rules(&self) -> bool {
        self.rules.is_none() && matches!(self.stage, Stage::Before(_))
    }

    /// The rules to evaluate: those that are in force when evaluation begins.
    pub fn give_rules(&mut self, rules: RulesContext) {
        self.rules = Some(rules);
    }

    /// The question of the rules that has no answer yet.
    pub fn asked(&self) -> Option<&Ask> {
        match &self.stage {
            Stage::Rules(evaluation) => evaluation.asked(),
            _ => None,
        }
    }

    /// Whether rules have begun: an exiting daemon finishes such jobs.
    pub fn has_begun(&self) -> bool {
        !matches!(self.phase, Phase::Lock | Phase::LockWait { .. })
    }

    /// The disk may be free now: try again at once.
    pub fn retry_lock(&mut self, now: Now) -> bool {
        match &mut self.phase {
            Phase::LockWait { until } => {
                *until = now;
                true
            }
            _ => false,
        }
    }

    /// For `status`.
    pub fn status(&self) -> JobStatus {
        let event = self.event();
        let phase = if self.awaiting == Awaiting::Nothing { self.phase } else { self.asked_in };
        let waits_for = match (&self.awaiting, phase) {
            (Awaiting::Answer | Awaiting::Ran(_), _) => self.describe_wait(),
            (_, Phase::LockWait { .. }) => "the lock of the disk".to_string(),
            (_, Phase::Delay { .. }) => "exec_delay".to_string(),
            (Awaiting::Nothing, _) => String::new(),
            _ => phase.name().to_string(),
        };
        JobStatus {
            job: self.id.0,
            seqnum: event.seqnum.0,
            action: event.action.to_string(),
            devpath: event.device.devpath.to_string(),
            phase: phase.name().to_string(),
            waits_for,
            since: self.since.since_boot().as_secs_f64(),
        }
    }

    /// What the rules or the RUN list wait for, in words.
    fn describe_wait(&self) -> String {
        match (&self.stage, &self.awaiting) {
            (Stage::Rules(evaluation), _) => evaluation.asked().map(describe).unwrap_or_default(),
            (Stage::After(outcome), Awaiting::Ran(item)) => match outcome.run.get(*item) {
                Some(RunItem::Program(command)) => format!("program {command:?}"),
                Some(RunItem::Builtin(_, command)) => format!("builtin {command:?}"),
                None => String::new(),
            },
            _ => String::new(),
        }
    }

    /// A line for the administrator with the event's identity in front.
    pub fn log(&self, level: log::Level, text: impl std::fmt::Display) -> Output {
        Output::Log { level, text: format!("{}: {text}", self.event().title()) }
    }

    /// Whether it is an event of this device.
    pub fn is_of(&self, id: &DeviceId) -> bool {
        self.device_id.as_ref() == Some(id)
    }

    fn id_of_device(&self) -> Option<DeviceId> {
        self.device_id.clone()
    }

    fn perform(&mut self, effect: Effect, awaiting: Awaiting, next: Phase) -> Step {
        self.awaiting = awaiting;
        self.phase = next;
        Step::Request(Output::Perform { job: self.id, effect })
    }

    /// What comes next. Call again after [`Step::Tell`], after every reply, and when a
    /// [`Step::WaitUntil`] has passed.
    pub fn step(&mut self, config: &EngineConfig, now: Now) -> Step {
        if self.awaiting != Awaiting::Nothing {
            return Step::Waiting;
        }
        loop {
            let phase = self.phase;
            let step = match phase {
                Phase::Lock => self.lock(),
                Phase::LockWait { until } if now < until => return Step::WaitUntil(until),
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
                Phase::Rules if self.wants_rules() => return Step::WantRules,
                Phase::Rules => self.evaluate(),
                Phase::RestoreWatch => self.restore_watch(),
                Phase::RestoreRecord => self.restore_record(),
                Phase::AnnounceRenaming => self.announce_renaming(),
                Phase::Rename => self.rename(),
                Phase::AltNames => self.alt_names(),
                Phase::Node => self.node(),
                Phase::Links => self.links(),
                Phase::NumberLink => self.number_link(now, config),
                Phase::Tags => self.tags(),
                Phase::Record => self.record_before_run(now, config),
                Phase::Delay { until, .. } if now < until => return Step::WaitUntil(until),
                Phase::Delay { item, .. } => {
                    self.phase = Phase::Run { item };
                    None
                }
                Phase::Run { item } => self.run(item, now, config),
                Phase::Watch => self.watch(),
                Phase::FinalRecord => self.final_record(),
                Phase::Unlock => self.unlock(),
                Phase::Announce { copy } => self.announce(copy),
                Phase::Finished => return Step::Finished,
            };
            if let Some(step) = step {
                if matches!(step, Step::Ask | Step::Request(_)) {
                    self.since = now;
                    self.asked_in = phase;
                }
                return step;
            }
        }
    }

    /// Takes the reply to the last request. The returned line, if any, is for the log.
    pub fn reply(&mut self, reply: Reply, now: Now) -> Option<Output> {
        let awaiting = std::mem::replace(&mut self.awaiting, Awaiting::Nothing);
        self.since = now;
        match (awaiting, reply) {
            (Awaiting::Answer, Reply::Answer(answer)) => {
                if let Stage::Rules(evaluation) = &mut self.stage {
                    evaluation.answer(answer);
                }
                None
            }
            (Awaiting::Ran(_), Reply::Ran) | (Awaiting::Any, Reply::Done(_)) => None,
            (Awaiting::Lock, Reply::Done(done)) => self.locked(done, now),
            (Awaiting::OldRecord, Reply::Done(Done::Record(record))) => {
                self.know_old(record);
                None
            }
            (Awaiting::OldWatch, Reply::Done(done)) => {
                self.was_watched = done == Done::WasWatched;
                None
            }
            (Awaiting::Rename, Reply::Done(done)) => self.renamed(done),
            (
                Awaiting::OldRecord | Awaiting::OwnRecord | Awaiting::Must,
                Reply::Done(Done::Failed(errno)),
            ) => Some(self.fail(errno)),
            (Awaiting::OwnRecord, Reply::Done(_)) => {
                self.marked = false;
                None
            }
            (Awaiting::Must, Reply::Done(_)) => None,
            // Only a trace that is run with other rules brings such a reply.
            (awaiting, reply) => {
                let text = format!("waits for {awaiting:?} and got {reply:?}");
                self.fail(Errno(libc::EPROTO));
                Some(self.log(log::Level::Error, text))
            }
        }
    }

    /// Ends the event early: no RUN list, no record, one announcement that says why. The reason itself
    /// was logged by who met it.
    fn fail(&mut self, errno: Errno) -> Output {
        self.failure = Some(errno);
        self.phase = match self.event().action {
            // What a removed device claimed is released whatever happens.
            Action::Remove if !matches!(self.phase, Phase::Unlock) => Phase::Links,
            Action::Remove => Phase::Unlock,
            _ => Phase::RestoreWatch,
        };
        self.log(log::Level::Debug, format_args!("the event fails with {errno}"))
    }

    fn lock(&mut self) -> Option<Step> {
        let device = &self.event().device;
        let name = last_component(&device.devpath);
        let exempt = ["dm-", "md", "drbd"].iter().any(|p| name.starts_with(p.as_bytes()));
        match &device.devnode {
            Some(devnode) if device.is_block() && device.devnum.is_some() && !exempt => {
                let effect = Effect::LockDisk { device: device.devpath.clone(), devnode: devnode.clone() };
                // It may take a while: until then the job has not begun.
                Some(self.perform(effect, Awaiting::Lock, Phase::Lock))
            }
            _ => {
                self.phase = Phase::ReadOnly;
                None
            }
        }
    }

    fn locked(&mut self, done: Done, now: Now) -> Option<Output> {
        match done {
            Done::Busy if now >= self.started + LOCK_LIMIT => {
                self.fail(Errno(libc::ETIMEDOUT));
                let text =
                    format!("its disk is locked for more than {} s; the event fails", LOCK_LIMIT.as_secs());
                Some(self.log(log::Level::Error, text))
            }
            Done::Busy => {
                self.phase = Phase::LockWait { until: now + LOCK_RETRY };
                None
            }
            Done::Failed(errno) => Some(self.fail(errno)),
            Done::Ok | Done::Record(_) | Done::WasWatched => {
                self.locked = true;
                self.phase = Phase::ReadOnly;
                None
            }
        }
    }

    fn read_only(&mut self, config: &EngineConfig) -> Option<Step> {
        self.phase = Phase::ReadRecord;
        let event = self.event();
        let name = last_component(&event.device.devpath);
        let exempt = ["dm-", "md", "drbd", "loop", "nbd", "zram"];
        if !config.blockdev_read_only
            || event.action != Action::Add
            || !event.device.is_block()
            || exempt.iter().any(|p| name.starts_with(p.as_bytes()))
        {
            return None;
        }
        let (devnode, devnum) = (event.device.devnode.clone()?, event.device.devnum?);
        Some(self.perform(Effect::SetReadOnly { devnode, devnum }, Awaiting::Any, Phase::ReadRecord))
    }

    /// Only after the record says that an event is under way: who ends before that event does knows it must be done
    /// again, and the watch with it.
    fn drop_watch(&mut self) -> Option<Step> {
        self.phase = Phase::Rules;
        self.event().device.devnode.as_ref()?;
        let id = self.id_of_device()?;
        Some(self.perform(Effect::DropWatch { id }, Awaiting::OldWatch, self.phase))
    }

    fn read_record(&mut self) -> Option<Step> {
        let remove = self.event().action == Action::Remove;
        self.phase = if remove { Phase::RemoveTags } else { Phase::MarkProcessing };
        let id = self.id_of_device()?;
        Some(self.perform(Effect::ReadRecord { id }, Awaiting::OldRecord, self.phase))
    }

    fn know_old(&mut self, record: Option<Arc<Record>>) {
        if let (Stage::Before(outcome), Some(record)) = (&mut self.stage, record) {
            outcome.event.know_old(record);
        }
    }

    /// A known device shows in its record that it is being processed.
    fn mark_processing(&mut self) -> Option<Step> {
        self.phase = Phase::DropWatch;
        let old = self.event().old.clone()?;
        let id = self.id_of_device()?;
        self.marked = true;
        let effect = rewrite_record(id, with_property(&old, "ID_PROCESSING"));
        Some(self.perform(effect, Awaiting::Must, Phase::DropWatch))
    }

    /// Before the record says that no event is under way, as it was dropped after it said so.
    fn restore_watch(&mut self) -> Option<Step> {
        self.phase = Phase::RestoreRecord;
        if !std::mem::take(&mut self.was_watched) {
            return None;
        }
        let (id, devnode) = (self.id_of_device()?, self.event().device.devnode.clone()?);
        Some(self.perform(Effect::AddWatch { id, devnode }, Awaiting::Any, self.phase))
    }

    fn restore_record(&mut self) -> Option<Step> {
        self.phase = Phase::Unlock;
        if !std::mem::take(&mut self.marked) {
            return None;
        }
        let id = self.id_of_device()?;
        let old = self.event().old.clone()?;
        Some(self.perform(rewrite_record(id, (*old).clone()), Awaiting::Any, Phase::Unlock))
    }

    fn remove_tags(&mut self) -> Option<Step> {
        self.phase = Phase::RemoveRecord;
        let id = self.id_of_device()?;
        let tags = self.event().tags.sticky.clone();
        if tags.is_empty() {
            return None;
        }
        Some(self.perform(Effect::RemoveTags { id, tags }, Awaiting::Any, Phase::RemoveRecord))
    }

    fn remove_record(&mut self) -> Option<Step> {
        self.phase = Phase::DropWatch;
        let id = self.id_of_device()?;
        Some(self.perform(Effect::RemoveRecord { id }, Awaiting::Any, Phase::DropWatch))
    }

    fn evaluate(&mut self) -> Option<Step> {
        if let Stage::Before(_) = self.stage {
            let rules = self.rules.take()?;
            let Stage::Before(outcome) = std::mem::replace(&mut self.stage, Stage::Moving) else {
                return None;
            };
            let evaluation = Evaluation::of(rules.program, outcome, rules.config);
            self.stage = Stage::Rules(Box::new(evaluation));
        }
        let Stage::Rules(evaluation) = &mut self.stage else { return None };
        if std::mem::take(&mut self.pauses) {
            return Some(Step::Pause);
        }
        let end = evaluation.go_on();
        let notes = evaluation.take_notes();
        let level = evaluation.log_level();
        if level != self.log_level || !notes.is_empty() {
            self.pauses = end == TurnEnd::Pauses;
            return Some(Step::Tell(self.tell(level, notes)));
        }
        match end {
            TurnEnd::Pauses => return Some(Step::Pause),
            TurnEnd::Asks => {
                self.awaiting = Awaiting::Answer;
                return Some(Step::Ask);
            }
            TurnEnd::Done => {}
        }
        let Stage::Rules(evaluation) = std::mem::replace(&mut self.stage, Stage::Moving) else { return None };
        let outcome = evaluation.into_outcome();
        let failure = outcome.failure;
        self.phase = match outcome.event.action {
            Action::Remove => Phase::Links,
            _ => Phase::AnnounceRenaming,
        };
        self.stage = Stage::After(outcome);
        failure.map(|errno| Step::Tell(vec![self.fail(errno)]))
    }

    /// What the rules have to say, under the log level that they chose.
    fn tell(&mut self, level: Option<log::LevelFilter>, notes: Vec<Note>) -> Vec<Output> {
        let mut outputs = Vec::new();
        if level != self.log_level {
            self.log_level = level;
            outputs.push(Output::LogLevel { job: self.id, level });
        }
        outputs.extend(notes.into_iter().map(|note| self.log(note.level, note.text)));
        outputs
    }

    fn outcome(&mut self) -> Option<&mut Outcome> {
        match &mut self.stage {
            Stage::After(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// The new name, if this event renames an interface.
    fn new_name(&mut self) -> Option<(IfIndex, BString)> {
        let outcome = self.outcome()?;
        let name = outcome.name.clone()?;
        let device = &outcome.event.device;
        let renames = outcome.event.action == Action::Add && last_component(&device.devpath) != name;
        device.ifindex.filter(|_| renames).map(|ifindex| (ifindex, name))
    }

    /// Network managers that see the new name before its `move` event find ID_RENAMING in the record
    /// (rules.md 9.4).
    fn announce_renaming(&mut self) -> Option<Step> {
        self.phase = Phase::Node;
        let Some((_, name)) = self.new_name() else {
            self.phase = Phase::AltNames;
            return None;
        };
        if !is_interface_name(&name, 15) {
            self.phase = Phase::AltNames;
            let text = format!("{name:?} is no name for an interface; it keeps its own");
            return Some(Step::Tell(vec![self.log(log::Level::Warn, text)]));
        }
        let id = self.id_of_device()?;
        let old = self.event().old.clone().unwrap_or_default();
        let effect = rewrite_record(id, with_property(&old, "ID_RENAMING"));
        Some(self.perform(effect, Awaiting::Must, Phase::Rename))
    }

    fn rename(&mut self) -> Option<Step> {
        let (ifindex, to) = self.new_name()?;
        let from = last_component(&self.event().device.devpath).to_owned();
        let effect = Effect::Rename { ifindex, from, to };
        Some(self.perform(effect, Awaiting::Rename, Phase::AltNames))
    }

    fn renamed(&mut self, done: Done) -> Option<Output> {
        let (_, name) = self.new_name()?;
        match done {
            Done::Failed(Errno(libc::EBUSY)) => {
                let text = format!("interface is up, {name:?} has to wait");
                self.outcome()?.name = None;
                Some(self.log(log::Level::Info, text))
            }
            Done::Failed(errno) => {
                // The name is reverted, not the event: its properties are recorded and announced.
                self.outcome()?.name = None;
                self.failure = Some(errno);
                self.phase = Phase::Node;
                Some(self.log(log::Level::Error, format_args!("cannot rename to {name:?}: {errno}")))
            }
            _ => {
                take_name(&mut self.outcome()?.event, name.as_bstr());
                None
            }
        }
    }

    fn alt_names(&mut self) -> Option<Step> {
        self.phase = Phase::Node;
        let outcome = self.outcome()?;
        if outcome.event.action != Action::Add || outcome.alt_names.is_empty() {
            return None;
        }
        let ifindex = outcome.event.device.ifindex?;
        let name = last_component(&outcome.event.device.devpath).to_owned();
        let alt_names = outcome.alt_names.clone();
        Some(self.perform(Effect::AddAltNames { ifindex, name, alt_names }, Awaiting::Any, Phase::Node))
    }

    fn node(&mut self) -> Option<Step> {
        self.phase = Phase::Links;
        let change = node_change(self.outcome()?)?;
        Some(self.perform(Effect::Node(change), Awaiting::Must, Phase::Links))
    }

    fn links(&mut self) -> Option<Step> {
        self.phase = Phase::NumberLink;
        let event = self.event();
        event.device.devnum?;
        let devnode = event.device.devnode.clone()?;
        let id = self.id_of_device()?;
        let event = self.event();
        let list = |links: &OrderedSet| links.iter().map(BStr::to_owned).collect::<Vec<BString>>();
        let (release, claim) = match event.action {
            Action::Remove => (list(&event.links), Vec::new()),
            _ => {
                let old = event.old.as_deref().map(|r| list(&r.links)).unwrap_or_default();
                let dropped = old.into_iter().filter(|l| !event.links.contains(l)).collect();
                (dropped, list(&event.links))
            }
        };
        if release.is_empty() && claim.is_empty() {
            return None;
        }
        let priority = self.outcome().map_or(0, |o| o.link_priority);
        let effect = Effect::Links { id, devnode, priority, release, claim };
        Some(self.perform(effect, Awaiting::Any, Phase::NumberLink))
    }

    fn number_link(&mut self, now: Now, config: &EngineConfig) -> Option<Step> {
        let event = self.event();
        let present = event.action != Action::Remove;
        let device = &event.device;
        let link = device.devnode.clone().zip(device.devnum).map(|(devnode, devnum)| Effect::NumberLink {
            block: device.is_block(),
            devnum,
            devnode,
            present,
        });
        if present {
            let received = self.received.since_boot().as_micros() as u64;
            self.phase = Phase::Tags;
            self.outcome()?.event.usec_initialized.get_or_insert(received);
        } else {
            self.phase = self.first_run(now, config);
        }
        let awaiting = if present { Awaiting::Must } else { Awaiting::Any };
        link.map(|effect| self.perform(effect, awaiting, self.phase))
    }

    fn tags(&mut self) -> Option<Step> {
        // The record comes last, so that it says of nothing that is not there: without programs the watch comes
        // before it, else it says until then that the event is under way.
        self.phase = if self.runs() { Phase::Record } else { Phase::Watch };
        if self.event().tags.sticky.is_empty() {
            return None;
        }
        let tags = self.event().tags.sticky.clone();
        let id = self.id_of_device()?;
        Some(self.perform(Effect::AddTags { id, tags }, Awaiting::Must, self.phase))
    }

    /// With entries in the RUN list the record says ID_PROCESSING until they have run.
    fn record_before_run(&mut self, now: Now, config: &EngineConfig) -> Option<Step> {
        self.phase = self.first_run(now, config);
        let runs = self.phase != Phase::Unlock;
        let properties = &mut self.outcome()?.event.properties;
        if runs {
            properties.set_stored("ID_PROCESSING", "1");
        } else {
            properties.remove("ID_PROCESSING");
        }
        let next = self.phase;
        self.write_own_record(next)
    }

    fn write_own_record(&mut self, next: Phase) -> Option<Step> {
        self.phase = next;
        let is_end = self.recorded;
        let outcome = self.outcome()?;
        let keep_empty = outcome.event.device.devnum.is_some() || outcome.event.device.ifindex.is_some();
        let nothing_to_say = !keep_empty && outcome.event.old.is_none() && !has_content(outcome);
        if nothing_to_say && !is_end {
            return None;
        }
        let record = Arc::new(record_of(outcome));
        let sticky = if outcome.db_persist { Sticky::Yes } else { Sticky::No };
        self.recorded = true;
        let id = self.id_of_device()?;
        let effect = Effect::WriteRecord { id, record, sticky, keep_empty, is_end };
        // The programs have run: that the record does not say so yet fails the event no more.
        let awaiting = if is_end { Awaiting::Any } else { Awaiting::OwnRecord };
        Some(self.perform(effect, awaiting, next))
    }

    /// Whether there are programs or builtins to run after the rules.
    fn runs(&mut self) -> bool {
        self.failure.is_none() && self.outcome().is_some_and(|outcome| !outcome.run.is_empty())
    }

    /// Where to go once record and symlinks stand.
    fn first_run(&mut self, now: Now, config: &EngineConfig) -> Phase {
        if self.runs() { self.run_phase(0, now, config) } else { Phase::Unlock }
    }

    /// exec_delay comes before each program, unless it would use up the event's time.
    fn run_phase(&mut self, item: usize, now: Now, config: &EngineConfig) -> Phase {
        let program = |o: &Outcome| matches!(o.run.get(item), Some(RunItem::Program(_)));
        let until = now + config.exec_delay;
        let in_time = until < self.started + config.event_timeout;
        match self.outcome() {
            Some(outcome) if program(outcome) && !config.exec_delay.is_zero() && in_time => {
                Phase::Delay { item, until }
            }
            _ => Phase::Run { item },
        }
    }

    fn run(&mut self, item: usize, now: Now, config: &EngineConfig) -> Option<Step> {
        let late = now >= self.started + config.event_timeout;
        let next = match self.event().action {
            Action::Remove => Phase::Unlock,
            _ => Phase::Watch,
        };
        let outcome = self.outcome()?;
        let left = outcome.run.len().saturating_sub(item);
        let Some(entry) = outcome.run.get(item).filter(|_| !late).cloned() else {
            self.phase = next;
            let text = format!("its time is used up, {left} RUN entries are not started");
            return (left > 0).then(|| Step::Tell(vec![self.log(log::Level::Warn, text)]));
        };
        self.phase = self.run_phase(item + 1, now, config);
        self.awaiting = Awaiting::Ran(item);
        Some(Step::Request(Output::Run { job: self.id, item: entry }))
    }

    fn watch(&mut self) -> Option<Step> {
        self.phase = if self.runs() { Phase::FinalRecord } else { Phase::Record };
        let outcome = self.outcome()?;
        if outcome.watch != Some(Watch::On) {
            return None;
        }
        let devnode = outcome.event.device.devnode.clone()?;
        let id = self.id_of_device()?;
        Some(self.perform(Effect::AddWatch { id, devnode }, Awaiting::Any, self.phase))
    }

    fn final_record(&mut self) -> Option<Step> {
        self.phase = Phase::Unlock;
        if self.outcome()?.event.properties.remove("ID_PROCESSING") {
            return self.write_own_record(Phase::Unlock);
        }
        None
    }

    fn unlock(&mut self) -> Option<Step> {
        self.phase = Phase::Announce { copy: 0 };
        if !std::mem::take(&mut self.locked) {
            return None;
        }
        Some(self.perform(Effect::UnlockDisk, Awaiting::Any, self.phase))
    }

    /// First the copies for swallowed SYNTH_UUIDs, then the event's own message.
    fn announce(&mut self, copy: usize) -> Option<Step> {
        let swallowed = self.swallowed.get(copy);
        if swallowed.is_none() && self.log_level.is_some() {
            return Some(Step::Tell(self.tell(None, Vec::new())));
        }
        let event = self.event();
        let derived = event.derived_properties();
        let failure = self.failure.map(failure_properties).unwrap_or_default();
        let number = swallowed.map(|s| s.seqnum.to_string());
        let value = |name: &'_ BStr, value| match (name.as_bytes(), swallowed, &number) {
            (b"SEQNUM", _, Some(number)) => number.as_bytes().as_bstr(),
            (b"SYNTH_UUID", Some(swallowed), _) => swallowed.uuid.as_bstr(),
            _ => value,
        };
        let plain = event.plain_properties().filter(|(name, _)| *name != "ID_PROCESSING");
        let plain = plain.map(|(name, old)| (name, value(name, old)));
        let derived = derived.iter().map(|(name, value)| (BStr::new(name), value.as_bstr()));
        let failure = failure.iter().map(|(name, value)| (BStr::new(name), value.as_bstr()));
        let properties = plain.chain(derived).chain(failure);
        let datagram = announcement::build(properties, &event.tags.sticky).into();
        let next = if swallowed.is_some() { Phase::Announce { copy: copy + 1 } } else { Phase::Finished };
        Some(self.perform(Effect::Announce { datagram }, Awaiting::Any, next))
    }
}

/// rules.md 9.6.
fn failure_properties(errno: Errno) -> Vec<(&'static str, BString)> {
    let name = errno.name().map(|name| ("UDEV_WORKER_ERRNO_NAME", name.into()));
    let number = errno.0.to_string().into();
    [("UDEV_WORKER_FAILED", "1".into()), ("UDEV_WORKER_ERRNO", number)].into_iter().chain(name).collect()
}

fn with_property(old: &Record, name: &str) -> Record {
    let mut record = old.clone();
    record.properties.remove(name);
    record.properties.set(name, "1");
    record
}

/// The old record as an event under way changes it.
fn rewrite_record(id: DeviceId, record: Record) -> Effect {
    Effect::WriteRecord {
        id,
        record: Arc::new(record),
        sticky: Sticky::AsBefore,
        keep_empty: true,
        is_end: false,
    }
}

/// Whether the record of what the rules left says anything; symlinks and priority belong to devices
/// that have one anyway.
fn has_content(outcome: &Outcome) -> bool {
    let event = &outcome.event;
    event.properties.stored().next().is_some() || !event.tags.sticky.is_empty()
}

/// The record of what the rules left (rules.md 11.5). Links and priority belong to devices with a
/// number.
fn record_of(outcome: &Outcome) -> Record {
    let event = &outcome.event;
    let node = event.device.devnum.is_some();
    Record {
        links: if node { event.links.clone() } else { OrderedSet::default() },
        priority: if node { outcome.link_priority } else { 0 },
        usec_initialized: event.usec_initialized,
        properties: event.properties.stored_only(),
        tags: event.tags.sticky.clone(),
        current_tags: event.tags.current.clone(),
    }
}

/// Owner, group and mode by rules.md 11.1: the rule's, else the kernel's hint. None without a node.
pub fn node_change(outcome: &Outcome) -> Option<NodeChange> {
    let event = &outcome.event;
    let (devnode, devnum) = (event.device.devnode.as_ref()?, event.device.devnum?);
    let number = |name: &str, radix: u32| {
        let text = event.properties.get(name)?.to_str().ok()?.to_owned();
        u32::from_str_radix(&text, radix).ok()
    };
    let owner = outcome.owner.or_else(|| number("DEVUID", 10));
    let group = outcome.group.or_else(|| number("DEVGID", 10));
    let by_group = || group.filter(|&g| g > 0).map(|_| 0o660);
    let mode = outcome.mode.or_else(|| number("DEVMODE", 8)).or_else(by_group);
    Some(NodeChange {
        devnode: devnode.clone(),
        block: event.device.is_block(),
        devnum,
        owner,
        group,
        mode: mode.map(|m| m & 0o7777),
        seclabels: outcome.seclabels.clone(),
        is_add: event.action == Action::Add,
    })
}

/// The event goes on under the interface's new name.
fn take_name(event: &mut Event, name: &BStr) {
    let from = last_component(&event.device.devpath).to_owned();
    let folder = event.device.devpath.len() - from.len();
    let mut devpath = BString::from(&event.device.devpath[..folder]);
    devpath.extend_from_slice(name);
    event.properties.set("INTERFACE_OLD", from);
    event.properties.set("INTERFACE", name);
    event.properties.set("DEVPATH", devpath.clone());
    event.properties.set_stored("ID_RENAMING", "1");
    event.device.sysname = crate::model::device::sysname(&devpath);
    event.device.devpath = devpath;
}

/// An ask in the words of `status`.
fn describe(ask: &Ask) -> String {
    match ask {
        Ask::Run { command } => format!("program {command:?}"),
        Ask::Builtin { command, .. } => format!("builtin {command:?}"),
        Ask::Attr { name, .. } => format!("attribute {name:?}"),
        Ask::WriteAttr { target, .. } => format!("write to attribute {target:?}"),
        Ask::WriteSysctl { name, .. } => format!("write to sysctl {name:?}"),
        _ => "a fact".to_string(),
    }
}
