//! Jobs and the loop: takes what the engine wants as a task, and meets the needs of tasks with
//! children, helpers and the link table.

use super::recorder::Recorder;
use super::shell::Shell;
use super::sources::children::{Finished, Purpose};
use super::sources::links::RtnlFor;
use crate::engine::{AtOnce, JobId, Output, Reply, Tried};
use crate::links::{self, Table};
use crate::model::need::{Fact, Need};
use crate::model::operation::OperationReply;
use crate::model::{Errno, Event, Now};
use crate::rules::Ask;
use crate::tasks::{Pending, Stores, Task};
use bstr::BString;
use log::LevelFilter;
use std::collections::HashMap;
use std::os::fd::OwnedFd;

/// Replies within the engine's step to what needs no waiting.
pub(super) struct Here<'a> {
    pub stores: &'a mut Stores,
    pub links: &'a mut Table,
    pub recorder: Option<&'a mut Recorder>,
    /// A job with a level of its own is served outside, where the level is set.
    pub levels: &'a HashMap<JobId, LevelFilter>,
    pub now: Now,
    /// What the requests that were taken need first.
    pub needs: Vec<(JobId, Need)>,
}

impl Here<'_> {
    fn replied<R>(&mut self, job: JobId, reply: Reply) -> Tried<R> {
        if let Some(recorder) = &mut self.recorder {
            recorder.record_reply(job, &reply, self.now);
        }
        Tried::Replied(reply)
    }

    fn waits<R>(&mut self, job: JobId, task: Task, need: Need) -> Tried<R> {
        self.stores.pending.insert(job, Pending { task, facts: Vec::new() });
        self.needs.push((job, need));
        Tried::Taken
    }
}

impl AtOnce for Here<'_> {
    fn answer(&mut self, job: JobId, event: &Event, ask: &Ask) -> Tried<()> {
        if self.levels.contains_key(&job) {
            return Tried::Refused(());
        }
        match self.stores.answer(self.links, job, event, ask, &[]) {
            Ok(answer) => self.replied(job, Reply::Answer(answer)),
            Err(need) => self.waits(job, Task::Ask(ask.clone()), need),
        }
    }

    fn attempt(&mut self, event: &Event, request: Output) -> Tried<Output> {
        if request.job().is_some_and(|job| self.levels.contains_key(&job)) {
            return Tried::Refused(request);
        }
        let (job, task) = match request {
            Output::Perform { job, effect } => (job, Task::Effect(effect)),
            Output::Run { job, item } => (job, Task::Run(item)),
            other => return Tried::Refused(other),
        };
        match self.stores.attempt(self.links, job, event, &task, &[]) {
            Ok(reply) => self.replied(job, reply),
            Err(need) => self.waits(job, task, need),
        }
    }

    fn has_time(&mut self) -> bool {
        self.stores.turn.has_time()
    }
}

impl Shell {
    /// A request of a job; the reply goes to the replies, now or later.
    pub(super) fn begin(&mut self, job: JobId, task: Task) {
        self.attempt(job, Pending { task, facts: Vec::new() });
    }

    /// The table was told of the link that this job's task waits for, or will not be.
    pub fn link_is_known(&mut self, job: JobId) {
        self.facts.push_back((job, Fact::Link));
    }

    /// The table has caught up with the uevents: this job's task may ask it.
    pub fn links_are_read(&mut self, job: JobId) {
        self.facts.push_back((job, Fact::LinksRead));
    }

    /// A helper has done what this job's task wanted, and has perhaps opened something for it.
    pub fn helper_replied(&mut self, job: JobId, reply: OperationReply, file: Option<OwnedFd>) {
        if let Some(file) = file {
            self.stores.locks.pass(job, file);
        }
        self.facts.push_back((job, Fact::Helper(reply)));
    }

    /// The request helper has told the driver that this job's task wanted.
    pub fn driver_is_known(&mut self, job: JobId, driver: Result<BString, Errno>) {
        self.facts.push_back((job, Fact::Driver(driver)));
        let waiting = self.questions.end(job);
        self.facts.extend(waiting.into_iter().map(|job| (job, Fact::Asked)));
    }

    /// The kernel has answered a request of this job's task.
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

    /// Tries the task of a job again with one fact more. Where there is no such job any more, a disk that was opened for
    /// it is closed by a helper.
    pub(super) fn learn(&mut self, job: JobId, fact: Fact) {
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
        }
    }

    fn attempt(&mut self, job: JobId, pending: Pending) {
        let Some(event) = self.engine.event(job) else { return };
        let Pending { task, facts } = &pending;
        match self.stores.attempt(&mut self.links.exchange.table, job, event, task, facts) {
            Ok(reply) => self.replies.push_back(reply.into_input(job)),
            Err(need) => {
                self.stores.pending.insert(job, pending);
                self.meet(job, need);
            }
        }
    }

    pub(super) fn meet(&mut self, job: JobId, need: Need) {
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
}
