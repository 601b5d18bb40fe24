//! The one owner of everything, and the loop.
//!
//! A turn: wait; note which descriptors are readable; go through [`PARTS`] in their order: what came in is read
//! (uevents before links, so that an event finds its link), the engine gets one input after the other and what it
//! wants after each is done, then comes the upkeep, each part a bounded share, so that none starves the others.
//!
//! Must stay true: nothing here waits but the poll itself; every ask and effect is replied to by an [`Input`];
//! who wakes the loop stands in [`PARTS`], beside what the loop does then.

use super::readiness::Readiness;
use super::sources::control::Control;
use super::sources::source::Source;
use super::sources::status::{Status, StatusServer, link_rows};
use super::turn::{self, Part};
use super::upkeep::coldplug::Coldplug;
use super::upkeep::configuration::Configuration;
use super::upkeep::mend::Mender;
use super::upkeep::reload::{Rules, Surroundings};
use super::upkeep::resync::Resync;
use super::upkeep::{follow_up, unfinished};
use super::work::{Caller, Work};
use crate::engine::Input;
use crate::helper::pool::Delivery;
use crate::model::Now;
use crate::model::control::{ClientAction, Message};
use crate::sys::clock::monotonic;
use crate::sys::signal::SignalFd;
use crate::tasks::turn::MAX_WORK;
use crate::world::{logger, quota};
use std::io;

/// See the module.
pub struct Shell {
    pub poll: mio::Poll,
    pub work: Work,
    /// Whose turn it is: facts, or events to start.
    pub facts_next: bool,
    pub control: Option<Control>,
    pub status: Option<StatusServer>,
    pub signals: SignalFd,
    pub rules: Rules,
    pub configuration: Configuration,
    pub coldplug: Coldplug,
    pub resync: Resync,
    pub mender: Mender,
    pub readiness: Readiness,
    pub exiting: bool,
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
        is_ready: |shell| shell.work.intake.is_ready() || shell.work.links.is_ready(),
        deadline: |shell| shell.work.links.timeout(),
        go_on: Shell::read_events,
    },
    Part {
        is_ready: |shell| shell.work.children.has_unread(),
        deadline: |shell| shell.work.children.timeout(),
        go_on: |shell| shell.work.go_on_with_children(),
    },
    Part {
        is_ready: |shell| shell.work.helpers.has_reply(),
        deadline: |shell| shell.work.helpers.timeout(),
        go_on: Shell::go_on_with_helpers,
    },
    Part {
        is_ready: |shell| shell.work.stores.watches.is_ready(),
        deadline: |_| None,
        go_on: Shell::read_watches,
    },
    Part::timed(|shell| shell.readiness.timeout(), |shell| shell.readiness.on_time(shell.work.now)),
    Part::timed(|shell| shell.work.leftovers.timeout(), |shell| shell.work.leftovers.on_time(shell.work.now)),
    Part::timed(|_| logger::timeout(), |shell| logger::on_time(shell.work.now)),
    Part::timed(|shell| shell.work.recorder.as_ref()?.timeout(), |shell| shell.work.go_on_with_recorder()),
    Part { is_ready: Shell::has_work, deadline: Shell::works_at, go_on: Shell::do_work },
    Part { is_ready: |shell| shell.rules.are_compiling(), deadline: |_| None, go_on: Shell::go_on_compiling },
    Part {
        is_ready: |shell| shell.work.stores.mended.is_some(),
        deadline: |_| None,
        go_on: Shell::mend_run_folder,
    },
    Part {
        // Who ends begins nothing anew.
        is_ready: |shell| !shell.exiting && unfinished::has_work(&shell.work, shell.mender.is_stuck()),
        deadline: |shell| shell.work.stores.unfinished.timeout().filter(|_| !shell.exiting),
        go_on: Shell::finish_what_failed,
    },
    Part {
        is_ready: |shell| shell.resync.has_work(&shell.work.links),
        deadline: |shell| [shell.coldplug.timeout(), shell.resync.timeout()].into_iter().flatten().min(),
        go_on: Shell::go_on_with_devices,
    },
    Part::following(Shell::rest_if_idle),
    Part::following(|shell| shell.work.send_requests()),
];

