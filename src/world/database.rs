//! Records and tags on disk: `/run/udev/data/<id>` and `/run/udev/tags/<tag>/<id>` (interop.md 1.1
//! to 1.6, rules.md 11.5).
//!
//! * [`Records`] reads, for everyone: [`Records::open`], [`Records::read`], [`Records::list`].
//! * [`Database`] is the daemon's: it also writes, and remembers what there is, so that a device
//!   without a record and a tag that is already indexed cost no system call.
//! * [`open_udev_dir`] makes `/run/udev` itself.
//!
//! What must stay true: whoever reads a record sees all of one event or all of the former one; a file
//! that someone else removed (`info --cleanup-db`) is simply not there. All errors carry the kernel's
//! number; the caller says which device it was.

use super::atomic;
use crate::model::effect::Sticky;
use crate::model::event::{BuildFnv, OrderedSet};
use crate::model::record::Record;
use crate::model::{DeviceId, Properties, SeqNum, Uevent};
use crate::sys::fs::Dir;
use bstr::{BString, ByteSlice};
use std::collections::HashMap;
use std::io;
use std::path::Path;

/// Longest record that is read, as for systemd.
const RECORD_LIMIT: usize = 64 << 20;
const DIR_MODE: u32 = 0o755;
const RECORD_MODE: u32 = 0o644;
/// OPTIONS="db_persist": the sticky bit survives `info --cleanup-db`.
const STICKY: u32 = 0o1000;
const TAG_MODE: u32 = 0o444;

/// Opens `/run/udev`, making it if need be; `run` is `/run`.
pub fn open_udev_dir(run: &Path) -> io::Result<Dir> {
    open_or_make(&Dir::open(run)?, b"udev")
}

/// Opens a directory of ours, making it with mode 0755 if need be.
pub(super) fn open_or_make(parent: &Dir, name: &[u8]) -> io::Result<Dir> {
    match parent.open_dir(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            atomic::ensure_dir(parent, name, DIR_MODE, false)?;
            parent.open_dir(name)
        }
        result => result,
    }
}

/// The records of all devices, to read.
#[derive(Debug)]
pub struct Records {
    data: Dir,
}

impl Records {
    /// Opens `/run/udev/data`; `run` is `/run`. NotFound if no daemon ever ran.
    pub fn open(run: &Path) -> io::Result<Records> {
        let data = Dir::open(&run.join("udev/data"))?;
        Ok(Records { data })
    }

