//! The evaluator that can stop in the middle.
//!
//! The state of one evaluation is a value: where it stands, the one open question, the answers that it
//! knows, what the rules have decided so far. An operation (token) is *tried* through `&self` of [`Given`] and
//! yields what is to change, or the first question whose answer is not known. On the answer the same
//! operation is tried again from its beginning, with one answer more. Only [`Evaluation::commit`] takes
//! `&mut self`. Which lines are passed over without being tried is decided in `rules/skip/`.
//!
//! An evaluation also pauses ([`TurnEnd::Pauses`]) after a [`TURN`] of work, wherever it is: between lines, between
//! answers, within an import. Whoever drives it may then do other things first.
//!
//! Must stay true: no operation has an effect before all its answers are in; exactly one question is
//! open at a time; dropping an evaluation cancels it; the outcome depends on the answers alone, not on pauses.
//! Read rules.md sections 3 to 8 first.

mod answers;
mod assign;
mod commit;
mod dump;
mod given;
mod import;
mod matching;
mod parents;
mod substitute;
mod text;

#[cfg(test)]
mod tests;

use super::ask::{Answer, Ask};
use super::outcome::Outcome;
use super::program::{Escape, Token};
use super::skip::{Arrival, Seen, Specialised};
use crate::model::{Event, Properties};
use answers::{KnownAnswers, Try, Unfinished};
use bstr::{BStr, ByteSlice};
use given::{Attempt, Given, State, StateChange};
use import::Import;
use std::cell::Cell;
use std::sync::Arc;

/// What an evaluation needs to know besides its event.
#[derive(Clone, Debug, Default)]
pub struct EvalConfig {
    /// Global properties (`udevadm control --property`): fall-back of ENV matches, `$env{}`, ENV+=.
    pub globals: Arc<Properties>,
    /// Strict interface names (naming scheme v249 and later).
    pub strict_names: bool,
    /// We run in an initrd: `rd.` words of the kernel command line count.
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
pub enum Halt {
    /// Exactly this question is open; [`Evaluation::answer`] goes on.
    Ask(Ask),
    Done,
}

/// Where [`Evaluation::go_on`] stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// [`Evaluation::asked`] has the question.
    Asks,
    /// The turn is over. To go on is as right as to do something else first.
    Pauses,
    Done,
}

/// Work between two pauses, in units of about a nanosecond: a byte that is compared, much more for a line or a
/// question. Nearly all events are through in less.
pub const TURN: usize = 128 * 1024;
/// What a line costs: most lines end at their first token.
const LINE_COST: usize = 16;
/// What a message costs, the logging included.
const NOTE_COST: usize = 1024;
/// What a question costs: a read of sysfs if it is answered at once.
const QUESTION_COST: usize = 4096;

/// One event on its way through the rules.
#[derive(Clone, Debug)]
pub struct Evaluation {
    program: Arc<Specialised>,
    given: Given,
    seen: Seen,
    /// The place in the program where it stands.
    at: usize,
    /// The token of that line; None before the line is begun.
    token: Option<usize>,
    open: Option<Ask>,
    importing: Option<Box<Import>>,
    notes: Vec<Note>,
}

impl Evaluation {
    /// An evaluation at the first line. `event.old` is the old record, if there is one; for remove it
    /// is already merged into the event.
    pub fn start(program: Arc<Specialised>, event: Event, config: EvalConfig) -> Evaluation {
        Evaluation::of(program, Box::new(Outcome::new(event)), config)
    }

    /// The same for an event in the box in which its outcome stays.
    pub fn of(program: Arc<Specialised>, outcome: Box<Outcome>, config: EvalConfig) -> Evaluation {
        let seen = Seen::new(&program);
        let (state, answers) = (State::new(outcome), KnownAnswers::default());
        let given = Given { config, state, answers, left: Cell::new(TURN) };
        Evaluation {
            program,
            given,
            seen,
            at: 0,
            token: None,
            open: None,
            importing: None,
            notes: Vec::new(),
        }
    }

    /// Goes on until a question is open or all lines are done, without pauses. Calling it again with a question
    /// open repeats the question.
    pub fn run(&mut self) -> Halt {
        loop {
            match self.go_on() {
                TurnEnd::Pauses => {}
                TurnEnd::Done => return Halt::Done,
                TurnEnd::Asks => return self.open.clone().map_or(Halt::Done, Halt::Ask),
            }
        }
    }

