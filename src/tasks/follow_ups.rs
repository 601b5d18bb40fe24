//! What was begun because watched nodes were written to: partition tables read again, devices triggered.
//!
//! Must stay true: what was begun ends once; until then the queue counts as busy, because all of it may cause events.

use crate::model::device::lies_in;
use bstr::BString;
use std::collections::BTreeMap;

/// What was begun because nodes were written to (partition tables read again, devices triggered), numbered
/// in order. All of it may cause events, so until it has ended the queue is not empty.
#[derive(Debug, Default)]
pub struct FollowUps {
    begun: u64,
    /// With the devpath of the disk whose table is read.
    under_way: BTreeMap<u64, Option<BString>>,
}

impl FollowUps {
    /// Begins something; `disk`: its table is to be read.
    pub fn begin(&mut self, disk: Option<BString>) -> u64 {
        self.begun += 1;
        self.under_way.insert(self.begun, disk);
        self.begun
    }

    /// Whether the partition table is being read of the disk that this device is, or is a part of.
    pub fn reads_table_of(&self, devpath: &[u8]) -> bool {
        self.under_way.values().flatten().any(|disk| lies_in(devpath, disk))
    }

    /// The disk whose table was read, if that is what has ended.
    pub fn end(&mut self, number: u64) -> Option<BString> {
        self.under_way.remove(&number).flatten()
    }

    /// The lowest number that is under way.
    pub fn oldest(&self) -> Option<u64> {
        self.under_way.first_key_value().map(|(&number, _)| number)
    }

    /// The highest number that was begun.
    pub fn newest(&self) -> Option<u64> {
        Some(self.begun).filter(|&begun| begun > 0)
    }
}
