//! The compiled form of all rules: flat, immutable, shared by reference count, so that a reload
//! never disturbs an evaluation.
//!
//! Must stay true: tokens of a line are sorted by rank (rules.md 2.4) and keep their order within one rank;
//! a GOTO target is always a later line of the same file; nothing in here depends on a device.

use super::ask::{BuiltinName, Constant};
use super::pattern::Pattern;
use super::subst::Template;
use crate::model::Key;
use bstr::{BStr, BString, ByteSlice};

/// All rules of all files, in evaluation order.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    /// Paths of the files, in order; [`Line::file`] is an index into it.
    pub files: Vec<BString>,
    pub lines: Vec<Line>,
    /// OPTIONS="static_node=..." lines, in order, for the start of the daemon (rules.md 8.10).
    pub static_nodes: Vec<StaticNode>,
}

impl RuleSet {
    /// The builtins that rules call, each as often as it is called.
    pub fn builtins(&self) -> impl Iterator<Item = BuiltinName> {
        self.lines.iter().flat_map(|line| &line.tokens).filter_map(|token| match token {
            Token::ImportBuiltin { builtin, .. } => Some(*builtin),
            Token::Run { command: RunCommand::Builtin(builtin, _), .. } => Some(*builtin),
            _ => None,
        })
    }
}

/// One logical line that has an effect.
#[derive(Clone, Debug)]
pub struct Line {
    pub file: u32,
    /// First physical line, from 1.
    pub number: u32,
    pub tokens: Vec<Token>,
    pub class: Class,
    /// Index into [`RuleSet::lines`] of the line to go on with when all tokens held.
    pub goto: Option<u32>,
}

/// What kinds of content a line has. This decides for which devices the line is looked at at all (rules.md 2.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    pub goto: bool,
    /// PROGRAM, IMPORT, ENV=, TAG=, ATTR=, SYSCTL=, RUN, SECLABEL, OPTIONS but static_node.
    pub other: bool,
    /// SYMLINK=, OWNER, GROUP, MODE.
    pub node: bool,
    /// NAME=.
    pub name: bool,
}

/// A static node of a line (rules.md 8.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticNode {
    /// Below /dev.
    pub name: BString,
    pub owner: Option<u32>,
    pub group: Option<u32>,
    pub mode: Option<u32>,
    pub tags: Vec<BString>,
}

/// One key-operator-value expression, in a form that cannot be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    Match(Match),
    /// KERNELS, SUBSYSTEMS, DRIVERS, ATTRS, TAGS of the line: all must hold on one device.
    Parents(Vec<ParentMatch>),
    Test {
        negate: bool,
        path: Template,
        mask: Option<u32>,
    },
    Program {
        negate: bool,
        command: Template,
    },
    ImportFile {
        negate: bool,
        path: Template,
    },
    ImportProgram {
        negate: bool,
        command: Template,
    },
    ImportBuiltin {
        negate: bool,
        builtin: BuiltinName,
        command: Template,
    },
    ImportDb {
        negate: bool,
        key: Key,
    },
    ImportCommandLine {
        negate: bool,
        key: BString,
    },
    /// The pattern is compiled after substitution; no alternatives.
    ImportParent {
        negate: bool,
        pattern: Template,
    },
    Option(OptionToken),
    /// By name, resolved at run time.
    OwnerByName {
        name: Template,
        last: bool,
    },
    GroupByName {
        name: Template,
        last: bool,
    },
    ModeByText {
        text: Template,
        last: bool,
    },
    /// Resolved when rules were loaded.
    Owner {
        id: u32,
        last: bool,
    },
    Group {
        id: u32,
        last: bool,
    },
    Mode {
        mode: u32,
        last: bool,
    },
    Tag {
        op: ListOp,
        value: Template,
    },
    SecLabel {
        module: BString,
        op: ListOp,
        label: Template,
    },
    /// ENV{key}="": removes it.
    Unset {
        key: Key,
    },
    Env {
        key: Key,
        append: bool,
        value: Template,
    },
    Name {
        value: Template,
        last: bool,
    },
    /// `value` empty (no parts) just clears.
    Symlink {
        op: ListOp,
        value: Template,
        last: bool,
    },
    Attr {
        target: BString,
        value: Template,
    },
    Sysctl {
        name: Template,
        value: Template,
    },
    Run {
        op: ListOp,
        command: RunCommand,
        last: bool,
    },
}

