//! In which order notifications, requests and replies go in and out of a [`Table`], without I/O.
//!
//! Must stay true:
//!
//! * The two rules of [`super::table`]: requests leave right after the socket of notifications was found empty
//!   ([`Exchange::issue`]), replies wait until it was found empty once more ([`Exchange::caught_up`]). It does no
//!   harm where a request or a reply lies meanwhile.
//! * Every errand ends once ([`Ended`]), also one whose request could not be sent ([`Exchange::was_not_sent`]).
//! * *A change that ended as failed is not carried out later.* The helper works on requests in order and gives
//!   none to the kernel past its deadline ([`wire::GIVE_BY`]). So of those sent only the oldest may be
//!   in the kernel's hands; the others are withdrawn at their deadlines, as are those not sent. The oldest change
//!   is waited for as long as it takes: nothing can call it back, not even the death of the helper.
//! * Requests that a dead helper has left unanswered are given to the next one, once: reading does no harm, and each
//!   change of ours leads to the same when it is made twice.

use super::table::{Change, Origin, Table};
use super::wire::{self, Builder};
use super::{Reply, request};
use crate::model::{Errno, IfIndex, Now};
use bstr::BString;
use std::collections::VecDeque;
use std::time::Duration;

/// How often a request is sent: a helper that dies twice over it may die because of it.
const TRIES: u8 = 2;

/// For a change that a dead helper may have made: time to learn what became of it.
const SECOND_TRY: Duration = Duration::from_secs(30);

/// A question or change for the kernel. `W` names the asker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand<W> {
    /// All links: [`Exchange::want_dump`].
    Dump,
    /// The row of a link, as it is now. The ticket comes back when it has ended.
    Link { ifindex: IfIndex, statistics: bool, ticket: u64 },
    /// A finished request; its sequence number is filled in when it leaves.
    Message { message: Vec<u8>, who: W },
}

impl<W> Errand<W> {
    fn is_change(&self) -> bool {
        matches!(self, Errand::Message { message, .. } if wire::is_change(message))
    }

    /// Bytes that its request takes in a datagram, at most.
    fn size(&self) -> usize {
        match self {
            Errand::Dump | Errand::Link { .. } => 128,
            Errand::Message { message, .. } => message.len() + 32,
        }
    }
}

/// How an errand ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended<W> {
    /// `good`: the table is right. Otherwise another dump has to be asked for; an error says that it is of no
    /// use to do so at once.
    Dump {
        good: bool,
        result: Result<(), Errno>,
    },
    /// The table knows the link as it is now, or as much of it as can be known.
    Link {
        ifindex: IfIndex,
        ticket: u64,
    },
    Message(W, Reply),
}

#[derive(Clone, Debug)]
struct Waiting<W> {
    errand: Errand<W>,
    deadline: Now,
    /// How often it was sent.
    tries: u8,
}

#[derive(Clone, Debug)]
struct Sent<W> {
    seq: u32,
    /// None: the errand has ended for the asker, but the helper has not answered yet.
    errand: Option<Errand<W>>,
    since: Now,
    deadline: Now,
    tries: u8,
    /// It is past its deadline, and waited for.
    overdue: bool,
}

/// What came from the helper.
#[derive(Clone, Debug)]
enum Held {
    Datagram(Vec<u8>),
    Death,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Exchange<W> {
    pub table: Table,
    waiting: VecDeque<Waiting<W>>,
    /// In the order of sending, in which they are answered.
    sent: VecDeque<Sent<W>>,
    /// How many of them, at the end, the last datagram of [`Exchange::issue`] has.
    issued: usize,
    held: VecDeque<Held>,
    changes: Vec<Change>,
    ended: Vec<Ended<W>>,
    /// A dump waits to be sent.
    dump_waits: bool,
    /// A part of a reply was not understood.
    malformed: bool,
}

impl<W> Default for Exchange<W> {
    fn default() -> Exchange<W> {
        Exchange {
            table: Table::new(),
            waiting: VecDeque::new(),
            sent: VecDeque::new(),
            issued: 0,
            held: VecDeque::new(),
            changes: Vec::new(),
            ended: Vec::new(),
            dump_waits: false,
            malformed: false,
        }
    }
}

impl<W> Exchange<W> {
    /// Takes a datagram of the socket of notifications; false if part of it was not understood, which counts
    /// as a loss.
    pub fn notification(&mut self, datagram: &[u8]) -> bool {
        let applied = self.table.apply(datagram, Origin::Notification, &mut self.changes);
        if applied.malformed {
            self.table.lose();
        }
        !applied.malformed
    }

