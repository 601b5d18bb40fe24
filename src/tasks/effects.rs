//! Performs the effects of jobs on files, nodes, interfaces and listeners.
//!
//! Must stay true: each failed operation gives one line with verb, object and reason, and the job is
//! told; nothing in here waits.

use super::Stores;
use super::portions::{Owner, Parts};
use crate::engine::JobId;
use crate::links::{Lookup, Table, request};
use crate::model::effect::{Done, Effect};
use crate::model::need::{Fact, Need};
use crate::model::operation::Operation;
use crate::model::{Errno, Event, IfIndex, announcement};
use crate::sys::netlink;
use crate::world::nodes;
use bstr::BString;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The netlink group of udev's listeners (interop.md section 2).
const UDEV_GROUP: u32 = 2;

/// Bytes of an announcement: the buffer of the socket is made as large. Without that the kernel takes 208 KiB, and from
/// 252 too its listeners hear of no event that is longer.
pub const MAX_ANNOUNCEMENT: usize = 1 << 20;

impl Stores {
    /// Tries an effect; see [`super::task`]. One that fails for want of room is remembered.
    pub fn perform(
        &mut self,
        links: &mut Table,
        job: JobId,
        event: &Event,
        effect: &Effect,
        facts: &[Fact],
    ) -> Result<Done, Need> {
        let done = self.try_effect(links, job, event, effect, facts)?;
        if let Done::Failed(errno) = done {
            self.unfinished.on_failure(event, effect, errno);
        }
        Ok(done)
    }

    fn try_effect(
        &mut self,
        links: &mut Table,
        job: JobId,
        event: &Event,
        effect: &Effect,
        facts: &[Fact],
    ) -> Result<Done, Need> {
        let title = event.title();
        Ok(match effect {
            // A helper has it, and whoever opens it now waits for that one.
            Effect::LockDisk { device, .. } if facts.is_empty() && self.follow_ups.reads_table_of(device) => {
                Done::Busy
            }
            Effect::LockDisk { device, devnode } => {
                let places = (&self.answers.roots, &self.answers.sysfs);
                match self.locks.lock(places, job, (device, devnode), facts)? {
                    Ok(true) => Done::Ok,
                    Ok(false) => Done::Busy,
                    Err(errno) => done(format_args!("{title}: cannot lock its disk"), Err(errno)),
                }
            }
            Effect::UnlockDisk => {
                self.locks.unlock(job)?;
                Done::Ok
            }
            Effect::SetReadOnly { devnode, devnum } => match facts.first() {
                Some(Fact::Helper(reply)) => done(
                    format_args!("{title}: cannot set {devnode} read-only"),
                    reply.errno().map_or(Ok(()), Err),
                ),
                _ => {
                    let path = self.answers.roots.locate(devnode).into_os_string().into_encoded_bytes();
                    return Err(Need::Helper(Operation::SetReadOnly { path: path.into(), devnum: *devnum }));
                }
            },
            Effect::ReadRecord { id } => {
                self.unfinished.on_begin(id);
                match self.database.read_record(id) {
                    Ok(record) => Done::Record(record.map(Arc::new)),
                    Err(error) => failed(format_args!("{title}: cannot read the record {id}"), error),
                }
            }
            Effect::WriteRecord { id, record, sticky, keep_empty, is_end } => {
                let what = format_args!("{title}: cannot write the record {id}");
                let mut rest = None;
                if !Stores::is_at_rest(facts) {
                    let result = self.write_store(|stores| match is_end {
                        true => stores.database.end_record(id, record, *sticky, *keep_empty),
                        false => stores.database.write_record(id, record, *sticky, *keep_empty),
                    });
                    self.database.remember(id, &event.properties);
                    if result.is_err() {
                        return Ok(self.written(what, result));
                    }
                    rest = self.rest_of(effect);
                }
                self.remove_rest(event, id, rest, facts)?;
                Done::Ok
            }
            Effect::RemoveRecord { id } => {
                let rest = if Stores::is_at_rest(facts) { None } else { self.rest_of(effect) };
                self.remove_rest(event, id, rest, facts)?;
                let result = self.database.remove_record(id);
                io_done(format_args!("{title}: cannot remove the record {id}"), result)
            }
            Effect::AddTags { id, tags } => {
                let parts = [Parts::AddTags(tags.as_slice())];
                let result = self.do_parts_of_effect(Owner::of(event, id), &parts, facts)?;
                self.written(format_args!("{title}: cannot write the tag index"), result)
            }
            Effect::RemoveTags { id, tags } => {
                let parts = [Parts::RemoveTags(tags.as_slice())];
                let result = self.do_parts_of_effect(Owner::of(event, id), &parts, facts)?;
                io_done(format_args!("{title}: cannot clean the tag index"), result)
            }
            Effect::DropWatch { id } => {
                if self.watches.drop_watch(id) {
                    Done::WasWatched
                } else {
                    Done::Ok
                }
            }
            Effect::AddWatch { id, devnode } => match self.watches.add_watch(id, devnode.as_ref()) {
                Ok(()) => Done::Ok,
                // A node that is gone by now needs no watch (rules.md 9.1 step 13).
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Done::Failed(Errno::of(&error)),
                Err(error) => {
                    log::warn!("{title}: cannot watch {devnode}: {error}");
                    Done::Failed(Errno::of(&error))
                }
            },
            Effect::Rename { ifindex, from, to } => rename(links, *ifindex, from, to, facts)?,
            Effect::AddAltNames { ifindex, name, alt_names } => {
                add_alt_names(links, event, *ifindex, name, alt_names, facts)?
            }
            Effect::Node(change) => {
                let devnode = &change.devnode;
                done(
                    format_args!("{title}: cannot set up {devnode}"),
                    nodes::apply_node(&self.answers.roots, change),
                )
            }
            Effect::Links { id, devnode, priority, release, claim } => {
                let owner = Owner { id, devnode, priority: *priority, title: Some(title) };
                let parts = [Parts::Release(release), Parts::Claim(claim)];
                // What fails of them fails no event.
                let _ = self.do_parts_of_effect(owner, &parts, facts)?;
                Done::Ok
            }
            Effect::NumberLink { block, devnum, devnode, present } => {
                let result = match present {
                    true => self.claims.set_number_link(*block, *devnum, devnode),
                    false => self.claims.remove_number_link(*block, *devnum),
                };
                match result {
                    Ok(()) => Done::Ok,
                    Err(error) => {
                        log::error!("{title}: {error}");
                        Done::Failed(error.errno())
                    }
                }
            }
            Effect::Announce { datagram } => {
                self.forget(links, job, event);
                self.announce(event, datagram)
            }
        })
    }

