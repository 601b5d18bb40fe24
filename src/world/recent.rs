//! The records that this daemon has last written, kept for events that ask for the record of their parent: the events
//! of a device and of its children come close behind each other.
//!
//! Must stay true: a record kept here is the one on disk when the database hands it out. The database tells of each
//! record that it writes or removes; a record that could not be written is forgotten. Others may remove a record
//! (`info --cleanup-db`) or write one, so the database compares the file with what it was just after it was written.

use crate::model::DeviceId;
use crate::model::fnv::BuildFnv;
use crate::model::record::Record;
use crate::sys::fs::Stat;
use bstr::BString;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Devices whose records are kept; beyond that the device goes whose first record is the oldest.
const KEPT: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RecentRecords {
    records: HashMap<DeviceId, Recent, BuildFnv>,
    /// Of all that are kept, in the order in which they came.
    order: VecDeque<DeviceId>,
}

/// The record of one device.
#[derive(Clone, Debug)]
pub struct Recent {
    pub record: Arc<Record>,
    /// Its file, just after it was written.
    pub(super) file: Stat,
    /// The kernel's DEVTYPE in the event that wrote it. It belongs to the device for good.
    pub devtype: Option<BString>,
}

impl RecentRecords {
    /// This was written to this file for an event of a device with this DEVTYPE.
    pub(super) fn wrote(
        &mut self,
        id: &DeviceId,
        record: &Arc<Record>,
        file: Stat,
        devtype: Option<&BString>,
    ) {
        let recent = Recent { record: record.clone(), file, devtype: devtype.cloned() };
        if let Some(known) = self.records.get_mut(id) {
            *known = recent;
            return;
        }
        if self.order.len() >= KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.records.remove(&oldest);
        }
        self.order.push_back(id.clone());
        self.records.insert(id.clone(), recent);
    }

    /// The record is gone, or nobody knows what is on disk.
    pub(super) fn forget(&mut self, id: &DeviceId) {
        if self.records.remove(id).is_some() {
            self.order.retain(|kept| kept != id);
        }
    }

    /// The record last written for a device, if it is still kept.
    pub(super) fn get(&self, id: &DeviceId) -> Option<&Recent> {
        self.records.get(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::IfIndex;

    fn record(value: &str) -> Arc<Record> {
        let mut record = Record::default();
        record.properties.set("X", value);
        Arc::new(record)
    }

    fn file() -> Stat {
        crate::sys::fs::Dir::open(std::path::Path::new("/")).unwrap().stat(b".").unwrap()
    }

    fn value(recent: &RecentRecords, n: u32) -> Option<String> {
        let record = &recent.get(&DeviceId::Net(IfIndex(n)))?.record;
        record.properties.get("X").map(|value| value.to_string())
    }

    #[test]
    fn the_last_record_counts_until_it_is_removed() {
        let (mut recent, id) = (RecentRecords::default(), DeviceId::Net(IfIndex(1)));
        assert_eq!(value(&recent, 1), None);
        recent.wrote(&id, &record("old"), file(), None);
        recent.wrote(&id, &record("new"), file(), Some(&"bridge".into()));
        assert_eq!(value(&recent, 1).as_deref(), Some("new"));
        assert_eq!(recent.get(&id).unwrap().devtype, Some("bridge".into()));
        recent.forget(&id);
        recent.forget(&id);
        assert_eq!((value(&recent, 1), recent.order.len()), (None, 0));
    }

    #[test]
    fn only_so_many_are_kept_and_the_oldest_goes() {
        let mut recent = RecentRecords::default();
        let (most, file) = (KEPT as u32, file());
        for n in 0..most + 10 {
            recent.wrote(&DeviceId::Net(IfIndex(n)), &record("x"), file, None);
        }
        assert_eq!((recent.records.len(), recent.order.len()), (KEPT, KEPT));
        assert!(
            value(&recent, 9).is_none() && value(&recent, 10).is_some() && value(&recent, most + 9).is_some()
        );
    }
}
