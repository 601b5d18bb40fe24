//! What a job wants done to the world: plain, printable data. The daemon performs one effect at a
//! time and tells the job how it went before the job says the next.

use super::event::OrderedSet;
use super::record::Record;
use super::{DevNum, DeviceId, Errno, IfIndex};
use bstr::BString;
use std::sync::Arc;

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Take a shared flock on the whole disk of this block device, never waiting. Replies
    /// [`Done::Ok`] (also when the node is gone), [`Done::Busy`] or [`Done::Failed`].
    LockDisk { device: BString, devnode: BString },
    /// Give the lock back.
    UnlockDisk,
    /// BLKROSET 1 (rules.md 12.5).
    SetReadOnly { devnode: BString, devnum: DevNum },
    /// Read the record of the last event. Replies [`Done::Record`].
    ReadRecord { id: DeviceId },
    /// Write the record. When it holds nothing, the file stays as an empty one with `keep_empty`, and is removed
    /// without. With `is_end` the event is through with all else, and a record that it wrote before only says that the event
    /// is under way.
    WriteRecord { id: DeviceId, record: Arc<Record>, sticky: Sticky, keep_empty: bool, is_end: bool },
    /// Remove the record.
    RemoveRecord { id: DeviceId },
    /// Create the tag index entries of these tags.
    AddTags { id: DeviceId, tags: OrderedSet },
    /// Remove the tag index entries of these tags.
    RemoveTags { id: DeviceId, tags: OrderedSet },
    /// Stop watching the node. Replies [`Done::WasWatched`] if it was.
    DropWatch { id: DeviceId },
    /// Watch the node for IN_CLOSE_WRITE.
    AddWatch { id: DeviceId, devnode: BString },
    /// Rename an interface. Replies [`Done::Ok`] or [`Done::Failed`].
    Rename { ifindex: IfIndex, from: BString, to: BString },
    /// Give an interface alternative names; those it has and `name` itself are left out.
    AddAltNames { ifindex: IfIndex, name: BString, alt_names: Vec<BString> },
    /// Owner, mode and labels of the node, where they differ (rules.md 11.1). Replies
    /// [`Done::Failed`] only for errors that fail the event.
    Node(NodeChange),
    /// Claim these symlinks and no others; `/dev/<link>` follows (rules.md 11.2). `release` are those that the old record
    /// knows of; others that the device still claims go, too: somebody may have removed the record.
    Symlinks { id: DeviceId, devnode: BString, priority: i32, release: OrderedSet, claim: OrderedSet },
    /// `/dev/block/M:m` or `/dev/char/M:m` -> node; on remove it goes.
    NumberSymlink { block: bool, devnum: DevNum, devnode: BString, present: bool },
    /// Tell the listeners: a complete datagram of [`super::announcement`].
    Announce { datagram: BString },
}

/// Whether a record outlives `info --cleanup-db`, as OPTIONS="db_persist" wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sticky {
    No,
    Yes,
    /// As it was for the record that this one replaces. Who writes a record while an event is under way does not
    /// know yet what the rules want.
    AsBefore,
}

/// What to do to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeChange {
    pub devnode: BString,
    pub block: bool,
    pub devnum: DevNum,
    /// None: leave as it is.
    pub owner: Option<u32>,
    pub group: Option<u32>,
    pub mode: Option<u32>,
    /// (module, label) in order.
    pub seclabels: Vec<(BString, BString)>,
    /// ACTION is add: labels are set even where nothing else changes.
    pub is_add: bool,
}

/// How an effect went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    Ok,
    /// The disk is locked by someone else.
    Busy,
    /// The old record, if there is one.
    Record(Option<Arc<Record>>),
    /// There was a watch, and now there is none.
    WasWatched,
    /// The effect failed. The job decides whether the event fails with it.
    Failed(Errno),
}
