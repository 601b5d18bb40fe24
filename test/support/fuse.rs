//! A file system that answers when a test wants it to: a few files (programs too), each step of
//! which may take a while, wait for a gate, or never end. It speaks the kernel's protocol on /dev/fuse
//! (include/uapi/linux/fuse.h) from a thread of the test.
//!
//! Must stay true: a request that waits holds up no other, and all waiting ends with the mount: dropping a [`Fuse`]
//! aborts the connection, so that no process hangs in the kernel after the test. Until then a process that waits for
//! a request cannot be killed, as with a dead disk: interrupts are ignored.
//!
//! ```ignore
//! let gate = Gate::closed();
//! let files = vec![
//!     File::text("config", "A=1\n").waits(Step::Read, gate.clone()),
//!     File::program("tool", "#!/bin/sh\necho B=2\n").takes(Step::Open, Duration::from_secs(2)),
//! ];
//! let slow = Fuse::mount(Path::new("/run/slow"), files)?;
//! // ... something reads /run/slow/config
//! eventually("somebody reads", || gate.waiting() > 0);
//! gate.open();
//! ```
#![allow(dead_code)]

use std::fs::{File as OsFile, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A step of using a file. A path is looked up before it is opened, and opened before it is read; `stat` asks Lookup,
/// and Attributes where the look-up is remembered ([`File::remembered`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Lookup,
    Attributes,
    Open,
    Read,
    Write,
    /// Closing any descriptor of it.
    Flush,
}

/// Requests wait at it until it is opened; one that is never opened is a server that never answers.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<GateState>);

#[derive(Debug, Default)]
struct GateState {
    open: AtomicBool,
    waiting: AtomicUsize,
}

impl Gate {
    pub fn closed() -> Gate {
        Gate::default()
    }

    /// Lets through the requests that wait and those that come.
    pub fn open(&self) {
        self.0.open.store(true, Ordering::Release);
    }

    /// Requests wait from now on.
    pub fn close(&self) {
        self.0.open.store(false, Ordering::Release);
    }

    /// How many requests wait at it.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Acquire)
    }
}

/// What a step of a file waits for.
#[derive(Clone, Debug)]
enum Wait {
    Time(Duration),
    Gate(Gate),
}

/// A file of the file system.
#[derive(Clone, Debug)]
pub struct File {
    name: String,
    content: Vec<u8>,
    mode: u32,
    remembered: bool,
    waits: Vec<(Step, Wait)>,
}

impl File {
    /// A file with mode 0644.
    pub fn text(name: &str, content: impl Into<Vec<u8>>) -> File {
        let mode = libc::S_IFREG | 0o644;
        File { name: name.into(), content: content.into(), mode, remembered: false, waits: Vec::new() }
    }

    /// A file with mode 0755.
    pub fn program(name: &str, content: impl Into<Vec<u8>>) -> File {
        File { mode: libc::S_IFREG | 0o755, ..File::text(name, content) }
    }

    /// The kernel may remember that the file is there, its attributes and its content: an hour long.
    pub fn remembered(self) -> File {
        File { remembered: true, ..self }
    }

    /// Each request of this step takes so long.
    pub fn takes(mut self, step: Step, time: Duration) -> File {
        self.waits.push((step, Wait::Time(time)));
        self
    }

    /// Each request of this step waits at a gate.
    pub fn waits(mut self, step: Step, gate: Gate) -> File {
        self.waits.push((step, Wait::Gate(gate)));
        self
    }
}

impl File {
    /// What a fuse_write_in says.
    fn write(&mut self, request: &[u8]) {
        let (start, length) = (u64_at(request, 8) as usize, u32_at(request, 16) as usize);
        self.content.resize(self.content.len().max(start + length), 0);
        self.content[start..start + length].copy_from_slice(&request[40..40 + length]);
    }
}

/// A mounted file system; unmounted and ended when dropped.
pub struct Fuse {
    path: PathBuf,
    /// Dropped to end the server.
    stop: Option<UnixStream>,
    server: Option<JoinHandle<()>>,
}

impl Fuse {
    /// Whether this kernel serves it; says so where not.
    pub fn is_there() -> bool {
        let there = Path::new("/dev/fuse").exists();
        if !there {
            println!("skipped: this kernel has no /dev/fuse");
        }
        there
    }

