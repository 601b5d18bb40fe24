//! The evaluator that can stop in the middle.
//!
//! The state of one evaluation is a value: where it stands, the one open question, the facts it
//! knows, what the rules have decided so far. An operation (token) is *tried* through `&self` and
//! yields what is to change, or the first question whose answer is not known. On the answer the same
//! operation is tried again from its beginning, with one fact more. Only [`Evaluation::commit`] takes
//! `&mut self`.
//!
//! An evaluation also pauses ([`Progress::Pauses`]) after a [`TURN`] of work, wherever it is: between lines, between
//! answers, within an import. Whoever drives it may then do other things first.
//!
//! Must stay true: no operation has an effect before all its facts are in; exactly one question is
//! open at a time; dropping an evaluation cancels it; the outcome depends on the answers alone, not on pauses.
//! Read rules.md sections 3 to 8 first.

mod assign;
mod dump;
mod facts;
mod import;
mod matching;
mod text;

#[cfg(test)]
mod tests;

use super::ask::{Answer, Ask, BuiltinName, BuiltinResult, ParentDevice};
use super::outcome::{Outcome, RunItem, Watch};
use super::program::{Escape, Line, ListOp, OptionToken, Token};
use super::specialise::{
    Entry, Guard, Run, RunKey, Specialised, Stretch, driver_hash, subsystem_hash, value_hash,
};
use crate::model::event::OrderedSet;
use crate::model::uevent::valid_property;
use crate::model::{Action, Event, Key, Properties, Tags};
use bstr::{BStr, BString, ByteSlice};
use facts::{Facts, Stop, Try};
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
pub enum Step {
    /// Exactly this question is open; [`Evaluation::answer`] goes on.
    Ask(Ask),
    Done,
}

/// Where [`Evaluation::go_on`] stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// [`Evaluation::asked`] has the question.
    Asks,
    /// Its turn is over; to go on is as right as to do something else first.
    Pauses,
    Done,
}

/// Work between two pauses, in units of about a nanosecond: a byte that is compared, much more for a line or a
/// question. Nearly all events are through in less.
pub const TURN: usize = 128 * 1024;
/// What a line costs: most lines end at their first token.
const ENTRY: usize = 16;
/// What a message costs, the logging included.
const NOTE: usize = 1024;
/// What a question costs: a read of sysfs if it is answered at once.
const QUESTION: usize = 4096;

/// One event on its way through the rules.
#[derive(Clone, Debug)]
pub struct Evaluation {
    program: Arc<Specialised>,
    config: EvalConfig,
    state: State,
    facts: Facts,
    /// The entry it stands at.
    at: usize,
    /// The token of that entry's line; None before the line is begun.
    token: Option<usize>,
    open: Option<Ask>,
    importing: Option<Box<Import>>,
    /// What is left of the turn. In a cell, for it shrinks while operations are tried.
    left: Cell<usize>,
    notes: Vec<Note>,
}

/// What the rules have decided so far.
#[derive(Clone, Debug)]
struct State {
    /// In the box in which it came and goes.
    outcome: Box<Outcome>,
    /// RESULT.
    result: Option<BString>,
    /// The device of the last parent group that held: 0 is the event's own, n its parent n - 1.
    dev_parent: Option<u16>,
    /// `string_escape` of the current line.
    escape: Escape,
    /// Lists and values that `:=` closed.
    closed: Closed,
    /// Kernel properties that rules overwrote or removed, as they were: IMPORT{db} sees them.
    replaced: Vec<(BString, BString)>,
    /// Grows with every change of a property: what guards said of properties counts no more then.
    property_changes: u32,
    /// For each guard of the program what [`State::property_changes`] was when it last failed, plus one;
    /// [`FOR_EVER`] for those that no change of a property can mend.
    failed: Vec<u32>,
    /// For each subject of the program what [`State::property_changes`] was when its value was last hashed,
    /// plus one, and that hash.
    values: Vec<(u32, u32)>,
    /// Hashes of the drivers and subsystems of the device and its parents, once all are known.
    present: Option<Vec<u32>>,
}

/// See [`State::failed`].
const FOR_EVER: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Closed {
    owner: bool,
    group: bool,
    mode: bool,
    name: bool,
    symlink: bool,
    run: bool,
    watch: bool,
}

