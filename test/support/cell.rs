//! A private place on the real kernel to run a device manager in: network and mount namespaces with their
//! own /run, /dev (a copy of the nodes) and /sys, and the listeners that tests and benchmarks watch
//! with. Nothing outside can see what happens in it, but for uevents of devices that are not network
//! interfaces: the kernel sends those to every namespace.
//!
//! Namespaces belong to the calling thread; what it starts afterwards inherits them. Root is needed.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Moves the calling thread into a fresh cell. Folders of `peer` (Debian's unpacked udev), when given,
/// take the place of the machine's own udev files, so that the machine's rules do not matter.
pub fn enter(peer: Option<&Path>) -> io::Result<()> {
    check(unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWNET) })?;
    mount("none", "/", "", libc::MS_REC | libc::MS_PRIVATE, "")?;
    mount("none", "/sys", "sysfs", 0, "")?;
    furnish(peer, &nodes_of_the_machine()?)
}

/// Moves the calling thread, whose cell it is, into one beside it: the same interfaces and events, another
/// /run and another copy of /dev.
pub fn enter_beside() -> io::Result<()> {
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    mount("none", "/", "", libc::MS_REC | libc::MS_PRIVATE, "")?;
    furnish(None, &list_nodes(Path::new("/dev"))?)
}

fn furnish(peer: Option<&Path>, nodes: &[Node]) -> io::Result<()> {
    mount("none", "/run", "tmpfs", 0, "mode=755")?;
    mount("none", "/dev", "tmpfs", 0, "mode=755")?;
    for node in nodes {
        node.make()?;
    }
    std::fs::create_dir_all("/run/udev/rules.d")?;
    if let Some(peer) = peer {
        for (from, onto) in
            [("lib/udev", "/usr/lib/udev"), ("lib/systemd/network", "/usr/lib/systemd/network")]
        {
            cover(&peer.join(from), Path::new(onto))?;
        }
        if Path::new("/etc/udev").exists() {
            cover(&peer.join("etc/udev"), Path::new("/etc/udev"))?;
        }
    }
    let _ = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
    Ok(())
}

/// Covers /dev with a copy of its nodes, in a mount namespace that is ours.
pub fn copy_dev() -> io::Result<()> {
    let nodes = nodes_of_the_machine()?;
    mount("none", "/dev", "tmpfs", 0, "mode=755")?;
    nodes.iter().try_for_each(Node::make)
}

/// Where Debian's udev stands unpacked, if it does (`test/need.sh peer`).
pub fn peer_root() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peer/root");
    root.join("bin/udevadm").exists().then_some(root)
}

/// Puts `from` over `onto`, which is made by an overlay of its parent if it is not there.
fn cover(from: &Path, onto: &Path) -> io::Result<()> {
    if !onto.exists() {
        let parent = onto.parent().expect("below the root");
        let stage = Path::new("/run/cover").join(onto.file_name().expect("has a name"));
        std::fs::create_dir_all(stage.join(onto.file_name().expect("has a name")))?;
        let options = format!("lowerdir={}:{}", stage.display(), parent.display());
        mount("overlay", &parent.to_string_lossy(), "overlay", 0, &options)?;
    }
    mount(&from.to_string_lossy(), &onto.to_string_lossy(), "", libc::MS_BIND, "")
}

pub fn mount(what: &str, onto: &str, kind: &str, flags: libc::c_ulong, options: &str) -> io::Result<()> {
    let (what, path, kind, options) = (c(what), c(onto), c(kind), c(options));
    let data = options.as_ptr().cast();
    check(unsafe { libc::mount(what.as_ptr(), path.as_ptr(), kind.as_ptr(), flags, data) })
        .map_err(|e| io::Error::new(e.kind(), format!("mount on {onto}: {e}")))
        .map(drop)
}

fn c(text: &str) -> CString {
    CString::new(text).expect("no NUL in test paths")
}

pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

struct Node {
    path: PathBuf,
    mode: u32,
    rdev: u64,
    target: Option<PathBuf>,
}

impl Node {
    fn make(&self) -> io::Result<()> {
        std::fs::create_dir_all(self.path.parent().expect("below /dev"))?;
        if let Some(target) = &self.target {
            return std::os::unix::fs::symlink(target, &self.path);
        }
        let path = CString::new(self.path.as_os_str().as_bytes())?;
        check(unsafe { libc::mknod(path.as_ptr(), self.mode, self.rdev) })?;
        std::fs::set_permissions(&self.path, std::fs::Permissions::from_mode(self.mode & 0o7777))
    }
}

/// The nodes of the machine's /dev but those of loop devices that tests have added (loops.rs): if one opens such a
/// node when its test has removed the device, the kernel adds the device again.
fn nodes_of_the_machine() -> io::Result<Vec<Node>> {
    let is_block = |node: &Node| node.mode & libc::S_IFMT == libc::S_IFBLK;
    let is_of_a_test =
        |node: &Node| is_block(node) && libc::major(node.rdev) == 7 && libc::minor(node.rdev) >= 1000;
    Ok(list_nodes(Path::new("/dev"))?.into_iter().filter(|node| !is_of_a_test(node)).collect())
}

