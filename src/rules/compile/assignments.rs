//! Assignments: names, symlinks, tags, properties, kernel parameters, and whom a node belongs to.

use super::checks::Refused;
use super::values::{is_protected, parse_id, parse_mode};
use super::{FileCompiler, LinePart, TokenResult, list_op, rank};
use crate::model::{Key, ResolveNames};
use crate::rules::diagnostic::Severity;
use crate::rules::lex::{LogicalLine, Op, RawToken};
use crate::rules::program::{MatchKey, Token};
use crate::rules::subst::Template;
use bstr::ByteSlice;

/// Ids from here on belong to people, not to the system (rules.md section 13, v260).
const FIRST_PERSON: u32 = 1000;

/// The id of the user and of the group that own nothing.
const NOBODY: u32 = 65534;

impl FileCompiler<'_> {
    pub(super) fn symlink(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        self.no_attr(line, token)?;
        let op = self.assignment(line, token, &[Op::Assign, Op::Add, Op::Remove, Op::AssignFinal], &[])?;
        let value = self.template(line, token);
        let last = op == Op::AssignFinal;
        Ok((rank::SYMLINK, LinePart::Token(Token::Symlink { op: list_op(op), value, last })))
    }

    pub(super) fn name(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        self.no_attr(line, token)?;
        let op = self.assignment(line, token, &[Op::Assign, Op::AssignFinal], &[Op::Add])?;
        if matches!(token.value.as_bytes(), b"" | b"%k") {
            let message = format!("NAME={:?} is the name that the interface has", token.value);
            return Err(self.refuse(line, token, message, "remove the assignment"));
        }
        let value = self.template(line, token);
        Ok((rank::NAME, LinePart::Token(Token::Name { value, last: op == Op::AssignFinal })))
    }

    pub(super) fn tag(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        self.no_attr(line, token)?;
        let op = self.assignment(line, token, &[Op::Assign, Op::Add, Op::Remove], &[Op::AssignFinal])?;
        let value = self.template_not_empty(line, token);
        Ok((rank::TAG, LinePart::Token(Token::Tag { op: list_op(op), value })))
    }

    pub(super) fn env(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
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
        Ok((rank::ENV, LinePart::Token(token)))
    }

    pub(super) fn assign_attr(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let target = self.attr(line, token)?.to_owned();
        self.assignment(line, token, &[Op::Assign], &[Op::Add, Op::AssignFinal])?;
        let value = self.template(line, token);
        Ok((rank::ATTR, LinePart::Token(Token::Attr { target, value })))
    }

    pub(super) fn sysctl(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let (name, error) = Template::parse(self.attr(line, token)?);
        if let Some(error) = error {
            self.say(Severity::Error, line, token.span.clone(), format!("in the name: {error}"), "");
        }
        if token.op.is_match() {
            return self.match_on(line, token, rank::SYSCTL_MATCH, MatchKey::Sysctl(name));
        }
        self.assignment(line, token, &[Op::Assign], &[Op::Add, Op::AssignFinal])?;
        let value = self.template(line, token);
        Ok((rank::SYSCTL, LinePart::Token(Token::Sysctl { name, value })))
    }

    pub(super) fn account(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        self.no_attr(line, token)?;
        let op = self.assignment(line, token, &[Op::Assign, Op::AssignFinal], &[Op::Add])?;
        let last = op == Op::AssignFinal;
        let owner = token.key == "OWNER";
        let by_id = |id| match owner {
            true => (rank::OWNER, LinePart::Token(Token::Owner { id, last })),
            false => (rank::GROUP, LinePart::Token(Token::Group { id, last })),
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
                    true => (rank::OWNER_NAME, LinePart::Token(Token::OwnerByName { name, last })),
                    false => (rank::GROUP_NAME, LinePart::Token(Token::GroupByName { name, last })),
                })
            }
        }
    }

    pub(super) fn mode(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        self.no_attr(line, token)?;
        let op = self.assignment(line, token, &[Op::Assign, Op::AssignFinal], &[Op::Add])?;
        let last = op == Op::AssignFinal;
        if let Some(mode) = parse_mode(&token.value) {
            return Ok((rank::MODE, LinePart::Token(Token::Mode { mode, last })));
        }
        let text = self.template_not_empty(line, token);
        if text.is_literal() && !token.value.is_empty() {
            let message = format!("{:?} is no octal mode", token.value);
            self.say(Severity::Error, line, token.value_span.clone(), message, "write MODE=\"0660\"");
        }
        Ok((rank::MODE_TEXT, LinePart::Token(Token::ModeByText { text, last })))
    }

    pub(super) fn seclabel(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let module = self.attr(line, token)?.to_owned();
        let op = self.assignment(line, token, &[Op::Assign, Op::Add], &[Op::AssignFinal])?;
        let label = self.template_not_empty(line, token);
        Ok((rank::SECLABEL, LinePart::Token(Token::SecLabel { module, op: list_op(op), label })))
    }
}
