//! Records and tags on disk: `/run/udev/data/<id>` and `/run/udev/tags/<tag>/<id>` (interop.md 1.1
//! to 1.6, rules.md 11.5).
//!
//! * [`Records`] reads, for everyone: [`Records::open`], [`Records::read`].
//! * [`Database`] is the daemon's: it also writes, and remembers which records and tags there are, so that a device
//!   without a record and a tag that is already indexed cost no system call.
//! * [`open_udev_dir`] makes `/run/udev` itself.
//!
//! What must stay true: a reader of a record sees all of one event or all of the former one; a file that someone else
//! removed (`info --cleanup-db`) is simply not there. The tags that are remembered are believed only as long as their
//! folders are watched ([`Database::trust_tag`]). A record that could not be written for want of room is kept, read
//! as if it stood there, and written by [`Database::finish`]. All errors carry the kernel's number; the caller says
//! which device it was.

mod obstacle;

use super::atomic;
use super::places::Held;
use super::recent::{Recent, RecentRecords};
use crate::model::device::last_component;
use crate::model::effect::Sticky;
use crate::model::event::OrderedSet;
use crate::model::fnv::BuildFnv;
use crate::model::record::Record;
use crate::model::{DevNum, DeviceId, Errno, Event, SeqNum, Uevent};
use crate::sys::fs::{Dir, Stat};
use bstr::{BStr, BString, ByteSlice};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// Longest record that is read, as for systemd.
const RECORD_LIMIT: usize = 64 << 20;
const DIR_MODE: u32 = 0o755;
const RECORD_MODE: u32 = 0o644;
/// OPTIONS="db_persist": the sticky bit survives `info --cleanup-db`.
const STICKY: u32 = 0o1000;
const TAG_MODE: u32 = 0o444;

/// Tags whose folders are to be watched; the entries of others are looked at in each event.
const MAX_WATCHED_TAGS: usize = 256;

