//! The daemon's side of the helpers: who works on what, who waits, who is past its time.
//!
//! Knows nothing of the loop: the loop watches the sockets it is told of ([`Register`]), says when
//! one is readable ([`Pool::on_readable`]) and when time went on ([`Pool::on_time`]).
//!
//! Must stay true: every request gets exactly one reply; a helper works on one operation at a time;
//! the loop never waits for a helper, not even for its death.

use super::dying::Dying;
use super::operations::{MAX_MESSAGE, Operation, Reply};
use crate::model::Now;
use crate::sys::child::{self, Child, ExecStrings, Program, Spawn};
use crate::sys::unix;
use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Helpers at one time. What they wait for is not CPU, so a few more than cores do no harm; the
/// limit is there because each costs a process.
const MAX_HELPERS: usize = 8;

/// Helpers that work for disks at one time. All disks behind one controller hang together, and other work
/// must not wait for them.
const MAX_DISK_HELPERS: usize = 5;

/// Another helper is started when a request has waited for this long, and this long after the one before.
/// Most operations take less, and a helper costs a process: a burst of requests is served by the first.
const PATIENCE: Duration = Duration::from_millis(3);

/// How long no other helper is started when one could not be.
const START_PAUSE: Duration = Duration::from_secs(1);

/// Requests that wait for a helper. Beyond it a request is answered [`Reply::Died`] at once: each job
/// asks for one thing at a time, so this is more than jobs can be.
const MAX_WAITING: usize = 4096;

/// A helper without work ends after this time.
const IDLE_LIMIT: Duration = Duration::from_secs(5);

/// The loop, as far as the pool must know it: watches a socket for reading.
pub trait Register {
    /// Watch the socket of this helper. It is dropped by closing it.
    fn watch(&self, socket: BorrowedFd, helper: u64) -> io::Result<()>;
}

/// How helpers are started.
#[derive(Debug)]
pub struct Launcher {
    /// /dev/null, open for reading and writing.
    null: File,
    executable: CString,
}

impl Launcher {
    /// Starts `executable`, which must be ours.
    pub fn new(null: File, executable: CString) -> Launcher {
        Launcher { null, executable }
    }

    /// Starts a helper of one kind; returns it and our end of its socket, non-blocking.
    pub fn start(&self, kind: &str) -> io::Result<(Child, OwnedFd)> {
        let (ours, theirs) = unix::seqpacket_pair()?;
        let (mut argv, envp) = (ExecStrings::new(), ExecStrings::new());
        argv.push(&[super::PROGRAM_NAME.as_bytes()]);
        argv.push(&[kind.as_bytes()]);
        let stderr = std::io::stderr();
        let stdio = [theirs.as_fd(), self.null.as_fd(), stderr.as_fd()];
        let program = Program::Path(self.executable.clone());
        child::spawn(Spawn { program, argv, envp, stdio }).map(|child| (child, ours))
    }
}

/// Sends an operation, and closes what is passed with it. One that could not be sent comes back.
fn hand_over(socket: BorrowedFd, operation: Operation) -> Result<(), (Operation, io::Error)> {
    let passed = operation.passes();
    let passes = passed.is_some();
    if let Err(error) = unix::send_passing(socket, &operation.encode(), passed) {
        return Err((operation, error));
    }
    drop(operation);
    if passes && let Err(error) = unix::send(socket, super::GO) {
        // Its end is read from its socket.
        log::debug!("A helper is not told to go on: {error}");
    }
    Ok(())
}

struct Request<C> {
    caller: C,
    operation: Operation,
    since: Now,
    deadline: Now,
}

struct Helper<C> {
    child: Child,
    socket: OwnedFd,
    /// Who waits for the reply, until when.
    work: Option<(C, Now)>,
    /// That work is for a disk.
    has_disk: bool,
    idle_since: Now,
}

