//! Which lines are kept for one kind of event, and where their jumps lead.
//!
//! Must stay true: a line is left out only if it fails, or does nothing, in every event of the kind.

use super::super::pattern::Pattern;
use super::super::program::{Line, MatchKey, RuleSet, Token};
use super::{NONE, is_pure};
use crate::model::{Action, Event};
use bstr::{BStr, ByteSlice};

/// What a program is specialised for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKind<'a> {
    pub action: Action,
    pub subsystem: &'a BStr,
    pub has_devnum: bool,
    pub has_ifindex: bool,
}

impl<'a> EventKind<'a> {
    /// The kind of this event.
    pub fn of(event: &'a Event) -> EventKind<'a> {
        EventKind {
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

    /// Whether a match holds, if the kind alone decides it.
    pub(super) fn decide(&self, token: &Token) -> Option<bool> {
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
pub(in crate::rules) fn matches_subsystem(pattern: &Pattern, any_class: bool, subsystem: &[u8]) -> bool {
    match any_class {
        true => matches!(subsystem, b"subsystem" | b"bus" | b"class"),
        false => pattern.matches(subsystem),
    }
}

/// A line that may matter, and what helps to pass over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeptLine {
    /// Index into [`RuleSet::lines`].
    pub line: u32,
    /// The first token to try: those in front of it hold for all events of this kind.
    pub first: u32,
    /// The place to go on at when all tokens held; [`NONE`] is the next one.
    goto: u32,
    /// The run that the line is part of.
    pub run: u32,
    /// The guard that its first token is.
    pub guard: u32,
    /// Hash of the driver or subsystem that the device or a parent must have for the first token to
    /// hold; 0 is none.
    pub required: u32,
    /// The property that its first token compares with a literal: index into the subjects of the program.
    pub subject: u32,
    /// Hash of that literal.
    pub literal: u32,
    /// The stretch that can be passed over from here on.
    pub stretch: u32,
}

impl KeptLine {
    /// The line of this index, of which nothing else is known yet.
    fn new(line: u32, first: u32, goto: u32) -> KeptLine {
        KeptLine {
            line,
            first,
            goto,
            run: NONE,
            guard: NONE,
            required: 0,
            subject: NONE,
            literal: 0,
            stretch: NONE,
        }
    }

    /// Number of the guard that its first token is.
    pub(super) fn guard(&self) -> Option<usize> {
        (self.guard != NONE).then_some(self.guard as usize)
    }

    /// Hash of the driver or subsystem that the device or a parent must have.
    pub(super) fn required(&self) -> Option<u32> {
        (self.required != 0).then_some(self.required)
    }

    /// The subject of its first token, and the hash that the value must have for it to hold.
    pub(super) fn literal(&self) -> Option<(u32, u32)> {
        (self.subject != NONE).then_some((self.subject, self.literal))
    }

    /// The place to go on at when all tokens held, if that is not the next one.
    pub(super) fn goto(&self) -> Option<usize> {
        (self.goto != NONE).then_some(self.goto as usize)
    }

    /// The token to try first.
    pub(super) fn first_token<'r>(&self, rules: &'r RuleSet) -> Option<&'r Token> {
        rules.lines.get(self.line as usize)?.tokens.get(self.first as usize)
    }
}

/// What the kind says of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The line fails, or does nothing.
    LeftOut,
    Kept {
        first: u32,
    },
    /// The line always holds, and has nothing to do but to jump.
    Jump,
}

/// The lines that may matter for this kind.
pub(super) fn fold(rules: &RuleSet, kind: EventKind<'_>) -> Vec<KeptLine> {
    let mut fates = Vec::with_capacity(rules.lines.len());
    let mut reached = vec![false; rules.lines.len() + 1];
    reached[0] = true;
    for (i, line) in rules.lines.iter().enumerate() {
        let fate = if reached[i] { judge(line, i, kind) } else { Fate::LeftOut };
        if reached[i] {
            let jumps = matches!(fate, Fate::Jump)
                || matches!(fate, Fate::Kept { first } if always_holds(line, first));
            match target(rules, i) {
                Some(target) if jumps => reached[target] = true,
                Some(target) if fate != Fate::LeftOut => (reached[target], reached[i + 1]) = (true, true),
                _ => reached[i + 1] = true,
            }
        }
        fates.push(fate);
    }
    link(rules, &fates)
}

/// All active lines from their first token on.
pub(super) fn keep_all(rules: &RuleSet, kind: EventKind<'_>) -> Vec<KeptLine> {
    let fate = |line| if kind.is_active(line) { Fate::Kept { first: 0 } } else { Fate::LeftOut };
    let fates: Vec<Fate> = rules.lines.iter().map(fate).collect();
    link(rules, &fates)
}

fn judge(line: &Line, index: usize, kind: EventKind<'_>) -> Fate {
    if !kind.is_active(line) {
        return Fate::LeftOut;
    }
    let before_effects = line.tokens.iter().take_while(|token| is_pure(token));
    if before_effects.clone().any(|token| kind.decide(token) == Some(false)) {
        return Fate::LeftOut;
    }
    let first = before_effects.take_while(|token| kind.decide(token) == Some(true)).count();
    if first == line.tokens.len() {
        return match line.goto {
            Some(target) if target as usize > index => Fate::Jump,
            _ => Fate::LeftOut,
        };
    }
    Fate::Kept { first: first as u32 }
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

/// The line that a GOTO leads to; None where it would not lead forward.
fn target(rules: &RuleSet, index: usize) -> Option<usize> {
    let target = rules.lines[index].goto? as usize;
    (target > index && target <= rules.lines.len()).then_some(target)
}

/// The lines that are kept, with their jumps. It goes from the last line to the first, so that the place of a
/// target is known when its jump is met. Until all places are known, they are counted from the end.
fn link(rules: &RuleSet, fates: &[Fate]) -> Vec<KeptLine> {
    let mut backward: Vec<KeptLine> = Vec::new();
    // from_line[i]: how many lines are kept from line i to the end
    let mut from_line = vec![0u32; fates.len() + 1];
    for (i, fate) in fates.iter().enumerate().rev() {
        let goto = target(rules, i).map(|target| from_line[target]);
        let next = from_line[i + 1];
        let first = match *fate {
            Fate::LeftOut => None,
            Fate::Kept { first } => Some(first),
            // The lines that it would jump over are all left out.
            Fate::Jump if goto == Some(next) => None,
            Fate::Jump => Some(rules.lines[i].tokens.len() as u32),
        };
        if let Some(first) = first {
            backward.push(KeptLine::new(i as u32, first, goto.unwrap_or(NONE)));
        }
        from_line[i] = backward.len() as u32;
    }
    let total = backward.len() as u32;
    backward.reverse();
    for kept in &mut backward {
        if kept.goto != NONE {
            kept.goto = total - kept.goto;
        }
    }
    backward
}
