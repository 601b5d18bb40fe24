//! Answers to what rules ask, and the builtins of RUN.
//!
//! Must stay true: an answer changes nothing in the system (what does is a need), and nothing in here waits.

use super::absent::{Absent, Family};
use super::slow::SlowAttributes;
use crate::builtin::{self, Builtins};
use crate::engine::JobId;
use crate::links::{self, Exists, LinkAttr, Mark, Refresh, Table};
use crate::model::command::split_command;
use crate::model::event::BuildFnv;
use crate::model::need::{Fact, Need};
use crate::model::operation::{AttrPlace, Operation, OperationReply};
use crate::model::{Action, Errno, Event, IfIndex};
use crate::rules::ask::{Attr, BuiltinName, BuiltinResult, ParentDevice, ParentState, Subject};
use crate::rules::outcome::RunItem;
use crate::rules::{Answer, Ask};
use crate::world::Roots;
use crate::world::accounts::{self, Accounts};
use crate::world::constants::Constants;
use crate::world::database::Records;
use crate::world::files::{self, Files, Found};
use crate::world::sysfs::Sysfs;
use bstr::{BStr, BString, ByteSlice};
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

/// What is remembered of a job while it asks.
#[derive(Default)]
struct Memory {
    /// Rows of links must be this fresh for the columns that change silently.
    mark: Option<Mark>,
    parents: Option<Arc<[ParentDevice]>>,
}

/// What questions are answered from. Nothing in it changes the system: what does is a need.
pub struct Answers {
    pub roots: Roots,
    pub sysfs: Sysfs,
    /// The link table speaks for sysfs.
    links_are_live: bool,
    pub files: Files,
    pub constants: Constants,
    pub accounts: Accounts,
    pub builtins: Builtins,
    /// Of other devices; None where no daemon has ever run.
    records: Option<Records>,
    memories: HashMap<JobId, Memory, BuildFnv>,
    pub slow: SlowAttributes,
    absent: Absent,
    /// Subsystems that are no buses: their devices have no driver.
    no_buses: HashSet<BString>,
}

impl Answers {
    /// Answers from these roots.
    pub fn new(roots: &Roots, builtins: Builtins) -> Answers {
        Answers {
            sysfs: Sysfs::new(roots).without_hardware(),
            files: Files::new(roots),
            constants: Constants::new(roots),
            accounts: Accounts::new(roots),
            records: Records::open(&roots.run).ok(),
            links_are_live: roots.sys_is_real(),
            roots: roots.clone(),
            builtins,
            memories: HashMap::default(),
            slow: SlowAttributes::default(),
            absent: Absent::default(),
            no_buses: HashSet::new(),
        }
    }

    /// Reads the records of other devices here from now on.
    pub fn set_records(&mut self, records: Option<Records>) {
        self.records = records;
    }

    /// Whether the link table speaks for sysfs.
    pub fn links_are_live(&self) -> bool {
        self.links_are_live
    }

    /// The link table speaks for a tree that is not the real one.
    #[cfg(test)]
    pub fn believe_the_links(&mut self) {
        self.links_are_live = true;
    }

