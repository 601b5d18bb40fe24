//! The daemon's side of the helpers: which helper works on which request, which requests wait, and which helpers are
//! past their time.
//!
//! Knows nothing of the loop: the loop watches the sockets it is told of ([`Register`]), says when
//! one is readable ([`Pool::on_readable`]) and when time went on ([`Pool::on_time`]).
//!
//! Must stay true: every request gets exactly one reply; a helper works on one operation at a time, and on
//! one device one helper; the loop never waits for a helper, not even for its death, and closes no disk itself.
//!
//! Helpers that work fast share a few places. One that has been at its work for long leaves its place to others, if one
//! is free of those kept for slow ones and those that hang ([`super::hanging`]); else it keeps it. So dead disks, which
//! keep a helper each until their events are over, and perhaps beyond, do not hold up the disks that live. When all
//! places are taken, requests wait in order: each helper is killed at the deadline of its request. Only where as many
//! hang as may are requests refused.

use super::dying::Dying;
use super::hanging::{Hanging, SlowHelper};
use super::messages::{self, MAX_MESSAGE};
use super::subject::Subject;
use crate::model::Now;
use crate::model::operation::{Operation, OperationReply};
use crate::sys::child::{self, Child, ExecStrings, Program, Spawn};
use crate::sys::unix;
use crate::world::nodes::HeldLock;
use bstr::BString;
use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

/// Helpers at one time, but for those that are slow. What they wait for is not CPU, so a few more than cores do no
/// harm; the limit is there because each costs a process.
const MAX_HELPERS: usize = 8;

/// Those of them that work for disks. All disks behind one controller hang together, and other work must not wait
/// for them.
const MAX_DISK_HELPERS: usize = 5;

/// Those that work for others: what is slow without being a disk must not hold up disks for ever either.
const MAX_OTHER_HELPERS: usize = 6;

/// A helper that has been at its work for longer is slow.
const SLOW: Duration = Duration::from_secs(3);

/// Another helper is started when a request has waited for this long, and this long after the one before.
/// Most operations take less, and a helper costs a process: a burst of requests is served by the first.
const PATIENCE: Duration = Duration::from_millis(3);

/// How long no other helper is started when one could not be.
const START_PAUSE: Duration = Duration::from_secs(1);

/// Requests that wait for a helper. Beyond it a request is answered [`OperationReply::Died`] at once: each job
/// asks for one thing at a time, so this is more than jobs can be.
const MAX_WAITING: usize = 4096;

/// An operation whose end no job waits for (closing a disk) may take so long before its helper is killed.
const ABANDONED_LIMIT: Duration = Duration::from_secs(180);

/// A helper without work ends after this time.
const IDLE_LIMIT: Duration = Duration::from_secs(5);

/// The loop, as far as the pool must know it: watches a socket for reading.
pub trait Register {
    /// Watch the socket of this helper. It is dropped by closing it.
    fn watch(&self, socket: BorrowedFd, helper: u64) -> io::Result<()>;
}

/// The file that helpers are started from: ours.
#[derive(Debug)]
pub enum Executable {
    /// Opened once, so that it matters neither what becomes of its name nor whether there is a /proc.
    Open(File),
    Named(CString),
}

/// How helpers are started.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// /dev/null, open for reading and writing, and the executable.
    files: Rc<(File, Executable)>,
}

impl Launcher {
    /// Starts our executable. `null` is open for reading and writing.
    pub fn new(null: File, executable: Executable) -> Launcher {
        Launcher { files: Rc::new((null, executable)) }
    }

    /// Starts a helper of one kind; returns it and our end of its socket, non-blocking. That the executable cannot
    /// be executed shows by its end.
    pub fn start(&self, kind: &str) -> io::Result<(Child, OwnedFd)> {
        let (null, executable) = &*self.files;
        let (ours, theirs) = unix::seqpacket_pair()?;
        let (mut argv, envp) = (ExecStrings::new(), ExecStrings::new());
        argv.push(&[super::PROGRAM_NAME.as_bytes()]);
        argv.push(&[kind.as_bytes()]);
        let stderr = std::io::stderr();
        let stdio = [theirs.as_fd(), null.as_fd(), stderr.as_fd()];
        let program = match executable {
            Executable::Open(file) => Program::File(file.as_fd()),
            Executable::Named(path) => Program::Path(path.clone()),
        };
        child::spawn(Spawn { program, argv, envp, stdio }).map(|child| (child, ours))
    }
}

