//! The link table's place in the loop: notifications in, requests out by way of a helper, and the
//! jobs that wait for a link.
//!
//! Must stay true: what is read and sent goes by [`Exchange`], which decides when a request may leave and when a
//! reply counts; a turn reads a bounded number of messages; every request is answered once, also when its
//! helper dies; no call waits.

use super::source::{Source, Sources};
use crate::engine::JobId;
use crate::helper::dying::Dying;
use crate::helper::hanging::SlowHelper;
use crate::helper::pool::Launcher;
use crate::links::wire::DATAGRAM_MAX;
use crate::links::{Ended, Errand, Exchange, Reply};
use crate::model::fnv::BuildFnv;
use crate::model::{Errno, IfIndex, Now};
use crate::sys::child::Child;
use crate::sys::netlink::Batch;
use crate::sys::unix;
use crate::world::quota;
use bstr::BString;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// A link that is not in the table is asked for after this time: its notification comes 0.1 to 0.7 ms
/// after the uevent (builtins.md 3.4).
const PATIENCE: Duration = Duration::from_millis(5);

/// Bytes of one notification: about 1.5 KiB, more with many alternative names. A longer one makes the buffer
/// grow.
const NOTIFICATION: usize = 16 * 1024;

/// Batches of notifications read in one go; the rest has to wait for the next turn.
const MAX_BATCHES: usize = 64;

/// Replies read in one turn.
const MAX_REPLIES: usize = 32;

/// Bytes of requests in one datagram to the helper.
const MAX_REQUESTS: usize = 16 * 1024;

/// A dump or a request for a link is waited for this long. Whoever holds RTNL that long is at fault,
/// but it must not cost us a job.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// While an answer is waited for, a helper that somebody may have stopped is told to go on once in this time. A daemon
/// that is to end waits as long for a change past its deadline.
const NUDGE: Duration = Duration::from_secs(1);

/// Between a dump that failed and the next.
const DUMP_PAUSE: Duration = Duration::from_secs(1);

/// After this time it is tried again to send what the kernel had no memory for.
const SEND_PAUSE: Duration = Duration::from_millis(20);

/// Who has asked for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtnlFor {
    /// The reply goes to [`Answered::replies`].
    Job(JobId),
    /// A job that wants to know a driver: [`Answered::drivers`].
    Driver(JobId),
}

/// A job that waits for a link.
#[derive(Clone, Debug)]
pub struct Parked {
    pub job: JobId,
    /// Ask the kernel at this time, if nothing came until then; None: it was asked.
    request_at: Option<Now>,
    /// Only the row that was asked for under this ticket will do, or a later one.
    ticket: Option<u64>,
}

/// What reading brought.
#[derive(Debug, Default)]
pub struct Answered {
    /// Jobs that waited until the socket was read to its end.
    pub caught_up: Vec<JobId>,
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
    /// There may be replies.
    ready: bool,
}

/// See the module.
pub struct Links {
    pub exchange: Exchange<RtnlFor>,
    /// Subscribed to RTNLGRP_LINK; None where links come from a tree of files.
    socket: Option<OwnedFd>,
    launcher: Launcher,
    helper: Option<Helper>,
    next_helper: u64,
    /// What the helper's socket had no room for.
    outgoing: Option<Vec<u8>>,
    /// When to try again to send it, if nobody else says that there is room.
    send_at: Option<Now>,
    parked: HashMap<IfIndex, Vec<Parked>, BuildFnv>,
    /// The last one that was given out.
    ticket: u64,
    /// Jobs that go on when the socket was read to its end.
    behind: Vec<JobId>,
    batch: Batch,
    /// For replies.
    buffer: Vec<u8>,
    /// The socket was not read to its end.
    ready: bool,
    dump_not_before: Now,
    /// When the helper is told to go on.
    nudge_at: Option<Now>,
    said: Said,
    dying: Dying,
    /// Overruns of the notification socket since the start.
    pub overruns: u64,
}