/// Records that are kept in memory because they could not be written. Further ones are not kept: their devices count
/// as new.
const MAX_UNWRITTEN: usize = 4096;

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

    /// The record of a device. An empty file is an empty record: the device is initialized. Anything else than a file
    /// is no record.
    pub fn read(&self, id: &DeviceId) -> io::Result<Option<Record>> {
        match self.data.read_file(&file_name(id)?, RECORD_LIMIT) {
            Ok(file) => Ok(Some(Record::parse(&file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound || obstacle::is_other(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Records of other devices than that of the event, for rules and builtins.
pub trait OtherDevices {
    /// The record of a device.
    fn record_of(&self, id: &DeviceId) -> Option<Arc<Record>>;

    /// What this daemon itself has written for a device of late.
    fn recent(&self, id: &DeviceId) -> Option<&Recent>;
}

impl OtherDevices for Records {
    fn record_of(&self, id: &DeviceId) -> Option<Arc<Record>> {
        self.read(id).ok()?.map(Arc::new)
    }

    fn recent(&self, _: &DeviceId) -> Option<&Recent> {
        None
    }
}

impl OtherDevices for Database {
    fn record_of(&self, id: &DeviceId) -> Option<Arc<Record>> {
        if let Some(unwritten) = self.unwritten.get(id) {
            return Some(Arc::new(unwritten.record.clone()));
        }
        match self.recent.get(id) {
            Some(recent) if self.file_of(id) == Some(recent.file) => Some(recent.record.clone()),
            _ => self.records.record_of(id),
        }
    }

    fn recent(&self, id: &DeviceId) -> Option<&Recent> {
        self.recent.get(id)
    }
}

/// The parts of one device that are known to be on disk.
#[derive(Debug, Default)]
struct Known {
    has_record: bool,
    /// Whether the record has the sticky bit; None for one that an earlier daemon left and nobody has
    /// asked about yet.
    sticky: Option<bool>,
    /// Tags whose index entry this daemon made or found.
    tags: HashSet<BString, BuildFnv>,
    /// Which device it is ([`write_identity`]); empty if an earlier daemon has written its record.
    identity: Vec<u8>,
}

/// A record that could not be written.
#[derive(Debug)]
struct Unwritten {
    record: Record,
    sticky: bool,
    keep_empty: bool,
}

/// The variables of the kernel that say which device it is, `KEY=VALUE` with a NUL behind each. Rules may have imported
/// other values of the same names, such as those of a parent: they do not count.
fn write_identity(event: &Event, text: &mut Vec<u8>) {
    let device = &event.device;
    put(text, "DEVPATH", &device.devpath);
    put(text, "SUBSYSTEM", &device.subsystem);
    // Memory takes all.
    if let Some(DevNum { major, minor }) = device.devnum {
        let _ = write!(text, "MAJOR={major}\0MINOR={minor}\0");
    }
    if let Some(ifindex) = device.ifindex {
        put(text, "INTERFACE", last_component(&device.devpath));
        let _ = write!(text, "IFINDEX={}\0", ifindex.0);
    }
    for (name, value) in [("DEVNAME", &device.devnode), ("DEVTYPE", &device.devtype)] {
        if let Some(value) = value {
            put(text, name, value);
        }
    }
    for name in ["DISKSEQ", "PARTN"] {
        if let Some(property) = event.properties.find(name.as_bytes()).filter(|property| !property.stored) {
            put(text, name, property.value);
        }
    }
}

fn put(text: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b"=", value, b"\0"] {
        text.extend_from_slice(part);
    }
}

/// Records and tag index of the one daemon that writes them.
#[derive(Debug)]
pub struct Database {
    records: Records,
    tags: Dir,
    umask_spares_modes: bool,
    known: HashMap<DeviceId, Known, BuildFnv>,
    unwritten: HashMap<DeviceId, Unwritten>,
    /// The records that were written last.
    recent: RecentRecords,
    /// Tags whose folders are watched, so that the kernel tells when others remove entries.
    trusted_tags: HashSet<BString>,
    /// Tags that came up since [`Database::take_new_tags`], and all that ever did, up to a limit.
    new_tags: Vec<BString>,
    seen_tags: HashSet<BString>,
    /// The folder of the records was made by us.
    is_new: bool,
    /// Bytes of the record that is being written.
    buffer: Vec<u8>,
}

impl Database {
    /// Opens, making directories that are missing, lists the records there are, and removes what a crash has left
    /// of writing one. `udev` is `/run/udev`.
    pub fn open(udev: &Dir) -> io::Result<Database> {
        let is_new = !udev.exists(b"data");
        let records = Records { data: open_or_make(udev, b"data")? };
        let tags = open_or_make(udev, b"tags")?;
        let mut database = Database {
            known: HashMap::default(),
            umask_spares_modes: atomic::umask_spares_modes(&records.data),
            records,
            tags,
            unwritten: HashMap::new(),
            recent: RecentRecords::default(),
            trusted_tags: HashSet::new(),
            new_tags: Vec::new(),
            seen_tags: HashSet::new(),
            is_new,
            buffer: Vec::new(),
        };
        let names = database.records.data.names()?;
        if let Err(error) = atomic::sweep_names(&database.records.data, &names) {
            log::warn!("Cannot remove what is left of writing records: {error}");
        }
        let ids = names.iter().filter_map(|name| DeviceId::parse(name));
        database.known = ids.map(|id| (id, Known { has_record: true, ..Known::default() })).collect();
        Ok(database)
    }

    /// Reads and writes this `/run/udev` from now on. Records and tags are those that are there; which device each id
    /// stands for is remembered further.
    pub fn reopen(&mut self, udev: &Dir) -> io::Result<()> {
        let mut opened = Database::open(udev)?;
        // Among them are tags of devices whose records are gone; they are removed when these devices are.
        for (id, tags) in opened.list_tags()? {
            opened.known.entry(id).or_default().tags.extend(tags.iter().map(BStr::to_owned));
        }
        for (id, old) in std::mem::take(&mut self.known) {
            // Until its next event this is all that is known of the device.
            if !old.identity.is_empty() {
                opened.known.entry(id).or_default().identity = old.identity;
            }
        }
        opened.unwritten = std::mem::take(&mut self.unwritten);
        *self = opened;
        Ok(())
    }

    /// Whether there was no folder of records when it was opened: then nothing can be told from a missing record.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// What is held open.
    pub fn folders(&self) -> [Held<'_>; 2] {
        [("udev/data", &self.records.data), ("udev/tags", &self.tags)]
    }

    /// All records, to read.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Ids of the devices that had a record when last looked at, in no order.
    pub fn known(&self) -> impl Iterator<Item = &DeviceId> {
        self.known.iter().filter(|(_, known)| known.has_record).map(|(id, _)| id)
    }

    /// Ids of the devices that had a record or tags when last looked at, in no order.
    pub fn known_or_tagged(&self) -> impl Iterator<Item = &DeviceId> {
        self.known.keys()
    }

    /// Whether the device had a record when last looked at; no system call.
    pub fn has_record(&self, id: &DeviceId) -> bool {
        self.known.get(id).is_some_and(|known| known.has_record)
    }

    /// Must be called after a record was written for an event, or could not be written (None). Remembers the record
    /// for events that ask for the record of their parent, and which device it is for the case that its `remove` is
    /// lost. Only devices with a record are remembered.
    pub fn remember(&mut self, id: &DeviceId, event: &Event, written: Option<&Arc<Record>>) {
        match written.zip(self.file_of(id)) {
            Some((record, file)) => self.recent.wrote(id, record, file, event.device.devtype.as_ref()),
            None => self.recent.forget(id),
        }
        let Some(known) = self.known.get_mut(id).filter(|known| known.has_record) else { return };
        self.buffer.clear();
        write_identity(event, &mut self.buffer);
        if known.identity != self.buffer {
            known.identity.clear();
            known.identity.extend_from_slice(&self.buffer);
        }
    }

    /// The file that has the name of this device's record.
    fn file_of(&self, id: &DeviceId) -> Option<Stat> {
        self.records.data.stat(&file_name(id).ok()?).ok()
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
        if !self.unwritten.is_empty()
            && let Some(unwritten) = self.unwritten.get(id)
        {
            return Ok(Some(unwritten.record.clone()));
        }
        if !self.has_record(id) {
            return Ok(None);
        }
        let record = self.records.read(id)?;
        if record.is_none()
            && let Some(known) = self.known.get_mut(id)
        {
            // Another process has removed the record, and perhaps its entries in the tag index. Entries that are left
            // are removed with the device.
            known.has_record = false;
            if known.tags.is_empty() {
                self.known.remove(id);
            }
        }
        Ok(record)
    }

    /// Writes the record. One without content becomes an empty file if `keep_empty` (the device has a
    /// number or is a network interface), else there is no file afterwards.
    ///
    /// After an error there is no record on disk, since the former one would be taken for this event's; unless
    /// it is the former one, rewritten while the event is under way ([`Sticky::AsBefore`]). Was it for want of room,
    /// the new one is kept for [`Database::finish`].
    pub fn write_record(
        &mut self,
        id: &DeviceId,
        record: &Record,
        sticky: Sticky,
        keep_empty: bool,
    ) -> io::Result<()> {
        self.write_or(id, record, sticky, keep_empty, sticky != Sticky::AsBefore)
    }

    /// The same for an event that has written its record before and now says that it has ended: after an error that
    /// earlier one stays, which says that the device is being processed.
    pub fn end_record(
        &mut self,
        id: &DeviceId,
        record: &Record,
        sticky: Sticky,
        keep_empty: bool,
    ) -> io::Result<()> {
        self.write_or(id, record, sticky, keep_empty, false)
    }

    fn write_or(
        &mut self,
        id: &DeviceId,
        record: &Record,
        wanted: Sticky,
        keep_empty: bool,
        removes: bool,
    ) -> io::Result<()> {
        let name = file_name(id)?;
        let sticky = match wanted {
            Sticky::No => false,
            Sticky::Yes => true,
            Sticky::AsBefore => self.is_sticky(id, &name),
        };
        let written = self.put_record(id, &name, record, sticky, keep_empty);
        match &written {
            Ok(()) if self.unwritten.is_empty() => {}
            // The former record is not what was to be written.
            Ok(()) if wanted == Sticky::AsBefore => {}
            Ok(()) => _ = self.unwritten.remove(id),
            Err(error) => {
                let is_own = wanted != Sticky::AsBefore;
                let has_room = self.unwritten.len() < MAX_UNWRITTEN || self.unwritten.contains_key(id);
                if is_own && Errno::of(error).is_shortage() && has_room {
                    let unwritten = Unwritten { record: record.clone(), sticky, keep_empty };
                    self.unwritten.insert(id.clone(), unwritten);
                } else if is_own {
                    self.unwritten.remove(id);
                }
                // The first error is the one to tell.
                if removes
                    && missing_is_fine(self.records.data.unlink(&name)).is_ok()
                    && let Some(known) = self.known.get_mut(id)
                {
                    known.has_record = false;
                }
            }
        }
        written
    }

    fn put_record(
        &mut self,
        id: &DeviceId,
        name: &[u8],
        record: &Record,
        sticky: bool,
        keep_empty: bool,
    ) -> io::Result<()> {
        if record.is_empty() && !keep_empty {
            return self.unlink_record(id);
        }
        let mode = if sticky { RECORD_MODE | STICKY } else { RECORD_MODE };
        self.buffer.clear();
        record.render_into(&mut self.buffer);
        obstacle::write_over(&self.records.data, name, || {
            match self.buffer.is_empty() && !self.has_record(id) {
                true => self.create_empty(name, mode),
                false => {
                    atomic::write_file(&self.records.data, name, &self.buffer, mode, self.umask_spares_modes)
                }
            }
        })?;
        match self.known.get_mut(id) {
            Some(known) => (known.has_record, known.sticky) = (true, Some(sticky)),
            None => {
                let known = Known { has_record: true, sticky: Some(sticky), ..Known::default() };
                self.known.insert(id.clone(), known);
            }
        }
        Ok(())
    }

    /// Whether records wait for room.
    pub fn is_unfinished(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// The devices whose records could not be written for want of room.
    pub fn unfinished(&self) -> impl Iterator<Item = &DeviceId> {
        self.unwritten.keys()
    }

    /// Writes the record of a device that there was no room for, if it is still to be written.
    pub fn finish(&mut self, id: &DeviceId) -> io::Result<()> {
        let Some(unwritten) = self.unwritten.remove(id) else { return Ok(()) };
        let Unwritten { record, sticky, keep_empty } = &unwritten;
        let written = file_name(id).and_then(|name| self.put_record(id, &name, record, *sticky, *keep_empty));
        if written.is_err() {
            self.unwritten.insert(id.clone(), unwritten);
        }
        written
    }

    /// Whether there is room: a file of a page is written and removed again.
    pub fn try_room(&self) -> io::Result<()> {
        const PAGE: [u8; 4096] = [0; 4096];
        let (data, name) = (&self.records.data, b".#room");
        atomic::write_file(data, name, &PAGE, RECORD_MODE, true)?;
        data.unlink(name)
    }

    /// Whether the record that is there has the sticky bit. This takes a system call only for the first look at a
    /// record that an earlier daemon has left.
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

    /// Removes the record, if there is one, and the index entries that it does not know of.
    pub fn remove_record(&mut self, id: &DeviceId) -> io::Result<()> {
        if !self.unwritten.is_empty() {
            self.unwritten.remove(id);
        }
        let tags = self.tags_beside(id, &OrderedSet::default());
        let removed = self.remove_tags(id, &tags).and(self.unlink_record(id));
        if self.known.get(id).is_some_and(|known| !known.has_record && known.tags.is_empty()) {
            self.known.remove(id);
        }
        removed
    }

    fn unlink_record(&mut self, id: &DeviceId) -> io::Result<()> {
        self.recent.forget(id);
        let Some(known) = self.known.get_mut(id).filter(|known| known.has_record) else { return Ok(()) };
        missing_is_fine(self.records.data.unlink(&file_name(id)?))?;
        known.has_record = false;
        if known.tags.is_empty() {
            self.known.remove(id);
        }
        Ok(())
    }

    /// Makes index entries of these tags. All are tried; the first error is returned.
    pub fn add_tags(&mut self, id: &DeviceId, tags: &[BString]) -> io::Result<()> {
        if tags.is_empty() {
            return Ok(());
        }
        let name = file_name(id)?;
        let known = self.known.entry(id.clone()).or_default();
        let mut result = Ok(());
        for tag in tags {
            if known.tags.contains(tag) && self.trusted_tags.contains(tag) {
                continue;
            }
            match add_tag(&self.tags, tag, &name, self.umask_spares_modes) {
                Ok(()) => {
                    known.tags.insert(tag.clone());
                    if self.seen_tags.len() < MAX_WATCHED_TAGS && !self.seen_tags.contains(tag) {
                        self.seen_tags.insert(tag.clone());
                        self.new_tags.push(tag.clone());
                    }
                }
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    /// Removes index entries of these tags; the directories of the tags stay. All are tried; the first
    /// error is returned, and what failed is known further.
    pub fn remove_tags(&mut self, id: &DeviceId, tags: &[BString]) -> io::Result<()> {
        if tags.is_empty() {
            return Ok(());
        }
        let name = file_name(id)?;
        let mut result = Ok(());
        for tag in tags {
            let removed = tag_entry(tag, &name).and_then(|entry| missing_is_fine(self.tags.unlink(&entry)));
            if removed.is_ok()
                && let Some(known) = self.known.get_mut(id)
            {
                known.tags.remove(tag);
            }
            result = result.and(removed);
        }
        if self.known.get(id).is_some_and(|known| !known.has_record && known.tags.is_empty()) {
            self.known.remove(id);
        }
        result
    }

    /// The tags that a device has an index entry of beside these, as far as is known.
    pub fn tags_beside(&self, id: &DeviceId, tags: &OrderedSet) -> Vec<BString> {
        let known = self.known.get(id).into_iter().flat_map(|known| &known.tags);
        known.filter(|tag| !tags.contains(tag)).cloned().collect()
    }

    /// The number of tags that a device is known to have an index entry of.
    pub fn tag_count(&self, id: &DeviceId) -> usize {
        self.known.get(id).map_or(0, |known| known.tags.len())
    }

    /// Tags that came up for the first time since this was last called, or after they had been forgotten.
    pub fn take_new_tags(&mut self) -> Vec<BString> {
        std::mem::take(&mut self.new_tags)
    }

    /// From now on [`Database::forget_tag`] is called for each entry of this tag that is removed, by whomever.
    pub fn trust_tag(&mut self, tag: BString) {
        self.trusted_tags.insert(tag);
    }

    /// The index entry was removed, by us or by others. O(1).
    pub fn forget_tag(&mut self, tag: &[u8], id: &[u8]) {
        if let Some(known) = DeviceId::parse(id).and_then(|id| self.known.get_mut(&id)) {
            known.tags.remove(tag.as_bstr());
        }
    }

    /// The folder of this tag is gone.
    pub fn forget_tag_folder(&mut self, tag: &BStr) {
        self.trusted_tags.remove(tag);
        self.seen_tags.remove(tag);
        self.known.values_mut().for_each(|known| _ = known.tags.remove(tag));
    }

    /// Nothing is known of the index any more.
    pub fn forget_tags(&mut self) {
        self.trusted_tags.clear();
        self.seen_tags.clear();
        self.known.values_mut().for_each(|known| known.tags.clear());
    }

    /// The whole index as it is on disk: by device its tags.
    pub fn list_tags(&self) -> io::Result<HashMap<DeviceId, OrderedSet>> {
        let mut index: HashMap<DeviceId, OrderedSet> = HashMap::new();
        for tag in self.tags.names()? {
            let folder = match self.tags.open_dir(&tag) {
                // Anything else than a folder has no entries.
                Err(error) if !Errno::of(&error).is_shortage() => continue,
                opened => opened?,
            };
            for id in folder.names()?.iter().filter_map(|name| DeviceId::parse(name)) {
                index.entry(id).or_default().insert(tag.clone());
            }
        }
        Ok(index)
    }

    /// The changes that bring the index in line with the record of a device, which is the truth: the tags whose
    /// entries are to go, and those that lack one. A crash may have come between the two. `indexed` are its entries
    /// on disk.
    pub fn differing_tags(record: &Record, indexed: &OrderedSet) -> (Vec<BString>, Vec<BString>) {
        let beside = |tags: &OrderedSet, others: &OrderedSet| {
            tags.as_slice().iter().filter(|tag| !others.contains(tag)).cloned().collect()
        };
        (beside(indexed, &record.tags), beside(&record.tags, indexed))
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
mod tests;
