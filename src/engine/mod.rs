//! The logic, without I/O: which event may run now ([`queue`]), what comes next in it ([`job`]).
//!
//! Contract: after every [`Engine::handle`], take outputs with [`Engine::poll`] until there is none. A reply that needs
//! no waiting is the next input at once, before the next output; all other inputs come when there is no output left.
//! While [`Engine::can_start`] or [`Engine::can_go_on`], give [`Input::Start`] or [`Input::GoOn`] sooner or later. Every
//! [`Output::Request`] is replied to exactly once. Wake up at [`Engine::poll_timeout`] with [`Input::Tick`].
//!
//! Must stay true: the engine decides the same whether a reply comes at once or later, for a job stands still meanwhile.

pub mod job;
pub mod messages;
pub mod queue;

use crate::model::device::lies_in;
use crate::model::fnv::BuildFnv;
use crate::model::{DeviceId, Event, Now, Properties, SeqNum, Uevent};
use crate::rules::eval::EvalConfig;
use crate::rules::program::RuleSet;
use crate::rules::skip::Programs;
use bstr::BString;
pub use job::JobStatus;
use job::{Job, JobStep};
pub use messages::{Input, JobId, JobReply, JobRequest, Notice, Output};
use queue::{Inserted, Queue, QueuedId};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

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

/// What was done since the start, for `status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counters {
    pub received: u64,
    pub finished: u64,
    pub merged: u64,
    pub cancelled: u64,
    pub duplicates: u64,
}

/// See the module.
pub struct Engine {
    config: EngineConfig,
    programs: Programs,
    globals: Arc<Properties>,
    queue: Queue,
    /// The job that goes on; it stays here as long as it is replied to at once.
    current: Option<Job>,
    /// All others.
    jobs: HashMap<JobId, Box<Job>, BuildFnv>,
    timers: BTreeSet<(Now, JobId)>,
    /// Jobs whose rules have paused, in the order of their turns.
    paused: VecDeque<JobId>,
    /// The last output said that the rules of the current job pause.
    is_pausing: bool,
    notices: VecDeque<Notice>,
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
            current: None,
            jobs: HashMap::default(),
            timers: BTreeSet::new(),
            paused: VecDeque::new(),
            is_pausing: false,
            notices: VecDeque::new(),
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
    pub fn handle(&mut self, input: Input, now: Now) {
        match input {
            Input::Uevent(uevent) => self.insert(uevent, now),
            Input::Start => self.start_one(now),
            Input::GoOn => self.go_on(),
            Input::Reply { job, reply } => self.reply(job, reply, now),
            Input::DiskMayBeFree { devpath } => self.retry_locks(&devpath, now),
            Input::Rules(rules) => self.programs = Programs::new(rules),
            Input::StopQueue => self.stopped = true,
            Input::StartQueue => self.stopped = false,
            Input::SetGlobal { name, value } => self.set_global(name, value),
            Input::Exit => self.exit(),
            Input::Tick => {}
        }
    }