    /// The record of a device. An empty file is an empty record: the device is initialized.
    pub fn read(&self, id: &DeviceId) -> io::Result<Option<Record>> {
        match self.data.read_file(&file_name(id)?, RECORD_LIMIT) {
            Ok(file) => Ok(Some(Record::parse(&file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The ids of all devices that have a record, in no order.
    pub fn list(&self) -> io::Result<Vec<DeviceId>> {
        // Temporary files have a dot in front, so they are no ids.
        Ok(self.data.names()?.iter().filter_map(|name| DeviceId::parse(name)).collect())
    }

    /// Mode of the file and the time of its last change, nanoseconds since 1970; None without one.
    pub fn stat(&self, id: &DeviceId) -> io::Result<Option<crate::sys::fs::Stat>> {
        match self.data.stat(&file_name(id)?) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What is known to be on disk of one device.
#[derive(Debug, Default)]
struct Known {
    has_record: bool,
    /// Whether the record has the sticky bit; None for one that an earlier daemon left and nobody has
    /// asked about yet.
    sticky: Option<bool>,
    /// Tags whose index entry this daemon made or found.
    tags: OrderedSet,
    /// What the last event said of the device, `KEY=VALUE` with a NUL behind each; empty for what an
    /// earlier daemon left.
    identity: Vec<u8>,
}

/// Variables of the kernel that say which device it is.
fn is_identity(name: &[u8]) -> bool {
    matches!(
        name,
        b"DEVPATH"
            | b"SUBSYSTEM"
            | b"MAJOR"
            | b"MINOR"
            | b"DEVNAME"
            | b"DEVTYPE"
            | b"DISKSEQ"
            | b"PARTN"
            | b"INTERFACE"
            | b"IFINDEX"
    )
}

/// Records and tag index of the one daemon that writes them.
#[derive(Debug)]
pub struct Database {
    records: Records,
    tags: Dir,
    umask_spares_modes: bool,
    known: HashMap<DeviceId, Known, BuildFnv>,
    /// Bytes of the record that is being written.
    buffer: Vec<u8>,
}

impl Database {
    /// Opens, making directories that are missing, and lists the records there are. `udev` is
    /// `/run/udev`.
    pub fn open(udev: &Dir) -> io::Result<Database> {
        let records = Records { data: open_or_make(udev, b"data")? };
        let tags = open_or_make(udev, b"tags")?;
        let known =
            records.list()?.into_iter().map(|id| (id, Known { has_record: true, ..Known::default() }));
        Ok(Database {
            known: known.collect(),
            umask_spares_modes: atomic::umask_spares_modes(&records.data),
            records,
            tags,
            buffer: Vec::new(),
        })
    }

    /// All records, to read.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Ids of the devices that had a record when last looked at, in no order.
    pub fn known(&self) -> impl Iterator<Item = &DeviceId> {
        self.known.iter().filter(|(_, known)| known.has_record).map(|(id, _)| id)
    }

    /// Whether the device had a record when last looked at; no system call.
    pub fn has_record(&self, id: &DeviceId) -> bool {
        self.known.get(id).is_some_and(|known| known.has_record)
    }

    /// Remembers which device this is, for the day that its `remove` is lost. Only devices with a record
    /// are remembered.
    pub fn remember(&mut self, id: &DeviceId, properties: &Properties) {
        let Some(known) = self.known.get_mut(id).filter(|known| known.has_record) else { return };
        self.buffer.clear();
        for property in properties.iter().filter(|p| is_identity(p.name)) {
            for part in [property.name.as_bytes(), b"=", property.value, b"\0"] {
                self.buffer.extend_from_slice(part);
            }
        }
        if known.identity != self.buffer {
            known.identity.clear();
            known.identity.extend_from_slice(&self.buffer);
        }
    }

    /// The `remove` that the kernel would send for a device, under this number. None if no event of it
    /// was handled since the start.
    pub fn removal(&self, id: &DeviceId, seqnum: SeqNum) -> Option<Uevent> {
        let known = self.known.get(id)?;
        let own = [&b"ACTION=remove"[..], &format!("SEQNUM={seqnum}").into_bytes()].map(<[u8]>::to_vec);
        let lines = known.identity.split(|&b| b == 0).chain(own.iter().map(Vec::as_slice));
        Uevent::from_lines(lines).ok()
    }

    /// The record of the last event.
    pub fn read_record(&mut self, id: &DeviceId) -> io::Result<Option<Record>> {
        if !self.has_record(id) {
            return Ok(None);
        }
        let record = self.records.read(id)?;
        if record.is_none() {
            // Someone cleaned up, and the tag index with it.
            self.known.remove(id);
        }
        Ok(record)
    }

    /// Writes the record. One without content becomes an empty file if `keep_empty` (the device has a
    /// number or is a network interface), else there is no file afterwards.
    ///
    /// After an error there is no record: the former one would be taken for this event's.
    pub fn write_record(
        &mut self,
        id: &DeviceId,
        record: &Record,
        sticky: Sticky,
        keep_empty: bool,
    ) -> io::Result<()> {
        if record.is_empty() && !keep_empty {
            return self.remove_record(id);
        }
        let name = file_name(id)?;
        let sticky = match sticky {
            Sticky::No => false,
            Sticky::Yes => true,
            Sticky::AsBefore => self.is_sticky(id, &name),
        };
        let mode = if sticky { RECORD_MODE | STICKY } else { RECORD_MODE };
        self.buffer.clear();
        record.render_into(&mut self.buffer);
        let written = if self.buffer.is_empty() && !self.has_record(id) {
            self.create_empty(&name, mode)
        } else {
            atomic::write_file(&self.records.data, &name, &self.buffer, mode, self.umask_spares_modes)
        };
        match written {
            Ok(()) => match self.known.get_mut(id) {
                Some(known) => (known.has_record, known.sticky) = (true, Some(sticky)),
                None => {
                    let known = Known { has_record: true, sticky: Some(sticky), ..Known::default() };
                    self.known.insert(id.clone(), known);
                }
            },
            Err(_) => {
                // The first error is the one to tell.
                let _ = self.records.data.unlink(&name);
                if let Some(known) = self.known.get_mut(id) {
                    known.has_record = false;
                }
            }
        }
        written
    }

    /// Whether the record that is there has the sticky bit. A system call only the first time for what an
    /// earlier daemon left.
    fn is_sticky(&self, id: &DeviceId, name: &[u8]) -> bool {
        match self.known.get(id).filter(|known| known.has_record) {
            Some(Known { sticky: Some(sticky), .. }) => *sticky,
            Some(_) => self.records.data.stat(name).is_ok_and(|stat| stat.permissions() & STICKY != 0),
            None => false,
        }
    }

    /// An empty file is whole from the beginning, so it needs no other name first.
    fn create_empty(&self, name: &[u8], mode: u32) -> io::Result<()> {
        match self.records.data.create_file(name, mode) {
            Ok(_) if self.umask_spares_modes => Ok(()),
            Ok(_) => self.records.data.chmod(name, mode),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                atomic::write_file(&self.records.data, name, b"", mode, self.umask_spares_modes)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes the record, if there is one.
    pub fn remove_record(&mut self, id: &DeviceId) -> io::Result<()> {
        let Some(known) = self.known.get_mut(id).filter(|known| known.has_record) else { return Ok(()) };
        missing_is_fine(self.records.data.unlink(&file_name(id)?))?;
        known.has_record = false;
        if known.tags.is_empty() {
            self.known.remove(id);
        }
        Ok(())
    }

    /// Makes index entries of these tags. All are tried; the first error is returned.
    pub fn add_tags(&mut self, id: &DeviceId, tags: &OrderedSet) -> io::Result<()> {
        if tags.is_empty() {
            return Ok(());
        }
        let name = file_name(id)?;
        let known = self.known.entry(id.clone()).or_default();
        let mut result = Ok(());
        for tag in tags.iter() {
            if known.tags.contains(tag) {
                continue;
            }
            match add_tag(&self.tags, tag, &name, self.umask_spares_modes) {
                Ok(()) => _ = known.tags.insert(tag),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    /// Removes index entries of these tags; the directories of the tags stay. All are tried; the first
    /// error is returned.
    pub fn remove_tags(&mut self, id: &DeviceId, tags: &OrderedSet) -> io::Result<()> {
        let name = file_name(id)?;
        let mut result = Ok(());
        for tag in tags.iter() {
            let removed = tag_entry(tag, &name).and_then(|entry| missing_is_fine(self.tags.unlink(&entry)));
            result = result.and(removed);
            if let Some(known) = self.known.get_mut(id) {
                known.tags.remove(tag);
            }
        }
        if self.known.get(id).is_some_and(|known| !known.has_record && known.tags.is_empty()) {
            self.known.remove(id);
        }
        result
    }
}

/// The file name of an id. EINVAL for one that no file can have.
pub(super) fn file_name(id: &DeviceId) -> io::Result<BString> {
    let name = id.render();
    if name.contains(&b'/') { Err(io::Error::from_raw_os_error(libc::EINVAL)) } else { Ok(name) }
}

/// `<tag>/<id>`. EINVAL for a tag that is none: it would lead elsewhere.
pub(super) fn tag_entry(tag: &[u8], id: &[u8]) -> io::Result<BString> {
    if crate::model::Tags::is_valid(tag) {
        Ok([tag, b"/", id].concat().into())
    } else {
        Err(io::Error::from_raw_os_error(libc::EINVAL))
    }
}

/// Removing what is not there is no error.
pub(super) fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn add_tag(tags: &Dir, tag: &[u8], id: &[u8], umask_spares_modes: bool) -> io::Result<()> {
    let name = tag_entry(tag, id)?;
    let created = match tags.create_file(&name, TAG_MODE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            atomic::ensure_dir(tags, tag, DIR_MODE, umask_spares_modes)?;
            tags.create_file(&name, TAG_MODE)
        }
        result => result,
    };
    match created {
        Ok(_) if umask_spares_modes => Ok(()),
        Ok(_) => tags.chmod(&name, TAG_MODE),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tree::Tree;
    use std::os::unix::fs::MetadataExt;

    fn id(text: &str) -> DeviceId {
        DeviceId::parse(text.as_bytes()).expect("an id")
    }

    fn record(value: &str) -> Record {
        Record { properties: [("A", value)].into_iter().collect(), ..Record::default() }
    }

    fn open(tree: &Tree) -> Database {
        tree.dir("run");
        Database::open(&open_udev_dir(&tree.roots().run).expect("/run/udev")).expect("a database")
    }

    /// Permission bits of something below /run/udev.
    fn mode(tree: &Tree, path: &str) -> Option<u32> {
        let stat = std::fs::symlink_metadata(tree.path("run/udev").join(path)).ok()?;
        Some(stat.mode() & 0o7777)
    }

    #[test]
    fn records_come_and_go_with_their_modes() {
        let tree = Tree::new();
        let mut db = open(&tree);
        assert_eq!(mode(&tree, "data"), Some(0o755));
        let n1 = id("n1");
        assert_eq!(db.read_record(&n1).unwrap(), None);
        use Sticky::{No, Yes};
        for (value, sticky, expected) in [("1", No, 0o644), ("2", Yes, 0o1644), ("3", No, 0o644)] {
            db.write_record(&n1, &record(value), sticky, true).unwrap();
            assert_eq!(mode(&tree, "data/n1"), Some(expected));
            assert_eq!(db.read_record(&n1).unwrap(), Some(record(value)));
        }
        assert_eq!(tree.read("run/udev/data/n1"), b"E:A=3\nV:1\n");
        assert_eq!(std::fs::read_dir(tree.path("run/udev/data")).unwrap().count(), 1);
        db.remove_record(&n1).unwrap();
        db.remove_record(&n1).unwrap();
        assert_eq!((db.read_record(&n1).unwrap(), mode(&tree, "data/n1")), (None, None));
    }

    #[test]
    fn a_record_that_is_rewritten_stays_as_sticky_as_it_was() {
        let tree = Tree::new();
        tree.file("run/udev/data/b8:0", "E:A=1\n").mode("run/udev/data/b8:0", 0o1644);
        tree.file("run/udev/data/b8:1", "E:A=1\n").mode("run/udev/data/b8:1", 0o644);
        let mut db = open(&tree);
        let old = [("b8:0", 0o1644), ("b8:1", 0o644), ("n7", 0o644)];
        for (name, expected) in old {
            for value in ["2", "3"] {
                db.write_record(&id(name), &record(value), Sticky::AsBefore, true).unwrap();
                assert_eq!(mode(&tree, &format!("data/{name}")), Some(expected), "{name}");
            }
        }
        db.write_record(&id("b8:0"), &record("4"), Sticky::No, true).unwrap();
        db.write_record(&id("b8:0"), &record("5"), Sticky::AsBefore, true).unwrap();
        assert_eq!(mode(&tree, "data/b8:0"), Some(0o644), "the last one counts");
        db.write_record(&id("n7"), &record("4"), Sticky::Yes, true).unwrap();
        db.remove_record(&id("n7")).unwrap();
        db.write_record(&id("n7"), &record("5"), Sticky::AsBefore, true).unwrap();
        assert_eq!(mode(&tree, "data/n7"), Some(0o644), "what was removed does not count");
    }

    #[test]
    fn a_record_without_content_is_an_empty_file_or_none() {
        let tree = Tree::new();
        let mut db = open(&tree);
        let (node, other) = (id("c1:3"), id("+usb:1-1"));
        db.write_record(&node, &Record::default(), Sticky::No, true).unwrap();
        assert_eq!(tree.read("run/udev/data/c1:3"), b"");
        assert_eq!(db.read_record(&node).unwrap(), Some(Record::default()));
        db.write_record(&node, &record("1"), Sticky::No, true).unwrap();
        db.write_record(&node, &Record::default(), Sticky::Yes, true).unwrap();
        assert_eq!((tree.read("run/udev/data/c1:3"), mode(&tree, "data/c1:3")), (vec![], Some(0o1644)));
        db.write_record(&other, &record("1"), Sticky::No, false).unwrap();
        db.write_record(&other, &Record::default(), Sticky::No, false).unwrap();
        assert_eq!(mode(&tree, "data/+usb:1-1"), None);
    }

    #[test]
    fn records_of_an_earlier_run_are_known_and_others_are_not() {
        let tree = Tree::new();
        tree.file("run/udev/data/b8:0", "E:A=1\nV:1\n")
            .file("run/udev/data/.#b8:1", "")
            .file("run/udev/data/x", "");
        let mut db = open(&tree);
        assert_eq!(db.known().collect::<Vec<_>>(), [&id("b8:0")]);
        assert_eq!(db.records().list().unwrap(), [id("b8:0")]);
        assert_eq!(db.read_record(&id("b8:0")).unwrap(), Some(record("1")));
        assert_eq!(Records::open(&tree.roots().run).unwrap().read(&id("b8:0")).unwrap(), Some(record("1")));
        assert!(db.records().stat(&id("b8:0")).unwrap().unwrap().is_file());
        assert_eq!(db.records().stat(&id("b8:1")).unwrap(), None);
    }

    #[test]
    fn tags_are_indexed_once_and_their_directories_stay() {
        let tree = Tree::new();
        let mut db = open(&tree);
        let n1 = id("n1");
        let tags: OrderedSet = ["seat", "systemd"].into_iter().collect();
        db.add_tags(&n1, &tags).unwrap();
        db.add_tags(&n1, &tags).unwrap();
        assert_eq!((mode(&tree, "tags/seat"), mode(&tree, "tags/seat/n1")), (Some(0o755), Some(0o444)));
        assert_eq!(tree.read("run/udev/tags/systemd/n1"), b"");
        db.remove_tags(&n1, &tags).unwrap();
        db.remove_tags(&n1, &tags).unwrap();
        assert_eq!((mode(&tree, "tags/seat"), mode(&tree, "tags/seat/n1")), (Some(0o755), None));
        assert!(db.known.is_empty());
        open(&tree).add_tags(&n1, &tags).unwrap();
        open(&tree).add_tags(&n1, &tags).unwrap();
        assert!(mode(&tree, "tags/seat/n1").is_some());
    }

    #[test]
    fn a_bad_tag_leads_nowhere_and_the_others_are_indexed() {
        let tree = Tree::new();
        let mut db = open(&tree);
        let tags: OrderedSet = ["..", "a/b", "good"].into_iter().collect();
        let error = db.add_tags(&id("n1"), &tags).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        assert!(mode(&tree, "tags/good/n1").is_some() && mode(&tree, "n1").is_none());
        assert!(db.remove_tags(&id("n1"), &tags).is_err());
        assert!(mode(&tree, "tags/good/n1").is_none());
    }

    #[test]
    fn a_device_is_remembered_as_long_as_it_has_a_record() {
        let tree = Tree::new();
        let mut db = open(&tree);
        let sda = id("b8:0");
        let lines = b"ACTION=add\0DEVPATH=/devices/x/sda\0SUBSYSTEM=block\0MAJOR=8\0MINOR=0\0DEVNAME=sda\0\
            DEVTYPE=disk\0SEQNUM=7\0MODEL=x\0";
        let uevent = Uevent::from_lines(lines.split(|&b| b == 0)).unwrap();
        db.remember(&sda, &uevent.properties);
        assert_eq!(db.removal(&sda, SeqNum(9)), None);
        db.write_record(&sda, &record("1"), Sticky::No, true).unwrap();
        assert_eq!(db.removal(&sda, SeqNum(9)), None, "no event of this daemon");
        db.remember(&sda, &uevent.properties);
        let removal = db.removal(&sda, SeqNum(9)).unwrap();
        let device = crate::model::Device::new(removal.devpath, removal.subsystem, &removal.properties);
        assert_eq!((device.id(), device.devnode), (Some(sda.clone()), Some("/dev/sda".into())));
        assert_eq!((removal.seqnum, removal.action), (SeqNum(9), crate::model::Action::Remove));
        assert_eq!(
            (removal.properties.get("DEVTYPE"), removal.properties.get("MODEL")),
            (Some("disk".into()), None)
        );
        db.remove_record(&sda).unwrap();
        assert_eq!(db.removal(&sda, SeqNum(9)), None);
    }

    #[test]
    fn what_someone_else_cleaned_up_is_made_anew() {
        let tree = Tree::new();
        let mut db = open(&tree);
        let n1 = id("n1");
        let tags: OrderedSet = ["seat"].into_iter().collect();
        db.write_record(&n1, &record("1"), Sticky::No, true).unwrap();
        db.add_tags(&n1, &tags).unwrap();
        std::fs::remove_file(tree.path("run/udev/data/n1")).unwrap();
        std::fs::remove_dir_all(tree.path("run/udev/tags/seat")).unwrap();
        assert_eq!(db.read_record(&n1).unwrap(), None);
        db.write_record(&n1, &Record::default(), Sticky::No, true).unwrap();
        db.add_tags(&n1, &tags).unwrap();
        assert!(mode(&tree, "tags/seat/n1").is_some() && mode(&tree, "data/n1").is_some());
        std::fs::remove_file(tree.path("run/udev/data/n1")).unwrap();
        db.remove_record(&n1).unwrap();
    }

    #[test]
    fn a_write_that_fails_leaves_no_record() {
        let tree = Tree::new();
        let mut db = open(&tree);
        let long = DeviceId::Named { subsystem: "s".into(), sysname: "x".repeat(300).into() };
        let error = db.write_record(&long, &record("1"), Sticky::No, false).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENAMETOOLONG));
        assert!(!db.has_record(&long));
        assert_eq!(std::fs::read_dir(tree.path("run/udev/data")).unwrap().count(), 0);
        let elsewhere = DeviceId::Named { subsystem: "s/../..".into(), sysname: "x".into() };
        assert!(db.write_record(&elsewhere, &record("1"), Sticky::No, false).is_err());
        std::fs::remove_dir_all(tree.path("run/udev/data")).unwrap();
        assert!(db.write_record(&id("n1"), &record("1"), Sticky::No, true).is_err());
    }
}
