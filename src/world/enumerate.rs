//! Finding all devices: for `trigger`, `info -e` and coldplug (interop.md 7.2 and 7.3).
//!
//! What must stay true: a device that vanishes on the way is left out silently; a parent comes before
//! its children, a disk before its partitions; the scan looks at no more than it must (a class that the filter
//! excludes is not even listed); a filter compares with the same values that `info` prints ([`Described`]).

use super::Sysfs;
use super::database::Records;
use super::described::Described;
use super::filter::Facts;
pub use super::filter::Filter;
use crate::model::{DeviceId, Properties};
use crate::rules::ask::Attr;
use bstr::{BStr, BString, ByteSlice};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Directories below a parent that are looked into: deeper than any tree of devices.
const DEPTH_MAX: usize = 64;

/// The kind of things to enumerate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Devices,
    /// Modules, buses and drivers. Not all modules have a `uevent` file; they are listed all the same.
    Subsystems,
    All,
}

/// A device that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub devpath: BString,
    /// Empty if it has none.
    pub subsystem: BString,
}

/// Looks for devices.
#[derive(Debug)]
pub struct Enumerator<'a> {
    sysfs: &'a Sysfs,
    /// `/run/udev/tags`
    tags: PathBuf,
    records: Option<Records>,
}

impl<'a> Enumerator<'a> {
    /// Devices of this tree; records and tags are those below `run` (`/run`).
    pub fn new(sysfs: &'a Sysfs, run: &std::path::Path) -> Enumerator<'a> {
        // Without a daemon there are no records, and no device is initialized.
        Enumerator { sysfs, tags: run.join("udev/tags"), records: Records::open(run).ok() }
    }

    /// All devices that the filter wants, in the order in which they are to be handled: those of the
    /// `prioritized` subsystems with their parents first.
    pub fn enumerate(&self, kind: Kind, filter: &Filter, prioritized: &[BString]) -> Vec<Found> {
        // A search by tag or parent finds devices of any kind; a caller that asks for subsystems gets only those.
        let by_lists = kind == Kind::Subsystems || filter.tags.is_empty() && filter.parents.is_empty();
        let mut candidates = Candidates::default();
        if by_lists {
            candidates = Scan::lists(kind).run(self.sysfs, filter);
        } else if filter.tags.is_empty() {
            filter.parents.iter().for_each(|parent| self.crawl(parent.as_ref(), 0, &mut candidates));
        } else {
            self.scan_tags(&filter.tags, &mut candidates);
        }
        let mut found = Vec::new();
        for (devpath, subsystem) in candidates.found {
            let device = Candidate::new(self, devpath, subsystem);
            if filter.matches(&device) && (!by_lists || self.has_tag(&device, &filter.tags)) {
                found.push(Found { devpath: device.devpath, subsystem: device.subsystem });
            }
        }
        if by_lists {
            self.add_parents(&mut found, filter);
        }
        order(&mut found, prioritized);
        found
    }

    fn tag_folder(&self, tag: &BString) -> PathBuf {
        self.tags.join(OsStr::from_bytes(tag))
    }

    /// The devices that have one of these tags.
    fn scan_tags(&self, tags: &[BString], candidates: &mut Candidates) {
        for tag in tags {
            for id in super::sysfs::list(&self.tag_folder(tag)).iter().filter_map(|n| DeviceId::parse(n)) {
                if let Some(devpath) = self.sysfs.device_of_id(&id) {
                    candidates.add(devpath, None);
                }
            }
        }
    }

    /// Whether the device has one of these tags, if there are any.
    fn has_tag(&self, device: &Candidate, tags: &[BString]) -> bool {
        if tags.is_empty() {
            return true;
        }
        let Some(id) = device.described().device.id().map(|id| id.render()) else { return false };
        let name = OsStr::from_bytes(&id);
        tags.iter().any(|tag| self.tag_folder(tag).join(name).symlink_metadata().is_ok())
    }

    /// A device and all below it: every directory that is one.
    fn crawl(&self, devpath: &BStr, depth: usize, candidates: &mut Candidates) {
        if self.sysfs.is_device(devpath) {
            candidates.add(devpath.to_owned(), None);
        }
        let Ok(entries) = std::fs::read_dir(self.sysfs.path(devpath)) else { return };
        if depth == DEPTH_MAX {
            return;
        }
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let below = [devpath.as_bytes(), b"/", entry.file_name().as_bytes()].concat();
            self.crawl(below.as_bstr(), depth + 1, candidates);
        }
    }

