//! The classic control protocol (interop.md 3.2, 3.3): datagrams of 280 bytes on a SEQPACKET socket.
//!
//! * [`Datagram::parse`] and [`Datagram::render`]: the wire, both ways.
//! * [`Connection`]: one client in the daemon. It is fed datagrams and says what to do
//!   ([`ClientAction`]); it neither reads nor writes, and nothing is ever sent back: the answer to a client
//!   is that its connection is closed.
//!
//! Two dialects are told apart by the version text of the first datagram. *A* (eudev, systemd up to
//! v241) sends one datagram and waits for the close. *B* (v242 to v257) sends any number, then
//! [`Message::End`], and waits.
//!
//! What must stay true: a client that waits is let go only at idle priority, when all uevents that
//! were readable before are in the queue ([`Connection::on_idle`]); one that said exit is let go by
//! the end of the process.

use super::uevent::{valid_property_name, valid_property_value};
use bstr::{BStr, BString, ByteSlice};

/// Bytes of a datagram.
pub const DATAGRAM_LEN: usize = 280;
/// Version text of a client that speaks dialect B.
#[allow(dead_code, reason = "tests speak as such a client")]
pub const VERSION_B: &str = "udev-255";

const MAGIC: u32 = 0xdead_1dea;
const VERSION_LEN: usize = 16;
const VALUE_AT: usize = 24;

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Dialect B: that was all.
    End,
    /// Syslog level, 0 to 7.
    SetLogLevel(u8),
    StopExecQueue,
    StartExecQueue,
    /// Read rules and configuration again.
    Reload,
    /// A property for all later events; an empty value unsets it.
    SetEnv {
        name: BString,
        value: BString,
    },
    /// 0 means the default.
    SetChildrenMax(u32),
    Ping,
    /// Finish what runs, then end.
    Exit,
}

/// One datagram that has the right form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// `udev-252`, at most 15 bytes.
    pub version: BString,
    pub message: Message,
}

/// Why a datagram has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlError {
    /// Not 280 bytes. The connection is closed.
    BadLength(usize),
    /// Another magic number. The connection is closed.
    BadMagic(u32),
    /// It came without the credentials of root; the uid if there was one.
    NotRoot(Option<u32>),
    /// No type that is known.
    UnknownType(u32),
    /// The number is out of range.
    BadNumber(i32),
    /// No `NAME=VALUE` that may be an environment variable.
    BadEnv(BString),
}

impl std::fmt::Display for ControlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ControlError::BadLength(len) => write!(f, "{len} bytes instead of {DATAGRAM_LEN}"),
            ControlError::BadMagic(magic) => write!(f, "wrong magic number {magic:#x}"),
            ControlError::NotRoot(Some(uid)) => write!(f, "sent by uid {uid}, not by root"),
            ControlError::NotRoot(None) => f.write_str("sent without credentials"),
            ControlError::UnknownType(kind) => write!(f, "unknown message type {kind}"),
            ControlError::BadNumber(number) => write!(f, "{number} is out of range"),
            ControlError::BadEnv(text) => write!(f, "{text:?} is no NAME=VALUE"),
        }
    }
}

impl std::error::Error for ControlError {}

impl Datagram {
    /// Reads a datagram.
    #[allow(dead_code, reason = "tests and fuzzing compare with it; the daemon reads by `parse_known`")]
    pub fn parse(bytes: &[u8]) -> Result<Datagram, ControlError> {
        let (version, kind, value) = split(bytes)?;
        Ok(Datagram { version: version.to_owned(), message: parse_message(kind, value)? })
    }

    /// The bytes to send; None if a text does not fit into its field.
    pub fn render(&self) -> Option<[u8; DATAGRAM_LEN]> {
        let mut bytes = [0; DATAGRAM_LEN];
        // Room for a NUL stays behind each text.
        let mut put = |at: usize, room: usize, text: &[u8]| {
            (text.len() < room).then(|| bytes[at..at + text.len()].copy_from_slice(text))
        };
        put(0, VERSION_LEN, &self.version)?;
        put(16, 8, &MAGIC.to_ne_bytes())?;
        let (kind, value) = match &self.message {
            Message::End => (0u32, Vec::new()),
            Message::SetLogLevel(level) => (1, u32::from(*level).to_ne_bytes().to_vec()),
            Message::StopExecQueue => (2, Vec::new()),
            Message::StartExecQueue => (3, Vec::new()),
            Message::Reload => (4, Vec::new()),
            Message::SetEnv { name, value } => (5, [&name[..], b"=", value].concat()),
            Message::SetChildrenMax(max) => (6, max.to_ne_bytes().to_vec()),
            Message::Ping => (7, Vec::new()),
            Message::Exit => (8, Vec::new()),
        };
        put(20, 8, &kind.to_ne_bytes())?;
        put(VALUE_AT, DATAGRAM_LEN - VALUE_AT, &value)?;
        Some(bytes)
    }
}