    /// Keeps a datagram of the helper until [`Exchange::caught_up`].
    pub fn hold(&mut self, datagram: &[u8]) {
        self.held.push_back(Held::Datagram(datagram.to_vec()));
    }

    /// The helper has died, after all it has sent.
    pub fn hold_death(&mut self) {
        self.held.push_back(Held::Death);
    }

    /// Whether something of the helper is kept.
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// The socket of notifications was found empty: what was held counts now. False if part of it was not
    /// understood.
    pub fn caught_up(&mut self, now: Now) -> bool {
        self.table.caught_up();
        self.malformed = false;
        while let Some(held) = self.held.pop_front() {
            match held {
                Held::Datagram(datagram) => self.apply(&datagram),
                Held::Death => self.ask_again(now),
            }
        }
        !self.malformed
    }

    fn apply(&mut self, datagram: &[u8]) {
        let applied = self.table.apply(datagram, Origin::Reply, &mut self.changes);
        self.malformed |= applied.malformed;
        let Some(reply) = applied.reply else { return };
        let Some(at) = self.sent.iter().position(|sent| sent.seq == reply.seq) else { return };
        if let Some(errand) = self.sent.remove(at).and_then(|sent| sent.errand) {
            self.finish(errand, reply);
        }
    }

    /// The errand has this reply.
    fn finish(&mut self, errand: Errand<W>, reply: Reply) {
        self.ended.push(match errand {
            Errand::Dump => {
                let good = self.table.end_dump(&reply, &mut self.changes);
                let result = if self.malformed { Err(Errno(libc::EBADMSG)) } else { reply.result };
                Ended::Dump { good, result }
            }
            Errand::Link { ifindex, ticket, .. } => {
                self.table.close(reply.seq);
                // Any other error says nothing about the link.
                if reply.result == Err(Errno(libc::ENODEV)) {
                    self.table.note_absent(ifindex, reply.seq);
                }
                Ended::Link { ifindex, ticket }
            }
            Errand::Message { who, .. } => Ended::Message(who, reply),
        });
    }

    /// The errand has no reply, or will have none. `seq` is 0 where nothing was sent.
    fn fail(&mut self, errand: Errand<W>, seq: u32, errno: Errno) {
        match errand {
            Errand::Dump if seq == 0 => {
                self.dump_waits = false;
                self.ended.push(Ended::Dump { good: false, result: Err(errno) });
            }
            Errand::Link { ifindex, ticket, .. } if seq == 0 => {
                self.ended.push(Ended::Link { ifindex, ticket });
            }
            errand => {
                let reply = Reply { seq, result: Err(errno), text: BString::default(), interrupted: false };
                self.finish(errand, reply);
            }
        }
    }

    /// All that was sent to a helper that died: sent again, or failed.
    fn ask_again(&mut self, now: Now) {
        let mut again = Vec::new();
        for (n, sent) in std::mem::take(&mut self.sent).into_iter().enumerate() {
            let Some(errand) = sent.errand else { continue };
            if sent.tries >= TRIES {
                self.fail(errand, sent.seq, Errno(libc::EIO));
                continue;
            }
            match errand {
                Errand::Dump => {
                    self.table.abandon_dump();
                    self.dump_waits = true;
                }
                Errand::Link { .. } => self.table.close(sent.seq),
                Errand::Message { .. } => {}
            }
            // The oldest may have been in the kernel's hands.
            let deadline = match n == 0 && errand.is_change() {
                true => sent.deadline.max(now + SECOND_TRY),
                false => sent.deadline,
            };
            again.push(Waiting { errand, deadline, tries: sent.tries });
        }
        for waiting in again.into_iter().rev() {
            self.waiting.push_front(waiting);
        }
    }

    /// Takes an errand. It ends at its deadline at the latest, but for a change that the kernel is at.
    pub fn ask(&mut self, errand: Errand<W>, deadline: Now) {
        self.dump_waits |= matches!(errand, Errand::Dump);
        self.waiting.push_back(Waiting { errand, deadline, tries: 0 });
    }

    /// Takes the errand of a dump where the table needs one and none is under way.
    pub fn want_dump(&mut self, deadline: Now) {
        if self.wants_dump() {
            self.ask(Errand::Dump, deadline);
        }
    }

    /// Whether [`Exchange::want_dump`] would take one.
    pub fn wants_dump(&self) -> bool {
        self.table.wants_dump() && !self.dump_waits
    }

    /// Whether there is something to issue, once the socket of notifications is empty. A request that the helper has
    /// had past its deadline holds up all others: the helper still works on it.
    pub fn has_waiting(&self, now: Now) -> bool {
        !self.waiting.is_empty() && self.sent.front().is_none_or(|sent| sent.deadline > now)
    }

