//! A file under `/run/udev/data` (interop.md 1.3): what is kept of a device between events.

use super::event::{LinkSet, OrderedSet};
use bstr::BString;

/// The content of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `S:` symlinks relative to `/dev/`.
    pub links: LinkSet,
    /// `L:`.
    pub priority: i32,
    /// `I:` CLOCK_MONOTONIC microseconds.
    pub usec_initialized: Option<u64>,
    /// `E:` in order.
    pub properties: Vec<(BString, BString)>,
    /// `G:` every tag ever given.
    pub tags: OrderedSet,
    /// `Q:` the tags of the last event. For a record without a `V:` line these are empty, as for
    /// libudev from v261.
    pub current_tags: OrderedSet,
}
