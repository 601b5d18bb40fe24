//! What a helper can do, and how it is asked: one operation is one message, so is its reply.
//!
//! Wire format, private to one executable: a byte for the kind, then its fields; a text is its length
//! as u32 in native order and its bytes. An open file goes along where one is meant. The last text of a
//! reply that is too long for a message goes along as a file in memory; its kind has [`LONG`] set then.

use super::reading::{self, Reading};
use crate::builtin::link_file;
use crate::model::{DevNum, Errno};
use crate::sys;
use crate::world::nodes::{self, DiskLock, HeldLock};
use crate::world::rule_files::{RuleFiles, Snapshot};
use crate::world::sysfs::{Place, Sysfs};
use crate::world::{Roots, files, patience};
use bstr::{BStr, BString, ByteSlice};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Bytes of the longest message. Longer operations cannot be asked for: see [`Operation::encode`].
pub const MAX_MESSAGE: usize = 64 * 1024;

/// Bytes of a text that goes in the message itself.
const MAX_INLINE: usize = 32 * 1024;

/// Set in the kind of a reply whose last text is in the open file that goes along.
const LONG: u8 = 0x80;

/// One thing that may block. Paths are complete: the movable roots are resolved by who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Write a sysfs attribute. -> [`Reply::Done`]
    WriteAttr { path: BString, value: BString },
    /// Write a kernel parameter. -> [`Reply::Done`]
    WriteSysctl { path: BString, value: BString },
    /// Read an attribute as [`Sysfs::read_attr`] does, of the tree at `sys`. -> [`Reply::Attr`]
    ReadAttr { sys: BString, place: Place },
    /// Read a file of a slow file system ([`files::import`]). -> [`Reply::File`]
    ReadFile { path: BString },
    /// Look for a file of a slow file system ([`files::mode`]). -> [`Reply::Mode`]
    TestFile { path: BString },
    /// Look at the files in these folders of rules and of .link files. -> [`Reply::State`]
    LookAtRules { rules: Vec<BString>, links: Vec<BString> },
    /// Read what a [`Reading`] has: below `etc`, `run`, `/usr/local/lib` and `/usr/lib`, in this order, and rules in
    /// these folders. -> [`Reply::Files`]
    ReadRules { roots: Box<[BString; 4]>, rules: Vec<BString> },
    /// Permanent address of an interface by ethtool (GPERMADDR). -> [`Reply::Address`]
    PermanentAddress { ifname: BString },
    /// Lock the disk and re-read its partition table (rules.md 11.4). `syspath` is that of the disk.
    /// -> [`Reply::Partitions`]
    ReReadPartitions { devnode: BString, syspath: BString },
    /// Write `text` (`add`, `change <uuid>`) to the `uevent` file of each device. -> [`Reply::Triggered`]
    Trigger { text: BString, syspaths: Vec<BString> },
    /// Open a disk and try to lock it. -> [`Reply::Lock`]
    LockDisk { path: BString },
    /// Close a disk; it is passed along. -> [`Reply::Done`]
    CloseDisk { disk: BString, lock: HeldLock },
    /// Make a block device read-only, if it is still the one with this number. -> [`Reply::Done`]
    SetReadOnly { path: BString, devnum: DevNum },
}

/// What a helper says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Done(Result<(), Errno>),
    /// An attribute, which one, and whether reading it waited ([`patience::watch`]).
    Attr {
        place: Place,
        value: Result<BString, Errno>,
        waited: bool,
    },
    /// Content of a file, None if it is of no use.
    File(Result<Option<BString>, Errno>),
    /// Mode bits (`st_mode`), None if there is nothing.
    Mode(Result<Option<u32>, Errno>),
    /// The state of files, as [`state_of_rules`] tells it.
    State(Result<BString, Errno>),
    /// A [`Reading`], encoded.
    Files(Result<BString, Errno>),
    /// Bytes of a hardware address, empty if there is none.
    Address(Result<BString, Errno>),
    /// The table was re-read, and this tells whether there are partitions; or why it was not.
    Partitions(Result<bool, Errno>),
    /// Devices whose `uevent` file took the text, and those that did not (most often gone meanwhile).
    Triggered {
        done: u32,
        failed: u32,
    },
    /// How the lock of a disk was taken; the disk is passed along.
    Lock(Result<DiskLock, Errno>),
    /// Killed because it was past its deadline. Made by the pool.
    TimedOut,
    /// There is no reply: no process could be had, or it died. Made by the pool.
    Died,
    /// It was not tried: a helper hangs at the same device. Made by the pool.
    Refused,
}

