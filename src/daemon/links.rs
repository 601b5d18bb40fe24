//! The link table's place in the loop: notifications in, requests out by way of a helper, and the
//! jobs that wait for a link.
//!
//! Must stay true: the notification socket is read until it is empty before a mark is made and before
//! a reply is applied (see [`crate::links`]); every request is answered once, also when its helper
//! dies; no call waits.

use super::source::{Source, Sources};
use crate::engine::JobId;
use crate::helper::dying::Dying;
use crate::helper::pool::Launcher;
use crate::links::{Change, Origin, Reply, Table};
use crate::model::event::BuildFnv;
use crate::model::{Errno, IfIndex, Now};
use crate::sys::child::Child;
use crate::sys::netlink::Batch;
use crate::sys::unix;
use bstr::BString;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// A link that is not in the table is asked for after this time: its notification comes 0.1 to 0.7 ms
/// after the uevent (design.md section 3).
const PATIENCE: Duration = Duration::from_millis(5);

/// Bytes of the largest reply: the kernel builds dumps in pieces of 32 KiB.
const MAX_DATAGRAM: usize = 64 * 1024;

/// Bytes of one notification: about 1.5 KiB, more with many alternative names.
const MAX_NOTIFICATION: usize = 16 * 1024;

/// Batches of notifications read in one go.
const MAX_BATCHES: usize = 256;

/// Bytes of requests in one datagram to the helper.
const MAX_REQUESTS: usize = 16 * 1024;

/// A dump or a request for a link is waited for this long. Whoever holds RTNL that long is at fault,
/// but it must not cost us a job.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// Between a dump that failed and the next.
const DUMP_PAUSE: Duration = Duration::from_secs(1);

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtnlFor {
    Dump,
    /// The row of a link that parked jobs wait for.
    Link(IfIndex),
    /// Whatever a job wants: the reply goes to [`Answered::replies`].
    Job(JobId),
    /// The driver that a job wants to know: [`Answered::drivers`].
    Driver(JobId),
}

/// A job that waits for a link.
#[derive(Clone, Debug)]
pub struct Parked {
    pub job: JobId,
    /// Ask the kernel at this time, if nothing came until then; None: it was asked.
    request_at: Option<Now>,
    /// Only a row that was asked for will do.
    wants_reply: bool,
}

/// What reading brought.
#[derive(Debug, Default)]
pub struct Answered {
    /// Jobs whose links were heard of, or will not be.
    pub heard: Vec<JobId>,
    /// Replies to requests of jobs.
    pub replies: Vec<(JobId, Reply)>,
    /// Names of drivers, empty if the driver has none to tell.
    pub drivers: Vec<(JobId, Result<BString, Errno>)>,
}

struct Helper {
    id: u64,
    child: Child,
    socket: OwnedFd,
}

/// See the module.
pub struct Links {
    pub table: Table,
    /// Subscribed to RTNLGRP_LINK; None where links come from a tree of files.
    socket: Option<OwnedFd>,
    launcher: Launcher,
    helper: Option<Helper>,
    next_helper: u64,
    /// Requests of this turn, and those that the helper's socket had no room for.
    outbox: VecDeque<Vec<u8>>,
    requests: HashMap<u32, (RtnlFor, Now), BuildFnv>,
    parked: HashMap<IfIndex, Vec<Parked>, BuildFnv>,
    changes: Vec<Change>,
    batch: Batch,
    /// For replies.
    buffer: Vec<u8>,
    ready: bool,
    /// The last dump ended with an error: the next one has to wait.
    dump_failed: bool,
    dump_not_before: Now,
    dying: Dying,
    /// Overruns of the notification socket since the start.
    pub overruns: u64,
}

impl Links {
    /// With a subscribed socket, or without links.
    pub fn new(socket: Option<OwnedFd>, launcher: Launcher) -> Links {
        Links {
            table: Table::new(),
            socket,
            launcher,
            helper: None,
            next_helper: 0,
            outbox: VecDeque::new(),
            requests: HashMap::default(),
            parked: HashMap::default(),
            changes: Vec::new(),
            batch: Batch::new(MAX_NOTIFICATION),
            buffer: vec![0; MAX_DATAGRAM],
            ready: false,
            dump_failed: false,
            dump_not_before: Now::ZERO,
            dying: Dying::default(),
            overruns: 0,
        }
    }

    /// Whether nothing is known to be missing in the table.
    pub fn is_complete(&self) -> bool {
        !self.is_live() || !self.table.is_stale()
    }

    /// Whether the table speaks for sysfs.
    pub fn is_live(&self) -> bool {
        self.socket.is_some()
    }