    /// What was to be written in `/run/udev`. That its folder is gone and cannot be made anew is said once, by who
    /// tried.
    fn written(&self, what: std::fmt::Arguments, result: io::Result<()>) -> Done {
        match result {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.mended.is_some() => {
                Done::Failed(Errno::of(&error))
            }
            result => io_done(what, result),
        }
    }

    fn announce(&mut self, event: &Event, datagram: &[u8]) -> Done {
        let Some(socket) = &self.announcer else { return Done::Ok };
        let (header, body) = datagram.split_at(announcement::HEADER_LEN.min(datagram.len()));
        match netlink::multicast(socket.as_fd(), UDEV_GROUP, [header, body]) {
            Ok(()) => Done::Ok,
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                let (title, bytes) = (event.title(), datagram.len());
                let reason = "are more than one message may have (EMSGSIZE); no listener hears of it, its record stands";
                log::error!("{title}: cannot announce the event: its {bytes} bytes {reason}");
                Done::Failed(Errno::of(&error))
            }
            Err(error) => failed(format_args!("{}: cannot announce the event", event.title()), error),
        }
    }
}

fn done(what: std::fmt::Arguments, result: Result<(), Errno>) -> Done {
    match result {
        Ok(()) => Done::Ok,
        Err(errno) => {
            log::error!("{what}: {errno}");
            Done::Failed(errno)
        }
    }
}

fn io_done(what: std::fmt::Arguments, result: io::Result<()>) -> Done {
    match result {
        Ok(()) => Done::Ok,
        Err(error) => failed(what, error),
    }
}

fn failed(what: std::fmt::Arguments, error: io::Error) -> Done {
    log::error!("{what}: {error}");
    Done::Failed(Errno::of(&error))
}

