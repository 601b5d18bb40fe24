//! The one owner of everything, and the loop.
//!
//! A turn: wait; note which descriptors are readable; go through [`PARTS`] in their order: what came in is read
//! (uevents before links, so that an event finds its link), the engine gets one input after the other and what it
//! wants after each is done, then comes the upkeep, each part a bounded share, so that none starves the others.
//!
//! Must stay true: nothing here waits but the poll itself; every ask and effect is replied to by an [`Input`];
//! who wakes the loop stands in [`PARTS`], beside what the loop does then.

use super::answer::Here;
use super::questions::Questions;
use super::readiness::Readiness;
use super::recorder::Recorder;
use super::sources::children::{self, Budget, Children, Purpose, Wanted};
use super::sources::control::Control;
use super::sources::intake::Intake;
use super::sources::links::{Answered, Links, RtnlFor};
use super::sources::source::{Source, Sources};
use super::sources::status::StatusServer;
use super::turn::{self, Part};
use super::upkeep::coldplug::Coldplug;
use super::upkeep::leftovers::Leftovers;
use super::upkeep::queue_file::QueueFile;
use super::upkeep::reload::Rules;
use super::upkeep::resync::Resync;
use crate::engine::{Engine, Input, JobId, Output};
use crate::helper::pool::{Delivery, Order, Pool};
use crate::model::effect::Effect;
use crate::model::need::Fact;
use crate::model::operation::Operation;
use crate::model::{IfIndex, Now};
use crate::sys::clock::monotonic;
use crate::sys::process;
use crate::sys::signal::SignalFd;
use crate::tasks::portions::MAX_WORK;
use crate::tasks::{Stores, Task};
use crate::world::config::{self, Overrides, Settings};
use crate::world::{Roots, Sysfs, logger};
use bstr::{BStr, BString};
use log::LevelFilter;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;

/// Who has asked a helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A job: the reply goes to `helper_replied` of [`super::answer`].
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
pub struct Shell {
    pub roots: Roots,
    pub sysfs: Sysfs,
    pub settings: Settings,
    /// As last read from files and command lines; clients may have changed [`Shell::settings`] since.
    pub configured: Settings,
    /// What our own command line says.
    pub overrides: Overrides,
    pub engine: Engine,
    /// What came from outside and the engine gets next.
    pub inbox: VecDeque<Input>,
    /// Answers to what the engine wants.
    pub replies: VecDeque<Input>,
    /// What tasks have waited for.
    pub(super) facts: VecDeque<(JobId, Fact)>,
    /// Whose turn it is: facts, or events to start.
    pub(super) facts_next: bool,
    /// Jobs whose effect of many parts has paused, in the order of their turns.
    pub(super) resting: VecDeque<(JobId, Fact)>,
    /// Whose turn it is: these, or jobs whose rules have paused.
    pub(super) resting_next: bool,
    pub poll: mio::Poll,
    pub sources: Sources,
    pub intake: Intake,
    pub links: Links,
    pub children: Children,
    pub helpers: Pool<Caller>,
    pub control: Option<Control>,
    pub status: Option<StatusServer>,
    pub signals: Option<SignalFd>,
    pub rules: Rules,
    pub coldplug: Coldplug,
    pub resync: Resync,
    pub readiness: Readiness,
    pub leftovers: Leftovers,
    pub recorder: Option<Recorder>,
    pub stats: Stats,
    /// What tasks are done with.
    pub stores: Stores,
    /// What helpers are asked that several jobs want to know.
    pub(super) questions: Questions,
    /// Properties that clients have set for all events: programs get them too.
    pub globals: BTreeMap<BString, BString>,
    /// Jobs whose rules asked for a log level of their own.
    pub job_levels: HashMap<JobId, LevelFilter>,
    pub queue_file: QueueFile,
    /// `/run/udev` was removed and could not be made anew: said once.
    pub(super) is_unmendable: bool,
    pub exiting: bool,
    /// Time is taken once per input.
    pub now: Now,
}

