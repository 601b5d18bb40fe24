//! Reading devices: the attributes that rules ask, of the device of an event, of those above it and of others, and those
//! that builtins read. The link table speaks for interfaces, as far as it can.
//!
//! Must stay true: attributes are read for jobs here and nowhere else. An attribute whose reading may wait is left to a
//! helper ([`Need::Helper`]). The reader learns from what it reads: which attributes are slow, and which do not exist.

use super::absent::{Absent, Family};
use super::slow::SlowAttributes;
use crate::engine::JobId;
use crate::links::{self, LinkAttr, Mark, Refresh, Table};
use crate::model::fnv::BuildFnv;
use crate::model::need::{Fact, Need};
use crate::model::operation::{AttrPlace, Operation, OperationReply};
use crate::model::{Action, DeviceId, Errno, Event, IfIndex, Properties};
use crate::rules::ask::{Attr, ParentDevice, Subject};
use crate::world::Roots;
use crate::world::database::OtherDevices;
use crate::world::sysfs::Sysfs;
use bstr::{BStr, BString, ByteSlice};
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// What is remembered of a job while it asks.
#[derive(Default)]
struct JobMemory {
    /// Rows of links must be this fresh for the columns that change silently.
    mark: Option<Mark>,
    parents: Option<Arc<[ParentDevice]>>,
    /// The last request of its builtin sets what the kernel may not announce.
    sets_silently: bool,
}

/// See the module.
pub struct AttributeReader {
    pub sysfs: Sysfs,
    memories: HashMap<JobId, JobMemory, BuildFnv>,
    slow: SlowAttributes,
    absent: Absent,
    /// Subsystems that are no buses: their devices have no driver.
    no_buses: HashSet<BString, BuildFnv>,
    /// The link table answers what it can.
    trusts_links: bool,
}

impl AttributeReader {
    /// Reads below these roots.
    pub fn new(roots: &Roots) -> AttributeReader {
        AttributeReader {
            sysfs: Sysfs::new(roots).without_hardware(),
            memories: HashMap::default(),
            slow: SlowAttributes::default(),
            absent: Absent::default(),
            no_buses: HashSet::default(),
            trusts_links: true,
        }
    }

    /// Reads attributes of interfaces from sysfs from now on, whatever the link table knows.
    pub fn distrust_links(&mut self) {
        self.trusts_links = false;
    }

    /// Whether the link table answers in place of sysfs.
    pub(super) fn asks_table(&self, links: &Table) -> bool {
        self.trusts_links && links.speaks_for_sysfs()
    }

    /// Whether the event is of an interface or of what lies below one.
    pub(super) fn is_about_links(&self, links: &Table, event: &Event) -> bool {
        let device = &event.device;
        self.asks_table(links) && (device.subsystem == "net" || device.devpath.contains_str("/net/"))
    }

    /// Nothing is remembered of this job from here on.
    pub(super) fn forget(&mut self, job: JobId) {
        self.memories.remove(&job);
    }

    fn memory(&mut self, job: JobId) -> &mut JobMemory {
        self.memories.entry(job).or_default()
    }

    /// A bus was registered: what is known of subsystems may be wrong now.
    pub fn forget_buses(&mut self) {
        self.no_buses.clear();
    }

    /// The devices above. Interfaces are known from the link table; they are of a class and have no driver.
    pub(super) fn parents(&mut self, links: &Table, job: JobId, event: &Event) -> Arc<[ParentDevice]> {
        if let Some(parents) = self.memories.get(&job).and_then(|m| m.parents.clone()) {
            return parents;
        }
        let live = self.asks_table(links);
        let interface = |devpath: &BStr| {
            let name = devpath.strip_prefix(b"/devices/virtual/net/").filter(|_| live)?;
            links.by_name(name).map(|_| ParentDevice {
                devpath: devpath.to_owned(),
                sysname: name.into(),
                subsystem: "net".into(),
                driver: BString::default(),
            })
        };
        let parents: Arc<[ParentDevice]> =
            self.sysfs.parents_knowing(&event.device.devpath, interface).into();
        self.memory(job).parents = Some(parents.clone());
        parents
    }

