//! Does what jobs want, with files, the link table and builtins. A job's [`Task`] is *tried*: the try gives the reply, or
//! the first [`Need`] that this layer cannot meet without waiting. The daemon, or the tool, meets the need and tries the
//! task again with one [`Fact`] more. So all waiting has one form, and a task that is dropped needs no undoing.
//!
//! * [`answers`] and [`attributes`] answer what rules ask, with [`slow`] and [`absent`], which learn of attributes;
//! * [`effects`] performs, with `renames` (of interfaces), [`disk_locks`] and [`portions`] (work of many parts);
//! * [`stores`] holds the stores that all of this reads and writes;
//! * [`unfinished`], [`gone`], [`interrupted`] and [`follow_ups`] know what is left to do when no job asks for it.
//!
//! Must stay true: nothing in this layer waits. Every try begins the task anew, so a try changes something only in its last
//! step, when it has all facts. An effect of many parts is different: its need says how many of them are done.

pub mod absent;
pub mod answers;
pub mod attributes;
pub mod disk_locks;
pub mod effects;
pub mod follow_ups;
pub mod gone;
pub mod interrupted;
pub mod portions;
mod renames;
pub mod slow;
pub mod stores;
pub mod unfinished;

pub use answers::Answers;
pub use stores::Stores;

use crate::engine::{JobId, Reply};
use crate::links::Table;
use crate::model::effect::Effect;
use crate::model::need::{Fact, Need};
use crate::model::{Action, Event};
use crate::rules::outcome::RunItem;
use crate::rules::{Answer, Ask};
use crate::world::database::OtherDevices;

/// What one job wants done.
#[derive(Clone, Debug)]
pub enum Task {
    Ask(Ask),
    Effect(Effect),
    Run(RunItem),
}

/// A task that waits for a need.
pub struct Pending {
    pub task: Task,
    pub facts: Vec<Fact>,
}

impl Pending {
    /// Takes what came.
    pub fn learn(&mut self, fact: Fact) {
        match fact {
            // Nothing was asked yet.
            Fact::LinksRead => {}
            Fact::Turn(_) => self.facts = vec![fact],
            fact => self.facts.push(fact),
        }
    }
}

impl Stores {
    /// Tries a task.
    pub fn attempt(
        &mut self,
        links: &mut Table,
        job: JobId,
        event: &Event,
        task: &Task,
        facts: &[Fact],
    ) -> Result<Reply, Need> {
        if facts.is_empty() && links.is_behind() && self.answers.attributes.is_about_links(links, event) {
            return Err(Need::LinksRead);
        }
        let tried = match task {
            Task::Ask(ask) => return self.answer(links, job, event, ask, facts).map(Reply::Answer),
            Task::Effect(effect) => self.perform(links, job, event, effect, facts).map(Reply::Done),
            Task::Run(item) => self.answers.run(links, event, item, facts).map(|()| Reply::Ran),
        };
        self.note_lack(event);
        tried
    }

    /// Tries a question.
    pub fn answer(
        &mut self,
        links: &mut Table,
        job: JobId,
        event: &Event,
        ask: &Ask,
        facts: &[Fact],
    ) -> Result<Answer, Need> {
        let others: Option<&dyn OtherDevices> = Some(&self.database);
        let answer = self.answers.answer((links, others), job, event, ask, facts);
        self.note_lack(event);
        answer
    }

    fn note_lack(&mut self, event: &Event) {
        if self.answers.attributes.sysfs.take_lack() {
            self.unfinished.on_lack(event);
        }
    }

    /// The job announces its event: nothing is remembered of it from here on, and a link that was deleted
    /// needs no tombstone any more.
    pub fn forget(&mut self, links: &mut Table, job: JobId, event: &Event) {
        self.answers.attributes.forget(job);
        if let (Action::Remove, Some(ifindex)) = (event.action, event.device.ifindex) {
            links.forget(ifindex);
        }
    }
}
