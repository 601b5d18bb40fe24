//! Programs for one kind of event. (Signatures; the body follows.)

use super::program::RuleSet;
use crate::model::Event;
use std::sync::Arc;

/// The lines that can matter for one ACTION, SUBSYSTEM, with or without number and ifindex.
#[derive(Debug)]
pub struct Specialised {
    _rules: Arc<RuleSet>,
}

/// All programs made so far for one rule set.
#[derive(Clone, Debug)]
pub struct Programs {
    rules: Arc<RuleSet>,
}

impl Programs {
    /// None yet.
    pub fn new(rules: Arc<RuleSet>) -> Programs {
        Programs { rules }
    }
    /// The rules they are made from.
    pub fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }
    /// The program for this event, made at the first call for its kind.
    pub fn for_event(&mut self, _event: &Event) -> Arc<Specialised> {
        todo!()
    }
}