    /// The answer, or the first thing it needs.
    pub fn answer(
        &mut self,
        links: &mut Table,
        job: JobId,
        event: &Event,
        ask: &Ask,
        facts: &[Fact],
    ) -> Result<Answer, Need> {
        let names_link = |ask: &Ask| matches!(ask, Ask::Attr { subject: Subject::Named { subsystem, .. }, .. } if subsystem == "net");
        if facts.is_empty() && links.is_behind() && (self.is_about_links(event) || names_link(ask)) {
            return Err(Need::LinksRead);
        }
        let (title, devpath) = (event.title(), &event.device.devpath);
        Ok(match ask {
            Ask::Parents => Answer::Parents(self.parents(links, job, event)),
            Ask::Driver => Answer::Text(Ok(self.driver(event))),
            Ask::Attr { subject, name } => Answer::Attr(self.attr(links, job, event, subject, name, facts)?),
            Ask::ParentState(index) => {
                Answer::Parent(Arc::new(self.parent_state(links, job, event, *index, facts)?))
            }
            Ask::Mode { path } => Answer::Mode(self.mode(links, event, path, facts)?),
            Ask::Sysctl { name } => Answer::Text(known_file(facts, || self.files.sysctl_read(name))?),
            Ask::File { path } => Answer::Text(known_file(facts, || self.files.file(path))?),
            Ask::CommandLine => Answer::Text(self.files.command_line(&self.constants)),
            Ask::Constant(constant) => Answer::Text(Ok(self.constants.get(*constant).map(BString::from))),
            Ask::User { name } => Answer::Id(self.account(self.accounts.passwd().into(), name, facts)?),
            Ask::Group { name } => Answer::Id(self.account(self.accounts.group().into(), name, facts)?),
            Ask::WriteAttr { target, value } => {
                let write = |path| Operation::WriteAttr { path, value: value.clone() };
                let target_path = self.files.write_attr_target(devpath, target);
                written(format_args!("{title}: attribute {target:?}"), target_path.map(write), facts)?
            }
            Ask::WriteSysctl { name, value } => {
                let write = |path| Operation::WriteSysctl { path, value: value.clone() };
                let target_path = self.files.sysctl_target(name);
                written(format_args!("{title}: sysctl {name:?}"), target_path.map(write), facts)?
            }
            Ask::Run { command } => match facts.first() {
                Some(Fact::Exit(exit)) => Answer::Exit(exit.clone()),
                _ => return Err(Need::Program { command: command.clone(), capture: true }),
            },
            Ask::Builtin { builtin, command } => {
                Answer::Builtin(self.builtin(links, event, *builtin, command, facts)?)
            }
        })
    }

    pub(super) fn run(
        &mut self,
        links: &Table,
        event: &Event,
        item: &RunItem,
        facts: &[Fact],
    ) -> Result<(), Need> {
        match item {
            RunItem::Program(command) => match facts.first() {
                // A failure was logged by who has run it.
                Some(Fact::Exit(_)) => Ok(()),
                _ => Err(Need::Program { command: command.clone(), capture: false }),
            },
            RunItem::Builtin(builtin, command) => {
                if !self.builtin(links, event, *builtin, command, facts)?.success {
                    log::debug!("{}: builtin {command:?} failed", event.title());
                }
                Ok(())
            }
        }
    }

    fn builtin(
        &mut self,
        links: &Table,
        event: &Event,
        builtin: BuiltinName,
        command: &BString,
        facts: &[Fact],
    ) -> Result<BuiltinResult, Need> {
        let argv: Vec<BString> = split_command(command);
        let call = builtin::Call { builtin, argv: &argv, event, facts, dry: false };
        self.with_hardware(facts, |sysfs| self.builtins.run(&call, sysfs, links))?
    }

    /// Whether the event is of an interface or of what lies below one.
    pub(super) fn is_about_links(&self, event: &Event) -> bool {
        let device = &event.device;
        self.links_are_live && (device.subsystem == "net" || device.devpath.contains_str("/net/"))
    }

    /// Nothing is remembered of this job from here on.
    pub(super) fn forget(&mut self, job: JobId) {
        self.memories.remove(&job);
    }

    fn memory(&mut self, job: JobId) -> &mut Memory {
        self.memories.entry(job).or_default()
    }

    /// A bus was registered: what is known of subsystems may be wrong now.
    pub fn forget_buses(&mut self) {
        self.no_buses.clear();
    }

