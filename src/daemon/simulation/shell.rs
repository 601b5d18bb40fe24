//! The daemon of the simulation: the real engine, link table, tasks and stores, in a loop that is driven by hand.
//!
//! What the loop itself decides is done here as in [`crate::daemon::shell`], [`crate::daemon::sources::links`] and
//! [`crate::daemon::upkeep::resync`], in few lines; programs, helpers and locks are somebody's dice.

use super::kernel::Kernel;
use super::random::Random;
use crate::engine::{Engine, EngineConfig, Input, JobId, JobReply, JobRequest, Notice, Output};
use crate::links::Table;
use crate::links::exchange::{Ended, Errand, Exchange};
use crate::model::effect::{Done, Effect};
use crate::model::need::{Exit, Fact, Need};
use crate::model::{DeviceId, Event, IfIndex, Now, SeqNum, Trigger, announcement};
use crate::rules::ask::{Attr, Subject};
use crate::rules::program::RuleSet;
use crate::rules::{Answer, Ask};
use crate::tasks::gone::Removed;
use crate::tasks::interrupted::Interrupted;
use crate::tasks::unfinished::Left;
use crate::tasks::unfinished::Removal;
use crate::tasks::{Pending, Stores};
use crate::world::Roots;
use crate::world::database;
use crate::world::watch_dir::WatchDir;
use crate::world::watches::Watches;
use bstr::BString;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// As in [`crate::daemon::sources::links`].
const PATIENCE: Duration = Duration::from_millis(5);
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
const DUMP_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of requests in one datagram.
const ROOM: usize = 300;
/// As in [`EngineConfig`].
const EVENT_LIMIT: Duration = Duration::from_secs(180);
/// As in [`crate::daemon::upkeep::resync`].
const SECOND_LOOK: Duration = Duration::from_millis(100);
/// As in [`crate::daemon::upkeep::coldplug`].
const QUIET: Duration = Duration::from_millis(200);
const LATEST: Duration = Duration::from_secs(10);

/// What listeners got.
#[derive(Clone, Debug)]
pub(super) struct Announced {
    pub seqnum: u64,
    pub id: String,
    pub properties: BTreeMap<String, String>,
}

/// A job that waits for a link.
#[derive(Debug)]
struct Parked {
    job: JobId,
    ifindex: u32,
    request_at: Option<Now>,
    /// Only the row that was asked for under this ticket will do, or a later one.
    ticket: Option<u64>,
}

/// Devices of which nobody knows whether they are gone.
#[derive(Debug)]
enum Doubt {
    /// Before the others: what an earlier daemon has left half done.
    Interrupted(Box<Interrupted>),
    Look(Vec<DeviceId>),
    Wait(Now, Vec<DeviceId>),
}

pub(super) struct Daemon {
    pub engine: Engine,
    pub stores: Stores,
    pub links: Exchange<JobId>,
    pub now: Now,
    parked: Vec<Parked>,
    /// Of the last request for a link.
    ticket: u64,
    /// Jobs that may not ask for links before the table has caught up.
    behind: Vec<JobId>,
    /// After a dump that failed.
    dump_not_before: Now,
    /// Programs and helpers at work.
    open: Vec<(JobId, Need)>,
    /// Jobs that have not been replied to at once.
    late: VecDeque<JobId>,
    facts: VecDeque<(JobId, Fact)>,
    /// Jobs whose effect of many parts has paused.
    resting: VecDeque<(JobId, Fact)>,
    /// Devices that are gone, whose remains are being removed.
    removals: Vec<Removal>,
    doubt: Option<Doubt>,
    /// All devices are looked at when it is quiet at this time, or at the other in any case.
    resync: Option<(Now, Now)>,
    /// `/run/udev` is gone and cannot be made anew.
    is_unmendable: bool,
    /// Numbers of removals that we made up.
    pub made_up: HashSet<u64>,
    pub announced: Vec<Announced>,
    pub busy: bool,
    pub log: Vec<String>,
}

/// What requests are tried with.
struct Here<'a> {
    stores: &'a mut Stores,
    table: &'a mut Table,
    kernel: &'a Kernel,
    random: &'a mut Random,
    announced: &'a mut Vec<Announced>,
}

