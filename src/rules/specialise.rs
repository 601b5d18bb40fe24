//! Programs for one kind of event: the lines that can matter for one ACTION and SUBSYSTEM, with or
//! without device number and ifindex.
//!
//! Most lines cannot match most events. ACTION and SUBSYSTEM never change during an event, so their
//! matches are decided once per kind, together with the gating of lines (rules.md 2.5) and with jumps
//! that are always taken. Of what remains, *runs* of lines that differ in the literal of one key
//! (vendor lists, field.md section 6) are entered by a look-up on the value of that key.
//!
//! Must stay true: a specialised program gives exactly the outcome of the plain one. A look-up only
//! ever passes over lines that would fail at that key; lines it stops at are evaluated in full, so a
//! collision of hashes costs time and nothing else.

use super::pattern::{Alternative, Pattern};
use super::program::{AttrName, Line, Match, MatchKey, ParentKey, ParentMatch, RuleSet, Token};
use crate::model::event::{BuildFnv, Fnv, is_derived};
use crate::model::{Action, Event, Key};
use bstr::{BStr, BString, ByteSlice};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Shortest run worth a table.
const MIN_RUN: usize = 4;
/// Programs kept before all are forgotten. An idle system has some sixty kinds of events.
const MAX_PROGRAMS: usize = 128;
/// No such entry, no such run.
const NONE: u32 = u32::MAX;

/// What a program is specialised for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind<'a> {
    pub action: Action,
    pub subsystem: &'a BStr,
    pub has_devnum: bool,
    pub has_ifindex: bool,
}

impl<'a> Kind<'a> {
    /// The kind of this event.
    pub fn of(event: &'a Event) -> Kind<'a> {
        Kind {
            action: event.action,
            subsystem: event.device.subsystem.as_bstr(),
            has_devnum: event.device.devnum.is_some(),
            has_ifindex: event.device.ifindex.is_some(),
        }
    }

    /// Whether a line of this class is looked at (rules.md 2.5).
    fn is_active(&self, line: &Line) -> bool {
        let lives = self.action != Action::Remove;
        line.class.goto
            || line.class.other
            || (line.class.node && lives && self.has_devnum)
            || (line.class.name && lives && self.has_ifindex)
    }

    /// The verdict of a match that the kind alone decides.
    fn decide(&self, token: &Token) -> Option<bool> {
        let Token::Match(m) = token else { return None };
        match m.subject {
            MatchKey::Action => Some(m.pattern.matches(self.action.as_str().as_bytes()) != m.negate),
            MatchKey::Subsystem { any_class } => {
                Some(matches_subsystem(&m.pattern, any_class, self.subsystem) != m.negate)
            }
            _ => None,
        }
    }
}

/// SUBSYSTEM with its alias: `subsystem`, `bus` and `class` mean all three.
pub(super) fn matches_subsystem(pattern: &Pattern, any_class: bool, subsystem: &[u8]) -> bool {
    match any_class {
        true => matches!(subsystem, b"subsystem" | b"bus" | b"class"),
        false => pattern.matches(subsystem),
    }
}

/// A program for one kind of event.
#[derive(Debug)]
pub struct Specialised {
    rules: Arc<RuleSet>,
    entries: Vec<Entry>,
    runs: Vec<Run>,
    guards: Vec<Guard>,
    /// Properties that entries compare with a literal in their first token.
    subjects: Vec<Key>,
    stretches: Vec<Stretch>,
}

/// Consecutive entries that are all known not to hold once a few facts are known: most events pass over
/// hundreds of vendors' rules in one step.
#[derive(Debug)]
pub(super) struct Stretch {
    /// The entry after the last one.
    pub end: usize,
    /// The entry after the last one with a parent group: to pass over one leaves no parent.
    pub parents_end: usize,
    /// Hashes of which the device and its parents must have none; sorted, no duplicates.
    required: Vec<u32>,
    /// Guards that must all have failed.
    pub guards: Vec<u32>,
    /// Subjects of the literals below; each once.
    pub subjects: Vec<u32>,
    /// (subject, hash of a literal), sorted: no subject may have such a value.
    literals: Vec<(u32, u32)>,
}

impl Stretch {
    /// Whether an entry wants one of these drivers and subsystems.
    pub fn wants(&self, present: &[u32]) -> bool {
        present.iter().any(|name| self.required.binary_search(name).is_ok())
    }

