//! What a helper does: each operation of [`crate::model::operation`], however long it takes.

use super::reading::Reading;
use crate::builtin::link_files;
use crate::model::Errno;
use crate::model::operation::{AttrPlace, LockState, Operation, OperationReply};
use crate::sys;
use crate::world::nodes::{self, DiskLock};
use crate::world::rule_files::{RuleFiles, Snapshot};
use crate::world::sysfs::Sysfs;
use crate::world::{Roots, files, patience};
use bstr::{BString, ByteSlice};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Does it, with the file that came along. The file that is returned goes along with the reply.
pub fn perform(operation: &Operation, passed: Option<OwnedFd>) -> (OperationReply, Option<OwnedFd>) {
    let mut opened = None;
    let reply = match operation {
        Operation::WriteAttr { path: at, value } => {
            OperationReply::Done(place(at).and_then(|at| files::write_attr(at, value)))
        }
        Operation::WriteSysctl { path: at, value } => {
            OperationReply::Done(place(at).and_then(|at| files::write_parameter(at, value)))
        }
        Operation::ReadAttr { sys, place } => read_attr(sys, place),
        Operation::ReadFile { path: at } => OperationReply::File(place(at).and_then(files::import)),
        Operation::TestFile { path: at } => OperationReply::Mode(place(at).and_then(files::mode)),
        Operation::LookAtRules { rules, links: link_files } => {
            OperationReply::State(look_at_rules(rules, link_files))
        }
        Operation::ReadRules { roots, rules } => OperationReply::Files(read_rules(roots, rules)),
        Operation::PermanentAddress { ifname } => OperationReply::Address(permanent_address(ifname)),
        Operation::ReReadPartitions { devnode, syspath } => {
            OperationReply::Partitions(re_read(devnode, syspath))
        }
        Operation::SetReadOnly { path: at, devnum } => {
            OperationReply::Done(place(at).and_then(|at| nodes::set_read_only(at, *devnum)))
        }
        Operation::Trigger { text, syspaths } => {
            let file = |syspath: &BString| BString::from([syspath.as_slice(), b"/uevent"].concat());
            let done = syspaths.iter().filter(|p| write(&file(p), text).is_ok()).count();
            OperationReply::Triggered { done: done as u32, failed: (syspaths.len() - done) as u32 }
        }
        Operation::LockDisk { path: at } => OperationReply::Lock(lock_disk(at, &mut opened)),
        Operation::CloseDisk { .. } => {
            drop(passed);
            OperationReply::Done(Ok(()))
        }
    };
    (reply, opened)
}

fn lock_disk(path: &BString, opened: &mut Option<OwnedFd>) -> Result<LockState, Errno> {
    Ok(match nodes::lock_disk(place(path)?)? {
        DiskLock::Held(lock) => {
            *opened = Some(lock.into());
            LockState::Held
        }
        DiskLock::Busy => LockState::Busy,
        DiskLock::NotNeeded => LockState::NotNeeded,
    })
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

fn read_attr(sys: &BString, attr: &AttrPlace) -> OperationReply {
    let read = |sys: &Path| Sysfs::below(sys.to_owned()).read_attr(&attr.devpath, &attr.name);
    let (value, waited) = patience::watch(|| place(sys).and_then(read));
    OperationReply::Attr { place: attr.clone(), value, waited }
}

/// One text for the state of rules and of .link files.
pub fn state_of_rules(rules: &Snapshot, link_files: &str) -> BString {
    [rules.0.as_slice(), b"\n", link_files.as_bytes()].concat().into()
}

fn look_at_rules(rules: &[BString], link_files: &[BString]) -> Result<BString, Errno> {
    let places = |folders: &[BString]| -> Result<Vec<PathBuf>, Errno> {
        folders.iter().map(|folder| place(folder).map(PathBuf::from)).collect()
    };
    // In the order in which a load takes them.
    let link_files = link_files::state_of(&places(link_files)?);
    Ok(state_of_rules(&RuleFiles::in_folders(places(rules)?).snapshot(), &link_files))
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

    fn attr(devpath: &str, name: &str) -> AttrPlace {
        AttrPlace { devpath: devpath.into(), name: name.into() }
    }

    fn done(operation: &Operation) -> OperationReply {
        perform(operation, None).0
    }

    #[test]
    fn attributes_are_read_written_and_triggered() {
        let tree = crate::world::tree::Tree::new();
        tree.file("sys/a/uevent", "").file("sys/a/speed", "1000\n");
        let at = |name: &str| BString::from(tree.path(name).into_os_string().into_encoded_bytes());
        let read = |name: &str| match done(&Operation::ReadAttr { sys: at("sys"), place: attr("/a", name) }) {
            OperationReply::Attr { place, value, waited: false } if place == attr("/a", name) => value,
            other => panic!("{other:?}"),
        };
        assert_eq!(read("speed"), Ok("1000".into()));
        assert_eq!(read("none"), Err(Errno(libc::ENOENT)));
        assert_eq!(read(""), Err(Errno(libc::EISDIR)));
        let write = Operation::WriteAttr { path: at("sys/a/speed"), value: "10".into() };
        assert_eq!(done(&write), OperationReply::Done(Ok(())));
        assert_eq!(tree.read("sys/a/speed"), b"1000\n", "the first two bytes are overwritten, as in sysfs");
        let trigger = Operation::Trigger { text: "add".into(), syspaths: vec![at("sys/a"), at("sys/none")] };
        assert_eq!(done(&trigger), OperationReply::Triggered { done: 1, failed: 1 });
        assert_eq!(tree.read("sys/a/uevent"), b"add");
    }
}