impl Here<'_> {
    fn attempt(
        &mut self,
        job: JobId,
        event: &Event,
        request: JobRequest<'_>,
        facts: &[Fact],
    ) -> Result<JobReply, Need> {
        match request {
            JobRequest::Ask(Ask::Attr { subject: Subject::Event, .. }) if event.device.subsystem != "net" => {
                let id = event.device.id().map(|id| id.to_string()).unwrap_or_default();
                let device = self.kernel.devices.get(&id);
                let value = |device: &super::kernel::Device| Attr::Value(device.value.to_string().into());
                return Ok(JobReply::Answer(Answer::Attr(device.map_or(Attr::NoDevice, value))));
            }
            JobRequest::Perform(Effect::LockDisk { .. }) if self.random.chance(1, 8) => {
                return Ok(JobReply::Done(Done::Busy));
            }
            JobRequest::Perform(Effect::LockDisk { .. } | Effect::UnlockDisk | Effect::Node(_)) => {
                return Ok(JobReply::Done(Done::Ok));
            }
            _ => {}
        }
        begin_turn(self.stores, self.random);
        let reply = self.stores.attempt(self.table, job, event, request, facts)?;
        if let JobRequest::Perform(Effect::Announce { datagram }) = request {
            self.announced.push(taken_apart(event, datagram));
        }
        Ok(reply)
    }
}

/// Work of many parts may pause after each of them.
fn begin_turn(stores: &mut Stores, random: &mut Random) {
    stores.turn.begin_short(1 + random.below(4));
}

fn taken_apart(event: &Event, datagram: &[u8]) -> Announced {
    let message = announcement::parse(datagram).expect("our own announcement");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let properties = message.uevent.properties.iter().map(|p| (p.name.to_string(), text(p.value))).collect();
    let id = event.device.id().map(|id| id.to_string()).unwrap_or_default();
    Announced { seqnum: event.seqnum.0, id, properties }
}

/// Devices whose folders are these.
fn trigger(kernel: &mut Kernel, wanted: Vec<(Trigger, BString)>) {
    for (action, devpath) in wanted {
        if let Some(id) = kernel.id_at(&devpath) {
            kernel.trigger(if action == Trigger::Add { "add" } else { "change" }, &id);
        }
    }
}

impl Daemon {
    /// Starts on what is on disk, as the real one with `--coldplug`.
    pub(super) fn open(
        roots: &Roots,
        config: EngineConfig,
        rules: Arc<RuleSet>,
        kernel: &mut Kernel,
        now: Now,
    ) -> io::Result<Daemon> {
        kernel.listening = true;
        let udev = database::open_udev_dir(&roots.run)?;
        let watches = Watches::new(roots, Some(WatchDir::open(&udev)?))?;
        let builtins = crate::builtin::Builtins::load(roots, b"", None).0;
        let stores = Stores::open(roots, builtins, watches, None)?;
        let interrupted = Box::new(stores.list_interrupted());
        let mut daemon = Daemon {
            engine: Engine::new(config, rules),
            stores,
            links: Exchange::default(),
            now,
            parked: Vec::new(),
            ticket: 0,
            behind: Vec::new(),
            dump_not_before: Now::ZERO,
            open: Vec::new(),
            late: VecDeque::new(),
            facts: VecDeque::new(),
            resting: VecDeque::new(),
            removals: Vec::new(),
            doubt: Some(Doubt::Interrupted(interrupted)),
            is_unmendable: false,
            resync: None,
            made_up: HashSet::new(),
            announced: Vec::new(),
            busy: false,
            log: Vec::new(),
        };
        daemon.links.table.speak_for_sysfs();
        daemon.want_dump();
        daemon.send_requests(kernel);
        let ids: Vec<String> = kernel.devices.keys().cloned().collect();
        ids.iter().for_each(|id| kernel.trigger("add", id));
        Ok(daemon)
    }

