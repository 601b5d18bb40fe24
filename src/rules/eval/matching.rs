//! Matches on the event's own device, and operations that hold or do not (rules.md 3, 4).

use super::answers::{Try, fail};
use super::given::{Attempt, Given, StateChange, does, holds};
use super::parents::attr_subject;
use super::substitute::{COMMAND, Forgotten, LONG, PATH};
use super::text::sysctl_name;
use crate::model::event::OrderedSet;
use crate::model::{Errno, Key};
use crate::rules::ask::Ask;
use crate::rules::pattern::{Alternative, Pattern};
use crate::rules::program::{Match, MatchKey, Token};
use crate::rules::sanitise::{self, replace_bytes, trim};
use crate::rules::skip::matches_subsystem;
use crate::rules::subst::Template;
use bstr::{BStr, BString, ByteSlice};
use std::borrow::Cow;

impl Given<'_> {
    /// Whether a match on the event's device holds.
    pub(super) fn matches(&self, m: &Match) -> Try<bool> {
        let event = self.event();
        let matched = match &m.subject {
            MatchKey::Symlink => self.matches_set(&m.pattern, &event.symlinks),
            MatchKey::Tag => self.matches_set(&m.pattern, &event.tags.current),
            MatchKey::Subsystem { any_class } => {
                matches_subsystem(&m.pattern, *any_class, &event.device.subsystem)
            }
            MatchKey::Sysctl(name) => return self.matches_sysctl(name, &m.pattern, m.negate),
            // Long lists of rules ask this most.
            MatchKey::Env(key) if !key.is_derived() => self.compare(&m.pattern, self.plain_env(key)),
            _ => match self.subject(m)? {
                Some(value) => self.compare(&m.pattern, &value),
                None => return Ok(false),
            },
        };
        Ok(matched != m.negate)
    }

    /// Whether some element matches. The compiler has turned `?*` into its opposite, which is the reason for the traps
    /// of rules.md 3.3.
    pub(super) fn matches_set(&self, pattern: &Pattern, set: &OrderedSet) -> bool {
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
    pub(super) fn compare(&self, pattern: &Pattern, value: &[u8]) -> bool {
        if value.len() >= LONG {
            self.spend(value.len() + pattern.cost(value.len()));
        }
        pattern.matches(value)
    }

    /// The value that a match compares; None if the match is false whatever its operator. It has no value for
    /// sets, SUBSYSTEM and SYSCTL.
    pub(super) fn subject(&self, m: &Match) -> Try<Option<Cow<'_, BStr>>> {
        let event = self.event();
        let text = match &m.subject {
            MatchKey::Action => event.action.as_str().as_bytes().as_bstr(),
            MatchKey::Devpath => event.device.devpath.as_bstr(),
            MatchKey::Kernel => event.device.sysname.as_bstr(),
            MatchKey::Name => optional(self.outcome.name.as_ref()),
            MatchKey::Driver => self.driver_of(0)?,
            MatchKey::Attr(name) => {
                let value = self.attr_of(0, name)?;
                return Ok(value.map(|v| Cow::Borrowed(attr_subject(v, &m.pattern))));
            }
            MatchKey::Env(key) => return Ok(Some(self.env(key))),
            MatchKey::Const(constant) => self.answers.constant(*constant)?,
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
        let value = self.answers.text(&what, || Ask::Sysctl { name: path })?;
        Ok(self.compare(pattern, trim(value.unwrap_or_default())) != negate)
    }

    /// Tries any token but a [`Token::Match`].
    pub(super) fn attempt<'p>(&self, token: &'p Token) -> Try<Attempt<'p>> {
        match token {
            Token::Match(m) => holds(self.matches(m)?),
            Token::Parents(group) => {
                let device = self.find_parent(group)?;
                Ok(Attempt { holds: device.is_some(), change: StateChange::DevParent(device) })
            }
            Token::Test { negate, path, mask } => {
                let Some(path) = self.text(path, PATH)? else { return holds(false) };
                let mode = self.answers.mode(&path)?;
                holds(mode.is_some_and(|mode| mask.is_none_or(|mask| mode & mask != 0)) != *negate)
            }
            Token::Program { negate, command } => self.program(*negate, command),
            Token::ImportFile { negate, path } => self.import_file(*negate, path),
            Token::ImportProgram { negate, command } => self.import_program(*negate, command),
            Token::ImportBuiltin { negate, builtin, command } => {
                self.import_builtin(*negate, *builtin, command)
            }
            Token::ImportDb { negate, key } => self.import_db(*negate, key),
            Token::ImportCommandLine { negate, key } => self.import_command_line(*negate, key),
            Token::ImportParent { negate, pattern } => self.import_parent(*negate, pattern),
            Token::Option(option) => does(StateChange::Option(*option)),
            _ => self.assign(token),
        }
    }

    fn program<'p>(&self, negate: bool, command: &Template) -> Try<Attempt<'p>> {
        let failed = |holds| Attempt { holds, change: StateChange::Result { text: None, truncated: false } };
        let Some(command) = self.text_with(command, COMMAND, Forgotten::Result)? else {
            return Ok(failed(false));
        };
        if trim(&command).is_empty() {
            return Ok(failed(negate));
        }
        Ok(match self.answers.exit(&command)? {
            Some(exit) if exit.success => {
                let output = exit.output.split(|&b| b == 0).next().unwrap_or_default();
                let text = replace_bytes(output.trim_end_with(|c| c == '\n'), sanitise::VALUE).into_owned();
                let change = StateChange::Result { text: Some(text.into()), truncated: exit.truncated };
                Attempt { holds: !negate, change }
            }
            _ => failed(negate),
        })
    }
}

pub(super) fn optional(text: Option<&BString>) -> &BStr {
    text.map_or(b"".as_bstr(), |t| t.as_bstr())
}