/// Version text, type and value of a datagram with the right length and magic number.
fn split(bytes: &[u8]) -> Result<(&BStr, u32, &[u8; 256]), ControlError> {
    let bytes: &[u8; DATAGRAM_LEN] = bytes.try_into().map_err(|_| ControlError::BadLength(bytes.len()))?;
    let number = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if number(16) != MAGIC {
        return Err(ControlError::BadMagic(number(16)));
    }
    let value = bytes.last_chunk().ok_or(ControlError::BadLength(bytes.len()))?;
    Ok((text_of(&bytes[..VERSION_LEN]), number(20), value))
}

fn parse_message(kind: u32, value: &[u8; 256]) -> Result<Message, ControlError> {
    let number = i32::from_ne_bytes([value[0], value[1], value[2], value[3]]);
    let bad_number = ControlError::BadNumber(number);
    match kind {
        0 => Ok(Message::End),
        1 => match u8::try_from(number) {
            Ok(level) if level <= 7 => Ok(Message::SetLogLevel(level)),
            _ => Err(bad_number),
        },
        2 => Ok(Message::StopExecQueue),
        3 => Ok(Message::StartExecQueue),
        4 => Ok(Message::Reload),
        5 => parse_env(text_of(value)).ok_or_else(|| ControlError::BadEnv(text_of(value).to_owned())),
        6 => u32::try_from(number).map(Message::SetChildrenMax).map_err(|_| bad_number),
        7 => Ok(Message::Ping),
        8 => Ok(Message::Exit),
        _ => Err(ControlError::UnknownType(kind)),
    }
}

/// `NAME=VALUE`, a property name that may also be an environment variable; a text that fills its
/// field has no NUL and may be cut.
fn parse_env(text: &BStr) -> Option<Message> {
    let (name, value) = text.split_once_str("=")?;
    let whole = text.len() < DATAGRAM_LEN - VALUE_AT;
    let fits = whole && valid_property_name(name) && !name[0].is_ascii_digit() && valid_property_value(value);
    fits.then(|| Message::SetEnv { name: name.into(), value: value.into() })
}

/// The text of a field, up to its first NUL.
fn text_of(field: &[u8]) -> &BStr {
    field.split(|&b| b == 0).next().unwrap_or_default().as_bstr()
}

/// What the daemon must do for a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAction {
    /// Do what the client wants; never [`Message::End`] or [`Message::Ping`].
    Do(Message),
    /// Say why a datagram had no effect.
    Report(ControlError),
    /// Close the connection at once.
    Close,
    /// Call [`Connection::on_idle`] when the loop is next idle.
    WaitForIdle,
}

/// One client of the daemon. Whether the peer may connect at all (uid 0) was checked at accept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    state: ClientState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ClientState {
    /// Nothing came yet: the dialect is unknown.
    #[default]
    New,
    /// Dialect B, before its end mark.
    Listening,
    /// All was said; closed when the loop is idle.
    Finished,
    /// Exit was said: open until the process ends.
    Held,
}

impl Connection {
    /// A client that has just connected.
    pub fn new() -> Connection {
        Connection::default()
    }

    /// A datagram came, with the uid of its credentials.
    pub fn on_datagram(&mut self, bytes: &[u8], uid: Option<u32>) -> Vec<ClientAction> {
        if matches!(self.state, ClientState::Finished | ClientState::Held) {
            return Vec::new();
        }
        if uid != Some(0) {
            return vec![ClientAction::Report(ControlError::NotRoot(uid))];
        }
        let (version, kind, value) = match split(bytes) {
            Ok(fields) => fields,
            Err(error) => return vec![ClientAction::Report(error), ClientAction::Close],
        };
        let one_shot = self.state == ClientState::New && !speaks_dialect_b(version);
        self.state = if one_shot { ClientState::Finished } else { ClientState::Listening };
        let mut actions = Vec::new();
        match parse_message(kind, value) {
            Ok(Message::End) => self.state = ClientState::Finished,
            Ok(Message::Ping) => {}
            Ok(message) => {
                if message == Message::Exit {
                    self.state = ClientState::Held;
                }
                actions.push(ClientAction::Do(message));
            }
            Err(error) => actions.push(ClientAction::Report(error)),
        }
        if self.state == ClientState::Finished {
            actions.push(ClientAction::WaitForIdle);
        }
        actions
    }