impl Operation {
    /// The message of this operation.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Operation::WriteAttr { path, value } => message(1, &[path, value]),
            Operation::WriteSysctl { path, value } => message(2, &[path, value]),
            Operation::ReadAttr { sys, place } => message(3, &[sys, &place.devpath, &place.name]),
            Operation::ReReadPartitions { devnode, syspath } => message(5, &[devnode, syspath]),
            Operation::Trigger { text, syspaths } => {
                let all: Vec<&[u8]> =
                    [text.as_slice()].into_iter().chain(syspaths.iter().map(|p| p.as_slice())).collect();
                message(6, &all)
            }
            Operation::ReadFile { path } => message(11, &[path]),
            Operation::TestFile { path } => message(12, &[path]),
            Operation::LookAtRules { rules, links } => {
                let count = (rules.len() as u32).to_ne_bytes();
                let folders = rules.iter().chain(links).map(|folder| folder.as_slice());
                message(13, &[&count[..]].into_iter().chain(folders).collect::<Vec<_>>())
            }
            Operation::ReadRules { roots, rules } => {
                message(14, &roots.iter().chain(rules).map(|place| place.as_slice()).collect::<Vec<_>>())
            }
            Operation::PermanentAddress { ifname } => message(7, &[ifname]),
            Operation::LockDisk { path } => message(8, &[path]),
            Operation::CloseDisk { disk, .. } => message(9, &[disk]),
            Operation::SetReadOnly { path, devnum } => message(10, &[path, devnum.to_string().as_bytes()]),
        }
    }

    /// Whether it opens or closes a disk, or looks for a file on one, and so may wait for that.
    pub fn is_for_disk(&self) -> bool {
        matches!(
            self,
            Operation::ReReadPartitions { .. }
                | Operation::LockDisk { .. }
                | Operation::CloseDisk { .. }
                | Operation::SetReadOnly { .. }
                | Operation::ReadFile { .. }
                | Operation::TestFile { .. }
                | Operation::LookAtRules { .. }
                | Operation::ReadRules { .. }
        )
    }

    /// The open file that goes with the message.
    pub fn passes(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Operation::CloseDisk { lock, .. } => Some(lock.as_fd()),
            _ => None,
        }
    }

    /// The operation of a message, and of the open file that came with it; None for anything else.
    pub fn decode(bytes: &[u8], passed: Option<OwnedFd>) -> Option<Operation> {
        let (&kind, rest) = bytes.split_first()?;
        let texts = texts(rest)?;
        let mut texts = texts.into_iter().map(BStr::to_owned);
        let mut next = || texts.next();
        let operation = match kind {
            1 => Operation::WriteAttr { path: next()?, value: next()? },
            2 => Operation::WriteSysctl { path: next()?, value: next()? },
            3 => Operation::ReadAttr { sys: next()?, place: Place { devpath: next()?, name: next()? } },
            5 => Operation::ReReadPartitions { devnode: next()?, syspath: next()? },
            6 => return Some(Operation::Trigger { text: next()?, syspaths: texts.collect() }),
            7 => Operation::PermanentAddress { ifname: next()? },
            8 => Operation::LockDisk { path: next()? },
            9 => Operation::CloseDisk { disk: next()?, lock: HeldLock::passed(passed?) },
            11 => Operation::ReadFile { path: next()? },
            12 => Operation::TestFile { path: next()? },
            13 => {
                let count = u32::from_ne_bytes(next()?.as_slice().try_into().ok()?) as usize;
                let mut rules: Vec<BString> = texts.collect();
                if count > rules.len() {
                    return None;
                }
                let links = rules.split_off(count);
                return Some(Operation::LookAtRules { rules, links });
            }
            14 => {
                let roots = Box::new([next()?, next()?, next()?, next()?]);
                return Some(Operation::ReadRules { roots, rules: texts.collect() });
            }
            10 => Operation::SetReadOnly { path: next()?, devnum: DevNum::parse(&next()?)? },
            _ => return None,
        };
        next().is_none().then_some(operation)
    }

    /// Does it, however long it takes.
    pub fn perform(self) -> Reply {
        match &self {
            Operation::WriteAttr { path: at, value } => {
                Reply::Done(place(at).and_then(|at| files::write_attr(at, value)))
            }
            Operation::WriteSysctl { path: at, value } => {
                Reply::Done(place(at).and_then(|at| files::write_parameter(at, value)))
            }
            Operation::ReadAttr { sys, place } => read_attr(sys, place),
            Operation::ReadFile { path: at } => Reply::File(place(at).and_then(files::import)),
            Operation::TestFile { path: at } => Reply::Mode(place(at).and_then(files::mode)),
            Operation::LookAtRules { rules, links } => Reply::State(look_at_rules(rules, links)),
            Operation::ReadRules { roots, rules } => Reply::Files(read_rules(roots, rules)),
            Operation::PermanentAddress { ifname } => Reply::Address(permanent_address(ifname)),
            Operation::ReReadPartitions { devnode, syspath } => Reply::Partitions(re_read(devnode, syspath)),
            Operation::LockDisk { path: at } => Reply::Lock(place(at).and_then(nodes::lock_disk)),
            Operation::CloseDisk { .. } => {
                drop(self);
                Reply::Done(Ok(()))
            }
            Operation::SetReadOnly { path: at, devnum } => {
                Reply::Done(place(at).and_then(|at| nodes::set_read_only(at, *devnum)))
            }
            Operation::Trigger { text, syspaths } => {
                let file = |syspath: &BString| BString::from([syspath.as_slice(), b"/uevent"].concat());
                let done = syspaths.iter().filter(|p| write(&file(p), text).is_ok()).count();
                Reply::Triggered { done: done as u32, failed: (syspaths.len() - done) as u32 }
            }
        }
    }
}