impl Shell {
    /// Runs until it is told to exit, or, with a file of events, until they are through.
    pub fn run(&mut self) -> io::Result<()> {
        let mut events = mio::Events::with_capacity(256);
        while !self.is_over() {
            self.turn(&mut events)?;
        }
        if self.exiting && self.work.engine.under_way() > 0 {
            log::error!("Ending in the middle of an event: the change of its link has no end");
        }
        self.work.queue_file.set(false);
        log::logger().flush();
        Ok(())
    }

    fn is_over(&self) -> bool {
        let Work { engine, intake, .. } = &self.work;
        let exited = self.exiting && self.work.is_through() && (engine.has_exited() || self.last_is_left());
        exited || (intake.is_finite() && intake.is_at_end() && self.work.is_idle())
    }

    /// What is left waits for a change of a link of which nobody knows when it ends. The next start finds by the record
    /// that the event is not through.
    fn last_is_left(&self) -> bool {
        self.work.engine.under_way() == 1 && self.work.links.may_be_left(self.work.now)
    }

    fn turn(&mut self, events: &mut mio::Events) -> io::Result<()> {
        let wait = turn::wait(PARTS, self, monotonic);
        match self.poll.poll(events, wait) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        let began = monotonic();
        self.work.now = began;
        for event in events.iter() {
            if let Some(source) = Source::of(event.token()) {
                self.on_source(source);
            }
        }
        PARTS.iter().for_each(|part| (part.go_on)(self));
        let stats = &mut self.work.stats;
        stats.turns += 1;
        let took = monotonic().since(began).as_micros() as u64;
        stats.longest_turn_usec = stats.longest_turn_usec.max(took);
        Ok(())
    }

    fn on_source(&mut self, source: Source) {
        let work = &mut self.work;
        match source {
            Source::Uevents => work.intake.set_ready(),
            Source::Links => work.links.set_ready(),
            Source::Rtnl(id) => work.links.set_helper_ready(id),
            Source::Inotify => work.stores.watches.set_ready(),
            // Who ends follows /run/udev nowhere.
            Source::Mounts if !self.exiting => work.stores.watches.doubt_folders(),
            Source::Mounts => {}
            Source::Signals => self.on_signals(),
            Source::Control => self.accept_clients(),
            Source::Client(id) => self.on_client(id),
            Source::Status => self.accept_status_clients(),
            Source::StatusClient(id) => self.on_status_client(id),
            Source::Child(id) => work.children.on_exit(id),
            Source::ChildOut(id) => work.children.on_output(id, 0),
            Source::ChildErr(id) => work.children.on_output(id, 1),
            Source::Helper(id) => work.helpers.on_readable(id, work.now, &work.sources),
        }
    }

    /// Reads uevents, and brings the link table up to date before they are handled.
    fn read_events(&mut self) {
        let read = self.work.read_uevents();
        if read.were_lost {
            self.coldplug.on_loss(self.work.now);
            self.work.links.exchange.table.lose();
        }
        self.work.read_links(read.came);
    }

    /// Takes what children and helpers have brought.
    fn go_on_with_helpers(&mut self) {
        let work = &mut self.work;
        work.helpers.on_time(work.now, &work.sources);
        work.take_finished();
        while let Some(Delivery { caller, reply, file }) = self.work.helpers.poll_reply() {
            match caller {
                Caller::Job(job) => self.work.helper_replied(job, reply, file),
                Caller::Coldplug => self.coldplug.replied(&mut self.work, &reply),
                Caller::Rules => self.with_rules(|rules, on| rules.were_looked_at(on, &reply)),
                Caller::Reload => self.with_rules(|rules, on| rules.were_read(on, &reply)),
                Caller::Trigger { follow_up, again } => {
                    follow_up::triggered(&mut self.work, follow_up, again, &reply);
                }
                Caller::ReRead { devpath, follow_up } => {
                    follow_up::partitions_re_read(&mut self.work, devpath.as_ref(), &reply);
                    follow_up::end(&mut self.work, follow_up);
                }
            }
        }
    }

