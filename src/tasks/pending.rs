//! What is known for a request that waits.

use crate::model::need::Fact;

/// What is known for a request that waits for a need. The job keeps the request itself.
#[derive(Default)]
pub struct Pending {
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