    /// The client has hung up: always [`ClientAction::Close`]. What it said before stays said.
    pub fn on_eof(&mut self) -> ClientAction {
        ClientAction::Close
    }

    /// All uevents that were readable are queued. True: the client waits for this, close now.
    pub fn on_idle(&self) -> bool {
        self.state == ClientState::Finished
    }
}

/// `udev-` and a number from 242 on. eudev's versions are dotted and begin with 3.
fn speaks_dialect_b(version: &BStr) -> bool {
    let number = version.strip_prefix(b"udev-").unwrap_or_default();
    let digits = number.iter().take_while(|b| b.is_ascii_digit()).count();
    number[..digits].to_str().ok().and_then(|n| n.parse::<u64>().ok()).is_some_and(|n| n >= 242)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn datagram(version: &str, message: Message) -> Datagram {
        Datagram { version: version.into(), message }
    }

    fn bytes(version: &str, message: Message) -> [u8; DATAGRAM_LEN] {
        datagram(version, message).render().expect("it fits")
    }

    fn env(name: &str, value: &str) -> Message {
        Message::SetEnv { name: name.into(), value: value.into() }
    }

    /// interop.md 3.2: the first 32 bytes, the rest is zero.
    #[cfg(target_endian = "little")]
    #[test]
    fn samples_of_known_clients_go_both_ways() {
        for (version, message, tail) in [
            ("udev-255", Message::Ping, b"\x07\0\0\0\0\0\0\0\0\0\0\0"),
            ("udev-252", Message::End, b"\0\0\0\0\0\0\0\0\0\0\0\0"),
            ("udev-3.2.14", Message::SetLogLevel(7), b"\x01\0\0\0\x07\0\0\0\0\0\0\0"),
            ("udev-255", env("A", "b"), b"\x05\0\0\0A=b\0\0\0\0\0"),
            ("udev-252", Message::SetChildrenMax(16), b"\x06\0\0\0\x10\0\0\0\0\0\0\0"),
        ] {
            let mut sample = version.as_bytes().to_vec();
            sample.resize(16, 0);
            sample.extend_from_slice(b"\xea\x1d\xad\xde");
            sample.extend_from_slice(tail);
            sample.resize(DATAGRAM_LEN, 0);
            let expected = datagram(version, message);
            assert_eq!(Datagram::parse(&sample).as_ref(), Ok(&expected));
            assert_eq!(expected.render().map(|b| b.to_vec()), Some(sample));
        }
    }

    #[test]
    fn all_messages_go_both_ways() {
        for message in [
            Message::End,
            Message::SetLogLevel(0),
            Message::StopExecQueue,
            Message::StartExecQueue,
            Message::Reload,
            env("A", ""),
            Message::SetChildrenMax(0),
            Message::Ping,
            Message::Exit,
        ] {
            let sent = datagram(VERSION_B, message);
            assert_eq!(Datagram::parse(&sent.render().unwrap()), Ok(sent));
        }
        assert_eq!(datagram(VERSION_B, env("A", &"x".repeat(254))).render(), None);
        assert!(datagram(VERSION_B, env("A", &"x".repeat(253))).render().is_some());
        assert_eq!(datagram("udev-and-too-long", Message::Ping).render(), None);
    }

    #[test]
    fn bad_datagrams_are_named() {
        let ping = bytes("udev-255", Message::Ping);
        let with = |at: usize, field: &[u8]| {
            let mut bad = ping;
            bad[at..at + field.len()].copy_from_slice(field);
            Datagram::parse(&bad)
        };
        assert_eq!(Datagram::parse(&ping[1..]), Err(ControlError::BadLength(279)));
        assert_eq!(Datagram::parse(&[&ping[..], b"x"].concat()), Err(ControlError::BadLength(281)));
        assert_eq!(with(16, &1u32.to_ne_bytes()), Err(ControlError::BadMagic(1)));
        assert_eq!(with(20, &9u32.to_ne_bytes()), Err(ControlError::UnknownType(9)));
        let value = |kind: u32, value: &[u8]| with(20, &[&kind.to_ne_bytes()[..], value].concat());
        assert_eq!(value(1, &8i32.to_ne_bytes()), Err(ControlError::BadNumber(8)));
        assert_eq!(value(1, &(-1i32).to_ne_bytes()), Err(ControlError::BadNumber(-1)));
        assert_eq!(value(6, &(-1i32).to_ne_bytes()), Err(ControlError::BadNumber(-1)));
        let full = "A=".to_owned() + &"x".repeat(254);
        for text in [&full[..], "A", "=b", "1=b", "A B=c", "A=\u{7}", ""] {
            assert_eq!(value(5, text.as_bytes()), Err(ControlError::BadEnv(text.into())), "{text:?}");
        }
    }

    #[test]
    fn versions_tell_the_dialects_apart() {
        for (version, b) in [
            ("udev-242", true),
            ("udev-257", true),
            ("udev-256.7", true),
            ("udev-241", false),
            ("udev-3.2.14", false),
            ("udev-", false),
            ("255", false),
            ("", false),
            ("udev-99999999999999999999", false),
        ] {
            assert_eq!(speaks_dialect_b(version.into()), b, "{version:?}");
        }
    }

    #[test]
    fn dialect_a_is_done_after_one_datagram() {
        let mut client = Connection::new();
        assert!(!client.on_idle());
        assert_eq!(
            client.on_datagram(&bytes("udev-3.2.14", Message::Reload), Some(0)),
            [ClientAction::Do(Message::Reload), ClientAction::WaitForIdle]
        );
        assert!(client.on_datagram(&bytes("udev-3.2.14", Message::Exit), Some(0)).is_empty());
        assert!(client.on_idle());

        let mut client = Connection::new();
        let actions = client.on_datagram(&bytes("udev-241", Message::Ping), Some(0));
        assert_eq!(actions, [ClientAction::WaitForIdle]);
    }

    #[test]
    fn dialect_b_is_done_at_its_end_mark() {
        let mut client = Connection::new();
        for message in [Message::Ping, Message::Reload, Message::SetLogLevel(7)] {
            let actions = client.on_datagram(&bytes("udev-255", message.clone()), Some(0));
            let wanted = if message == Message::Ping { vec![] } else { vec![ClientAction::Do(message)] };
            assert_eq!(actions, wanted);
            assert!(!client.on_idle());
        }
        assert_eq!(
            client.on_datagram(&bytes("udev-255", Message::End), Some(0)),
            [ClientAction::WaitForIdle]
        );
        assert!(client.on_idle());
        assert_eq!(Connection::new().on_eof(), ClientAction::Close);
    }

    #[test]
    fn who_says_exit_is_held_until_the_end() {
        for version in ["udev-255", "udev-3.2.14"] {
            let mut client = Connection::new();
            let actions = client.on_datagram(&bytes(version, Message::Exit), Some(0));
            assert_eq!(actions, [ClientAction::Do(Message::Exit)]);
            assert!(client.on_datagram(&bytes(version, Message::End), Some(0)).is_empty());
            assert!(!client.on_idle());
        }
    }

    #[test]
    fn strangers_and_noise_have_no_effect() {
        let mut client = Connection::new();
        for uid in [None, Some(1000)] {
            let actions = client.on_datagram(&bytes("udev-3.2.14", Message::Exit), uid);
            assert_eq!(actions, [ClientAction::Report(ControlError::NotRoot(uid))]);
        }
        let mut unknown = bytes("udev-255", Message::Ping);
        unknown[20..24].copy_from_slice(&77u32.to_ne_bytes());
        let actions = client.on_datagram(&unknown, Some(0));
        assert_eq!(actions, [ClientAction::Report(ControlError::UnknownType(77))]);
        assert_eq!(
            client.on_datagram(&bytes("udev-255", Message::Reload), Some(0)),
            [ClientAction::Do(Message::Reload)]
        );
        let actions = client.on_datagram(b"short", Some(0));
        assert_eq!(actions, [ClientAction::Report(ControlError::BadLength(5)), ClientAction::Close]);
    }

    proptest! {
        #[test]
        fn garbage_is_read_without_harm(kind in 0u32..10, value in prop::collection::vec(any::<u8>(), 256)) {
            let mut bytes = bytes("udev-255", Message::Ping);
            bytes[20..24].copy_from_slice(&kind.to_ne_bytes());
            bytes[24..].copy_from_slice(&value);
            let read = Datagram::parse(&bytes);
            if let Ok(datagram) = read {
                prop_assert_eq!(Datagram::parse(&datagram.render().unwrap()), Ok(datagram));
            }
        }
    }
}