/// Why something could not be sent to the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsent {
    /// It goes when the helper has replied.
    UntilRoom,
    /// For want of memory.
    Later,
    /// That is read from its socket, and all that it has not answered is asked again.
    HelperIsGone,
    /// This will never be sent: it is too long.
    Never(Errno),
}

impl Unsent {
    fn of(error: &io::Error) -> Unsent {
        match Errno::of(error) {
            Errno(libc::EAGAIN) => Unsent::UntilRoom,
            Errno(libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => Unsent::Later,
            Errno(libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN) => Unsent::HelperIsGone,
            errno => Unsent::Never(errno),
        }
    }
}

/// What was said and need not be said again.
#[derive(Default)]
struct Said {
    /// A message is longer than what is read.
    too_long: bool,
    /// Until one succeeds.
    dump_failed: bool,
    /// Until one starts.
    no_helper: bool,
}

impl Links {
    /// With a subscribed socket, or without links.
    pub fn new(socket: Option<OwnedFd>, launcher: Launcher) -> Links {
        let mut exchange = Exchange::default();
        if socket.is_some() {
            exchange.table.speak_for_sysfs();
        }
        Links {
            exchange,
            socket,
            launcher,
            helper: None,
            next_helper: 0,
            outgoing: None,
            send_at: None,
            parked: HashMap::default(),
            ticket: 0,
            behind: Vec::new(),
            batch: Batch::new(NOTIFICATION),
            buffer: vec![0; DATAGRAM_MAX],
            ready: true,
            dump_not_before: Now::ZERO,
            nudge_at: None,
            said: Said::default(),
            dying: Dying::default(),
            overruns: 0,
        }
    }

    /// Whether nothing is known to be missing in the table.
    pub fn is_complete(&self) -> bool {
        !self.is_live() || !self.exchange.table.is_stale()
    }

    /// Whether waiting for all links is of use: a dump that failed has said so.
    pub fn is_settled(&self) -> bool {
        self.is_complete() || self.said.dump_failed
    }

    /// Whether the table speaks for sysfs.
    pub fn is_live(&self) -> bool {
        self.exchange.table.speaks_for_sysfs()
    }

    /// Watches the socket and asks for all links.
    pub fn start(&mut self, sources: &Sources, now: Now) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        sources.add(socket.as_fd(), Source::Links)?;
        // Nobody waits yet for what this may bring.
        self.want_dump(now);
        self.send_requests(sources, now, &mut Answered::default());
        Ok(())
    }

    /// Jobs that wait for links.
    pub fn parked(&self) -> usize {
        self.parked.values().map(Vec::len).sum::<usize>() + self.behind.len()
    }

    /// A job needs a link that the table does not know: told when the table hears of it, or when the
    /// kernel has answered a request that is made after 5 ms.
    pub fn park(&mut self, job: JobId, ifindex: IfIndex, now: Now) {
        let parked = Parked { job, request_at: Some(now + PATIENCE), ticket: None };
        self.parked.entry(ifindex).or_default().push(parked);
    }

    /// A job may not ask for links before the table has caught up ([`crate::links::Table::is_behind`]): the socket is read
    /// in the next turn, whether or not something comes.
    pub fn park_until_read(&mut self, job: JobId) {
        self.behind.push(job);
        self.ready = true;
    }

    /// A job needs the row as it is now: the kernel is asked at once, and the job is told when it has
    /// answered.
    pub fn refresh(&mut self, job: JobId, ifindex: IfIndex, statistics: bool, now: Now) {
        let ticket = self.ask_link(ifindex, statistics, now);
        self.parked.entry(ifindex).or_default().push(Parked { job, request_at: None, ticket: Some(ticket) });
    }

    fn ask_link(&mut self, ifindex: IfIndex, statistics: bool, now: Now) -> u64 {
        self.ticket += 1;
        let ticket = self.ticket;
        self.exchange.ask(Errand::Link { ifindex, statistics, ticket }, now + REQUEST_LIMIT);
        ticket
    }