fn list_nodes(folder: &Path) -> io::Result<Vec<Node>> {
    let mut nodes = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
        let kind = meta.file_type();
        if kind.is_dir() {
            if !matches!(path.to_str(), Some("/dev/pts" | "/dev/shm" | "/dev/mqueue" | "/dev/hugepages")) {
                nodes.extend(list_nodes(&path)?);
            }
        } else if kind.is_char_device() || kind.is_block_device() || kind.is_symlink() {
            let target = if kind.is_symlink() { Some(std::fs::read_link(&path)?) } else { None };
            nodes.push(Node { path, mode: meta.mode(), rdev: meta.rdev(), target });
        }
    }
    Ok(nodes)
}

/// Which group of the uevent protocol a [`Monitor`] listens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Kernel = 1,
    Udev = 2,
}

/// A raw listener; libudev is tested elsewhere.
pub struct Monitor {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

/// One message, taken apart.
#[derive(Clone, Debug)]
pub struct Message {
    pub at: Instant,
    pub header: Vec<u8>,
    pub properties: BTreeMap<String, String>,
}

impl Message {
    pub fn get(&self, key: &str) -> &str {
        self.properties.get(key).map_or("", String::as_str)
    }

    /// `ACTION DEVPATH`.
    pub fn title(&self) -> String {
        format!("{} {}", self.get("ACTION"), self.get("DEVPATH"))
    }
}

impl Monitor {
    /// Joins `group` in the namespace of the calling thread, with the receive buffer libudev asks for.
    pub fn join(group: Group) -> io::Result<Monitor> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_KOBJECT_UEVENT) })?;
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let size: libc::c_int = 128 << 20;
        let length = size_of_val(&size) as libc::socklen_t;
        let value = (&raw const size).cast();
        unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, value, length) };
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as u16;
        address.nl_groups = group as u32;
        let length = size_of_val(&address) as libc::socklen_t;
        check(unsafe { libc::bind(fd, (&raw const address).cast(), length) })?;
        Ok(Monitor { socket, buffer: vec![0; 2 << 20] })
    }

    pub fn fd(&self) -> i32 {
        self.socket.as_raw_fd()
    }

    /// The next datagram as it is, if one is there.
    pub fn datagram(&mut self) -> Option<&[u8]> {
        let fd = self.socket.as_raw_fd();
        let length = unsafe { libc::recv(fd, self.buffer.as_mut_ptr().cast(), self.buffer.len(), 0) };
        (length > 0).then(|| &self.buffer[..length as usize])
    }

    /// The next message, if one is there.
    pub fn try_next(&mut self) -> Option<Message> {
        let datagram = self.datagram()?;
        let body = if datagram.starts_with(b"libudev\0") && datagram.len() >= 40 { 40 } else { 0 };
        let properties = datagram[body..]
            .split(|&b| b == 0)
            .filter_map(|line| {
                let line = String::from_utf8_lossy(line);
                line.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()))
            })
            .collect();
        Some(Message { at: Instant::now(), header: datagram[..body].to_vec(), properties })
    }

    /// Waits for a message that `wanted` accepts; the others are dropped. None after `limit`.
    pub fn wait_for(&mut self, limit: Duration, mut wanted: impl FnMut(&Message) -> bool) -> Option<Message> {
        let end = Instant::now() + limit;
        loop {
            while let Some(message) = self.try_next() {
                if wanted(&message) {
                    return Some(message);
                }
            }
            let left = end.checked_duration_since(Instant::now())?;
            wait_readable(&[self.fd()], left);
        }
    }
}

/// Waits until one of the descriptors is readable, at most `limit`.
pub fn wait_readable(fds: &[i32], limit: Duration) {
    let mut polls: Vec<libc::pollfd> =
        fds.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    let millis = limit.as_millis().clamp(1, 60_000) as libc::c_int;
    unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, millis) };
}

/// A connection to a socket of the daemon, SEQPACKET and blocking.
pub fn connect(socket: impl AsRef<Path>) -> io::Result<OwnedFd> {
    mudev::sys::unix::connect_seqpacket_within(socket.as_ref(), Duration::from_secs(60))
}

/// The receiving end of `$NOTIFY_SOCKET`.
pub struct Notify(std::os::unix::net::UnixDatagram);

impl Notify {
    pub fn bind(path: &Path) -> io::Result<Notify> {
        let _ = std::fs::remove_file(path);
        Ok(Notify(std::os::unix::net::UnixDatagram::bind(path)?))
    }

    /// Waits for `READY=1`.
    pub fn wait_ready(&self, limit: Duration) -> io::Result<()> {
        let end = Instant::now() + limit;
        let mut buffer = [0; 4096];
        loop {
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.0.set_read_timeout(Some(left))?;
            let length = self.0.recv(&mut buffer)?;
            if buffer[..length].split(|&b| b == b'\n').any(|line| line == b"READY=1") {
                return Ok(());
            }
        }
    }
}
