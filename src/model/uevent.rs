//! The kernel's message, and the same message written to a file (interop.md 2.8, rules.md section 7).

use super::{Action, Properties};
use bstr::{BString, ByteSlice};

/// Sequence number of a uevent, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqNum(pub u64);

impl std::fmt::Display for SeqNum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}

/// A uevent that passed all checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uevent {
    pub action: Action,
    pub seqnum: SeqNum,
    pub devpath: BString,
    pub subsystem: BString,
    /// Every variable of the message in its order, ACTION, DEVPATH, SUBSYSTEM and SEQNUM included.
    /// DEVNAME is absolute.
    pub properties: Properties,
}

/// Why a message is no uevent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UeventError {
    /// It begins with `libudev`: a message of user space in the kernel's group.
    NotKernel,
    /// The first string is not `ACTION@DEVPATH`.
    NoHeader,
    /// A required variable is missing or empty.
    Missing(&'static str),
    /// ACTION, SEQNUM, DEVPATH or DEVNAME has a value that cannot be.
    Bad(&'static str, BString),
    /// A required variable has a value that no record could hold.
    NoText(&'static str, BString),
}

impl std::fmt::Display for UeventError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            UeventError::NotKernel => f.write_str("a message of user space in the kernel's group"),
            UeventError::NoHeader => f.write_str("no ACTION@DEVPATH header"),
            UeventError::Missing(name) => write!(f, "no {name}"),
            UeventError::Bad(name, value) => write!(f, "{name} cannot be {value:?}"),
            UeventError::NoText(name, value) => {
                write!(f, "{name} {value:?} has control characters or is not UTF-8")
            }
        }
    }
}

impl std::error::Error for UeventError {}

/// Variables without which a message is no uevent.
const REQUIRED: [&str; 4] = ["ACTION", "DEVPATH", "SUBSYSTEM", "SEQNUM"];

/// Properties of most uevents.
const PROPERTIES: usize = 12;

/// Strings of a datagram, each ended by NUL.
struct Strings<'a>(&'a [u8]);

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let end = self.0.find_byte(0).unwrap_or(self.0.len());
        let string = &self.0[..end];
        self.0 = &self.0[(end + 1).min(self.0.len())..];
        Some(string)
    }
}

impl Uevent {
    /// Parses a datagram of the kernel: `ACTION@DEVPATH\0K=V\0...`.
    pub fn parse_kernel(datagram: &[u8]) -> Result<Uevent, UeventError> {
        if datagram.starts_with(b"libudev") {
            return Err(UeventError::NotKernel);
        }
        let mut strings = Strings(datagram);
        if !strings.next().is_some_and(|s| s.windows(2).any(|w| w == b"@/")) {
            return Err(UeventError::NoHeader);
        }
        Uevent::from_strings(strings, datagram.len())
    }

    /// Parses `KEY=VALUE` strings in any order. Strings without `=` and properties that no record
    /// could hold (see [`valid_property`]) are skipped: the rest of the message is used, as from v262. When
    /// that leaves out a required property, the message is refused because of the value, not because it has none.
    pub fn from_lines<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Result<Uevent, UeventError> {
        Uevent::from_strings(lines, 0)
    }

    /// `bytes` is how many all names and values may have.
    fn from_strings<'a>(lines: impl Iterator<Item = &'a [u8]>, bytes: usize) -> Result<Uevent, UeventError> {
        let mut properties = Properties::with_capacity(PROPERTIES, bytes);
        let [mut action, mut devpath, mut subsystem, mut seqnum] = [None; 4];
        for line in lines {
            let Some(equals) = line.find_byte(b'=') else { continue };
            let (name, mut value) = (&line[..equals], &line[equals + 1..]);
            if !is_plain(value) {
                value = &value[..value.find_byte(b'\n').unwrap_or(value.len())];
            }
            if value.is_empty() {
                continue;
            }
            if !valid_property(name, value) {
                match REQUIRED.iter().find(|required| required.as_bytes() == name) {
                    Some(required) => return Err(UeventError::NoText(required, value.into())),
                    None => continue,
                }
            }
            match name {
                b"DEVNAME" => {
                    properties.set(name, absolute_devname(value)?);
                    continue;
                }
                b"ACTION" => action = Some(value),
                b"DEVPATH" => devpath = Some(value),
                b"SUBSYSTEM" => subsystem = Some(value),
                b"SEQNUM" => seqnum = Some(value),
                _ => {}
            }
            properties.set(name, value);
        }
        let need = |name, value: Option<&'a [u8]>| value.ok_or(UeventError::Missing(name));
        let bad = |name, value: &[u8]| UeventError::Bad(name, value.into());
        let devpath = need("DEVPATH", devpath)?;
        let subsystem = need("SUBSYSTEM", subsystem)?.into();
        let action = need("ACTION", action)?;
        let action = Action::parse(action).ok_or_else(|| bad("ACTION", action))?;
        let seqnum = need("SEQNUM", seqnum)?;
        let number = seqnum.to_str().ok().filter(|s| s.bytes().all(|b| b.is_ascii_digit()));
        let number = number.and_then(|s| s.parse().ok()).filter(|&n| n > 0);
        let seqnum = SeqNum(number.ok_or_else(|| bad("SEQNUM", seqnum))?);
        if !is_devpath(devpath) {
            return Err(bad("DEVPATH", devpath));
        }
        Ok(Uevent { action, seqnum, devpath: devpath.into(), subsystem, properties })
    }
}

