//! `ifindex -> Link`, kept as the kernel tells it.
//!
//! Notifications and replies come over two sockets. Each is in order by itself, and nothing says how they lie
//! to each other. They are put in order by looking into the socket of notifications and finding it *empty*
//! ([`Table::caught_up`]): all that the kernel had sent by then was read, or is lost and reported as lost (the kernel
//! reports an overrun before it gives the messages that still wait, and never says "empty" before that). Stamps count
//! these moments and requests; [`super::exchange`] keeps these two rules:
//!
//! 1. A request is issued right after the socket was found empty, with nothing read since.
//! 2. A reply is applied when the socket was found empty after the reply was received.
//!
//! The argument, for a row R of a reply and a notification N of the same link:
//!
//! * N was read before the request was issued. Then N is older than the request, so R is newer: R stands.
//! * N was read later, and before R was applied. Then N was sent after the request was issued (rule 1). Which
//!   one is newer nobody knows, so N stands: should R be newer, then either nothing was announced between them,
//!   and they differ in columns that change silently only, or the announcement was read too (rule 2).
//! * N is read after R was applied. Then N was sent after R was made (rule 2), and it stands.
//!
//! So *a row never goes back in time*, whatever was lost. And:
//!
//! * *How fresh is a row?* Some columns change without a notification ([`mod@super::attr`]). A row that was
//!   read from a notification is no older than the last moment before at which the socket was empty, one of a
//!   reply no older than its request. [`Table::is_fresh`] compares that with a [`Mark`].
//! * *A loss lasts until the socket is empty.* After an overrun the kernel drops messages that it has no room for
//!   without a word, until all that waits was read. A row is right again if it is no older than the first empty
//!   moment after that; by rule 1 no request is issued before. A dump issued then mends the table: it mentions all
//!   links, so a link that neither it nor a notification read since mentions is gone. A dump that was interrupted, or
//!   during which another loss was reported, is followed by another.
//! * *Gone is not unknown.* RTM_DELLINK comes before the uevent `remove`: the row stays as a tombstone
//!   until [`Table::forget`], and for as long as a request is open that was issued before: its reply may
//!   still speak of the link. An ifindex used again is a new link.
//! * *Behind.* Between uevents that were read and the next empty moment the table may be older than what an
//!   event tells of ([`Table::is_behind`]): nothing about interfaces is answered then.
//!
//! `exchange/order_tests.rs` has a kernel that loses messages at any place, and tries the orders of arrival.

use super::decode::{self, LinkMessage, Reply, STATISTICS};
use super::link::{Link, Name};
use super::request;
use super::wire::{self, Frame, NLM_F_DUMP_INTR, NLM_F_MULTIPART, RTM_DELLINK, RTM_NEWLINK};
use crate::model::{Errno, IfIndex};
use bstr::BString;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Tombstones that wait for their `remove` at most. Beyond it uevents were lost on a grand scale, and
/// all tombstones are forgotten: the kernel tells whoever asks for such a link that it is gone.
const TOMBSTONES_MAX: usize = 16384;

/// Which socket a datagram came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The one subscribed to RTNLGRP_LINK.
    Notification,
    /// The one that carries requests.
    Reply,
}

fn is_veth(link: &Link) -> bool {
    link.kind.as_bstr() == "veth"
}

/// The ifindex of the other end of a pair in this namespace. The message of the first end was sent before
/// the second existed, that of the second names the first: so both are known without asking.
fn other_end(link: &Link) -> Option<u32> {
    (is_veth(link) && link.iflink != 0 && link.link_netnsid.is_none()).then_some(link.iflink)
}

/// What became of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The table did not know it, or knew only its tombstone.
    New,
    /// It has another name.
    Renamed,
    /// Some other column differs.
    Changed,
    /// Nothing differs, or only how fresh the row is.
    Same,
    Gone,
}

/// One link of which a datagram told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub ifindex: IfIndex,
    pub news: News,
}

/// What a datagram brought, apart from changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The reply to a request is complete with this datagram.
    pub reply: Option<Reply>,
    /// Something in the datagram was not understood and is left out: treat it as an overrun.
    pub malformed: bool,
}