    /// Mounts `files` on `path`, which is made if it is not there, in the mount namespace of the calling
    /// thread.
    pub fn mount(path: &Path, files: Vec<File>) -> io::Result<Fuse> {
        std::fs::create_dir_all(path)?;
        let mut options = OpenOptions::new();
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let device = options.read(true).write(true).custom_flags(flags).open("/dev/fuse")?;
        let settings = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let place = path.to_str().expect("test paths are text");
        crate::cell::mount("slow", place, "fuse", libc::MS_NODEV, &settings)?;
        let (stop, stopped) = UnixStream::pair()?;
        let server = Server { device, files, held: Vec::new() };
        let server = std::thread::spawn(move || server.serve(stopped));
        Ok(Fuse { path: path.to_owned(), stop: Some(stop), server: Some(server) })
    }

    /// Where a file lies.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.server.take().map(JoinHandle::join);
        let path = std::ffi::CString::new(self.path.to_str().expect("text")).expect("no NUL");
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        if ended.is_some_and(|end| end.is_err()) && !std::thread::panicking() {
            panic!("the file server has panicked");
        }
    }
}

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const RELEASEDIR: u32 = 29;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

const HEADER: usize = 40;
const ROOT: u64 = 1;
const HOUR: u64 = 3600;
/// FOPEN_KEEP_CACHE.
const KEEP_CACHE: u32 = 2;

/// A reply that waits.
struct Held {
    wait: Wait,
    due: Instant,
    reply: Vec<u8>,
}

struct Server {
    device: OsFile,
    files: Vec<File>,
    held: Vec<Held>,
}

impl Server {
    fn serve(mut self, stopped: UnixStream) {
        let mut buffer = vec![0; 256 << 10];
        loop {
            // Held replies are looked at often enough for tests that measure milliseconds.
            let timeout = if self.held.is_empty() { -1 } else { 2 };
            let poll = |fd: i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut polls = [poll(self.device.as_raw_fd()), poll(stopped.as_raw_fd())];
            unsafe { libc::poll(polls.as_mut_ptr(), 2, timeout) };
            if polls[1].revents != 0 {
                return;
            }
            self.release_held();
            match self.device.read(&mut buffer) {
                Ok(length) if length >= HEADER => self.handle(&buffer[..length]),
                // Unmounted.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return,
                // Nothing is there, or the request was taken back.
                _ => {}
            }
        }
    }

    fn release_held(&mut self) {
        let now = Instant::now();
        let (ready, held) = std::mem::take(&mut self.held).into_iter().partition(|held| match &held.wait {
            Wait::Time(_) => held.due <= now,
            Wait::Gate(gate) => gate.0.open.load(Ordering::Acquire),
        });
        self.held = held;
        let ready: Vec<Held> = ready;
        for held in ready {
            if let Wait::Gate(gate) = &held.wait {
                gate.0.waiting.fetch_sub(1, Ordering::AcqRel);
            }
            self.send(&held.reply);
        }
    }

    fn handle(&mut self, request: &[u8]) {
        let (opcode, unique, node) = (u32_at(request, 4), u64_at(request, 8), u64_at(request, 16));
        let body = &request[HEADER..];
        if opcode == WRITE
            && let Some(file) = node.checked_sub(ROOT + 1).and_then(|at| self.files.get_mut(at as usize))
        {
            file.write(body);
        }
        let file = node.checked_sub(ROOT + 1).and_then(|at| self.files.get(at as usize));
        let (file, step, result) = match opcode {
            FORGET | BATCH_FORGET | INTERRUPT => return,
            INIT => (None, None, Ok(init(body))),
            LOOKUP => {
                let name = body.split(|&b| b == 0).next().unwrap_or_default();
                match self.files.iter().position(|file| file.name.as_bytes() == name) {
                    Some(at) => {
                        let file = &self.files[at];
                        (Some(file), Some(Step::Lookup), Ok(entry(file, ROOT + 1 + at as u64)))
                    }
                    None => (None, None, Err(libc::ENOENT)),
                }
            }
            // Of what can be set only the size matters, and files are written from their beginning.
            GETATTR | SETATTR => (file, Some(Step::Attributes), Ok(attributes(file, node))),
            OPEN => (file, Some(Step::Open), Ok(opened(file))),
            READ => (file, Some(Step::Read), Ok(piece(file.map_or(&[], |file| &file.content), body))),
            WRITE => (file, Some(Step::Write), Ok([u32_at(body, 16), 0].map(u32::to_ne_bytes).concat())),
            OPENDIR => (None, None, Ok(opened(None))),
            READDIR => (None, None, Ok(piece(&self.directory(), body))),
            FLUSH => (file, Some(Step::Flush), Ok(Vec::new())),
            RELEASE | RELEASEDIR => (None, None, Ok(Vec::new())),
            _ => (None, None, Err(libc::ENOSYS)),
        };
        let waits = file.into_iter().flat_map(|file| &file.waits);
        let wait = waits.filter(|(at, _)| Some(*at) == step).map(|(_, wait)| wait.clone()).next();
        let reply = reply(unique, result);
        match wait {
            Some(Wait::Gate(gate)) if gate.0.open.load(Ordering::Acquire) => self.send(&reply),
            Some(wait) => {
                if let Wait::Gate(gate) = &wait {
                    gate.0.waiting.fetch_add(1, Ordering::AcqRel);
                }
                let after = if let Wait::Time(time) = &wait { *time } else { Duration::ZERO };
                self.held.push(Held { wait, due: Instant::now() + after, reply });
            }
            None => self.send(&reply),
        }
    }