/// An open file that goes with the message of a reply.
#[derive(Debug)]
pub enum Passed<'a> {
    Lent(BorrowedFd<'a>),
    Made(OwnedFd),
}

impl AsFd for Passed<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Passed::Lent(file) => *file,
            Passed::Made(file) => file.as_fd(),
        }
    }
}

impl Reply {
    /// Whether an open disk goes with it, which somebody must close.
    pub fn lends(&self) -> bool {
        self.passes().is_some()
    }

    /// The message of this reply, and the open file that goes with it. A text that is too long for a message
    /// and cannot be put into a file in memory becomes the reason why.
    pub fn pack(&self) -> (Vec<u8>, Option<Passed<'_>>) {
        let long = self.text().filter(|text| text.len() > MAX_INLINE);
        match long.map(|text| sys::fs::file_in_memory(text)) {
            None => (self.encode(), self.passes().map(Passed::Lent)),
            Some(Ok(file)) => {
                let mut bytes = self.with_text(Ok(BString::default())).encode();
                bytes[0] |= LONG;
                (bytes, Some(Passed::Made(file.into())))
            }
            Some(Err(error)) => (self.with_text(Err(Errno::of(&error))).encode(), None),
        }
    }

    /// The text that may be long.
    fn text(&self) -> Option<&BString> {
        match self {
            Reply::Attr { value: Ok(text), .. }
            | Reply::File(Ok(Some(text)))
            | Reply::State(Ok(text))
            | Reply::Files(Ok(text)) => Some(text),
            _ => None,
        }
    }

