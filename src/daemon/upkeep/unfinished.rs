//! Does again what failed for want of room ([`crate::tasks::unfinished`]), when there is room.
//!
//! Must stay true: it goes in slices, between which the loop does its other work; who ends begins nothing anew.

use super::super::shell::Shell;
use crate::model::Trigger;
use crate::sys::clock::monotonic;
use bstr::BString;

impl Shell {
    /// Does again what failed, if something did, its time has come and there is room.
    pub(crate) fn finish_what_failed(&mut self) {
        if self.stores.unfinished.is_finishing() && !self.exiting {
            return self.go_on_finishing();
        }
        let is_needed = self.stores.is_unfinished() || self.queue_file.is_stuck() || self.is_unmendable;
        if self.exiting || !self.stores.unfinished.is_due(is_needed, self.now) {
            return;
        }
        self.mark_queue();
        if self.is_unmendable {
            self.stores.mend_folders();
            return self.mend_run_folder();
        }
        if !self.stores.look_for_room() {
            return self.mend_run_folder();
        }
        if std::mem::take(&mut self.stores.unfinished.static_nodes) {
            self.set_up_static_nodes();
        }
        self.stores.begin_finishing();
        self.go_on_finishing();
    }

    /// The next slice.
    fn go_on_finishing(&mut self) {
        self.stores.turn.begin(monotonic());
        while self.stores.unfinished.is_finishing() {
            let links = &mut self.links.exchange.table;
            if let Some(wanted) = self.stores.go_on_finishing(links, &self.engine) {
                return self.trigger_failed(wanted);
            }
            if !self.stores.turn.has_time() {
                return;
            }
        }
    }

    fn trigger_failed(&mut self, wanted: Vec<(Trigger, BString)>) {
        if !wanted.is_empty() {
            log::info!("There is room again: {} devices whose events failed are triggered", wanted.len());
            let wanted = wanted.into_iter().map(|(action, devpath)| (action, self.syspath(&devpath)));
            let wanted: Vec<_> = wanted.collect();
            self.coldplug.add(wanted);
        }
        if self.stores.unfinished.take_too_many() {
            self.look_at_all_devices();
        }
    }
}