    /// Whether an entry wants the subject to have a value of this hash.
    pub fn wants_value(&self, subject: u32, hash: u32) -> bool {
        self.literals.binary_search(&(subject, hash)).is_ok()
    }

    /// Whether any entry wants a driver or subsystem.
    pub fn asks_names(&self) -> bool {
        !self.required.is_empty()
    }
}

/// Entries of a stretch from one place where it can be passed over to the next.
const STRETCH_STEP: usize = 4;

/// Entries of a stretch at most: one guard that nothing is known of yet keeps all of them.
const STRETCH_MAX: usize = 64;

/// More guards or subjects than these are not looked at in one step.
const STRETCH_GUARDS: usize = 8;

/// Properties whose values are kept as hashes during an evaluation.
const MAX_SUBJECTS: usize = 64;

/// What a token that stands first in several entries can be remembered by, once it did not hold: hundreds
/// of packages ask the same question over and over (`SUBSYSTEMS=="usb"`, `ENV{ID_X}=="?*"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// It asks what no rule can change.
    Fixed,
    /// The same, of the device and its parents: when it fails, there is no parent any more.
    Parents,
    /// It asks for a property.
    Property,
}

/// A line that may matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Index into [`RuleSet::lines`].
    pub line: u32,
    /// The first token to try: those before it hold for all events of this kind.
    pub first: u32,
    /// Index of the entry to go on with when all tokens held.
    goto: u32,
    /// The run it is part of.
    run: u32,
    /// The guard that its first token is.
    guard: u32,
    /// Hash of the driver or subsystem that the device or a parent must have for the first token to
    /// hold; 0 is none.
    required: u32,
    /// The property that its first token compares with a literal: index into the program's subjects.
    subject: u32,
    /// [`value_hash`] of that literal.
    literal: u32,
    /// The stretch that can be passed over from here.
    stretch: u32,
}

impl Entry {
    /// Its place among the guards of the program, if its first token is one.
    pub fn guard(&self) -> Option<usize> {
        (self.guard != NONE).then_some(self.guard as usize)
    }

    /// Hash ([`driver_hash`], [`subsystem_hash`]) of what the device or a parent must have.
    pub fn required(&self) -> Option<u32> {
        (self.required != 0).then_some(self.required)
    }

    /// The subject of its first token, and the hash that the value must have for it to hold.
    pub fn literal(&self) -> Option<(u32, u32)> {
        (self.subject != NONE).then_some((self.subject, self.literal))
    }

    /// Where to go when all tokens held, if that is not the next entry.
    pub fn goto(&self) -> Option<usize> {
        (self.goto != NONE).then_some(self.goto as usize)
    }
}

/// Consecutive entries with equal tokens up to a key, and only literals to compare that key with.
#[derive(Debug)]
pub(super) struct Run {
    /// The entry after the last one.
    pub end: usize,
    /// The line whose tokens stand for all.
    model: u32,
    /// Indices of the tokens before the key that the kind does not decide; equal in all lines.
    prefix: Vec<u32>,
    key: KeyAt,
    /// (hash of a literal, entry), sorted: the entries that can match a value, in order.
    table: Vec<(u32, u32)>,
}

/// Where the key of a run stands in its model line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyAt {
    /// A token of its own.
    Token(u32),
    /// A member of the parent group; the members before it are equal in all lines.
    Member { token: u32, member: u32 },
}

/// The key of a run, for the evaluator.
pub(super) enum RunKey<'p> {
    Match(&'p Match),
    /// A match on an attribute of the device or a parent; candidates must satisfy `shared` as well.
    Parents {
        shared: &'p [ParentMatch],
        attr: &'p BString,
        trims: bool,
    },
}

impl Specialised {
    /// Folds and joins lines for this kind.
    pub fn new(rules: Arc<RuleSet>, kind: Kind<'_>) -> Specialised {
        let entries = fold(&rules, kind);
        let mut program = Specialised::unjoined(rules, entries);
        program.find_runs(kind);
        program.find_guards();
        program.find_stretches();
        program
    }