    /// The devices above what was found that match too, or all of them: hosts, the `drivers` of a bus and
    /// the like are in no list.
    fn add_parents(&self, found: &mut Vec<Found>, filter: &Filter) {
        let mut known: HashSet<BString> = found.iter().map(|f| f.devpath.clone()).collect();
        for index in 0..found.len() {
            let mut at = found[index].devpath.clone();
            // The ancestors of a device that is known were looked at, or will be.
            while let Some(parent) = self.sysfs.parent(&at).filter(|parent| known.insert(parent.clone())) {
                let device = Candidate::new(self, parent.clone(), None);
                let is_wanted = || filter.matches(&device) && self.has_tag(&device, &filter.tags);
                if filter.include_parents || is_wanted() {
                    found.push(Found { devpath: device.devpath, subsystem: device.subsystem });
                }
                at = parent;
            }
        }
    }
}

/// A scan of all devices that can stop anywhere: each step takes little time, whatever the size of the
/// machine.
#[derive(Debug)]
pub struct Scan {
    /// The work that is left, the next piece at the end.
    work: Vec<Work>,
    /// Devices that are in no list are found too, where they are above one that is in a list.
    with_parents: bool,
    candidates: Candidates,
}

#[derive(Debug)]
enum Work {
    /// The lists in this folder, `/bus/` or `/class/`; those of buses are in a folder below.
    Lists {
        folder: &'static [u8],
        below: &'static [u8],
    },
    /// The list of a subsystem.
    List {
        subsystem: BString,
        folder: Vec<u8>,
    },
    /// The rest of that list.
    Names {
        subsystem: BString,
        folder: Vec<u8>,
        names: std::vec::IntoIter<BString>,
    },
    /// The devices above those of the lists, from one of them on: hosts and the like are in no list.
    Parents {
        next: usize,
        listed: usize,
    },
    /// `/sys/module/*`
    Modules,
    Module {
        name: BString,
    },
    /// `/sys/bus/*`, the drivers in `/sys/bus/*/drivers` and, if there are any, that directory.
    Buses,
    Bus {
        name: BString,
    },
}

impl Scan {
    /// At its beginning.
    pub fn new(kind: Kind) -> Scan {
        Scan::of(kind, true)
    }

    /// Only what is in the lists.
    fn lists(kind: Kind) -> Scan {
        Scan::of(kind, false)
    }

    fn of(kind: Kind, with_parents: bool) -> Scan {
        let mut work = Vec::new();
        if kind != Kind::Devices {
            work.extend([Work::Buses, Work::Modules]);
        }
        if kind != Kind::Subsystems {
            work.extend(with_parents.then_some(Work::Parents { next: 0, listed: usize::MAX }));
            work.extend([
                Work::Lists { folder: b"/class/", below: b"" },
                Work::Lists { folder: b"/bus/", below: b"/devices" },
            ]);
        }
        Scan { work, with_parents, candidates: Candidates::default() }
    }

