//! The logic, without I/O: which event may run now ([`queue`]), what comes next in it ([`job`]).
//!
//! Contract: after every [`Engine::handle`], drain [`Engine::poll_output`] until None before the
//! next input; while [`Engine::can_start`] or [`Engine::can_go_on`], give [`Input::Start`] or [`Input::GoOn`]
//! sooner or later; every [`Output::Ask`],
//! [`Output::Perform`] and [`Output::Run`] is replied to exactly once, at once or later; wake up at
//! [`Engine::poll_timeout`] with [`Input::Tick`].
//!
//! Most requests need no waiting. So that these cost no trip through the loop, [`Engine::handle`] is lent
//! somebody who may reply [`AtOnce`]; with [`Never`] all of them come out. The engine decides the same in
//! both cases.

pub mod job;
pub mod queue;

use crate::model::device::lies_in;
use crate::model::effect::{Done, Effect};
use crate::model::fnv::BuildFnv;
use crate::model::{DeviceId, Event, Now, Properties, SeqNum, Uevent};
use crate::rules::eval::EvalConfig;
use crate::rules::outcome::RunItem;
use crate::rules::program::RuleSet;
use crate::rules::skip::Programs;
use crate::rules::{Answer, Ask};
use bstr::BString;
pub use job::Reply;
use job::{Job, RulesContext, Step};
use queue::{Inserted, Queue};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Names one job for its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// What the outside tells the engine.
#[derive(Clone, Debug)]
pub enum Input {
    /// It is queued; [`Input::Start`] starts it.
    Uevent(Uevent),
    /// The outside has nothing better to do: start one event that may run.
    Start,
    /// The turn comes to a job whose rules have paused: the one that waits longest goes on.
    GoOn,
    /// To an [`Output::Ask`].
    Answer {
        job: JobId,
        answer: Answer,
    },
    /// To an [`Output::Perform`].
    Performed {
        job: JobId,
        done: Done,
    },
    /// To an [`Output::Run`]; failures are logged by who runs.
    Ran {
        job: JobId,
    },
    /// Something was closed on this disk or partition: events that wait for the disk's lock are tried again.
    DiskMayBeFree {
        devpath: BString,
    },
    Rules(Arc<RuleSet>),
    StopQueue,
    StartQueue,
    /// Global property; an empty value unsets it.
    SetGlobal {
        name: BString,
        value: BString,
    },
    /// Finish running jobs, start no others.
    Exit,
    /// Time went on.
    Tick,
}

/// What the engine wants.
#[derive(Clone, Debug)]
pub enum Output {
    /// A question of the rules; the context is [`Engine::event`].
    Ask { job: JobId, ask: Ask },
    /// An effect, to be performed in the order they come out.
    Perform { job: JobId, effect: Effect },
    /// An entry of the RUN list: run it, then reply [`Input::Ran`].
    Run { job: JobId, item: RunItem },
    /// The queue became busy (true) or idle (false): `/run/udev/queue`.
    Busy(bool),
    /// Log level for the rest of this event; None: the daemon's.
    LogLevel { job: JobId, level: Option<log::LevelFilter> },
    /// A line for the administrator, SEQNUM and devpath included.
    Log { level: log::Level, text: String },
}

impl Output {
    /// The job whose request this is; None if nobody waits for a reply.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Output::Ask { job, .. } | Output::Perform { job, .. } | Output::Run { job, .. } => Some(*job),
            Output::Busy(_) | Output::LogLevel { .. } | Output::Log { .. } => None,
        }
    }
}

/// What became of a request that could be had at once.
#[derive(Debug)]
pub enum Tried<R> {
    Replied(Reply),
    /// It was taken, and the reply comes as an [`Input`].
    Taken,
    /// It comes out as an output.
    Refused(R),
}

/// Replies to requests within [`Engine::handle`].
pub trait AtOnce {
    /// Tries a question of a job's rules; `event` is what [`Engine::event`] would say.
    fn answer(&mut self, job: JobId, event: &Event, ask: &Ask) -> Tried<()>;

    /// Tries another request, in the same way.
    fn attempt(&mut self, event: &Event, request: Output) -> Tried<Output>;

    /// Whether rules that have worked for a while may go on; if not, the job pauses until [`Input::GoOn`].
    fn has_time(&mut self) -> bool {
        true
    }
}

/// Nobody replies at once.
pub struct Never;