/// The answer to a look-up of an ifindex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    Known(&'a Link),
    /// Deleted (or moved to another namespace), and its `remove` was not handled yet. None if the table
    /// never saw the row.
    Gone(Option<&'a Link>),
    Unknown,
}

/// A moment; see [`Table::mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

impl Mark {
    /// Satisfied by any row: for a uevent that the kernel sends before the link's first notification
    /// (a real `add`), whatever the table holds is younger.
    pub const ANY: Mark = Mark(0);
}

/// IFLA_STATS64 of a reply.
#[derive(Clone, Debug)]
struct Statistics {
    as_of: u64,
    /// Older kernels send fewer.
    values: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Row {
    link: Link,
    /// False: a tombstone.
    alive: bool,
    /// A tombstone nobody wants any more; it stays only until the dump under way is through.
    forgotten: bool,
    /// False for the tombstone of a link whose row never arrived.
    seen: bool,
    /// The stamp since which the row is known to be right.
    as_of: u64,
    /// Stamp when the last complete notification was applied: a reply to a request issued up to then is not
    /// newer for sure.
    notified: u64,
    /// The same of one that tells only name and flags.
    hinted: u64,
    /// Stamp when an earlier link of this ifindex was buried.
    buried: u64,
    /// `link.iflink` is 0 only by a notification: the other end may not have been there yet.
    iflink_open: bool,
    /// The last dump that mentioned it, or the one during which a notification did.
    dump: u64,
    statistics: Option<Box<Statistics>>,
    keeps_statistics: bool,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: BTreeMap<u32, Box<Row>>,
    names: HashMap<Name, u32>,
    /// See [`Table::speaks_for_sysfs`].
    speaks_for_sysfs: bool,
    /// Counts empty moments, losses and requests; its low half is the sequence number of a request.
    stamp: u64,
    /// Stamp of the last moment at which the socket of notifications was empty.
    empty_at: u64,
    /// A notification or a loss was read since.
    was_read: bool,
    /// See [`Table::is_behind`].
    behind: bool,
    /// Stamps of requests for rows whose replies are not complete.
    open: BTreeSet<u64>,
    /// Forgotten tombstones, and when their links were buried: each stays for the requests that were open then.
    forgotten: VecDeque<(u64, u32)>,
    /// Replies to requests issued up to here say nothing of links that have no row: tombstones were dropped.
    void_until: u64,
    /// Sequence of the dump under way (its stamp).
    dumping: Option<u64>,
    /// Something was lost, and no dump begun since has ended.
    stale: bool,
    /// Stamp of the last loss.
    lost_at: u64,
    /// While a dump was under way a message was lost or tombstones were dropped, or a part of the dump says that
    /// the kernel's list changed meanwhile (only the first part after the change does).
    dump_spoilt: bool,
    tombstones: usize,
}

impl Table {
    pub fn new() -> Table {
        // Until the first dump nothing is known.
        Table { stale: true, ..Table::default() }
    }

    /// Says that it is kept up to date, so that it speaks for sysfs.
    pub fn speak_for_sysfs(&mut self) {
        self.speaks_for_sysfs = true;
    }

    /// Whether what sysfs would say of interfaces is asked here. Where links come from a tree of files it is not.
    pub fn speaks_for_sysfs(&self) -> bool {
        self.speaks_for_sysfs
    }

    /// Takes one datagram and tells of which links it spoke.
    ///
    /// Replies count only after the notifications that were queued before them (see the module).
    pub fn apply(&mut self, datagram: &[u8], origin: Origin, changes: &mut Vec<Change>) -> Applied {
        let mut applied = Applied::default();
        self.was_read |= origin == Origin::Notification;
        for frame in wire::frames(datagram) {
            let Ok(frame) = frame else {
                applied.malformed = true;
                break;
            };
            // Where the next one begins is known all the same.
            applied.malformed |= self.apply_frame(&frame, origin, changes, &mut applied).is_err();
        }
        self.dump_spoilt |= applied.malformed && origin == Origin::Reply && self.dumping.is_some();
        applied
    }