    /// Whether requests may leave; if not, [`Exchange::caught_up`] has to come first.
    pub fn may_issue(&self) -> bool {
        self.table.may_ask() && !self.holds()
    }

    /// A datagram of requests for the helper, of `room` bytes or of one request. None if there is nothing to
    /// send, or if it has to wait for [`Exchange::caught_up`].
    pub fn issue(&mut self, room: usize, now: Now) -> Option<Vec<u8>> {
        if !self.has_waiting(now) || !self.may_issue() {
            return None;
        }
        let mut datagram = Vec::new();
        let before = self.sent.len();
        while let Some(next) = self.waiting.front()
            && (datagram.is_empty() || datagram.len() + next.errand.size() <= room)
            && let Some(Waiting { errand, deadline, tries }) = self.waiting.pop_front()
        {
            let (seq, message) = match &errand {
                Errand::Dump => {
                    self.dump_waits = false;
                    self.table.begin_dump()
                }
                Errand::Link { ifindex, statistics, .. } => self.table.request(*ifindex, *statistics),
                Errand::Message { message, .. } => {
                    let (seq, mut message) = (self.table.next_seq(), message.clone());
                    request::set_seq(&mut message, seq);
                    (seq, message)
                }
            };
            let limit = u64::try_from(deadline.since_boot().as_nanos()).unwrap_or(u64::MAX);
            datagram.extend(Builder::new(wire::GIVE_BY, 0, seq).payload(&limit.to_ne_bytes()).finish());
            datagram.extend(message);
            datagram.resize(wire::align(datagram.len()), 0);
            let errand = Some(errand);
            self.sent.push_back(Sent { seq, errand, since: now, deadline, tries: tries + 1, overdue: false });
        }
        self.issued = self.sent.len() - before;
        Some(datagram)
    }

    /// The last datagram of [`Exchange::issue`] cannot be sent: the errands in it end so.
    pub fn was_not_sent(&mut self, errno: Errno) {
        let at = self.sent.len().saturating_sub(std::mem::take(&mut self.issued));
        for sent in self.sent.split_off(at) {
            if let Some(errand) = sent.errand {
                self.fail(errand, sent.seq, errno);
            }
        }
    }

    /// Ends what is past its deadline; the number of changes that are waited for all the same, each counted
    /// once. Only when all that the helper had sent at this time was taken ([`Exchange::holds`] is false): then
    /// the second and later ones of those sent were not begun in time.
    pub fn expire(&mut self, now: Now) -> usize {
        debug_assert!(!self.holds());
        let (late, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|waiting| waiting.deadline <= now);
        self.waiting = waiting;
        let late: VecDeque<Waiting<W>> = late;
        let mut late: Vec<_> = late.into_iter().map(|waiting| (waiting.errand, 0)).collect();
        let mut overdue = 0;
        for (n, sent) in self.sent.iter_mut().enumerate().filter(|(_, sent)| sent.deadline <= now) {
            if n == 0 && sent.errand.as_ref().is_some_and(Errand::is_change) {
                overdue += usize::from(!std::mem::replace(&mut sent.overdue, true));
            } else {
                late.extend(sent.errand.take().map(|errand| (errand, sent.seq)));
            }
        }
        for (errand, seq) in late {
            self.fail(errand, seq, Errno(libc::ETIMEDOUT));
        }
        overdue
    }

    /// Since when the request is out that was sent first of all that have no answer.
    pub fn waits_since(&self) -> Option<Now> {
        self.sent.front().map(|sent| sent.since)
    }

    /// The change that is waited for past its deadline: when it was sent, and that deadline.
    pub fn overdue(&self) -> Option<(Now, Now)> {
        let first = self.sent.front().filter(|sent| sent.overdue && sent.errand.is_some())?;
        Some((first.since, first.deadline))
    }

    /// Ends all that is not sent: there is no helper.
    pub fn fail_waiting(&mut self, errno: Errno) {
        for waiting in std::mem::take(&mut self.waiting) {
            self.fail(waiting.errand, 0, errno);
        }
    }

    /// When to call [`Exchange::expire`].
    pub fn timeout(&self) -> Option<Now> {
        let sent = self.sent.iter().filter(|sent| sent.errand.is_some() && !sent.overdue);
        self.waiting.iter().map(|w| w.deadline).chain(sent.map(|sent| sent.deadline)).min()
    }

    /// Of which links something was heard since the last call.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The errands that have ended since the last call.
    pub fn take_ended(&mut self) -> Vec<Ended<W>> {
        std::mem::take(&mut self.ended)
    }
}

#[cfg(test)]
mod order_tests;

#[cfg(test)]
mod tests;
