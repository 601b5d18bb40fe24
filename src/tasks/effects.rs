//! Performs the effects of jobs on files, nodes, interfaces and listeners.
//!
//! Must stay true: each failed operation gives one line with verb, object and reason, and the job is
//! told; nothing in here waits.

use super::portions::{Parts, PartsOwner};
use super::renames;
use super::stores::Stores;
use crate::engine::JobId;
use crate::links::Table;
use crate::model::effect::{Done, Effect};
use crate::model::need::{Fact, Need};
use crate::model::operation::Operation;
use crate::model::{DeviceId, Errno, Event, announcement};
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
    /// Tries an effect; see [`super`]. One that fails for want of room is remembered.
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
        let roots = &self.answers.roots;
        Ok(match effect {
            Effect::LockDisk { device, devnode } => self.lock_disk(job, event, (device, devnode), facts)?,
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
                    let path = roots.locate(devnode).into_os_string().into_encoded_bytes().into();
                    return Err(Need::Helper(Operation::SetReadOnly { path, devnum: *devnum }));
                }
            },
            Effect::ReadRecord { id } => self.read_record(event, id),
            Effect::WriteRecord { id, .. } => self.write_record(event, id, effect, facts)?,
            Effect::RemoveRecord { id } => {
                let rest = if Stores::is_at_rest(facts) { None } else { self.rest_of(effect) };
                self.remove_rest(event, id, rest, facts)?;
                let result = self.database.remove_record(id);
                io_done(format_args!("{title}: cannot remove the record {id}"), result)
            }
            Effect::AddTags { id, tags } => {
                let parts = [Parts::AddTags(tags.as_slice())];
                let result = self.do_parts_of_effect(PartsOwner::of(event, id), &parts, facts)?;
                self.written(format_args!("{title}: cannot write the tag index"), result)
            }
            Effect::RemoveTags { id, tags } => {
                let parts = [Parts::RemoveTags(tags.as_slice())];
                let result = self.do_parts_of_effect(PartsOwner::of(event, id), &parts, facts)?;
                io_done(format_args!("{title}: cannot clean the tag index"), result)
            }
            Effect::DropWatch { id } => match self.watches.drop_watch(id) {
                true => Done::WasWatched,
                false => Done::Ok,
            },
            Effect::AddWatch { id, devnode } => self.add_watch(event, id, devnode),
            Effect::Rename { ifindex, from, to } => renames::rename(links, *ifindex, (from, to), facts)?,
            Effect::AddAltNames { ifindex, name, alt_names } => {
                renames::add_alt_names(links, event, *ifindex, (name, alt_names), facts)?
            }
            Effect::Node(change) => {
                let what = format_args!("{title}: cannot set up {}", change.devnode);
                done(what, nodes::apply_node(roots, change))
            }
            Effect::Symlinks { id, devnode, priority, release, claim } => {
                let owner = PartsOwner { id, devnode, priority: *priority, title: Some(title) };
                // What fails of them fails no event.
                self.do_symlinks(owner, release, claim, facts)?;
                Done::Ok
            }
            Effect::NumberSymlink { block, devnum, devnode, present } => {
                let result = match present {
                    true => self.claims.set_number_symlink(*block, *devnum, devnode),
                    false => self.claims.remove_number_symlink(*block, *devnum),
                };
                result.map_or_else(
                    |error| {
                        log::error!("{title}: {error}");
                        Done::Failed(error.errno())
                    },
                    |()| Done::Ok,
                )
            }
            Effect::Announce { datagram } => {
                self.forget(links, job, event);
                self.announce(event, datagram)
            }
        })
    }

    fn lock_disk(
        &mut self,
        job: JobId,
        event: &Event,
        (device, devnode): (&BString, &BString),
        facts: &[Fact],
    ) -> Result<Done, Need> {
        // A helper has it, and whoever opens it now waits for that one.
        if facts.is_empty() && self.follow_ups.reads_table_of(device) {
            return Ok(Done::Busy);
        }
        let places = (&self.answers.roots, &self.answers.attributes.sysfs);
        Ok(match self.locks.lock(places, job, (device, devnode), facts)? {
            Ok(true) => Done::Ok,
            Ok(false) => Done::Busy,
            Err(errno) => done(format_args!("{}: cannot lock its disk", event.title()), Err(errno)),
        })
    }

    fn read_record(&mut self, event: &Event, id: &DeviceId) -> Done {
        self.unfinished.on_begin(id);
        match self.database.read_record(id) {
            Ok(record) => Done::Record(record.map(Arc::new)),
            Err(error) => failed(format_args!("{}: cannot read the record {id}", event.title()), error),
        }
    }

    fn write_record(
        &mut self,
        event: &Event,
        id: &DeviceId,
        effect: &Effect,
        facts: &[Fact],
    ) -> Result<Done, Need> {
        let mut rest = None;
        if let Effect::WriteRecord { record, sticky, keep_empty, is_end, .. } = effect
            && !Stores::is_at_rest(facts)
        {
            let result = self.write_store(|stores| match is_end {
                true => stores.database.end_record(id, record, *sticky, *keep_empty),
                false => stores.database.write_record(id, record, *sticky, *keep_empty),
            });
            self.database.remember(id, event, result.is_ok().then_some(record));
            if result.is_err() {
                let what = format_args!("{}: cannot write the record {id}", event.title());
                return Ok(self.written(what, result));
            }
            rest = self.rest_of(effect);
        }
        self.remove_rest(event, id, rest, facts)?;
        Ok(Done::Ok)
    }

    fn add_watch(&mut self, event: &Event, id: &DeviceId, devnode: &BString) -> Done {
        match self.watches.add_watch(id, devnode.as_ref()) {
            Ok(()) => Done::Ok,
            // A node that is gone by now needs no watch (rules.md 9.1 step 13).
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Done::Failed(Errno::of(&error)),
            Err(error) => {
                log::warn!("{}: cannot watch {devnode}: {error}", event.title());
                Done::Failed(Errno::of(&error))
            }
        }
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