/// Sends an operation, and closes what is passed with it. One that could not be sent comes back.
fn hand_over(socket: BorrowedFd, order: Order) -> Result<(), (Order, io::Error)> {
    let passed = order.file.as_ref().map(AsFd::as_fd);
    if let Err(error) = unix::send_passing(socket, &messages::encode(&order.operation), passed) {
        return Err((order, error));
    }
    let passes = passed.is_some();
    drop(order);
    if passes && let Err(error) = unix::send(socket, super::GO) {
        // Its end is read from its socket.
        log::debug!("A helper is not told to go on: {error}");
    }
    Ok(())
}

/// An operation, and the open file that goes along with it.
#[derive(Debug)]
pub struct Order {
    pub operation: Operation,
    pub file: Option<OwnedFd>,
}

impl From<Operation> for Order {
    fn from(operation: Operation) -> Order {
        Order { operation, file: None }
    }
}

/// The reply, and the open file that it brings.
#[derive(Debug)]
pub struct Delivery<C> {
    pub caller: C,
    pub reply: OperationReply,
    pub file: Option<OwnedFd>,
}

impl<C> Delivery<C> {
    fn without_file(caller: C, reply: OperationReply) -> Delivery<C> {
        Delivery { caller, reply, file: None }
    }
}

struct Request<C> {
    /// The job that waits for the reply, and until when; None if the operation must be done though no job waits for
    /// it any more.
    caller: Option<(C, Now)>,
    order: Order,
    subject: Subject,
    since: Now,
}

impl<C> Request<C> {
    fn is_late(&self, now: Now) -> bool {
        self.caller.as_ref().is_some_and(|(_, deadline)| *deadline <= now)
    }
}

struct Work<C> {
    caller: Option<(C, Now)>,
    subject: Subject,
    since: Now,
}

impl<C> Work<C> {
    /// When it is given up.
    fn deadline(&self) -> Now {
        self.caller.as_ref().map_or(self.since + ABANDONED_LIMIT, |(_, deadline)| *deadline)
    }

    fn is_slow(&self, now: Now) -> bool {
        self.since + SLOW <= now
    }
}

struct Helper<C> {
    child: Child,
    socket: OwnedFd,
    work: Option<Work<C>>,
    idle_since: Now,
}