    fn send(&self, reply: &[u8]) {
        // ENOENT: the asker has gone.
        let _ = (&self.device).write(reply);
    }

    /// The listing of the root, whole; an entry's offset is where the next one begins.
    fn directory(&self) -> Vec<u8> {
        let mut listing = Vec::new();
        for (at, file) in self.files.iter().enumerate() {
            let name = file.name.as_bytes();
            let length = (24 + name.len()).next_multiple_of(8);
            let next = listing.len() + length;
            listing.extend_from_slice(&(ROOT + 1 + at as u64).to_ne_bytes());
            listing.extend_from_slice(&(next as u64).to_ne_bytes());
            listing.extend_from_slice(&(name.len() as u32).to_ne_bytes());
            listing.extend_from_slice(&(libc::DT_REG as u32).to_ne_bytes());
            listing.extend_from_slice(name);
            listing.resize(next, 0);
        }
        listing
    }
}

/// fuse_out_header and what follows.
fn reply(unique: u64, result: Result<Vec<u8>, i32>) -> Vec<u8> {
    let (error, body) = match result {
        Ok(body) => (0, body),
        Err(error) => (-error, Vec::new()),
    };
    let mut reply = Vec::new();
    reply.extend_from_slice(&(16 + body.len() as u32).to_ne_bytes());
    reply.extend_from_slice(&error.to_ne_bytes());
    reply.extend_from_slice(&unique.to_ne_bytes());
    reply.extend_from_slice(&body);
    reply
}

/// fuse_init_out: version 7.31, no optional feature.
fn init(request: &[u8]) -> Vec<u8> {
    let minor = u32_at(request, 4).min(31);
    let words = [7, minor, u32_at(request, 8), 0, 0, 64 << 10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect()
}

/// fuse_entry_out.
fn entry(file: &File, node: u64) -> Vec<u8> {
    let valid = if file.remembered { HOUR } else { 0 };
    let mut out: Vec<u8> = [node, 0, valid, valid, 0].iter().flat_map(|n: &u64| n.to_ne_bytes()).collect();
    out.extend(attr(Some(file), node));
    out
}

/// fuse_attr_out.
fn attributes(file: Option<&File>, node: u64) -> Vec<u8> {
    let valid = if file.is_none_or(|file| file.remembered) { HOUR } else { 0 };
    let mut out: Vec<u8> = [valid, 0].iter().flat_map(|n: &u64| n.to_ne_bytes()).collect();
    out.extend(attr(file, node));
    out
}

/// fuse_attr; no file is the root.
fn attr(file: Option<&File>, node: u64) -> Vec<u8> {
    let size = file.map_or(0, |file| file.content.len() as u64);
    let mode = file.map_or(libc::S_IFDIR | 0o755, |file| file.mode);
    let mut out: Vec<u8> =
        [node, size, size.div_ceil(512), 0, 0, 0].iter().flat_map(|n: &u64| n.to_ne_bytes()).collect();
    let words = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
    out.extend(words.iter().flat_map(|word: &u32| word.to_ne_bytes()));
    out
}

/// fuse_open_out.
fn opened(file: Option<&File>) -> Vec<u8> {
    let flags = if file.is_some_and(|file| file.remembered) { KEEP_CACHE } else { 0 };
    [0, 0, flags, 0].iter().flat_map(|word: &u32| word.to_ne_bytes()).collect()
}

/// What a fuse_read_in asks of some content.
fn piece(content: &[u8], request: &[u8]) -> Vec<u8> {
    let start = (u64_at(request, 8) as usize).min(content.len());
    let end = (start + u32_at(request, 16) as usize).min(content.len());
    content[start..end].to_vec()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