    /// Watches the socket and asks for all links.
    pub fn start(&mut self, sources: &Sources, now: Now) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        sources.add(socket.as_fd(), Source::Links)?;
        self.dump_if_needed(sources, now);
        self.send_requests();
        Ok(())
    }

    /// Whether a request is on its way.
    pub fn is_waiting(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Jobs that wait for links.
    pub fn parked(&self) -> usize {
        self.parked.values().map(Vec::len).sum()
    }

    /// A job needs a link that the table does not know: told when the table hears of it, or when the
    /// kernel has answered a request that is made after 5 ms.
    pub fn park(&mut self, job: JobId, ifindex: IfIndex, now: Now) {
        let parked = Parked { job, request_at: Some(now + PATIENCE), wants_reply: false };
        self.parked.entry(ifindex).or_default().push(parked);
    }

    /// A job needs the row as it is now: the kernel is asked at once, and the job is told when it has
    /// answered.
    pub fn refresh(&mut self, sources: &Sources, job: JobId, ifindex: IfIndex, statistics: bool, now: Now) {
        self.parked.entry(ifindex).or_default().push(Parked { job, request_at: None, wants_reply: true });
        self.request_link(sources, ifindex, statistics, now);
    }

    fn request_link(&mut self, sources: &Sources, ifindex: IfIndex, with_statistics: bool, now: Now) {
        let (seq, bytes) = self.table.request(ifindex, with_statistics);
        self.request(sources, seq, bytes, RtnlFor::Link(ifindex), now + REQUEST_LIMIT);
    }

    /// Sends a request (its sequence number from [`Table::next_seq`]) by the helper. Its reply comes
    /// by [`Links::take_answers`] at the latest at the deadline, then as ETIMEDOUT.
    pub fn request(&mut self, sources: &Sources, seq: u32, bytes: Vec<u8>, what: RtnlFor, deadline: Now) {
        self.requests.insert(seq, (what, deadline));
        if self.helper.is_none()
            && let Err(error) = self.start_helper(sources)
        {
            log::error!("Cannot start the helper for rtnetlink: {error}");
            // Answered as by a dead helper, at the next look at the time.
            self.requests.insert(seq, (what, Now::ZERO));
            return;
        }
        self.outbox.push_back(bytes);
    }

    fn start_helper(&mut self, sources: &Sources) -> io::Result<()> {
        let (child, socket) = self.launcher.start(crate::helper::RTNL)?;
        let id = self.next_helper;
        self.next_helper += 1;
        if let Err(error) = sources.add(socket.as_fd(), Source::Rtnl(id)) {
            // Its socket is closed: it ends.
            self.dying.push(child);
            return Err(error);
        }
        self.helper = Some(Helper { id, child, socket });
        Ok(())
    }

    /// Hands the helper what a turn has brought, in one datagram where it fits. Must be called before the loop
    /// waits.
    pub fn send_requests(&mut self) {
        let Some(helper) = &self.helper else { return };
        while !self.outbox.is_empty() {
            let count = fitting(&self.outbox);
            let datagram: Vec<u8> = self.outbox.iter().take(count).flatten().copied().collect();
            match unix::send(helper.socket.as_fd(), &datagram) {
                Ok(()) => drop(self.outbox.drain(..count)),
                // Full: the rest goes when it has replied. Or at its end, which is read from its socket.
                Err(_) => return,
            }
        }
    }

    /// The socket has become readable.
    pub fn set_ready(&mut self) {
        self.ready = true;
    }

    /// Whether the socket was not read to its end.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Reads notifications until there are none (or the share of this turn is used up).
    pub fn read_notifications(&mut self) {
        let Some(socket) = &self.socket else { return };
        self.ready = false;
        for _ in 0..MAX_BATCHES {
            match self.batch.receive(socket.as_fd()) {
                Ok(_) => {
                    for (received, bytes) in self.batch.iter().filter(|(r, _)| r.sender.portid == 0) {
                        let applied = self.table.apply(bytes, Origin::Notification, &mut self.changes);
                        if received.truncated || applied.malformed {
                            log::warn!(
                                "A notification of links was not understood, asking for all links again"
                            );
                            self.table.lose();
                        }
                    }
                    if self.batch.is_short() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.overruns += 1;
                    log::warn!("Notifications of links were lost, asking for all links again");
                    self.table.lose();
                }
                Err(error) => return log::error!("Cannot read notifications of links: {error}"),
            }
        }
        self.ready = true;
    }

    /// Begins a dump where the table needs one.
    pub fn dump_if_needed(&mut self, sources: &Sources, now: Now) {
        if std::mem::take(&mut self.dump_failed) {
            self.dump_not_before = now + DUMP_PAUSE;
        }
        if self.is_live() && self.table.wants_dump() && self.dump_not_before <= now {
            let (seq, bytes) = self.table.begin_dump();
            self.request(sources, seq, bytes, RtnlFor::Dump, now + REQUEST_LIMIT);
        }
    }

    /// The helper's socket is readable. Replies are applied; notifications were read just before, and
    /// are read again before each datagram, because the kernel sends both sides as it goes.
    pub fn on_helper(&mut self, id: u64, answered: &mut Answered) {
        if self.helper.as_ref().is_none_or(|h| h.id != id) {
            return;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(helper) = &self.helper {
            match unix::receive(helper.socket.as_fd(), &mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(received) if received.len > 0 => {
                    self.read_notifications();
                    self.on_reply(&buffer[..received.len], answered);
                }
                _ => self.helper_died(answered),
            }
        }
        self.buffer = buffer;
    }

    fn on_reply(&mut self, bytes: &[u8], answered: &mut Answered) {
        let applied = self.table.apply(bytes, Origin::Reply, &mut self.changes);
        if applied.malformed {
            log::warn!("A reply of rtnetlink was not understood");
        }
        if let Some(reply) = applied.reply {
            self.finish_request(reply, answered);
        }
    }

    fn finish_request(&mut self, reply: Reply, answered: &mut Answered) {
        match self.requests.remove(&reply.seq) {
            Some((RtnlFor::Dump, _)) => {
                let good = self.table.end_dump(&reply, &mut self.changes);
                log::debug!("The dump of links is {}", if good { "complete" } else { "to be made again" });
                self.dump_failed = reply.result.is_err();
            }
            Some((RtnlFor::Link(ifindex), _)) => {
                // Any other error says nothing about the link.
                if reply.result == Err(Errno(libc::ENODEV)) {
                    self.table.note_absent(ifindex, reply.seq);
                }
                self.release(ifindex, answered);
            }
            Some((RtnlFor::Job(job), _)) => answered.replies.push((job, reply)),
            Some((RtnlFor::Driver(job), _)) => {
                answered.drivers.push((job, reply.result.map(|()| reply.text)));
            }
            None => {}
        }
    }

    fn helper_died(&mut self, answered: &mut Answered) {
        let Some(helper) = self.helper.take() else { return };
        log::warn!("The helper for rtnetlink died");
        let _ = helper.child.signal(libc::SIGKILL);
        self.dying.push(helper.child);
        self.outbox.clear();
        for seq in self.requests.keys().copied().collect::<Vec<_>>() {
            self.fail_request(seq, Errno(libc::EIO), answered);
        }
    }

    fn fail_request(&mut self, seq: u32, errno: Errno, answered: &mut Answered) {
        if matches!(self.requests.get(&seq), Some((RtnlFor::Dump, _))) {
            self.requests.remove(&seq);
            self.table.abandon_dump();
            self.dump_failed = true;
            return;
        }
        let reply = Reply { seq, result: Err(errno), text: BString::default(), interrupted: false };
        self.finish_request(reply, answered);
    }

    fn release(&mut self, ifindex: IfIndex, answered: &mut Answered) {
        let parked = self.parked.remove(&ifindex).unwrap_or_default();
        answered.heard.extend(parked.into_iter().map(|p| p.job));
    }

    /// Jobs whose links the table has heard of since the last call. Those that want a fresh row wait for
    /// the reply.
    pub fn take_heard(&mut self, answered: &mut Answered) {
        for change in std::mem::take(&mut self.changes) {
            let Some(parked) = self.parked.get_mut(&change.ifindex) else { continue };
            answered.heard.extend(parked.extract_if(.., |p| !p.wants_reply).map(|p| p.job));
            if parked.is_empty() {
                self.parked.remove(&change.ifindex);
            }
        }
    }

    /// Requests that are due, and those past their deadline.
    pub fn on_time(&mut self, sources: &Sources, now: Now, answered: &mut Answered) {
        self.dying.reap(now);
        let late = self.requests.iter().filter(|(_, (_, deadline))| *deadline <= now);
        for seq in late.map(|(&seq, _)| seq).collect::<Vec<_>>() {
            self.fail_request(seq, Errno(libc::ETIMEDOUT), answered);
        }
        let mut due = Vec::new();
        for (&ifindex, parked) in &mut self.parked {
            let before = due.len();
            for one in parked.iter_mut().filter(|p| p.request_at.is_some_and(|at| at <= now)) {
                one.request_at = None;
                due.truncate(before);
                due.push(ifindex);
            }
        }
        for ifindex in due {
            self.request_link(sources, ifindex, false, now);
        }
        self.dump_if_needed(sources, now);
    }

    /// When to call [`Links::on_time`].
    pub fn timeout(&self) -> Option<Now> {
        let parked = self.parked.values().flatten().filter_map(|p| p.request_at);
        let dump = (self.is_live() && self.table.wants_dump()).then_some(self.dump_not_before);
        let requests = self.requests.values().map(|(_, deadline)| *deadline);
        parked.chain(dump).chain(requests).chain(self.dying.timeout()).min()
    }
}

/// How many messages from the front go into one datagram: at least one. All are padded to whole words.
fn fitting(messages: &VecDeque<Vec<u8>>) -> usize {
    let mut bytes = 0;
    let fits = |message: &&Vec<u8>| {
        bytes += message.len();
        bytes <= MAX_REQUESTS
    };
    messages.iter().take_while(fits).count().max(1)
}

impl Drop for Links {
    fn drop(&mut self) {
        if let Some(helper) = &self.helper {
            let _ = helper.child.signal(libc::SIGKILL);
        }
    }
}
