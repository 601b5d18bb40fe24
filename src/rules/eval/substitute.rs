//! Substituted texts (rules.md 5 and 6.3): what `$` and `%` stand for in the event as it is now.

use super::LINE_COST;
use super::answers::Try;
use super::given::Given;
use super::matching::optional;
use crate::rules::program::named_attr;
use crate::rules::sanitise::{self, replace_bytes, trim_end};
use crate::rules::subst::{Expansion, Subst, Template, Value, result_part};
use bstr::{BStr, ByteSlice};
use std::borrow::Cow;

/// PROGRAM, IMPORT{program,builtin}, RUN, SECLABEL (rules.md 6.3; with terminator, as all below).
pub(super) const COMMAND: usize = 16384;
/// TEST, IMPORT{file,parent}, SYSCTL name, TAG, NAME, SYMLINK.
pub(super) const PATH: usize = 1024;
/// ATTR and SYSCTL values, ENV, OWNER, GROUP, MODE, substituted attribute names, `$attr` values.
pub(super) const VALUE: usize = 512;

/// Bytes of a text from which on it takes its share of the turn. What is shorter counts with its line.
pub(super) const LONG: usize = 512;

/// What an operation has forgotten by the time its text is substituted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Forgotten {
    Nothing,
    /// PROGRAM: the last result.
    Result,
    /// SYMLINK=: the links so far.
    Links,
}

impl Given<'_> {
    /// A substituted text; None if it is too long.
    pub(super) fn text<'t>(&self, template: &'t Template, limit: usize) -> Try<Option<Cow<'t, BStr>>> {
        self.text_with(template, limit, Forgotten::Nothing)
    }

    pub(super) fn text_with<'t>(
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
            Subst::Parent => match self.answers.parents()?.is_empty() {
                true => Value::borrowed(b""),
                false => {
                    let node = self.answers.parent_state(0)?.properties.get("DEVNAME");
                    Value::borrowed(node.map_or(b"", |n| below_dev(n)))
                }
            },
            Subst::Name => match (&self.outcome.name, &device.devnode) {
                (Some(name), _) => Value::borrowed(name),
                (None, Some(node)) => Value::borrowed(below_dev(node)),
                (None, None) => Value::borrowed(&device.sysname),
            },
            Subst::Links if forgotten == Forgotten::Links => Value::borrowed(b""),
            Subst::Links => {
                self.spend(event.symlinks.len() * LINE_COST);
                Value::owned(bstr::join(" ", event.symlinks.iter()))
            }
            Subst::Root => Value::borrowed(b"/dev"),
            Subst::Sys => Value::borrowed(b"/sys"),
            Subst::Devnode => Value::borrowed(optional(device.devnode.as_ref())),
        })
    }

    /// `$attr{name}`: of a named device, else of the event's own, else of dev_parent.
    fn attr_value(&self, name: &BStr) -> Try<Option<&BStr>> {
        if let Some((subsystem, sysname, attr)) = named_attr(name) {
            return self.answers.named_attr(subsystem, sysname, attr);
        }
        match (self.answers.attr(0, name)?, self.state.dev_parent) {
            (None, Some(parent)) if parent > 0 => self.answers.attr(parent, name),
            (value, _) => Ok(value),
        }
    }
}

fn below_dev(node: &[u8]) -> &[u8] {
    node.strip_prefix(b"/dev/").unwrap_or(node)
}

fn bstr_cow(text: Cow<'_, [u8]>) -> Cow<'_, BStr> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bstr()),
        Cow::Owned(text) => Cow::Owned(text.into()),
    }
}