    /// The devices above. Interfaces are known from the link table; they are of a class and have no driver.
    fn parents(&mut self, links: &Table, job: JobId, event: &Event) -> Arc<[ParentDevice]> {
        if let Some(parents) = self.memories.get(&job).and_then(|m| m.parents.clone()) {
            return parents;
        }
        let live = self.links_are_live;
        let interface = |devpath: &BStr| {
            let name = devpath.strip_prefix(b"/devices/virtual/net/").filter(|_| live)?;
            links.by_name(name).map(|_| ParentDevice {
                devpath: devpath.to_owned(),
                sysname: name.into(),
                subsystem: "net".into(),
                driver: BString::default(),
            })
        };
        let parents: Arc<[ParentDevice]> =
            self.sysfs.parents_knowing(&event.device.devpath, interface).into();
        self.memory(job).parents = Some(parents.clone());
        parents
    }

    /// Only devices of a bus have a driver; interfaces are of a class, and their folder is not to be
    /// looked into.
    fn driver(&mut self, event: &Event) -> Option<BString> {
        let subsystem = &event.device.subsystem;
        if event.device.ifindex.is_some() || self.no_buses.contains(subsystem) {
            return None;
        }
        let driver = self.sysfs.driver(&event.device.devpath);
        if driver.is_none() && !self.sysfs.is_bus(subsystem) {
            self.no_buses.insert(subsystem.clone());
        }
        driver
    }

    fn parent_state(
        &mut self,
        links: &Table,
        job: JobId,
        event: &Event,
        index: u16,
        facts: &[Fact],
    ) -> Result<ParentState, Need> {
        let parents = self.parents(links, job, event);
        let Some(parent) = parents.get(usize::from(index)) else { return Ok(ParentState::default()) };
        let properties = self.with_hardware(facts, |sysfs| sysfs.properties(&parent.devpath))?;
        let mut state = ParentState { properties, ..Default::default() };
        let Some(device) = self.sysfs.device(&parent.devpath) else { return Ok(state) };
        let record = device.id().and_then(|id| self.records.as_ref()?.read(&id).ok()?);
        if let Some(record) = record {
            for property in record.properties.iter() {
                state.properties.set_stored(property.name, property.value);
            }
            state.tags.sticky = record.tags.clone();
            state.tags.current = record.current_tags.clone();
        }
        Ok(state)
    }

    /// The row of the link table that speaks for a subject.
    fn link_of(&mut self, links: &Table, job: JobId, event: &Event, subject: &Subject) -> Option<IfIndex> {
        if !self.links_are_live {
            return None;
        }
        match subject {
            Subject::Event => event.device.ifindex.filter(|_| event.device.subsystem == "net"),
            Subject::Parent(index) => {
                let parents = self.parents(links, job, event);
                let parent = parents.get(usize::from(*index)).filter(|p| p.subsystem == "net")?;
                links.by_name(&parent.sysname).map(|link| link.ifindex())
            }
            Subject::Named { subsystem, sysname } if subsystem == "net" => {
                links.by_name(sysname).map(|link| link.ifindex())
            }
            Subject::Named { .. } => None,
        }
    }

    /// devpath and subsystem of a subject.
    fn place(
        &mut self,
        links: &Table,
        job: JobId,
        event: &Event,
        subject: &Subject,
    ) -> Option<(BString, BString)> {
        match subject {
            Subject::Event => Some((event.device.devpath.clone(), event.device.subsystem.clone())),
            Subject::Parent(index) => {
                let parents = self.parents(links, job, event);
                let parent = parents.get(usize::from(*index))?;
                Some((parent.devpath.clone(), parent.subsystem.clone()))
            }
            Subject::Named { subsystem, sysname } => {
                Some((self.sysfs.device_of(subsystem, sysname)?, subsystem.clone()))
            }
        }
    }