    fn read_watches(&mut self) {
        self.work.stores.watches.read();
        self.work.stores.take_folder_changes();
        while let Some(id) = self.work.stores.watches.poll_written() {
            follow_up::node_was_written(&mut self.work, &id);
        }
    }

    /// Whether there is something for the engine.
    fn has_work(&self) -> bool {
        !self.work.is_through() || self.may_start() || self.work.engine.can_go_on()
    }

    /// When there will be.
    fn works_at(&self) -> Option<Now> {
        let engine = &self.work.engine;
        let may_start = self.rules.hold_until().filter(|_| engine.can_start());
        [engine.poll_timeout(), may_start].into_iter().flatten().min()
    }

    /// First what came in: events are only queued by that. Then, in turns, what jobs have waited for
    /// and new jobs, each until it waits for something: so the oldest job is ended before another
    /// begins, and a thousand jobs that can go on at once do not hold up the next event.
    fn do_work(&mut self) {
        self.work.take_inbox();
        let until = monotonic() + MAX_WORK;
        loop {
            self.work.now = monotonic();
            if self.work.now >= until {
                break;
            }
            self.facts_next = !self.facts_next;
            let is_facts_turn = self.facts_next || !self.may_start();
            let fact = if is_facts_turn { self.work.facts.pop_front() } else { None };
            match fact {
                Some((job, fact)) => self.work.learn(job, fact),
                None if self.may_start() => {
                    self.with_rules(Rules::look_if_due);
                    if self.may_start() {
                        self.work.input(Input::Start);
                    }
                }
                None => break,
            }
        }
        self.work.go_on_with_one();
    }

    /// Whether there is an event to start that does not wait for new rules.
    fn may_start(&self) -> bool {
        let may_start = |until| self.work.now >= until;
        self.work.engine.can_start() && self.rules.hold_until().is_none_or(may_start)
    }

    fn go_on_compiling(&mut self) {
        self.with_rules(Rules::go_on_compiling);
    }

    fn with_rules<R>(&mut self, act: impl FnOnce(&mut Rules, &mut Surroundings) -> R) -> R {
        let Shell { work, readiness, configuration, .. } = self;
        act(&mut self.rules, &mut Surroundings { work, readiness, configuration })
    }

    fn mend_run_folder(&mut self) {
        let sockets = (self.control.as_mut(), self.status.as_mut());
        if self.mender.mend(&mut self.work, sockets) {
            self.coldplug.look_at_all(self.work.now);
        }
    }

    fn finish_what_failed(&mut self) {
        if self.exiting {
            return;
        }
        let rules = self.rules.current();
        if unfinished::go_on(&mut self.work, &mut self.coldplug, rules, self.mender.is_stuck()) {
            self.mend_run_folder();
        }
    }

    /// Looks for what was lost, removes what is gone, triggers what is there.
    fn go_on_with_devices(&mut self) {
        if self.exiting {
            (self.coldplug, self.resync) = (Coldplug::default(), Resync::default());
            return;
        }
        let is_read = self.work.is_read();
        let is_quiet = is_read && self.work.engine.queue_len().0 == 0;
        if self.coldplug.is_resync_due(self.work.now, is_quiet) {
            self.resync.start_scan();
        }
        self.resync.go_on(&mut self.work, &mut self.coldplug, is_read);
        self.coldplug.go_on(&mut self.work, is_read);
    }

    /// What waits for an idle loop.
    fn rest_if_idle(&mut self) {
        if !self.work.is_read() || self.work.stores.watches.is_ready() {
            return;
        }
        self.work.mark_queue();
        if let Some(control) = &mut self.control {
            control.on_idle(self.rules.are_asked_for());
        }
        if let Some(recorder) = &mut self.work.recorder {
            recorder.flush(self.work.now);
        }
        if !self.readiness.is_ready()
            && self.work.links.is_settled()
            && self.coldplug.is_all_through(&self.work, self.resync.is_scanning())
        {
            self.readiness.set_ready(self.work.now);
        }
    }