    /// All active lines as they stand, without folding: the reference that [`Specialised::new`] must
    /// agree with.
    pub fn plain(rules: Arc<RuleSet>, kind: Kind<'_>) -> Specialised {
        let verdicts: Vec<Verdict> = rules
            .lines
            .iter()
            .map(|line| if kind.is_active(line) { Verdict::Maybe { first: 0 } } else { Verdict::Never })
            .collect();
        let entries = link(&rules, &verdicts);
        Specialised::unjoined(rules, entries)
    }

    fn unjoined(rules: Arc<RuleSet>, entries: Vec<Entry>) -> Specialised {
        Specialised {
            rules,
            entries,
            runs: Vec::new(),
            guards: Vec::new(),
            subjects: Vec::new(),
            stretches: Vec::new(),
        }
    }

    /// Joins consecutive entries that have a guard or want a driver or subsystem.
    fn find_stretches(&mut self) {
        let mut start = 0;
        while start < self.entries.len() {
            let stretch = self.stretch_from(start);
            let end = stretch.end;
            if end >= start + STRETCH_STEP {
                let number = self.stretches.len() as u32;
                self.entries[start..end].iter_mut().step_by(STRETCH_STEP).for_each(|e| e.stretch = number);
                self.stretches.push(stretch);
            }
            start = end.max(start + 1);
        }
    }

    fn stretch_from(&self, start: usize) -> Stretch {
        let mut stretch = Stretch {
            end: start,
            parents_end: start,
            required: Vec::new(),
            guards: Vec::new(),
            subjects: Vec::new(),
            literals: Vec::new(),
        };
        for entry in self.entries[start..].iter().take(STRETCH_MAX) {
            match (entry.literal(), entry.required(), entry.guard) {
                (Some((subject, literal)), ..) => {
                    if !stretch.subjects.contains(&subject) {
                        if stretch.subjects.len() == STRETCH_GUARDS {
                            break;
                        }
                        stretch.subjects.push(subject);
                    }
                    stretch.literals.push((subject, literal));
                }
                (None, Some(name), _) => stretch.required.push(name),
                (None, None, NONE) => break,
                (None, None, guard) if stretch.guards.contains(&guard) => {}
                (None, None, _) if stretch.guards.len() == STRETCH_GUARDS => break,
                (None, None, guard) => stretch.guards.push(guard),
            }
            stretch.end += 1;
            let asks_parents = entry.guard().and_then(|guard| self.guard(guard)) == Some(Guard::Parents);
            if entry.required().is_some() || asks_parents {
                stretch.parents_end = stretch.end;
            }
        }
        stretch.literals.sort_unstable();
        stretch.required.sort_unstable();
        stretch.required.dedup();
        stretch
    }

    /// The stretch that can be passed over from this entry on.
    pub(super) fn stretch(&self, entry: &Entry) -> Option<&Stretch> {
        self.stretches.get(entry.stretch as usize)
    }

    /// Gives entries that begin with equal tokens one guard.
    fn find_guards(&mut self) {
        let rules = self.rules.clone();
        // hash -> (a token, the first entry that begins with it, its guard)
        let mut known: HashMap<u64, (&Token, usize, u32), BuildFnv> = HashMap::default();
        for at in 0..self.entries.len() {
            let entry = self.entries[at];
            let line = rules.lines.get(entry.line as usize);
            let Some(token) = line.and_then(|l| l.tokens.get(entry.first as usize)) else { continue };
            self.entries[at].required = required(token).unwrap_or(0);
            if let Some((key, literal)) = compared_literal(token)
                && let Some(subject) = self.subject_of(key)
            {
                self.entries[at].subject = subject;
                self.entries[at].literal = value_hash(literal);
            }
            let Some((guard, hash)) = guard_of(token) else { continue };
            match known.get_mut(&hash) {
                Some((other, ..)) if *other != token => {}
                Some((_, first, number)) => {
                    if *number == NONE {
                        *number = self.guards.len() as u32;
                        self.guards.push(guard);
                        self.entries[*first].guard = *number;
                    }
                    self.entries[at].guard = *number;
                }
                None => drop(known.insert(hash, (token, at, NONE))),
            }
        }
    }