    fn attr(
        &mut self,
        links: &mut Table,
        job: JobId,
        event: &Event,
        subject: &Subject,
        name: &BString,
        facts: &[Fact],
    ) -> Result<Attr, Need> {
        if let Some(Fact::Helper(reply)) = facts.last() {
            return Ok(match reply {
                OperationReply::Attr { value, waited, .. } => {
                    if let Some((_, subsystem)) = self.place(links, job, event, subject) {
                        self.slow.learn(subsystem.as_bstr(), name.as_bstr(), *waited);
                    }
                    value.clone().map_or(Attr::Missing, Attr::Value)
                }
                other => {
                    let errno = other.errno().unwrap_or(Errno(libc::EIO));
                    log::warn!("{}: attribute {name} is not read: {errno}", event.title());
                    Attr::Missing
                }
            });
        }
        let link = match self.link_of(links, job, event, subject) {
            Some(ifindex) => {
                let mark = self.mark(links, job, event);
                Some((ifindex, links::attr(links, ifindex, name, mark)))
            }
            None => None,
        };
        match link {
            Some((_, LinkAttr::Text(text))) => return Ok(Attr::Value(text)),
            Some((_, LinkAttr::Missing)) => return Ok(Attr::Missing),
            // Whoever asked and still does not know it will not learn it.
            Some((_, LinkAttr::Unknown | LinkAttr::NeedsRefresh(_))) if facts.len() > 1 => {
                return Ok(Attr::Missing);
            }
            Some((ifindex, LinkAttr::Unknown)) => return Err(Need::Link(ifindex)),
            Some((ifindex, LinkAttr::NeedsRefresh(refresh))) => {
                return Err(Need::FreshLink { ifindex, statistics: refresh == Refresh::Statistics });
            }
            Some((_, LinkAttr::Slow | LinkAttr::FromSysfs)) | None => {}
        }
        let Some((devpath, subsystem)) = self.place(links, job, event, subject) else {
            return Ok(Attr::NoDevice);
        };
        let family = match self.links_are_live && matches!(link, Some((_, LinkAttr::FromSysfs)) | None) {
            true => Family::of(&devpath, &subsystem, links),
            false => None,
        };
        if family.is_some_and(|family| self.absent.contains(family, name)) {
            return Ok(Attr::Missing);
        }
        let attr = self.attr_of_file(link, (&devpath, &subsystem), name)?;
        if let (Attr::Missing, Some(family)) = (&attr, family)
            && self.sysfs.lacks(&devpath, name)
        {
            self.absent.insert(family, name);
        }
        Ok(attr)
    }

    fn attr_of_file(
        &mut self,
        link: Option<(IfIndex, LinkAttr)>,
        (devpath, subsystem): (&BString, &BString),
        name: &BString,
    ) -> Result<Attr, Need> {
        let (subsystem, name) = (subsystem.as_bstr(), name.as_bstr());
        match link {
            Some((_, LinkAttr::FromSysfs)) if links::is_free_of_locks(name) => {
                return Ok(self.sysfs.attr(devpath, name));
            }
            Some((_, LinkAttr::FromSysfs)) | None
                if Sysfs::is_inside(devpath, name) && !self.slow.is_for_helper(subsystem, name) =>
            {
                let sysfs = &self.sysfs;
                if !sysfs.asks_hardware(devpath, subsystem, name) {
                    return Ok(self.slow.read(subsystem, name, || sysfs.attr(devpath, name)));
                }
                if !sysfs.exists(devpath, name) {
                    return Ok(Attr::Missing);
                }
            }
            _ => {}
        }
        Err(self.attr_by_helper(AttrPlace { devpath: devpath.clone(), name: name.to_owned() }))
    }

    fn attr_by_helper(&self, place: AttrPlace) -> Need {
        let sys = self.sysfs.root().as_os_str().as_bytes().into();
        Need::Helper(Operation::ReadAttr { sys, place })
    }

    /// What `read` reads in sysfs, with the attributes that helpers have read for it so far.
    fn with_hardware<T>(&self, facts: &[Fact], read: impl FnOnce(&Sysfs) -> T) -> Result<T, Need> {
        let known = |fact: &Fact| match fact {
            Fact::Helper(OperationReply::Attr { place, value, .. }) => Some((place.clone(), value.clone())),
            _ => None,
        };
        // The helper of an attribute hung, died or was refused: the next one is not tried.
        let gave_up = facts.iter().any(|fact| matches!(fact, Fact::Helper(reply) if reply.is_none()));
        let known = facts.iter().filter_map(known).collect();
        self.sysfs.knowing(known, gave_up, read).map_err(|place| self.attr_by_helper(place))
    }