/// A successful try.
struct Tried<'p> {
    holds: bool,
    change: Change<'p>,
}

/// A substituted text, or that it was too long.
enum Text {
    Value(BString),
    TooLong,
}

/// What an operation does to the state. Texts are substituted and cleaned.
enum Change<'p> {
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
    /// None: it was too long.
    Run {
        op: ListOp,
        item: Option<RunItem>,
        last: bool,
        clears_only: bool,
    },
    AttrWritten,
    SysctlWritten,
    /// The operation is left out, because of this.
    Refused(log::Level, String),
}

/// A user or group.
enum Id {
    Known(u32),
    Unknown(BString),
    TooLong,
}

fn holds<'p>(holds: bool) -> Try<Tried<'p>> {
    Ok(Tried { holds, change: Change::Nothing })
}

fn does(change: Change<'_>) -> Try<Tried<'_>> {
    Ok(Tried { holds: true, change })
}

impl Evaluation {
    /// An evaluation at the first line. `event.old` is the old record, if there is one; for remove it
    /// is already merged into the event.
    pub fn start(program: Arc<Specialised>, event: Event, config: EvalConfig) -> Evaluation {
        Evaluation::of(program, Box::new(Outcome::new(event)), config)
    }

    /// The same for an event in the box in which its outcome stays.
    pub fn of(program: Arc<Specialised>, outcome: Box<Outcome>, config: EvalConfig) -> Evaluation {
        let state = State {
            outcome,
            result: None,
            dev_parent: None,
            escape: Escape::Unset,
            closed: Closed::default(),
            replaced: Vec::new(),
            property_changes: 0,
            failed: vec![0; program.guards()],
            values: vec![(0, 0); program.subjects().len()],
            present: None,
        };
        let facts = Facts::default();
        Evaluation {
            program,
            config,
            state,
            facts,
            at: 0,
            token: None,
            open: None,
            importing: None,
            left: Cell::new(TURN),
            notes: Vec::new(),
        }
    }

    /// Goes on until a question is open or all lines are done, without pauses. Calling it again with a question
    /// open repeats the question.
    pub fn run(&mut self) -> Step {
        loop {
            match self.go_on() {
                Progress::Pauses => {}
                Progress::Done => return Step::Done,
                Progress::Asks => return self.open.clone().map_or(Step::Done, Step::Ask),
            }
        }
    }

    /// Goes on until a question is open, all lines are done or the turn is over; then the next turn begins.
    pub fn go_on(&mut self) -> Progress {
        if self.open.is_some() {
            return Progress::Asks;
        }
        let program = self.program.clone();
        while self.state.outcome.failure.is_none() {
            let Some(entry) = program.entry(self.at) else { break };
            match self.left.get().checked_sub(ENTRY) {
                Some(left) => self.left.set(left),
                None => {
                    self.left.set(TURN);
                    return Progress::Pauses;
                }
            }
            match self.advance(&program, entry) {
                Ok(()) => {}
                Err(stop) => match *stop {
                    Stop::Ask(ask) => {
                        self.open = Some(ask);
                        self.spend(QUESTION);
                        return Progress::Asks;
                    }
                    Stop::Fail(errno, what) => {
                        self.note(log::Level::Error, format_args!("{what}; the event fails"));
                        self.state.outcome.failure = Some(errno);
                    }
                },
            }
        }
        Progress::Done
    }

    fn spend(&self, units: usize) {
        self.left.set(self.left.get().saturating_sub(units));
    }

    /// What is left of the turn is no more than this.
    #[cfg(test)]
    fn shorten_turn(&self, units: usize) {
        self.left.set(self.left.get().min(units));
    }

    fn is_turn_over(&self) -> bool {
        self.left.get() == 0
    }

    /// Answers the open question. Without one there is nothing to answer, and nothing happens.
    pub fn answer(&mut self, answer: Answer) {
        if let Some(ask) = self.open.take() {
            self.facts.learn(ask, answer);
        }
    }

    /// The event as it is now: what programs get as environment, what builtins read.
    pub fn event(&self) -> &Event {
        &self.state.outcome.event
    }

    /// The question that waits for its answer.
    pub fn asked(&self) -> Option<&Ask> {
        self.open.as_ref()
    }

    /// The parents of the device, if a rule asked for them.
    pub fn parents(&self) -> Option<&Arc<[ParentDevice]>> {
        self.facts.known_parents()
    }

    /// File (index into [`super::program::RuleSet::files`]) and line number it stands at, or stood
    /// at last.
    pub fn position(&self) -> (u32, u32) {
        let entry = self.program.entry(self.at).or_else(|| self.program.entry(self.at.checked_sub(1)?));
        entry.and_then(|e| self.program.line(e)).map_or((0, 0), |line| (line.file, line.number))
    }

    /// The path of the file of [`position`](Self::position).
    pub fn file(&self, index: u32) -> &BStr {
        self.program.rules().files.get(index as usize).map_or(b"".as_bstr(), |f| f.as_bstr())
    }

    /// OPTIONS="log_level=..." so far.
    pub fn log_level(&self) -> Option<log::LevelFilter> {
        self.state.outcome.log_level
    }

    /// Messages since the last call.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// What the rules decided. Before [`Step::Done`]: what they have decided so far.
    pub fn into_outcome(self) -> Box<Outcome> {
        self.state.outcome
    }

    /// Begins a line, or goes over the lines of a run, or tries the tokens of the line until one does
    /// not hold.
    fn advance(&mut self, program: &Specialised, entry: &Entry) -> Try<()> {
        let mut at = match self.token {
            Some(token) => token,
            None => {
                if let Some(stretch) = program.stretch(entry)
                    && self.passes_over(program, stretch)
                {
                    if self.at < stretch.parents_end {
                        self.state.dev_parent = None;
                    }
                    self.go_to(stretch.end);
                    return Ok(());
                }
                if self.has_failed(program, entry)
                    || self.wants_other_value(program, entry)
                    || self.lacks_required(entry)
                {
                    self.go_to(self.at + 1);
                    return Ok(());
                }
                if let Some(run) = program.run(entry) {
                    let next = self.seek(program, run)?;
                    if next.at != self.at {
                        self.at = next.at;
                        if next.clears_parent {
                            self.state.dev_parent = None;
                        }
                        return Ok(());
                    }
                }
                self.state.escape = Escape::Unset;
                entry.first as usize
            }
        };
        let line: Option<&Line> = program.line(entry);
        let tokens = line.map_or(&[][..], |l| &l.tokens);
        while let Some(token) = tokens.get(at) {
            self.token = Some(at);
            let holds = match token {
                Token::Match(m) => self.matches(m)?,
                _ => {
                    let tried = match self.importing {
                        None => self.attempt(token)?,
                        Some(_) => Tried { holds: true, change: Change::Nothing },
                    };
                    self.commit(tried.change);
                    match self.import_on() {
                        Some(imported) => imported,
                        None if self.importing.is_some() => return Ok(()),
                        None => tried.holds,
                    }
                }
            };
            self.facts.forget_operation();
            if !holds {
                if at == entry.first as usize {
                    self.remember_failure(program, entry);
                }
                self.go_to(self.at + 1);
                return Ok(());
            }
            at += 1;
        }
        self.go_to(entry.goto().unwrap_or(self.at + 1));
        Ok(())
    }

    /// Whether the first token of this entry is known not to hold.
    fn has_failed(&mut self, program: &Specialised, entry: &Entry) -> bool {
        let Some(number) = entry.guard() else { return false };
        let known = self.guard_failed(number);
        if known && program.guard(number) == Some(Guard::Parents) {
            self.state.dev_parent = None;
        }
        known
    }

    fn guard_failed(&self, number: usize) -> bool {
        let failed = self.state.failed.get(number).copied().unwrap_or(0);
        failed == FOR_EVER || failed == self.state.property_changes + 1
    }

    /// Whether no entry of the stretch can hold, by what is known so far.
    fn passes_over(&mut self, program: &Specialised, stretch: &Stretch) -> bool {
        let names_lack = || self.state.present.as_ref().is_some_and(|all| !stretch.wants(all));
        stretch.guards.iter().all(|&guard| self.guard_failed(guard as usize))
            && (!stretch.asks_names() || names_lack())
            && stretch.subjects.iter().all(|&subject| {
                let hash = self.hash_of_value(program, subject);
                !stretch.wants_value(subject, hash)
            })
    }

    /// Whether the entry's first token wants a property to have another value than it has. A run finds its
    /// next entry faster.
    fn wants_other_value(&mut self, program: &Specialised, entry: &Entry) -> bool {
        program.run(entry).is_none()
            && entry
                .literal()
                .is_some_and(|(subject, literal)| self.hash_of_value(program, subject) != literal)
    }

    fn hash_of_value(&mut self, program: &Specialised, subject: u32) -> u32 {
        let now = self.state.property_changes + 1;
        match self.state.values.get(subject as usize) {
            Some(&(when, hash)) if when == now => hash,
            _ => {
                let key = program.subjects().get(subject as usize);
                let hash = match key.map(|key| self.plain_env(key)) {
                    // No literal is as long, and no hash is 0.
                    Some(value) if value.len() <= super::lex::MAX_LINE => {
                        if value.len() >= ENTRY {
                            self.spend(value.len());
                        }
                        value_hash(value)
                    }
                    _ => 0,
                };
                if let Some(known) = self.state.values.get_mut(subject as usize) {
                    *known = (now, hash);
                }
                hash
            }
        }
    }

    /// Whether the entry's parent group wants a driver or subsystem that neither the device nor a parent
    /// has.
    fn lacks_required(&mut self, entry: &Entry) -> bool {
        let Some(wanted) = entry.required() else { return false };
        if self.state.present.is_none() {
            self.state.present = self.known_names();
        }
        let lacks = self.state.present.as_ref().is_some_and(|all| !all.contains(&wanted));
        if lacks {
            self.state.dev_parent = None;
        }
        lacks
    }

    /// See [`State::present`].
    fn known_names(&self) -> Option<Vec<u32>> {
        let count = self.facts.known_parents()?.len();
        let mut all = Vec::with_capacity(2 * (count + 1));
        for device in 0..=u16::try_from(count).ok()? {
            all.push(driver_hash(self.driver_of(device).ok()?));
            all.push(subsystem_hash(self.subsystem_of(device).ok()?));
        }
        Some(all)
    }

    fn remember_failure(&mut self, program: &Specialised, entry: &Entry) {
        let Some(number) = entry.guard() else { return };
        let when = match program.guard(number) {
            Some(Guard::Property) => self.state.property_changes + 1,
            _ => FOR_EVER,
        };
        if let Some(failed) = self.state.failed.get_mut(number) {
            *failed = when;
        }
    }

    fn go_to(&mut self, at: usize) {
        self.at = at;
        self.token = None;
    }

    /// The first entry of a run, from here on, that the value of its key can match.
    fn seek(&self, program: &Specialised, run: &Run) -> Try<Next> {
        let past = |at| Next { at, clears_parent: false };
        for token in program.run_prefix(run) {
            if let Token::Match(m) = token
                && !self.matches(m)?
            {
                return Ok(past(run.end));
            }
        }
        match program.run_key(run) {
            None => Ok(past(self.at)),
            Some(RunKey::Match(m)) => Ok(past(self.subject(m)?.map_or(run.end, |value| {
                self.spend(value.len());
                run.next(self.at, &value)
            }))),
            Some(RunKey::Parents { shared, attr, trims }) => {
                let at = self.seek_parents(run, shared, attr, trims)?;
                Ok(Next { at, clears_parent: at != self.at })
            }
        }
    }

    /// Takes in what an operation decided.
    fn commit(&mut self, change: Change<'_>) {
        let outcome = &mut self.state.outcome;
        match change {
            Change::Nothing | Change::SysctlWritten => {}
            Change::DevParent(device) => self.state.dev_parent = device,
            Change::Result { text, truncated } => {
                self.state.result = text;
                if truncated {
                    self.note(
                        log::Level::Warn,
                        format_args!("the output of the program is too long, its end is lost"),
                    );
                }
            }
            Change::ImportOne(name, value) => self.set_property(&name, &value),
            Change::Import(import) => self.importing = Some(Box::new(import)),
            Change::ImportAnswer { negate, truncated } => {
                if truncated {
                    let text = format_args!("the output of the program is too long, its end is lost");
                    self.note(log::Level::Warn, text);
                }
                self.importing = Some(Box::new(Import::of_answer(self.facts.take_operation(), negate)));
            }
            Change::Builtin(builtin, result) => self.commit_builtin(builtin, result),
            Change::Option(option) => self.commit_option(option),
            Change::Owner { id, last } => {
                self.state.closed.owner |= last;
                if let Some(id) = self.checked_id("OWNER", id) {
                    self.state.outcome.owner = Some(id);
                }
            }
            Change::Group { id, last } => {
                self.state.closed.group |= last;
                if let Some(id) = self.checked_id("GROUP", id) {
                    self.state.outcome.group = Some(id);
                }
            }
            Change::Mode { mode, last } => {
                self.state.closed.mode |= last;
                match mode {
                    Ok(mode) => outcome.mode = Some(mode),
                    Err(Text::TooLong) => self.too_long("MODE"),
                    Err(Text::Value(text)) => {
                        self.note(log::Level::Error, format_args!("MODE {text:?} is no mode, ignored"));
                    }
                }
            }
            Change::Tag { op, tag } => self.commit_tag(op, tag),
            Change::SecLabel { module, op, label } => {
                if op == ListOp::Set {
                    outcome.seclabels.clear();
                }
                match label {
                    Text::Value(label) => outcome.seclabels.push((module.clone(), label)),
                    Text::TooLong => self.too_long("SECLABEL"),
                }
            }
            Change::Unset(key) => self.remove_property(key.name()),
            Change::Env(key, Text::Value(value)) => self.set_property(key.name(), &value),
            Change::Env(key, Text::TooLong) => {
                self.note(log::Level::Warn, format_args!("ENV{{{}}}: too long, ignored", key.name()));
            }
            Change::Name { name, last } => {
                self.state.closed.name |= last;
                match name {
                    Text::Value(name) => outcome.name = Some(name),
                    Text::TooLong => self.too_long("NAME"),
                }
            }
            Change::Symlink { op, links, last } => self.commit_symlink(op, links, last),
            Change::Run { op, item, last, clears_only } => {
                self.state.closed.run |= last;
                if op == ListOp::Set {
                    outcome.run.clear();
                }
                match item {
                    _ if clears_only => {}
                    Some(item) => outcome.run.push(item),
                    None => self.too_long("RUN"),
                }
            }
            Change::AttrWritten => self.facts.forget_attrs(),
            Change::Refused(level, text) => self.note(level, format_args!("{text}")),
        }
    }

    fn commit_builtin(&mut self, builtin: BuiltinName, result: BuiltinResult) {
        if builtin.runs_once() {
            self.facts.set_verdict(builtin, result.success);
        }
        for message in &result.messages {
            self.note(log::Level::Warn, format_args!("{}: {message}", builtin.as_str()));
        }
        for (name, value) in result.properties {
            match value {
                Some(value) => self.set_property(&name, &value),
                None => self.remove_property(&name),
            }
        }
        if !result.alt_names.is_empty() {
            self.state.outcome.alt_names = result.alt_names;
        }
    }

    fn commit_option(&mut self, option: OptionToken) {
        let outcome = &mut self.state.outcome;
        match option {
            // both in one line: whatever their order, "replace" it is
            OptionToken::StringEscape(_) if self.state.escape == Escape::Replace => {}
            OptionToken::StringEscape(escape) => self.state.escape = escape,
            OptionToken::DbPersist => outcome.db_persist = true,
            OptionToken::Watch { .. } if self.state.closed.watch => {}
            OptionToken::Watch { on, last } => {
                self.state.closed.watch = last;
                outcome.watch = Some(if on { Watch::On } else { Watch::Off });
            }
            OptionToken::LinkPriority(priority) => outcome.link_priority = priority,
            OptionToken::LogLevel(level) => outcome.log_level = level,
            OptionToken::Dump { json } => {
                let text = if json { dump::json(outcome) } else { dump::text(outcome) };
                self.note(log::Level::Info, format_args!("{text}"));
            }
        }
    }

    fn commit_tag(&mut self, op: ListOp, tag: Text) {
        if op != ListOp::Add {
            self.spend(self.event().tags.sticky.len() * ENTRY);
        }
        let event = &mut self.state.outcome.event;
        if op == ListOp::Set {
            event.tags.current.clear();
            // those of earlier events stay (v258)
            event.tags.sticky = event.old.as_ref().map_or_else(OrderedSet::default, |old| old.tags.clone());
        }
        match tag {
            Text::TooLong => self.too_long("TAG"),
            Text::Value(tag) if !Tags::is_valid(&tag) => {
                self.note(
                    log::Level::Warn,
                    format_args!("TAG {tag:?}: only letters, digits, - and _ may stand in a tag, ignored"),
                );
            }
            Text::Value(tag) if op == ListOp::Remove => event.tags.remove(&tag),
            Text::Value(tag) => event.tags.add(&tag),
        }
    }

    fn commit_symlink(&mut self, op: ListOp, links: Text, last: bool) {
        self.state.closed.symlink |= last;
        let set = &mut self.state.outcome.event.links;
        if op == ListOp::Set {
            set.clear();
        }
        let text = match links {
            Text::Value(text) => text,
            Text::TooLong => return self.too_long("SYMLINK"),
        };
        for word in text.split(|b| super::subst::is_blank(*b)).filter(|w| !w.is_empty()) {
            let set = &mut self.state.outcome.event.links;
            match text::link_path(word) {
                None => self.note(
                    log::Level::Warn,
                    format_args!("SYMLINK {:?} does not lead below /dev, ignored", word.as_bstr()),
                ),
                Some(path) if op == ListOp::Remove => {
                    let count = set.len();
                    set.remove(&path);
                    self.spend(count * ENTRY);
                }
                Some(path) => {
                    set.insert(path);
                }
            }
        }
    }

    fn checked_id(&mut self, key: &str, id: Id) -> Option<u32> {
        match id {
            Id::Known(id) => return Some(id),
            Id::Unknown(name) => {
                self.note(log::Level::Error, format_args!("{key} {name:?} is not known, ignored"))
            }
            Id::TooLong => self.too_long(key),
        }
        None
    }

    /// Sets a property; an empty value removes it (262), an invalid one is left out with a note.
    fn set_property(&mut self, name: &[u8], value: &[u8]) {
        if value.is_empty() {
            self.remove_property(name);
        } else if valid_property(name, value) {
            self.state.property_changes += 1;
            let keeps = self.keeps_replaced(name);
            let State { outcome, replaced, .. } = &mut self.state;
            outcome.event.properties.replace_stored(name, value, |old| {
                if keeps && !old.stored {
                    replaced.push((old.name.to_owned(), old.value.to_owned()));
                }
            });
        } else {
            let (name, value) = (name.as_bstr(), value.as_bstr());
            self.note(
                log::Level::Error,
                format_args!("property {name:?}={value:?} cannot be stored, ignored"),
            );
        }
    }

    fn remove_property(&mut self, name: &[u8]) {
        self.state.property_changes += 1;
        let keeps = self.keeps_replaced(name);
        let properties = &mut self.state.outcome.event.properties;
        if let Some(old) = properties.find(name).filter(|old| keeps && !old.stored) {
            self.state.replaced.push((old.name.to_owned(), old.value.to_owned()));
        }
        properties.remove(name);
    }

    /// Whether the kernel's value of a property is kept when it changes. What rules set is stored, but for
    /// names with a dot, which no kernel uses.
    fn keeps_replaced(&self, name: &[u8]) -> bool {
        self.state.outcome.event.action != Action::Remove && !name.starts_with(b".")
    }

    fn too_long(&mut self, key: &str) {
        self.note(log::Level::Warn, format_args!("{key}: the substituted text is too long, ignored"));
    }

    fn note(&mut self, level: log::Level, what: std::fmt::Arguments<'_>) {
        self.spend(NOTE);
        let (file, line) = self.position();
        let text = format!("{}:{line}: {what}", self.file(file));
        self.notes.push(Note { level, text });
    }
}

/// Where a run leads to.
struct Next {
    at: usize,
    /// Lines were passed over whose parent group failed.
    clears_parent: bool,
}