/// A devpath starts with `/` and has no empty, `.` or `..` component: it is put behind `/sys`.
pub fn is_devpath(path: &[u8]) -> bool {
    path.len() > 1
        && path[0] == b'/'
        && path[1..].split(|&b| b == b'/').all(|part| !matches!(part, b"" | b"." | b".."))
}

/// `/dev/` in front of a relative name; an absolute one must be below `/dev/` (interop.md 2.3).
pub fn absolute_devname(name: &[u8]) -> Result<BString, UeventError> {
    let relative = name.strip_prefix(b"/dev/").unwrap_or(name);
    let plain = relative.split(|&b| b == b'/').all(|part| !matches!(part, b"" | b"." | b".."));
    if plain {
        Ok([b"/dev/", relative].concat().into())
    } else {
        Err(UeventError::Bad("DEVNAME", name.into()))
    }
}

/// Whether all bytes are printable ASCII, as they nearly always are. Looks at all of them: that needs no
/// branch for each.
fn is_plain(value: &[u8]) -> bool {
    value.iter().fold(true, |plain, b| plain & (0x20..0x7f).contains(b))
}

/// Whether a property may be set (rules.md section 13, v260): the name consists of letters, digits,
/// `_` and `.`; the value is UTF-8 without control characters.
pub fn valid_property(name: &[u8], value: &[u8]) -> bool {
    valid_property_name(name) && valid_property_value(value)
}

/// See [`valid_property`].
pub fn valid_property_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.'))
}

/// See [`valid_property`].
pub fn valid_property_value(value: &[u8]) -> bool {
    is_plain(value) || (!value.iter().any(u8::is_ascii_control) && std::str::from_utf8(value).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGE: &[u8] = b"change@/devices/virtual/mem/null\0ACTION=change\0\
        DEVPATH=/devices/virtual/mem/null\0SUBSYSTEM=mem\0SYNTH_UUID=0\0MAJOR=1\0MINOR=3\0\
        DEVNAME=null\0DEVMODE=0666\0SEQNUM=96739\0";

    #[test]
    fn a_kernel_message_becomes_a_uevent() {
        let uevent = Uevent::parse_kernel(CHANGE).unwrap();
        assert_eq!(uevent.action, Action::Change);
        assert_eq!(uevent.seqnum, SeqNum(96739));
        assert_eq!(uevent.properties.get("DEVNAME").unwrap(), "/dev/null");
        assert_eq!(uevent.properties.get("SYNTH_UUID").unwrap(), "0");
    }

    #[test]
    fn required_variables_are_checked_and_others_are_skipped_when_bad() {
        let parse = |text: &str| Uevent::from_lines(text.as_bytes().split(|&b| b == b'\n'));
        let good = "ACTION=add\nDEVPATH=/d/x\nSUBSYSTEM=s\nSEQNUM=1";
        assert!(parse(good).is_ok());
        assert_eq!(parse(&good.replace("SEQNUM=1", "")), Err(UeventError::Missing("SEQNUM")));
        for (from, to) in [
            ("SEQNUM=1", "SEQNUM=0"),
            ("=add", "=frob"),
            ("/d/x", "/d/../x"),
            ("/d/x", "d/x"),
            ("SEQNUM=1", "SEQNUM=99999999999999999999"),
            ("SEQNUM=1", "SEQNUM=-1"),
        ] {
            assert!(matches!(parse(&good.replace(from, to)), Err(UeventError::Bad(..))), "{to}");
        }
        let odd = parse(&format!("{good}\nA B=1\nC=\u{7}\nD=ok\nnonsense\nDRIVER=\u{1}")).unwrap();
        assert_eq!(odd.properties.len(), 5);
        // An interface may have such a name.
        let why = parse(&good.replace("/d/x", "/d/\u{1}x")).unwrap_err().to_string();
        assert_eq!(why, r#"DEVPATH "/d/\x01x" has control characters or is not UTF-8"#);
        assert!(parse(&format!("{good}\nDEVNAME=../etc/passwd")).is_err());
        assert!(parse(&format!("{good}\nDEVNAME=/etc/passwd")).is_err());
    }

    #[test]
    fn messages_of_user_space_are_told_apart() {
        assert_eq!(Uevent::parse_kernel(b"libudev\0\xfe\xed"), Err(UeventError::NotKernel));
        assert_eq!(Uevent::parse_kernel(b""), Err(UeventError::NoHeader));
        for cut in 0..CHANGE.len() - 1 {
            let _ = Uevent::parse_kernel(&CHANGE[..cut]);
        }
    }
}