/// What the loop counts, for `status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Stats {
    pub turns: u64,
    pub inputs: u64,
    /// The longest turn, waiting not counted, in microseconds.
    pub longest_turn_usec: u64,
    /// Overruns of the socket of uevents.
    pub uevents_lost: u64,
    pub uevents_refused: u64,
    pub children: u64,
    pub helper_requests: u64,
}

/// What a turn goes through, in this order, after it was told which descriptors are readable.
const PARTS: &[Part<Shell>] = &[
    Part {
        is_ready: |shell| shell.control.as_ref().is_some_and(Control::has_unread),
        deadline: |shell| shell.control.as_ref()?.listener().timeout(),
        go_on: Shell::go_on_with_clients,
    },
    Part::timed(|shell| shell.status.as_ref()?.listener().timeout(), Shell::go_on_with_status),
    Part {
        is_ready: |shell| shell.intake.is_ready() || shell.links.is_ready(),
        deadline: |shell| shell.links.timeout(),
        go_on: Shell::read_events,
    },
    Part {
        is_ready: |shell| shell.children.has_unread(),
        deadline: |shell| shell.children.timeout(),
        go_on: Shell::go_on_with_children,
    },
    Part {
        is_ready: |shell| shell.helpers.has_reply(),
        deadline: |shell| shell.helpers.timeout(),
        go_on: Shell::go_on_with_helpers,
    },
    Part {
        is_ready: |shell| shell.stores.watches.is_ready(),
        deadline: |_| None,
        go_on: Shell::read_watches,
    },
    Part::timed(|shell| shell.readiness.timeout(), |shell| shell.readiness.on_time(shell.now)),
    Part::timed(|shell| shell.leftovers.timeout(), |shell| shell.leftovers.on_time(shell.now)),
    Part::timed(|_| logger::timeout(), |shell| logger::on_time(shell.now)),
    Part::timed(|shell| shell.recorder.as_ref()?.timeout(), Shell::go_on_with_recorder),
    Part { is_ready: Shell::has_work, deadline: Shell::works_at, go_on: Shell::work },
    Part { is_ready: |shell| shell.rules.are_compiling(), deadline: |_| None, go_on: Shell::go_on_compiling },
    Part {
        is_ready: |shell| shell.stores.mended.is_some(),
        deadline: |_| None,
        go_on: Shell::mend_run_folder,
    },
    Part {
        is_ready: |shell| shell.stores.unfinished.is_finishing() && !shell.exiting,
        // Who ends begins nothing anew.
        deadline: |shell| shell.stores.unfinished.timeout().filter(|_| !shell.exiting),
        go_on: Shell::finish_what_failed,
    },
    Part {
        is_ready: Shell::resync_has_work,
        deadline: |shell| [shell.coldplug.timeout(), shell.resync.timeout()].into_iter().flatten().min(),
        go_on: Shell::go_on_with_coldplug,
    },
    Part::following(Shell::rest_if_idle),
    Part::following(Shell::send_requests),
];

impl Shell {
    /// Runs until it is told to exit, or, with a file of events, until they are through.
    pub fn run(&mut self) -> io::Result<()> {
        let mut events = mio::Events::with_capacity(256);
        while !self.is_over() {
            self.turn(&mut events)?;
        }
        if self.exiting && self.engine.under_way() > 0 {
            log::error!("Ending in the middle of an event: the change of its link has no end");
        }
        self.queue_file.set(false);
        log::logger().flush();
        Ok(())
    }

    fn is_over(&self) -> bool {
        let exited = self.exiting && self.is_through() && (self.engine.has_exited() || self.last_is_left());
        exited || (self.intake.is_finite() && self.intake.is_at_end() && self.is_idle())
    }

    /// What is left waits for a change of a link of which nobody knows when it ends. The next start finds by the record
    /// that the event is not through.
    fn last_is_left(&self) -> bool {
        self.engine.under_way() == 1 && self.links.may_be_left(self.now)
    }

    /// All that came in was handled.
    fn is_through(&self) -> bool {
        self.inbox.is_empty() && self.replies.is_empty() && self.facts.is_empty() && self.resting.is_empty()
    }