/// All helpers. `C` names the caller: it comes back with the reply.
pub struct Pool<C> {
    launcher: Launcher,
    helpers: HashMap<u64, Helper<C>>,
    next_id: u64,
    waiting: VecDeque<Request<C>>,
    start_not_before: Now,
    replies: VecDeque<(C, Reply)>,
    /// Told to end.
    dying: Dying,
    buffer: Vec<u8>,
}

impl<C> Pool<C> {
    /// No helper yet.
    pub fn new(launcher: Launcher) -> Pool<C> {
        Pool {
            launcher,
            helpers: HashMap::new(),
            next_id: 0,
            waiting: VecDeque::new(),
            start_not_before: Now::ZERO,
            replies: VecDeque::new(),
            dying: Dying::default(),
            buffer: Vec::new(),
        }
    }

    /// Has a helper perform an operation; the reply comes by [`Pool::poll_reply`], [`Reply::TimedOut`]
    /// if there is none before `deadline`.
    pub fn request(
        &mut self,
        caller: C,
        operation: Operation,
        deadline: Now,
        now: Now,
        register: &dyn Register,
    ) {
        if deadline <= now {
            self.replies.push_back((caller, Reply::TimedOut));
        } else if self.waiting.len() >= MAX_WAITING {
            self.replies.push_back((caller, Reply::Died));
        } else {
            self.waiting.push_back(Request { caller, operation, since: now, deadline });
            self.assign(now, register);
        }
    }

    /// The next reply that has come in.
    pub fn poll_reply(&mut self) -> Option<(C, Reply)> {
        self.replies.pop_front()
    }

    /// Whether [`Pool::poll_reply`] has one.
    pub fn has_reply(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Operations running and waiting.
    pub fn load(&self) -> (usize, usize) {
        (self.helpers.values().filter(|h| h.work.is_some()).count(), self.waiting.len())
    }

    /// Nothing runs or waits, and all replies were taken.
    pub fn is_idle(&self) -> bool {
        self.load() == (0, 0) && !self.has_reply()
    }

    /// When the next request gets a helper of its own, if another may be started.
    fn another_at(&self) -> Option<Now> {
        let next = self.waiting.get(self.next_request()?)?;
        match self.helpers.len() {
            0 => Some(next.since),
            n if n < MAX_HELPERS => Some((next.since + PATIENCE).max(self.start_not_before)),
            _ => None,
        }
    }

    /// Gives waiting requests to idle or new helpers.
    fn assign(&mut self, now: Now, register: &dyn Register) {
        while let Some(next) = self.next_request() {
            let idle = self.helpers.iter().find(|(_, h)| h.work.is_none()).map(|(&id, _)| id);
            let id = match idle {
                Some(id) => id,
                None if self.another_at().is_none_or(|at| at > now) => return,
                None => match self.start_helper(now, register) {
                    Ok(id) => id,
                    Err(error) => return self.no_helper(&error, now),
                },
            };
            let Some(request) = self.waiting.remove(next) else { return };
            let Some(helper) = self.helpers.get_mut(&id) else { return };
            helper.has_disk = request.operation.is_for_disk();
            match hand_over(helper.socket.as_fd(), request.operation) {
                Ok(()) => helper.work = Some((request.caller, request.deadline)),
                Err((operation, error)) => {
                    log::warn!("A helper does not take its work, it is replaced: {error}");
                    self.end(id);
                    match idle {
                        // It has died since its last work; that is not the fault of the next.
                        Some(_) => self.waiting.insert(next, Request { operation, ..request }),
                        // What cannot be sent to a fresh helper either is not tried for ever.
                        None => self.replies.push_back((request.caller, Reply::Died)),
                    }
                }
            }
        }
    }

    /// Which request is next: the first, or, when enough helpers work for disks, the first that is not for one.
    fn next_request(&self) -> Option<usize> {
        let disks = self.helpers.values().filter(|h| h.work.is_some() && h.has_disk).count();
        match disks < MAX_DISK_HELPERS {
            true => (!self.waiting.is_empty()).then_some(0),
            false => self.waiting.iter().position(|request| !request.operation.is_for_disk()),
        }
    }

    /// No process can be had. Requests wait for a helper that works; with none, they fail.
    fn no_helper(&mut self, error: &io::Error, now: Now) {
        log::error!("Cannot start a helper: {error}");
        self.start_not_before = now + START_PAUSE;
        if self.helpers.is_empty() {
            self.replies.extend(self.waiting.drain(..).map(|r| (r.caller, Reply::Died)));
        }
    }

    fn start_helper(&mut self, now: Now, register: &dyn Register) -> io::Result<u64> {
        self.dying.reap(now);
        let (child, socket) = self.launcher.start(super::OPERATIONS)?;
        self.start_not_before = now + PATIENCE;
        let id = self.next_id;
        self.next_id += 1;
        let watched = register.watch(socket.as_fd(), id);
        self.helpers.insert(id, Helper { child, socket, work: None, has_disk: false, idle_since: now });
        if let Err(error) = watched {
            self.end(id);
            return Err(error);
        }
        Ok(id)
    }

    /// Takes a helper out; the caller has seen to its work.
    fn end(&mut self, id: u64) {
        if let Some(helper) = self.helpers.remove(&id) {
            if let Err(error) = helper.child.signal(libc::SIGKILL) {
                log::debug!("Cannot kill a helper: {error}");
            }
            self.dying.push(helper.child);
        }
    }

    /// The socket of a helper is readable: takes its reply, gives it the next request.
    pub fn on_readable(&mut self, id: u64, now: Now, register: &dyn Register) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(MAX_MESSAGE, 0);
        while let Some(helper) = self.helpers.get_mut(&id) {
            let received = match unix::receive_passed(helper.socket.as_fd(), &mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok((received, passed)) if received.len > 0 => Some((&buffer[..received.len], passed)),
                _ => None,
            };
            let work = helper.work.take();
            helper.idle_since = now;
            match (work, received) {
                (Some((caller, _)), Some((bytes, passed))) => {
                    self.replies.push_back((caller, Reply::decode(bytes, passed).unwrap_or(Reply::Died)));
                }
                (work, _) => {
                    if let Some((caller, _)) = work {
                        log::warn!("A helper died in its work");
                        self.replies.push_back((caller, Reply::Died));
                    }
                    self.end(id);
                }
            }
        }
        self.buffer = buffer;
        self.assign(now, register);
    }