    fn apply_frame(
        &mut self,
        frame: &Frame<'_>,
        origin: Origin,
        changes: &mut Vec<Change>,
        applied: &mut Applied,
    ) -> Result<(), wire::Malformed> {
        if origin == Origin::Reply && frame.flags & NLM_F_DUMP_INTR != 0 {
            self.dump_spoilt |= self.dumping.is_some_and(|dump| dump == self.stamp_of(frame.seq));
        }
        match frame.kind {
            RTM_NEWLINK => {
                if let Some(message) = decode::link(frame.payload)? {
                    let ifindex = message.link.ifindex();
                    let news = match origin {
                        Origin::Notification => self.notified(message),
                        Origin::Reply => self.told(message, self.stamp_of(frame.seq)),
                    };
                    changes.push(Change { ifindex, news });
                }
                if origin == Origin::Reply && frame.flags & NLM_F_MULTIPART == 0 {
                    self.close(frame.seq);
                    applied.reply = Some(Reply {
                        seq: frame.seq,
                        result: Ok(()),
                        text: BString::default(),
                        interrupted: false,
                    });
                }
            }
            RTM_DELLINK if origin == Origin::Notification => {
                if let Some(message) = decode::link(frame.payload)? {
                    let ifindex = message.link.ifindex;
                    if self.bury(ifindex, self.stamp) {
                        changes.push(Change { ifindex: IfIndex(ifindex), news: News::Gone });
                    }
                }
            }
            _ if origin == Origin::Reply => {
                if let Some(reply) = decode::reply(frame)? {
                    // A dump ends with [`Table::end_dump`].
                    if self.dumping.is_none_or(|dump| dump != self.stamp_of(reply.seq)) {
                        self.close(reply.seq);
                    }
                    applied.reply = Some(reply);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A notification: it stands, whatever was known.
    fn notified(&mut self, message: LinkMessage<'_>) -> News {
        let (stamp, empty_at) = (self.stamp, self.empty_at);
        let dump = self.dumping.unwrap_or(0);
        let complete = message.complete;
        let (row, news) = match self.put(message.link, complete) {
            Some(put) => put,
            None => return News::Same,
        };
        row.dump = row.dump.max(dump);
        if !complete {
            row.hinted = stamp;
            return news;
        }
        row.as_of = empty_at;
        row.iflink_open = row.link.iflink == 0;
        row.notified = stamp;
        let (ifindex, other_end) = (row.link.ifindex, other_end(&row.link));
        if let Some(other) = other_end.and_then(|other| self.rows.get_mut(&other))
            && other.alive
            && other.iflink_open
            && is_veth(&other.link)
        {
            other.link.iflink = ifindex;
            other.iflink_open = false;
        }
        news
    }

    /// A row of a reply to the request of stamp `asked`: it stands unless a notification came since.
    fn told(&mut self, message: LinkMessage<'_>, asked: u64) -> News {
        let ifindex = message.link.ifindex;
        let known = self.rows.get_mut(&ifindex);
        // Nobody waits for it any more, and what was known when it was asked for may be forgotten.
        if !self.open.contains(&asked) || (known.is_none() && asked <= self.void_until) {
            return News::Same;
        }
        let (iflink, link_netnsid) = (message.link.iflink, message.link.link_netnsid);
        // A targeted reply younger than the dump's beginning counts as mentioned by it.
        let dump = self.dumping.filter(|&dump| dump <= asked);
        let (row, news) = match known {
            Some(row) if row.notified >= asked => {
                if !row.alive || row.buried >= asked {
                    return News::Same;
                }
                // The two ends of a pair are made one after the other, under one lock: the notification may
                // lack what the reply, which waited for the lock, knows.
                let completes = row.iflink_open && iflink != 0;
                if completes {
                    row.link.iflink = iflink;
                    row.link.link_netnsid = link_netnsid;
                }
                (&mut **row, if completes { News::Changed } else { News::Same })
            }
            known => {
                let mut link = message.link;
                if let Some(row) = known.filter(|row| row.alive && row.hinted >= asked) {
                    (link.name, link.flags) = (row.link.name, row.link.flags);
                }
                let Some((row, news)) = self.put(link, true) else { return News::Same };
                row.as_of = asked;
                (row, news)
            }
        };
        row.iflink_open = false;
        if let Some(dump) = dump {
            row.dump = dump;
        }
        if let Some(raw) = message.statistics.filter(|_| row.keeps_statistics) {
            row.statistics = Some(Box::new(Statistics { as_of: asked, values: u64s(raw) }));
        }
        news
    }

    /// Writes a row; None if there is nothing to write to (a partial message of an unknown link).
    fn put(&mut self, link: Link, complete: bool) -> Option<(&mut Row, News)> {
        use std::collections::btree_map::Entry;
        let name = link.name;
        let ifindex = link.ifindex;
        let (row, news) = match self.rows.entry(ifindex) {
            Entry::Occupied(entry) if entry.get().alive => {
                let row = entry.into_mut();
                let before = row.link.name;
                let mut news = News::Same;
                if complete {
                    if row.link != link {
                        news = News::Changed;
                        row.link = link;
                    }
                } else if row.link.flags != link.flags || before != name {
                    news = News::Changed;
                    row.link.flags = link.flags;
                    row.link.name = name;
                }
                if before != name {
                    news = News::Renamed;
                    if self.names.get(&before) == Some(&ifindex) {
                        self.names.remove(&before);
                    }
                }
                (row, news)
            }
            _ if !complete => return None,
            entry => {
                let row = Box::new(Row {
                    link,
                    alive: true,
                    forgotten: false,
                    seen: true,
                    as_of: 0,
                    notified: 0,
                    hinted: 0,
                    buried: 0,
                    iflink_open: false,
                    dump: 0,
                    statistics: None,
                    keeps_statistics: false,
                });
                let row = match entry {
                    Entry::Occupied(entry) => {
                        self.tombstones = self.tombstones.saturating_sub(1);
                        let slot = entry.into_mut();
                        let buried = slot.buried;
                        *slot = row;
                        slot.buried = buried;
                        slot
                    }
                    Entry::Vacant(entry) => entry.insert(row),
                };
                (row, News::New)
            }
        };
        if matches!(news, News::New | News::Renamed) {
            self.names.insert(name, ifindex);
        }
        Some((row, news))
    }

    /// Turns a row into a tombstone, as known at `stamp`; false if it was none.
    fn bury(&mut self, ifindex: u32, stamp: u64) -> bool {
        let dump = self.dumping.unwrap_or(0);
        let Some(row) = self.rows.get_mut(&ifindex) else {
            // Deleted before the table ever saw it: a reply or a dump that is on its way must not revive
            // it, and the event that waits for it must learn.
            self.rows.insert(ifindex, Box::new(Row::grave(ifindex, stamp, dump)));
            self.add_tombstone();
            return true;
        };
        row.notified = stamp;
        row.buried = stamp;
        row.dump = dump;
        row.forgotten = false;
        if !row.alive {
            return false;
        }
        row.alive = false;
        row.statistics = None;
        if self.names.get(&row.link.name) == Some(&ifindex) {
            self.names.remove(&row.link.name);
        }
        self.add_tombstone();
        true
    }

    /// Counts one; at the limit all of them are dropped.
    fn add_tombstone(&mut self) {
        self.tombstones += 1;
        if self.tombstones > TOMBSTONES_MAX {
            self.rows.retain(|_, row| row.alive);
            self.tombstones = 0;
            self.forgotten.clear();
            self.void_until = self.stamp;
            self.dump_spoilt |= self.dumping.is_some();
        }
    }

    /// The kernel answered a request of sequence `seq` for this link with ENODEV: it is not there.
    pub fn note_absent(&mut self, ifindex: IfIndex, seq: u32) {
        let asked = self.stamp_of(seq);
        match self.rows.get(&ifindex.0) {
            // A notification since then knows better.
            Some(row) if row.notified >= asked => {}
            _ => {
                self.bury(ifindex.0, asked);
            }
        }
    }

    /// The `remove` of this link was handled: its tombstone goes. A link that lives stays.
    pub fn forget(&mut self, ifindex: IfIndex) {
        let Some(row) = self.rows.get_mut(&ifindex.0).filter(|row| !row.alive && !row.forgotten) else {
            return;
        };
        row.forgotten = true;
        self.forgotten.push_back((row.buried, ifindex.0));
        self.drop_forgotten();
    }

    /// Drops forgotten tombstones that no open request is older than.
    fn drop_forgotten(&mut self) {
        let oldest = self.open.first().copied().unwrap_or(u64::MAX);
        while let Some(&(buried, ifindex)) = self.forgotten.front().filter(|(buried, _)| *buried < oldest) {
            self.forgotten.pop_front();
            if self.rows.get(&ifindex).is_some_and(|row| row.forgotten && row.buried == buried) {
                self.rows.remove(&ifindex);
                self.tombstones = self.tombstones.saturating_sub(1);
            }
        }
    }

    /// The reply to the request with this sequence number is complete, or will not be taken.
    pub fn close(&mut self, seq: u32) {
        let asked = self.stamp_of(seq);
        if self.open.remove(&asked) {
            self.drop_forgotten();
        }
    }

    /// The link of this ifindex, if it is known.
    pub fn lookup(&self, ifindex: IfIndex) -> Lookup<'_> {
        match self.rows.get(&ifindex.0) {
            Some(row) if row.alive => Lookup::Known(&row.link),
            Some(row) if !row.forgotten => Lookup::Gone(row.seen.then_some(&row.link)),
            _ => Lookup::Unknown,
        }
    }

    /// The living link of this name.
    pub fn by_name(&self, name: &[u8]) -> Option<&Link> {
        let ifindex = self.names.get(&Name::new(name)?)?;
        match self.lookup(IfIndex(*ifindex)) {
            Lookup::Known(link) => Some(link),
            _ => None,
        }
    }

    /// Living links, by ifindex.
    pub fn iter(&self) -> impl Iterator<Item = &Link> {
        self.rows.values().filter(|row| row.alive).map(|row| &row.link)
    }

    /// Number of living links.
    pub fn count(&self) -> usize {
        self.iter().count()
    }

    /// The socket of notifications was found empty: see the module.
    pub fn caught_up(&mut self) {
        self.stamp += 1;
        self.empty_at = self.stamp;
        self.was_read = false;
        self.behind = false;
    }

    /// Uevents were read, or links changed, and the socket of notifications was not read to its end since.
    pub fn fall_behind(&mut self) {
        self.behind = true;
    }

    /// Whether rows may be older than an event that was read.
    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// Whether a request may be issued: nothing was read since the socket was empty.
    pub fn may_ask(&self) -> bool {
        !self.was_read
    }

    /// A mark of the last moment at which the socket of notifications was empty. A row that is fresh for it was true
    /// at that moment or later.
    pub fn mark(&self) -> Mark {
        Mark(self.empty_at)
    }

    /// A mark of the next such moment, before which nothing is fresh for it and nothing may be asked for.
    pub fn next_mark(&self) -> Mark {
        Mark(self.stamp + 1)
    }

    /// Whether the row is as fresh as the mark demands, silent columns included, and younger than a loss
    /// that is not mended yet.
    pub fn is_fresh(&self, ifindex: IfIndex, mark: Mark) -> bool {
        self.rows.get(&ifindex.0).is_some_and(|row| row.as_of >= self.floor(mark))
    }

    /// Whether IFLA_LINK is: it also is not while it is 0 by a notification only.
    pub fn is_iflink_fresh(&self, ifindex: IfIndex, mark: Mark) -> bool {
        self.rows.get(&ifindex.0).is_some_and(|row| row.as_of >= self.floor(mark) && !row.iflink_open)
    }

    /// The n-th of [`STATISTICS`]: None if the row holds none that are fresh for this mark;
    /// Some(None) if this kernel does not count it.
    pub fn statistic(&self, ifindex: IfIndex, n: usize, mark: Mark) -> Option<Option<u64>> {
        let row = self.rows.get(&ifindex.0)?;
        let statistics = row.statistics.as_ref().filter(|s| s.as_of >= self.floor(mark))?;
        Some(statistics.values.get(n).copied())
    }

    fn floor(&self, mark: Mark) -> u64 {
        mark.0.max(if self.stale { self.lost_at } else { 0 })
    }

    /// A request for one row, when [`Table::may_ask`]; its sequence number is returned too. The reply always
    /// carries statistics; they are kept, from now on, for a row that was once asked for them.
    pub fn request(&mut self, ifindex: IfIndex, with_statistics: bool) -> (u32, Vec<u8>) {
        debug_assert!(self.may_ask(), "rule 1 of the module");
        if let Some(row) = self.rows.get_mut(&ifindex.0) {
            row.keeps_statistics |= with_statistics;
        }
        let seq = self.next_seq();
        self.open.insert(self.stamp);
        (seq, request::get_link(ifindex, seq))
    }

    /// A sequence number for a request of another kind ([`super::request`]).
    pub fn next_seq(&mut self) -> u32 {
        self.stamp += 1;
        // 0 is no request's: it is what the kernel puts into notifications of its own.
        if self.stamp as u32 == 0 {
            self.stamp += 1;
        }
        self.stamp as u32
    }

    /// At least one notification was lost (ENOBUFS, a datagram that was truncated or not understood).
    ///
    /// Until the dump is through, a row counts only if it is younger than the end of the loss: see
    /// [`Table::is_fresh`] and the module.
    pub fn lose(&mut self) {
        self.stale = true;
        // The messages behind the report were not read yet.
        self.was_read = true;
        self.stamp += 1;
        self.lost_at = self.stamp;
        self.dump_spoilt = self.dumping.is_some();
    }

    /// Whether a dump has to be begun.
    pub fn wants_dump(&self) -> bool {
        self.stale && self.dumping.is_none()
    }

    /// Whether the table may lack something: before the first dump is through, after a loss.
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// The request of a dump, when [`Table::may_ask`].
    pub fn begin_dump(&mut self) -> (u32, Vec<u8>) {
        debug_assert!(self.may_ask(), "rule 1 of the module");
        let seq = self.next_seq();
        self.dumping = Some(self.stamp);
        self.open.insert(self.stamp);
        self.dump_spoilt = false;
        (seq, request::dump_links(seq))
    }

    /// The reply of a dump is complete. True if the table is right now, and links that the dump did not
    /// mention are gone (told in `changes`); false if it has to be asked for again.
    pub fn end_dump(&mut self, reply: &Reply, changes: &mut Vec<Change>) -> bool {
        let Some(dump) = self.dumping.filter(|&dump| dump as u32 == reply.seq) else { return !self.stale };
        self.dumping = None;
        let good = reply.result == Ok(()) && !reply.interrupted && !self.dump_spoilt;
        if good {
            let missing = |row: &Row| row.alive && row.dump != dump;
            let gone: Vec<u32> = self.rows.values().filter(|r| missing(r)).map(|r| r.link.ifindex).collect();
            for ifindex in gone {
                self.bury(ifindex, dump);
                changes.push(Change { ifindex: IfIndex(ifindex), news: News::Gone });
            }
            self.stale = false;
        }
        self.close(reply.seq);
        good
    }

    /// The reply of the dump will not come (its helper died): [`Table::wants_dump`] again.
    pub fn abandon_dump(&mut self) {
        let reply = Reply {
            seq: self.dumping.unwrap_or(0) as u32,
            result: Err(Errno(libc::ECANCELED)),
            text: BString::default(),
            interrupted: false,
        };
        self.end_dump(&reply, &mut Vec::new());
    }

    /// The stamp of a request's sequence number; 0 if it can be none of ours.
    fn stamp_of(&self, seq: u32) -> u64 {
        let age = (self.stamp as u32).wrapping_sub(seq);
        self.stamp.saturating_sub(u64::from(age))
    }
}

impl Row {
    /// The tombstone of a link that was never seen.
    fn grave(ifindex: u32, stamp: u64, dump: u64) -> Row {
        Row {
            link: Link { ifindex, ..Link::default() },
            alive: false,
            forgotten: false,
            seen: false,
            as_of: 0,
            notified: stamp,
            hinted: 0,
            buried: stamp,
            iflink_open: false,
            dump,
            statistics: None,
            keeps_statistics: false,
        }
    }
}

fn u64s(raw: &[u8]) -> Vec<u64> {
    (0..STATISTICS.len()).map_while(|i| wire::read_u64(raw, i * 8)).collect()
}

#[cfg(test)]
mod tests;
