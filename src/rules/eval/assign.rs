//! Assignments: what they set, with every text substituted and cleaned (rules.md sections 6 and 8).
//! They always hold.

use super::answers::Try;
use super::given::{Attempt, Given, Id, StateChange, Text, does};
use super::substitute::{COMMAND, Forgotten, PATH, VALUE};
use super::text::sysctl_name;
use crate::model::Key;
use crate::rules::ask::Ask;
use crate::rules::compile::{parse_id, parse_mode};
use crate::rules::outcome::RunItem;
use crate::rules::program::{Escape, ListOp, RunCommand, Token};
use crate::rules::sanitise::{self, interface_name, replace_bytes};
use crate::rules::subst::{Expansion, Template};
use bstr::{BString, ByteSlice};

impl Given<'_> {
    /// Tries an assignment.
    pub(super) fn assign<'p>(&self, token: &'p Token) -> Try<Attempt<'p>> {
        let closed = self.state.closed;
        match token {
            Token::OwnerByName { .. } | Token::Owner { .. } if closed.owner => does(StateChange::Nothing),
            Token::GroupByName { .. } | Token::Group { .. } if closed.group => does(StateChange::Nothing),
            Token::ModeByText { .. } | Token::Mode { .. } if closed.mode => does(StateChange::Nothing),
            Token::OwnerByName { name, last } => {
                let id = self.id(name, |name| Ask::User { name })?;
                does(StateChange::Owner { id, last: *last })
            }
            Token::GroupByName { name, last } => {
                let id = self.id(name, |name| Ask::Group { name })?;
                does(StateChange::Group { id, last: *last })
            }
            Token::ModeByText { text, last } => {
                let mode = match self.assigned(text, VALUE)? {
                    Text::Value(text) => parse_mode(&text).ok_or(Text::Value(text)),
                    Text::TooLong => Err(Text::TooLong),
                };
                does(StateChange::Mode { mode, last: *last })
            }
            Token::Owner { id, last } => does(StateChange::Owner { id: Id::Known(*id), last: *last }),
            Token::Group { id, last } => does(StateChange::Group { id: Id::Known(*id), last: *last }),
            Token::Mode { mode, last } => does(StateChange::Mode { mode: Ok(*mode), last: *last }),
            Token::Tag { op, value } => does(StateChange::Tag { op: *op, tag: self.assigned(value, PATH)? }),
            Token::SecLabel { module, op, label } => {
                let text = match self.assigned(label, COMMAND)? {
                    Text::Value(text) if text.is_empty() => Text::Value(label.raw().to_owned()),
                    text => text,
                };
                does(StateChange::SecLabel { module, op: *op, label: text })
            }
            Token::Unset { key } => does(StateChange::Unset(key)),
            Token::Env { key, append, value } => self.assign_env(key, *append, value),
            Token::Name { value, last } => self.assign_name(value, *last),
            Token::Symlink { op, value, last } => self.assign_symlink(*op, value, *last),
            Token::Attr { target, value } => self.write_attr(target, value),
            Token::Sysctl { name, value } => self.write_sysctl(name, value),
            Token::Run { .. } if closed.run => does(StateChange::Nothing),
            Token::Run { op, command, last } => {
                let (item, clears_only) = self.run_item(command)?;
                does(StateChange::Run { op: *op, item, last: *last, clears_only })
            }
            // Matches are tried in `attempt`.
            _ => does(StateChange::Nothing),
        }
    }

    fn assigned(&self, template: &Template, limit: usize) -> Try<Text> {
        Ok(match self.text(template, limit)? {
            Some(text) => Text::Value(text.into_owned()),
            None => Text::TooLong,
        })
    }

    fn id(&self, name: &Template, question: impl FnOnce(BString) -> Ask) -> Try<Id> {
        let name = match self.assigned(name, VALUE)? {
            Text::Value(name) => name,
            Text::TooLong => return Ok(Id::TooLong),
        };
        if let Some(id) = parse_id(&name) {
            return Ok(Id::Known(id));
        }
        if name.is_empty() {
            return Ok(Id::Unknown(name));
        }
        let id = self.answers.id(|| question(name.clone()))?;
        Ok(id.map_or(Id::Unknown(name), Id::Known))
    }

    fn assign_env<'p>(&self, key: &'p Key, append: bool, value: &Template) -> Try<Attempt<'p>> {
        if append && value.is_empty() {
            return does(StateChange::Nothing);
        }
        let Text::Value(mut text) = self.assigned(value, VALUE)? else {
            return does(StateChange::Env(key, Text::TooLong));
        };
        if self.state.escape == Escape::Replace {
            text = replace_bytes(&text, sanitise::NOTHING).into_owned().into();
        }
        if append && let Some(old) = self.env_by_name(key.name()) {
            text = [old.as_bytes(), b" ", &text].concat().into();
        }
        let text = if text.len() < VALUE { Text::Value(text) } else { Text::TooLong };
        does(StateChange::Env(key, text))
    }

    fn assign_name<'p>(&self, value: &Template, last: bool) -> Try<Attempt<'p>> {
        if self.state.closed.name {
            return does(StateChange::Nothing);
        }
        if self.event().device.ifindex.is_none() {
            let text = "NAME is for network interfaces only, ignored".to_string();
            return does(StateChange::Refused(log::Level::Warn, text));
        }
        let name = match self.assigned(value, PATH)? {
            Text::Value(name) if self.state.escape != Escape::None => {
                let clean = match self.config.strict_names {
                    true => interface_name(&name),
                    false => replace_bytes(&name, sanitise::PATH),
                };
                Text::Value(clean.into_owned().into())
            }
            name => name,
        };
        does(StateChange::Name { name, last })
    }

    fn assign_symlink<'p>(&self, op: ListOp, value: &Template, last: bool) -> Try<Attempt<'p>> {
        if self.state.closed.symlink || self.event().device.devnum.is_none() {
            return does(StateChange::Nothing);
        }
        let escape = self.state.escape;
        let fold = escape != Escape::None;
        let forgotten = if op == ListOp::Set { Forgotten::Links } else { Forgotten::Nothing };
        let links = match value.expand(PATH, fold, |subst| self.value(subst, forgotten))? {
            Expansion::TooLong => Text::TooLong,
            Expansion::Text(text) => Text::Value(match escape {
                Escape::None => text.into_owned(),
                Escape::Unset => replace_bytes(&text, sanitise::SYMLINK).into_owned().into(),
                Escape::Replace => replace_bytes(&text, sanitise::PATH).into_owned().into(),
            }),
        };
        does(StateChange::Symlink { op, links, last })
    }

    fn write_attr<'p>(&self, target: &BString, value: &Template) -> Try<Attempt<'p>> {
        let value = match self.assigned(value, VALUE)? {
            Text::Value(value) => value.trim_end_with(|c| c == '\n').into(),
            Text::TooLong => {
                let text = format!("ATTR{{{target}}}: the value is too long, ignored");
                return does(StateChange::Refused(log::Level::Warn, text));
            }
        };
        self.answers.written(|| Ask::WriteAttr { target: target.clone(), value })?;
        does(StateChange::AttrWritten)
    }

    fn write_sysctl<'p>(&self, name: &Template, value: &Template) -> Try<Attempt<'p>> {
        let (Text::Value(name), Text::Value(value)) =
            (self.assigned(name, PATH)?, self.assigned(value, VALUE)?)
        else {
            let text = "SYSCTL: name or value is too long, ignored".to_string();
            return does(StateChange::Refused(log::Level::Warn, text));
        };
        let Some(name) = sysctl_name(&name) else {
            let text = format!("{name:?} is no kernel parameter, ignored");
            return does(StateChange::Refused(log::Level::Error, text));
        };
        self.answers.written(|| Ask::WriteSysctl { name, value })?;
        does(StateChange::SysctlWritten)
    }

    /// The item for the RUN list, None if it is too long; and whether the command is empty and only clears the list.
    fn run_item(&self, command: &RunCommand) -> Try<(Option<RunItem>, bool)> {
        let (template, builtin) = match command {
            RunCommand::Program(template) => (template, None),
            RunCommand::Builtin(builtin, template) => (template, Some(*builtin)),
        };
        if template.is_empty() {
            return Ok((None, true));
        }
        let item = match self.assigned(template, COMMAND)? {
            Text::Value(text) => Some(match builtin {
                None => RunItem::Program(text),
                Some(builtin) => RunItem::Builtin(builtin, text),
            }),
            Text::TooLong => None,
        };
        Ok((item, false))
    }
}
