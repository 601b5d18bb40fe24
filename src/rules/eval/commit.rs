//! Taking in what operations decided: the only place where an evaluation changes its event and outcome.

use super::given::{Id, StateChange, Text};
use super::import::Import;
use super::text::link_path;
use super::{LINE_COST, Running, dump};
use crate::model::event::OrderedSet;
use crate::model::uevent::valid_property;
use crate::model::{Action, Tags};
use crate::rules::ask::{BuiltinName, BuiltinResult};
use crate::rules::outcome::Watch;
use crate::rules::program::{Escape, ListOp, OptionToken};
use crate::rules::subst::is_blank;
use bstr::ByteSlice;

impl Running<'_> {
    /// Takes in what an operation decided.
    pub(super) fn commit(&mut self, change: StateChange<'_>) {
        let outcome = &mut *self.given.outcome;
        match change {
            StateChange::Nothing | StateChange::SysctlWritten => {}
            StateChange::DevParent(device) => self.given.state.dev_parent = device,
            StateChange::Result { text, truncated } => {
                self.given.state.result = text;
                if truncated {
                    self.note(
                        log::Level::Warn,
                        format_args!("the output of the program is too long, its end is lost"),
                    );
                }
            }
            StateChange::ImportOne(name, value) => self.set_property(&name, &value),
            StateChange::Import(import) => self.stand.importing = Some(Box::new(import)),
            StateChange::ImportAnswer { negate, truncated } => {
                if truncated {
                    let text = format_args!("the output of the program is too long, its end is lost");
                    self.note(log::Level::Warn, text);
                }
                self.stand.importing =
                    Some(Box::new(Import::of_answer(self.given.answers.take_operation(), negate)));
            }
            StateChange::Builtin(builtin, result) => self.commit_builtin(builtin, result),
            StateChange::Option(option) => self.commit_option(option),
            StateChange::Owner { id, last } => {
                self.given.state.closed.owner |= last;
                if let Some(id) = self.checked_id("OWNER", id) {
                    self.given.outcome.owner = Some(id);
                }
            }
            StateChange::Group { id, last } => {
                self.given.state.closed.group |= last;
                if let Some(id) = self.checked_id("GROUP", id) {
                    self.given.outcome.group = Some(id);
                }
            }
            StateChange::Mode { mode, last } => {
                self.given.state.closed.mode |= last;
                match mode {
                    Ok(mode) => outcome.mode = Some(mode),
                    Err(Text::TooLong) => self.too_long("MODE"),
                    Err(Text::Value(text)) => {
                        self.note(log::Level::Error, format_args!("MODE {text:?} is no mode, ignored"));
                    }
                }
            }
            StateChange::Tag { op, tag } => self.commit_tag(op, tag),
            StateChange::SecLabel { module, op, label } => {
                if op == ListOp::Set {
                    outcome.seclabels.clear();
                }
                match label {
                    Text::Value(label) => outcome.seclabels.push((module.clone(), label)),
                    Text::TooLong => self.too_long("SECLABEL"),
                }
            }
            StateChange::Unset(key) => self.remove_property(key.name()),
            StateChange::Env(key, Text::Value(value)) => self.set_property(key.name(), &value),
            StateChange::Env(key, Text::TooLong) => {
                self.note(log::Level::Warn, format_args!("ENV{{{}}}: too long, ignored", key.name()));
            }
            StateChange::Name { name, last } => {
                self.given.state.closed.name |= last;
                match name {
                    Text::Value(name) => outcome.name = Some(name),
                    Text::TooLong => self.too_long("NAME"),
                }
            }
            StateChange::Symlink { op, links, last } => self.commit_symlink(op, links, last),
            StateChange::Run { op, item, last, clears_only } => {
                self.given.state.closed.run |= last;
                if op == ListOp::Set {
                    outcome.run.clear();
                }
                match item {
                    _ if clears_only => {}
                    Some(item) => outcome.run.push(item),
                    None => self.too_long("RUN"),
                }
            }
            StateChange::AttrWritten => self.given.answers.forget_attrs(),
            StateChange::Refused(level, text) => self.note(level, format_args!("{text}")),
        }
    }

    fn commit_builtin(&mut self, builtin: BuiltinName, result: BuiltinResult) {
        if builtin.runs_once() {
            self.given.answers.set_verdict(builtin, result.success);
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
            self.given.outcome.alt_names = result.alt_names;
        }
    }

    fn commit_option(&mut self, option: OptionToken) {
        let outcome = &mut *self.given.outcome;
        match option {
            // If both stand in one line, "replace" counts, whatever their order.
            OptionToken::StringEscape(_) if self.given.state.escape == Escape::Replace => {}
            OptionToken::StringEscape(escape) => self.given.state.escape = escape,
            OptionToken::DbPersist => outcome.db_persist = true,
            OptionToken::Watch { .. } if self.given.state.closed.watch => {}
            OptionToken::Watch { on, last } => {
                self.given.state.closed.watch = last;
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
            self.given.spend(self.given.event().tags.sticky.len() * LINE_COST);
        }
        let event = &mut self.given.outcome.event;
        if op == ListOp::Set {
            event.tags.current.clear();
            // Tags of earlier events stay (v258).
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
        self.given.state.closed.symlink |= last;
        let set = &mut self.given.outcome.event.symlinks;
        if op == ListOp::Set {
            set.clear();
        }
        let text = match links {
            Text::Value(text) => text,
            Text::TooLong => return self.too_long("SYMLINK"),
        };
        for word in text.split(|b| is_blank(*b)).filter(|w| !w.is_empty()) {
            let set = &mut self.given.outcome.event.symlinks;
            match link_path(word) {
                None => self.note(
                    log::Level::Warn,
                    format_args!("SYMLINK {:?} does not lead below /dev, ignored", word.as_bstr()),
                ),
                Some(path) if op == ListOp::Remove => {
                    let count = set.len();
                    set.remove(&path);
                    self.given.spend(count * LINE_COST);
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
    pub(super) fn set_property(&mut self, name: &[u8], value: &[u8]) {
        if value.is_empty() {
            self.remove_property(name);
        } else if valid_property(name, value) {
            self.stand.seen.property_changed();
            let keeps = self.keeps_replaced(name);
            let (event, replaced) = (&mut self.given.outcome.event, &mut self.given.state.replaced);
            event.properties.replace_stored(name, value, |old| {
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
        self.stand.seen.property_changed();
        let keeps = self.keeps_replaced(name);
        let properties = &mut self.given.outcome.event.properties;
        if let Some(old) = properties.find(name).filter(|old| keeps && !old.stored) {
            self.given.state.replaced.push((old.name.to_owned(), old.value.to_owned()));
        }
        properties.remove(name);
    }

    /// Whether the kernel's value of a property is kept when a rule changes the property. It is known by not being
    /// stored: rules store what they set, but for names with a dot, which no kernel uses.
    fn keeps_replaced(&self, name: &[u8]) -> bool {
        self.given.outcome.event.action != Action::Remove && !name.starts_with(b".")
    }

    fn too_long(&mut self, key: &str) {
        self.note(log::Level::Warn, format_args!("{key}: the substituted text is too long, ignored"));
    }
}
