//! Finding all devices: for `trigger`, `info -e` and coldplug (interop.md 7.2 and 7.3).
//!
//! What must stay true: a device that vanishes on the way is left out silently; a parent comes before
//! its children, a disk before its partitions; what the scan need not look at, it does not (a class
//! that the filter excludes is not even listed).

use super::Sysfs;
use super::database::Records;
use crate::model::device::sysname;
use crate::model::{DeviceId, Properties};
use crate::rules::ask::Attr;
use crate::rules::glob::Glob;
use bstr::{BStr, BString, ByteSlice};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Directories below a parent that are looked into: deeper than any tree of devices.
const DEPTH_MAX: usize = 64;

/// What is enumerated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Devices,
    /// Modules, buses and drivers.
    Subsystems,
    All,
}

/// Which devices are wanted. Entries of one list are alternatives, except those of `attrs` and
/// `tags`, which must all hold; an empty list wants everything. Between lists all must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub subsystems: Vec<Glob>,
    pub not_subsystems: Vec<Glob>,
    /// Attribute and, if one is asked for, the pattern of its value.
    pub attrs: Vec<(BString, Option<Glob>)>,
    /// None of these may hold.
    pub not_attrs: Vec<(BString, Option<Glob>)>,
    /// Patterns of name and value of a property.
    pub properties: Vec<(Glob, Glob)>,
    /// Names, not patterns: they are looked up in the tag index.
    pub tags: Vec<BString>,
    pub sysnames: Vec<Glob>,
    /// Devpaths: these devices and everything below them.
    pub parents: Vec<BString>,
    /// Whether there must be a record, or must be none.
    pub initialized: Option<bool>,
    /// The devices above the wanted ones too, whatever the filter says of them.
    pub include_parents: bool,
}

/// What a filter may ask of a device; asked for only as far as needed.
pub trait Facts {
    fn devpath(&self) -> &BStr;
    /// Empty if it has none.
    fn subsystem(&self) -> &BStr;
    fn attr(&self, name: &BStr) -> Option<BString>;
    fn has_record(&self) -> bool;
    /// uevent file and record together.
    fn properties(&self) -> &Properties;
}

fn any(patterns: &[Glob], text: &[u8]) -> bool {
    patterns.iter().any(|pattern| pattern.matches(text))
}

impl Filter {
    /// Whether devices of this subsystem may be wanted.
    pub fn wants_subsystem(&self, subsystem: &[u8]) -> bool {
        (self.subsystems.is_empty() || any(&self.subsystems, subsystem))
            && !any(&self.not_subsystems, subsystem)
    }

    /// Whether this device is wanted; tags apart, which the index has answered already.
    pub fn matches(&self, device: &impl Facts) -> bool {
        let attr = |(name, pattern): &(BString, Option<Glob>)| {
            let value = device.attr(name.as_ref());
            value.is_some_and(|value| pattern.as_ref().is_none_or(|pattern| pattern.matches(&value)))
        };
        self.wants_subsystem(device.subsystem())
            && (self.sysnames.is_empty() || any(&self.sysnames, &sysname(device.devpath())))
            && (self.parents.is_empty() || self.parents.iter().any(|p| is_at_or_below(device.devpath(), p)))
            && self.attrs.iter().all(attr)
            && !self.not_attrs.iter().any(attr)
            && self.initialized.is_none_or(|wanted| device.has_record() == wanted)
            && (self.properties.is_empty() || self.has_property(device.properties()))
    }

    fn has_property(&self, properties: &Properties) -> bool {
        let wanted = |name: &BStr, value: &BStr| {
            self.properties.iter().any(|(n, v)| n.matches(name) && v.matches(value))
        };
        properties.iter().any(|p| wanted(p.name, p.value))
    }
}