impl AtOnce for Never {
    fn answer(&mut self, _job: JobId, _event: &Event, _ask: &Ask) -> Tried<()> {
        Tried::Refused(())
    }

    fn attempt(&mut self, _event: &Event, request: Output) -> Tried<Output> {
        Tried::Refused(request)
    }
}

/// Settings that change how events are handled.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    pub event_timeout: Duration,
    pub exec_delay: Duration,
    pub blockdev_read_only: bool,
    /// NAME= is sanitised strictly (naming schemes from v249, rules.md 6.1).
    pub strict_names: bool,
    /// `rd.` words of the kernel command line count (rules.md section 4, IMPORT{cmdline}).
    pub in_initrd: bool,
    /// Waiting events above which equal ones are merged. Below it every event has its announcement.
    pub coalesce_above: usize,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig {
            event_timeout: Duration::from_secs(180),
            exec_delay: Duration::ZERO,
            blockdev_read_only: false,
            strict_names: true,
            in_initrd: false,
            coalesce_above: 16 * 1024,
        }
    }
}

/// Where a job stands, for `status`.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct JobStatus {
    pub job: u64,
    pub seqnum: u64,
    pub action: String,
    pub devpath: String,
    /// Name of the phase, `rules`, `run`, `lock`, ...
    pub phase: String,
    /// What it waits for, empty if it does not.
    pub waits_for: String,
    /// Since when, seconds of CLOCK_MONOTONIC.
    pub since: f64,
}

/// What was done since the start, for `status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counters {
    pub received: u64,
    pub finished: u64,
    pub merged: u64,
    pub cancelled: u64,
    pub duplicates: u64,
}

/// How far a job came.
enum Progress {
    Stands,
    Ended,
}

/// See the module.
pub struct Engine {
    config: EngineConfig,
    programs: Programs,
    globals: Arc<Properties>,
    queue: Queue,
    jobs: HashMap<JobId, Box<Job>, BuildFnv>,
    timers: BTreeSet<(Now, JobId)>,
    /// Jobs whose rules have paused, in the order of their turns.
    paused: VecDeque<JobId>,
    outputs: VecDeque<Output>,
    counters: Counters,
    next_job: u64,
    /// The highest SEQNUM that came in.
    newest: Option<SeqNum>,
    stopped: bool,
    exiting: bool,
    /// The queue file exists.
    busy: bool,
}

impl Engine {
    /// Jobs at once. A parked job costs a few kilobytes; what limits programs is children_max.
    pub const MAX_JOBS: usize = 4096;

    /// An idle engine.
    pub fn new(config: EngineConfig, rules: Arc<RuleSet>) -> Engine {
        Engine {
            programs: Programs::new(rules),
            globals: Arc::default(),
            queue: Queue::new(config.coalesce_above),
            config,
            jobs: HashMap::default(),
            timers: BTreeSet::new(),
            paused: VecDeque::new(),
            outputs: VecDeque::new(),
            counters: Counters::default(),
            next_job: 1,
            newest: None,
            stopped: false,
            exiting: false,
            busy: false,
        }
    }

    /// New settings, for events started from now on.
    pub fn set_config(&mut self, config: EngineConfig) {
        self.config = config;
    }

    /// Takes one input.
    pub fn handle(&mut self, input: Input, now: Now, at_once: &mut dyn AtOnce) {
        match input {
            Input::Uevent(uevent) => self.insert(uevent, now),
            Input::Start => self.start_one(now, at_once),
            Input::GoOn => {
                if let Some(id) = self.paused.pop_front() {
                    self.drive(id, now, at_once);
                }
            }
            Input::Answer { job, answer } => self.reply(job, Reply::Answer(answer), now, at_once),
            Input::Performed { job, done } => self.reply(job, Reply::Done(done), now, at_once),
            Input::Ran { job } => self.reply(job, Reply::Ran, now, at_once),
            Input::DiskMayBeFree { devpath } => self.retry_locks(&devpath, now),
            Input::Rules(rules) => self.programs = Programs::new(rules),
            Input::StopQueue => self.stopped = true,
            Input::StartQueue => self.stopped = false,
            Input::SetGlobal { name, value } => self.set_global(name, value),
            Input::Exit => self.exit(),
            Input::Tick => {}
        }
        self.wake(now, at_once);
        self.tell_busy();
    }

