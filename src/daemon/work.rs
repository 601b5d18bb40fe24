//! The work on events: the engine, what has come in for it, and who meets the needs of its jobs (children, helpers,
//! the link table, the stores).
//!
//! Must stay true: nothing here waits; every ask and effect of the engine is replied to by an [`Input`], now or later.
//! What serves the work from outside (clients, upkeep) gets it as an argument; it knows nothing of them.

use super::questions::Questions;
use super::recorder::Recorder;
use super::sources::children::{self, Budget, Children, Finished, Purpose, Wanted};
use super::sources::intake::Intake;
use super::sources::links::{Answered, Links, RtnlFor};
use super::sources::source::Sources;
use super::stats::Stats;
use super::upkeep::leftovers::Leftovers;
use super::upkeep::queue_file::QueueFile;
use crate::engine::{Engine, Input, JobId, JobReply, Notice, Output};
use crate::helper::pool::{Order, Pool};
use crate::links;
use crate::model::need::{Fact, Need};
use crate::model::operation::{Operation, OperationReply};
use crate::model::{Errno, IfIndex, Now};
use crate::sys::clock::monotonic;
use crate::sys::process;
use crate::tasks::{Pending, Stores};
use crate::world::config::{self, Settings};
use crate::world::{Roots, Sysfs};
use bstr::{BStr, BString};
use log::LevelFilter;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;

/// Who has asked a helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A job: the reply goes to [`Work::helper_replied`].
    Job(JobId),
    /// Devices that are triggered one batch after the other.
    Coldplug,
    /// The look for changed rules.
    Rules,
    /// Reading them.
    Reload,
    /// A `change` for devices whose nodes were written to; see [`crate::tasks::follow_ups`].
    Trigger {
        follow_up: u64,
        /// What is to be tried again should the helper die.
        again: Option<Operation>,
    },
    /// The partition table of this disk, after its node was written to.
    ReRead { devpath: BString, follow_up: u64 },
}

/// See the module.
pub struct Work {
    pub roots: Roots,
    pub sysfs: Sysfs,
    /// In force; clients may have changed them since they were read.
    pub settings: Settings,
    pub engine: Engine,
    /// What came from outside and the engine gets next.
    pub inbox: VecDeque<Input>,
    /// What requests of jobs have waited for.
    pub facts: VecDeque<(JobId, Fact)>,
    /// Jobs whose effect of many parts has paused, in the order of their turns.
    pub resting: VecDeque<(JobId, Fact)>,
    /// Whose turn it is: these, or jobs whose rules have paused.
    pub resting_next: bool,
    pub sources: Sources,
    pub intake: Intake,
    pub links: Links,
    pub children: Children,
    pub helpers: Pool<Caller>,
    pub leftovers: Leftovers,
    pub queue_file: QueueFile,
    pub recorder: Option<Recorder>,
    pub stats: Stats,
    /// What requests of jobs are done with.
    pub stores: Stores,
    /// What helpers are asked that several jobs want to know.
    pub questions: Questions,
    /// Properties that clients have set for all events: programs get them too.
    pub globals: BTreeMap<BString, BString>,
    /// Jobs whose rules asked for a log level of their own.
    pub job_levels: HashMap<JobId, LevelFilter>,
    /// Time is taken once per input.
    pub now: Now,
}

/// What [`Work::read_uevents`] has found.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadUevents {
    pub came: bool,
    /// Nobody knows which.
    pub were_lost: bool,
}

impl Work {
    /// All that came in was handled.
    pub fn is_through(&self) -> bool {
        self.inbox.is_empty() && self.facts.is_empty() && self.resting.is_empty()
    }

    /// Nothing is queued, running or under way.
    pub fn is_idle(&self) -> bool {
        self.is_through() && self.engine.is_idle() && self.helpers.is_idle()
    }

    /// One input to the engine, and what it wants then.
    pub fn input(&mut self, input: Input) {
        self.stores.turn.begin(self.now);
        self.give(input);
        self.serve_all();
    }