/// The replies of the kernel among the facts, in order.
fn replies(facts: &[Fact]) -> Vec<Result<(), Errno>> {
    facts.iter().filter_map(|f| if let Fact::Rtnl(result) = f { Some(*result) } else { None }).collect()
}

/// Renames an interface. The kernel says EEXIST also when the name is one of the interface's own
/// alternative names; then that one is taken away first and restored should the rename fail again
/// (rules.md 9.4). Whether it is one is asked of a fresh row only then.
fn rename(
    links: &Table,
    ifindex: IfIndex,
    from: &BString,
    to: &BString,
    facts: &[Fact],
) -> Result<Done, Need> {
    let set_name = || Need::Rtnl(request::set_name(ifindex, to, 0));
    let own_name = || [to.clone()];
    let refreshed = facts.contains(&Fact::Link);
    match replies(facts)[..] {
        [] => Err(set_name()),
        [Err(Errno(libc::EEXIST))] if !refreshed => Err(Need::FreshLink { ifindex, statistics: false }),
        [Err(Errno(libc::EEXIST))] => match links.lookup(ifindex) {
            Lookup::Known(link) if link.alt_names().iter().any(|n| n == to) => {
                Err(Need::Rtnl(request::remove_alt_names(ifindex, &own_name(), 0)))
            }
            _ => Ok(Done::Failed(Errno(libc::EEXIST))),
        },
        [Ok(())] | [_, Ok(()), Ok(())] => {
            log::debug!("renamed {from} to {to}");
            Ok(Done::Ok)
        }
        [Err(errno)] | [_, Err(errno)] | [_, _, Err(errno), _, ..] => Ok(Done::Failed(errno)),
        [_, Ok(())] => Err(set_name()),
        [_, Ok(()), Err(_)] => Err(Need::Undo(request::add_alt_names(ifindex, &own_name(), 0))),
        _ => Ok(Done::Ok),
    }
}