    /// One turn of the loop; at most `starts` events are started. Between two of them the kernel goes on.
    pub(super) fn turn(&mut self, kernel: &mut Kernel, random: &mut Random, starts: usize) {
        self.now = kernel.now;
        self.stores.watches.set_ready();
        self.stores.watches.read();
        self.stores.take_folder_changes();
        let mut inbox = Vec::new();
        if std::mem::take(&mut kernel.uevents_lost) {
            self.look_at_all();
            self.links.table.lose();
        }
        while let Some(uevent) = kernel.receive_uevent() {
            inbox.push(Input::Uevent(uevent));
        }
        self.read_links(kernel, random, !inbox.is_empty());
        if self.engine.poll_timeout().is_some_and(|at| at <= self.now) {
            inbox.push(Input::Tick);
        }
        for input in inbox {
            self.input(input, kernel, random);
        }
        for _ in 0..starts {
            let rested = if random.chance(1, 3) { self.resting.pop_front() } else { None };
            match rested.or_else(|| self.facts.pop_front()).or_else(|| self.resting.pop_front()) {
                Some((job, fact)) => self.learn(job, fact, kernel, random),
                None if self.engine.can_start() => self.input(Input::Start, kernel, random),
                None => break,
            }
            if random.chance(1, 5) {
                kernel.step();
            }
        }
        self.mend();
        self.resync_if_due(kernel);
        self.go_on_with_doubt(kernel, random);
        self.go_on_removing(random);
        self.go_on_finishing(kernel, random);
        self.send_requests(kernel);
    }

    /// Whether there is anything that a turn would go on with.
    pub(super) fn has_work(&self) -> bool {
        let links_go_on = self.links.holds() || self.links.has_waiting(self.now);
        let is_resting = !self.resting.is_empty() || !self.removals.is_empty();
        let is_finishing = self.stores.unfinished.is_finishing();
        let waits = !self.facts.is_empty() || self.engine.can_start() || !self.behind.is_empty();
        waits || links_go_on || is_resting || is_finishing
    }

    /// Nothing is under way, here or with others.
    pub(super) fn is_quiet(&self) -> bool {
        !self.has_work()
            && self.engine.is_idle()
            && self.doubt.is_none()
            && self.resync.is_none()
            && !self.is_unmendable
            && !self.stores.is_unfinished()
            && self.open.is_empty()
            && self.parked.is_empty()
            && self.behind.is_empty()
            && self.links.timeout().is_none()
            && !self.links.table.is_stale()
    }

    /// What it waits for.
    pub(super) fn describe(&self) -> String {
        format!(
            "jobs {:?}, doubt {:?}, resync {:?}, parked {:?}, stale {}, unmendable {}, unfinished {}: {:?}, links until {:?}, last {:?}",
            self.engine.status(),
            self.doubt,
            self.resync,
            self.parked,
            self.links.table.is_stale(),
            self.is_unmendable,
            self.stores.is_unfinished(),
            self.stores.unfinished,
            (self.links.timeout(), self.links.wants_dump(), self.dump_not_before),
            self.announced.last()
        )
    }

    /// When something is due.
    pub(super) fn timeout(&self) -> Option<Now> {
        let parked = self.parked.iter().filter_map(|parked| parked.request_at);
        let doubt = match &self.doubt {
            // The link table has to be complete first.
            _ if self.links.table.is_stale() => None,
            Some(Doubt::Wait(until, _)) => Some(*until),
            Some(Doubt::Interrupted(interrupted)) => interrupted.until,
            _ => None,
        };
        // What was interrupted comes first.
        let is_first = matches!(self.doubt, Some(Doubt::Interrupted(_)));
        let resync = self.resync.map(|(at, _)| at).filter(|_| !is_first);
        let unfinished = self.stores.unfinished.timeout();
        let dump = self.links.wants_dump().then_some(self.dump_not_before);
        parked
            .chain(dump)
            .chain(self.links.timeout())
            .chain(doubt)
            .chain(resync)
            .chain(unfinished)
            .chain(self.engine.poll_timeout())
            .min()
    }

    /// Time goes on.
    pub(super) fn on_time(&mut self, now: Now, kernel: &mut Kernel) {
        self.now = now;
        let is_due = |parked: &&mut Parked| parked.request_at.is_some_and(|at| at <= now);
        let mut due: Vec<u32> = Vec::new();
        for parked in self.parked.iter_mut().filter(is_due) {
            parked.request_at = None;
            due.push(parked.ifindex);
        }
        due.dedup();
        for ifindex in due {
            self.ask_link(IfIndex(ifindex), false);
        }
        if self.links.timeout().is_some_and(|at| at <= now) {
            self.receive_replies(kernel);
            if !self.links.holds() {
                self.links.expire(now);
            }
        }
        self.collect();
        self.want_dump();
        self.finish_what_failed();
    }

