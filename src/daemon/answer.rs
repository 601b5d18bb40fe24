//! What a job asks and needs no waiting is replied to here, within the engine's step.
//!
//! Must stay true: a trace has these replies as inputs, and the engine decides the same without them.

use super::recorder::Recorder;
use crate::engine::{AtOnce, JobId, Output, Reply, Tried};
use crate::links::Table;
use crate::model::need::Need;
use crate::model::{Event, Now};
use crate::rules::Ask;
use crate::tasks::{Pending, Stores, Task};
use log::LevelFilter;
use std::collections::HashMap;

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