    /// The same reply with another text.
    fn with_text(&self, text: Result<BString, Errno>) -> Reply {
        match self {
            Reply::Attr { place, waited, .. } => {
                Reply::Attr { place: place.clone(), value: text, waited: *waited }
            }
            Reply::File(_) => Reply::File(text.map(Some)),
            Reply::State(_) => Reply::State(text),
            Reply::Files(_) => Reply::Files(text),
            other => other.clone(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let number = |result: Result<u32, Errno>| match result {
            Ok(value) => [0i32.to_ne_bytes(), value.to_ne_bytes()].concat(),
            Err(errno) => [errno.0.to_ne_bytes(), [0; 4]].concat(),
        };
        match self {
            Reply::Done(result) => message(1, &[&number(result.map(|()| 0))]),
            Reply::Attr { place, value, waited } => {
                let start = [&number(Ok(u32::from(*waited))), place.devpath.as_slice(), &place.name];
                match value {
                    Ok(text) => message(2, &[&start[..], &[&number(Ok(0)), text]].concat()),
                    Err(errno) => message(2, &[&start[..], &[&number(Err(*errno)), &[]]].concat()),
                }
            }
            Reply::File(Ok(Some(text))) => message(11, &[&number(Ok(0)), text]),
            Reply::File(Ok(None)) => message(11, &[&number(Ok(0))]),
            Reply::File(Err(errno)) => message(11, &[&number(Err(*errno))]),
            Reply::State(Ok(text)) => message(14, &[&number(Ok(0)), text]),
            Reply::State(Err(errno)) => message(14, &[&number(Err(*errno))]),
            Reply::Files(Ok(text)) => message(15, &[&number(Ok(0)), text]),
            Reply::Files(Err(errno)) => message(15, &[&number(Err(*errno))]),
            Reply::Mode(Ok(None)) => message(12, &[]),
            Reply::Mode(Ok(Some(mode))) => message(12, &[&number(Ok(*mode))]),
            Reply::Mode(Err(errno)) => message(12, &[&number(Err(*errno))]),
            Reply::Partitions(result) => message(3, &[&number(result.map(u32::from))]),
            Reply::Lock(result) => message(8, &[&number(result.as_ref().map(lock_number).map_err(|e| *e))]),
            Reply::Triggered { done, failed } => message(4, &[&number(Ok(*done)), &number(Ok(*failed))]),
            Reply::TimedOut => message(5, &[]),
            Reply::Died => message(6, &[]),
            Reply::Refused => message(13, &[]),
            Reply::Address(Ok(address)) => message(7, &[&number(Ok(0)), address]),
            Reply::Address(Err(errno)) => message(7, &[&number(Err(*errno)), &[]]),
        }
    }

    fn passes(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Reply::Lock(Ok(DiskLock::Held(lock))) => Some(lock.as_fd()),
            _ => None,
        }
    }

    /// The reply of a message, and of the open file that came with it; None for anything else.
    pub fn decode(bytes: &[u8], passed: Option<OwnedFd>) -> Option<Reply> {
        let (&kind, rest) = bytes.split_first()?;
        if kind & LONG != 0 {
            let bytes = [&[kind & !LONG], rest].concat();
            let reply = Reply::decode(&bytes, None)?;
            let limit = if matches!(reply, Reply::Files(_)) { reading::MAX_TEXT } else { files::IMPORT_MAX };
            let text = sys::fs::content_of(&passed?.into(), limit).map_err(|e| Errno::of(&e));
            return Some(reply.with_text(text.map(BString::from)));
        }
        let texts = texts(rest)?;
        let number = |at: usize| -> Option<Result<u32, Errno>> {
            let (errno, value) = texts.get(at)?.split_at_checked(4)?;
            let value = u32::from_ne_bytes(value.try_into().ok()?);
            let errno = i32::from_ne_bytes(errno.try_into().ok()?);
            Some(if errno == 0 { Ok(value) } else { Err(Errno(errno)) })
        };
        let text = |at: usize| texts.get(at).map(|&text| text.to_owned());
        Some(match kind {
            1 => Reply::Done(number(0)?.map(drop)),
            2 => Reply::Attr {
                waited: number(0)?.ok()? != 0,
                place: Place { devpath: text(1)?, name: text(2)? },
                value: match number(3)? {
                    Ok(_) => Ok(text(4)?),
                    Err(errno) => Err(errno),
                },
            },
            3 => Reply::Partitions(number(0)?.map(|n| n != 0)),
            4 => Reply::Triggered { done: number(0)?.ok()?, failed: number(1)?.ok()? },
            5 => Reply::TimedOut,
            6 => Reply::Died,
            13 => Reply::Refused,
            7 => match number(0)? {
                Ok(_) => Reply::Address(Ok(text(1)?)),
                Err(errno) => Reply::Address(Err(errno)),
            },
            8 => Reply::Lock(match (number(0)?, passed) {
                (Err(errno), _) => Err(errno),
                (Ok(HELD), Some(file)) => Ok(DiskLock::Held(HeldLock::passed(file))),
                (Ok(NOT_NEEDED), _) => Ok(DiskLock::NotNeeded),
                // Also if there was no room for one more open file here: there will be.
                _ => Ok(DiskLock::Busy),
            }),
            11 => Reply::File(number(0)?.map(|_| text(1))),
            14 => Reply::State(match number(0)? {
                Ok(_) => Ok(text(1)?),
                Err(errno) => Err(errno),
            }),
            15 => Reply::Files(match number(0)? {
                Ok(_) => Ok(text(1)?),
                Err(errno) => Err(errno),
            }),
            12 => Reply::Mode(number(0).map_or(Ok(None), |mode| mode.map(Some))),
            _ => return None,
        })
    }
}

const HELD: u32 = 0;
const BUSY: u32 = 1;
const NOT_NEEDED: u32 = 2;

fn lock_number(lock: &DiskLock) -> u32 {
    match lock {
        DiskLock::Held(_) => HELD,
        DiskLock::Busy => BUSY,
        DiskLock::NotNeeded => NOT_NEEDED,
    }
}

pub(super) fn message(kind: u8, texts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![kind];
    for text in texts {
        bytes.extend_from_slice(&(text.len() as u32).to_ne_bytes());
        bytes.extend_from_slice(text);
    }
    bytes
}

fn texts(mut bytes: &[u8]) -> Option<Vec<&BStr>> {
    let mut texts = Vec::new();
    while !bytes.is_empty() {
        let (len, rest) = bytes.split_at_checked(4)?;
        let (text, rest) = rest.split_at_checked(u32::from_ne_bytes(len.try_into().ok()?) as usize)?;
        texts.push(text.as_bstr());
        bytes = rest;
    }
    Some(texts)
}

fn path(bytes: &BString) -> io::Result<&Path> {
    bytes.to_path().map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn place(bytes: &BString) -> Result<&Path, Errno> {
    path(bytes).map_err(|e| Errno::of(&e))
}

/// One write(2) of the whole value to a file that must be there: attributes act on each write.
fn write(file: &BString, value: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::File::options()
        .write(true)
        .custom_flags(libc::O_NOCTTY | libc::O_NOFOLLOW)
        .open(path(file)?)?;
    match (&file).write(value)? {
        n if n == value.len() => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EIO)),
    }
}

