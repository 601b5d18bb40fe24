//! Triggering devices: all of them at the start (`--coldplug`), and after a loss of events those whose
//! record and sysfs disagree.
//!
//! Devices are triggered by a helper, a batch after the other and the next one only when the kernel's
//! events of the last are in the queue: so a machine of any size never overruns the socket.

use super::shell::{Caller, Shell};
use crate::helper::operations::{MAX_MESSAGE, Operation, Reply};
use crate::model::{DeviceId, Now};
use crate::world::enumerate::{Enumerator, Filter, Kind};
use bstr::BString;
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// Subsystems that systemd's unit lets go first.
const PRIORITIZED: [&str; 6] = ["module", "block", "tpmrm", "net", "tty", "input"];

/// Devices in one batch, and bytes of their paths.
const BATCH: usize = 64;
const BATCH_BYTES: usize = MAX_MESSAGE / 2;

/// Events that may wait while the next batch is triggered.
const MAX_QUEUED: usize = 512;

/// A batch is given up after this time.
const LIMIT: Duration = Duration::from_secs(180);

/// After a loss the devices are looked at when it has been quiet this long: during a flood it would
/// be for nothing.
const QUIET: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Debug, Default)]
pub struct Coldplug {
    started: bool,
    waiting: VecDeque<BString>,
    in_flight: bool,
    /// When to look for what was lost.
    resync_at: Option<Now>,
}

impl Coldplug {
    /// Whether devices were ever triggered.
    pub fn was_started(&self) -> bool {
        self.started
    }

    /// All devices were triggered.
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty() && !self.in_flight
    }

    /// When to look for lost events.
    pub fn timeout(&self) -> Option<Now> {
        self.resync_at
    }

    fn add(&mut self, syspaths: impl IntoIterator<Item = BString>) {
        self.started = true;
        self.waiting.extend(syspaths);
    }

    /// The next batch.
    fn take_batch(&mut self) -> Vec<BString> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(path) = self.waiting.front().filter(|_| batch.len() < BATCH) {
            bytes += path.len() + 4;
            if bytes > BATCH_BYTES && !batch.is_empty() {
                break;
            }
            batch.extend(self.waiting.pop_front());
        }
        batch
    }
}

impl Shell {
    /// Triggers every device, in the order of interop.md 7.3.
    pub(super) fn start_coldplug(&mut self) {
        let prioritized = PRIORITIZED.map(BString::from);
        let found = Enumerator::new(&self.sysfs, &self.roots.run).enumerate(
            Kind::All,
            &Filter::default(),
            &prioritized,
        );
        log::debug!("Triggering {} devices", found.len());
        let syspaths: Vec<BString> = found.iter().map(|f| self.syspath(&f.devpath)).collect();
        self.coldplug.add(syspaths);
    }

    fn syspath(&self, devpath: &[u8]) -> BString {
        self.sysfs.path(devpath).into_os_string().into_encoded_bytes().into()
    }

    /// Events were lost: devices are compared with their records as soon as it is quiet.
    pub(super) fn start_resync(&mut self) {
        self.coldplug.resync_at = Some(self.now + QUIET);
        self.links.table.lose();
    }

    /// The next batch, if the time has come for it.
    pub(super) fn go_on_with_coldplug(&mut self) {
        if self.coldplug.resync_at.is_some_and(|at| at <= self.now) {
            if self.intake.is_ready() {
                self.coldplug.resync_at = Some(self.now + QUIET);
            } else {
                self.coldplug.resync_at = None;
                self.resync();
            }
        }
        if self.coldplug.in_flight || self.coldplug.waiting.is_empty() || self.exiting {
            return;
        }
        if self.engine.queue_len().0 > MAX_QUEUED || !self.inbox.is_empty() || self.intake.is_ready() {
            return;
        }
        let syspaths = self.coldplug.take_batch();
        self.coldplug.in_flight = true;
        let operation = Operation::Trigger { text: "add".into(), syspaths };
        self.request_helper(Caller::Coldplug, operation, self.now + LIMIT);
    }

    pub(super) fn coldplug_replied(&mut self, reply: Reply) {
        self.coldplug.in_flight = false;
        // What the batch caused is read before anyone calls it through.
        self.intake.set_ready();
        match reply {
            Reply::Triggered { done, failed } => {
                log::debug!("Triggered {done} devices, {failed} did not take it")
            }
            other => log::error!("Triggering devices failed: {other:?}"),
        }
    }

    /// Triggers devices that have no record though they were there, and drops records whose device is
    /// gone.
    fn resync(&mut self) {
        let found =
            Enumerator::new(&self.sysfs, &self.roots.run).enumerate(Kind::Devices, &Filter::default(), &[]);
        let mut present: HashSet<DeviceId> = HashSet::new();
        let mut missing = Vec::new();
        for one in found {
            let Some(device) = self.sysfs.device(&one.devpath) else { continue };
            let Some(id) = device.id() else { continue };
            if !self.world.database.has_record(&id) {
                missing.push(self.syspath(&one.devpath));
            }
            present.insert(id);
        }
        let gone: Vec<DeviceId> =
            self.world.database.known().filter(|id| !present.contains(id)).cloned().collect();
        log::warn!(
            "After the loss of events: {} devices are triggered, {} are gone",
            missing.len(),
            gone.len()
        );
        gone.iter().for_each(|id| self.drop_device(id));
        self.coldplug.add(missing);
    }

    /// The device is gone, and its `remove` was lost: what it has left behind goes too.
    fn drop_device(&mut self, id: &DeviceId) {
        self.watches.drop_watch(id);
        let world = &mut self.world;
        let dropped = world.database.read_record(id).and_then(|record| {
            let record = record.unwrap_or_default();
            let released: Vec<BString> = record.links.iter().map(|link| link.to_owned()).collect();
            for error in world.claims.apply(id, b"", 0, &released, &[]) {
                log::warn!("{error}");
            }
            world.database.remove_tags(id, &record.tags)?;
            world.database.remove_record(id)
        });
        if let Err(error) = dropped {
            log::warn!("Cannot drop what {id} has left behind: {error}");
        }
        if let DeviceId::Net(ifindex) = id {
            self.links.table.forget(*ifindex);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_in_number_and_bytes() {
        let mut coldplug = Coldplug::default();
        assert!(coldplug.is_over() && !coldplug.was_started());
        coldplug.add((0..100).map(|n| BString::from(format!("/sys/devices/{n}"))));
        assert_eq!((coldplug.take_batch().len(), coldplug.take_batch().len()), (64, 36));
        assert!(coldplug.is_over());
        coldplug.add((0..10).map(|_| BString::from(vec![b'x'; 10_000])));
        assert_eq!(coldplug.take_batch().len(), 3);
        let encoded = Operation::Trigger { text: "add".into(), syspaths: coldplug.take_batch() }.encode();
        assert!(encoded.len() < MAX_MESSAGE);
        coldplug.waiting = [BString::from(vec![b'x'; MAX_MESSAGE])].into();
        assert_eq!(coldplug.take_batch().len(), 1, "one that is too long alone must not hold up the rest");
    }
}
