//! Loop devices for tests: numbers of our own, added and removed by /dev/loop-control, so that nobody
//! else's are touched. Block devices are seen by every namespace, so tests look at theirs only.
#![allow(dead_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const LOOP_CTL_ADD: libc::c_ulong = 0x4C80;
const LOOP_CTL_REMOVE: libc::c_ulong = 0x4C81;
const LOOP_SET_FD: libc::c_ulong = 0x4C00;
const LOOP_CLR_FD: libc::c_ulong = 0x4C01;

/// How long a removal waits until nobody has the device open. Generous: the machine may be busy.
const LIMIT: Duration = Duration::from_secs(20);

/// One loop device; removed when dropped.
pub struct Loop {
    pub number: u32,
    control: File,
    image: PathBuf,
}

impl Loop {
    /// Adds a loop device with a free number; its node is made in the /dev of the cell, as devtmpfs
    /// would.
    pub fn add() -> io::Result<Loop> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
        loop {
            let turn = NEXT.fetch_add(1, Ordering::Relaxed);
            let number = 1000 + (std::process::id() % 5000) * 20 + turn;
            let added =
                unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_ADD, libc::c_ulong::from(number)) };
            if added >= 0 {
                let image = std::env::temp_dir().join(format!("mudev-loop-{number}"));
                let device = Loop { number, control, image };
                device.make_node()?;
                return Ok(device);
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EEXIST) || turn > 100 {
                return Err(error);
            }
        }
    }

    /// Adds it again where it was removed.
    pub fn add_again(&self) -> io::Result<()> {
        let number = libc::c_ulong::from(self.number);
        if unsafe { libc::ioctl(self.control.as_raw_fd(), LOOP_CTL_ADD, number) } < 0 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EEXIST) {
                return Err(error);
            }
        }
        self.make_node()
    }

    fn make_node(&self) -> io::Result<()> {
        let path = std::ffi::CString::new(self.node().to_string_lossy().as_bytes())?;
        let device = std::fs::read_to_string(format!("{}/dev", self.syspath()))?;
        let (major, minor) = device.trim().split_once(':').unwrap_or(("7", "0"));
        let device = libc::makedev(major.parse().unwrap_or(7), minor.parse().unwrap_or(0));
        let made = unsafe { libc::mknod(path.as_ptr(), libc::S_IFBLK | 0o660, device) };
        if made < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EEXIST) {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    pub fn name(&self) -> String {
        format!("loop{}", self.number)
    }

    pub fn node(&self) -> PathBuf {
        PathBuf::from(format!("/dev/loop{}", self.number))
    }

    pub fn devpath(&self) -> String {
        format!("/devices/virtual/block/loop{}", self.number)
    }

    pub fn syspath(&self) -> String {
        format!("/sys{}", self.devpath())
    }

    /// Its record's name, `bMAJOR:MINOR`.
    pub fn id(&self) -> String {
        let number = std::fs::read_to_string(format!("{}/dev", self.syspath())).expect("the device is there");
        format!("b{}", number.trim())
    }

    /// Puts an image of this many bytes behind it; the kernel sends `change`.
    pub fn attach(&self, bytes: u64) -> io::Result<()> {
        let image =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&self.image)?;
        image.set_len(bytes)?;
        self.attach_file(&image)
    }

    /// The same with a file that is there.
    pub fn attach_file(&self, image: &File) -> io::Result<()> {
        let node = OpenOptions::new().read(true).write(true).open(self.node())?;
        let set = unsafe { libc::ioctl(node.as_raw_fd(), LOOP_SET_FD, image.as_raw_fd()) };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    pub fn detach(&self) {
        if let Ok(node) = File::open(self.node()) {
            unsafe { libc::ioctl(node.as_raw_fd(), LOOP_CLR_FD, 0) };
        }
    }

    /// Removes the device; the kernel sends `remove`.
    pub fn remove(&self) -> io::Result<()> {
        self.detach();
        // Detaching takes effect when the last opener is gone; udev daemons open disks for a moment.
        let end = Instant::now() + LIMIT;
        loop {
            let done = unsafe {
                libc::ioctl(self.control.as_raw_fd(), LOOP_CTL_REMOVE, libc::c_ulong::from(self.number))
            };
            if done >= 0 {
                let _ = std::fs::remove_file(self.node());
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EBUSY) || Instant::now() > end {
                return Err(error);
            }
            // Detaching may have failed, as while the node could not be opened.
            self.detach();
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        match self.remove() {
            // A test has removed it, or never added it again.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            Err(error) => eprintln!("The loop device {} stays: {error}", self.number),
            Ok(()) => {}
        }
        let _ = std::fs::remove_file(&self.image);
    }
}