    /// One step; false if there was none left. Subsystems that the filter excludes are not listed.
    pub fn step(&mut self, sysfs: &Sysfs, filter: &Filter) -> bool {
        let Some(work) = self.work.pop() else { return false };
        match work {
            Work::Lists { folder, below } => {
                let subsystems = sysfs.list(folder, b"").into_iter().rev();
                let wanted = subsystems.filter(|subsystem| filter.wants_subsystem(subsystem));
                self.work.extend(wanted.map(|subsystem| {
                    let folder = [folder, &subsystem, below].concat();
                    Work::List { subsystem, folder }
                }));
            }
            Work::List { subsystem, folder } => {
                let names = sysfs.list(&folder, b"").into_iter();
                self.work.push(Work::Names { subsystem, folder, names });
            }
            Work::Names { subsystem, folder, mut names } => {
                let Some(name) = names.next() else { return true };
                let devpath = sysfs.resolve(&[&folder, &b"/"[..], &name].concat());
                if let Some(devpath) = devpath.filter(|path| !self.candidates.seen.contains(path))
                    && sysfs.is_device(&devpath)
                {
                    self.candidates.add(devpath, Some(subsystem.clone()));
                }
                self.work.push(Work::Names { subsystem, folder, names });
            }
            Work::Parents { next, listed } => {
                let listed = listed.min(self.candidates.found.len());
                if next < listed {
                    self.add_parents(next, sysfs);
                    self.work.push(Work::Parents { next: next + 1, listed });
                }
            }
            Work::Modules if filter.wants_subsystem(b"module") => {
                let names = sysfs.list(b"/module", b"").into_iter().rev();
                self.work.extend(names.map(|name| Work::Module { name }));
            }
            Work::Module { name } => {
                let devpath = BString::from([b"/module/", name.as_slice()].concat());
                if sysfs.is_device(&devpath) {
                    self.candidates.add(devpath, Some("module".into()));
                }
            }
            Work::Buses if filter.wants_subsystem(b"subsystem") || filter.wants_subsystem(b"drivers") => {
                let names = sysfs.list(b"/bus", b"").into_iter().rev();
                self.work.extend(names.map(|name| Work::Bus { name }));
            }
            Work::Bus { name } => self.add_bus(&name, sysfs, filter),
            Work::Modules | Work::Buses => {}
        }
        true
    }

    fn add_parents(&mut self, index: usize, sysfs: &Sysfs) {
        let mut devpath = self.candidates.found[index].0.clone();
        while let Some(parent) = sysfs.parent(&devpath) {
            if !self.candidates.add(parent.clone(), None) {
                break;
            }
            devpath = parent;
        }
    }

    fn add_bus(&mut self, name: &[u8], sysfs: &Sysfs, filter: &Filter) {
        let bus = BString::from([b"/bus/", name].concat());
        let drivers = BString::from([bus.as_slice(), b"/drivers"].concat());
        self.candidates.add(bus, Some("subsystem".into()));
        if !filter.wants_subsystem(b"drivers") {
            return;
        }
        let names = sysfs.list(&drivers, b"");
        for name in &names {
            let driver = [drivers.as_slice(), b"/", name].concat();
            self.candidates.add(driver.into(), Some("drivers".into()));
        }
        if self.with_parents && !names.is_empty() {
            self.candidates.add(drivers, Some("drivers".into()));
        }
    }

    fn run(mut self, sysfs: &Sysfs, filter: &Filter) -> Candidates {
        while self.step(sysfs, filter) {}
        self.candidates
    }

    /// Devpaths of what was found, in no order.
    pub fn into_devpaths(self) -> impl Iterator<Item = BString> {
        self.candidates.found.into_iter().map(|(devpath, _)| devpath)
    }
}

/// Devices to look at, each once: devpath, and the subsystem if the scan knows it.
#[derive(Debug, Default)]
struct Candidates {
    found: Vec<(BString, Option<BString>)>,
    seen: HashSet<BString>,
}

impl Candidates {
    /// Whether it is new.
    fn add(&mut self, devpath: BString, subsystem: Option<BString>) -> bool {
        let new = self.seen.insert(devpath.clone());
        if new {
            self.found.push((devpath, subsystem));
        }
        new
    }
}