    /// The next thing to do; None when there is nothing more.
    pub fn poll(&mut self, now: Now) -> Option<Output<'_>> {
        if std::mem::take(&mut self.is_pausing) {
            self.paused.extend(self.current.as_ref().map(|job| job.id));
            self.put_aside();
        }
        loop {
            if let Some(notice) = self.notices.pop_front() {
                return Some(Output::Notice(notice));
            }
            if self.current.is_none() && !self.wake(now) {
                return self.tell_busy();
            }
            if self.advance(now) {
                let job = self.current.as_ref()?;
                return Some(match job.request() {
                    Some(request) => Output::Request { job: job.id, event: job.event(), request },
                    None => Output::Pause { job: job.id },
                });
            }
        }
    }

    /// What a job waits for a reply to, with its event.
    pub fn request(&self, job: JobId) -> Option<(&Event, JobRequest<'_>)> {
        let job = self.job(job)?;
        Some((job.event(), job.request()?))
    }

    /// When to come back with [`Input::Tick`] at the latest.
    pub fn poll_timeout(&self) -> Option<Now> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// The event of a running job: what children get as environment, what builtins read.
    pub fn event(&self, job: JobId) -> Option<&Event> {
        self.job(job).map(|j| j.event())
    }

    /// When work on a job began: the time budget of its programs counts from here.
    pub fn job_started(&self, job: JobId) -> Option<Now> {
        self.job(job).map(|j| j.started)
    }

    fn job(&self, id: JobId) -> Option<&Job> {
        match &self.current {
            Some(job) if job.id == id => Some(job),
            _ => self.jobs.get(&id).map(|job| &**job),
        }
    }

    fn all_jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values().map(|job| &**job).chain(&self.current)
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
            && (self.all_jobs().any(|job| job.device_id() == Some(id)) || self.queue.has_waiting_event_of(id))
    }

    /// Devices of which events wait or run; looks at all of them.
    pub fn devices(&self) -> Vec<DeviceId> {
        let running = self.all_jobs().filter_map(|job| job.device_id().cloned());
        running.chain(self.queue.waiting_devices()).collect()
    }

    /// What was done since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Running jobs in the order they started.
    pub fn status(&self) -> Vec<JobStatus> {
        let mut jobs: Vec<JobStatus> = self.all_jobs().map(|j| j.status()).collect();
        jobs.sort_by_key(|j| j.job);
        jobs
    }

    /// No event waits or runs.
    pub fn is_idle(&self) -> bool {
        self.queue.waiting() == 0 && self.under_way() == 0
    }

    /// Jobs that have begun and not ended.
    pub fn under_way(&self) -> usize {
        self.jobs.len() + usize::from(self.current.is_some())
    }

    /// After [`Input::Exit`]: all that had begun has ended.
    pub fn has_exited(&self) -> bool {
        self.exiting && self.under_way() == 0 && self.notices.is_empty()
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

    /// Makes a job current whose time has come; false if there is none.
    fn wake(&mut self, now: Now) -> bool {
        while self.current.is_none() && self.timers.first().is_some_and(|&(at, _)| at <= now) {
            let Some((_, id)) = self.timers.pop_first() else { break };
            self.current = self.jobs.remove(&id).map(|job| *job);
        }
        self.current.is_some()
    }

    /// Whether [`Input::Start`] would start an event.
    pub fn can_start(&self) -> bool {
        !self.stopped && !self.exiting && self.jobs.len() < Engine::MAX_JOBS && self.queue.has_ready()
    }

    /// Whether a job has paused: [`Input::GoOn`].
    pub fn can_go_on(&self) -> bool {
        !self.paused.is_empty()
    }

    fn start_one(&mut self, now: Now) {
        if !self.can_start() {
            return;
        }
        let Some(ready) = self.queue.take_ready() else { return };
        let id = JobId(self.next_job);
        self.next_job += 1;
        self.put_aside();
        self.current = Some(Job::new(id, ready, now));
    }

    /// The same as [`Engine::handle`] with [`Input::Reply`], for replies that come at once, which are many.
    pub fn reply(&mut self, id: JobId, reply: JobReply, now: Now) {
        self.take_up(id);
        if let Some(job) = &mut self.current
            && let Some(notice) = job.reply(reply, now)
        {
            self.notices.push_back(notice);
        }
    }

    fn go_on(&mut self) {
        if !std::mem::take(&mut self.is_pausing)
            && let Some(id) = self.paused.pop_front()
        {
            self.take_up(id);
        }
    }

    /// Makes this job the current one, if there still is such a job.
    fn take_up(&mut self, id: JobId) {
        if self.current.as_ref().is_none_or(|job| job.id != id) {
            self.put_aside();
            self.current = self.jobs.remove(&id).map(|job| *job);
        }
    }

    fn put_aside(&mut self) {
        if let Some(job) = self.current.take() {
            self.jobs.insert(job.id, Box::new(job));
        }
    }

    /// Goes on with the current job. True if it has a request or pauses; false if there is something to tell first, or
    /// if another job may be current now.
    fn advance(&mut self, now: Now) -> bool {
        loop {
            let Some(job) = &mut self.current else { return false };
            match job.step(&self.config, now) {
                JobStep::Request => return true,
                JobStep::Pause => {
                    self.is_pausing = true;
                    return true;
                }
                JobStep::Tell(notices) => {
                    self.notices.extend(notices);
                    return false;
                }
                JobStep::WaitUntil(at) => {
                    self.timers.insert((at, job.id));
                    self.put_aside();
                    return false;
                }
                JobStep::Waiting => {
                    self.put_aside();
                    return false;
                }
                JobStep::WantRules => {
                    let config = EvalConfig {
                        globals: self.globals.clone(),
                        strict_names: self.config.strict_names,
                        in_initrd: self.config.in_initrd,
                    };
                    job.give_rules(self.programs.for_event(job.event()), config);
                }
                JobStep::Finished => {
                    let queued = job.queued;
                    self.current = None;
                    self.ended(queued);
                    return false;
                }
            }
        }
    }

    fn end(&mut self, id: JobId) {
        if let Some(job) = self.jobs.remove(&id) {
            self.ended(job.queued);
        }
    }

    fn ended(&mut self, queued: QueuedId) {
        self.queue.finish(queued);
        self.counters.finished += 1;
    }

    fn tell_busy(&mut self) -> Option<Output<'_>> {
        let busy = !self.is_idle();
        let changed = std::mem::replace(&mut self.busy, busy) != busy;
        changed.then_some(Output::Notice(Notice::Busy(busy)))
    }
}

#[cfg(test)]
mod tests;