fn read_attr(sys: &BString, attr: &Place) -> Reply {
    let read = |sys: &Path| Sysfs::below(sys.to_owned()).read_attr(&attr.devpath, &attr.name);
    let (value, waited) = patience::watch(|| place(sys).and_then(read));
    Reply::Attr { place: attr.clone(), value, waited }
}

/// One text for the state of rules and of .link files.
pub fn state_of_rules(rules: &Snapshot, links: &str) -> BString {
    [rules.0.as_slice(), b"\n", links.as_bytes()].concat().into()
}

fn look_at_rules(rules: &[BString], links: &[BString]) -> Result<BString, Errno> {
    let places = |folders: &[BString]| -> Result<Vec<PathBuf>, Errno> {
        folders.iter().map(|folder| place(folder).map(PathBuf::from)).collect()
    };
    // In the order in which a load takes them.
    let links = link_file::state_of(&places(links)?);
    Ok(state_of_rules(&RuleFiles::in_folders(places(rules)?).snapshot(), &links))
}

fn read_rules(roots: &[BString; 4], rules: &[BString]) -> Result<BString, Errno> {
    let [etc, run, local_lib, lib] = roots;
    let at = |root| place(root).map(PathBuf::from);
    let roots =
        Roots { etc: at(etc)?, run: at(run)?, local_lib: at(local_lib)?, lib: at(lib)?, ..Roots::default() };
    let rules = rules.iter().map(at).collect::<Result<_, _>>()?;
    Reading::read(&roots, &RuleFiles::in_folders(rules)).encode()
}

