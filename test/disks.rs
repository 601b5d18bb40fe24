//! What is done to disks outside of rules, on a real loop device: the lock, the read-only flag, the
//! partition table, the links by number and the node itself.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/loops.rs"]
mod loops;

use loops::Loop;
use mudev::model::effect::NodeChange;
use mudev::model::{DevNum, Errno};
use mudev::sys::fs::{Lock, try_lock};
use mudev::world::nodes::{self, DiskLock};
use mudev::world::{Roots, Sysfs};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

const LOOP_SET_STATUS64: libc::c_ulong = 0x4C04;
/// Offset of `lo_flags` in `struct loop_info64` (linux/loop.h), whose size is 232.
const LO_FLAGS_AT: usize = 52;
const LO_FLAGS_PARTSCAN: u8 = 8;

/// A disk of 4 MiB that may have partitions; None, with the reason printed, where that cannot be.
fn disk() -> Option<Loop> {
    let made = cell::enter(None).and_then(|()| {
        let disk = Loop::add()?;
        disk.attach(4 << 20)?;
        let node = File::open(disk.node())?;
        let mut status = [0u8; 232];
        status[LO_FLAGS_AT] = LO_FLAGS_PARTSCAN;
        cell::check(unsafe { libc::ioctl(node.as_raw_fd(), LOOP_SET_STATUS64, status.as_ptr()) })?;
        Ok(disk)
    });
    made.inspect_err(|error| eprintln!("skipped: no loop device can be had here: {error}")).ok()
}

const BLKPG: libc::c_ulong = 0x1269;
const BLKPG_ADD_PARTITION: libc::c_int = 1;

/// `struct blkpg_partition` and `struct blkpg_ioctl_arg` of linux/blkpg.h.
#[repr(C)]
struct Partition {
    start: i64,
    length: i64,
    number: libc::c_int,
    names: [u8; 128],
}

#[repr(C)]
struct PartitionRequest {
    operation: libc::c_int,
    flags: libc::c_int,
    length: libc::c_int,
    data: *const Partition,
}

/// Has the kernel make the second MiB partition 1, as partitioning tools do: no table says so, and not
/// every kernel can read one.
fn add_partition(disk: &Loop) {
    let partition = Partition { start: 1 << 20, length: 1 << 20, number: 1, names: [0; 128] };
    let length = size_of::<Partition>() as libc::c_int;
    let request = PartitionRequest { operation: BLKPG_ADD_PARTITION, flags: 0, length, data: &partition };
    let node = OpenOptions::new().read(true).open(disk.node()).expect("the disk opens");
    cell::check(unsafe { libc::ioctl(node.as_raw_fd(), BLKPG, &raw const request) }).expect("a partition");
}

fn devnum(disk: &Loop) -> DevNum {
    DevNum::parse(&disk.id().as_bytes()[1..]).expect("a number")
}

#[test]
fn a_partition_is_locked_by_its_disk_and_goes_when_no_table_has_it() {
    let Some(disk) = disk() else { return };
    let (roots, sysfs) = (Roots::default(), Sysfs::new(&Roots::default()));
    add_partition(&disk);
    let partition = format!("{0}/{1}p1", disk.devpath(), disk.name());
    assert!(sysfs.is_device(partition.as_bytes()));
    let devnode = format!("/dev/{}p1", disk.name());
    let whole = nodes::whole_disk(&sysfs, partition.as_bytes(), devnode.as_bytes());
    assert_eq!(whole, disk.node().to_str().unwrap());

    let lock = || nodes::lock_disk(&roots.locate(&whole));
    let held = lock();
    assert!(matches!(held, Ok(DiskLock::Held(_))), "{held:?}");
    assert_eq!(nodes::reread_partitions(&disk.node()), Err(Errno(libc::EAGAIN)), "an event has the disk");
    drop(held);
    let tool = File::open(disk.node()).expect("the disk opens");
    assert!(try_lock(&tool, Lock::Exclusive).expect("a lock"));
    assert!(matches!(lock(), Ok(DiskLock::Busy)));
    assert_eq!(nodes::reread_partitions(&disk.node()), Err(Errno(libc::EAGAIN)), "a tool has the disk");
    drop(tool);

    assert_eq!(nodes::reread_partitions(&disk.node()), Ok(()));
    assert!(!sysfs.is_device(partition.as_bytes()));
}

#[test]
fn a_disk_is_made_read_only_if_it_is_the_one_meant() {
    let Some(disk) = disk() else { return };
    let node = disk.node();
    let read_only = || std::fs::read_to_string(format!("{}/ro", disk.syspath())).unwrap();
    let other = DevNum { major: 7, minor: devnum(&disk).minor + 1 };
    assert_eq!(nodes::set_read_only(&node, other), Err(Errno(libc::ENODEV)));
    assert_eq!(read_only(), "0\n");
    assert_eq!(nodes::set_read_only(&node, devnum(&disk)), Ok(()));
    assert_eq!(read_only(), "1\n");
}

#[test]
fn a_block_node_gets_owner_mode_and_its_link_by_number() {
    let Some(disk) = disk() else { return };
    let roots = Roots::default();
    let node = disk.node();
    let change = NodeChange {
        devnode: node.to_str().unwrap().into(),
        block: true,
        devnum: devnum(&disk),
        owner: Some(11),
        group: Some(12),
        mode: Some(0o640),
        seclabels: Vec::new(),
        is_add: false,
    };
    assert_eq!(nodes::apply_node(&roots, &change), Ok(()));
    let meta = std::fs::metadata(&node).unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (11, 12, 0o640));
    assert_eq!(Sysfs::new(&roots).device_of_node(&node).unwrap(), disk.devpath().as_str());
}