/// `=`, `+=`, `-=` on a list; `:=` is `Set` with `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListOp {
    Set,
    Add,
    Remove,
}

/// RUN and RUN{builtin}. An empty value is a `Program` with an empty template: it only clears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunCommand {
    Program(Template),
    Builtin(BuiltinName, Template),
}

/// OPTIONS values (rules.md 2.3) but static_node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionToken {
    StringEscape(Escape),
    DbPersist,
    Watch {
        on: bool,
        last: bool,
    },
    LinkPriority(i32),
    /// None: back to the daemon's level.
    LogLevel(Option<log::LevelFilter>),
    Dump {
        json: bool,
    },
}

/// How NAME, SYMLINK and ENV values of one line are cleaned (rules.md 6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Escape {
    #[default]
    Unset,
    None,
    Replace,
}

/// A comparison of one subject of the event's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    pub subject: MatchKey,
    pub negate: bool,
    pub pattern: Pattern,
}

/// What a [`Match`] compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatchKey {
    Action,
    Devpath,
    Kernel,
    Name,
    Symlink,
    /// `any_class` when the value was exactly `subsystem`, `bus` or `class`: all three match.
    Subsystem {
        any_class: bool,
    },
    Driver,
    Attr(AttrName),
    /// Normalised at run time (rules.md 3.6).
    Sysctl(Template),
    Env(Key),
    Const(Constant),
    Tag,
    Result,
}

/// The name of an attribute in ATTR, ATTRS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttrName {
    Literal(BString),
    /// `[subsystem/sysname]attr`.
    Of {
        subsystem: BString,
        sysname: BString,
        attr: BString,
    },
    Template(Template),
}

/// The parts of `[subsystem/sysname]rest` or `[subsystem/sysname]/rest`: subsystem and sysname, which are
/// not empty, and the rest, which may be. None for any other form.
pub fn split_named(text: &[u8]) -> Option<(&BStr, &BStr, &BStr)> {
    let (device, rest) = text.strip_prefix(b"[")?.split_once_str("]")?;
    let (subsystem, sysname) = device.split_once_str("/")?;
    let rest = rest.strip_prefix(b"/").unwrap_or(rest);
    let whole = !subsystem.is_empty() && !sysname.is_empty();
    whole.then(|| (subsystem.as_bstr(), sysname.as_bstr(), rest.as_bstr()))
}

/// [`split_named`] with an attribute as the rest.
pub fn named_attr(text: &[u8]) -> Option<(&BStr, &BStr, &BStr)> {
    split_named(text).filter(|(_, _, attr)| !attr.is_empty())
}

/// A comparison on the device or one of its parents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentMatch {
    pub subject: ParentKey,
    pub negate: bool,
    pub pattern: Pattern,
}

/// What a [`ParentMatch`] compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParentKey {
    Kernel,
    Subsystem,
    Driver,
    Attr(AttrName),
    Tag,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_by_subsystem_and_sysname() {
        for (text, parts) in [
            ("[net/eth0]mtu", Some(("net", "eth0", "mtu"))),
            ("[net/eth0]/queues/x", Some(("net", "eth0", "queues/x"))),
            ("[drivers/pci:a/b]x", Some(("drivers", "pci:a/b", "x"))),
            ("[net/eth0]", Some(("net", "eth0", ""))),
            ("[net/eth0]/", Some(("net", "eth0", ""))),
            ("[net/]x", None),
            ("[/eth0]x", None),
            ("[net]x", None),
            ("[net/eth0", None),
            ("net/eth0]x", None),
        ] {
            let split = |t| -> (&BStr, &BStr, &BStr) {
                let (a, b, c): (&str, &str, &str) = t;
                (a.into(), b.into(), c.into())
            };
            assert_eq!(split_named(text.as_bytes()), parts.map(split), "{text}");
            let attr = parts.filter(|p| !p.2.is_empty()).map(split);
            assert_eq!(named_attr(text.as_bytes()), attr, "{text}");
        }
    }
}