    /// Goes on until a question is open, all lines are done or the turn is over; then the next turn begins.
    pub fn go_on(&mut self) -> TurnEnd {
        if self.open.is_some() {
            return TurnEnd::Asks;
        }
        let program = self.program.clone();
        while self.given.state.outcome.failure.is_none() {
            if self.token.is_none() {
                let next = self.seen.next_line(&program, self.at, &self.given);
                self.at = next.at;
                if next.forgets_parent {
                    self.given.state.dev_parent = None;
                }
                match next.arrival {
                    Arrival::Line => self.given.state.escape = Escape::Unset,
                    Arrival::End => break,
                    Arrival::TurnOver => return self.pause(),
                    Arrival::Stopped(unfinished) => match self.stop(*unfinished) {
                        Some(end) => return end,
                        None => break,
                    },
                }
            } else if !self.given.pays_for_line() {
                return self.pause();
            }
            if let Err(unfinished) = self.try_line(&program)
                && let Some(end) = self.stop(*unfinished)
            {
                return end;
            }
        }
        TurnEnd::Done
    }

    /// The turn is over, and the next one begins.
    fn pause(&mut self) -> TurnEnd {
        self.given.left.set(TURN);
        TurnEnd::Pauses
    }

    /// Opens the question that an operation has, or lets the event fail.
    fn stop(&mut self, unfinished: Unfinished) -> Option<TurnEnd> {
        match unfinished {
            Unfinished::Asks(ask) => {
                self.open = Some(ask);
                self.given.spend(QUESTION_COST);
                Some(TurnEnd::Asks)
            }
            Unfinished::Fails(errno, what) => {
                self.note(log::Level::Error, format_args!("{what}; the event fails"));
                self.given.state.outcome.failure = Some(errno);
                None
            }
        }
    }

    /// What is left of the turn is no more than this.
    #[cfg(test)]
    fn shorten_turn(&self, units: usize) {
        self.given.left.set(self.given.left.get().min(units));
    }

    /// Answers the open question. Without one there is nothing to answer, and nothing happens.
    pub fn answer(&mut self, answer: Answer) {
        if let Some(ask) = self.open.take() {
            self.given.answers.learn(ask, answer);
        }
    }

    /// The event as it is now: what programs get as environment, what builtins read.
    pub fn event(&self) -> &Event {
        self.given.event()
    }

    /// The question that waits for its answer.
    pub fn asked(&self) -> Option<&Ask> {
        self.open.as_ref()
    }

    /// File (index into [`super::program::RuleSet::files`]) and line number where the evaluation stands, or stood
    /// at last.
    pub fn position(&self) -> (u32, u32) {
        let line = self.program.line(self.at).or_else(|| self.program.line(self.at.checked_sub(1)?));
        line.map_or((0, 0), |line| (line.file, line.number))
    }

    /// The path of the file of [`position`](Self::position).
    pub fn file(&self, index: u32) -> &BStr {
        self.program.rules().files.get(index as usize).map_or(b"".as_bstr(), |f| f.as_bstr())
    }

    /// OPTIONS="log_level=..." so far.
    pub fn log_level(&self) -> Option<log::LevelFilter> {
        self.given.state.outcome.log_level
    }

    /// Messages since the last call.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// What the rules decided. Before [`Halt::Done`]: what they have decided so far.
    pub fn into_outcome(self) -> Box<Outcome> {
        self.given.state.outcome
    }

    /// Tries the tokens of the line, from where it stands in it, until one does not hold.
    fn try_line(&mut self, program: &Specialised) -> Try<()> {
        let (tokens, first) = program.tokens(self.at);
        let mut at = self.token.unwrap_or(first);
        while let Some(token) = tokens.get(at) {
            self.token = Some(at);
            let holds = match token {
                Token::Match(m) => self.given.matches(m)?,
                _ => {
                    let attempt = match self.importing {
                        None => self.given.attempt(token)?,
                        Some(_) => Attempt { holds: true, change: StateChange::Nothing },
                    };
                    self.commit(attempt.change);
                    match self.import_on() {
                        Some(imported) => imported,
                        None if self.importing.is_some() => return Ok(()),
                        None => attempt.holds,
                    }
                }
            };
            self.given.answers.forget_operation();
            if !holds {
                if at == first {
                    self.seen.first_token_failed(program, self.at);
                }
                self.go_to(self.at + 1);
                return Ok(());
            }
            at += 1;
        }
        self.go_to(program.after(self.at));
        Ok(())
    }

    fn go_to(&mut self, at: usize) {
        self.at = at;
        self.token = None;
    }

    fn note(&mut self, level: log::Level, what: std::fmt::Arguments<'_>) {
        self.given.spend(NOTE_COST);
        let (file, line) = self.position();
        let text = format!("{}:{line}: {what}", self.file(file));
        self.notes.push(Note { level, text });
    }
}