/// All helpers. `C` names the caller: it comes back with the reply.
pub struct Pool<C> {
    launcher: Launcher,
    helpers: HashMap<u64, Helper<C>>,
    next_id: u64,
    waiting: VecDeque<Request<C>>,
    start_not_before: Now,
    replies: VecDeque<Delivery<C>>,
    /// Told to end, without work.
    dying: Dying,
    hanging: Hanging,
    /// When something was last looked at.
    now: Now,
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
            hanging: Hanging::default(),
            now: Now::ZERO,
            buffer: Vec::new(),
        }
    }

    /// Reaps one of another kind too.
    pub fn reap_when_ended(&mut self, helper: Option<Child>) {
        helper.into_iter().for_each(|child| self.dying.push(child));
    }

    /// Has a helper perform an operation; the reply comes by [`Pool::poll_reply`]: [`OperationReply::TimedOut`] if there
    /// is none before `deadline`, [`OperationReply::Refused`] if a helper hangs at the same device.
    pub fn request(
        &mut self,
        caller: C,
        order: impl Into<Order>,
        deadline: Now,
        now: Now,
        register: &dyn Register,
    ) {
        let order = order.into();
        let subject = Subject::of(&order.operation);
        let request = Request { caller: Some((caller, deadline)), order, subject, since: now };
        if deadline <= now {
            self.give_up(request, OperationReply::TimedOut);
        } else if self.waiting.len() >= MAX_WAITING {
            self.give_up(request, OperationReply::Died);
        } else {
            self.waiting.push_back(request);
            self.assign(now, register);
        }
    }

    /// Replies to a request that nobody will work on. Dropping an open disk here would close it, which may wait:
    /// so what has one waits on, for a helper alone.
    fn give_up(&mut self, mut request: Request<C>, reply: OperationReply) {
        self.replies.extend(request.caller.take().map(|(caller, _)| Delivery::without_file(caller, reply)));
        if request.order.file.is_some() {
            self.waiting.push_back(request);
        }
    }

    /// Gives up those waiting requests that `over` says, which have a caller.
    fn give_up_where(&mut self, over: impl Fn(&Self, &Request<C>) -> Option<OperationReply>) {
        let count = self.waiting.len();
        for _ in 0..count {
            let Some(request) = self.waiting.pop_front() else { return };
            match over(self, &request).filter(|_| request.caller.is_some()) {
                Some(reply) => self.give_up(request, reply),
                None => self.waiting.push_back(request),
            }
        }
    }

    /// The next reply that has come in.
    pub fn poll_reply(&mut self) -> Option<Delivery<C>> {
        self.replies.pop_front()
    }

    /// Whether [`Pool::poll_reply`] has one.
    pub fn has_reply(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Operations running and waiting, as far as somebody waits for them.
    pub fn load(&self) -> (usize, usize) {
        let working = self.works().filter(|work| work.caller.is_some()).count();
        (working, self.waiting.iter().filter(|request| request.caller.is_some()).count())
    }

    /// Nothing runs or waits, and all replies were taken.
    pub fn is_idle(&self) -> bool {
        self.load() == (0, 0) && !self.has_reply()
    }

    /// Helpers that have been at their work for long, and those that hang.
    pub fn slow(&self) -> Vec<SlowHelper> {
        let slow = self.helpers.values().filter_map(|helper| {
            let work = helper.work.as_ref().filter(|work| work.is_slow(self.now))?;
            Some(SlowHelper::new(&helper.child, &work.subject, work.since, false))
        });
        slow.chain(self.hanging.list()).collect()
    }

    fn works(&self) -> impl Iterator<Item = &Work<C>> {
        self.helpers.values().filter_map(|helper| helper.work.as_ref())
    }

    /// When the next request gets a helper of its own, if another may be started.
    fn another_at(&self) -> Option<Now> {
        let next = self.waiting.get(self.next_request()?)?;
        let idle = self.helpers.values().filter(|helper| helper.work.is_none()).count();
        match self.places_taken(false) + self.places_taken(true) + idle {
            _ if self.helpers.is_empty() && next.caller.is_some() => Some(next.since),
            n if n < MAX_HELPERS => Some((next.since + PATIENCE).max(self.start_not_before)),
            _ => None,
        }
    }

    /// How many of the places of fast helpers are taken by those of a kind: by fast ones, and by those slow ones,
    /// and ones not known to have ended, that find no place elsewhere.
    fn places_taken(&self, for_disks: bool) -> usize {
        let of_kind = self.works().filter(|work| work.subject.is_for_disk == for_disks);
        let (slow, fast): (Vec<_>, Vec<_>) = of_kind.partition(|work| work.is_slow(self.now));
        fast.len() + self.hanging.without_place(for_disks, slow.len())
    }

    /// Gives waiting requests to idle or new helpers.
    fn assign(&mut self, now: Now, register: &dyn Register) {
        self.now = now;
        if self.waiting.is_empty() {
            return;
        }
        self.refuse(now);
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
            let Request { caller, order, subject, since } = request;
            match hand_over(helper.socket.as_fd(), order) {
                Ok(()) => helper.work = Some(Work { caller, subject, since: now }),
                Err((order, error)) => {
                    log::warn!("A helper does not take its work, it is replaced: {error}");
                    self.end(id, now);
                    let request = Request { caller, order, subject, since };
                    match idle {
                        // It has died since its last work; that is not the fault of the next.
                        Some(_) => self.waiting.insert(next, request),
                        // A request that cannot be sent to a fresh helper either is not tried for ever.
                        None if request.caller.is_some() => self.give_up(request, OperationReply::Died),
                        None => return self.waiting.push_back(request),
                    }
                }
            }
        }
    }

    /// Replies to requests for a device that does not answer.
    fn refuse(&mut self, now: Now) {
        self.look_at_hanging(now);
        for for_disks in [false, true] {
            let is_one = |request: &Request<C>| request.subject.is_for_disk == for_disks;
            if self.hanging.is_full(for_disks) && self.waiting.iter().any(is_one) {
                self.hanging.say_full(for_disks);
            }
        }
        let is_refused = |pool: &Self, request: &Request<C>| {
            let subject = &request.subject;
            let refused = pool.hanging.hangs_at(subject.device.as_ref());
            (refused || pool.hanging.is_full(subject.is_for_disk)).then_some(OperationReply::Refused)
        };
        if self.waiting.iter().any(|request| is_refused(self, request).is_some()) {
            self.give_up_where(is_refused);
        }
    }

    /// The next request: the first one whose device no helper works on, and whose kind has a place free.
    fn next_request(&self) -> Option<usize> {
        if self.waiting.is_empty() {
            return None;
        }
        let has_room = [(false, MAX_OTHER_HELPERS), (true, MAX_DISK_HELPERS)]
            .map(|(for_disks, max)| self.places_taken(for_disks) < max);
        self.waiting.iter().position(|request| {
            let device = &request.subject.device;
            let is_busy = || !device.is_empty() && self.works().any(|work| work.subject.device == *device);
            has_room[usize::from(request.subject.is_for_disk)]
                && !is_busy()
                && !self.hanging.has(device.as_ref())
        })
    }

    /// No process can be had. Requests wait for a helper that works; with none, they fail.
    fn no_helper(&mut self, error: &io::Error, now: Now) {
        log::error!("Cannot start a helper: {error}");
        self.start_not_before = now + START_PAUSE;
        if self.helpers.is_empty() {
            self.give_up_where(|_, _| Some(OperationReply::Died));
        }
    }

    fn start_helper(&mut self, now: Now, register: &dyn Register) -> io::Result<u64> {
        self.dying.reap(now);
        let (child, socket) = self.launcher.start(super::OPERATIONS)?;
        self.start_not_before = now + PATIENCE;
        let id = self.next_id;
        self.next_id += 1;
        let watched = register.watch(socket.as_fd(), id);
        self.helpers.insert(id, Helper { child, socket, work: None, idle_since: now });
        if let Err(error) = watched {
            self.end(id, now);
            return Err(error);
        }
        Ok(id)
    }

    /// Takes a helper out. The caller sends a reply to the job that waits for its work.
    fn end(&mut self, id: u64, now: Now) {
        let Some(helper) = self.helpers.remove(&id) else { return };
        if let Err(error) = helper.child.signal(libc::SIGKILL) {
            log::debug!("Cannot kill a helper: {error}");
        }
        match helper.work {
            Some(work) => self.hanging.push((helper.child, helper.socket), work.subject, work.since, now),
            None => self.dying.push(helper.child),
        }
    }

    fn look_at_hanging(&mut self, now: Now) {
        for (socket, subject) in self.hanging.look(now) {
            self.take_late(socket.as_fd(), &subject, now);
        }
    }

    /// The reply that a helper had sent before it ended. Closing its socket unread would close the file that is
    /// passed with it.
    fn take_late(&mut self, socket: BorrowedFd, subject: &Subject, now: Now) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(MAX_MESSAGE, 0);
        if let Ok((received, passed)) = unix::receive_passed(socket, &mut buffer)
            && let Some((_, file)) =
                buffer.get(..received.len).and_then(|bytes| messages::unpack(bytes, passed))
        {
            self.give_back(file, &subject.object, now);
        }
        self.buffer = buffer;
    }

    /// Has a helper close the disk that a reply has brought, if it has brought one: nobody wants it any more.
    pub fn give_back(&mut self, file: Option<OwnedFd>, disk: &BString, now: Now) {
        let Some(file) = file else { return };
        let lock = HeldLock::passed(file);
        // Others need not wait for the helper.
        lock.unlock();
        let order = Order { operation: Operation::CloseDisk { disk: disk.clone() }, file: Some(lock.into()) };
        let subject = Subject::of(&order.operation);
        self.waiting.push_back(Request { caller: None, order, subject, since: now });
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
            helper.idle_since = now;
            match (helper.work.take(), received) {
                (Some(work), Some((bytes, passed))) => {
                    // Where we had no descriptor left for the file that was passed, the helper closes it at its end.
                    let unpacked = messages::unpack(bytes, passed);
                    let lends = matches!(unpacked, Some((_, Some(_))));
                    if unpacked.is_none() || (lends && unix::send(helper.socket.as_fd(), super::GO).is_err())
                    {
                        self.end(id, now);
                    }
                    let (reply, file) = unpacked.unwrap_or((OperationReply::Died, None));
                    match work.caller {
                        Some((caller, _)) => self.replies.push_back(Delivery { caller, reply, file }),
                        None => self.give_back(file, &work.subject.object, now),
                    }
                }
                (work, _) => {
                    if let Some(work) = work {
                        log::warn!("A helper died in its work ({})", work.subject);
                        let died = |(caller, _)| Delivery::without_file(caller, OperationReply::Died);
                        self.replies.extend(work.caller.map(died));
                    }
                    self.end(id, now);
                }
            }
        }
        self.buffer = buffer;
        self.assign(now, register);
    }

    /// Ends helpers that are past their deadline and those that have nothing to do. A reply that a helper has sent by
    /// now counts all the same.
    pub fn on_time(&mut self, now: Now, register: &dyn Register) {
        let is_late = |h: &Helper<C>| h.work.as_ref().is_some_and(|work| work.deadline() <= now);
        let late: Vec<u64> = self.helpers.iter().filter(|(_, h)| is_late(h)).map(|(&id, _)| id).collect();
        for id in late {
            self.on_readable(id, now, register);
        }
        let over = |h: &Helper<C>| match &h.work {
            Some(work) => work.deadline() <= now,
            None => h.idle_since + IDLE_LIMIT <= now,
        };
        let ids: Vec<u64> = self.helpers.iter().filter(|(_, h)| over(h)).map(|(&id, _)| id).collect();
        for id in ids {
            let work = self.helpers.get_mut(&id).and_then(|h| h.work.as_mut());
            let caller = work.and_then(|work| work.caller.take());
            let late = |(caller, _)| Delivery::without_file(caller, OperationReply::TimedOut);
            self.replies.extend(caller.map(late));
            self.end(id, now);
        }
        if self.waiting.iter().any(|request| request.is_late(now)) {
            self.give_up_where(|_, request| request.is_late(now).then_some(OperationReply::TimedOut));
        }
        self.dying.reap(now);
        self.look_at_hanging(now);
        self.assign(now, register);
    }

    /// When to call [`Pool::on_time`] at the latest.
    pub fn timeout(&self) -> Option<Now> {
        let helpers = self.helpers.values().map(|h| match &h.work {
            Some(work) => work.deadline(),
            None => h.idle_since + IDLE_LIMIT,
        });
        // Then it leaves its place to one that waits.
        let slow = self.works().filter(|work| !self.waiting.is_empty() && !work.is_slow(self.now));
        let slow = slow.map(|work| work.since + SLOW);
        let late = self.waiting.iter().filter_map(|r| r.caller.as_ref().map(|(_, deadline)| *deadline));
        let killed = [self.another_at(), self.dying.timeout(), self.hanging.timeout()];
        helpers.chain(slow).chain(late).chain(killed.into_iter().flatten()).min()
    }
}

impl<C> Drop for Pool<C> {
    fn drop(&mut self) {
        for id in self.helpers.keys().copied().collect::<Vec<_>>() {
            self.end(id, self.now);
        }
    }
}

#[cfg(test)]
mod tests;
