//! A task, and one that waits.

use crate::model::effect::Effect;
use crate::model::need::Fact;
use crate::rules::Ask;
use crate::rules::outcome::RunItem;

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
