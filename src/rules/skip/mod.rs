//! Passing over lines that cannot hold: the only place that decides it.
//!
//! Most lines cannot match most events. A program is therefore made for each kind of event, and an event
//! remembers what its questions have shown:
//!
//! * ACTION and SUBSYSTEM never change during an event, so their matches are decided once for each kind of event,
//!   together with the classes of lines (rules.md 2.5) and the jumps that are always taken ([`fold`]).
//! * Of the lines that are kept, *runs* of lines that differ in the literal of one key (vendor lists, field.md
//!   section 6) are entered by a look-up of the value of that key ([`runs`]).
//! * Hundreds of packages begin their lines with the same question. A question that failed once is a *guard* whose
//!   lines fail with it ([`guards`]).
//! * *Stretches* of lines are passed over in one step when all of them are known to fail ([`stretches`]).
//!
//! [`Seen`] keeps what one event has shown so far, and answers the one question that the evaluator has:
//! which is the next line that may hold, and was a parent forgotten on the way ([`Seen::next_line`])?
//!
//! Must stay true: a specialised program gives exactly the outcome of the plain one. Only lines that would fail
//! are passed over. A line that may hold is evaluated in full, so a collision of hashes costs time and nothing else.

mod fold;
mod guards;
mod programs;
mod runs;
mod seen;
mod stretches;
#[cfg(test)]
mod tests;

pub use fold::EventKind;
pub(super) use fold::matches_subsystem;
pub use programs::Programs;
pub(super) use runs::ParentsKey;
pub(super) use seen::{Arrival, EventView, Seen};

use super::program::{Line, Match, MatchKey, RuleSet, Token};
use fold::KeptLine;
use guards::Guards;
use runs::Runs;
use std::sync::Arc;
use stretches::Stretches;

/// "None" where a line has the index of something.
const NONE: u32 = u32::MAX;

/// A program for one kind of event.
#[derive(Debug)]
pub struct Specialised {
    rules: Arc<RuleSet>,
    /// The lines that may matter, in order. What the evaluator calls a place is an index into this.
    lines: Vec<KeptLine>,
    runs: Runs,
    guards: Guards,
    stretches: Stretches,
}

impl Specialised {
    /// The lines that may matter for this kind of event, and all that helps to pass over them.
    pub fn new(rules: Arc<RuleSet>, kind: EventKind<'_>) -> Specialised {
        let mut lines = fold::fold(&rules, kind);
        let runs = Runs::find(&rules, &mut lines, kind);
        let guards = Guards::find(&rules, &mut lines);
        let stretches = Stretches::find(&guards, &mut lines);
        Specialised { rules, lines, runs, guards, stretches }
    }

    /// All active lines as they stand, without any help: the reference that [`Specialised::new`] must
    /// agree with.
    #[allow(dead_code, reason = "tests and fuzzing compare with it")]
    pub fn plain(rules: Arc<RuleSet>, kind: EventKind<'_>) -> Specialised {
        let lines = fold::keep_all(&rules, kind);
        let (runs, guards, stretches) = Default::default();
        Specialised { rules, lines, runs, guards, stretches }
    }

    /// The rules that this program was made from.
    pub fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    /// How many lines are kept, and how many runs there are among them.
    #[cfg(test)]
    pub fn size(&self) -> (usize, usize) {
        (self.lines.len(), self.runs.len())
    }

    /// The line at this place.
    pub(super) fn line(&self, at: usize) -> Option<&Line> {
        self.rules.lines.get(self.lines.get(at)?.line as usize)
    }

    /// The tokens of the line at this place, and the first one to try: those in front of it hold for all events of
    /// this kind.
    pub(super) fn tokens(&self, at: usize) -> (&[Token], usize) {
        let Some(kept) = self.lines.get(at) else { return (&[], 0) };
        let tokens = self.rules.lines.get(kept.line as usize).map_or(&[][..], |line| &line.tokens);
        (tokens, kept.first as usize)
    }

    /// The place to go on at when all tokens of the line held.
    pub(super) fn after(&self, at: usize) -> usize {
        self.lines.get(at).and_then(KeptLine::goto).unwrap_or(at + 1)
    }
}

/// A match that has no effect and fails no event: whether it is tried before or after another one
/// makes no difference to the outcome.
fn is_pure(token: &Token) -> bool {
    matches!(token, Token::Match(m) if !matches!(m.subject, MatchKey::Sysctl(_)))
}

/// A match on the event's device.
fn as_match(token: &Token) -> Option<&Match> {
    if let Token::Match(m) = token { Some(m) } else { None }
}