    /// One input to the engine.
    fn give(&mut self, input: Input) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(&input, self.now);
        }
        self.stats.inputs += 1;
        if matches!(&input, Input::Uevent(uevent) if uevent.subsystem == "bus") {
            self.stores.answers.attributes.forget_buses();
        }
        self.engine.handle(input, self.now);
    }

    /// Does what the engine wants, until it wants nothing more.
    fn serve_all(&mut self) {
        while self.serve_one() {}
        // What could not even be started is over at once.
        if self.children.has_finished() {
            self.take_finished();
        }
    }

    /// Does the next thing that the engine wants; false if there is nothing.
    fn serve_one(&mut self) -> bool {
        match self.engine.poll(self.now) {
            None => return false,
            Some(Output::Request { job, event, request }) => {
                let usual = self.job_levels.get(&job).map(|level| set_level(*level));
                let tried = self.stores.attempt(&mut self.links.exchange.table, job, event, request, &[]);
                self.settle(job, tried, Pending::default());
                usual.map(set_level);
            }
            Some(Output::Pause { .. }) if self.stores.turn.has_time() => self.give(Input::GoOn),
            Some(Output::Pause { .. }) => {}
            Some(Output::Notice(notice)) => self.take_notice(notice),
        }
        true
    }

    fn take_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Busy(busy) => {
                self.leftovers.set_busy(busy, self.now);
                self.mark_queue();
            }
            Notice::LogLevel { job, level: Some(level) } => drop(self.job_levels.insert(job, level)),
            Notice::LogLevel { job, level: None } => drop(self.job_levels.remove(&job)),
            Notice::Log { level, text } => log::log!(level, "{text}"),
        }
    }

    /// Takes what children have brought.
    pub fn take_finished(&mut self) {
        for finished in self.children.take_finished() {
            self.program_ended(finished);
        }
    }

    /// Gives the engine what came in, its own time included.
    pub fn take_inbox(&mut self) {
        if self.engine.poll_timeout().is_some_and(|at| at <= self.now) {
            self.inbox.push_back(Input::Tick);
        }
        while let Some(input) = self.inbox.pop_front() {
            self.input(input);
        }
    }

    /// Rules and effects that take long get as much time as all others together.
    pub fn go_on_with_one(&mut self) {
        if self.resting.is_empty() && !self.engine.can_go_on() {
            return;
        }
        self.now = monotonic();
        self.resting_next = !self.resting_next || !self.engine.can_go_on();
        let resting = if self.resting_next { self.resting.pop_front() } else { None };
        match resting {
            Some((job, fact)) => self.learn(job, fact),
            None => self.input(Input::GoOn),
        }
    }

    /// The file that `settle` looks at.
    pub fn mark_queue(&mut self) {
        self.queue_file.set(!self.engine.is_idle() || self.stores.follow_ups.oldest().is_some());
    }

    /// The table was told of the link that this job waits for, or will not be.
    pub fn link_is_known(&mut self, job: JobId) {
        self.facts.push_back((job, Fact::Link));
    }

    /// The table has caught up with the uevents: this job may ask it.
    pub fn links_are_read(&mut self, job: JobId) {
        self.facts.push_back((job, Fact::LinksRead));
    }

    /// A helper has done what this job wanted, and has perhaps opened something for it.
    pub fn helper_replied(&mut self, job: JobId, reply: OperationReply, file: Option<OwnedFd>) {
        if let Some(file) = file {
            self.stores.locks.pass(job, file);
        }
        self.facts.push_back((job, Fact::Helper(reply)));
    }

    /// The request helper has told the driver that this job wanted.
    pub fn driver_is_known(&mut self, job: JobId, driver: Result<BString, Errno>) {
        self.facts.push_back((job, Fact::Driver(driver)));
        let waiting = self.questions.end(job);
        self.facts.extend(waiting.into_iter().map(|job| (job, Fact::Asked)));
    }

    /// The kernel has answered a request of this job.
    pub fn rtnl_replied(&mut self, job: JobId, reply: links::Reply) {
        if let (Err(errno), false) = (reply.result, reply.text.is_empty()) {
            log::debug!("The kernel says: {}: {errno}", reply.text);
        }
        self.facts.push_back((job, Fact::Rtnl(reply.result)));
    }

    /// A program of this job has ended.
    pub fn program_ended(&mut self, finished: Finished) {
        let Finished { job, exit, lacked, .. } = finished;
        if lacked && let Some(event) = self.engine.event(job) {
            self.stores.unfinished.on_lack(event);
        }
        self.facts.push_back((job, Fact::Exit(exit)));
    }

    /// Tries the request of a job again with one fact more. Where there is no such job any more, a disk that was opened for
    /// it is closed by a helper.
    pub fn learn(&mut self, job: JobId, fact: Fact) {
        self.stores.turn.begin(self.now);
        if self.engine.event(job).is_none()
            && let Fact::Helper(_) = fact
        {
            self.stores.pending.remove(&job);
            let disk = self.stores.locks.take_file(job);
            return self.helpers.give_back(disk, &BString::default(), self.now);
        }
        if let Some(mut pending) = self.stores.pending.remove(&job) {
            pending.learn(fact);
            self.attempt(job, pending);
            self.serve_all();
        }
    }

    /// Tries again what a job wants.
    fn attempt(&mut self, job: JobId, pending: Pending) {
        let Some((event, request)) = self.engine.request(job) else { return };
        let usual = self.job_levels.get(&job).map(|level| set_level(*level));
        let tried = self.stores.attempt(&mut self.links.exchange.table, job, event, request, &pending.facts);
        self.settle(job, tried, pending);
        usual.map(set_level);
    }

    /// What a try has given: the reply is the engine's next input, a need is met first.
    fn settle(&mut self, job: JobId, tried: Result<JobReply, Need>, pending: Pending) {
        match tried {
            Ok(reply) => {
                if let Some(recorder) = &mut self.recorder {
                    recorder.record(&Input::Reply { job, reply: reply.clone() }, self.now);
                }
                self.stats.inputs += 1;
                self.engine.reply(job, reply, self.now);
            }
            Err(need) => {
                self.stores.pending.insert(job, pending);
                self.meet(job, need);
            }
        }
    }

    fn meet(&mut self, job: JobId, need: Need) {
        match need {
            Need::LinksRead => self.links.park_until_read(job),
            Need::Link(ifindex) => self.park_for_link(job, ifindex),
            Need::FreshLink { ifindex, statistics } => self.park_for_refresh(job, ifindex, statistics),
            Need::Program { command, capture } => {
                let purpose = if capture { Purpose::Ask } else { Purpose::Run };
                self.run_program(job, purpose, command.as_ref());
            }
            Need::Helper(operation) => self.ask_helper(job, operation),
            Need::Driver { ifname, constant_of } => {
                if self.questions.begin(job, constant_of) {
                    self.request_rtnl(job, RtnlFor::Driver, links::request::ask_driver(&ifname, 0));
                }
            }
            Need::Rtnl(request) => self.request_rtnl(job, RtnlFor::Job, request),
            Need::Undo(request) => {
                self.links.request(request, RtnlFor::Job(job), self.now + self.settings.event_timeout);
            }
            Need::Turn(progress) => self.resting.push_back((job, Fact::Turn(progress))),
        }
    }

    fn take_answers(&mut self, answered: Answered) {
        for job in answered.caught_up {
            self.links_are_read(job);
        }
        for job in answered.heard {
            self.link_is_known(job);
        }
        for (job, reply) in answered.replies {
            self.rtnl_replied(job, reply);
        }
        for (job, driver) in answered.drivers {
            self.driver_is_known(job, driver);
        }
    }

    /// Starts a program for a job, in its environment and within its time; its end goes to
    /// [`Work::program_ended`].
    pub fn run_program(&mut self, job: JobId, purpose: Purpose, command: &BStr) {
        let Some(event) = self.engine.event(job) else { return };
        let env = children::environment(event, &self.globals);
        let title = event.title().to_string();
        let started = self.engine.job_started(job).unwrap_or(self.now);
        let budget = Budget::new(started, self.settings.event_timeout);
        let device = event.device.devpath.clone();
        let wanted = Wanted { job, purpose, event: title, device, command: command.to_owned(), env, budget };
        self.stats.children += 1;
        self.children.spawn(&self.sources, wanted, self.now);
    }

    /// Has a helper perform an operation for a job, within the job's time.
    pub fn ask_helper(&mut self, job: JobId, operation: Operation) {
        let started = self.engine.job_started(job).unwrap_or(self.now);
        let file = self.stores.locks.take_passed(job, &operation);
        let order = Order { operation, file };
        self.request_helper(Caller::Job(job), order, started + self.settings.event_timeout);
    }

    /// Has a helper perform an operation for anyone.
    pub fn request_helper(&mut self, caller: Caller, order: impl Into<Order>, deadline: Now) {
        self.stats.helper_requests += 1;
        self.helpers.request(caller, order, deadline, self.now, &self.sources);
    }

    /// Has a job told ([`Work::link_is_known`]) when the table knows this link, or knows
    /// that it is not there.
    pub fn park_for_link(&mut self, job: JobId, ifindex: IfIndex) {
        self.links.park(job, ifindex, self.now);
    }

    /// The same when the kernel has told this link anew.
    pub fn park_for_refresh(&mut self, job: JobId, ifindex: IfIndex, statistics: bool) {
        self.links.refresh(job, ifindex, statistics, self.now);
    }

    /// Sends an rtnetlink request for a job. The reply goes to [`Work::rtnl_replied`] or
    /// [`Work::driver_is_known`], as `what` says.
    pub fn request_rtnl(&mut self, job: JobId, what: fn(JobId) -> RtnlFor, request: Vec<u8>) {
        let started = self.engine.job_started(job).unwrap_or(self.now);
        let deadline = started + self.settings.event_timeout;
        self.links.request(request, what(job), deadline);
    }

    /// A property for all events from here on; an empty value unsets it.
    pub fn set_global(&mut self, name: BString, value: BString) {
        match value.is_empty() {
            true => drop(self.globals.remove(&name)),
            false => drop(self.globals.insert(name.clone(), value.clone())),
        }
        self.inbox.push_back(Input::SetGlobal { name, value });
    }

    /// Programs at one time; 0: by the size of the machine.
    pub fn set_children_max(&mut self, max: u32) {
        self.settings.children_max = usize::try_from(max).ok().filter(|&max| max > 0);
        self.children.set_max(children_max(&self.settings));
    }

    /// All uevents that have come are in the queue.
    pub fn is_read(&self) -> bool {
        self.inbox.is_empty() && !self.intake.is_ready()
    }

    /// Reads this turn's share of uevents.
    pub fn read_uevents(&mut self) -> ReadUevents {
        let before = self.inbox.len();
        let were_lost = self.intake.is_ready() && self.intake.read(&mut self.inbox, &mut self.stats);
        ReadUevents { came: self.inbox.len() > before, were_lost }
    }

    /// Brings the link table up to date, after uevents were read and before they are handled.
    pub fn read_links(&mut self, uevents_came: bool) {
        let mut answered = Answered::default();
        self.links.read(uevents_came, self.now, &mut answered);
        self.links.on_time(self.now, &mut answered);
        self.take_answers(answered);
    }

    /// Sends the rtnetlink requests of this turn.
    pub fn send_requests(&mut self) {
        let mut answered = Answered::default();
        self.links.send_requests(&self.sources, self.now, &mut answered);
        self.take_answers(answered);
    }

    /// Reads what programs have written, and ends those whose time is over.
    pub fn go_on_with_children(&mut self) {
        self.children.read_on();
        self.children.on_time(&self.sources, self.now);
    }

    /// Writes on what the trace has not taken yet.
    pub fn go_on_with_recorder(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.on_time(self.now);
        }
    }

    /// Where a device is in sysfs, as a path of this machine.
    pub fn syspath(&self, devpath: &[u8]) -> BString {
        self.sysfs.path(devpath).into_os_string().into_encoded_bytes().into()
    }
}

/// Sets the level of the log, and returns that of before.
fn set_level(level: LevelFilter) -> LevelFilter {
    let before = log::max_level();
    log::set_max_level(level);
    before
}

/// Programs at one time under these settings.
pub fn children_max(settings: &Settings) -> usize {
    let computed = || config::default_children_max(process::cpus(), process::memory());
    settings.children_max.unwrap_or_else(computed)
}