    /// How fresh rows must be for this job. The kernel's own `add` comes before the first message of
    /// the link, so whatever the table knows then is young enough.
    fn mark(&mut self, links: &mut Table, job: JobId, event: &Event) -> Mark {
        if let Some(mark) = self.memories.get(&job).and_then(|m| m.mark) {
            return mark;
        }
        let new = event.action == Action::Add && event.properties.get("SYNTH_UUID").is_none();
        let mark = if new { Mark::ANY } else { links.mark() };
        self.memory(job).mark = Some(mark);
        mark
    }

    fn mode(
        &mut self,
        links: &Table,
        event: &Event,
        path: &BString,
        facts: &[Fact],
    ) -> Result<Result<Option<u32>, Errno>, Need> {
        let device = &event.device;
        let relative = !path.starts_with(b"/") && !path.starts_with(b"[");
        if let (true, true, Some(ifindex)) = (relative, self.links_are_live, device.ifindex) {
            match links::exists(links, ifindex, path) {
                Exists::Mode(mode) => return Ok(Ok(Some(mode))),
                Exists::No => return Ok(Ok(None)),
                Exists::Unknown if facts.is_empty() => return Err(Need::Link(ifindex)),
                Exists::NeedsRefresh if facts.is_empty() => {
                    return Err(Need::FreshLink { ifindex, statistics: false });
                }
                Exists::Unknown | Exists::NeedsRefresh => return Ok(Ok(None)),
                Exists::FromSysfs => {}
            }
        }
        match (facts.last(), self.files.mode(&device.devpath, path)) {
            (_, Found::Here(mode)) => Ok(mode),
            (Some(Fact::Helper(OperationReply::Mode(mode))), Found::At(place)) => {
                Ok(files::tested(&place, *mode))
            }
            (Some(Fact::Helper(reply)), Found::At(_)) => Ok(Err(reply.errno().unwrap_or(Errno(libc::EIO)))),
            (_, Found::At(place)) => Err(Need::Helper(Operation::TestFile { path: bytes_of(place) })),
        }
    }

    /// The id of a user or group that only this event names. What cannot be read names none.
    fn account(&mut self, file: PathBuf, name: &[u8], facts: &[Fact]) -> Result<Option<u32>, Need> {
        let content = known_file(facts, || self.files.file_at(file))?;
        Ok(content.ok().flatten().and_then(|content| accounts::find(&content, name)))
    }
}

/// Content of a file: as a helper has read it, or as it is found at once.
fn known_file(
    facts: &[Fact],
    find: impl FnOnce() -> Found<Result<Option<BString>, Errno>>,
) -> Result<Result<Option<BString>, Errno>, Need> {
    match facts.last() {
        Some(Fact::Helper(OperationReply::File(content))) => Ok(content.clone()),
        Some(Fact::Helper(reply)) => Ok(Err(reply.errno().unwrap_or(Errno(libc::EIO)))),
        _ => match find() {
            Found::Here(content) => Ok(content),
            Found::At(place) => Err(Need::Helper(Operation::ReadFile { path: bytes_of(place) })),
        },
    }
}

fn bytes_of(path: PathBuf) -> BString {
    path.into_os_string().into_vec().into()
}

/// The reply to a write, or the need for it; a failure is logged here and changes nothing else.
fn written(
    what: std::fmt::Arguments,
    operation: Result<Operation, Errno>,
    facts: &[Fact],
) -> Result<Answer, Need> {
    let errno = match (facts.first(), operation) {
        (Some(Fact::Helper(reply)), _) => reply.errno(),
        (_, Ok(operation)) => return Err(Need::Helper(operation)),
        (_, Err(errno)) => Some(errno),
    };
    if let Some(errno) = errno {
        log::error!("{what} is not written: {errno}");
    }
    Ok(Answer::Written)
}