    /// As in [`crate::daemon::upkeep::unfinished`].
    fn finish_what_failed(&mut self) {
        let is_needed = self.stores.is_unfinished() || self.is_unmendable;
        if self.stores.unfinished.is_finishing() || !self.stores.unfinished.is_due(is_needed, self.now) {
            return;
        }
        if self.is_unmendable {
            self.stores.mend_folders();
            return self.mend();
        }
        if !self.stores.look_for_room() {
            return self.mend();
        }
        self.stores.begin_finishing();
    }

    fn go_on_finishing(&mut self, kernel: &mut Kernel, random: &mut Random) {
        while self.stores.unfinished.is_finishing() && random.chance(4, 5) {
            begin_turn(&mut self.stores, random);
            if let Some(wanted) = self.stores.go_on_finishing(&mut self.links.table, &self.engine) {
                trigger(kernel, wanted);
            }
        }
    }

    fn go_on_removing(&mut self, random: &mut Random) {
        for mut removal in std::mem::take(&mut self.removals) {
            begin_turn(&mut self.stores, random);
            match self.stores.go_on_removing(&mut self.links.table, &self.engine, &mut removal) {
                Removed::Partly => self.removals.push(removal),
                Removed::IsBusy => self.stores.unfinished.is_left(&removal.id, removal.left),
                Removed::Whole | Removed::IsThere => {}
            }
        }
    }

    /// As in [`crate::daemon::upkeep::mend`].
    fn mend(&mut self) {
        if self.stores.watches.take_missing() && self.stores.mended.is_none() {
            self.stores.mend_folders();
        }
        match self.stores.mended.take() {
            Some(Ok(())) => {
                self.is_unmendable = false;
                self.look_at_all();
            }
            Some(Err(_)) => self.is_unmendable = true,
            None => {}
        }
    }

    /// One input to the engine, and what it wants then.
    pub(super) fn input(&mut self, input: Input, kernel: &mut Kernel, random: &mut Random) {
        self.engine.handle(input, self.now);
        self.serve(kernel, random);
    }

    fn serve(&mut self, kernel: &mut Kernel, random: &mut Random) {
        while let Some(output) = self.engine.poll(self.now) {
            match output {
                // The reply to some comes later.
                Output::Request { job, .. } if random.chance(1, 8) => self.late.push_back(job),
                Output::Request { job, .. } => self.attempt(job, Pending::default(), kernel, random),
                Output::Pause { .. } => self.engine.handle(Input::GoOn, self.now),
                Output::Notice(Notice::Busy(busy)) => self.busy = busy,
                Output::Notice(Notice::LogLevel { .. }) => {}
                Output::Notice(Notice::Log { text, .. }) => self.log.push(text),
            }
        }
        if let Some(job) = self.late.pop_front() {
            self.attempt(job, Pending::default(), kernel, random);
            self.serve(kernel, random);
        }
    }

    fn learn(&mut self, job: JobId, fact: Fact, kernel: &mut Kernel, random: &mut Random) {
        if let Some(mut pending) = self.stores.pending.remove(&job) {
            pending.learn(fact);
            self.attempt(job, pending, kernel, random);
            self.serve(kernel, random);
        }
    }

    fn attempt(&mut self, job: JobId, pending: Pending, kernel: &mut Kernel, random: &mut Random) {
        let Some((event, request)) = self.engine.request(job) else { return };
        let mut here = Here {
            stores: &mut self.stores,
            table: &mut self.links.table,
            kernel,
            random,
            announced: &mut self.announced,
        };
        match here.attempt(job, event, request, &pending.facts) {
            Ok(reply) => self.engine.handle(Input::Reply { job, reply }, self.now),
            Err(need) => {
                self.stores.pending.insert(job, pending);
                self.meet(job, need);
            }
        }
    }

