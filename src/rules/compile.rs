//! Rules files to a [`RuleSet`]: every key, operator and value is checked once, here (rules.md
//! sections 1.5 to 2.4).
//!
//! Compiling never fails: a line with a fault is dropped, or the faulty token alone where udev does
//! so, a diagnostic says why, and the rest stands.

use super::ask::{BuiltinName, Constant};
use super::diagnostic::{Diagnostic, Severity};
use super::lex::{self, LineError, LogicalLine, Op, RawToken};
use super::pattern::Pattern;
use super::program::*;
use super::subst::Template;
use crate::model::{Key, ResolveNames};
use bstr::{BStr, BString, ByteSlice};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

mod hint;
mod values;

use hint::nearest_key;
use values::{is_protected, parse_priority};
pub use values::{parse_id, parse_mode};

/// A rules file in memory.
#[derive(Clone, Debug)]
pub struct SourceFile {
    pub path: BString,
    pub content: Vec<u8>,
}

/// Who knows users and groups.
pub trait Accounts {
    /// The uid of a user.
    fn user(&self, name: &[u8]) -> Option<u32>;
    /// The gid of a group.
    fn group(&self, name: &[u8]) -> Option<u32>;
}

/// How to compile.
#[derive(Clone, Copy)]
pub struct CompileOptions<'a> {
    pub resolve_names: ResolveNames,
    pub accounts: &'a dyn Accounts,
}

/// What became of the files.
#[derive(Clone, Debug, Default)]
pub struct Compiled {
    pub rules: RuleSet,
    /// In the order of files and lines.
    pub diagnostics: Vec<Diagnostic>,
}

/// Compiles files in their order.
pub fn compile(files: &[SourceFile], options: &CompileOptions) -> Compiled {
    let mut all = Compiled::default();
    files.iter().for_each(|file| all.add(file, options));
    all
}

impl Compiled {
    /// Compiles one file more.
    pub fn add(&mut self, file: &SourceFile, options: &CompileOptions) {
        let index = self.rules.files.len() as u32;
        self.rules.files.push(file.path.clone());
        let mut compiler = FileCompiler { file, options, diagnostics: Vec::new() };
        let sources = compiler.sources();
        let lines = sources.iter().filter_map(|line| compiler.line(line)).collect();
        let base = self.rules.lines.len() as u32;
        for (parsed, goto) in compiler.resolve_gotos(lines) {
            if let Some(nodes) = parsed.static_nodes() {
                self.rules.static_nodes.extend(nodes);
            }
            self.rules.lines.push(parsed.into_line(index, goto.map(|g| g + base)));
        }
        // Lines were read first, jumps resolved afterwards: back into the order of the text.
        compiler.diagnostics.sort_by_key(|d| d.rule);
        self.diagnostics.append(&mut compiler.diagnostics);
    }
}

/// A line on its way.
struct ParsedLine<'l> {
    source: &'l LogicalLine<'l>,
    /// (kind, token), in written order.
    tokens: Vec<(u8, Piece)>,
    goto: Option<(Cow<'l, BStr>, Range<usize>)>,
    label: Option<Cow<'l, BStr>>,
}

/// Ids from here on belong to people, not to the system (rules.md section 13, v260).
const FIRST_PERSON: u32 = 1000;

/// Of the user and the group that own nothing.
const NOBODY: u32 = 65534;

/// What a written token becomes.
enum Piece {
    Token(Token),
    Parent(ParentMatch),
    StaticNode(BString),
}

