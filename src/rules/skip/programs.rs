//! The programs made so far for one rule set, each at the first event of its kind.

use super::super::program::RuleSet;
use super::{EventKind, Specialised};
use crate::model::fnv::BuildFnv;
use crate::model::{Action, Event};
use bstr::BString;
use std::collections::HashMap;
use std::sync::Arc;

/// Programs kept before all are forgotten. An idle system has some sixty kinds of events.
const MAX_PROGRAMS: usize = 128;

/// All programs made so far for one rule set.
#[derive(Clone, Debug)]
pub struct Programs {
    rules: Arc<RuleSet>,
    /// Per action, number and ifindex: the programs by subsystem.
    by_kind: Vec<HashMap<BString, Arc<Specialised>, BuildFnv>>,
    count: usize,
}

impl Programs {
    /// None yet.
    pub fn new(rules: Arc<RuleSet>) -> Programs {
        Programs { rules, by_kind: vec![HashMap::default(); Action::ALL.len() * 4], count: 0 }
    }

    /// The program for this event, made at the first call for its kind. Kinds that come to the same
    /// lines share one; at [`MAX_PROGRAMS`] kinds all are forgotten.
    pub fn for_event(&mut self, event: &Event) -> Arc<Specialised> {
        let kind = EventKind::of(event);
        let slot =
            kind.action as usize * 4 + usize::from(kind.has_devnum) * 2 + usize::from(kind.has_ifindex);
        if let Some(known) = self.by_kind[slot].get(kind.subsystem) {
            return known.clone();
        }
        if self.count >= MAX_PROGRAMS {
            self.by_kind.iter_mut().for_each(HashMap::clear);
            self.count = 0;
        }
        let made = Specialised::new(self.rules.clone(), kind);
        let equal = self.by_kind.iter().flat_map(HashMap::values).find(|p| p.lines == made.lines);
        let program = equal.cloned().unwrap_or_else(|| Arc::new(made));
        self.by_kind[slot].insert(kind.subsystem.to_owned(), program.clone());
        self.count += 1;
        program
    }
}
