//! Does again what failed for want of room ([`crate::tasks::unfinished`]), when there is room.
//!
//! Must stay true: it goes in slices, between which the loop does its other work; who ends begins nothing anew.

use super::super::work::Work;
use super::coldplug::Coldplug;
use super::static_nodes;
use crate::model::Trigger;
use crate::rules::program::RuleSet;
use crate::sys::clock::monotonic;
use bstr::BString;

/// Whether there is something to go on with at once. `is_stuck`: as for [`go_on`]. What failed in a later part of the
/// turn than this one has no time yet at which it is done again.
pub(crate) fn has_work(work: &Work, is_stuck: bool) -> bool {
    work.stores.unfinished.has_work(is_needed(work, is_stuck))
}

/// Whether something waits for room.
fn is_needed(work: &Work, is_stuck: bool) -> bool {
    work.stores.is_unfinished() || work.queue_file.is_stuck() || is_stuck
}

/// Does again what failed, if something did, its time has come and there is room. `is_stuck`: `/run/udev` could not be
/// made anew. True: it may be another by now, and is to be mended.
pub(crate) fn go_on(work: &mut Work, coldplug: &mut Coldplug, rules: &RuleSet, is_stuck: bool) -> bool {
    if !work.stores.unfinished.is_finishing() {
        let is_needed = is_needed(work, is_stuck);
        if !work.stores.unfinished.is_due(is_needed, work.now) {
            return false;
        }
        work.mark_queue();
        if is_stuck {
            work.stores.mend_folders();
            return true;
        }
        if !work.stores.look_for_room() {
            return true;
        }
        if std::mem::take(&mut work.stores.unfinished.static_nodes) {
            static_nodes::set_up(work, rules);
        }
        work.stores.begin_finishing();
    }
    if let Some(wanted) = slice(work) {
        trigger_failed(work, coldplug, wanted);
    }
    false
}

/// The next slice; after the last one the devices whose events failed.
fn slice(work: &mut Work) -> Option<Vec<(Trigger, BString)>> {
    work.stores.turn.begin(monotonic());
    while work.stores.unfinished.is_finishing() {
        let wanted = work.stores.go_on_finishing(&mut work.links.exchange.table, &work.engine);
        if wanted.is_some() || !work.stores.turn.has_time() {
            return wanted;
        }
    }
    None
}

fn trigger_failed(work: &mut Work, coldplug: &mut Coldplug, wanted: Vec<(Trigger, BString)>) {
    if !wanted.is_empty() {
        log::info!("There is room again: {} devices whose events failed are triggered", wanted.len());
        coldplug.trigger(work, wanted);
    }
    if work.stores.unfinished.take_too_many() {
        coldplug.look_at_all(work.now);
    }
}
