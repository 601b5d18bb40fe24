//! Jobs and the loop: takes what the engine wants as a task, and meets the needs of tasks with
//! children, helpers and the link table.

use super::children::Purpose;
use super::shell::Shell;
use super::task::{Fact, Need, Pending, Task};
use crate::engine::{Input, JobId};
use crate::helper::operations;
use crate::links;
use crate::model::effect::{Done, Effect};
use crate::model::{Action, Errno};
use crate::rules::Ask;
use crate::rules::outcome::RunItem;

impl Shell {
    /// A question of a job's rules; the answer goes to the replies, now or later.
    pub fn answer(&mut self, job: JobId, ask: Ask) {
        self.attempt(job, Pending { task: Task::Ask(ask), facts: Vec::new() });
    }

    /// An entry of a job's RUN list.
    pub fn run_item(&mut self, job: JobId, item: RunItem) {
        self.attempt(job, Pending { task: Task::Run(item), facts: Vec::new() });
    }

    /// An effect of a job.
    pub fn perform(&mut self, job: JobId, effect: Effect) {
        let done = match &effect {
            // A helper has it, and whoever opens it now waits for that one.
            Effect::LockDisk { device, .. } if self.follow_ups.reads_table_of(device) => Done::Busy,
            Effect::DropWatch { id } => {
                self.watches.drop_watch(id);
                Done::Ok
            }
            Effect::AddWatch { id, devnode } => match self.watches.add_watch(id, devnode.as_ref()) {
                Ok(()) => Done::Ok,
                Err(error) => {
                    // A node that is gone by now needs no watch (rules.md 9.1 step 13).
                    let is_gone = error.raw_os_error() == Some(libc::ENODEV);
                    let event = self.engine.event(job).filter(|_| !is_gone);
                    if let Some(event) = event {
                        log::warn!("{}: cannot watch {devnode}: {error}", event.title());
                    }
                    Done::Failed(Errno::of(&error))
                }
            },
            Effect::Announce { .. } => {
                self.forget(job);
                return self.attempt(job, Pending { task: Task::Effect(effect), facts: Vec::new() });
            }
            _ => return self.attempt(job, Pending { task: Task::Effect(effect), facts: Vec::new() }),
        };
        self.replies.push_back(Input::Performed { job, done });
    }

    /// The event is over: a link that was deleted needs no tombstone any more.
    fn forget(&mut self, job: JobId) {
        self.world.forget(job);
        if let Some(event) = self.engine.event(job)
            && let (Action::Remove, Some(ifindex)) = (event.action, event.device.ifindex)
        {
            self.links.table.forget(ifindex);
        }
    }

    /// The table was told of the link that this job's task waits for, or will not be.
    pub fn link_is_known(&mut self, job: JobId) {
        self.facts.push_back((job, Fact::Link));
    }

    /// A helper has done what this job's task wanted.
    pub fn helper_replied(&mut self, job: JobId, reply: operations::Reply) {
        self.facts.push_back((job, Fact::Helper(reply)));
    }

    /// The kernel has answered a request of this job's task.
    pub fn rtnl_replied(&mut self, job: JobId, reply: links::Reply) {
        if let (Err(errno), false) = (reply.result, reply.text.is_empty()) {
            log::debug!("The kernel says: {}: {errno}", reply.text);
        }
        self.facts.push_back((job, Fact::Rtnl(reply.result)));
    }

    /// A program of this job has ended.
    pub fn program_ended(&mut self, job: JobId, exit: crate::rules::ask::Exit) {
        self.facts.push_back((job, Fact::Exit(exit)));
    }

    /// Tries the task of a job again with one fact more.
    pub(super) fn learn(&mut self, job: JobId, fact: Fact) {
        if let Some(mut pending) = self.world.pending.remove(&job) {
            pending.facts.push(fact);
            self.attempt(job, pending);
        }
    }

    fn attempt(&mut self, job: JobId, pending: Pending) {
        let Some(event) = self.engine.event(job) else { return };
        let Pending { task, facts } = &pending;
        match self.world.attempt(&mut self.links.table, job, event, task, facts) {
            Ok(input) => self.replies.push_back(input),
            Err(need) => {
                self.world.pending.insert(job, pending);
                self.meet(job, need);
            }
        }
    }

    fn meet(&mut self, job: JobId, need: Need) {
        match need {
            Need::Link(ifindex) => self.park_for_link(job, ifindex),
            Need::FreshLink { ifindex, statistics } => self.park_for_refresh(job, ifindex, statistics),
            Need::Program { command, capture } => {
                let purpose = if capture { Purpose::Ask } else { Purpose::Run };
                self.run_program(job, purpose, command.as_ref());
            }
            Need::Helper(operation) => self.ask_helper(job, operation),
            Need::Rtnl(mut message) => {
                let seq = self.links.table.next_seq();
                links::request::set_seq(&mut message, seq);
                self.request_rtnl(job, seq, message);
            }
        }
    }
}
