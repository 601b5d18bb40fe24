//! Runs: consecutive lines that differ only in the literals that one key is compared with. The value of the key
//! is asked for once, and a table says which line of the run comes next.

use super::super::lex::MAX_LINE;
use super::super::pattern::{Alternative, Pattern};
use super::super::program::{AttrName, MatchKey, ParentKey, ParentMatch, RuleSet, Token};
use super::fold::{EventKind, KeptLine};
use super::seen::{EventView, Pace};
use super::{as_match, is_pure};
use crate::model::fnv;
use bstr::{BStr, ByteSlice};

/// Shortest run worth a table.
const MIN_RUN: usize = 4;

/// The runs of a program, in order.
#[derive(Debug, Default)]
pub(super) struct Runs(Vec<Run>);

/// Consecutive lines with equal tokens up to a key, and only literals to compare that key with.
#[derive(Debug)]
pub(super) struct Run {
    /// The place after the last line.
    pub end: usize,
    /// The line whose tokens stand for all: index into [`RuleSet::lines`].
    model: u32,
    /// Indices of the tokens in front of the key that the kind does not decide; they are equal in all lines.
    prefix: Vec<u32>,
    key: KeyAt,
    /// (hash of a literal, place of its line), sorted: the lines that can match a value, in order.
    table: Vec<(u32, u32)>,
}

/// Where the key of a run stands in its model line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyAt {
    /// A token of its own.
    Token(u32),
    /// A member of the parent group; the members in front of it are equal in all lines.
    Member { token: u32, member: u32 },
}

impl Runs {
    /// Joins lines to runs, and writes the numbers of these into the lines.
    pub(super) fn find(rules: &RuleSet, lines: &mut [KeptLine], kind: EventKind<'_>) -> Runs {
        let mut runs = Vec::new();
        let mut at = 0;
        while at < lines.len() {
            match (Finder { rules, lines, kind }).longest_run(at) {
                Some(run) if run.end - at >= MIN_RUN => {
                    let number = runs.len() as u32;
                    lines[at..run.end].iter_mut().for_each(|line| line.run = number);
                    at = run.end;
                    runs.push(run);
                }
                _ => at += 1,
            }
        }
        Runs(runs)
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The run that a line is part of.
    pub(super) fn of(&self, line: &KeptLine) -> Option<&Run> {
        self.0.get(line.run as usize)
    }
}

/// What runs are looked for in.
struct Finder<'a> {
    rules: &'a RuleSet,
    lines: &'a [KeptLine],
    kind: EventKind<'a>,
}

impl Finder<'_> {
    /// The longest run that begins at this place, whatever its key; the earliest key among equals.
    fn longest_run(&self, start: usize) -> Option<Run> {
        let model = self.open_tokens(start);
        let mut best: Option<(usize, usize)> = None;
        for n in 0..model.len() {
            if keyed(model[n].1).is_some() {
                let same = |at: &usize| {
                    let other = self.open_tokens(*at);
                    other.len() > n
                        && model[..n].iter().zip(&other).all(|(a, b)| a.1 == b.1)
                        && same_key(model[n].1, other[n].1)
                };
                let end = (start + 1..self.lines.len()).take_while(same).last().unwrap_or(start) + 1;
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
            let tokens = self.open_tokens(at);
            let pattern = tokens.get(n).and_then(|(_, token)| keyed(token))?;
            table.extend(literals(pattern).map(|text| (fnv::short_hash(text), at as u32)));
        }
        table.sort_unstable();
        table.dedup();
        let prefix = model[..n].iter().map(|(index, _)| *index).collect();
        Some(Run { end, model: self.lines[start].line, prefix, key, table })
    }

    /// The tokens of a line that the kind does not decide, with their indices.
    fn open_tokens(&self, at: usize) -> Vec<(u32, &Token)> {
        let line = self.lines.get(at).and_then(|kept| self.rules.lines.get(kept.line as usize));
        let tokens = line.map_or(&[][..], |line| &line.tokens);
        (0..).zip(tokens).filter(|(_, token)| self.kind.decide(token).is_none()).collect()
    }
}

impl Run {
    /// The first line of the run, from this place on, that can hold.
    pub(super) fn enter<V: EventView>(&self, rules: &RuleSet, at: usize, view: &V) -> Result<Pace, V::Stop> {
        let tokens = rules.lines.get(self.model as usize).map_or(&[][..], |line| &line.tokens);
        for m in self.prefix.iter().filter_map(|&i| tokens.get(i as usize)).filter_map(as_match) {
            if !view.holds(m)? {
                return Ok(Pace::to(self.end));
            }
        }
        match self.key {
            KeyAt::Token(i) => match tokens.get(i as usize).and_then(as_match) {
                None => Ok(Pace::to(at)),
                Some(m) => Ok(Pace::to(view.value(m)?.map_or(self.end, |value| {
                    view.spend(value.len());
                    self.next(at, &value)
                }))),
            },
            KeyAt::Member { token, member } => match parents_key(tokens, token, member) {
                None => Ok(Pace::to(at)),
                Some(key) => {
                    let nearest = self.enter_by_parents(at, &key, view)?;
                    Ok(Pace { to: nearest, forgets_parent: nearest != at })
                }
            },
        }
    }

    /// The same for a run of parent groups: the first line that some device can match.
    fn enter_by_parents<V: EventView>(
        &self,
        at: usize,
        key: &ParentsKey<'_>,
        view: &V,
    ) -> Result<usize, V::Stop> {
        let mut nearest = self.end;
        view.each_value(key, |value| {
            nearest = nearest.min(self.next(at, value));
            nearest == at
        })?;
        Ok(nearest)
    }

    /// The first line from `at` on that can match the value; `end` if there is none.
    fn next(&self, at: usize, value: &[u8]) -> usize {
        // No literal is as long, so there is no need to hash it.
        if value.len() > MAX_LINE {
            return self.end;
        }
        let wanted = (fnv::short_hash(value), at as u32);
        let i = self.table.partition_point(|row| *row < wanted);
        match self.table.get(i) {
            Some(&(hash, line)) if hash == wanted.0 => line as usize,
            _ => self.end,
        }
    }
}

/// The key of a run of parent groups: an attribute, of those devices on which `shared` holds as well.
pub(in crate::rules) struct ParentsKey<'r> {
    pub shared: &'r [ParentMatch],
    pub attr: &'r BStr,
    /// Blanks at the end of the value are cut (rules.md 3.4).
    pub trims: bool,
}

fn parents_key(tokens: &[Token], token: u32, member: u32) -> Option<ParentsKey<'_>> {
    let Token::Parents(group) = tokens.get(token as usize)? else { return None };
    let m = group.get(member as usize)?;
    let ParentKey::Attr(AttrName::Literal(attr)) = &m.subject else { return None };
    let shared = &group[..member as usize];
    Some(ParentsKey { shared, attr: attr.as_bstr(), trims: m.pattern.trims_attribute })
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

/// The values that a pattern of literals matches.
fn literals(pattern: &Pattern) -> impl Iterator<Item = &[u8]> {
    let empty = pattern.matches_empty.then_some(&b""[..]);
    let texts = pattern.alternatives.iter().filter_map(|a| match a {
        Alternative::Literal(text) => Some(text.as_slice()),
        _ => None,
    });
    empty.into_iter().chain(texts)
}

/// Whether two tokens that may be keys compare the same value.
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