    fn on_signals(&mut self) {
        while let Ok(signal) = self.signals.read() {
            match signal {
                libc::SIGHUP => self.with_rules(Rules::reload),
                _ => self.exit(),
            }
        }
    }

    /// Finishes what runs, starts nothing else, then ends.
    fn exit(&mut self) {
        if !self.exiting {
            log::debug!("Ending when running events are finished");
            self.exiting = true;
            self.readiness.stopping(self.work.now);
            self.work.inbox.push_back(Input::Exit);
        }
    }

    fn accept_clients(&mut self) {
        let Some(control) = &mut self.control else { return };
        let accepted = control.accept(&self.work.sources, self.work.now);
        accepted.into_iter().for_each(|id| self.on_client(id));
    }

    /// Accepts whom it could not accept before, and reads on where a client has sent more than one turn's share.
    fn go_on_with_clients(&mut self) {
        let Some(control) = &mut self.control else { return };
        let unread = control.take_unread();
        if control.listener().is_due(self.work.now) {
            self.accept_clients();
        }
        unread.into_iter().for_each(|id| self.on_client(id));
    }

    fn on_client(&mut self, id: u64) {
        for action in self.control.as_mut().map(|control| control.read(id)).unwrap_or_default() {
            match action {
                ClientAction::Do(message) => self.do_message(message),
                // Whatever was sent before this moment is read before the client is let go.
                ClientAction::WaitForIdle => {
                    self.work.intake.set_ready();
                    self.work.stores.watches.set_ready();
                }
                ClientAction::Report(error) => {
                    log::warn!(target: quota::CLIENTS, "A client's message has no effect: {error}");
                }
                ClientAction::Close => {}
            }
        }
    }

    /// What a client of the control socket wants.
    fn do_message(&mut self, message: Message) {
        log::debug!("Told to: {message:?}");
        match message {
            Message::SetLogLevel(level) => set_log_level(level),
            Message::StopExecQueue => self.work.inbox.push_back(Input::StopQueue),
            Message::StartExecQueue => self.work.inbox.push_back(Input::StartQueue),
            Message::Reload => self.with_rules(Rules::reload),
            Message::SetEnv { name, value } => self.work.set_global(name, value),
            Message::SetChildrenMax(max) => self.work.set_children_max(max),
            Message::Exit => self.exit(),
            Message::End | Message::Ping => {}
        }
    }

    fn accept_status_clients(&mut self) {
        let Some(status) = &mut self.status else { return };
        let accepted = status.accept(&self.work.sources, self.work.now);
        accepted.into_iter().for_each(|id| self.on_status_client(id));
    }

    fn go_on_with_status(&mut self) {
        if self.status.as_ref().is_some_and(|status| status.listener().is_due(self.work.now)) {
            self.accept_status_clients();
        }
    }

    /// Answers what a client of the status socket asks for.
    fn on_status_client(&mut self, id: u64) {
        let Some(server) = &mut self.status else { return };
        server.go_on(id);
        let Some(request) = server.request(id) else { return };
        let json = match request.as_str() {
            "status" => serde_json::to_string(&self.status()),
            "findings" => serde_json::to_string(self.rules.findings()),
            "links" => serde_json::to_string(&link_rows(&self.work.links.exchange.table)),
            _ => Ok(r#"{"error":"ask for status, links or findings"}"#.to_owned()),
        };
        if let (Some(server), Ok(json)) = (&mut self.status, json) {
            server.answer(id, json);
        }
    }

    fn status(&self) -> Status {
        let (rule_files, rule_lines) = self.rules.size();
        Status {
            ready: self.readiness.is_ready(),
            exiting: self.exiting,
            clients: self.control.as_ref().map_or(0, Control::clients),
            rule_files,
            rule_lines,
            ..Status::of(&self.work)
        }
    }
}

/// The level of the log from here on, as syslog counts.
fn set_log_level(level: u8) {
    if let Some(level) = crate::model::parse_log_level(level.to_string().as_bytes()) {
        log::set_max_level(level);
    }
}