/// Kinds in the order of evaluation (rules.md 2.4).
mod kind {
    pub const ACTION: u8 = 0;
    pub const DEVPATH: u8 = 1;
    pub const KERNEL: u8 = 2;
    pub const SYMLINK_MATCH: u8 = 3;
    pub const NAME_MATCH: u8 = 4;
    pub const ENV_MATCH: u8 = 5;
    pub const CONST: u8 = 6;
    pub const TAG_MATCH: u8 = 7;
    pub const SUBSYSTEM: u8 = 8;
    pub const DRIVER: u8 = 9;
    pub const ATTR_MATCH: u8 = 10;
    pub const SYSCTL_MATCH: u8 = 11;
    /// The group of parents. All of it must hold, so that its order cannot be seen but for what is read:
    /// attributes, the dearest, come last.
    pub const PARENT_KERNEL: u8 = 20;
    pub const PARENT_SUBSYSTEM: u8 = 21;
    pub const PARENT_DRIVER: u8 = 22;
    pub const PARENT_TAG: u8 = 23;
    pub const PARENT_ATTR: u8 = 24;
    pub const TEST: u8 = 30;
    pub const PROGRAM: u8 = 31;
    pub const IMPORT_FILE: u8 = 32;
    pub const IMPORT_PROGRAM: u8 = 33;
    pub const IMPORT_BUILTIN: u8 = 34;
    pub const IMPORT_DB: u8 = 35;
    pub const IMPORT_CMDLINE: u8 = 36;
    pub const IMPORT_PARENT: u8 = 37;
    pub const RESULT: u8 = 38;
    /// From here on a token is an effect by itself.
    pub const DUMP: u8 = 40;
    pub const STRING_ESCAPE: u8 = 41;
    pub const DB_PERSIST: u8 = 42;
    pub const WATCH: u8 = 43;
    pub const LINK_PRIORITY: u8 = 44;
    pub const LOG_LEVEL: u8 = 45;
    pub const OWNER_NAME: u8 = 50;
    pub const GROUP_NAME: u8 = 51;
    pub const MODE_TEXT: u8 = 52;
    pub const OWNER: u8 = 53;
    pub const GROUP: u8 = 54;
    pub const MODE: u8 = 55;
    pub const TAG: u8 = 56;
    pub const STATIC_NODE: u8 = 57;
    pub const SECLABEL: u8 = 58;
    pub const ENV: u8 = 60;
    pub const NAME: u8 = 61;
    pub const SYMLINK: u8 = 62;
    pub const ATTR: u8 = 63;
    pub const SYSCTL: u8 = 64;
    pub const RUN_BUILTIN: u8 = 65;
    pub const RUN_PROGRAM: u8 = 66;
}

/// Whether a line with this token does anything (rules.md 1.6, last row).
fn has_effect(kind: u8) -> bool {
    (kind::PROGRAM..=kind::IMPORT_PARENT).contains(&kind) || kind >= kind::DUMP
}