fn is_at_or_below(devpath: &[u8], parent: &[u8]) -> bool {
    devpath.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
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
        let mut candidates = Candidates::default();
        match (&filter.tags[..], &filter.parents[..]) {
            ([_, ..], _) => self.scan_tags(&filter.tags, &mut candidates),
            (_, [_, ..]) => {
                filter.parents.iter().for_each(|parent| self.crawl(parent.as_ref(), 0, &mut candidates))
            }
            _ => candidates = Scan::new(kind).run(self.sysfs, filter),
        }
        let mut found = Vec::new();
        for (devpath, subsystem) in candidates.found {
            let device = Candidate::new(self, devpath, subsystem);
            if filter.matches(&device) {
                found.push(Found { devpath: device.devpath, subsystem: device.subsystem });
            }
        }
        if filter.include_parents {
            self.add_parents(&mut found);
        }
        order(&mut found, prioritized);
        found
    }

    /// The devices that have all these tags.
    fn scan_tags(&self, tags: &[BString], candidates: &mut Candidates) {
        let Some((first, others)) = tags.split_first() else { return };
        let folder = |tag: &BString| self.tags.join(OsStr::from_bytes(tag));
        for name in super::sysfs::list(&folder(first)) {
            let has = |tag| folder(tag).join(OsStr::from_bytes(&name)).symlink_metadata().is_ok();
            let Some(id) = DeviceId::parse(&name).filter(|_| others.iter().all(has)) else { continue };
            if let Some(devpath) = self.sysfs.device_of_id(&id) {
                candidates.add(devpath, None);
            }
        }
    }

    /// A device and all below it: every directory that has a `uevent` file.
    fn crawl(&self, devpath: &BStr, depth: usize, candidates: &mut Candidates) {
        if self.sysfs.exists(devpath, b"uevent") {
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

    fn add_parents(&self, found: &mut Vec<Found>) {
        let mut known: HashSet<BString> = found.iter().map(|f| f.devpath.clone()).collect();
        for index in 0..found.len() {
            for parent in self.sysfs.parents(&found[index].devpath) {
                if known.insert(parent.devpath.clone()) {
                    found.push(Found { devpath: parent.devpath, subsystem: parent.subsystem });
                }
            }
        }
    }
}

/// A scan of all devices that can stop anywhere: each step takes little time, whatever the size of the
/// machine.
#[derive(Debug)]
pub struct Scan {
    /// What is left to do, the next at the end.
    work: Vec<Work>,
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
    /// `/sys/module/*` with a `uevent` file.
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
        let mut work = Vec::new();
        if kind != Kind::Devices {
            work.extend([Work::Buses, Work::Modules]);
        }
        if kind != Kind::Subsystems {
            work.extend([
                Work::Parents { next: 0, listed: usize::MAX },
                Work::Lists { folder: b"/class/", below: b"" },
                Work::Lists { folder: b"/bus/", below: b"/devices" },
            ]);
        }
        Scan { work, candidates: Candidates::default() }
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
                if sysfs.exists(&devpath, b"uevent") {
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
        if !names.is_empty() {
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
    properties: std::cell::OnceCell<Properties>,
}

impl<'a> Candidate<'a> {
    fn new(world: &'a Enumerator<'a>, devpath: BString, subsystem: Option<BString>) -> Candidate<'a> {
        let subsystem = subsystem.or_else(|| world.sysfs.subsystem(&devpath)).unwrap_or_default();
        Candidate { world, devpath, subsystem, properties: std::cell::OnceCell::new() }
    }

    fn record(&self) -> Option<crate::model::record::Record> {
        let id = self.world.sysfs.device_at(self.devpath.clone()).id()?;
        self.world.records.as_ref()?.read(&id).ok()?
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
        self.record().is_some()
    }

    fn properties(&self) -> &Properties {
        self.properties.get_or_init(|| {
            let mut properties = self.world.sysfs.properties(&self.devpath);
            for property in self.record().map(|r| r.properties).unwrap_or_default().iter() {
                properties.set_stored(property.name, property.value);
            }
            properties
        })
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
mod tests {
    use super::super::tree::Tree;
    use super::*;
    use crate::model::device::last_component;

    fn machine() -> Tree {
        let tree = Tree::new();
        let disk = "sys/devices/pci0/00:1/block/sda";
        tree.file("sys/devices/pci0/uevent", "")
            .file("sys/devices/pci0/00:1/uevent", "")
            .link("sys/devices/pci0/00:1/subsystem", "../../../bus/pci")
            .link("sys/bus/pci/devices/00:1", "../../../devices/pci0/00:1")
            .dir("sys/bus/pci/drivers/ahci")
            .file(&format!("{disk}/uevent"), "MAJOR=8\nMINOR=0\nDEVNAME=sda\nDEVTYPE=disk\n")
            .file(&format!("{disk}/size"), "10\n")
            .link(&format!("{disk}/subsystem"), "../../../../../class/block")
            .file(&format!("{disk}/sda1/uevent"), "MAJOR=8\nMINOR=1\nDEVNAME=sda1\nDEVTYPE=partition\n")
            .link(&format!("{disk}/sda1/subsystem"), "../../../../../../class/block")
            .link("sys/class/block/sda", "../../devices/pci0/00:1/block/sda")
            .link("sys/class/block/sda1", "../../devices/pci0/00:1/block/sda/sda1")
            .link("sys/dev/block/8:0", "../../devices/pci0/00:1/block/sda")
            .link("sys/dev/block/8:1", "../../devices/pci0/00:1/block/sda/sda1")
            .file("sys/devices/virtual/net/lo/uevent", "INTERFACE=lo\nIFINDEX=1\n")
            .file("sys/devices/virtual/net/lo/ifindex", "1\n")
            .link("sys/devices/virtual/net/lo/subsystem", "../../../../class/net")
            .link("sys/class/net/lo", "../../devices/virtual/net/lo")
            .file("sys/class/net/bonding_masters", "")
            .link("sys/class/net/gone", "../../devices/virtual/net/gone")
            .dir("sys/devices/virtual/net/no-device")
            .link("sys/class/net/no-device", "../../devices/virtual/net/no-device")
            .file("sys/module/loop/uevent", "")
            .dir("sys/module/builtin-only")
            .file("run/udev/data/b8:0", "S:disk/by-id/x\nE:ID_FS_TYPE=ext4\nG:seat\nG:tpm\nV:1\n")
            .file("run/udev/data/n1", "")
            .file("run/udev/tags/seat/b8:0", "")
            .file("run/udev/tags/seat/b8:1", "")
            .file("run/udev/tags/seat/b9:9", "")
            .file("run/udev/tags/seat/.tmp", "")
            .file("run/udev/tags/tpm/b8:0", "");
        tree
    }

    fn names(tree: &Tree, kind: Kind, filter: &Filter) -> Vec<String> {
        let sysfs = Sysfs::new(&tree.roots());
        let found = Enumerator::new(&sysfs, &tree.roots().run).enumerate(kind, filter, &[]);
        found.iter().map(|f| format!("{}/{}", f.subsystem, last_component(&f.devpath))).collect()
    }

    fn glob(pattern: &str) -> Glob {
        Glob::new(pattern.as_bytes(), false)
    }

    const ALL_DEVICES: [&str; 5] = ["/pci0", "pci/00:1", "block/sda", "block/sda1", "net/lo"];

    #[test]
    fn each_kind_has_its_lists() {
        let tree = machine();
        let filter = Filter::default();
        assert_eq!(names(&tree, Kind::Devices, &filter), ALL_DEVICES);
        let subsystems = ["subsystem/pci", "drivers/drivers", "drivers/ahci", "module/loop"];
        assert_eq!(names(&tree, Kind::Subsystems, &filter), subsystems);
        let all = [&subsystems[..3], &ALL_DEVICES, &subsystems[3..]].concat();
        assert_eq!(names(&tree, Kind::All, &filter), all);
    }

    #[test]
    fn filters_are_alternatives_within_a_kind_and_conditions_between_kinds() {
        let tree = machine();
        let check = |filter: Filter, expected: &[&str]| {
            assert_eq!(names(&tree, Kind::Devices, &filter), expected, "{filter:?}");
        };
        let none = Filter::default;
        check(Filter { subsystems: vec![glob("net"), glob("p*")], ..none() }, &["pci/00:1", "net/lo"]);
        check(Filter { not_subsystems: vec![glob("block"), glob("")], ..none() }, &["pci/00:1", "net/lo"]);
        check(Filter { sysnames: vec![glob("sda?"), glob("lo")], ..none() }, &["block/sda1", "net/lo"]);
        let size = || (BString::from("size"), None);
        let ten = || (BString::from("size"), Some(glob("1*")));
        check(Filter { attrs: vec![size(), ten()], ..none() }, &["block/sda"]);
        check(Filter { attrs: vec![size(), ("size".into(), Some(glob("2")))], ..none() }, &[]);
        check(Filter { not_attrs: vec![ten()], subsystems: vec![glob("block")], ..none() }, &["block/sda1"]);
        check(
            Filter {
                properties: vec![(glob("ID_FS*"), glob("ext4")), (glob("IFINDEX"), glob("1"))],
                ..none()
            },
            &["block/sda", "net/lo"],
        );
        check(Filter { initialized: Some(true), ..none() }, &["block/sda", "net/lo"]);
        check(Filter { initialized: Some(false), ..none() }, &["/pci0", "pci/00:1", "block/sda1"]);
        check(Filter { tags: vec!["seat".into()], ..none() }, &["block/sda", "block/sda1"]);
        check(Filter { tags: vec!["seat".into(), "tpm".into()], ..none() }, &["block/sda"]);
        check(Filter { tags: vec!["none".into()], ..none() }, &[]);
    }

    #[test]
    fn a_parent_means_itself_and_everything_below() {
        let tree = machine();
        let filter = Filter { parents: vec!["/devices/pci0/00:1".into()], ..Filter::default() };
        assert_eq!(names(&tree, Kind::Devices, &filter), ["pci/00:1", "block/sda", "block/sda1"]);
        let filter = Filter { tags: vec!["seat".into()], parents: vec!["/devices/pci".into()], ..filter };
        assert_eq!(names(&tree, Kind::Devices, &filter), [""; 0], "a name is not cut in the middle");
    }

    #[test]
    fn parents_are_included_on_demand() {
        let tree = machine();
        let filter = Filter { sysnames: vec![glob("sda1")], include_parents: true, ..Filter::default() };
        assert_eq!(names(&tree, Kind::Devices, &filter), ALL_DEVICES[..4]);
    }

    #[test]
    fn parents_come_first_stacked_disks_last_and_a_card_is_completed_by_its_control() {
        let sorted = [
            "/bus/pci",
            "/devices/a",
            "/devices/a/b",
            "/devices/a!",
            "/devices/s/sound/card0",
            "/devices/s/sound/card0/pcmC0D0p",
            "/devices/s/sound/card0/controlC0",
            "/devices/s/sound/card1",
            "/devices/virtual/block/loop0",
            "/devices/virtual/tty/tty1",
            "/module/x",
            "/devices/virtual/block/dm-0",
            "/devices/virtual/block/md0",
        ];
        for (i, a) in sorted.iter().enumerate() {
            for (j, b) in sorted.iter().enumerate() {
                assert_eq!(compare(a.as_bytes(), b.as_bytes()), i.cmp(&j), "{a} {b}");
            }
        }
    }

    #[test]
    fn prioritized_subsystems_come_first_with_their_parents() {
        let found = |text: &str| {
            let (subsystem, devpath) = text.split_once(' ').unwrap();
            Found { devpath: devpath.into(), subsystem: subsystem.into() }
        };
        let mut all: Vec<Found> =
            ["x /d/a", "x /d/b", "block /d/b/sda", "net /d/a/eth0", "module /module/m", "x /d/c"]
                .map(found)
                .into();
        order(&mut all, &["module".into(), "block".into(), "none".into(), "net".into()]);
        let devpaths: Vec<_> = all.iter().map(|f| f.devpath.to_string()).collect();
        assert_eq!(devpaths, ["/module/m", "/d/b", "/d/b/sda", "/d/a", "/d/a/eth0", "/d/c"]);
    }

    #[test]
    fn the_running_kernel_has_its_devices_in_order() {
        let roots = super::super::Roots::default();
        let sysfs = Sysfs::new(&roots);
        let found = Enumerator::new(&sysfs, &roots.run).enumerate(Kind::All, &Filter::default(), &[]);
        let at = |devpath: &str| found.iter().position(|f| f.devpath == devpath);
        assert!(at("/devices/virtual/mem/null").is_some() && at("/bus/platform").is_some());
        for (index, device) in found.iter().enumerate() {
            if let Some(parent) = sysfs.parent(&device.devpath).and_then(|p| at(&p.to_string())) {
                assert!(parent < index, "{} comes before its parent", device.devpath);
            }
        }
        let unique: HashSet<_> = found.iter().map(|f| &f.devpath).collect();
        assert_eq!(unique.len(), found.len());
    }
}
