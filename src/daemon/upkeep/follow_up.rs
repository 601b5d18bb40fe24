//! What follows when a watched node was closed after writing (rules.md 11.4); [`crate::world::watches`] tells of it.
//!
//! Must stay true: whatever is begun here counts as a follow-up ([`crate::tasks::follow_ups`]) until it has ended.

use super::super::work::{Caller, Work};
use crate::engine::Input;
use crate::model::DeviceId;
use crate::model::operation::{Operation, OperationReply};
use bstr::{BStr, BString, ByteSlice};
use std::time::Duration;

/// A partition table is re-read within this time, or the disk is triggered instead.
const RE_READ_LIMIT: Duration = Duration::from_secs(60);

/// Watches again what an earlier daemon watched.
pub(crate) fn restore_watches(work: &mut Work) {
    for id in work.stores.watches.read_old() {
        // Its first event did not come to its end.
        if !work.stores.database.has_record(&id) {
            continue;
        }
        let device = work.sysfs.device_of_id(&id).and_then(|devpath| work.sysfs.device(&devpath));
        let Some(devnode) = device.and_then(|d| d.devnode) else { continue };
        if let Err(error) = work.stores.watches.add_watch(&id, devnode.as_bstr()) {
            log::debug!("Cannot watch {devnode} again: {error}");
        }
    }
    work.stores.watches.end_restoring();
}

/// The node of this device was closed after writing: its partition table is re-read where it is a
/// whole disk, a `change` is triggered for anything else.
pub(crate) fn node_was_written(work: &mut Work, id: &DeviceId) {
    let Some(device) = work.sysfs.device_of_id(id).and_then(|devpath| work.sysfs.device(&devpath)) else {
        return;
    };
    if device.is_block() {
        work.inbox.push_back(Input::DiskMayBeFree { devpath: device.devpath.clone() });
    }
    let is_disk = device.is_block()
        && device.devtype.as_ref().is_some_and(|t| t == "disk")
        && !device.sysname.starts_with(b"dm-");
    match device.devnode {
        Some(devnode) if is_disk => {
            let path = |root: std::path::PathBuf| BString::from(root.into_os_string().into_encoded_bytes());
            let operation = Operation::ReReadPartitions {
                devnode: path(work.roots.locate(&devnode)),
                syspath: work.syspath(&device.devpath),
            };
            let follow_up = work.stores.follow_ups.begin(Some(device.devpath.clone()));
            work.mark_queue();
            let caller = Caller::ReRead { devpath: device.devpath, follow_up };
            work.request_helper(caller, operation, work.now + RE_READ_LIMIT);
        }
        _ => trigger(work, "change", &[device.devpath]),
    }
}

/// Where the kernel sends no events itself, the disk and its partitions are triggered.
pub(crate) fn partitions_re_read(work: &mut Work, devpath: &BStr, reply: &OperationReply) {
    if *reply == OperationReply::Partitions(Ok(true)) {
        return;
    }
    if let Some(errno) = reply.errno() {
        log::debug!("{devpath}: partition table not read again: {errno}");
    }
    let mut devices = vec![devpath.to_owned()];
    for name in work.sysfs.list(devpath, b"") {
        let child = BString::from([devpath.as_bytes(), b"/", &name].concat());
        if work.sysfs.exists(&child, b"partition") {
            devices.push(child);
        }
    }
    trigger(work, "change", &devices);
}

/// Has a helper write to the `uevent` files of these devices.
pub(crate) fn trigger(work: &mut Work, action: &str, devpaths: &[BString]) {
    let syspaths = devpaths.iter().map(|devpath| work.syspath(devpath)).collect();
    let operation = Operation::Trigger { text: action.into(), syspaths };
    let follow_up = work.stores.follow_ups.begin(None);
    work.mark_queue();
    let caller = Caller::Trigger { follow_up, again: Some(operation.clone()) };
    work.request_helper(caller, operation, work.now + RE_READ_LIMIT);
}

/// A trigger has ended; one whose helper died is tried once more.
pub(crate) fn triggered(work: &mut Work, follow_up: u64, again: Option<Operation>, reply: &OperationReply) {
    if let (OperationReply::Died, Some(operation)) = (reply, again) {
        let caller = Caller::Trigger { follow_up, again: None };
        return work.request_helper(caller, operation, work.now + RE_READ_LIMIT);
    }
    if let Some(errno) = reply.errno() {
        log::warn!("Cannot trigger devices whose nodes were written to: {errno}");
    }
    end(work, follow_up);
}

/// The events that it caused are in the queue before anyone calls it through.
pub(crate) fn end(work: &mut Work, number: u64) {
    if let Some(devpath) = work.stores.follow_ups.end(number) {
        work.inbox.push_back(Input::DiskMayBeFree { devpath });
    }
    work.intake.set_ready();
}
