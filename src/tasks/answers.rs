//! Answers to what rules ask, and the builtins of RUN.
//!
//! Must stay true: an answer changes nothing in the system. Where a rule wants a change, the answer needs a helper to make
//! it. Nothing here waits.

use super::attributes::AttributeReader;
use crate::builtin::{self, Builtins};
use crate::engine::JobId;
use crate::links::{self, Exists, Table};
use crate::model::command::split_command;
use crate::model::need::{Fact, Need};
use crate::model::operation::{Operation, OperationReply};
use crate::model::{Device, Errno, Event};
use crate::rules::ask::{BuiltinName, BuiltinResult, ParentDevice, ParentState, Subject};
use crate::rules::outcome::RunItem;
use crate::rules::{Answer, Ask};
use crate::world::Roots;
use crate::world::accounts::{self, Accounts};
use crate::world::constants::Constants;
use crate::world::database::OtherDevices;
use crate::world::files::{self, Files, Found};
use crate::world::sysfs::Sysfs;
use bstr::BString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

/// All that questions are answered from, but for the link table and the records.
pub struct Answers {
    pub roots: Roots,
    pub attributes: AttributeReader,
    pub files: Files,
    pub constants: Constants,
    pub accounts: Accounts,
    pub builtins: Builtins,
}

impl Answers {
    /// Answers from these roots.
    pub fn new(roots: &Roots, builtins: Builtins) -> Answers {
        Answers {
            attributes: AttributeReader::new(roots),
            files: Files::new(roots),
            constants: Constants::new(roots),
            accounts: Accounts::new(roots),
            roots: roots.clone(),
            builtins,
        }
    }

    /// The answer, or the first thing it needs. `others` knows other devices; None where no daemon has ever run.
    pub fn answer(
        &mut self,
        (links, others): (&mut Table, Option<&dyn OtherDevices>),
        job: JobId,
        event: &Event,
        ask: &Ask,
        facts: &[Fact],
    ) -> Result<Answer, Need> {
        let names_link = |ask: &Ask| matches!(ask, Ask::Attr { subject: Subject::Named { subsystem, .. }, .. } if subsystem == "net");
        if facts.is_empty()
            && links.is_behind()
            && (self.attributes.is_about_links(links, event) || names_link(ask))
        {
            return Err(Need::LinksRead);
        }
        let changes = match ask {
            Ask::WriteAttr { .. } | Ask::WriteSysctl { .. } | Ask::Run { .. } => !facts.is_empty(),
            Ask::Builtin { .. } => {
                matches!(facts.last(), Some(Fact::Rtnl(_))) && self.attributes.has_set_silently(job)
            }
            _ => false,
        };
        if changes {
            self.attributes.expect_change(links, job);
        }
        let (title, devpath) = (event.title(), &event.device.devpath);
        Ok(match ask {
            Ask::Parents => Answer::Parents(self.attributes.parents(links, job, event)),
            Ask::Driver => Answer::Text(Ok(self.attributes.driver(event))),
            Ask::Attr { subject, name } => {
                Answer::Attr(self.attributes.attr(links, job, event, subject, name, facts)?)
            }
            Ask::ParentState(index) => {
                let parents = self.attributes.parents(links, job, event);
                let parent = parents.get(usize::from(*index));
                Answer::Parent(Arc::new(self.parent_state(links, parent, others, facts)?))
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
                let target_path = files::write_attr_target(&self.attributes.sysfs, devpath, target);
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
                let tried = self.builtin(links, event, *builtin, command, facts);
                if let Err(Need::Rtnl(request)) = &tried {
                    // What is announced is read before the reply to the request counts.
                    self.attributes.sets_silently(job, links::request::sets_silently(request));
                }
                Answer::Builtin(tried?)
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
                // The daemon, which ran it, has logged a failure.
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
        self.attributes.with_hardware(facts, |sysfs| self.builtins.run(&call, sysfs, links))?
    }

    fn parent_state(
        &mut self,
        links: &Table,
        parent: Option<&ParentDevice>,
        others: Option<&dyn OtherDevices>,
        facts: &[Fact],
    ) -> Result<ParentState, Need> {
        let Some(parent) = parent else { return Ok(ParentState::default()) };
        let (properties, id) = match self.attributes.link_parent(links, parent, others) {
            Some((properties, id)) => (properties, Some(id)),
            None => {
                let read = |sysfs: &Sysfs| sysfs.properties_of_parent(parent);
                let properties = self.attributes.with_hardware(facts, read)?;
                let device = Device::new(parent.devpath.clone(), parent.subsystem.clone(), &properties);
                (properties, device.id())
            }
        };
        let mut state = ParentState { properties, ..Default::default() };
        if let Some(record) = id.and_then(|id| others?.record_of(&id)) {
            for property in record.properties.iter() {
                state.properties.set_stored(property.name, property.value);
            }
            state.tags.sticky = record.tags.clone();
            state.tags.current = record.current_tags.clone();
        }
        Ok(state)
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
        if let (true, true, Some(ifindex)) = (relative, self.attributes.asks_table(links), device.ifindex) {
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
        match (facts.last(), self.files.mode(&self.attributes.sysfs, &device.devpath, path)) {
            (_, Found::Here(mode)) => Ok(mode),
            (Some(Fact::Helper(OperationReply::Mode(mode))), Found::At(place)) => {
                Ok(files::tested(&place, *mode))
            }
            (Some(Fact::Helper(reply)), Found::At(_)) => Ok(Err(reply.errno().unwrap_or(Errno(libc::EIO)))),
            (_, Found::At(place)) => Err(Need::Helper(Operation::TestFile { path: bytes_of(place) })),
        }
    }

    /// The id of a user or group whose name only this event knows. A file that cannot be read has no such name.
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
