//! Which of the events that may start comes next.

use super::QueuedId;
use crate::model::SeqNum;
use crate::model::fnv::BuildFnv;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Events that may start. Those of one subsystem start in the order of their numbers; subsystems take
/// turns, so that thousands of events of one do not hold up the single event of another.
#[derive(Debug, Default)]
pub(super) struct Flows {
    by_flow: HashMap<u64, BTreeSet<(SeqNum, QueuedId)>, BuildFnv>,
    /// Flows that have events, in the order of their turns.
    turns: VecDeque<u64>,
}

impl Flows {
    pub(super) fn insert(&mut self, flow: u64, seqnum: SeqNum, id: QueuedId) {
        let events = self.by_flow.entry(flow).or_default();
        if events.is_empty() {
            self.turns.push_back(flow);
        }
        events.insert((seqnum, id));
    }

    pub(super) fn take(&mut self) -> Option<QueuedId> {
        let flow = self.turns.pop_front()?;
        let events = self.by_flow.get_mut(&flow)?;
        let (_, id) = events.pop_first()?;
        if !events.is_empty() {
            self.turns.push_back(flow);
        }
        Some(id)
    }

    pub(super) fn remove(&mut self, flow: u64, place: (SeqNum, QueuedId)) -> bool {
        let Some(events) = self.by_flow.get_mut(&flow) else { return false };
        let was = events.remove(&place);
        if was && events.is_empty() {
            self.turns.retain(|turn| *turn != flow);
        }
        was
    }

    pub(super) fn renumber(&mut self, flow: u64, place: (SeqNum, QueuedId), seqnum: SeqNum) {
        if self.remove(flow, place) {
            self.insert(flow, seqnum, place.1);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}
