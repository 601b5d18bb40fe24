//! Operations that may block, which are left to helpers, and the replies to them.
//!
//! Must stay true: these are values without open files. A file that an operation needs or opens travels beside it (`Order`
//! and `Delivery` of the pool of helpers).

use super::{DevNum, Errno};
use bstr::BString;

/// An attribute of sysfs: of which device, and what it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttrPlace {
    pub devpath: BString,
    pub name: BString,
}

/// One thing that may block. Its paths are complete: they begin with the movable roots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Write a sysfs attribute. -> [`OperationReply::Done`]
    WriteAttr { path: BString, value: BString },
    /// Write a kernel parameter. -> [`OperationReply::Done`]
    WriteSysctl { path: BString, value: BString },
    /// Read an attribute as rules see it, of the tree at `sys`. -> [`OperationReply::Attr`]
    ReadAttr { sys: BString, place: AttrPlace },
    /// Read a file of a slow file system. -> [`OperationReply::File`]
    ReadFile { path: BString },
    /// Look for a file of a slow file system. -> [`OperationReply::Mode`]
    TestFile { path: BString },
    /// Look at the files in these folders of rules and of .link files. -> [`OperationReply::State`]
    LookAtRules { rules: Vec<BString>, links: Vec<BString> },
    /// Read all that a reload reads: below `etc`, `run`, `/usr/local/lib` and `/usr/lib`, in this order, and rules in
    /// these folders. -> [`OperationReply::Files`]
    ReadRules { roots: Box<[BString; 4]>, rules: Vec<BString> },
    /// Permanent address of an interface by ethtool (GPERMADDR). -> [`OperationReply::Address`]
    PermanentAddress { ifname: BString },
    /// Lock the disk and re-read its partition table (rules.md 11.4). `syspath` is that of the disk.
    /// -> [`OperationReply::Partitions`]
    ReReadPartitions { devnode: BString, syspath: BString },
    /// Write `text` (`add`, `change <uuid>`) to the `uevent` file of each device. -> [`OperationReply::Triggered`]
    Trigger { text: BString, syspaths: Vec<BString> },
    /// Open a disk and try to lock it. -> [`OperationReply::Lock`]
    LockDisk { path: BString },
    /// Close a disk; it goes along, open. -> [`OperationReply::Done`]
    CloseDisk { disk: BString },
    /// Make a block device read-only, if it is still the one with this number. -> [`OperationReply::Done`]
    SetReadOnly { path: BString, devnum: DevNum },
}

impl Operation {
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

    /// Whether it leaves everything as it is. The tool does only such operations when it tries rules.
    pub fn only_reads(&self) -> bool {
        match self {
            Operation::ReadAttr { .. }
            | Operation::ReadFile { .. }
            | Operation::TestFile { .. }
            | Operation::LookAtRules { .. }
            | Operation::ReadRules { .. }
            | Operation::PermanentAddress { .. } => true,
            Operation::WriteAttr { .. }
            | Operation::WriteSysctl { .. }
            | Operation::ReReadPartitions { .. }
            | Operation::Trigger { .. }
            | Operation::LockDisk { .. }
            | Operation::CloseDisk { .. }
            | Operation::SetReadOnly { .. } => false,
        }
    }

    /// Whether an open file goes along with it.
    pub fn passes_file(&self) -> bool {
        matches!(self, Operation::CloseDisk { .. })
    }
}

/// The reply of a helper, or of the pool in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationReply {
    Done(Result<(), Errno>),
    /// An attribute, which one, and whether reading it waited.
    Attr {
        place: AttrPlace,
        value: Result<BString, Errno>,
        waited: bool,
    },
    /// Content of a file, None if it is of no use.
    File(Result<Option<BString>, Errno>),
    /// Mode bits (`st_mode`), None if there is nothing.
    Mode(Result<Option<u32>, Errno>),
    /// The state of files, as one text.
    State(Result<BString, Errno>),
    /// All that a reload reads, as one text.
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
    /// How the lock of a disk was taken. One that is held comes along, open.
    Lock(Result<LockState, Errno>),
    /// Killed because it was past its deadline. Made by the pool.
    TimedOut,
    /// There is no reply: no process could be had, or it died. Made by the pool.
    Died,
    /// It was not tried: a helper hangs at the same device. Made by the pool.
    Refused,
}

impl OperationReply {
    /// The errno of a reply that brings no result; None for a good one.
    pub fn errno(&self) -> Option<Errno> {
        use OperationReply::*;
        match self {
            Done(Err(errno))
            | Attr { value: Err(errno), .. }
            | File(Err(errno))
            | Mode(Err(errno))
            | State(Err(errno))
            | Files(Err(errno))
            | Address(Err(errno))
            | Partitions(Err(errno))
            | Lock(Err(errno)) => Some(*errno),
            TimedOut => Some(Errno(libc::ETIMEDOUT)),
            Died => Some(Errno(libc::EIO)),
            Refused => Some(Errno(libc::EBUSY)),
            // One by one, so that none is forgotten.
            Done(Ok(()))
            | Attr { .. }
            | File(_)
            | Mode(_)
            | State(_)
            | Files(_)
            | Address(_)
            | Partitions(_) => None,
            Triggered { .. } | Lock(Ok(_)) => None,
        }
    }

    /// Whether no helper has told anything: it hung, died or was not even tried.
    pub fn is_none(&self) -> bool {
        matches!(self, OperationReply::TimedOut | OperationReply::Died | OperationReply::Refused)
    }
}

/// How taking the lock of a disk went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    Held,
    /// Someone else has it exclusively: try again later.
    Busy,
    /// The disk is gone or has no medium; the event goes on without.
    NotNeeded,
}
