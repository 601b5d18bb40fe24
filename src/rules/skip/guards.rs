//! What a line needs for its first token to hold, known when the program is made: a *guard* that other lines begin
//! with as well, a driver or subsystem among the device and its parents, or a certain value of a property.

use super::super::program::{Match, MatchKey, ParentKey, RuleSet, Token};
use super::fold::KeptLine;
use super::{NONE, as_match};
use crate::model::Key;
use crate::model::event::is_derived;
use crate::model::fnv::{BuildFnv, Fnv};
use bstr::BString;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// Properties whose values are kept as hashes during an event.
const MAX_SUBJECTS: usize = 64;

/// How a token that stands first in several lines can be remembered once it did not hold: hundreds
/// of packages ask the same question over and over (`SUBSYSTEMS=="usb"`, `ENV{ID_X}=="?*"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// The token asks what no rule can change.
    Fixed,
    /// The same, of the device and its parents: when the token fails, there is no parent any more.
    Parents,
    /// The token asks for a property.
    Property,
}

/// The guards of a program, and the properties that its lines compare with literals.
#[derive(Debug, Default)]
pub(super) struct Guards {
    guards: Vec<Guard>,
    subjects: Vec<Key>,
}

impl Guards {
    /// Finds what the first tokens of these lines need, and writes it into the lines. Lines that begin with equal
    /// tokens get one guard.
    pub(super) fn find(rules: &RuleSet, lines: &mut [KeptLine]) -> Guards {
        let mut all = Guards::default();
        // hash -> (a token, the first line that begins with it, its guard)
        let mut known: HashMap<u64, (&Token, usize, u32), BuildFnv> = HashMap::default();
        for at in 0..lines.len() {
            let Some(token) = lines[at].first_token(rules) else { continue };
            lines[at].required = required(token).unwrap_or(0);
            if let Some((key, literal)) = compared_literal(token)
                && let Some(subject) = all.subject_of(key)
            {
                lines[at].subject = subject;
                lines[at].literal = value_hash(literal);
            }
            let Some((guard, hash)) = guard_of(token) else { continue };
            match known.get_mut(&hash) {
                Some((other, ..)) if *other != token => {}
                Some((_, first, number)) => {
                    if *number == NONE {
                        *number = all.guards.len() as u32;
                        all.guards.push(guard);
                        lines[*first].guard = *number;
                    }
                    lines[at].guard = *number;
                }
                None => drop(known.insert(hash, (token, at, NONE))),
            }
        }
        all
    }

    /// The number of a subject; a new one if need be and there are not too many.
    fn subject_of(&mut self, key: &Key) -> Option<u32> {
        let at = self.subjects.iter().position(|known| known == key).or_else(|| {
            (self.subjects.len() < MAX_SUBJECTS).then(|| {
                self.subjects.push(key.clone());
                self.subjects.len() - 1
            })
        });
        at.map(|at| at as u32)
    }

    /// How many guards there are.
    pub(super) fn len(&self) -> usize {
        self.guards.len()
    }

    /// The guard of this number.
    pub(super) fn get(&self, number: usize) -> Option<Guard> {
        self.guards.get(number).copied()
    }

    /// Properties that lines compare with literals.
    pub(super) fn subjects(&self) -> &[Key] {
        &self.subjects
    }
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
    tagged_hash(b'd', name)
}

/// The same for the name of a subsystem.
pub(super) fn subsystem_hash(name: &[u8]) -> u32 {
    tagged_hash(b's', name)
}

/// The same for the value of a property.
pub(super) fn value_hash(value: &[u8]) -> u32 {
    tagged_hash(b'v', value)
}

fn tagged_hash(tag: u8, text: &[u8]) -> u32 {
    let mut hasher = Fnv::default();
    hasher.write(&[tag]);
    hasher.write(text);
    hasher.finish_short() | 1
}

/// The property that a token wants to have one certain value, and that value.
fn compared_literal(token: &Token) -> Option<(&Key, &BString)> {
    let Match { subject: MatchKey::Env(key), pattern, negate: false } = as_match(token)? else { return None };
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