    fn meet(&mut self, job: JobId, need: Need) {
        match need {
            Need::Link(IfIndex(ifindex)) => {
                let request_at = Some(self.now + PATIENCE);
                self.parked.push(Parked { job, ifindex, request_at, ticket: None });
            }
            Need::FreshLink { ifindex, statistics } => {
                let ticket = Some(self.ask_link(ifindex, statistics));
                self.parked.push(Parked { job, ifindex: ifindex.0, request_at: None, ticket });
            }
            Need::LinksRead => self.behind.push(job),
            Need::Rtnl(message) => {
                let started = self.engine.job_started(job).unwrap_or(self.now);
                self.links.ask(Errand::Message { message, who: job }, started + EVENT_LIMIT);
            }
            Need::Undo(message) => {
                self.links.ask(Errand::Message { message, who: job }, self.now + EVENT_LIMIT);
            }
            Need::Turn(progress) => self.resting.push_back((job, Fact::Turn(progress))),
            need => self.open.push((job, need)),
        }
    }

    /// One of the programs at work ends; some fail.
    pub(super) fn complete_one(&mut self, random: &mut Random) {
        if self.open.is_empty() {
            return;
        }
        let (job, need) = self.open.swap_remove(random.below(self.open.len()));
        let Need::Program { command, .. } = need else { panic!("no rule needs {need:?}") };
        let exit = Exit { success: random.chance(4, 5), output: command, truncated: false };
        self.facts.push_back((job, Fact::Exit(exit)));
    }

    fn ask_link(&mut self, ifindex: IfIndex, statistics: bool) -> u64 {
        self.ticket += 1;
        let errand = Errand::Link { ifindex, statistics, ticket: self.ticket };
        self.links.ask(errand, self.now + REQUEST_LIMIT);
        self.ticket
    }

    fn want_dump(&mut self) {
        if self.links.wants_dump() && self.dump_not_before <= self.now {
            self.links.want_dump(self.now + REQUEST_LIMIT);
        }
    }

    /// What the helper has sent, its end included, as long as nothing is held back.
    fn receive_replies(&mut self, kernel: &mut Kernel) {
        if self.links.holds() {
            return;
        }
        while let Some(reply) = kernel.replies.pop_front() {
            self.links.hold(&reply);
        }
        if std::mem::take(&mut kernel.helper_died) {
            self.links.hold_death();
        }
    }

    fn read_links(&mut self, kernel: &mut Kernel, random: &mut Random, uevents_came: bool) {
        self.receive_replies(kernel);
        // What is left waits for the next turn, as after many messages.
        let most = if random.chance(1, 6) { random.below(3) } else { usize::MAX };
        let is_behind = !self.catch_up(kernel, most);
        if is_behind && uevents_came {
            self.links.table.fall_behind();
        }
        self.collect();
        self.want_dump();
    }

    /// Reads notifications; true if there are no more, and what was held for that is done.
    fn catch_up(&mut self, kernel: &mut Kernel, most: usize) -> bool {
        if std::mem::take(&mut kernel.notes_lost) {
            self.links.table.lose();
        }
        for _ in 0..most {
            let Some(note) = kernel.notes.pop_front() else {
                assert!(self.links.caught_up(self.now), "a reply of the kernel is not understood");
                self.facts.extend(self.behind.drain(..).map(|job| (job, Fact::LinksRead)));
                return true;
            };
            assert!(self.links.notification(&note), "{note:?}");
        }
        false
    }

    fn send_requests(&mut self, kernel: &mut Kernel) {
        if self.links.has_waiting(self.now) && self.catch_up(kernel, usize::MAX) {
            while let Some(datagram) = self.links.issue(ROOM, self.now) {
                kernel.ask(&datagram);
            }
        }
        self.collect();
    }

    /// Tells jobs what was heard and what has ended.
    fn collect(&mut self) {
        for change in self.links.take_changes() {
            let heard = |parked: &mut Parked| parked.ifindex == change.ifindex.0 && parked.ticket.is_none();
            let heard = self.parked.extract_if(.., heard);
            self.facts.extend(heard.map(|parked| (parked.job, Fact::Link)));
        }
        for ended in self.links.take_ended() {
            match ended {
                Ended::Dump { result, .. } => {
                    if result.is_err() {
                        self.dump_not_before = self.now + DUMP_PAUSE;
                    }
                }
                Ended::Link { ifindex, ticket } => {
                    let released = self.parked.extract_if(.., |parked| {
                        let is_answered = parked.ticket.is_none_or(|wanted| wanted <= ticket);
                        parked.ifindex == ifindex.0 && is_answered
                    });
                    self.facts.extend(released.map(|parked| (parked.job, Fact::Link)));
                }
                Ended::Message(job, reply) => self.facts.push_back((job, Fact::Rtnl(reply.result))),
            }
        }
    }