    /// Has the helper send a request; its sequence number is filled in. Its reply comes with [`Answered`], at the
    /// deadline as ETIMEDOUT, which means that it was not carried out and will not be.
    pub fn request(&mut self, message: Vec<u8>, who: RtnlFor, deadline: Now) {
        self.exchange.ask(Errand::Message { message, who }, deadline);
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
        self.helper = Some(Helper { id, child, socket, ready: false });
        Ok(())
    }

    /// Hands the helper what a turn has brought, in one datagram where it fits. Must be called before the loop
    /// waits.
    pub fn send_requests(&mut self, sources: &Sources, now: Now, answered: &mut Answered) {
        self.send_outgoing(now);
        if self.outgoing.is_some() || !self.exchange.has_waiting(now) {
            return;
        }
        // Mostly the turn began with that, and nothing was read since.
        if !self.exchange.may_issue() && !self.catch_up(now, answered) {
            return;
        }
        if self.helper.is_none() {
            let started = self.start_helper(sources);
            let was_said = std::mem::replace(&mut self.said.no_helper, started.is_err());
            if let Err(error) = started {
                if !was_said {
                    log::error!("Cannot start the helper for rtnetlink: {error}");
                }
                self.exchange.fail_waiting(Errno(libc::EIO));
            }
        }
        while self.outgoing.is_none()
            && let Some(datagram) = self.exchange.issue(MAX_REQUESTS, now)
        {
            self.outgoing = Some(datagram);
            self.send_outgoing(now);
        }
        self.collect(now, answered);
    }

    /// An error leaves nobody without a reply: what may succeed later is tried again, and of anything else who asked is
    /// told.
    fn send_outgoing(&mut self, now: Now) {
        let (Some(helper), Some(datagram)) = (&self.helper, &self.outgoing) else { return };
        let sent = unix::send(helper.socket.as_fd(), datagram);
        self.send_at = None;
        match sent.map_err(|error| Unsent::of(&error)) {
            Err(Unsent::UntilRoom) => {}
            Err(Unsent::Later) => self.send_at = Some(now + SEND_PAUSE),
            Ok(()) | Err(Unsent::HelperIsGone) => self.outgoing = None,
            Err(Unsent::Never(errno)) => {
                log::warn!("Cannot send a request of {} bytes for links: {errno}", datagram.len());
                self.outgoing = None;
                self.exchange.was_not_sent(errno);
            }
        }
    }

    /// The socket of notifications has become readable.
    pub fn set_ready(&mut self) {
        self.ready = true;
    }

    /// The socket of this helper has become readable.
    pub fn set_helper_ready(&mut self, id: u64) {
        if let Some(helper) = self.helper.as_mut().filter(|helper| helper.id == id) {
            helper.ready = true;
        }
    }

    /// Whether there is something to read.
    pub fn is_ready(&self) -> bool {
        self.is_live()
            && (self.ready
                || self.exchange.holds()
                || self.helper.as_ref().is_some_and(|helper| helper.ready))
    }

    /// Reads replies and notifications, as much as a turn may. `uevents_came`: uevents were read since the last
    /// call, which nothing may be said about before this has read all that was sent before them.
    pub fn read(&mut self, uevents_came: bool, now: Now, answered: &mut Answered) {
        if !self.is_live() {
            return;
        }
        self.receive_replies();
        if uevents_came || self.ready || self.exchange.holds() {
            let is_behind = !self.catch_up(now, answered);
            if is_behind && uevents_came {
                self.exchange.table.fall_behind();
            }
        }
        self.collect(now, answered);
        self.want_dump(now);
    }