fn permanent_address(ifname: &BString) -> Result<BString, Errno> {
    let address =
        sys::ioctl::interface_socket().and_then(|s| sys::ioctl::permanent_address_of(s.as_fd(), ifname));
    address.map_err(|error| Errno::of(&error))
}

/// Re-reads the table of a disk that nobody holds a lock on, then says whether it has partitions.
fn re_read(devnode: &BString, syspath: &BString) -> Result<bool, Errno> {
    let errno = |e: io::Error| Errno::of(&e);
    nodes::reread_partitions(place(devnode)?)?;
    let entries = std::fs::read_dir(path(syspath).map_err(errno)?).map_err(errno)?;
    Ok(entries.flatten().any(|entry| entry.path().join("partition").exists()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(devpath: &str, name: &str) -> Place {
        Place { devpath: devpath.into(), name: name.into() }
    }

    #[test]
    fn operations_go_both_ways_and_cut_ones_are_refused() {
        let all = [
            Operation::WriteAttr { path: "/sys/a".into(), value: "1".into() },
            Operation::WriteSysctl { path: "/proc/sys/a".into(), value: "".into() },
            Operation::ReadAttr { sys: "/sys".into(), place: attr("/devices/a", "b") },
            Operation::ReadFile { path: "/etc/a".into() },
            Operation::LookAtRules { rules: vec!["/a".into(), "/b".into()], links: vec!["/c".into()] },
            Operation::ReadRules {
                roots: Box::new(["/a", "/b", "/c", "/d"].map(BString::from)),
                rules: vec!["/e".into()],
            },
            Operation::TestFile { path: "/etc/b".into() },
            Operation::PermanentAddress { ifname: "eth0".into() },
            Operation::ReReadPartitions { devnode: "/dev/sda".into(), syspath: "/sys/block/sda".into() },
            Operation::Trigger { text: "add".into(), syspaths: vec!["/sys/a".into(), "/sys/b".into()] },
            Operation::LockDisk { path: "/dev/sda".into() },
            Operation::SetReadOnly { path: "/dev/sda".into(), devnum: DevNum { major: 8, minor: 0 } },
        ];
        for operation in all {
            let bytes = operation.encode();
            assert_eq!(Operation::decode(&bytes, None), Some(operation.clone()));
            for cut in 0..bytes.len() {
                assert_ne!(Operation::decode(&bytes[..cut], None), Some(operation.clone()));
            }
        }
        // 9: nothing to close.
        for bytes in [&[][..], &[99], &[3, 0xff, 0xff, 0xff, 0xff], &[9]] {
            assert_eq!(Operation::decode(bytes, None), None);
        }
    }

    #[test]
    fn replies_go_both_ways() {
        let all = [
            Reply::Done(Ok(())),
            Reply::Done(Err(Errno(libc::EBUSY))),
            Reply::Attr { place: attr("/devices/a", "b"), value: Ok("".into()), waited: false },
            Reply::Attr { place: attr("/devices/a", "b"), value: Ok("1".into()), waited: true },
            Reply::Attr { place: attr("/devices/a", "b"), value: Err(Errno(libc::EIO)), waited: true },
            Reply::Attr {
                place: attr("/devices/a", "b"),
                value: Ok(vec![b'x'; MAX_INLINE].into()),
                waited: true,
            },
            Reply::Attr {
                place: attr("/devices/a", "b"),
                value: Ok(vec![b'x'; MAX_INLINE + 1].into()),
                waited: true,
            },
            Reply::Attr {
                place: attr("/devices/a", "b"),
                value: Ok(vec![b'x'; files::IMPORT_MAX].into()),
                waited: false,
            },
            Reply::File(Ok(Some("".into()))),
            Reply::File(Ok(Some(vec![b'x'; files::IMPORT_MAX].into()))),
            Reply::File(Ok(None)),
            Reply::File(Err(Errno(libc::EIO))),
            Reply::State(Ok("x".into())),
            Reply::State(Ok(vec![b'x'; MAX_INLINE + 1].into())),
            Reply::State(Err(Errno(libc::EIO))),
            Reply::Files(Ok("".into())),
            Reply::Files(Ok(vec![b'x'; 2 * files::IMPORT_MAX].into())),
            Reply::Files(Err(Errno(libc::EFBIG))),
            Reply::Mode(Ok(Some(0o100644))),
            Reply::Mode(Ok(None)),
            Reply::Mode(Err(Errno(libc::EIO))),
            Reply::Address(Ok("\0\x01\x02".into())),
            Reply::Address(Ok("".into())),
            Reply::Address(Err(Errno(libc::ENODEV))),
            Reply::Partitions(Ok(true)),
            Reply::Partitions(Err(Errno(libc::EBUSY))),
            Reply::Triggered { done: 7, failed: 1 },
            Reply::Lock(Ok(DiskLock::Busy)),
            Reply::Lock(Ok(DiskLock::NotNeeded)),
            Reply::Lock(Err(Errno(libc::EACCES))),
            Reply::TimedOut,
            Reply::Refused,
            Reply::Died,
        ];
        for reply in all {
            let (bytes, passed) = reply.pack();
            assert!(bytes.len() < MAX_MESSAGE);
            let passed = passed.map(|file| file.as_fd().try_clone_to_owned().unwrap());
            assert_eq!(Reply::decode(&bytes, passed), Some(reply));
            for cut in 0..bytes.len().min(100) {
                let _ = Reply::decode(&bytes[..cut], None);
            }
        }
    }

    #[test]
    fn attributes_are_read_written_and_triggered() {
        let tree = crate::world::tree::Tree::new();
        tree.file("sys/a/uevent", "").file("sys/a/speed", "1000\n");
        let at = |name: &str| BString::from(tree.path(name).into_os_string().into_encoded_bytes());
        let read =
            |name: &str| match (Operation::ReadAttr { sys: at("sys"), place: attr("/a", name) }).perform() {
                Reply::Attr { place, value, waited: false } if place == attr("/a", name) => value,
                other => panic!("{other:?}"),
            };
        assert_eq!(read("speed"), Ok("1000".into()));
        assert_eq!(read("none"), Err(Errno(libc::ENOENT)));
        assert_eq!(read(""), Err(Errno(libc::EISDIR)));
        let write = Operation::WriteAttr { path: at("sys/a/speed"), value: "10".into() };
        assert_eq!(write.perform(), Reply::Done(Ok(())));
        assert_eq!(tree.read("sys/a/speed"), b"1000\n", "the first two bytes are overwritten, as in sysfs");
        let trigger = Operation::Trigger { text: "add".into(), syspaths: vec![at("sys/a"), at("sys/none")] };
        assert_eq!(trigger.perform(), Reply::Triggered { done: 1, failed: 1 });
        assert_eq!(tree.read("sys/a/uevent"), b"add");
    }
}