impl ParsedLine<'_> {
    /// Whether the line is there for something besides its GOTO.
    fn acts(&self) -> bool {
        self.label.is_some() || self.tokens.iter().any(|(kind, _)| has_effect(*kind))
    }

    /// The static nodes of the line with what it gives them (rules.md 8.10).
    fn static_nodes(&self) -> Option<Vec<StaticNode>> {
        let mut shared =
            StaticNode { name: BString::default(), owner: None, group: None, mode: None, tags: Vec::new() };
        let mut names = Vec::new();
        for (_, piece) in &self.tokens {
            match piece {
                Piece::StaticNode(name) => names.push(name.clone()),
                Piece::Token(Token::Owner { id, .. }) => shared.owner = Some(*id),
                Piece::Token(Token::Group { id, .. }) => shared.group = Some(*id),
                Piece::Token(Token::Mode { mode, .. }) => shared.mode = Some(*mode),
                Piece::Token(Token::Tag { op: ListOp::Set | ListOp::Add, value }) => {
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

    fn into_line(mut self, file: u32, goto: Option<u32>) -> Line {
        self.tokens.sort_by_key(|(kind, _)| *kind);
        let mut class = Class { goto: goto.is_some(), ..Class::default() };
        let mut tokens = Vec::with_capacity(self.tokens.len());
        let mut parents = Vec::new();
        for (kind, piece) in self.tokens {
            match kind {
                kind::SYMLINK | kind::OWNER_NAME..=kind::MODE => class.node = true,
                kind::NAME => class.name = true,
                kind::STATIC_NODE => {}
                kind => class.other |= has_effect(kind),
            }
            if kind > kind::PARENT_ATTR && !parents.is_empty() {
                tokens.push(Token::Parents(std::mem::take(&mut parents)));
            }
            match piece {
                Piece::Token(token) => tokens.push(token),
                Piece::Parent(parent) => parents.push(parent),
                Piece::StaticNode(_) => {}
            }
        }
        if !parents.is_empty() {
            tokens.push(Token::Parents(parents));
        }
        Line { file, number: self.source.number, tokens, class, goto }
    }
}

/// Why a token is not there.
enum Refused {
    /// The whole line goes.
    Line,
    /// Only this token goes; it has been said why.
    Token,
    /// Only this token goes, as the configuration wants it.
    Silently,
}

type TokenResult = Result<(u8, Piece), Refused>;

/// What operators a key takes.
#[derive(Clone, Copy)]
enum Operators {
    /// `==`, `!=`.
    Match,
    /// The same; `=`, `:=`, `+=` mean `==`.
    MatchAnyway,
}

struct FileCompiler<'a> {
    file: &'a SourceFile,
    options: &'a CompileOptions<'a>,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> FileCompiler<'a> {
    fn say(
        &mut self,
        severity: Severity,
        line: &LogicalLine,
        span: Range<usize>,
        message: String,
        hint: &str,
    ) {
        let place = line.place(span.start);
        self.diagnostics.push(Diagnostic {
            severity,
            file: self.file.path.clone(),
            rule: line.number,
            line: place.line,
            column: place.column,
            width: span.len().max(1) as u32,
            message,
            hint: hint.to_string(),
            text: self.file.content[place.raw].into(),
        });
    }

    fn say_of_file(&mut self, error: LineError) {
        let (line, message, hint) = match error {
            LineError::PhysicalTooLong { line } => (
                line,
                "the line has 16384 bytes or more; the whole file is dropped",
                "break it with backslashes",
            ),
            LineError::LogicalTooLong { line } => {
                (line, "the rule has 16384 bytes or more and is dropped", "write several rules")
            }
            LineError::EndsInContinuation { line } => (
                line,
                "the file ends in the middle of this rule, which is dropped",
                "remove the last backslash",
            ),
        };
        self.diagnostics.push(Diagnostic {
            severity: Severity::Error,
            file: self.file.path.clone(),
            rule: line,
            line,
            column: 1,
            width: 1,
            message: message.to_string(),
            hint: hint.to_string(),
            text: BString::default(),
        });
    }

    fn sources(&mut self) -> Vec<LogicalLine<'a>> {
        let (lines, errors) = lex::logical_lines(&self.file.content);
        for error in errors {
            self.say_of_file(error);
        }
        lines
    }

    fn line<'l>(&mut self, source: &'l LogicalLine<'l>) -> Option<ParsedLine<'l>> {
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
    fn resolve_gotos<'l>(&mut self, lines: Vec<ParsedLine<'l>>) -> Vec<(ParsedLine<'l>, Option<u32>)> {
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

    fn refuse_attr(&mut self, line: &LogicalLine, token: &RawToken) -> Refused {
        let message = format!("{} takes no attribute in braces; the rule is dropped", token.key);
        self.say(Severity::Error, line, token.span.clone(), message, "");
        Refused::Line
    }

    fn refuse_op(&mut self, line: &LogicalLine, token: &RawToken, allowed: &str) -> Refused {
        let (key, op) = (&token.key, token.op.as_str());
        let message = match token.ignore_case && !token.op.is_match() {
            true => format!("{key} does not compare, so i\"...\" has no meaning; the rule is dropped"),
            false => format!("{key} cannot be used with {op}; the rule is dropped"),
        };
        let hint = format!("use {allowed}");
        self.say(Severity::Error, line, token.op_span.clone(), message, &hint);
        Refused::Line
    }

    fn refuse(&mut self, line: &LogicalLine, token: &RawToken, message: String, hint: &str) -> Refused {
        self.say(Severity::Error, line, token.span.clone(), message + "; the rule is dropped", hint);
        Refused::Line
    }

    fn ignore(
        &mut self,
        severity: Severity,
        line: &LogicalLine,
        token: &RawToken,
        message: String,
    ) -> Refused {
        self.say(severity, line, token.span.clone(), message + "; it is ignored", "");
        Refused::Token
    }

    /// The name in braces, which must be there and not be empty.
    fn attr<'t>(&mut self, line: &LogicalLine, token: &RawToken<'t>) -> Result<&'t BStr, Refused> {
        match token.attr.filter(|a| !a.is_empty()) {
            Some(attr) => Ok(attr),
            None => {
                let message = format!("{} needs a name in braces", token.key);
                Err(self.refuse(line, token, message, &format!("write {}{{name}}", token.key)))
            }
        }
    }

    fn no_attr(&mut self, line: &LogicalLine, token: &RawToken) -> Result<(), Refused> {
        match token.attr {
            Some(_) => Err(self.refuse_attr(line, token)),
            None => Ok(()),
        }
    }

    /// Whether the comparison is negated; an error if the key does not compare with this operator.
    fn negate(
        &mut self,
        line: &LogicalLine,
        token: &RawToken,
        operators: Operators,
    ) -> Result<bool, Refused> {
        match (token.op, operators) {
            (Op::Match, _) => Ok(false),
            (Op::NoMatch, _) => Ok(true),
            (Op::Assign | Op::AssignFinal | Op::Add, Operators::MatchAnyway) => Ok(false),
            _ => Err(self.refuse_op(line, token, "== or !=")),
        }
    }

    /// The operator after coercion: `allowed` as they are, `coerced` become `=`, the rest drop the line.
    fn assignment(
        &mut self,
        line: &LogicalLine,
        token: &RawToken,
        allowed: &[Op],
        coerced: &[Op],
    ) -> Result<Op, Refused> {
        if !token.ignore_case && allowed.contains(&token.op) {
            return Ok(token.op);
        }
        if !token.ignore_case && coerced.contains(&token.op) {
            let message = format!("{} is taken as = for {}", token.op.as_str(), token.key);
            self.say(Severity::Warning, line, token.op_span.clone(), message, "write =");
            return Ok(Op::Assign);
        }
        let names: Vec<&str> = allowed.iter().map(|op| op.as_str()).collect();
        Err(self.refuse_op(line, token, &names.join(" or ")))
    }

    /// A value with substitutions; a malformed one is only reported.
    fn template(&mut self, line: &LogicalLine, token: &RawToken) -> Template {
        let (template, error) = Template::parse(&token.value);
        if let Some(error) = error {
            let start = (token.value_span.start + error.at).min(token.value_span.end);
            self.say(
                Severity::Error,
                line,
                start..start + 1,
                format!("{error}"),
                "a literal % is %%, a literal $ is $$",
            );
        }
        template
    }

    fn template_not_empty(&mut self, line: &LogicalLine, token: &RawToken) -> Template {
        if token.value.is_empty() {
            let message = format!("{} has an empty value", token.key);
            self.say(Severity::Error, line, token.span.clone(), message, "");
        }
        self.template(line, token)
    }

    /// A simple match with its `?*` flip.
    fn compare(&mut self, line: &LogicalLine, token: &RawToken) -> Result<(bool, Pattern), Refused> {
        let negate = self.negate(line, token, Operators::Match)?;
        Ok(match token.value.as_bytes() {
            // Blanks of an attribute are cut as for any other text (rules.md 3.2).
            b"?*" => (!negate, Pattern { trims_attribute: true, ..Pattern::compile(b"", token.ignore_case) }),
            value => (negate, Pattern::compile(value, token.ignore_case)),
        })
    }

    fn simple_match(
        &mut self,
        line: &LogicalLine,
        token: &RawToken,
        kind: u8,
        subject: MatchKey,
    ) -> TokenResult {
        self.no_attr(line, token)?;
        self.match_on(line, token, kind, subject)
    }

    fn match_on(&mut self, line: &LogicalLine, token: &RawToken, kind: u8, subject: MatchKey) -> TokenResult {
        let (negate, pattern) = self.compare(line, token)?;
        Ok((kind, Piece::Token(Token::Match(Match { subject, negate, pattern }))))
    }

    fn parent_match(&mut self, line: &LogicalLine, token: &RawToken, subject: ParentKey) -> TokenResult {
        let (negate, pattern) = self.compare(line, token)?;
        let kind = match subject {
            ParentKey::Kernel => kind::PARENT_KERNEL,
            ParentKey::Subsystem => kind::PARENT_SUBSYSTEM,
            ParentKey::Driver => kind::PARENT_DRIVER,
            ParentKey::Tag => kind::PARENT_TAG,
            ParentKey::Attr(_) => kind::PARENT_ATTR,
        };
        Ok((kind, Piece::Parent(ParentMatch { subject, negate, pattern })))
    }

    fn attr_name(&mut self, line: &LogicalLine, token: &RawToken) -> Result<AttrName, Refused> {
        let name = self.attr(line, token)?;
        if let Some((subsystem, sysname, attr)) = named_attr(name) {
            let (subsystem, sysname, attr) = (subsystem.into(), sysname.into(), attr.into());
            return Ok(AttrName::Of { subsystem, sysname, attr });
        }
        if !name.contains(&b'%') && !name.contains(&b'$') {
            return Ok(AttrName::Literal(name.to_owned()));
        }
        let (template, error) = Template::parse(name);
        if let Some(error) = error {
            self.say(Severity::Error, line, token.span.clone(), format!("in the name: {error}"), "");
        }
        Ok(AttrName::Template(template))
    }

    fn token(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let compares = token.op.is_match();
        match token.key.as_bytes() {
            b"ACTION" => self.simple_match(line, token, kind::ACTION, MatchKey::Action),
            b"DEVPATH" => self.simple_match(line, token, kind::DEVPATH, MatchKey::Devpath),
            b"KERNEL" => self.simple_match(line, token, kind::KERNEL, MatchKey::Kernel),
            b"DRIVER" => self.simple_match(line, token, kind::DRIVER, MatchKey::Driver),
            b"RESULT" => self.simple_match(line, token, kind::RESULT, MatchKey::Result),
            b"SUBSYSTEM" => self.subsystem(line, token),
            b"SYMLINK" if compares => self.simple_match(line, token, kind::SYMLINK_MATCH, MatchKey::Symlink),
            b"SYMLINK" => self.symlink(line, token),
            b"NAME" if compares => self.simple_match(line, token, kind::NAME_MATCH, MatchKey::Name),
            b"NAME" => self.name(line, token),
            b"TAG" if compares => self.simple_match(line, token, kind::TAG_MATCH, MatchKey::Tag),
            b"TAG" => self.tag(line, token),
            b"ENV" if compares => {
                let key = MatchKey::Env(Key::new(self.attr(line, token)?.to_owned()));
                self.match_on(line, token, kind::ENV_MATCH, key)
            }
            b"ENV" => self.env(line, token),
            b"CONST" => self.constant(line, token),
            b"ATTR" if compares => {
                let key = MatchKey::Attr(self.attr_name(line, token)?);
                self.match_on(line, token, kind::ATTR_MATCH, key)
            }
            b"ATTR" => {
                let target = self.attr(line, token)?.to_owned();
                self.assignment(line, token, &[Op::Assign], &[Op::Add, Op::AssignFinal])?;
                let value = self.template(line, token);
                Ok((kind::ATTR, Piece::Token(Token::Attr { target, value })))
            }
            b"SYSCTL" => self.sysctl(line, token),
            b"KERNELS" => self.parent_key(line, token, ParentKey::Kernel),
            b"SUBSYSTEMS" => self.parent_key(line, token, ParentKey::Subsystem),
            b"DRIVERS" => self.parent_key(line, token, ParentKey::Driver),
            b"TAGS" => self.parent_key(line, token, ParentKey::Tag),
            b"ATTRS" => self.attrs(line, token),
            b"TEST" => self.test(line, token),
            b"PROGRAM" => {
                self.no_attr(line, token)?;
                let negate = self.run_match(line, token)?;
                let command = self.template_not_empty(line, token);
                Ok((kind::PROGRAM, Piece::Token(Token::Program { negate, command })))
            }
            b"IMPORT" => self.import(line, token),
            b"OPTIONS" => self.option(line, token),
            b"OWNER" | b"GROUP" => self.account(line, token),
            b"MODE" => self.mode(line, token),
            b"SECLABEL" => self.seclabel(line, token),
            b"RUN" => self.run(line, token),
            key => {
                let message = format!("unknown key {}", key.as_bstr());
                let hint = nearest_key(key).map(|k| format!("did you mean {k}?")).unwrap_or_default();
                self.say(
                    Severity::Error,
                    line,
                    token.key_span.clone(),
                    message + "; the rule is dropped",
                    &hint,
                );
                Err(Refused::Line)
            }
        }
    }

    fn parent_key(&mut self, line: &LogicalLine, token: &RawToken, subject: ParentKey) -> TokenResult {
        self.no_attr(line, token)?;
        self.parent_match(line, token, subject)
    }

    fn subsystem(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        if matches!(token.value.as_bytes(), b"bus" | b"class") {
            let message = format!("{:?} is matched as \"subsystem\"", token.value);
            self.say(Severity::Warning, line, token.value_span.clone(), message, "write \"subsystem\"");
        }
        let any_class = matches!(token.value.as_bytes(), b"subsystem" | b"bus" | b"class");
        self.simple_match(line, token, kind::SUBSYSTEM, MatchKey::Subsystem { any_class })
    }

    fn attrs(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let name = self.attr_name(line, token)?;
        if let AttrName::Literal(text) = &name
            && (text.starts_with(b"device/") || text.contains_str("../"))
        {
            let message = format!("the attribute {text:?} may be a path into another device");
            self.say(
                Severity::Warning,
                line,
                token.span.clone(),
                message,
                "ATTRS looks at all parents by itself",
            );
        }
        self.parent_match(line, token, ParentKey::Attr(name))
    }

    fn constant(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let constant = match self.attr(line, token)?.as_bytes() {
            b"arch" => Constant::Arch,
            b"virt" => Constant::Virt,
            b"cvm" => Constant::Cvm,
            other => {
                let message = format!("there is no constant {:?}", other.as_bstr());
                return Err(self.refuse(line, token, message, "arch, virt or cvm"));
            }
        };
        self.match_on(line, token, kind::CONST, MatchKey::Const(constant))
    }

    fn sysctl(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let (name, error) = Template::parse(self.attr(line, token)?);
        if let Some(error) = error {
            self.say(Severity::Error, line, token.span.clone(), format!("in the name: {error}"), "");
        }
        if token.op.is_match() {
            return self.match_on(line, token, kind::SYSCTL_MATCH, MatchKey::Sysctl(name));
        }
        self.assignment(line, token, &[Op::Assign], &[Op::Add, Op::AssignFinal])?;
        let value = self.template(line, token);
        Ok((kind::SYSCTL, Piece::Token(Token::Sysctl { name, value })))
    }

    fn test(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let mask = match token.attr.filter(|a| !a.is_empty()) {
            None => None,
            Some(text) => match parse_mode(text) {
                Some(mask) => Some(mask),
                None => {
                    let message = format!("{text:?} is no octal mode");
                    return Err(self.refuse(line, token, message, "write TEST{0111}"));
                }
            },
        };
        let negate = self.negate(line, token, Operators::Match)?;
        self.not_folded(line, token)?;
        let path = self.template_not_empty(line, token);
        Ok((kind::TEST, Piece::Token(Token::Test { negate, path, mask })))
    }

    /// i"..." has no meaning for keys that do not compare texts.
    fn not_folded(&mut self, line: &LogicalLine, token: &RawToken) -> Result<(), Refused> {
        if token.ignore_case {
            let message = format!("{} compares no text, so i\"...\" has no meaning", token.key);
            return Err(self.refuse(line, token, message, ""));
        }
        Ok(())
    }

    fn run_match(&mut self, line: &LogicalLine, token: &RawToken) -> Result<bool, Refused> {
        let negate = self.negate(line, token, Operators::MatchAnyway)?;
        self.not_folded(line, token)?;
        Ok(negate)
    }

    fn import(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let source = self.attr(line, token)?;
        let negate = self.run_match(line, token)?;
        let piece = match source.as_bytes() {
            b"file" => {
                let path = self.template_not_empty(line, token);
                (kind::IMPORT_FILE, Token::ImportFile { negate, path })
            }
            b"program" => {
                let command = self.template_not_empty(line, token);
                match BuiltinName::of_command(&token.value) {
                    Some(builtin) => {
                        (kind::IMPORT_BUILTIN, Token::ImportBuiltin { negate, builtin, command })
                    }
                    None => (kind::IMPORT_PROGRAM, Token::ImportProgram { negate, command }),
                }
            }
            b"builtin" => {
                let builtin = self.builtin(line, token)?;
                let command = self.template_not_empty(line, token);
                (kind::IMPORT_BUILTIN, Token::ImportBuiltin { negate, builtin, command })
            }
            b"db" => {
                let key = Key::new(self.plain_not_empty(line, token));
                (kind::IMPORT_DB, Token::ImportDb { negate, key })
            }
            b"cmdline" => {
                let key = self.plain_not_empty(line, token);
                (kind::IMPORT_CMDLINE, Token::ImportCommandLine { negate, key })
            }
            b"parent" => {
                let pattern = self.template_not_empty(line, token);
                (kind::IMPORT_PARENT, Token::ImportParent { negate, pattern })
            }
            other => {
                let message = format!("there is no IMPORT{{{}}}", other.as_bstr());
                return Err(self.refuse(
                    line,
                    token,
                    message,
                    "program, builtin, file, db, cmdline or parent",
                ));
            }
        };
        Ok((piece.0, Piece::Token(piece.1)))
    }

    fn plain_not_empty(&mut self, line: &LogicalLine, token: &RawToken) -> BString {
        if token.value.is_empty() {
            let message = format!("{} has an empty value", token.key);
            self.say(Severity::Error, line, token.span.clone(), message, "");
        }
        token.value.clone().into_owned()
    }

    fn builtin(&mut self, line: &LogicalLine, token: &RawToken) -> Result<BuiltinName, Refused> {
        match BuiltinName::of_command(&token.value) {
            Some(builtin) => Ok(builtin),
            None => {
                let names: Vec<&str> = BuiltinName::ALL.iter().map(|b| b.as_str()).collect();
                let word = BuiltinName::word(&token.value).unwrap_or_default().as_bstr();
                let message = format!("there is no builtin {word:?}");
                Err(self.refuse(line, token, message, &format!("one of {}", names.join(", "))))
            }
        }
    }

    fn symlink(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        self.no_attr(line, token)?;
        let op = self.assignment(line, token, &[Op::Assign, Op::Add, Op::Remove, Op::AssignFinal], &[])?;
        let value = self.template(line, token);
        let last = op == Op::AssignFinal;
        Ok((kind::SYMLINK, Piece::Token(Token::Symlink { op: list_op(op), value, last })))
    }

    fn name(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        self.no_attr(line, token)?;
        let op = self.assignment(line, token, &[Op::Assign, Op::AssignFinal], &[Op::Add])?;
        if matches!(token.value.as_bytes(), b"" | b"%k") {
            let message = format!("NAME={:?} is the name that the interface has", token.value);
            return Err(self.refuse(line, token, message, "remove the assignment"));
        }
        let value = self.template(line, token);
        Ok((kind::NAME, Piece::Token(Token::Name { value, last: op == Op::AssignFinal })))
    }

    fn tag(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        self.no_attr(line, token)?;
        let op = self.assignment(line, token, &[Op::Assign, Op::Add, Op::Remove], &[Op::AssignFinal])?;
        let value = self.template_not_empty(line, token);
        Ok((kind::TAG, Piece::Token(Token::Tag { op: list_op(op), value })))
    }

    fn env(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let name = self.attr(line, token)?;
        let op = self.assignment(line, token, &[Op::Assign, Op::Add], &[Op::AssignFinal])?;
        if is_protected(name) {
            let message = format!("{name} is set by the kernel or by udev itself and cannot be assigned");
            return Err(self.refuse(line, token, message, "use a name of your own"));
        }
        if !name.iter().all(|&b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.') {
            let message = "a property name has letters, digits, `_` and `.` only".to_owned();
            return Err(self.ignore(Severity::Warning, line, token, message));
        }
        let key = Key::new(name.to_owned());
        let token = match (op, token.value.is_empty()) {
            (Op::Assign, true) => Token::Unset { key },
            _ => Token::Env { key, append: op == Op::Add, value: self.template(line, token) },
        };
        Ok((kind::ENV, Piece::Token(token)))
    }

    fn option(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        self.no_attr(line, token)?;
        let op = self.assignment(line, token, &[Op::Assign, Op::Add, Op::AssignFinal], &[])?;
        let last = op == Op::AssignFinal;
        let value = token.value.as_bytes();
        let (kind, option) = match value {
            b"dump" => (kind::DUMP, OptionToken::Dump { json: false }),
            b"dump-json" => (kind::DUMP, OptionToken::Dump { json: true }),
            b"string_escape=none" => (kind::STRING_ESCAPE, OptionToken::StringEscape(Escape::None)),
            b"string_escape=replace" => (kind::STRING_ESCAPE, OptionToken::StringEscape(Escape::Replace)),
            b"db_persist" => (kind::DB_PERSIST, OptionToken::DbPersist),
            b"watch" => (kind::WATCH, OptionToken::Watch { on: true, last }),
            b"nowatch" => (kind::WATCH, OptionToken::Watch { on: false, last }),
            _ => return self.option_with_value(line, token),
        };
        Ok((kind, Piece::Token(Token::Option(option))))
    }

    fn option_with_value(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let value = token.value.as_bytes();
        if let Some(name) = value.strip_prefix(b"static_node=") {
            return Ok((kind::STATIC_NODE, Piece::StaticNode(name.into())));
        }
        if let Some(text) = value.strip_prefix(b"link_priority=") {
            return match parse_priority(text) {
                Some(number) => {
                    Ok((kind::LINK_PRIORITY, Piece::Token(Token::Option(OptionToken::LinkPriority(number)))))
                }
                None => Err(self.refuse(line, token, "the link priority is no number".into(), "")),
            };
        }
        if let Some(text) = value.strip_prefix(b"log_level=") {
            let level = match text {
                b"reset" => None,
                _ => match crate::model::parse_log_level(text) {
                    Some(level) => Some(level),
                    None => {
                        return Err(self.refuse(
                            line,
                            token,
                            "unknown log level".into(),
                            "emerg ... debug, 0 ... 7, reset",
                        ));
                    }
                },
            };
            return Ok((kind::LOG_LEVEL, Piece::Token(Token::Option(OptionToken::LogLevel(level)))));
        }
        Err(self.ignore(Severity::Warning, line, token, format!("unknown option {:?}", token.value)))
    }

    fn account(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        self.no_attr(line, token)?;
        let op = self.assignment(line, token, &[Op::Assign, Op::AssignFinal], &[Op::Add])?;
        let last = op == Op::AssignFinal;
        let owner = token.key == "OWNER";
        let by_id = |id| match owner {
            true => (kind::OWNER, Piece::Token(Token::Owner { id, last })),
            false => (kind::GROUP, Piece::Token(Token::Group { id, last })),
        };
        if let Some(id) = parse_id(&token.value) {
            return Ok(by_id(id));
        }
        let deferred =
            token.value.contains(&b'$') || token.value.contains(&b'%') || token.value.starts_with(b"[");
        let what = if owner { "user" } else { "group" };
        match self.options.resolve_names {
            _ if token.value.is_empty() => {
                Err(self.refuse(line, token, format!("the name of the {what} is empty"), ""))
            }
            ResolveNames::Early if !deferred => {
                let accounts = self.options.accounts;
                let known = match (owner, token.value.as_bytes()) {
                    (_, b"root") => Some(0),
                    (_, b"nobody") | (false, b"nogroup") => Some(NOBODY),
                    (true, name) => accounts.user(name),
                    (false, name) => accounts.group(name),
                };
                match known {
                    Some(id) => {
                        if id >= FIRST_PERSON && id != NOBODY {
                            let message =
                                format!("{} is no system {what}; devices should not be its own", token.value);
                            self.say(Severity::Warning, line, token.value_span.clone(), message, "");
                        }
                        Ok(by_id(id))
                    }
                    None => {
                        let message = format!("there is no {what} {:?}", token.value);
                        Err(self.refuse(line, token, message, "names are looked up when rules are loaded"))
                    }
                }
            }
            ResolveNames::Never if !deferred => Err(Refused::Silently),
            _ => {
                let name = self.template(line, token);
                Ok(match owner {
                    true => (kind::OWNER_NAME, Piece::Token(Token::OwnerByName { name, last })),
                    false => (kind::GROUP_NAME, Piece::Token(Token::GroupByName { name, last })),
                })
            }
        }
    }

    fn mode(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        self.no_attr(line, token)?;
        let op = self.assignment(line, token, &[Op::Assign, Op::AssignFinal], &[Op::Add])?;
        let last = op == Op::AssignFinal;
        if let Some(mode) = parse_mode(&token.value) {
            return Ok((kind::MODE, Piece::Token(Token::Mode { mode, last })));
        }
        let text = self.template_not_empty(line, token);
        if text.is_literal() && !token.value.is_empty() {
            let message = format!("{:?} is no octal mode", token.value);
            self.say(Severity::Error, line, token.value_span.clone(), message, "write MODE=\"0660\"");
        }
        Ok((kind::MODE_TEXT, Piece::Token(Token::ModeByText { text, last })))
    }

    fn seclabel(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let module = self.attr(line, token)?.to_owned();
        let op = self.assignment(line, token, &[Op::Assign, Op::Add], &[Op::AssignFinal])?;
        let label = self.template_not_empty(line, token);
        Ok((kind::SECLABEL, Piece::Token(Token::SecLabel { module, op: list_op(op), label })))
    }

    fn run(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let builtin = match token.attr.map(|a| a.as_bytes()) {
            None | Some(b"program") => None,
            Some(b"builtin") => Some(self.builtin(line, token)),
            Some(other) => {
                let message = format!("there is no RUN{{{}}}", other.as_bstr());
                return Err(self.refuse(line, token, message, "program or builtin"));
            }
        };
        let op = self.assignment(line, token, &[Op::Assign, Op::Add, Op::AssignFinal], &[])?;
        let (op, last) = (list_op(op), op == Op::AssignFinal);
        let (kind, command) = match builtin {
            Some(builtin) => {
                (kind::RUN_BUILTIN, RunCommand::Builtin(builtin?, self.template_not_empty(line, token)))
            }
            None => (kind::RUN_PROGRAM, RunCommand::Program(self.template_not_empty(line, token))),
        };
        Ok((kind, Piece::Token(Token::Run { op, command, last })))
    }
}

fn list_op(op: Op) -> ListOp {
    match op {
        Op::Add => ListOp::Add,
        Op::Remove => ListOp::Remove,
        _ => ListOp::Set,
    }
}

#[cfg(test)]
mod tables;
#[cfg(test)]
mod tests;