    /// Properties and id of a parent that is a link, without its files: all that the kernel says of one stands in the table,
    /// but for DEVTYPE, which is known as long as the record is that the link's own event wrote.
    pub(super) fn link_parent(
        &self,
        links: &Table,
        parent: &ParentDevice,
        others: Option<&dyn OtherDevices>,
    ) -> Option<(Properties, DeviceId)> {
        if !self.asks_table(links) || parent.subsystem != "net" {
            return None;
        }
        let ifindex = links.by_name(&parent.sysname)?.ifindex();
        let id = DeviceId::Net(ifindex);
        let devtype = &others?.recent(&id)?.devtype;
        let mut properties = Properties::new();
        properties.set("DEVPATH", &parent.devpath);
        if let Some(devtype) = devtype {
            properties.set("DEVTYPE", devtype);
        }
        properties.set("INTERFACE", &parent.sysname);
        properties.set("IFINDEX", ifindex.0.to_string());
        properties.set("SUBSYSTEM", "net");
        Some((properties, id))
    }

    /// Only devices of a bus have a driver; interfaces are of a class, and their folder is not to be
    /// looked into.
    pub(super) fn driver(&mut self, event: &Event) -> Option<BString> {
        let subsystem = &event.device.subsystem;
        if event.device.ifindex.is_some() || self.no_buses.contains(subsystem) {
            return None;
        }
        let driver = self.sysfs.driver(&event.device.devpath);
        if driver.is_none() && !self.sysfs.is_bus(subsystem) {
            self.no_buses.insert(subsystem.clone());
        }
        driver
    }

    /// The row of the link table that speaks for a subject.
    fn link_of(&mut self, links: &Table, job: JobId, event: &Event, subject: &Subject) -> Option<IfIndex> {
        if !self.asks_table(links) {
            return None;
        }
        match subject {
            Subject::Event => event.device.ifindex.filter(|_| event.device.subsystem == "net"),
            Subject::Parent(index) => {
                let parents = self.parents(links, job, event);
                let parent = parents.get(usize::from(*index)).filter(|p| p.subsystem == "net")?;
                links.by_name(&parent.sysname).map(|link| link.ifindex())
            }
            Subject::Named { subsystem, sysname } if subsystem == "net" => {
                links.by_name(sysname).map(|link| link.ifindex())
            }
            Subject::Named { .. } => None,
        }
    }

    /// devpath and subsystem of a subject.
    fn place(
        &mut self,
        links: &Table,
        job: JobId,
        event: &Event,
        subject: &Subject,
    ) -> Option<(BString, BString)> {
        match subject {
            Subject::Event => Some((event.device.devpath.clone(), event.device.subsystem.clone())),
            Subject::Parent(index) => {
                let parents = self.parents(links, job, event);
                let parent = parents.get(usize::from(*index))?;
                Some((parent.devpath.clone(), parent.subsystem.clone()))
            }
            Subject::Named { subsystem, sysname } => {
                Some((self.sysfs.device_of(subsystem, sysname)?, subsystem.clone()))
            }
        }
    }

    /// The attribute of a subject, or what must be had for it.
    pub(super) fn attr(
        &mut self,
        links: &mut Table,
        job: JobId,
        event: &Event,
        subject: &Subject,
        name: &BString,
        facts: &[Fact],
    ) -> Result<Attr, Need> {
        if let Some(Fact::Helper(reply)) = facts.last() {
            return Ok(match reply {
                OperationReply::Attr { value, waited, .. } => {
                    if let Some((_, subsystem)) = self.place(links, job, event, subject) {
                        self.slow.learn(subsystem.as_bstr(), name.as_bstr(), *waited);
                    }
                    value.clone().map_or(Attr::Missing, Attr::Value)
                }
                other => {
                    let errno = other.errno().unwrap_or(Errno(libc::EIO));
                    log::warn!("{}: attribute {name} is not read: {errno}", event.title());
                    Attr::Missing
                }
            });
        }
        let link = match self.link_of(links, job, event, subject) {
            Some(ifindex) => {
                let mark = self.mark(links, job, event);
                Some((ifindex, links::attr(links, ifindex, name, mark)))
            }
            None => None,
        };
        match link {
            Some((_, LinkAttr::Text(text))) => return Ok(Attr::Value(text)),
            Some((_, LinkAttr::Missing)) => return Ok(Attr::Missing),
            // The job has asked for this row before, and the kernel did not tell it.
            Some((_, LinkAttr::Unknown | LinkAttr::NeedsRefresh(_))) if facts.len() > 1 => {
                return Ok(Attr::Missing);
            }
            Some((ifindex, LinkAttr::Unknown)) => return Err(Need::Link(ifindex)),
            Some((ifindex, LinkAttr::NeedsRefresh(refresh))) => {
                return Err(Need::FreshLink { ifindex, statistics: refresh == Refresh::Statistics });
            }
            Some((_, LinkAttr::Slow | LinkAttr::FromSysfs)) | None => {}
        }
        let Some((devpath, subsystem)) = self.place(links, job, event, subject) else {
            return Ok(Attr::NoDevice);
        };
        let family = match self.asks_table(links) && matches!(link, Some((_, LinkAttr::FromSysfs)) | None) {
            true => Family::of(&devpath, &subsystem, links),
            false => None,
        };
        if family.is_some_and(|family| self.absent.contains(family, name)) {
            return Ok(Attr::Missing);
        }
        let attr = self.attr_of_file(link, (&devpath, &subsystem), name)?;
        if let (Attr::Missing, Some(family)) = (&attr, family)
            && self.sysfs.lacks(&devpath, name)
        {
            self.absent.insert(family, name);
        }
        Ok(attr)
    }