    /// Nothing is queued, running or under way.
    pub fn is_idle(&self) -> bool {
        self.is_through() && self.engine.is_idle() && self.helpers.is_idle()
    }

    fn turn(&mut self, events: &mut mio::Events) -> io::Result<()> {
        let wait = turn::wait(PARTS, self, monotonic);
        match self.poll.poll(events, wait) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        let began = monotonic();
        self.now = began;
        for event in events.iter() {
            if let Some(source) = Source::of(event.token()) {
                self.on_source(source);
            }
        }
        PARTS.iter().for_each(|part| (part.go_on)(self));
        self.stats.turns += 1;
        let took = monotonic().saturating_sub(began).as_micros() as u64;
        self.stats.longest_turn_usec = self.stats.longest_turn_usec.max(took);
        Ok(())
    }

    fn on_source(&mut self, source: Source) {
        match source {
            Source::Uevents => self.intake.set_ready(),
            Source::Links => self.links.set_ready(),
            Source::Rtnl(id) => self.links.set_helper_ready(id),
            Source::Inotify => self.stores.watches.set_ready(),
            // Who ends follows /run/udev nowhere.
            Source::Mounts if !self.exiting => self.stores.watches.doubt_folders(),
            Source::Mounts => {}
            Source::Signals => self.on_signals(),
            Source::Control => self.accept_clients(),
            Source::Client(id) => self.on_client(id),
            Source::Status => self.accept_status_clients(),
            Source::StatusClient(id) => self.on_status_client(id),
            Source::Child(id) => self.children.on_exit(id),
            Source::ChildOut(id) => self.children.on_output(id, 0),
            Source::ChildErr(id) => self.children.on_output(id, 1),
            Source::Helper(id) => self.helpers.on_readable(id, self.now, &self.sources),
        }
    }

    /// Reads uevents, and brings the link table up to date before they are handled.
    fn read_events(&mut self) {
        let uevents_came = self.read_uevents();
        let mut answered = Answered::default();
        self.links.read(uevents_came, self.now, &mut answered);
        self.links.on_time(self.now, &mut answered);
        self.take_answers(answered);
    }

    /// Sends the rtnetlink requests of this turn.
    fn send_requests(&mut self) {
        let mut answered = Answered::default();
        self.links.send_requests(&self.sources, self.now, &mut answered);
        self.take_answers(answered);
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

    fn go_on_with_clients(&mut self) {
        if self.control.as_ref().is_some_and(|c| c.listener().is_due(self.now)) {
            self.accept_clients();
        }
        self.read_clients();
    }

    fn go_on_with_status(&mut self) {
        if self.status.as_ref().is_some_and(|s| s.listener().is_due(self.now)) {
            self.accept_status_clients();
        }
    }

    fn go_on_with_children(&mut self) {
        self.children.read_on();
        self.children.on_time(&self.sources, self.now);
    }

    fn go_on_with_helpers(&mut self) {
        self.helpers.on_time(self.now, &self.sources);
        self.collect();
    }

    fn go_on_with_recorder(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.on_time(self.now);
        }
    }

    /// Takes what children and helpers have brought.
    fn collect(&mut self) {
        for finished in self.children.take_finished() {
            self.program_ended(finished);
        }
        while let Some(Delivery { caller, reply, file }) = self.helpers.poll_reply() {
            match caller {
                Caller::Job(job) => self.helper_replied(job, reply, file),
                Caller::Coldplug => self.coldplug_replied(&reply),
                Caller::Rules => self.rules_were_looked_at(&reply),
                Caller::Reload => self.rules_were_read(&reply),
                Caller::Trigger { follow_up, again } => self.triggered(follow_up, again, &reply),
                Caller::ReRead { devpath, follow_up } => {
                    self.partitions_re_read(devpath.as_ref(), &reply);
                    self.end_follow_up(follow_up);
                }
            }
        }
    }

    /// Whether there is something for the engine.
    fn has_work(&self) -> bool {
        !self.is_through() || self.may_start() || self.engine.can_go_on()
    }

