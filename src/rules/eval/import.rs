//! Imports under way. A file may have a hundred thousand lines, so that an import is done in portions, between
//! which the evaluation may pause; each takes one line at least. It is committed to: nothing else happens in the event until it is through.

use super::Evaluation;
use super::text::{Line, next_line, parse_property, whole_lines};
use crate::rules::ask::{Answer, ParentState};
use crate::rules::glob::Glob;
use bstr::{BString, ByteSlice};
use std::sync::Arc;

/// What a line or property costs besides its bytes, in units of [`super::TURN`].
const LINE: usize = 64;

/// What is imported, and how far that is.
#[derive(Clone, Debug)]
pub(super) enum Import {
    /// Lines of a file or of a program's output.
    Text { text: BString, at: usize, negate: bool },
    /// Those properties of the parent that the pattern matches; the next one by number.
    Parent { state: Arc<ParentState>, glob: Glob, next: usize, found: bool, negate: bool },
}

impl Import {
    /// The import of what the current operation was answered.
    pub fn of_answer(answer: Option<Answer>, negate: bool) -> Import {
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

impl Evaluation {
    /// Goes on with the import under way, if there is one: whether its operation holds. None if there is none, or
    /// if it has to pause.
    pub(super) fn import_on(&mut self) -> Option<bool> {
        let mut import = self.importing.take()?;
        let verdict = match &mut *import {
            Import::Text { text, at, negate } => self.import_lines(text, at).map(|holds| holds != *negate),
            Import::Parent { state, glob, next, found, negate } => {
                self.import_properties(state, glob, next, found).then_some(*found != *negate)
            }
        };
        if verdict.is_none() {
            self.importing = Some(import);
        }
        verdict
    }

    /// Whether all lines could be read; None if there are more.
    fn import_lines(&mut self, text: &BString, at: &mut usize) -> Option<bool> {
        loop {
            match next_line(text, at) {
                Line::None => return Some(true),
                Line::TooLong => {
                    let text = format_args!("a line of the file is too long, the rest is left out");
                    self.note(log::Level::Warn, text);
                    return Some(false);
                }
                Line::Some(line) => {
                    self.spend(LINE + line.len());
                    if let Some((name, value)) = parse_property(line) {
                        self.set_property(name, value);
                    }
                    if self.is_turn_over() {
                        return None;
                    }
                }
            }
        }
    }

    /// Whether all were looked at.
    fn import_properties(
        &mut self,
        state: &ParentState,
        glob: &Glob,
        next: &mut usize,
        found: &mut bool,
    ) -> bool {
        for property in state.properties.iter().skip(*next) {
            *next += 1;
            self.spend(LINE + property.name.len() + property.value.len());
            if !property.name.starts_with(b".") && glob.matches(property.name) {
                *found = true;
                self.set_property(property.name, property.value.as_bytes());
            }
            if self.is_turn_over() {
                return false;
            }
        }
        true
    }
}
