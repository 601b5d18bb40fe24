//! The index of places: who stands on each, and who below.

use super::QueuedId;
use super::keys::{Keys, Touch};
use crate::model::fnv::BuildFnv;
use std::collections::HashMap;

/// Something that events can stand on or below.
#[derive(Debug, Default)]
struct Place {
    /// The youngest event on it.
    last: Option<QueuedId>,
    /// The first node of those below it.
    below: Option<u32>,
}

/// A member of the list of one place.
#[derive(Debug)]
struct Node {
    entry: QueuedId,
    before: Option<u32>,
    after: Option<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Places {
    by_key: HashMap<u64, Place, BuildFnv>,
    nodes: Vec<Node>,
    free_nodes: Vec<u32>,
}

impl Places {
    /// The youngest event that stands on a place.
    pub(super) fn last(&self, key: u64) -> Option<QueuedId> {
        self.by_key.get(&key)?.last
    }

    /// From now on `last` is the youngest event on this place, if `id` was.
    pub(super) fn replace_last(&mut self, key: u64, id: QueuedId, last: impl FnOnce() -> Option<QueuedId>) {
        if let Some(place) = self.by_key.get_mut(&key)
            && place.last == Some(id)
        {
            place.last = last();
        }
    }

    /// Puts an event on and below its places. `find` hears who is there already, perhaps more than once.
    pub(super) fn settle(
        &mut self,
        id: QueuedId,
        keys: &Keys,
        touches: &mut Vec<Touch>,
        mut find: impl FnMut(QueuedId),
    ) {
        for &key in &keys.on {
            let place = self.by_key.entry(key).or_default();
            if let Some(by) = place.last.replace(id).filter(|by| *by != id) {
                find(by);
            }
            let mut next = place.below;
            while let Some(node) = next.and_then(|n| self.nodes.get(n as usize)) {
                find(node.entry);
                next = node.after;
            }
            touches.push(Touch { place: key, node: None });
        }
        for &key in &keys.above {
            let place = self.by_key.entry(key).or_default();
            if let Some(by) = place.last.filter(|by| *by != id) {
                find(by);
            }
            let node = Node { entry: id, before: None, after: place.below };
            let number = match self.free_nodes.pop() {
                Some(number) => {
                    self.nodes[number as usize] = node;
                    number
                }
                None => {
                    self.nodes.push(node);
                    (self.nodes.len() - 1) as u32
                }
            };
            if let Some(second) = place.below.replace(number) {
                self.nodes[second as usize].before = Some(number);
            }
            touches.push(Touch { place: key, node: Some(number) });
        }
    }

    /// Takes an entry from one of its places; an empty place goes.
    pub(super) fn leave(&mut self, id: QueuedId, touch: Touch) {
        let Some(place) = self.by_key.get_mut(&touch.place) else { return };
        match touch.node {
            None if place.last == Some(id) => place.last = None,
            None => {}
            Some(number) => {
                let Node { before, after, .. } = self.nodes[number as usize];
                match before {
                    Some(before) => self.nodes[before as usize].after = after,
                    None => place.below = after,
                }
                if let Some(after) = after {
                    self.nodes[after as usize].before = before;
                }
                self.free_nodes.push(number);
            }
        }
        if place.last.is_none() && place.below.is_none() {
            self.by_key.remove(&touch.place);
        }
    }

    /// Nobody stands anywhere, and all nodes are free.
    #[cfg(test)]
    pub(super) fn are_empty(&self) -> bool {
        self.by_key.is_empty() && self.free_nodes.len() == self.nodes.len()
    }
}