/// A device under examination.
struct Candidate<'a> {
    world: &'a Enumerator<'a>,
    devpath: BString,
    subsystem: BString,
    described: std::cell::OnceCell<Described>,
}

impl<'a> Candidate<'a> {
    fn new(world: &'a Enumerator<'a>, devpath: BString, subsystem: Option<BString>) -> Candidate<'a> {
        let subsystem = subsystem.or_else(|| world.sysfs.subsystem(&devpath)).unwrap_or_default();
        Candidate { world, devpath, subsystem, described: std::cell::OnceCell::new() }
    }

    fn described(&self) -> &Described {
        let Enumerator { sysfs, records, .. } = self.world;
        self.described.get_or_init(|| Described::new(sysfs, records.as_ref(), &self.devpath))
    }
}

impl Facts for Candidate<'_> {
    fn devpath(&self) -> &BStr {
        self.devpath.as_ref()
    }

    fn subsystem(&self) -> &BStr {
        self.subsystem.as_ref()
    }

    fn attr(&self, name: &BStr) -> Option<BString> {
        match self.world.sysfs.attr(&self.devpath, name) {
            Attr::Value(value) => Some(value),
            Attr::Missing | Attr::NoDevice => None,
        }
    }

    fn has_record(&self) -> bool {
        self.described().record.is_some()
    }

    fn properties(&self) -> &Properties {
        &self.described().properties
    }
}

/// Puts devices into the order of interop.md 7.3: for each prioritized subsystem its devices with
/// those above them, then the rest; each part in the order of [`compare`].
pub fn order(found: &mut Vec<Found>, prioritized: &[BString]) {
    let mut rest = std::mem::take(found);
    rest.sort_by(|a, b| compare(&a.devpath, &b.devpath));
    for subsystem in prioritized {
        let index: HashMap<&BStr, usize> =
            rest.iter().enumerate().map(|(i, f)| (f.devpath.as_ref(), i)).collect();
        let mut chosen = vec![false; rest.len()];
        for (i, device) in rest.iter().enumerate().filter(|(_, f)| f.subsystem == *subsystem) {
            chosen[i] = true;
            let mut at = device.devpath.as_bstr();
            while let Some(end) = at.rfind_byte(b'/').filter(|&end| end > 0) {
                at = at[..end].as_bstr();
                if let Some(&parent) = index.get(at) {
                    chosen[parent] = true;
                }
            }
        }
        let mut chosen = chosen.into_iter();
        let (first, others) = rest.into_iter().partition(|_| chosen.next() == Some(true));
        found.extend::<Vec<Found>>(first);
        rest = others;
    }
    found.append(&mut rest);
}

/// The order of two devpaths: devices made of other disks (md, dm) last; component by component, a
/// parent before its children; in a sound card the control device, whose event tells that the card is
/// complete, after its siblings.
pub fn compare(a: &[u8], b: &[u8]) -> Ordering {
    is_made_of_disks(a).cmp(&is_made_of_disks(b)).then_with(|| compare_components(a, b))
}

fn is_made_of_disks(devpath: &[u8]) -> bool {
    devpath.contains_str("/block/md") || devpath.contains_str("/block/dm-")
}

fn compare_components(a: &[u8], b: &[u8]) -> Ordering {
    let mut above: &[u8] = b"";
    let (mut left, mut right) = (a.split(|&b| b == b'/'), b.split(|&b| b == b'/'));
    loop {
        match (left.next(), right.next()) {
            (Some(a), Some(b)) if a == b => above = a,
            (Some(a), Some(b)) => {
                let control = |name: &[u8]| above.starts_with(b"card") && name.starts_with(b"controlC");
                return control(a).cmp(&control(b)).then_with(|| a.cmp(b));
            }
            (a, b) => return a.is_some().cmp(&b.is_some()),
        }
    }
}

#[cfg(test)]
mod tests;