    /// The number of a subject, a new one if need be and there are not too many.
    fn subject_of(&mut self, key: &Key) -> Option<u32> {
        let at = self.subjects.iter().position(|known| known == key).or_else(|| {
            (self.subjects.len() < MAX_SUBJECTS).then(|| {
                self.subjects.push(key.clone());
                self.subjects.len() - 1
            })
        });
        at.map(|at| at as u32)
    }

    /// Properties that entries compare with literals.
    pub(super) fn subjects(&self) -> &[Key] {
        &self.subjects
    }

    /// How many guards there are.
    pub(super) fn guards(&self) -> usize {
        self.guards.len()
    }

    pub(super) fn guard(&self, number: usize) -> Option<Guard> {
        self.guards.get(number).copied()
    }

    /// The rules it was made from.
    pub fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    pub(super) fn entry(&self, at: usize) -> Option<&Entry> {
        self.entries.get(at)
    }

    pub(super) fn line(&self, entry: &Entry) -> Option<&Line> {
        self.rules.lines.get(entry.line as usize)
    }

    pub(super) fn run(&self, entry: &Entry) -> Option<&Run> {
        self.runs.get(entry.run as usize)
    }

    /// The tokens to try before the key of a run.
    pub(super) fn run_prefix<'p>(&'p self, run: &'p Run) -> impl Iterator<Item = &'p Token> {
        let tokens = self.rules.lines.get(run.model as usize).map_or(&[][..], |l| &l.tokens);
        run.prefix.iter().filter_map(|i| tokens.get(*i as usize))
    }

    /// The key of a run; None never happens in a program of our own making.
    pub(super) fn run_key<'p>(&'p self, run: &Run) -> Option<RunKey<'p>> {
        let tokens = &self.rules.lines.get(run.model as usize)?.tokens;
        match run.key {
            KeyAt::Token(i) => match tokens.get(i as usize)? {
                Token::Match(m) => Some(RunKey::Match(m)),
                _ => None,
            },
            KeyAt::Member { token, member } => {
                let Token::Parents(group) = tokens.get(token as usize)? else { return None };
                let m = group.get(member as usize)?;
                let ParentKey::Attr(AttrName::Literal(attr)) = &m.subject else { return None };
                let shared = &group[..member as usize];
                Some(RunKey::Parents { shared, attr, trims: m.pattern.trims_attribute })
            }
        }
    }

    /// Number of lines that remain, and of runs among them: for `status` and tests.
    pub fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.runs.len())
    }

    fn find_runs(&mut self, kind: Kind<'_>) {
        let mut at = 0;
        while at < self.entries.len() {
            match self.longest_run(at, kind) {
                Some(run) if run.end - at >= MIN_RUN => {
                    let index = self.runs.len() as u32;
                    self.entries[at..run.end].iter_mut().for_each(|e| e.run = index);
                    at = run.end;
                    self.runs.push(run);
                }
                _ => at += 1,
            }
        }
    }

    /// The longest run that begins with this entry, whatever its key; the earliest key among equals.
    fn longest_run(&self, start: usize, kind: Kind<'_>) -> Option<Run> {
        let model = self.open_tokens(start, kind);
        let mut best: Option<(usize, usize)> = None;
        for n in 0..model.len() {
            if keyed(model[n].1).is_some() {
                let same = |at: &usize| {
                    let other = self.open_tokens(*at, kind);
                    other.len() > n
                        && model[..n].iter().zip(&other).all(|(a, b)| a.1 == b.1)
                        && same_key(model[n].1, other[n].1)
                };
                let end = (start + 1..self.entries.len()).take_while(same).last().unwrap_or(start) + 1;
                if best.is_none_or(|(_, longest)| end > longest) {
                    best = Some((n, end));
                }
            }
            if !is_pure(model[n].1) {
                break;
            }
        }
        let (n, end) = best?;
        let (index, token) = model[n];
        let key = match token {
            Token::Parents(group) => {
                KeyAt::Member { token: index, member: group.iter().position(is_keyed_member)? as u32 }
            }
            _ => KeyAt::Token(index),
        };
        let mut table = Vec::new();
        for at in start..end {
            let tokens = self.open_tokens(at, kind);
            let pattern = tokens.get(n).and_then(|(_, token)| keyed(token))?;
            table.extend(literals(pattern).map(|text| (hash(text), at as u32)));
        }
        table.sort_unstable();
        table.dedup();
        let prefix = model[..n].iter().map(|(index, _)| *index).collect();
        Some(Run { end, model: self.entries[start].line, prefix, key, table })
    }

    /// The tokens of an entry that the kind does not decide, with their indices.
    fn open_tokens(&self, at: usize, kind: Kind<'_>) -> Vec<(u32, &Token)> {
        let tokens = self.entries.get(at).and_then(|e| self.line(e)).map_or(&[][..], |l| &l.tokens);
        (0..).zip(tokens).filter(|(_, token)| kind.decide(token).is_none()).collect()
    }
}

