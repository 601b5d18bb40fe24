//! Values without I/O: what a uevent, a device, a record, an announcement are. Everything here can
//! be built, printed and compared in a test without a kernel.
//!
//! Bytes stay bytes (`BString`) until someone needs text.

pub mod action;
pub mod announcement;
pub mod claims;
pub mod command;
pub mod command_line;
pub mod control;
pub mod device;
pub mod device_id;
pub mod effect;
pub mod errno_names;
pub mod event;
pub mod fnv;
pub mod hash;
pub mod nearest;
pub mod need;
pub mod operation;
pub mod properties;
pub mod record;
pub mod time;
pub mod uevent;

pub use action::{Action, Trigger};
pub use device::{DevNum, Device, IfIndex};
pub use device_id::DeviceId;
pub use event::{Event, SymlinkSet, Tags};
pub use properties::{Key, Properties};
pub use time::Now;
pub use uevent::{SeqNum, Uevent};

/// When names of users and groups in rules are resolved (resolve_names, rules.md 8.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResolveNames {
    /// When rules are loaded.
    #[default]
    Early,
    /// In each event.
    Late,
    /// Not at all: assignments by name are dropped.
    Never,
}

impl ResolveNames {
    /// The word of settings and command lines.
    pub fn parse(word: &[u8]) -> Option<ResolveNames> {
        match word {
            b"early" => Some(ResolveNames::Early),
            b"late" => Some(ResolveNames::Late),
            b"never" => Some(ResolveNames::Never),
            _ => None,
        }
    }
}

/// A kernel error number (`errno`). Rendered as its symbolic name, `EEXIST`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(pub i32);

impl Errno {
    /// The number in an [`std::io::Error`]; EIO when it carries none.
    pub fn of(error: &std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }

    /// Symbolic name such as `EEXIST`, or None for a number not known by name.
    pub fn name(self) -> Option<&'static str> {
        errno_names::errno_name(self.0)
    }

    /// Whether it says that room, memory or descriptors are short, or that a file system is ill or cannot be written
    /// for now. What failed with such an error may succeed later.
    pub fn is_shortage(self) -> bool {
        use libc::{EDQUOT, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC, EROFS};
        matches!(self.0, ENOSPC | EDQUOT | EMFILE | ENFILE | ENOMEM | EROFS | EIO)
    }

    /// Whether it says that no descriptor or no memory is left. Such an error says nothing about the thing looked at.
    pub fn is_lack(self) -> bool {
        matches!(self.0, libc::EMFILE | libc::ENFILE | libc::ENOMEM)
    }
}

impl std::fmt::Debug for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&std::io::Error::from_raw_os_error(self.0), f)
    }
}

/// A syslog level by name or as a number from 0 to 7 (syslog(3)). What is more urgent than an error
/// is an error here, and a notice is information.
pub fn parse_log_level(text: &[u8]) -> Option<log::LevelFilter> {
    Some(match text {
        b"emerg" | b"alert" | b"crit" | b"err" | b"error" | b"0" | b"1" | b"2" | b"3" => {
            log::LevelFilter::Error
        }
        b"warning" | b"warn" | b"4" => log::LevelFilter::Warn,
        b"notice" | b"info" | b"5" | b"6" => log::LevelFilter::Info,
        b"debug" | b"7" => log::LevelFilter::Debug,
        _ => return None,
    })
}