    /// Reads notifications; true if there are no more, and what was held for that is done.
    fn catch_up(&mut self, now: Now, answered: &mut Answered) -> bool {
        if !self.read_to_the_end() {
            return false;
        }
        if !self.exchange.caught_up(now) {
            log::warn!(target: quota::LINKS, "A reply of rtnetlink was not understood");
        }
        answered.caught_up.append(&mut self.behind);
        true
    }

    /// Reads notifications until there are none; false if the share of this turn was used up before.
    ///
    /// A batch that is not full may have been ended by an overrun: only "would block" means that there are none.
    fn read_to_the_end(&mut self) -> bool {
        let Some(socket) = &self.socket else { return true };
        self.ready = true;
        for _ in 0..MAX_BATCHES {
            match self.batch.receive(socket.as_fd()) {
                Ok(_) => {
                    let mut longest = None;
                    for (received, bytes) in self.batch.iter().filter(|(r, _)| r.sender.portid == 0) {
                        if received.truncated {
                            longest = longest.max(Some(received.len));
                            self.exchange.table.lose();
                        } else if !self.exchange.notification(bytes) {
                            log::warn!(
                                target: quota::LINKS,
                                "A message of links was not understood: all of them are asked for again"
                            );
                        }
                    }
                    if let Some(length) = longest {
                        make_room(&mut self.batch, &mut self.said, length);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.ready = false;
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // ENOBUFS is an overrun, and whatever else it may be a message of links that was not sent.
                Err(error) => {
                    self.overruns += 1;
                    log::warn!("Messages of links were lost, all of them are asked for again: {error}");
                    self.exchange.table.lose();
                }
            }
        }
        false
    }

    /// Asks for all links where the table needs it.
    fn want_dump(&mut self, now: Now) {
        if self.is_live() && self.exchange.wants_dump() && self.dump_not_before <= now {
            self.exchange.want_dump(now + REQUEST_LIMIT);
        }
    }

    /// Takes what the helper has sent, as long as nothing is held back.
    fn receive_replies(&mut self) {
        let Some(helper) = self.helper.as_mut().filter(|helper| helper.ready) else { return };
        if self.exchange.holds() {
            return;
        }
        for _ in 0..MAX_REPLIES {
            match unix::receive(helper.socket.as_fd(), &mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    helper.ready = false;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(received) if received.len > 0 => self.exchange.hold(&self.buffer[..received.len]),
                _ => return self.helper_died(),
            }
        }
    }

    fn helper_died(&mut self) {
        let Some(helper) = self.helper.take() else { return };
        log::warn!("The helper for rtnetlink died");
        let _ = helper.child.signal(libc::SIGKILL);
        self.dying.push(helper.child);
        (self.outgoing, self.send_at) = (None, None);
        self.exchange.hold_death();
    }

    /// Tells jobs what the exchange has brought. Those that want a fresh row wait for the reply to their own
    /// request: one that was asked before may be older than what they want to know.
    fn collect(&mut self, now: Now, answered: &mut Answered) {
        for change in self.exchange.take_changes() {
            self.release(change.ifindex, 0, answered);
        }
        for ended in self.exchange.take_ended() {
            match ended {
                Ended::Dump { good, result } => self.dump_ended(good, result, now),
                Ended::Link { ifindex, ticket } => self.release(ifindex, ticket, answered),
                Ended::Message(RtnlFor::Job(job), reply) => answered.replies.push((job, reply)),
                Ended::Message(RtnlFor::Driver(job), reply) => {
                    answered.drivers.push((job, reply.result.map(|()| reply.text)));
                }
            }
        }
    }

    /// Jobs that wait for this link, up to those with this ticket.
    fn release(&mut self, ifindex: IfIndex, ticket: u64, answered: &mut Answered) {
        let Some(parked) = self.parked.get_mut(&ifindex) else { return };
        let heard = parked.extract_if(.., |p| p.ticket.is_none_or(|wanted| wanted <= ticket));
        answered.heard.extend(heard.map(|p| p.job));
        if parked.is_empty() {
            self.parked.remove(&ifindex);
        }
    }

    fn dump_ended(&mut self, good: bool, result: Result<(), Errno>, now: Now) {
        log::debug!("The dump of links is {}", if good { "complete" } else { "to be made again" });
        if let Err(errno) = result {
            self.dump_not_before = now + DUMP_PAUSE;
            if !self.said.dump_failed {
                log::error!("Cannot read all links, tried again every {} s: {errno}", DUMP_PAUSE.as_secs());
            }
        }
        // One that was only interrupted says nothing new.
        self.said.dump_failed = !good && (result.is_err() || self.said.dump_failed);
    }

    /// Requests that are due, and those past their deadline.
    pub fn on_time(&mut self, now: Now, answered: &mut Answered) {
        self.dying.reap(now);
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
            self.ask_link(ifindex, false, now);
        }
        if self.exchange.timeout().is_some_and(|at| at <= now) {
            self.expire(now);
        }
        self.nudge(now);
        self.collect(now, answered);
        self.want_dump(now);
    }

    /// What the helper has sent by now comes first: it may be the reply to what is late, and it says what the
    /// helper has begun.
    fn expire(&mut self, now: Now) {
        if let Some(helper) = &mut self.helper {
            helper.ready = true;
        }
        self.receive_replies();
        let is_taken = self.helper.as_ref().is_none_or(|helper| !helper.ready) && !self.exchange.holds();
        if is_taken && self.exchange.expire(now) > 0 {
            log::warn!("A change of a link has no end by the time of its event, which waits for it");
        }
    }

    /// What has no answer for long is in the kernel's hands, or its helper was stopped. That one is told to go on: then it
    /// does what there is time for, and answers of all else that it has not begun.
    fn nudge(&mut self, now: Now) {
        let Some(at) = self.next_nudge() else {
            self.nudge_at = None;
            return;
        };
        if at <= now {
            self.nudge_at = Some(now + NUDGE);
            if let Some(helper) = &self.helper {
                let _ = helper.child.signal(libc::SIGCONT);
            }
        }
    }

    fn next_nudge(&self) -> Option<Now> {
        let since = self.exchange.waits_since()?;
        Some(self.nudge_at.map_or(since + NUDGE, |at| at.max(since + NUDGE)))
    }

    /// Whether the last job may be left: the end of its change may never come.
    pub fn may_be_left(&self, now: Now) -> bool {
        self.exchange.overdue().is_some_and(|(_, deadline)| deadline + NUDGE <= now)
    }

    /// The helper, where it has been at a change for longer than its event has time.
    pub fn slow(&self) -> Option<SlowHelper> {
        let (helper, (since, _)) = (self.helper.as_ref()?, self.exchange.overdue()?);
        let work = "a change of a link".to_owned();
        Some(SlowHelper {
            pid: helper.child.pid(),
            work,
            since: since.since_boot().as_secs_f64(),
            hangs: false,
        })
    }

    /// When to call [`Links::on_time`].
    pub fn timeout(&self) -> Option<Now> {
        let parked = self.parked.values().flatten().filter_map(|p| p.request_at);
        let dump = (self.is_live() && self.exchange.wants_dump()).then_some(self.dump_not_before);
        let times = [self.exchange.timeout(), self.next_nudge(), self.send_at, self.dying.timeout()];
        parked.chain(dump).chain(times.into_iter().flatten()).min()
    }
}

/// A message of this length did not fit.
fn make_room(batch: &mut Batch, said: &mut Said, length: usize) {
    if length <= DATAGRAM_MAX {
        log::info!("A message of links has {length} bytes: all of them are asked for again, with more room");
        batch.grow(length.next_power_of_two());
    } else if !std::mem::replace(&mut said.too_long, true) {
        log::error!("A message of links has {length} bytes and cannot be read: the limit is {DATAGRAM_MAX}");
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        if let Some(helper) = &self.helper {
            let _ = helper.child.signal(libc::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests;