    /// The next thing to do; None when all is drained.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to come back with [`Input::Tick`] at the latest.
    pub fn poll_timeout(&self) -> Option<Now> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// The event of a running job: what children get as environment, what builtins read.
    pub fn event(&self, job: JobId) -> Option<&Event> {
        self.jobs.get(&job).map(|j| j.event())
    }

    /// When work on a job began: the time budget of its programs counts from here.
    pub fn job_started(&self, job: JobId) -> Option<Now> {
        self.jobs.get(&job).map(|j| j.started)
    }

    /// Number of events waiting and running.
    pub fn queue_len(&self) -> (usize, usize) {
        (self.queue.waiting(), self.queue.running())
    }

    /// The highest SEQNUM that came in.
    pub fn newest(&self) -> Option<SeqNum> {
        self.newest
    }

    /// The lowest SEQNUM that waits or runs; looks at all events.
    pub fn oldest(&self) -> Option<SeqNum> {
        self.queue.oldest()
    }

    /// The highest SEQNUM below `limit` that no event waits or runs under: for an event that we make
    /// ourselves.
    pub fn free_below(&self, limit: SeqNum) -> Option<SeqNum> {
        (1..limit.0).rev().map(SeqNum).find(|&number| !self.queue.contains(number))
    }

    /// Whether an event of this device waits or runs.
    pub fn has_event_of(&self, id: &DeviceId) -> bool {
        self.queue.may_have_event_of(id)
            && (self.jobs.values().any(|job| job.is_of(id)) || self.queue.has_waiting_event_of(id))
    }

    /// Devices of which events wait or run; looks at all of them.
    pub fn devices(&self) -> Vec<DeviceId> {
        let running = self.jobs.values().filter_map(|job| job.device_id().cloned());
        running.chain(self.queue.waiting_devices()).collect()
    }

    /// What was done since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Running jobs in the order they started.
    pub fn status(&self) -> Vec<JobStatus> {
        let mut jobs: Vec<JobStatus> = self.jobs.values().map(|j| j.status()).collect();
        jobs.sort_by_key(|j| j.job);
        jobs
    }

    /// No event waits or runs.
    pub fn is_idle(&self) -> bool {
        self.queue.waiting() == 0 && self.jobs.is_empty()
    }

    /// Jobs that have begun and not ended.
    pub fn under_way(&self) -> usize {
        self.jobs.len()
    }

    /// After [`Input::Exit`]: all that had begun has ended.
    pub fn has_exited(&self) -> bool {
        self.exiting && self.jobs.is_empty() && self.outputs.is_empty()
    }

    fn insert(&mut self, uevent: Uevent, now: Now) {
        self.counters.received += 1;
        self.newest = self.newest.max(Some(uevent.seqnum));
        if uevent.subsystem == "block" {
            self.retry_locks(&uevent.devpath, now);
        }
        match self.queue.insert(uevent, now) {
            Inserted::Queued => {}
            Inserted::Merged => self.counters.merged += 1,
            Inserted::Cancelled => self.counters.cancelled += 1,
            Inserted::Duplicate => self.counters.duplicates += 1,
        }
    }

    fn set_global(&mut self, name: BString, value: BString) {
        let globals = Arc::make_mut(&mut self.globals);
        if value.is_empty() {
            globals.remove(&name);
        } else {
            globals.set(&name, value);
        }
    }

    /// Events of this disk or partition, or of a part or the whole of it, that wait for a lock try again.
    fn retry_locks(&mut self, devpath: &[u8], now: Now) {
        for job in self.jobs.values_mut() {
            let waiting = &job.event().device.devpath;
            if (lies_in(waiting, devpath) || lies_in(devpath, waiting)) && job.retry_lock(now) {
                self.timers.insert((now, job.id));
            }
        }
    }

    /// Jobs that still wait for a lock have not begun: like queued events they are left.
    fn exit(&mut self) {
        self.exiting = true;
        let unbegun: Vec<JobId> = self.jobs.values().filter(|j| !j.has_begun()).map(|j| j.id).collect();
        for id in unbegun {
            self.timers.retain(|&(_, job)| job != id);
            self.end(id);
        }
    }

    fn wake(&mut self, now: Now, at_once: &mut dyn AtOnce) {
        while let Some(&(at, id)) = self.timers.first().filter(|&&(at, _)| at <= now) {
            self.timers.remove(&(at, id));
            self.drive(id, now, at_once);
        }
    }

