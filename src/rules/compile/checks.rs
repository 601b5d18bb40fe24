//! What the keys have in common: which operators, names in braces and values they take, and what is said of others.

use super::hint::nearest_key;
use super::{FileCompiler, TokenResult};
use crate::rules::diagnostic::{Diagnostic, Severity};
use crate::rules::lex::{LineError, LogicalLine, Op, RawToken};
use crate::rules::subst::Template;
use bstr::{BStr, BString};
use std::ops::Range;

/// What goes when a token is refused.
pub(super) enum Refused {
    /// The whole line goes.
    Line,
    /// Only this token goes, and a diagnostic says why.
    Token,
    /// Only this token goes, without a word, because the configuration wants it so.
    Silently,
}

/// What operators a key takes.
#[derive(Clone, Copy)]
pub(super) enum Operators {
    /// `==`, `!=`.
    Match,
    /// The same; `=`, `:=`, `+=` mean `==`.
    MatchAnyway,
}

impl FileCompiler<'_> {
    pub(super) fn say(
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

    pub(super) fn say_of_file(&mut self, error: LineError) {
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

    pub(super) fn refuse_attr(&mut self, line: &LogicalLine, token: &RawToken) -> Refused {
        let message = format!("{} takes no attribute in braces; the rule is dropped", token.key);
        self.say(Severity::Error, line, token.span.clone(), message, "");
        Refused::Line
    }

    pub(super) fn refuse_op(&mut self, line: &LogicalLine, token: &RawToken, allowed: &str) -> Refused {
        let (key, op) = (&token.key, token.op.as_str());
        let message = match token.ignore_case && !token.op.is_match() {
            true => format!("{key} does not compare, so i\"...\" has no meaning; the rule is dropped"),
            false => format!("{key} cannot be used with {op}; the rule is dropped"),
        };
        let hint = format!("use {allowed}");
        self.say(Severity::Error, line, token.op_span.clone(), message, &hint);
        Refused::Line
    }

    pub(super) fn refuse(
        &mut self,
        line: &LogicalLine,
        token: &RawToken,
        message: String,
        hint: &str,
    ) -> Refused {
        self.say(Severity::Error, line, token.span.clone(), message + "; the rule is dropped", hint);
        Refused::Line
    }

    pub(super) fn ignore(
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
    pub(super) fn attr<'t>(&mut self, line: &LogicalLine, token: &RawToken<'t>) -> Result<&'t BStr, Refused> {
        match token.attr.filter(|a| !a.is_empty()) {
            Some(attr) => Ok(attr),
            None => {
                let message = format!("{} needs a name in braces", token.key);
                Err(self.refuse(line, token, message, &format!("write {}{{name}}", token.key)))
            }
        }
    }

    pub(super) fn no_attr(&mut self, line: &LogicalLine, token: &RawToken) -> Result<(), Refused> {
        match token.attr {
            Some(_) => Err(self.refuse_attr(line, token)),
            None => Ok(()),
        }
    }

    /// Whether the comparison is negated; an error if the key does not compare with this operator.
    pub(super) fn negate(
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

    /// i"..." has no meaning for keys that do not compare texts.
    pub(super) fn not_folded(&mut self, line: &LogicalLine, token: &RawToken) -> Result<(), Refused> {
        if token.ignore_case {
            let message = format!("{} compares no text, so i\"...\" has no meaning", token.key);
            return Err(self.refuse(line, token, message, ""));
        }
        Ok(())
    }

    /// The operator after coercion: `allowed` as they are, `coerced` become `=`, the rest drop the line.
    pub(super) fn assignment(
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
    pub(super) fn template(&mut self, line: &LogicalLine, token: &RawToken) -> Template {
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

    pub(super) fn template_not_empty(&mut self, line: &LogicalLine, token: &RawToken) -> Template {
        if token.value.is_empty() {
            let message = format!("{} has an empty value", token.key);
            self.say(Severity::Error, line, token.span.clone(), message, "");
        }
        self.template(line, token)
    }

    pub(super) fn plain_not_empty(&mut self, line: &LogicalLine, token: &RawToken) -> BString {
        if token.value.is_empty() {
            let message = format!("{} has an empty value", token.key);
            self.say(Severity::Error, line, token.span.clone(), message, "");
        }
        token.value.clone().into_owned()
    }

    pub(super) fn unknown_key(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let message = format!("unknown key {}; the rule is dropped", token.key);
        let hint = nearest_key(token.key).map(|key| format!("did you mean {key}?")).unwrap_or_default();
        self.say(Severity::Error, line, token.key_span.clone(), message, &hint);
        Err(Refused::Line)
    }
}