impl Run {
    /// The first entry from `at` on that can match one of the values; `end` if there is none.
    pub fn next(&self, at: usize, value: &[u8]) -> usize {
        // No literal is as long, so there is no need to hash it.
        if value.len() > super::lex::MAX_LINE {
            return self.end;
        }
        let wanted = (hash(value), at as u32);
        let i = self.table.partition_point(|e| *e < wanted);
        match self.table.get(i) {
            Some(&(h, entry)) if h == wanted.0 => entry as usize,
            _ => self.end,
        }
    }
}

/// FNV-1a; see the module on collisions.
fn hash(text: &[u8]) -> u32 {
    text.iter().fold(0x811c_9dc5, |h, &b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

/// A match that has no effect and fails no event: whether it is tried before or after another one
/// makes no difference to the outcome.
fn is_pure(token: &Token) -> bool {
    matches!(token, Token::Match(m) if !matches!(m.subject, MatchKey::Sysctl(_)))
}

/// The pattern of a token that may be the key of a run.
fn keyed(token: &Token) -> Option<&Pattern> {
    match token {
        Token::Match(m) => {
            let key = matches!(
                m.subject,
                MatchKey::Kernel | MatchKey::Env(_) | MatchKey::Attr(AttrName::Literal(_))
            );
            (key && !m.negate && has_only_literals(&m.pattern)).then_some(&m.pattern)
        }
        Token::Parents(group) => group.iter().find(|m| is_keyed_member(m)).map(|m| &m.pattern),
        _ => None,
    }
}

fn is_keyed_member(m: &ParentMatch) -> bool {
    matches!(m.subject, ParentKey::Attr(AttrName::Literal(_))) && !m.negate && has_only_literals(&m.pattern)
}

fn has_only_literals(pattern: &Pattern) -> bool {
    !pattern.ignore_case && pattern.alternatives.iter().all(|a| matches!(a, Alternative::Literal(_)))
}

/// The values a literal pattern matches.
fn literals(pattern: &Pattern) -> impl Iterator<Item = &[u8]> {
    let empty = pattern.matches_empty.then_some(&b""[..]);
    let texts = pattern.alternatives.iter().filter_map(|a| match a {
        Alternative::Literal(text) => Some(text.as_slice()),
        _ => None,
    });
    empty.into_iter().chain(texts)
}

/// Whether two keyed tokens compare the same value with literals.
fn same_key(a: &Token, b: &Token) -> bool {
    let (Some(pa), Some(pb)) = (keyed(a), keyed(b)) else { return false };
    if pa.trims_attribute != pb.trims_attribute {
        return false;
    }
    match (a, b) {
        (Token::Match(a), Token::Match(b)) => a.subject == b.subject,
        (Token::Parents(a), Token::Parents(b)) => {
            let (Some(i), Some(j)) = (a.iter().position(is_keyed_member), b.iter().position(is_keyed_member))
            else {
                return false;
            };
            a[..i] == b[..j] && a[i].subject == b[j].subject
        }
        _ => false,
    }
}

/// What the kind says of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Never,
    Maybe {
        first: u32,
    },
    /// Nothing to do but to jump.
    Jump,
}

fn fold(rules: &RuleSet, kind: Kind<'_>) -> Vec<Entry> {
    let mut verdicts = Vec::with_capacity(rules.lines.len());
    let mut reached = vec![false; rules.lines.len() + 1];
    reached[0] = true;
    for (i, line) in rules.lines.iter().enumerate() {
        let verdict = if reached[i] { judge(line, i, kind) } else { Verdict::Never };
        if reached[i] {
            let jumps = matches!(verdict, Verdict::Jump)
                || matches!(verdict, Verdict::Maybe { first } if always_holds(line, first));
            match target(rules, i) {
                Some(target) if jumps => reached[target] = true,
                Some(target) if verdict != Verdict::Never => (reached[target], reached[i + 1]) = (true, true),
                _ => reached[i + 1] = true,
            }
        }
        verdicts.push(verdict);
    }
    link(rules, &verdicts)
}

/// Hash of the driver, or else the subsystem, without which a parent group cannot hold.
fn required(token: &Token) -> Option<u32> {
    let Token::Parents(members) = token else { return None };
    let find = |wanted: fn(&ParentKey) -> bool| {
        let mut plain = members.iter().filter(|m| !m.negate && wanted(&m.subject));
        plain.find_map(|m| m.pattern.as_literal())
    };
    let driver = find(|key| matches!(key, ParentKey::Driver)).map(|name| driver_hash(name));
    driver.or_else(|| find(|key| matches!(key, ParentKey::Subsystem)).map(|name| subsystem_hash(name)))
}

/// Hash of a driver's name, never 0. A collision makes a group be tried in full.
pub(super) fn driver_hash(name: &[u8]) -> u32 {
    name_hash(b'd', name)
}

/// The same for the name of a subsystem.
pub(super) fn subsystem_hash(name: &[u8]) -> u32 {
    name_hash(b's', name)
}

fn name_hash(kind: u8, name: &[u8]) -> u32 {
    let mut hasher = Fnv::default();
    hasher.write(&[kind]);
    hasher.write(name);
    (hasher.finish() as u32) | 1
}

/// Hash of the value of a property.
pub(super) fn value_hash(value: &[u8]) -> u32 {
    name_hash(b'v', value)
}

/// The property that a token wants to have one certain value, and that value.
fn compared_literal(token: &Token) -> Option<(&Key, &BString)> {
    let Token::Match(Match { subject: MatchKey::Env(key), pattern, negate: false, .. }) = token else {
        return None;
    };
    pattern.as_literal().filter(|_| !key.is_derived()).map(|literal| (key, literal))
}

/// What kind of guard a token is, and its hash; None for what has to be asked each time.
fn guard_of(token: &Token) -> Option<(Guard, u64)> {
    let mut hasher = Fnv::default();
    let guard = match token {
        Token::Match(m) => {
            let guard = match &m.subject {
                MatchKey::Kernel => Guard::Fixed,
                MatchKey::Devpath => Guard::Fixed,
                MatchKey::Env(key) if !is_derived(key.name()) => {
                    hasher.write(key.name());
                    Guard::Property
                }
                _ => return None,
            };
            std::mem::discriminant(&m.subject).hash(&mut hasher);
            (m.negate, &m.pattern).hash(&mut hasher);
            guard
        }
        Token::Parents(members) => {
            for member in members {
                match member.subject {
                    ParentKey::Kernel | ParentKey::Subsystem | ParentKey::Driver => {}
                    ParentKey::Attr(_) | ParentKey::Tag => return None,
                }
                std::mem::discriminant(&member.subject).hash(&mut hasher);
                (member.negate, &member.pattern).hash(&mut hasher);
            }
            Guard::Parents
        }
        _ => return None,
    };
    Some((guard, hasher.finish()))
}

fn judge(line: &Line, index: usize, kind: Kind<'_>) -> Verdict {
    if !kind.is_active(line) {
        return Verdict::Never;
    }
    let before_effects = line.tokens.iter().take_while(|token| is_pure(token));
    if before_effects.clone().any(|token| kind.decide(token) == Some(false)) {
        return Verdict::Never;
    }
    let first = before_effects.take_while(|token| kind.decide(token) == Some(true)).count();
    if first == line.tokens.len() {
        return match line.goto {
            Some(target) if target as usize > index => Verdict::Jump,
            _ => Verdict::Never,
        };
    }
    Verdict::Maybe { first: first as u32 }
}

/// Whether what remains of a line cannot be false.
fn always_holds(line: &Line, first: u32) -> bool {
    line.tokens.iter().skip(first as usize).all(|token| {
        !matches!(
            token,
            Token::Match(_)
                | Token::Parents(_)
                | Token::Test { .. }
                | Token::Program { .. }
                | Token::ImportFile { .. }
                | Token::ImportProgram { .. }
                | Token::ImportBuiltin { .. }
                | Token::ImportDb { .. }
                | Token::ImportCommandLine { .. }
                | Token::ImportParent { .. }
        )
    })
}

/// The line a GOTO leads to; None where it would not lead forward.
fn target(rules: &RuleSet, index: usize) -> Option<usize> {
    let target = rules.lines[index].goto? as usize;
    (target > index && target <= rules.lines.len()).then_some(target)
}

/// Turns verdicts into entries. Lines are visited from the last to the first, so that the entry of a
/// target is known when the jump is met; until all are known, entries are counted from the end.
fn link(rules: &RuleSet, verdicts: &[Verdict]) -> Vec<Entry> {
    let mut backward: Vec<Entry> = Vec::new();
    // from_line[i]: how many entries there are from line i to the end
    let mut from_line = vec![0u32; verdicts.len() + 1];
    for (i, verdict) in verdicts.iter().enumerate().rev() {
        let goto = target(rules, i).map(|target| from_line[target]);
        let next = from_line[i + 1];
        let first = match *verdict {
            Verdict::Never => None,
            Verdict::Maybe { first } => Some(first),
            // a jump over lines that are all gone
            Verdict::Jump if goto == Some(next) => None,
            Verdict::Jump => Some(rules.lines[i].tokens.len() as u32),
        };
        if let Some(first) = first {
            backward.push(Entry {
                line: i as u32,
                first,
                goto: goto.unwrap_or(NONE),
                run: NONE,
                guard: NONE,
                subject: NONE,
                literal: 0,
                required: 0,
                stretch: NONE,
            });
        }
        from_line[i] = backward.len() as u32;
    }
    let total = backward.len() as u32;
    backward.reverse();
    for entry in &mut backward {
        if entry.goto != NONE {
            entry.goto = total - entry.goto;
        }
    }
    backward
}

/// All programs made so far for one rule set.
#[derive(Clone, Debug)]
pub struct Programs {
    rules: Arc<RuleSet>,
    /// Per action, number and ifindex: the programs by subsystem.
    by_kind: Vec<HashMap<BString, Arc<Specialised>, BuildFnv>>,
    count: usize,
}

impl Programs {
    /// None yet.
    pub fn new(rules: Arc<RuleSet>) -> Programs {
        Programs { rules, by_kind: vec![HashMap::default(); Action::ALL.len() * 4], count: 0 }
    }

    /// The rules they are made from.
    pub fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    /// The program for this event, made at the first call for its kind. Kinds that come to the same
    /// lines share one; at [`MAX_PROGRAMS`] kinds all are forgotten.
    pub fn for_event(&mut self, event: &Event) -> Arc<Specialised> {
        let kind = Kind::of(event);
        let slot =
            kind.action as usize * 4 + usize::from(kind.has_devnum) * 2 + usize::from(kind.has_ifindex);
        if let Some(known) = self.by_kind[slot].get(kind.subsystem) {
            return known.clone();
        }
        if self.count >= MAX_PROGRAMS {
            self.by_kind.iter_mut().for_each(HashMap::clear);
            self.count = 0;
        }
        let made = Specialised::new(self.rules.clone(), kind);
        let equal = self.by_kind.iter().flat_map(HashMap::values).find(|p| p.entries == made.entries);
        let program = equal.cloned().unwrap_or_else(|| Arc::new(made));
        self.by_kind[slot].insert(kind.subsystem.to_owned(), program.clone());
        self.count += 1;
        program
    }
}