    /// Whether [`Input::Start`] would start an event.
    pub fn can_start(&self) -> bool {
        !self.stopped && !self.exiting && self.jobs.len() < Engine::MAX_JOBS && self.queue.has_ready()
    }

    /// Whether a job has paused: [`Input::GoOn`].
    pub fn can_go_on(&self) -> bool {
        !self.paused.is_empty()
    }

    fn start_one(&mut self, now: Now, at_once: &mut dyn AtOnce) {
        if !self.can_start() {
            return;
        }
        let Some(ready) = self.queue.take_ready() else { return };
        let id = JobId(self.next_job);
        self.next_job += 1;
        let mut job = Job::new(id, ready, now);
        // Most jobs end here and are never looked up.
        match self.advance(&mut job, now, at_once) {
            Progress::Stands => drop(self.jobs.insert(id, Box::new(job))),
            Progress::Ended => self.ended(&job),
        }
    }

    fn reply(&mut self, id: JobId, reply: Reply, now: Now, at_once: &mut dyn AtOnce) {
        let Some(mut job) = self.jobs.remove(&id) else { return };
        self.outputs.extend(job.reply(reply, now));
        self.go_on(job, now, at_once);
    }

    fn drive(&mut self, id: JobId, now: Now, at_once: &mut dyn AtOnce) {
        if let Some(job) = self.jobs.remove(&id) {
            self.go_on(job, now, at_once);
        }
    }

    fn go_on(&mut self, mut job: Box<Job>, now: Now, at_once: &mut dyn AtOnce) {
        match self.advance(&mut job, now, at_once) {
            Progress::Stands => drop(self.jobs.insert(job.id, job)),
            Progress::Ended => self.ended(&job),
        }
    }

    /// Goes on with a job as far as it can go.
    fn advance(&mut self, job: &mut Job, now: Now, at_once: &mut dyn AtOnce) -> Progress {
        loop {
            let tried = match job.step(&self.config, now) {
                Step::Ask => self.try_question(job, at_once),
                // What was put out before comes first.
                Step::Request(request) if !self.outputs.is_empty() => Tried::Refused(request),
                Step::Request(request) => at_once.attempt(job.event(), request),
                Step::Tell(outputs) => {
                    self.outputs.extend(outputs);
                    continue;
                }
                Step::WaitUntil(at) => {
                    self.timers.insert((at, job.id));
                    return Progress::Stands;
                }
                Step::Pause if at_once.has_time() => continue,
                Step::Pause => {
                    self.paused.push_back(job.id);
                    return Progress::Stands;
                }
                Step::Waiting => return Progress::Stands,
                Step::WantRules => {
                    job.give_rules(RulesContext {
                        program: self.programs.for_event(job.event()),
                        config: EvalConfig {
                            globals: self.globals.clone(),
                            strict_names: self.config.strict_names,
                            in_initrd: self.config.in_initrd,
                        },
                    });
                    continue;
                }
                Step::Finished => return Progress::Ended,
            };
            match tried {
                Tried::Replied(reply) => self.outputs.extend(job.reply(reply, now)),
                Tried::Taken => return Progress::Stands,
                Tried::Refused(request) => {
                    self.outputs.push_back(request);
                    return Progress::Stands;
                }
            }
        }
    }

    /// The question is copied only when it comes out.
    fn try_question(&self, job: &Job, at_once: &mut dyn AtOnce) -> Tried<Output> {
        let Some(ask) = job.asked() else { return Tried::Taken };
        let tried = match self.outputs.is_empty() {
            true => at_once.answer(job.id, job.event(), ask),
            false => Tried::Refused(()),
        };
        match tried {
            Tried::Replied(reply) => Tried::Replied(reply),
            Tried::Taken => Tried::Taken,
            Tried::Refused(()) => Tried::Refused(Output::Ask { job: job.id, ask: ask.clone() }),
        }
    }

    fn end(&mut self, id: JobId) {
        if let Some(job) = self.jobs.remove(&id) {
            self.ended(&job);
        }
    }

    fn ended(&mut self, job: &Job) {
        self.queue.finish(job.entry);
        self.counters.finished += 1;
    }

    fn tell_busy(&mut self) {
        let busy = !self.is_idle();
        if busy != self.busy {
            self.busy = busy;
            self.outputs.push_back(Output::Busy(busy));
        }
    }
}

#[cfg(test)]
mod tests;
