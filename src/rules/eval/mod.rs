//! The evaluator that can stop in the middle.
//!
//! The state of one evaluation is a value: where it stands, the one open question, the answers that it
//! knows. The outcome, with the event in it, belongs to whoever drives the evaluation and is lent to it. An operation (token) is *tried* through `&self` of [`Given`] and
//! yields what is to change, or the first question whose answer is not known. On the answer the same
//! operation is tried again from its beginning, with one answer more. Only [`Running::commit`] takes
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
use crate::model::Properties;
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

/// One event on its way through the rules. Its outcome belongs to whoever drives the evaluation, who lends it for each
/// turn: always the same one.
#[derive(Clone, Debug)]
pub struct Evaluation {
    program: Arc<Specialised>,
    config: EvalConfig,
    state: State,
    answers: KnownAnswers,
    /// See [`Given::left`].
    left: Cell<usize>,
    stand: Stand,
}

/// Where an evaluation stands in its program.
#[derive(Clone, Debug)]
struct Stand {
    seen: Seen,
    /// The place in the program.
    at: usize,
    /// The token of that line; None before the line is begun.
    token: Option<usize>,
    importing: Option<Box<Import>>,
    /// The question that waits for its answer.
    open: Option<Ask>,
    notes: Vec<Note>,
}

/// An evaluation while it goes on, with the outcome that it was lent.
struct Running<'t> {
    program: &'t Specialised,
    given: Given<'t>,
    stand: &'t mut Stand,
}

impl Evaluation {
    /// An evaluation at the first line.
    pub fn start(program: Arc<Specialised>, config: EvalConfig) -> Evaluation {
        let stand = Stand {
            seen: Seen::new(&program),
            at: 0,
            token: None,
            importing: None,
            open: None,
            notes: Vec::new(),
        };
        Evaluation {
            program,
            config,
            state: State::new(),
            answers: KnownAnswers::default(),
            left: Cell::new(TURN),
            stand,
        }
    }

    /// Goes on until a question is open or all lines are done, without pauses. Calling it again with a question
    /// open repeats the question.
    pub fn run(&mut self, outcome: &mut Outcome) -> Halt {
        loop {
            match self.go_on(outcome) {
                TurnEnd::Pauses => {}
                TurnEnd::Done => return Halt::Done,
                TurnEnd::Asks => return self.stand.open.clone().map_or(Halt::Done, Halt::Ask),
            }
        }
    }

    /// Goes on until a question is open, all lines are done or the turn is over; then the next turn begins. Before the
    /// first turn `outcome` holds the event and nothing else. `event.old` is the old record, if there is one; for remove
    /// it is already merged into the event.
    pub fn go_on(&mut self, outcome: &mut Outcome) -> TurnEnd {
        if self.stand.open.is_some() {
            return TurnEnd::Asks;
        }
        let given = Given {
            config: &self.config,
            outcome,
            state: &mut self.state,
            answers: &mut self.answers,
            left: &self.left,
        };
        let mut running = Running { program: &self.program, given, stand: &mut self.stand };
        running.go_on()
    }

    /// What is left of the turn is no more than this.
    #[cfg(test)]
    fn shorten_turn(&self, units: usize) {
        self.left.set(self.left.get().min(units));
    }

    /// Answers the open question. Without one there is nothing to answer, and nothing happens.
    pub fn answer(&mut self, answer: Answer) {
        if let Some(ask) = self.stand.open.take() {
            self.answers.learn(ask, answer);
        }
    }

    /// The question that waits for its answer.
    pub fn asked(&self) -> Option<&Ask> {
        self.stand.open.as_ref()
    }

    /// Messages since the last call.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.stand.notes)
    }
}

impl Running<'_> {
    fn go_on(&mut self) -> TurnEnd {
        while self.given.outcome.failure.is_none() {
            if self.stand.token.is_none() {
                let next = self.stand.seen.next_line(self.program, self.stand.at, &self.given);
                self.stand.at = next.at;
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
            if let Err(unfinished) = self.try_line()
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
                self.stand.open = Some(ask);
                self.given.spend(QUESTION_COST);
                Some(TurnEnd::Asks)
            }
            Unfinished::Fails(errno, what) => {
                self.note(log::Level::Error, format_args!("{what}; the event fails"));
                self.given.outcome.failure = Some(errno);
                None
            }
        }
    }

    /// Tries the tokens of the line, from where it stands in it, until one does not hold.
    fn try_line(&mut self) -> Try<()> {
        let (tokens, first) = self.program.tokens(self.stand.at);
        let mut at = self.stand.token.unwrap_or(first);
        while let Some(token) = tokens.get(at) {
            self.stand.token = Some(at);
            let holds = match token {
                Token::Match(m) => self.given.matches(m)?,
                _ => {
                    let attempt = match self.stand.importing {
                        None => self.given.attempt(token)?,
                        Some(_) => Attempt { holds: true, change: StateChange::Nothing },
                    };
                    self.commit(attempt.change);
                    match self.import_on() {
                        Some(imported) => imported,
                        None if self.stand.importing.is_some() => return Ok(()),
                        None => attempt.holds,
                    }
                }
            };
            self.given.answers.forget_operation();
            if !holds {
                if at == first {
                    self.stand.seen.first_token_failed(self.program, self.stand.at);
                }
                self.go_to(self.stand.at + 1);
                return Ok(());
            }
            at += 1;
        }
        self.go_to(self.program.after(self.stand.at));
        Ok(())
    }

    fn go_to(&mut self, at: usize) {
        self.stand.at = at;
        self.stand.token = None;
    }

    /// File and number of the line where the evaluation stands, or stood at last.
    fn position(&self) -> (&BStr, u32) {
        let at = self.stand.at;
        let line = self.program.line(at).or_else(|| self.program.line(at.checked_sub(1)?));
        let file = line.and_then(|line| self.program.rules().files.get(line.file as usize));
        (file.map_or(b"".as_bstr(), |file| file.as_bstr()), line.map_or(0, |line| line.number))
    }

    fn note(&mut self, level: log::Level, what: std::fmt::Arguments<'_>) {
        self.given.spend(NOTE_COST);
        let (file, line) = self.position();
        let text = format!("{file}:{line}: {what}");
        self.stand.notes.push(Note { level, text });
    }
}
