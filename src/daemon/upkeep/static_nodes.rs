//! Nodes that are there without an event (rules.md 8.10): owner and mode as the rules say.

use super::super::work::Work;
use crate::rules::program::RuleSet;
use crate::world::nodes;

/// Sets them up; what fails for want of room is remembered.
pub(crate) fn set_up(work: &mut Work, rules: &RuleSet) {
    if let Err(error) = nodes::sweep_static_node_tags(&work.roots) {
        log::warn!("Cannot clean the tags of static nodes: {error}");
    }
    for node in &rules.static_nodes {
        if let Err(errno) = nodes::apply_static_node(&work.roots, node) {
            log::warn!("Cannot set up the static node {}: {errno}", node.name);
            work.stores.unfinished.static_nodes |= errno.is_shortage();
        }
    }
}
