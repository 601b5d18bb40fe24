//! Questions of the evaluator to the world, and the answers. Plain data both ways: the evaluator
//! names no file descriptor and waits for nothing.

use crate::model::event::Tags;
use crate::model::need::Exit;
use crate::model::{Errno, Properties};
use bstr::BString;
use std::sync::Arc;

/// The device a question is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// The device of the event.
    Event,
    /// Its n-th parent, 0 is the nearest.
    Parent(u16),
    /// `[subsystem/sysname]`, resolved as in rules.md 3.4.
    Named { subsystem: BString, sysname: BString },
}

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The parents of the event's device, nearest first (rules.md 3.8). -> [`Answer::Parents`]
    Parents,
    /// Driver of the event's device when the message has none. -> [`Answer::Text`]
    Driver,
    /// A sysfs attribute, untrimmed but for trailing CR, LF and NUL. -> [`Answer::Attr`]
    Attr {
        subject: Subject,
        name: BString,
    },
    /// uevent file, record and tags of a parent. -> [`Answer::Parent`]
    ParentState(u16),
    /// Mode bits (`st_mode`) of a path as TEST writes it, after substitution: absolute,
    /// `[subsystem/sysname]path`, or relative to the device; one `*/` is expanded (rules.md 3.5).
    /// None if it does not exist; an error other than "not there" fails the event.
    /// -> [`Answer::Mode`]
    Mode {
        path: BString,
    },
    /// Value of a kernel parameter, name already in slash form below /proc/sys. Trimmed by the
    /// evaluator; None if it is not there. -> [`Answer::Text`]
    Sysctl {
        name: BString,
    },
    /// Content of a file for IMPORT{file}; None if it is not there. -> [`Answer::Text`]
    File {
        path: BString,
    },
    /// /proc/cmdline (rules.md section 4 IMPORT{cmdline}), raw. -> [`Answer::Text`]
    CommandLine,
    /// CONST{arch}, {virt}, {cvm}. -> [`Answer::Text`]
    Constant(Constant),
    /// A user or group name that only now is known; None if there is no such. -> [`Answer::Id`]
    User {
        name: BString,
    },
    Group {
        name: BString,
    },
    /// Write a sysfs attribute; target as written (`[sub/dev]x`, `a/*/b`, `x`). The evaluator goes
    /// on whatever comes of it; whoever writes logs a failure. -> [`Answer::Written`]
    WriteAttr {
        target: BString,
        value: BString,
    },
    /// Write a kernel parameter (slash form). -> [`Answer::Written`]
    WriteSysctl {
        name: BString,
        value: BString,
    },
    /// Run a program for PROGRAM or IMPORT{program}; `command` is substituted but not yet split
    /// (rules.md 10.1). -> [`Answer::Exit`]
    Run {
        command: BString,
    },
    /// Run a builtin. -> [`Answer::Builtin`]
    Builtin {
        builtin: BuiltinName,
        command: BString,
    },
}

/// The constants of rules.md 3.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Constant {
    Arch,
    Virt,
    Cvm,
}

/// Names of all builtins that rules may call (builtins.md 0.1), whether written yet or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BuiltinName {
    Blkid,
    Btrfs,
    DissectImage,
    FactoryReset,
    Hwdb,
    InputId,
    Keyboard,
    Kmod,
    NetDriver,
    NetId,
    NetSetupLink,
    PathId,
    Tpm2Id,
    Uaccess,
    UsbId,
}

impl BuiltinName {
    /// All of them, sorted by name.
    pub const ALL: [BuiltinName; 15] = [
        BuiltinName::Blkid,
        BuiltinName::Btrfs,
        BuiltinName::DissectImage,
        BuiltinName::FactoryReset,
        BuiltinName::Hwdb,
        BuiltinName::InputId,
        BuiltinName::Keyboard,
        BuiltinName::Kmod,
        BuiltinName::NetDriver,
        BuiltinName::NetId,
        BuiltinName::NetSetupLink,
        BuiltinName::PathId,
        BuiltinName::Tpm2Id,
        BuiltinName::Uaccess,
        BuiltinName::UsbId,
    ];

    /// The word in rules.
    pub fn as_str(self) -> &'static str {
        match self {
            BuiltinName::Blkid => "blkid",
            BuiltinName::Btrfs => "btrfs",
            BuiltinName::DissectImage => "dissect_image",
            BuiltinName::FactoryReset => "factory_reset",
            BuiltinName::Hwdb => "hwdb",
            BuiltinName::InputId => "input_id",
            BuiltinName::Keyboard => "keyboard",
            BuiltinName::Kmod => "kmod",
            BuiltinName::NetDriver => "net_driver",
            BuiltinName::NetId => "net_id",
            BuiltinName::NetSetupLink => "net_setup_link",
            BuiltinName::PathId => "path_id",
            BuiltinName::Tpm2Id => "tpm2_id",
            BuiltinName::Uaccess => "uaccess",
            BuiltinName::UsbId => "usb_id",
        }
    }

    /// The word of a command that should name a builtin; None if it has no word.
    pub fn word(command: &[u8]) -> Option<&[u8]> {
        command.split(|b| b.is_ascii_whitespace()).find(|word| !word.is_empty())
    }

    /// The builtin that the first word of a command names; full names only, as from 262.
    pub fn of_command(command: &[u8]) -> Option<BuiltinName> {
        let word = BuiltinName::word(command)?;
        BuiltinName::ALL.into_iter().find(|b| b.as_str().as_bytes() == word)
    }

    /// Runs at most once in an event; later calls repeat the first verdict (builtins.md 0.1).
    pub fn runs_once(self) -> bool {
        use BuiltinName::*;
        matches!(self, Blkid | NetDriver | PathId | UsbId | FactoryReset | Tpm2Id)
    }
}

/// A parent as the walk of rules.md 3.8 sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentDevice {
    pub devpath: BString,
    /// `!` turned into `/`.
    pub sysname: BString,
    /// Empty if it has none.
    pub subsystem: BString,
    /// Empty if none is bound.
    pub driver: BString,
}

/// What `uevent` file and record of a parent say.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ParentState {
    /// uevent file and record together; DEVNAME is absolute.
    pub properties: Properties,
    pub tags: Tags,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attr {
    Value(BString),
    /// Not there, a directory, not readable, a read error.
    Missing,
    /// The `[subsystem/sysname]` device itself does not exist.
    NoDevice,
}

/// What a builtin found.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BuiltinResult {
    /// The builtin succeeded, so that the match holds.
    pub success: bool,
    /// Properties to set (stored, unless the name begins with a dot) or, with None, to remove; in order.
    pub properties: Vec<(BString, Option<BString>)>,
    /// Alternative names that net_setup_link wants once the interface has its final name.
    pub alt_names: Vec<BString>,
    /// Warnings for the log.
    pub messages: Vec<String>,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Parents(Arc<[ParentDevice]>),
    Parent(Arc<ParentState>),
    Attr(Attr),
    Mode(Result<Option<u32>, Errno>),
    Text(Result<Option<BString>, Errno>),
    Id(Option<u32>),
    Written,
    Exit(Exit),
    Builtin(BuiltinResult),
}