    /// Ends what is past its deadline and helpers that have nothing to do.
    pub fn on_time(&mut self, now: Now, register: &dyn Register) {
        let over = |h: &Helper<C>| match &h.work {
            Some((_, deadline)) => *deadline <= now,
            None => h.idle_since + IDLE_LIMIT <= now,
        };
        let ids: Vec<u64> = self.helpers.iter().filter(|(_, h)| over(h)).map(|(&id, _)| id).collect();
        for id in ids {
            if let Some((caller, _)) = self.helpers.get_mut(&id).and_then(|h| h.work.take()) {
                self.replies.push_back((caller, Reply::TimedOut));
            }
            self.end(id);
        }
        if self.waiting.iter().any(|r| r.deadline <= now) {
            for request in std::mem::take(&mut self.waiting) {
                match request.deadline <= now {
                    true => self.replies.push_back((request.caller, Reply::TimedOut)),
                    false => self.waiting.push_back(request),
                }
            }
        }
        self.dying.reap(now);
        self.assign(now, register);
    }

    /// When to call [`Pool::on_time`] at the latest.
    pub fn timeout(&self) -> Option<Now> {
        let helpers = self.helpers.values().map(|h| match &h.work {
            Some((_, deadline)) => *deadline,
            None => h.idle_since + IDLE_LIMIT,
        });
        let waiting = self.waiting.iter().map(|r| r.deadline);
        helpers.chain(waiting).chain(self.another_at()).chain(self.dying.timeout()).min()
    }
}

impl<C> Drop for Pool<C> {
    fn drop(&mut self) {
        for id in self.helpers.keys().copied().collect::<Vec<_>>() {
            self.end(id);
        }
    }
}
