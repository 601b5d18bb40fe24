//! What operations are tried with, and what comes of it.
//!
//! Must stay true: an operation is tried through `&self` of [`Given`], so that nothing changes before
//! [`Running::commit`](super::Running::commit) takes the [`StateChange`] in.

use super::answers::{KnownAnswers, Try};
use super::import::Import;
use super::{EvalConfig, LINE_COST};
use crate::model::{Event, Key};
use crate::rules::ask::{BuiltinName, BuiltinResult};
use crate::rules::outcome::{Outcome, RunItem};
use crate::rules::program::{Escape, ListOp, OptionToken};
use bstr::BString;
use std::cell::Cell;

/// All that operations read: the configuration, what the rules have decided so far, what was answered.
pub(super) struct Given<'t> {
    pub config: &'t EvalConfig,
    pub outcome: &'t mut Outcome,
    pub state: &'t mut State,
    pub answers: &'t mut KnownAnswers,
    /// What is left of the turn. It is in a cell because it shrinks while operations are tried through `&self`.
    pub left: &'t Cell<usize>,
}

impl Given<'_> {
    /// The event as it is now.
    pub(super) fn event(&self) -> &Event {
        &self.outcome.event
    }

    /// Takes these units of work from the turn.
    pub(super) fn spend(&self, units: usize) {
        self.left.set(self.left.get().saturating_sub(units));
    }

    /// Takes the cost of a line from the turn; false if there is too little left.
    pub(super) fn pays_for_line(&self) -> bool {
        let left = self.left.get().checked_sub(LINE_COST);
        left.map(|left| self.left.set(left)).is_some()
    }

    pub(super) fn is_turn_over(&self) -> bool {
        self.left.get() == 0
    }
}

/// What the rules have decided so far that is no part of the outcome.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// RESULT.
    pub result: Option<BString>,
    /// The device of the last parent group that held: 0 is the event's own, n its parent n - 1.
    pub dev_parent: Option<u16>,
    /// `string_escape` of the current line.
    pub escape: Escape,
    /// Lists and values that `:=` closed.
    pub closed: Finals,
    /// Kernel properties that rules overwrote or removed, as they were: IMPORT{db} sees them.
    pub replaced: Vec<(BString, BString)>,
}

impl State {
    /// Nothing is decided yet.
    pub(super) fn new() -> State {
        State {
            result: None,
            dev_parent: None,
            escape: Escape::Unset,
            closed: Finals::default(),
            replaced: Vec::new(),
        }
    }
}

/// What `:=` closed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Finals {
    pub owner: bool,
    pub group: bool,
    pub mode: bool,
    pub name: bool,
    pub symlink: bool,
    pub run: bool,
    pub watch: bool,
}

/// A successful try.
pub(super) struct Attempt<'p> {
    pub holds: bool,
    pub change: StateChange<'p>,
}

/// A substituted text, if it was not too long.
pub(super) enum Text {
    Value(BString),
    TooLong,
}

/// What an operation does to the state. Texts are substituted and cleaned.
pub(super) enum StateChange<'p> {
    Nothing,
    DevParent(Option<u16>),
    Result {
        text: Option<BString>,
        truncated: bool,
    },
    /// An empty value removes.
    ImportOne(BString, BString),
    Import(Import),
    /// The import of what the operation was answered.
    ImportAnswer {
        negate: bool,
        truncated: bool,
    },
    Builtin(BuiltinName, BuiltinResult),
    Option(OptionToken),
    Owner {
        id: Id,
        last: bool,
    },
    Group {
        id: Id,
        last: bool,
    },
    Mode {
        mode: Result<u32, Text>,
        last: bool,
    },
    Tag {
        op: ListOp,
        tag: Text,
    },
    SecLabel {
        module: &'p BString,
        op: ListOp,
        label: Text,
    },
    Unset(&'p Key),
    Env(&'p Key, Text),
    Name {
        name: Text,
        last: bool,
    },
    Symlink {
        op: ListOp,
        links: Text,
        last: bool,
    },
    /// `item` is None if its text was too long.
    Run {
        op: ListOp,
        item: Option<RunItem>,
        last: bool,
        clears_only: bool,
    },
    AttrWritten,
    SysctlWritten,
    /// The operation is left out, for this reason.
    Refused(log::Level, String),
}

/// A user or group.
pub(super) enum Id {
    Known(u32),
    Unknown(BString),
    TooLong,
}

pub(super) fn holds<'p>(holds: bool) -> Try<Attempt<'p>> {
    Ok(Attempt { holds, change: StateChange::Nothing })
}

pub(super) fn does(change: StateChange<'_>) -> Try<Attempt<'_>> {
    Ok(Attempt { holds: true, change })
}
