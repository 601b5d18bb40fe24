//! Matches: comparisons with the device, its parents, files, programs, imports (rules.md 3, 4).

use super::facts::{Try, fail};
use super::import::Import;
use super::text::sysctl_name;
use super::{Change, ENTRY, Evaluation, Tried, does, holds};
use crate::model::command::kernel_value;
use crate::model::event::{OrderedSet, render_tags};
use crate::model::{Action, Errno, Key};
use crate::rules::ask::{Ask, BuiltinName};
use crate::rules::glob::Glob;
use crate::rules::pattern::{Alternative, Pattern};
use crate::rules::program::{AttrName, Match, MatchKey, ParentKey, ParentMatch, Token, named_attr};
use crate::rules::sanitise::{self, replace_bytes, trim, trim_end};
use crate::rules::specialise::{Run, matches_subsystem};
use crate::rules::subst::{Expansion, Subst, Template, Value, result_part};
use bstr::{BStr, BString, ByteSlice};
use std::borrow::Cow;

/// PROGRAM, IMPORT{program,builtin}, RUN, SECLABEL (rules.md 6.3; with terminator, as all below).
pub(super) const COMMAND: usize = 16384;
/// TEST, IMPORT{file,parent}, SYSCTL name, TAG, NAME, SYMLINK.
pub(super) const PATH: usize = 1024;
/// ATTR and SYSCTL values, ENV, OWNER, GROUP, MODE, substituted attribute names, `$attr` values.
pub(super) const VALUE: usize = 512;

/// Bytes of a text from which on it takes its share of the turn. What is shorter counts with its line.
const LONG: usize = 512;

/// What an operation has forgotten by the time its text is substituted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Forgotten {
    Nothing,
    /// PROGRAM: the last result.
    Result,
    /// SYMLINK=: the links so far.
    Links,
}

impl Evaluation {
    /// Whether a match on the event's device holds.
    pub(super) fn matches(&self, m: &Match) -> Try<bool> {
        let event = self.event();
        let matched = match &m.subject {
            MatchKey::Symlink => self.matches_set(&m.pattern, &event.links),
            MatchKey::Tag => self.matches_set(&m.pattern, &event.tags.current),
            MatchKey::Subsystem { any_class } => {
                matches_subsystem(&m.pattern, *any_class, &event.device.subsystem)
            }
            MatchKey::Sysctl(name) => return self.matches_sysctl(name, &m.pattern, m.negate),
            // What long lists of rules ask most.
            MatchKey::Env(key) if !key.is_derived() => self.compare(&m.pattern, self.plain_env(key)),
            _ => match self.subject(m)? {
                Some(value) => self.compare(&m.pattern, &value),
                None => return Ok(false),
            },
        };
        Ok(matched != m.negate)
    }

    /// Whether some element matches. `?*` was turned around when rules were loaded, hence the traps of
    /// rules.md 3.3.
    fn matches_set(&self, pattern: &Pattern, set: &OrderedSet) -> bool {
        let plain = !pattern.ignore_case;
        pattern.alternatives.iter().any(|alternative| match alternative {
            Alternative::Literal(text) if plain => set.contains(text),
            _ => {
                self.spend(set.len() * LONG);
                set.iter().any(|element| pattern.matches(element))
            }
        })
    }

    /// Whether the pattern matches; a long value takes its share of the turn.
    fn compare(&self, pattern: &Pattern, value: &[u8]) -> bool {
        if value.len() >= LONG {
            self.spend(value.len() + pattern.cost(value.len()));
        }
        pattern.matches(value)
    }

