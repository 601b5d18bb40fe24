//! The device and its parents (rules.md 3.8): groups of matches that must hold on one of them, and what is known of
//! each. Device 0 is the event's own, device n its n-th parent from below.

use super::LINE_COST;
use super::answers::{Try, Unfinished};
use super::given::Given;
use super::matching::optional;
use super::substitute::VALUE;
use crate::model::Key;
use crate::model::event::OrderedSet;
use crate::rules::ask::ParentDevice;
use crate::rules::pattern::Pattern;
use crate::rules::program::{AttrName, Match, ParentKey, ParentMatch};
use crate::rules::sanitise::trim_end;
use crate::rules::skip::{EventView, ParentsKey};
use bstr::{BStr, ByteSlice};
use std::borrow::Cow;

impl Given<'_> {
    /// The first device, from the event's own upward, on which the whole group holds.
    pub(super) fn find_parent(&self, group: &[ParentMatch]) -> Try<Option<u16>> {
        self.walk(|device| Ok(self.group_holds(device, group)?.then_some(device)))
    }

    /// Calls `visit` for the event's device and each parent until it finds something. Parents are
    /// asked for only when the device itself is not it.
    fn walk<T>(&self, mut visit: impl FnMut(u16) -> Try<Option<T>>) -> Try<Option<T>> {
        if let Some(found) = visit(0)? {
            return Ok(Some(found));
        }
        let count = u16::try_from(self.answers.parents()?.len()).unwrap_or(u16::MAX - 1);
        self.spend(usize::from(count) * LINE_COST);
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

    fn parent(&self, device: u16) -> Try<Option<&ParentDevice>> {
        Ok(self.answers.parents()?.get(usize::from(device) - 1))
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
            (0, None) => self.answers.driver(),
            (n, _) => Ok(optional(self.parent(n)?.map(|p| &p.driver))),
        }
    }

    fn tags_of(&self, device: u16) -> Try<&OrderedSet> {
        match device {
            0 => Ok(&self.event().tags.current),
            n => Ok(&self.answers.parent_state(n - 1)?.tags.current),
        }
    }

    /// The value of an attribute for a match; None makes it false.
    pub(super) fn attr_of(&self, device: u16, name: &AttrName) -> Try<Option<&BStr>> {
        match name {
            AttrName::Literal(name) => self.answers.attr(device, name.as_bstr()),
            AttrName::Of { subsystem, sysname, attr } => {
                self.answers.named_attr(subsystem.as_bstr(), sysname.as_bstr(), attr.as_bstr())
            }
            AttrName::Template(template) => match self.text(template, VALUE)? {
                Some(name) => self.answers.attr(device, &name),
                None => Ok(None),
            },
        }
    }
}

/// How `rules/skip/` looks at the event.
impl EventView for Given<'_> {
    type Stop = Box<Unfinished>;

    fn property(&self, key: &Key) -> &BStr {
        self.plain_env(key)
    }

    fn known_parents(&self) -> Option<u16> {
        u16::try_from(self.answers.known_parents()?.len()).ok()
    }

    fn known_names(&self, device: u16) -> Option<(&BStr, &BStr)> {
        Some((self.driver_of(device).ok()?, self.subsystem_of(device).ok()?))
    }

    fn holds(&self, m: &Match) -> Try<bool> {
        self.matches(m)
    }

    fn value(&self, m: &Match) -> Try<Option<Cow<'_, BStr>>> {
        self.subject(m)
    }

    fn each_value(&self, key: &ParentsKey<'_>, mut visit: impl FnMut(&BStr) -> bool) -> Try<()> {
        let found = self.walk(|device| {
            if self.group_holds(device, key.shared)?
                && let Some(value) = self.answers.attr(device, key.attr)?
            {
                let value = if key.trims { cut_and_trim(value) } else { value };
                return Ok(visit(value).then_some(()));
            }
            Ok(None)
        });
        found.map(|_| ())
    }

    fn pays_for_line(&self) -> bool {
        Given::pays_for_line(self)
    }

    fn spend(&self, units: usize) {
        Given::spend(self, units);
    }
}

/// An attribute as its pattern compares it (rules.md 3.4).
pub(super) fn attr_subject<'v>(value: &'v BStr, pattern: &Pattern) -> &'v BStr {
    if pattern.trims_attribute { cut_and_trim(value) } else { value }
}

fn cut_and_trim(value: &BStr) -> &BStr {
    trim_end(&value[..value.len().min(VALUE - 1)]).as_bstr()
}