    /// When there will be.
    fn works_at(&self) -> Option<Now> {
        let may_start = self.rules.hold_until().filter(|_| self.engine.can_start());
        [self.engine.poll_timeout(), may_start].into_iter().flatten().min()
    }

    /// First what came in: events are only queued by that. Then, in turns, what jobs have waited for
    /// and new jobs, each until it waits for something: so the oldest job is ended before another
    /// begins, and a thousand jobs that can go on at once do not hold up the next event.
    fn work(&mut self) {
        if self.engine.poll_timeout().is_some_and(|at| at <= self.now) {
            self.inbox.push_back(Input::Tick);
        }
        while let Some(input) = self.inbox.pop_front() {
            self.input(input);
        }
        let until = monotonic() + MAX_WORK;
        loop {
            self.now = monotonic();
            if self.now >= until {
                break;
            }
            self.facts_next = !self.facts_next;
            let fact = if self.facts_next || !self.may_start() { self.facts.pop_front() } else { None };
            match fact {
                Some((job, fact)) => self.learn(job, fact),
                None if self.may_start() => {
                    self.reload_if_due();
                    if self.may_start() {
                        self.input(Input::Start);
                    }
                }
                None => break,
            }
            self.drain_replies();
        }
        self.go_on_with_one();
    }

    /// Rules and effects that take long get as much time as all others together.
    fn go_on_with_one(&mut self) {
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
        self.drain_replies();
    }

    /// Whether there is an event to start that does not wait for new rules.
    fn may_start(&self) -> bool {
        self.engine.can_start() && self.rules.hold_until().is_none_or(|until| self.now >= until)
    }

    /// Answers that needed no waiting, and what they lead to.
    fn drain_replies(&mut self) {
        while let Some(reply) = self.replies.pop_front() {
            self.input(reply);
        }
    }

