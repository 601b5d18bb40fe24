//! The names of an interface.

use super::record::{rewrite_record, with_property};
use super::{Awaiting, Job, JobStep, Notice, Phase};
use crate::model::device::{is_interface_name, last_component, sysname};
use crate::model::effect::{Done, Effect};
use crate::model::{Action, Errno, Event, IfIndex};
use bstr::{BStr, BString, ByteSlice};

impl Job {
    /// The new name, if this event renames an interface.
    fn new_name(&self) -> Option<(IfIndex, BString)> {
        let name = self.outcome.name.as_ref()?;
        let event = self.event();
        let renames = event.action == Action::Add && last_component(&event.device.devpath) != name;
        event.device.ifindex.filter(|_| renames).map(|ifindex| (ifindex, name.clone()))
    }

    /// Network managers that see the new name before its `move` event find ID_RENAMING in the record
    /// (rules.md 9.4).
    pub(super) fn announce_renaming(&mut self) -> Option<JobStep> {
        self.phase = Phase::AltNames;
        let (_, name) = self.new_name()?;
        if !is_interface_name(&name, 15) {
            let text = format!("{name:?} is no name for an interface; it keeps its own");
            return Some(JobStep::Tell(vec![self.log(log::Level::Warn, text)]));
        }
        let id = self.device_id.clone()?;
        let old = self.event().old.clone().unwrap_or_default();
        let effect = rewrite_record(id, with_property(&old, "ID_RENAMING"));
        self.perform(effect, Awaiting::Must, Phase::Rename)
    }

    pub(super) fn rename(&mut self) -> Option<JobStep> {
        self.phase = Phase::AltNames;
        let (ifindex, to) = self.new_name()?;
        let from = last_component(&self.event().device.devpath).to_owned();
        self.perform(Effect::Rename { ifindex, from, to }, Awaiting::Rename, Phase::AltNames)
    }

    pub(super) fn renamed(&mut self, done: Done) -> Option<Notice> {
        let name = self.outcome.name.take()?;
        match done {
            Done::Failed(Errno(libc::EBUSY)) => {
                let text = format!("interface is up, {name:?} has to wait");
                Some(self.log(log::Level::Info, text))
            }
            Done::Failed(errno) => {
                // The name is reverted, not the event: its properties are recorded and announced.
                self.failure = Some(errno);
                self.phase = Phase::Node;
                Some(self.log(log::Level::Error, format_args!("cannot rename to {name:?}: {errno}")))
            }
            _ => {
                take_name(&mut self.outcome.event, name.as_bstr());
                None
            }
        }
    }

    pub(super) fn alt_names(&mut self) -> Option<JobStep> {
        self.phase = Phase::Node;
        let event = self.event();
        if event.action != Action::Add || self.outcome.alt_names.is_empty() {
            return None;
        }
        let ifindex = event.device.ifindex?;
        let name = last_component(&event.device.devpath).to_owned();
        let alt_names = self.outcome.alt_names.clone();
        self.perform(Effect::AddAltNames { ifindex, name, alt_names }, Awaiting::Any, Phase::Node)
    }
}

/// The event goes on under the interface's new name.
fn take_name(event: &mut Event, name: &BStr) {
    let from = last_component(&event.device.devpath).to_owned();
    let folder = event.device.devpath.len() - from.len();
    let mut devpath = BString::from(&event.device.devpath[..folder]);
    devpath.extend_from_slice(name);
    event.properties.set("INTERFACE_OLD", from);
    event.properties.set("INTERFACE", name);
    event.properties.set("DEVPATH", devpath.clone());
    event.properties.set_stored("ID_RENAMING", "1");
    event.device.sysname = sysname(&devpath);
    event.device.devpath = devpath;
}
