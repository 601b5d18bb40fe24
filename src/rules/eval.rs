//! The evaluator that can stop in the middle. (Signatures; the body follows.)

use super::ask::{Answer, Ask};
use super::outcome::Outcome;
use super::specialise::Specialised;
use crate::model::{Event, Properties};
use bstr::BString;
use std::sync::Arc;

/// What an evaluation needs to know besides its event.
#[derive(Clone, Debug, Default)]
pub struct EvalConfig {
    /// Global properties (`udevadm control --property`): fall-back of ENV matches and `$env{}`.
    pub globals: Arc<Properties>,
    /// Strict interface names (naming scheme v249 and later).
    pub strict_names: bool,
    /// `rd.` words of the kernel command line count.
    pub in_initrd: bool,
}

/// A message to the author of the rules; the text begins with `file:line`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub level: log::Level,
    pub text: String,
}

/// Where [`Evaluation::run`] stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Exactly this question is open; [`Evaluation::answer`] goes on.
    Ask(Ask),
    Done,
}

/// One event on its way through the rules.
#[derive(Clone, Debug)]
pub struct Evaluation {
    event: Event,
}

impl Evaluation {
    /// At the first line; `event.old` is there, and merged for remove.
    pub fn start(_program: Arc<Specialised>, event: Event, _config: EvalConfig) -> Evaluation {
        Evaluation { event }
    }
    /// Goes on until a question is open or all lines are done.
    pub fn run(&mut self) -> Step {
        todo!()
    }
    /// Answers the open question.
    pub fn answer(&mut self, _answer: Answer) {
        todo!()
    }
    /// The event as it is now: what programs get as environment, what builtins read.
    pub fn event(&self) -> &Event {
        &self.event
    }
    /// File (index into [`super::program::RuleSet::files`]) and line number it stands at.
    pub fn position(&self) -> (u32, u32) {
        todo!()
    }
    /// OPTIONS="log_level=..." so far.
    pub fn log_level(&self) -> Option<log::LevelFilter> {
        todo!()
    }
    /// Messages since the last call.
    pub fn take_notes(&mut self) -> Vec<Note> {
        todo!()
    }
    /// The path of the file at this index, for [`Evaluation::position`].
    pub fn file(&self, _index: u32) -> BString {
        todo!()
    }
    /// What the rules decided.
    pub fn into_outcome(self) -> Outcome {
        todo!()
    }
}