    fn attr_of_file(
        &mut self,
        link: Option<(IfIndex, LinkAttr)>,
        (devpath, subsystem): (&BString, &BString),
        name: &BString,
    ) -> Result<Attr, Need> {
        let (subsystem, name) = (subsystem.as_bstr(), name.as_bstr());
        match link {
            Some((_, LinkAttr::FromSysfs)) if links::is_free_of_locks(name) => {
                return Ok(self.sysfs.attr(devpath, name));
            }
            Some((_, LinkAttr::FromSysfs)) | None
                if Sysfs::is_inside(devpath, name) && !self.slow.is_for_helper(subsystem, name) =>
            {
                let sysfs = &self.sysfs;
                if !sysfs.asks_hardware(devpath, subsystem, name) {
                    return Ok(self.slow.read(subsystem, name, || sysfs.attr(devpath, name)));
                }
                if !sysfs.exists(devpath, name) {
                    return Ok(Attr::Missing);
                }
            }
            _ => {}
        }
        Err(self.attr_by_helper(AttrPlace { devpath: devpath.clone(), name: name.to_owned() }))
    }

    fn attr_by_helper(&self, place: AttrPlace) -> Need {
        let sys = self.sysfs.root().as_os_str().as_bytes().into();
        Need::Helper(Operation::ReadAttr { sys, place })
    }

    /// What `read` reads in sysfs, with the attributes that helpers have read for it so far.
    pub(super) fn with_hardware<T>(&self, facts: &[Fact], read: impl FnOnce(&Sysfs) -> T) -> Result<T, Need> {
        let known = |fact: &Fact| match fact {
            Fact::Helper(OperationReply::Attr { place, value, .. }) => Some((place.clone(), value.clone())),
            _ => None,
        };
        // The helper of an attribute hung, died or was refused: the next one is not tried.
        let gave_up = facts.iter().any(|fact| matches!(fact, Fact::Helper(reply) if reply.is_none()));
        let known = facts.iter().filter_map(known).collect();
        self.sysfs.knowing(known, gave_up, read).map_err(|place| self.attr_by_helper(place))
    }

    /// The builtin of this job sends a request that sets columns which the kernel may not announce, or does not.
    pub(super) fn sets_silently(&mut self, job: JobId, silently: bool) {
        self.memory(job).sets_silently = silently;
    }

    /// Whether the last request of this job's builtin was such a one.
    pub(super) fn has_set_silently(&self, job: JobId) -> bool {
        self.memories.get(&job).is_some_and(|memory| memory.sets_silently)
    }

    /// This job has written or run something, which may have changed links. What the kernel announces of that is to be
    /// read first, and since it does not announce silent columns, rows must be younger than that from here on.
    pub(super) fn expect_change(&mut self, links: &mut Table, job: JobId) {
        if !self.asks_table(links) {
            return;
        }
        links.fall_behind();
        self.memory(job).mark = Some(links.next_mark());
    }

    /// How fresh rows must be for this job. The kernel's own `add` comes before the first message of
    /// the link, so whatever the table knows then is young enough.
    fn mark(&mut self, links: &mut Table, job: JobId, event: &Event) -> Mark {
        if let Some(mark) = self.memories.get(&job).and_then(|m| m.mark) {
            return mark;
        }
        let new = event.action == Action::Add && event.properties.get("SYNTH_UUID").is_none();
        let mark = if new { Mark::ANY } else { links.mark() };
        self.memory(job).mark = Some(mark);
        mark
    }
}

#[cfg(test)]
mod tests;
