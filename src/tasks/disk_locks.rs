//! Locks of disks (rules.md 12.3), held for jobs: what opens and closes the disk, the loop or a helper.
//!
//! The lock itself is only tried. But a lock needs an open file, and opening a disk may wait for hardware,
//! whatever O_NONBLOCK says, which spares no more than the wait for a medium:
//!
//! * a running check for media (cdrom, card readers) is waited for first;
//! * one mutex of the disk is held while its partition table is read, and by whoever opens it just now;
//! * the driver's own open: sd waits for the end of error recovery, which takes minutes on a dying disk, and asks
//!   removable ones for their medium; sr, floppy and others talk to the drive; nbd reads the partition table, over
//!   the network, and loop that of a file that may be anywhere.
//!
//! The last close waits too: for everything that was written to the disk meanwhile to be on it.
//!
//! So helpers open and close disks, and pass the open file. That a driver's own open waits for nothing is not enough:
//!
//! * nvme, virtio (vd) and mmc take references and locks that nobody holds for long, and wake nothing up: a card that
//!   sleeps is woken by its first request. But whoever reads the table holds the mutex of the disk over requests to the
//!   device, and these wait for a controller that is being reset (30 s and more for nvme), for a host that does not
//!   answer (vd: for ever), for a card that fails (mmc: seconds). This is no rare moment for us: the kernel sends the
//!   events of partitions while it holds that mutex.
//! * xen (xvd) is worse: up to Linux 5.17 its open takes a lock that is held over talks with the host.
//! * zram waits for nothing in its open, but a page of it, that of the table too, may have been written back to a disk.
//! * pmem and ram are memory: they have no open of their own, and tables and what was written are copied.
//!
//! For the last the helper would be a detour: they are opened here, and closed here unless there was much time for
//! someone to write. One that waited nevertheless is a helper's from then on; one whose table a helper of ours reads at
//! this moment is not even tried (the helper has its lock).

use crate::engine::JobId;
use crate::model::Errno;
use crate::model::device::last_component;
use crate::model::fnv::BuildFnv;
use crate::model::need::{Fact, Need};
use crate::model::operation::{LockState, Operation, OperationReply};
use crate::world::nodes::{self, DiskLock, HeldLock};
use crate::world::{Roots, Sysfs};
use bstr::{BString, ByteSlice};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Opening and closing a disk takes less; and in less nobody writes much to it.
const BRIEF: Duration = Duration::from_millis(20);

/// Disks remembered at most.
const MAX: usize = 1024;

/// How the nodes of disks begin that are memory.
const QUICK: [&str; 2] = ["pmem", "ram"];

struct Held {
    lock: HeldLock,
    disk: BString,
    since: Instant,
}

/// See the module.
#[derive(Default)]
pub struct DiskLocks {
    held: HashMap<JobId, Held, BuildFnv>,
    /// Opened by a helper for a job that is not yet told, or to be closed by one that is not yet asked.
    passed: HashMap<JobId, OwnedFd, BuildFnv>,
    /// Nodes of disks that took long.
    slow: HashSet<BString>,
}

impl DiskLocks {
    /// Tries to lock the disk that a block device belongs to; the lock is held until [`DiskLocks::unlock`].
    /// True if the job may go on, false if the lock is another's.
    pub fn lock(
        &mut self,
        (roots, sysfs): (&Roots, &Sysfs),
        job: JobId,
        (devpath, devnode): (&BString, &BString),
        facts: &[Fact],
    ) -> Result<Result<bool, Errno>, Need> {
        let disk = nodes::whole_disk(sysfs, devpath, devnode);
        let path = roots.locate(&disk);
        let since = Instant::now();
        let locked = match facts.first() {
            Some(Fact::Helper(reply)) => self.by_helper(job, reply),
            _ if self.is_quick(&disk) => self.measure(&disk, || nodes::lock_disk(&path)),
            _ => {
                let path = path.into_os_string().into_encoded_bytes().into();
                return Err(Need::Helper(Operation::LockDisk { path }));
            }
        };
        Ok(locked.map(|lock| match lock {
            DiskLock::Held(lock) => {
                self.held.insert(job, Held { lock, disk, since });
                true
            }
            DiskLock::NotNeeded => true,
            DiskLock::Busy => false,
        }))
    }

    /// Gives the lock of a job back, if it has one.
    pub fn unlock(&mut self, job: JobId) -> Result<(), Need> {
        let Some(Held { lock, disk, since }) = self.held.remove(&job) else { return Ok(()) };
        if self.is_quick(&disk) && since.elapsed() < BRIEF {
            self.measure(&disk, || drop(lock));
            return Ok(());
        }
        // Others need not wait for the helper.
        lock.unlock();
        self.passed.insert(job, lock.into());
        Err(Need::Helper(Operation::CloseDisk { disk }))
    }

    /// A helper has opened this for a job, which is told next.
    pub fn pass(&mut self, job: JobId, file: OwnedFd) {
        self.passed.insert(job, file);
    }

    /// The open disk that goes along with this operation of a job, if one does.
    pub fn take_passed(&mut self, job: JobId, operation: &Operation) -> Option<OwnedFd> {
        operation.passes_file().then(|| self.passed.remove(&job)).flatten()
    }

    /// The open disk that came for a job which is over.
    pub fn take_file(&mut self, job: JobId) -> Option<OwnedFd> {
        self.passed.remove(&job)
    }