    /// One input to the engine, and what it wants then.
    pub(super) fn input(&mut self, input: Input) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(&input, self.now);
        }
        self.stats.inputs += 1;
        self.stores.turn.begin(self.now);
        let mut here = Here {
            stores: &mut self.stores,
            links: &mut self.links.exchange.table,
            recorder: self.recorder.as_mut(),
            levels: &self.job_levels,
            now: self.now,
            needs: Vec::new(),
        };
        if matches!(&input, Input::Uevent(uevent) if uevent.subsystem == "bus") {
            here.stores.answers.attributes.forget_buses();
        }
        self.engine.handle(input, self.now, &mut here);
        for (job, need) in here.needs {
            self.meet(job, need);
        }
        while let Some(output) = self.engine.poll_output() {
            self.on_output(output);
        }
        // What could not even be started is over at once.
        if self.children.has_finished() {
            self.collect();
        }
    }

    fn on_output(&mut self, output: Output) {
        if self.job_levels.is_empty() {
            return self.do_output(output);
        }
        let job = output.job();
        let is_last = matches!(&output, Output::Perform { effect: Effect::Announce { .. }, .. });
        let level = job.and_then(|job| self.job_levels.get(&job).copied());
        let usual = log::max_level();
        log::set_max_level(level.unwrap_or(usual));
        self.do_output(output);
        log::set_max_level(usual);
        if let Some(job) = job.filter(|_| is_last) {
            self.job_levels.remove(&job);
        }
    }

    fn do_output(&mut self, output: Output) {
        match output {
            Output::Ask { job, ask } => self.begin(job, Task::Ask(ask)),
            Output::Perform { job, effect } => self.begin(job, Task::Effect(effect)),
            Output::Run { job, item } => self.begin(job, Task::Run(item)),
            Output::Busy(busy) => {
                self.leftovers.set_busy(busy, self.now);
                self.mark_queue();
            }
            Output::LogLevel { job, level: Some(level) } => drop(self.job_levels.insert(job, level)),
            Output::LogLevel { job, level: None } => drop(self.job_levels.remove(&job)),
            Output::Log { level, text } => log::log!(level, "{text}"),
        }
    }

    /// The file that `settle` looks at.
    pub(super) fn mark_queue(&mut self) {
        self.queue_file.set(!self.engine.is_idle() || self.stores.follow_ups.oldest().is_some());
    }

    /// What waits for an idle loop.
    fn rest_if_idle(&mut self) {
        if self.inbox.is_empty() && !self.intake.is_ready() && !self.stores.watches.is_ready() {
            self.mark_queue();
            self.close_waiting_clients();
            if let Some(recorder) = &mut self.recorder {
                recorder.flush(self.now);
            }
            let is_waiting = !self.readiness.is_ready();
            if is_waiting && self.links.is_settled() && self.is_coldplug_through() {
                self.readiness.set_ready(self.now);
            }
        }
    }

    /// Starts a program for a job, in its environment and within its time; its end goes to
    /// `program_ended` of [`super::answer`].
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

    /// Has a job told (`link_is_known` of [`super::answer`]) when the table knows this link, or knows
    /// that it is not there.
    pub fn park_for_link(&mut self, job: JobId, ifindex: IfIndex) {
        self.links.park(job, ifindex, self.now);
    }

    /// The same when the kernel has told this link anew.
    pub fn park_for_refresh(&mut self, job: JobId, ifindex: IfIndex, statistics: bool) {
        self.links.refresh(job, ifindex, statistics, self.now);
    }

    /// Sends an rtnetlink request for a job. The reply goes to `rtnl_replied` or `driver_is_known` of
    /// [`super::answer`], as `what` says.
    pub fn request_rtnl(&mut self, job: JobId, what: fn(JobId) -> RtnlFor, request: Vec<u8>) {
        let started = self.engine.job_started(job).unwrap_or(self.now);
        let deadline = started + self.settings.event_timeout;
        self.links.request(request, what(job), deadline);
    }

    fn on_signals(&mut self) {
        loop {
            let signal = match self.signals.as_ref().map(SignalFd::read) {
                Some(Ok(signal)) => signal,
                _ => return,
            };
            match signal {
                libc::SIGHUP => self.reload(),
                _ => self.exit(),
            }
        }
    }

    /// Finishes what runs, starts nothing else, then ends.
    pub fn exit(&mut self) {
        if !self.exiting {
            log::debug!("Ending when running events are finished");
            self.exiting = true;
            self.readiness.stopping(self.now);
            self.inbox.push_back(Input::Exit);
        }
    }

    /// Whether there were some.
    fn read_uevents(&mut self) -> bool {
        let before = self.inbox.len();
        if self.intake.is_ready() {
            let lost = self.intake.read(&mut self.inbox, &mut self.stats);
            if lost {
                self.start_resync();
            }
        }
        self.inbox.len() > before
    }

    fn read_watches(&mut self) {
        self.stores.watches.read();
        self.stores.take_folder_changes();
        while let Some(id) = self.stores.watches.poll_written() {
            self.node_was_written(&id);
        }
    }

    /// A property for all events from here on; an empty value unsets it.
    pub(super) fn set_global(&mut self, name: BString, value: BString) {
        match value.is_empty() {
            true => drop(self.globals.remove(&name)),
            false => drop(self.globals.insert(name.clone(), value.clone())),
        }
        self.inbox.push_back(Input::SetGlobal { name, value });
    }

    /// The level of the log from here on, as syslog counts.
    pub(super) fn set_log_level(&mut self, level: u8) {
        if let Some(level) = crate::model::parse_log_level(level.to_string().as_bytes()) {
            log::set_max_level(level);
        }
    }

    /// Programs at one time; 0: by the size of the machine.
    pub(super) fn set_children_max(&mut self, max: u32) {
        self.settings.children_max = usize::try_from(max).ok().filter(|&max| max > 0);
        self.children.set_max(children_max(&self.settings));
    }
}

/// Programs at one time under these settings.
pub fn children_max(settings: &Settings) -> usize {
    let computed = || config::default_children_max(process::cpus(), process::memory());
    settings.children_max.unwrap_or_else(computed)
}