    /// As soon as it is quiet.
    pub(super) fn look_at_all(&mut self) {
        let by = self.resync.map_or(self.now + LATEST, |(_, by)| by);
        self.resync = Some((self.now + QUIET, by));
    }

    /// Triggers what is there, and doubts what is not.
    fn resync_if_due(&mut self, kernel: &mut Kernel) {
        let Some((_, by)) = self.resync.filter(|(at, _)| *at <= self.now) else { return };
        let is_quiet = kernel.is_read() && self.engine.queue_len().0 == 0;
        if !is_quiet && by > self.now {
            self.resync = Some((self.now + QUIET, by));
            return;
        }
        // What was interrupted comes first.
        if matches!(self.doubt, Some(Doubt::Interrupted(_))) {
            return;
        }
        self.resync = None;
        let ids: Vec<String> = kernel.devices.keys().cloned().collect();
        for id in &ids {
            let known = DeviceId::parse(id.as_bytes()).is_some_and(|id| self.stores.database.has_record(&id));
            kernel.trigger(if known { "change" } else { "add" }, id);
        }
        let is_absent = |id: &&DeviceId| !kernel.devices.contains_key(&id.to_string());
        let mut known = self.stores.all_known();
        known.extend(self.engine.devices());
        self.doubt = Some(Doubt::Look(known.iter().filter(is_absent).cloned().collect()));
    }

    fn is_gone(&self, id: &DeviceId) -> bool {
        self.stores.is_gone(&self.links.table, id)
    }

    fn go_on_with_doubt(&mut self, kernel: &mut Kernel, random: &mut Random) {
        // The link table says whether a link is there, when it knows.
        if self.links.table.is_stale() {
            return;
        }
        match self.doubt.take() {
            Some(Doubt::Interrupted(mut interrupted)) => {
                if interrupted.until.is_some_and(|until| until > self.now) {
                    self.doubt = Some(Doubt::Interrupted(interrupted));
                    return;
                }
                interrupted.until = None;
                let (stores, engine, now) = (&mut self.stores, &self.engine, self.now);
                let mut goes_on = true;
                while goes_on && interrupted.until.is_none() && random.chance(9, 10) {
                    begin_turn(stores, random);
                    goes_on = stores.look_at_interrupted(&self.links.table, engine, &mut interrupted, now);
                }
                self.doubt = Some(match goes_on {
                    true => Doubt::Interrupted(interrupted),
                    false => {
                        trigger(kernel, interrupted.take_wanted());
                        Doubt::Look(self.stores.all_known().into_iter().collect())
                    }
                });
            }
            Some(Doubt::Look(mut ids)) => {
                ids.retain(|id| self.is_gone(id));
                self.doubt = (!ids.is_empty()).then(|| Doubt::Wait(self.now + SECOND_LOOK, ids));
            }
            Some(Doubt::Wait(until, ids)) if until <= self.now && kernel.is_read() => {
                let mut number = self.engine.newest().unwrap_or(SeqNum(1));
                let (busy, idle): (Vec<_>, Vec<_>) =
                    ids.into_iter().partition(|id| self.engine.has_event_of(id));
                for id in idle {
                    if self.is_gone(&id) {
                        self.remove_device(&id, &mut number);
                    }
                }
                self.doubt = (!busy.is_empty()).then(|| Doubt::Wait(self.now + SECOND_LOOK, busy));
            }
            doubt => self.doubt = doubt,
        }
    }

    fn remove_device(&mut self, id: &DeviceId, number: &mut SeqNum) {
        let removal = self.engine.free_below(*number).and_then(|free| {
            *number = free;
            self.stores.database.removal(id, free)
        });
        match removal {
            Some(removal) => {
                self.made_up.insert(removal.seqnum.0);
                self.engine.handle(Input::Uevent(removal), self.now);
            }
            None => {
                let removal = self.stores.begin_removing(id, Left::IfGone);
                self.removals.push(removal);
            }
        }
    }
}