    /// The value that a match compares; None if the match is false whatever its operator. Not for
    /// sets, SUBSYSTEM and SYSCTL.
    pub(super) fn subject(&self, m: &Match) -> Try<Option<Cow<'_, BStr>>> {
        let event = self.event();
        let text = match &m.subject {
            MatchKey::Action => event.action.as_str().as_bytes().as_bstr(),
            MatchKey::Devpath => event.device.devpath.as_bstr(),
            MatchKey::Kernel => event.device.sysname.as_bstr(),
            MatchKey::Name => optional(self.state.outcome.name.as_ref()),
            MatchKey::Driver => self.driver_of(0)?,
            MatchKey::Attr(name) => {
                let value = self.attr_of(0, name)?;
                return Ok(value.map(|v| Cow::Borrowed(attr_subject(v, &m.pattern))));
            }
            MatchKey::Env(key) => return Ok(Some(self.env(key))),
            MatchKey::Const(constant) => self.facts.constant(*constant)?,
            MatchKey::Result => optional(self.state.result.as_ref()),
            MatchKey::Symlink | MatchKey::Tag | MatchKey::Subsystem { .. } | MatchKey::Sysctl(_) => {
                return Ok(None);
            }
        };
        Ok(Some(Cow::Borrowed(text)))
    }

    /// A property as rules see it, then a global one; empty if neither is set.
    fn env(&self, key: &Key) -> Cow<'_, BStr> {
        match key.is_derived() {
            true => Cow::Owned(self.event().property(key.name()).unwrap_or_default()),
            false => Cow::Borrowed(self.plain_env(key)),
        }
    }

    pub(super) fn plain_env(&self, key: &Key) -> &BStr {
        let value = self.event().properties.get_key(key).or_else(|| self.config.globals.get_key(key));
        value.unwrap_or_default()
    }

    /// The same by name, None if it is not set.
    pub(super) fn env_by_name(&self, name: &BStr) -> Option<Cow<'_, BStr>> {
        if let Some(derived) = self.derived(name) {
            self.spend(derived.as_ref().map_or(0, |text| text.len()));
            return derived.map(Cow::Owned);
        }
        let value = self.event().properties.get(name).or_else(|| self.config.globals.get(name));
        value.map(Cow::Borrowed)
    }

    /// Some for a name whose property is derived from links, tags or time.
    fn derived(&self, name: &BStr) -> Option<Option<BString>> {
        match name.as_bytes() {
            b"DEVLINKS" | b"TAGS" | b"CURRENT_TAGS" | b"USEC_INITIALIZED" => {
                Some(self.event().property(name))
            }
            _ => None,
        }
    }

    fn matches_sysctl(&self, name: &Template, pattern: &Pattern, negate: bool) -> Try<bool> {
        let Some(name) = self.text(name, PATH)? else { return Ok(false) };
        let Some(path) = sysctl_name(&name) else {
            return fail(Errno(libc::EINVAL), format!("{name:?} is no kernel parameter"));
        };
        let what = format!("kernel parameter {path}");
        let value = self.facts.text(&what, || Ask::Sysctl { name: path })?;
        Ok(self.compare(pattern, trim(value.unwrap_or_default())) != negate)
    }

    /// Tries any token but a [`Token::Match`].
    pub(super) fn attempt<'p>(&self, token: &'p Token) -> Try<Tried<'p>> {
        match token {
            Token::Match(m) => holds(self.matches(m)?),
            Token::Parents(group) => {
                let device = self.find_parent(group)?;
                Ok(Tried { holds: device.is_some(), change: Change::DevParent(device) })
            }
            Token::Test { negate, path, mask } => {
                let Some(path) = self.text(path, PATH)? else { return holds(false) };
                let mode = self.facts.mode(&path)?;
                holds(mode.is_some_and(|mode| mask.is_none_or(|mask| mode & mask != 0)) != *negate)
            }
            Token::Program { negate, command } => self.program(*negate, command),
            Token::ImportFile { negate, path } => self.import_file(*negate, path),
            Token::ImportProgram { negate, command } => self.import_program(*negate, command),
            Token::ImportBuiltin { negate, builtin, command } => {
                self.import_builtin(*negate, *builtin, command)
            }
            Token::ImportDb { negate, key } => {
                Ok(import_one(*negate, key.name(), self.old_property(key.name())))
            }
            Token::ImportCommandLine { negate, key } => {
                let line = self.facts.text("the kernel command line", || Ask::CommandLine)?;
                let value = kernel_value(line.unwrap_or_default(), key, self.config.in_initrd)
                    .map(|value| value.unwrap_or_else(|| "1".into()));
                Ok(import_one(*negate, key.as_bstr(), value))
            }
            Token::ImportParent { negate, pattern } => self.import_parent(*negate, pattern),
            Token::Option(option) => does(Change::Option(*option)),
            _ => self.assign(token),
        }
    }

    /// The first device, from the event's own upward, on which the whole group holds.
    fn find_parent(&self, group: &[ParentMatch]) -> Try<Option<u16>> {
        self.walk(|device| Ok(self.group_holds(device, group)?.then_some(device)))
    }

    /// Calls `visit` for the event's device and each parent until it finds something. Parents are
    /// asked for only when the device itself is not it.
    fn walk<T>(&self, mut visit: impl FnMut(u16) -> Try<Option<T>>) -> Try<Option<T>> {
        if let Some(found) = visit(0)? {
            return Ok(Some(found));
        }
        let count = u16::try_from(self.facts.parents()?.len()).unwrap_or(u16::MAX - 1);
        self.spend(usize::from(count) * ENTRY);
        for device in 1..=count {
            if let Some(found) = visit(device)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn group_holds(&self, device: u16, group: &[ParentMatch]) -> Try<bool> {
        for m in group {
            if !self.parent_matches(device, m)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn parent_matches(&self, device: u16, m: &ParentMatch) -> Try<bool> {
        let matched = match &m.subject {
            ParentKey::Kernel => m.pattern.matches(self.sysname_of(device)?),
            ParentKey::Subsystem => m.pattern.matches(self.subsystem_of(device)?),
            ParentKey::Driver => m.pattern.matches(self.driver_of(device)?),
            ParentKey::Tag => self.matches_set(&m.pattern, self.tags_of(device)?),
            ParentKey::Attr(name) => match self.attr_of(device, name)? {
                Some(value) => self.compare(&m.pattern, attr_subject(value, &m.pattern)),
                None => return Ok(false),
            },
        };
        Ok(matched != m.negate)
    }

    /// The first entry of a run of parent groups, from here on, that some device can match.
    pub(super) fn seek_parents(
        &self,
        run: &Run,
        shared: &[ParentMatch],
        attr: &BString,
        trims: bool,
    ) -> Try<usize> {
        let mut nearest = run.end;
        self.walk(|device| {
            if self.group_holds(device, shared)?
                && let Some(value) = self.facts.attr(device, attr.as_bstr())?
            {
                let value = if trims { cut_and_trim(value) } else { value };
                nearest = nearest.min(run.next(self.at, value));
            }
            Ok((nearest == self.at).then_some(()))
        })?;
        Ok(nearest)
    }

    fn parent(&self, device: u16) -> Try<Option<&crate::rules::ask::ParentDevice>> {
        Ok(self.facts.parents()?.get(usize::from(device) - 1))
    }

    pub(super) fn sysname_of(&self, device: u16) -> Try<&BStr> {
        match device {
            0 => Ok(self.event().device.sysname.as_bstr()),
            n => Ok(optional(self.parent(n)?.map(|p| &p.sysname))),
        }
    }

    pub(super) fn subsystem_of(&self, device: u16) -> Try<&BStr> {
        match device {
            0 => Ok(self.event().device.subsystem.as_bstr()),
            n => Ok(optional(self.parent(n)?.map(|p| &p.subsystem))),
        }
    }

    pub(super) fn driver_of(&self, device: u16) -> Try<&BStr> {
        match (device, &self.event().device.driver) {
            (0, Some(driver)) => Ok(driver.as_bstr()),
            (0, None) => self.facts.driver(),
            (n, _) => Ok(optional(self.parent(n)?.map(|p| &p.driver))),
        }
    }

    fn tags_of(&self, device: u16) -> Try<&OrderedSet> {
        match device {
            0 => Ok(&self.event().tags.current),
            n => Ok(&self.facts.parent_state(n - 1)?.tags.current),
        }
    }

    /// The value of an attribute for a match; None makes it false.
    fn attr_of(&self, device: u16, name: &AttrName) -> Try<Option<&BStr>> {
        match name {
            AttrName::Literal(name) => self.facts.attr(device, name.as_bstr()),
            AttrName::Of { subsystem, sysname, attr } => {
                self.facts.named_attr(subsystem.as_bstr(), sysname.as_bstr(), attr.as_bstr())
            }
            AttrName::Template(template) => match self.text(template, VALUE)? {
                Some(name) => self.facts.attr(device, &name),
                None => Ok(None),
            },
        }
    }

    /// A substituted text; None if it is too long.
    pub(super) fn text<'t>(&self, template: &'t Template, limit: usize) -> Try<Option<Cow<'t, BStr>>> {
        self.text_with(template, limit, Forgotten::Nothing)
    }

    fn text_with<'t>(
        &self,
        template: &'t Template,
        limit: usize,
        forgotten: Forgotten,
    ) -> Try<Option<Cow<'t, BStr>>> {
        match template.expand(limit, false, |subst| self.value(subst, forgotten))? {
            Expansion::Text(text) => {
                if text.len() >= LONG {
                    self.spend(text.len());
                }
                Ok(Some(text))
            }
            Expansion::TooLong => Ok(None),
        }
    }

    /// The value of a substitution (rules.md 5.1).
    pub(super) fn value<'a>(&'a self, subst: &Subst, forgotten: Forgotten) -> Try<Value<'a>> {
        let event = self.event();
        let device = &event.device;
        Ok(match subst {
            Subst::Kernel => Value::borrowed(&device.sysname),
            Subst::Number => Value::borrowed(device.sysnum()),
            Subst::Devpath => Value::borrowed(&device.devpath),
            Subst::Id => match self.state.dev_parent {
                Some(n) => Value::borrowed(self.sysname_of(n)?),
                None => Value::borrowed(b""),
            },
            Subst::Driver => match self.state.dev_parent {
                Some(n) => Value::borrowed(self.driver_of(n)?),
                None => Value::borrowed(b""),
            },
            Subst::Attr(name) => match self.attr_value(name.as_bstr())? {
                Some(value) if value.len() >= VALUE => Value::TooLong,
                Some(value) => Value::Text(bstr_cow(replace_bytes(trim_end(value), sanitise::VALUE))),
                None => Value::borrowed(b""),
            },
            Subst::Env(name) => match self.env_by_name(name.as_bstr()) {
                Some(value) => Value::Text(value),
                None => Value::borrowed(b""),
            },
            Subst::Major => Value::owned(device.devnum.map_or(0, |n| n.major).to_string()),
            Subst::Minor => Value::owned(device.devnum.map_or(0, |n| n.minor).to_string()),
            Subst::Result(_) if forgotten == Forgotten::Result => Value::borrowed(b""),
            Subst::Result(part) => Value::borrowed(result_part(optional(self.state.result.as_ref()), *part)),
            Subst::Parent => match self.facts.parents()?.is_empty() {
                true => Value::borrowed(b""),
                false => {
                    let node = self.facts.parent_state(0)?.properties.get("DEVNAME");
                    Value::borrowed(node.map_or(b"", |n| below_dev(n)))
                }
            },
            Subst::Name => match (&self.state.outcome.name, &device.devnode) {
                (Some(name), _) => Value::borrowed(name),
                (None, Some(node)) => Value::borrowed(below_dev(node)),
                (None, None) => Value::borrowed(&device.sysname),
            },
            Subst::Links if forgotten == Forgotten::Links => Value::borrowed(b""),
            Subst::Links => {
                self.spend(event.links.len() * ENTRY);
                Value::owned(bstr::join(" ", event.links.iter()))
            }
            Subst::Root => Value::borrowed(b"/dev"),
            Subst::Sys => Value::borrowed(b"/sys"),
            Subst::Devnode => Value::borrowed(optional(device.devnode.as_ref())),
        })
    }

    /// `$attr{name}`: of a named device, else of the event's own, else of dev_parent.
    fn attr_value(&self, name: &BStr) -> Try<Option<&BStr>> {
        if let Some((subsystem, sysname, attr)) = named_attr(name) {
            return self.facts.named_attr(subsystem, sysname, attr);
        }
        match (self.facts.attr(0, name)?, self.state.dev_parent) {
            (None, Some(parent)) if parent > 0 => self.facts.attr(parent, name),
            (value, _) => Ok(value),
        }
    }

    fn program<'p>(&self, negate: bool, command: &Template) -> Try<Tried<'p>> {
        let failed = |holds| Tried { holds, change: Change::Result { text: None, truncated: false } };
        let Some(command) = self.text_with(command, COMMAND, Forgotten::Result)? else {
            return Ok(failed(false));
        };
        if trim(&command).is_empty() {
            return Ok(failed(negate));
        }
        Ok(match self.facts.exit(&command)? {
            Some(exit) if exit.success => {
                let output = exit.output.split(|&b| b == 0).next().unwrap_or_default();
                let text = replace_bytes(output.trim_end_with(|c| c == '\n'), sanitise::VALUE).into_owned();
                let change = Change::Result { text: Some(text.into()), truncated: exit.truncated };
                Tried { holds: !negate, change }
            }
            _ => failed(negate),
        })
    }

    fn import_file<'p>(&self, negate: bool, path: &Template) -> Try<Tried<'p>> {
        let Some(path) = self.text(path, PATH)? else { return holds(false) };
        if path.is_empty() {
            return holds(negate);
        }
        match self.facts.text(&path.to_str_lossy(), || Ask::File { path: path.clone().into_owned() })? {
            None => holds(negate),
            Some(_) => does(Change::ImportAnswer { negate, truncated: false }),
        }
    }

    fn import_program<'p>(&self, negate: bool, command: &Template) -> Try<Tried<'p>> {
        let Some(command) = self.text(command, COMMAND)? else { return holds(false) };
        if trim(&command).is_empty() {
            return holds(negate);
        }
        match self.facts.exit(&command)? {
            Some(exit) if exit.success => does(Change::ImportAnswer { negate, truncated: exit.truncated }),
            _ => holds(negate),
        }
    }

    fn import_builtin<'p>(&self, negate: bool, builtin: BuiltinName, command: &Template) -> Try<Tried<'p>> {
        let Some(command) = self.text(command, COMMAND)? else { return holds(false) };
        if let Some(verdict) = self.facts.verdict(builtin) {
            return holds(verdict != negate);
        }
        match self.facts.builtin(builtin, &command)? {
            Some(result) => {
                let change = Change::Builtin(builtin, result.clone());
                Ok(Tried { holds: result.success != negate, change })
            }
            None => holds(negate),
        }
    }

    /// A property of the old state: the record over the kernel's properties of this message
    /// (rules.md section 4, IMPORT{db}).
    fn old_property(&self, name: &BStr) -> Option<BString> {
        let event = self.event();
        if event.action == Action::Remove || name == "ID_RENAMING" {
            return None;
        }
        if let Some(old) = &event.old {
            let derived = match name.as_bytes() {
                b"DEVLINKS" => {
                    let paths: Vec<Vec<u8>> =
                        old.links.iter().map(|l| [b"/dev/", l.as_bytes()].concat()).collect();
                    (!paths.is_empty()).then(|| bstr::join(" ", paths).into())
                }
                b"TAGS" => render_tags(&old.tags),
                b"CURRENT_TAGS" => render_tags(&old.current_tags),
                b"USEC_INITIALIZED" => old.usec_initialized.map(|usec| usec.to_string().into()),
                _ => old.properties.get(name).map(BStr::to_owned),
            };
            if derived.is_some() {
                return derived;
            }
        }
        if let Some(replaced) = self.state.replaced.iter().find(|r| r.0 == name) {
            return Some(replaced.1.clone());
        }
        let kernel = event.properties.find(name).filter(|p| !p.stored && !name.starts_with(b"."));
        kernel.map(|p| p.value.to_owned())
    }

    fn import_parent<'p>(&self, negate: bool, pattern: &Template) -> Try<Tried<'p>> {
        let Some(pattern) = self.text(pattern, PATH)? else { return holds(false) };
        if self.facts.parents()?.is_empty() {
            return holds(negate);
        }
        let state = self.facts.shared_parent_state(0)?;
        let glob = Glob::new(&pattern, false);
        does(Change::Import(Import::Parent { state, glob, next: 0, found: false, negate }))
    }
}

fn import_one<'p>(negate: bool, name: &BStr, value: Option<BString>) -> Tried<'p> {
    match value {
        None => Tried { holds: negate, change: Change::Nothing },
        Some(value) => Tried { holds: !negate, change: Change::ImportOne(name.into(), value) },
    }
}

/// An attribute as its pattern compares it (rules.md 3.4).
fn attr_subject<'v>(value: &'v BStr, pattern: &Pattern) -> &'v BStr {
    if pattern.trims_attribute { cut_and_trim(value) } else { value }
}

fn cut_and_trim(value: &BStr) -> &BStr {
    trim_end(&value[..value.len().min(VALUE - 1)]).as_bstr()
}

fn below_dev(node: &[u8]) -> &[u8] {
    node.strip_prefix(b"/dev/").unwrap_or(node)
}

fn optional(text: Option<&BString>) -> &BStr {
    text.map_or(b"".as_bstr(), |t| t.as_bstr())
}

fn bstr_cow(text: Cow<'_, [u8]>) -> Cow<'_, BStr> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bstr()),
        Cow::Owned(text) => Cow::Owned(text.into()),
    }
}