    fn by_helper(&mut self, job: JobId, reply: &OperationReply) -> Result<DiskLock, Errno> {
        match reply {
            OperationReply::Lock(Ok(LockState::Held)) => match self.passed.remove(&job) {
                Some(file) => Ok(DiskLock::Held(HeldLock::passed(file))),
                None => Ok(DiskLock::Busy),
            },
            OperationReply::Lock(Ok(LockState::NotNeeded)) => Ok(DiskLock::NotNeeded),
            OperationReply::Lock(Ok(LockState::Busy)) => Ok(DiskLock::Busy),
            // No process could be had: later, perhaps.
            OperationReply::Died => Ok(DiskLock::Busy),
            other => Err(other.errno().unwrap_or(Errno(libc::EIO))),
        }
    }

    fn is_quick(&self, disk: &BString) -> bool {
        let name = last_component(disk);
        QUICK.iter().any(|prefix| name.starts_with_str(prefix)) && !self.slow.contains(disk)
    }

    fn measure<T>(&mut self, disk: &BString, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        let took = start.elapsed();
        if took > BRIEF && self.slow.len() < MAX {
            log::info!("Opening or closing {disk} took {took:?}: a helper does it from now on");
            self.slow.insert(disk.clone());
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::operations::perform;
    use crate::sys::fs::{Lock, try_lock};
    use crate::world::tree::Tree;
    use std::fs::File;

    const JOB: JobId = JobId(1);

    struct Setting {
        tree: Tree,
        locks: DiskLocks,
    }

    impl Setting {
        fn new() -> Setting {
            let tree = Tree::new();
            for name in ["sda", "pmem0"] {
                tree.file(&format!("sys/devices/{name}/uevent"), format!("DEVNAME={name}\n"))
                    .file(&format!("sys/devices/{name}/{name}1/uevent"), format!("DEVNAME={name}1\n"))
                    .file(&format!("sys/devices/{name}/{name}1/partition"), "1\n")
                    .file(&format!("dev/{name}"), "");
            }
            Setting { tree, locks: DiskLocks::default() }
        }

        fn lock(&mut self, disk: &str, facts: &[Fact]) -> Result<Result<bool, Errno>, Need> {
            let (roots, sysfs) = (self.tree.roots(), Sysfs::new(&self.tree.roots()));
            let device = (format!("/devices/{disk}/{disk}1").into(), format!("/dev/{disk}1").into());
            self.locks.lock((&roots, &sysfs), JOB, (&device.0, &device.1), facts)
        }

        /// Whether a tool would get the disk.
        fn is_free(&self, disk: &str) -> bool {
            let file = File::open(self.tree.path("dev").join(disk)).unwrap();
            try_lock(&file, Lock::Exclusive).unwrap()
        }
    }

    #[test]
    fn a_disk_of_a_driver_that_may_wait_is_opened_and_closed_by_helpers() {
        let mut s = Setting::new();
        let Err(Need::Helper(open)) = s.lock("sda", &[]) else { panic!("no helper is asked") };
        assert!(s.is_free("sda"), "nothing was opened here");
        let (reply, file) = perform(&open, None);
        s.locks.pass(JOB, file.expect("an open disk"));
        assert_eq!(s.lock("sda", &[Fact::Helper(reply)]), Ok(Ok(true)));
        assert!(!s.is_free("sda"));
        let Err(Need::Helper(close)) = s.locks.unlock(JOB) else { panic!("no helper is asked") };
        assert!(s.is_free("sda"), "although it is still open");
        let file = s.locks.take_passed(JOB, &close);
        assert!(file.is_some());
        assert_eq!(perform(&close, file).0, OperationReply::Done(Ok(())));
        assert_eq!(s.locks.unlock(JOB), Ok(()), "that was all");
    }

    /// The table of such a disk may be read at this moment, by whomever.
    #[test]
    fn a_disk_that_is_no_memory_is_never_opened_here() {
        let locks = DiskLocks::default();
        for (disk, is_quick) in [
            ("/dev/nvme0n1", false),
            ("/dev/mmcblk0", false),
            ("/dev/vda", false),
            ("/dev/xvda", false),
            ("/dev/sda", false),
            ("/dev/loop0", false),
            ("/dev/ram0", true),
            ("/dev/zram1", false),
            ("/dev/pmem0s", true),
        ] {
            assert_eq!(locks.is_quick(&disk.into()), is_quick, "{disk}");
        }
    }

    #[test]
    fn what_a_helper_says_decides() {
        let mut s = Setting::new();
        for (reply, expected) in [
            (OperationReply::Lock(Ok(LockState::Busy)), Ok(false)),
            (OperationReply::Lock(Ok(LockState::NotNeeded)), Ok(true)),
            (OperationReply::Lock(Err(Errno(libc::ELOOP))), Err(Errno(libc::ELOOP))),
            (OperationReply::Died, Ok(false)),
            (OperationReply::TimedOut, Err(Errno(libc::ETIMEDOUT))),
            (OperationReply::Refused, Err(Errno(libc::EBUSY))),
        ] {
            assert_eq!(s.lock("sda", &[Fact::Helper(reply.clone())]), Ok(expected), "{reply:?}");
        }
    }

    #[test]
    fn a_quick_disk_is_opened_here_until_it_was_slow() {
        let mut s = Setting::new();
        assert_eq!(s.lock("pmem0", &[]), Ok(Ok(true)));
        assert!(!s.is_free("pmem0"));
        assert_eq!(s.locks.unlock(JOB), Ok(()));
        assert!(s.is_free("pmem0"));

        assert_eq!(s.lock("pmem0", &[]), Ok(Ok(true)));
        s.locks.held.get_mut(&JOB).unwrap().since -= BRIEF;
        assert!(s.locks.unlock(JOB).is_err(), "there was time to write to it");

        s.locks.measure(&"/dev/pmem0".into(), || std::thread::sleep(2 * BRIEF));
        assert!(s.lock("pmem0", &[]).is_err(), "a helper opens it");
    }
}
