//! A line as a whole: its tokens in their order, what class it is of, and where its jump leads.

use super::checks::Refused;
use super::rank::{self, has_effect};
use super::{FileCompiler, LinePart};
use crate::rules::diagnostic::Severity;
use crate::rules::lex::{self, LogicalLine, Op, RawToken};
use crate::rules::program::{Class, Line, ListOp, StaticNode, Token};
use bstr::{BStr, BString, ByteSlice};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// A line on its way.
pub(super) struct ParsedLine<'l> {
    source: &'l LogicalLine<'l>,
    /// (rank, token), in written order.
    tokens: Vec<(u8, LinePart)>,
    goto: Option<(Cow<'l, BStr>, Range<usize>)>,
    label: Option<Cow<'l, BStr>>,
}

impl ParsedLine<'_> {
    /// Whether the line does anything besides its GOTO.
    fn acts(&self) -> bool {
        self.label.is_some() || self.tokens.iter().any(|(rank, _)| has_effect(*rank))
    }

    /// The static nodes of the line with what it gives them (rules.md 8.10).
    pub(super) fn static_nodes(&self) -> Option<Vec<StaticNode>> {
        let mut shared =
            StaticNode { name: BString::default(), owner: None, group: None, mode: None, tags: Vec::new() };
        let mut names = Vec::new();
        for (_, part) in &self.tokens {
            match part {
                LinePart::StaticNode(name) => names.push(name.clone()),
                LinePart::Token(Token::Owner { id, .. }) => shared.owner = Some(*id),
                LinePart::Token(Token::Group { id, .. }) => shared.group = Some(*id),
                LinePart::Token(Token::Mode { mode, .. }) => shared.mode = Some(*mode),
                LinePart::Token(Token::Tag { op: ListOp::Set | ListOp::Add, value }) => {
                    shared.tags.extend(value.as_literal().map(|tag| tag.to_owned()));
                }
                _ => {}
            }
        }
        let gives = shared.owner.is_some()
            || shared.group.is_some()
            || shared.mode.is_some()
            || !shared.tags.is_empty();
        gives.then(|| names.into_iter().map(|name| StaticNode { name, ..shared.clone() }).collect())
    }

    pub(super) fn into_line(mut self, file: u32, goto: Option<u32>) -> Line {
        self.tokens.sort_by_key(|(rank, _)| *rank);
        let mut class = Class { goto: goto.is_some(), ..Class::default() };
        let mut tokens = Vec::with_capacity(self.tokens.len());
        let mut parents = Vec::new();
        for (rank, part) in self.tokens {
            match rank {
                rank::SYMLINK | rank::OWNER_NAME..=rank::MODE => class.node = true,
                rank::NAME => class.name = true,
                rank::STATIC_NODE => {}
                rank => class.other |= has_effect(rank),
            }
            if rank > rank::PARENT_ATTR && !parents.is_empty() {
                tokens.push(Token::Parents(std::mem::take(&mut parents)));
            }
            match part {
                LinePart::Token(token) => tokens.push(token),
                LinePart::Parent(parent) => parents.push(parent),
                LinePart::StaticNode(_) => {}
            }
        }
        if !parents.is_empty() {
            tokens.push(Token::Parents(parents));
        }
        Line { file, number: self.source.number, tokens, class, goto }
    }
}

impl<'a> FileCompiler<'a> {
    pub(super) fn sources(&mut self) -> Vec<LogicalLine<'a>> {
        let (lines, errors) = lex::logical_lines(&self.file.content);
        for error in errors {
            self.say_of_file(error);
        }
        lines
    }

    pub(super) fn line<'l>(&mut self, source: &'l LogicalLine<'l>) -> Option<ParsedLine<'l>> {
        // Eleven tokens are the most that a rule in the field has; most have four.
        let mut raw = Vec::with_capacity(4);
        let lexed = lex::tokens(&source.text, &mut raw);
        let mut line = ParsedLine { source, tokens: Vec::with_capacity(raw.len()), goto: None, label: None };
        let mut left_out = false;
        for token in raw {
            match token.key.as_bytes() {
                b"GOTO" | b"LABEL" => self.jump(&mut line, token)?,
                _ => match self.token(source, &token) {
                    Ok(found) => line.tokens.push(found),
                    Err(Refused::Token) => {}
                    Err(Refused::Silently) => left_out = true,
                    Err(Refused::Line) => return None,
                },
            }
        }
        if let Err(error) = lexed {
            let message = format!("{}; the rule is dropped", error.message);
            self.say(Severity::Error, source, error.at..error.at + 1, message, error.hint);
            return None;
        }
        if line.goto.is_none() && !line.acts() {
            if left_out {
                return None;
            }
            let message = "the rule has no effect and is dropped".into();
            let hint = "add an assignment, or remove the rule";
            self.say(Severity::Warning, source, 0..source.text.len(), message, hint);
            return None;
        }
        Some(line)
    }

    /// GOTO and LABEL; None drops the line.
    fn jump<'l>(&mut self, line: &mut ParsedLine<'l>, token: RawToken<'l>) -> Option<()> {
        let source = line.source;
        if token.attr.is_some() {
            self.refuse_attr(source, &token);
            return None;
        }
        if token.op != Op::Assign || token.ignore_case {
            self.refuse_op(source, &token, "=");
            return None;
        }
        if token.key == "GOTO" {
            if line.goto.is_some() {
                let message = "a second GOTO is ignored".to_string();
                self.say(Severity::Warning, source, token.span, message, "");
            } else {
                line.goto = Some((token.value, token.span));
            }
        } else {
            if line.label.is_some() {
                let message = "a second LABEL replaces the first".to_string();
                self.say(Severity::Warning, source, token.span, message, "");
            }
            line.label = Some(token.value);
        }
        Some(())
    }

    /// The lines, each with the index of the line its GOTO leads to. A GOTO without target is removed,
    /// and with it a line that was nothing else (rules.md 1.7).
    pub(super) fn resolve_gotos<'l>(
        &mut self,
        lines: Vec<ParsedLine<'l>>,
    ) -> Vec<(ParsedLine<'l>, Option<u32>)> {
        // From the last line to the first, so that a label is known before the jumps to it.
        let mut kept: Vec<(ParsedLine, Option<u32>)> = Vec::with_capacity(lines.len());
        let mut place_of_label: HashMap<Cow<BStr>, u32> = HashMap::new();
        for line in lines.into_iter().rev() {
            let mut target = None;
            if let Some((label, span)) = &line.goto {
                target = place_of_label.get(label).copied();
                if target.is_none() {
                    let dropped = if line.acts() { "is ignored" } else { "is dropped, and the rule with it" };
                    let message = format!("GOTO={label:?} has no matching label further down and {dropped}");
                    let hint = "jumps lead forward, within one file";
                    self.say(Severity::Error, line.source, span.clone(), message, hint);
                    if !line.acts() {
                        continue;
                    }
                }
            }
            if let Some(label) = &line.label {
                place_of_label.insert(label.clone(), kept.len() as u32);
            }
            kept.push((line, target));
        }
        let count = kept.len() as u32;
        kept.reverse();
        kept.iter_mut().for_each(|(_, target)| *target = target.map(|place| count - 1 - place));
        kept
    }
}
