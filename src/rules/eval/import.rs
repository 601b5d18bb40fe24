//! IMPORT (rules.md section 4): the operations, tried, and imports under way.
//!
//! A file may have a hundred thousand lines, so an import is done in portions of one line at least, between which the
//! evaluation may pause. Must stay true: nothing else happens in the event until an import that has begun is through.

use super::Running;
use super::answers::Try;
use super::given::{Attempt, Given, StateChange, does, holds};
use super::substitute::{COMMAND, PATH};
use super::text::{TextLine, next_line, parse_property, whole_lines};
use crate::model::command::kernel_value;
use crate::model::event::render_tags;
use crate::model::{Action, Key};
use crate::rules::ask::{Answer, Ask, BuiltinName, ParentState};
use crate::rules::glob::Glob;
use crate::rules::sanitise::trim;
use crate::rules::subst::Template;
use bstr::{BStr, BString, ByteSlice};
use std::sync::Arc;

/// What a line or property costs besides its bytes, in units of [`super::TURN`].
const PER_LINE: usize = 64;

/// What is imported, and how far the import has come.
#[derive(Clone, Debug)]
pub(super) enum Import {
    /// Lines of a file or of a program's output.
    Text { text: BString, at: usize, negate: bool },
    /// Those properties of the parent that the pattern matches. `next` is the number of the one to look at next.
    Parent { state: Arc<ParentState>, glob: Glob, next: usize, found: bool, negate: bool },
}

impl Import {
    /// The import of what the current operation was answered.
    pub(super) fn of_answer(answer: Option<Answer>, negate: bool) -> Import {
        let text = match answer {
            Some(Answer::Text(Ok(Some(text)))) => text,
            Some(Answer::Exit(exit)) => {
                let mut text = exit.output;
                if exit.truncated {
                    let whole = whole_lines(&text).len();
                    text.truncate(whole);
                }
                text
            }
            _ => BString::default(),
        };
        Import::Text { text, at: 0, negate }
    }
}

impl Running<'_> {
    /// Goes on with the import under way, if there is one, and returns whether its operation holds. None if there is
    /// no import, or if it has to pause.
    pub(super) fn import_on(&mut self) -> Option<bool> {
        let mut import = self.stand.importing.take()?;
        let verdict = match &mut *import {
            Import::Text { text, at, negate } => self.import_lines(text, at).map(|holds| holds != *negate),
            Import::Parent { state, glob, next, found, negate } => {
                self.import_properties(state, glob, next, found).then_some(*found != *negate)
            }
        };
        if verdict.is_none() {
            self.stand.importing = Some(import);
        }
        verdict
    }

    /// Whether all lines could be read; None if there are more.
    fn import_lines(&mut self, text: &BString, at: &mut usize) -> Option<bool> {
        loop {
            match next_line(text, at) {
                TextLine::None => return Some(true),
                TextLine::TooLong => {
                    let text = format_args!("a line of the file is too long, the rest is left out");
                    self.note(log::Level::Warn, text);
                    return Some(false);
                }
                TextLine::Some(line) => {
                    self.given.spend(PER_LINE + line.len());
                    if let Some((name, value)) = parse_property(line) {
                        self.set_property(name, value);
                    }
                    if self.given.is_turn_over() {
                        return None;
                    }
                }
            }
        }
    }

    /// Whether all properties were looked at.
    fn import_properties(
        &mut self,
        state: &ParentState,
        glob: &Glob,
        next: &mut usize,
        found: &mut bool,
    ) -> bool {
        for property in state.properties.iter().skip(*next) {
            *next += 1;
            self.given.spend(PER_LINE + property.name.len() + property.value.len());
            if !property.name.starts_with(b".") && glob.matches(property.name) {
                *found = true;
                self.set_property(property.name, property.value.as_bytes());
            }
            if self.given.is_turn_over() {
                return false;
            }
        }
        true
    }
}

/// The operations, tried.
impl Given<'_> {
    pub(super) fn import_file<'p>(&self, negate: bool, path: &Template) -> Try<Attempt<'p>> {
        let Some(path) = self.text(path, PATH)? else { return holds(false) };
        if path.is_empty() {
            return holds(negate);
        }
        match self.answers.text(&path.to_str_lossy(), || Ask::File { path: path.clone().into_owned() })? {
            None => holds(negate),
            Some(_) => does(StateChange::ImportAnswer { negate, truncated: false }),
        }
    }

    pub(super) fn import_program<'p>(&self, negate: bool, command: &Template) -> Try<Attempt<'p>> {
        let Some(command) = self.text(command, COMMAND)? else { return holds(false) };
        if trim(&command).is_empty() {
            return holds(negate);
        }
        match self.answers.exit(&command)? {
            Some(exit) if exit.success => {
                does(StateChange::ImportAnswer { negate, truncated: exit.truncated })
            }
            _ => holds(negate),
        }
    }

    pub(super) fn import_builtin<'p>(
        &self,
        negate: bool,
        builtin: BuiltinName,
        command: &Template,
    ) -> Try<Attempt<'p>> {
        let Some(command) = self.text(command, COMMAND)? else { return holds(false) };
        if let Some(verdict) = self.answers.verdict(builtin) {
            return holds(verdict != negate);
        }
        match self.answers.builtin(builtin, &command)? {
            Some(result) => {
                let change = StateChange::Builtin(builtin, result.clone());
                Ok(Attempt { holds: result.success != negate, change })
            }
            None => holds(negate),
        }
    }

    pub(super) fn import_db<'p>(&self, negate: bool, key: &Key) -> Try<Attempt<'p>> {
        Ok(import_one(negate, key.name(), self.old_property(key.name())))
    }

    pub(super) fn import_command_line<'p>(&self, negate: bool, key: &BString) -> Try<Attempt<'p>> {
        let line = self.answers.text("the kernel command line", || Ask::CommandLine)?;
        let value = kernel_value(line.unwrap_or_default(), key, self.config.in_initrd)
            .map(|value| value.unwrap_or_else(|| "1".into()));
        Ok(import_one(negate, key.as_bstr(), value))
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
                        old.symlinks.iter().map(|l| [b"/dev/", l.as_bytes()].concat()).collect();
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

    pub(super) fn import_parent<'p>(&self, negate: bool, pattern: &Template) -> Try<Attempt<'p>> {
        let Some(pattern) = self.text(pattern, PATH)? else { return holds(false) };
        if self.answers.parents()?.is_empty() {
            return holds(negate);
        }
        let state = self.answers.shared_parent_state(0)?;
        let glob = Glob::new(&pattern, false);
        does(StateChange::Import(Import::Parent { state, glob, next: 0, found: false, negate }))
    }
}

fn import_one<'p>(negate: bool, name: &BStr, value: Option<BString>) -> Attempt<'p> {
    match value {
        None => Attempt { holds: negate, change: StateChange::Nothing },
        Some(value) => Attempt { holds: !negate, change: StateChange::ImportOne(name.into(), value) },
    }
}