/// Adds alternative names that the interface does not have: all in one request; where one belongs to
/// another interface, each by itself (builtins.md 2.4). Failures are only logged.
///
/// Names of a link that is down change without a message: before one is left out because the link has it, and
/// before it is said who has it, the kernel is asked.
fn add_alt_names(
    links: &Table,
    event: &Event,
    ifindex: IfIndex,
    name: &BString,
    wanted: &[BString],
    facts: &[Fact],
) -> Result<Done, Need> {
    let present = |name: &BString| match links.lookup(ifindex) {
        Lookup::Known(link) => link.alt_names().contains(name),
        _ => false,
    };
    let mut names: Vec<BString> = wanted.iter().filter(|n| *n != name).cloned().collect();
    names.sort();
    names.dedup();
    let add = |names: &[BString]| Err(Need::Rtnl(request::add_alt_names(ifindex, names, 0)));
    let log = |names: &[BString], errno: Errno| {
        log::warn!("{}: cannot give {name} the names {names:?}: {errno}", event.title());
    };
    let fresh = || Err(Need::FreshLink { ifindex, statistics: false });
    match replies(facts)[..] {
        [] if facts.is_empty() && names.iter().any(present) => fresh(),
        [] => {
            names.retain(|n| !present(n));
            if names.is_empty() { Ok(Done::Ok) } else { add(&names) }
        }
        [Ok(()), ..] => Ok(Done::Ok),
        [Err(Errno(libc::EEXIST))] if facts.last() != Some(&Fact::Link) => fresh(),
        [Err(Errno(libc::EEXIST)), ref single @ ..] => {
            let tried = names.get(single.len().wrapping_sub(1));
            if let (Some(Err(errno)), Some(tried)) = (single.last(), tried)
                && !present(tried)
            {
                log(std::slice::from_ref(tried), *errno);
            }
            match names.get(single.len()) {
                Some(next) => add(std::slice::from_ref(next)),
                None => Ok(Done::Ok),
            }
        }
        [Err(errno), ..] => {
            log(&names, errno);
            Ok(Done::Ok)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::Origin;
    use crate::links::wire::{Builder, IFLA_ALT_IFNAME, IFLA_IFNAME, IFLA_MTU, IFLA_PROP_LIST, RTM_NEWLINK};
    use crate::model::{SeqNum, Uevent};

    const LINK: IfIndex = IfIndex(5);

    /// A table with one link that has the alternative name `alt`.
    fn table() -> Table {
        let mut table = Table::new();
        let alt_names = Builder::new(0, 0, 0).text(IFLA_ALT_IFNAME, b"alt").finish();
        let row = Builder::new(RTM_NEWLINK, 0, 0)
            .ifinfo(LINK.0)
            .text(IFLA_IFNAME, b"l0")
            .u32(IFLA_MTU, 1500)
            .attribute(IFLA_PROP_LIST, &alt_names[crate::links::wire::HEADER..])
            .finish();
        table.apply(&row, Origin::Notification, &mut Vec::new());
        table
    }

    fn event() -> Event {
        Event::new(Uevent {
            action: crate::model::Action::Add,
            seqnum: SeqNum(1),
            devpath: "/devices/virtual/net/l0".into(),
            subsystem: "net".into(),
            properties: Default::default(),
        })
    }

    const EXISTS: Fact = Fact::Rtnl(Err(Errno(libc::EEXIST)));
    const LATE: Fact = Fact::Rtnl(Err(Errno(libc::ETIMEDOUT)));
    const OK: Fact = Fact::Rtnl(Ok(()));

    #[test]
    fn a_name_that_the_link_has_as_an_alternative_one_is_taken_from_there_and_put_back() {
        let (table, to) = (table(), BString::from("alt"));
        let rename = |facts: &[Fact]| rename(&table, LINK, &"l0".into(), &to, facts);
        let set_name = || Err(Need::Rtnl(request::set_name(LINK, b"alt", 0)));
        let own = std::slice::from_ref(&to);
        assert_eq!(rename(&[]), set_name());
        assert_eq!(rename(&[LATE]), Ok(Done::Failed(Errno(libc::ETIMEDOUT))));
        assert_eq!(rename(&[EXISTS]), Err(Need::FreshLink { ifindex: LINK, statistics: false }));
        let remove = Need::Rtnl(request::remove_alt_names(LINK, own, 0));
        assert_eq!(rename(&[EXISTS, Fact::Link]), Err(remove));
        assert_eq!(rename(&[EXISTS, Fact::Link, OK]), set_name());
        assert_eq!(rename(&[EXISTS, Fact::Link, OK, OK]), Ok(Done::Ok));
        // Whatever the time of the event, it is not lost.
        let undo = Need::Undo(request::add_alt_names(LINK, own, 0));
        assert_eq!(rename(&[EXISTS, Fact::Link, OK, LATE]), Err(undo));
        let failed = Ok(Done::Failed(Errno(libc::ETIMEDOUT)));
        assert_eq!(rename(&[EXISTS, Fact::Link, OK, LATE, OK]), failed);
    }

    #[test]
    fn alternative_names_are_left_out_only_by_a_fresh_row() {
        let (table, event) = (table(), event());
        let give = |wanted: &[&str], facts: &[Fact]| {
            let wanted: Vec<BString> = wanted.iter().map(|name| BString::from(*name)).collect();
            add_alt_names(&table, &event, LINK, &"l0".into(), &wanted, facts)
        };
        let add = |names: &[&str]| {
            let names: Vec<BString> = names.iter().map(|name| BString::from(*name)).collect();
            Err(Need::Rtnl(request::add_alt_names(LINK, &names, 0)))
        };
        let fresh = Err(Need::FreshLink { ifindex: LINK, statistics: false });
        assert_eq!(give(&["x", "l0"], &[]), add(&["x"]), "it has none of them");
        assert_eq!(give(&["alt", "x"], &[]), fresh);
        assert_eq!(give(&["alt", "x"], &[Fact::Link]), add(&["x"]));
        assert_eq!(give(&["alt"], &[Fact::Link]), Ok(Done::Ok));
        // Who has a name that exists is asked before each is tried by itself.
        assert_eq!(give(&["x", "y"], &[EXISTS]), fresh);
        assert_eq!(give(&["x", "y"], &[EXISTS, Fact::Link]), add(&["x"]));
        assert_eq!(give(&["x", "y"], &[EXISTS, Fact::Link, EXISTS]), add(&["y"]));
        assert_eq!(give(&["x", "y"], &[EXISTS, Fact::Link, EXISTS, OK]), Ok(Done::Ok));
    }
}
