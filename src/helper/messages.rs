//! How a helper is asked: one operation is one message, so is its reply.
//!
//! Wire format, private to one executable: a byte for the kind, then its fields; a text is its length
//! as u32 in native order and its bytes. An open file goes along where one is meant. The last text of a
//! reply that is too long for a message goes along as a file in memory; its kind has `LONG` set then.

use super::reading;
use crate::model::operation::{AttrPlace, LockState, Operation, OperationReply};
use crate::model::{DevNum, Errno};
use crate::sys;
use crate::world::files;
use bstr::{BStr, BString, ByteSlice};
use std::os::fd::OwnedFd;

/// Bytes of the longest message. Longer operations cannot be asked for: see [`encode`].
pub const MAX_MESSAGE: usize = 64 * 1024;

/// Bytes of a text that goes in the message itself.
const MAX_INLINE: usize = 32 * 1024;

/// Set in the kind of a reply whose last text is in the open file that goes along.
const LONG: u8 = 0x80;

/// The message of an operation.
pub fn encode(operation: &Operation) -> Vec<u8> {
    match operation {
        Operation::WriteAttr { path, value } => message(1, &[path, value]),
        Operation::WriteSysctl { path, value } => message(2, &[path, value]),
        Operation::ReadAttr { sys, place } => message(3, &[sys, &place.devpath, &place.name]),
        Operation::ReReadPartitions { devnode, syspath } => message(5, &[devnode, syspath]),
        Operation::Trigger { text, syspaths } => {
            let all: Vec<&[u8]> =
                [text.as_slice()].into_iter().chain(syspaths.iter().map(|p| p.as_slice())).collect();
            message(6, &all)
        }
        Operation::ReadFile { path } => message(11, &[path]),
        Operation::TestFile { path } => message(12, &[path]),
        Operation::LookAtRules { rules, links } => {
            let count = (rules.len() as u32).to_ne_bytes();
            let folders = rules.iter().chain(links).map(|folder| folder.as_slice());
            message(13, &[&count[..]].into_iter().chain(folders).collect::<Vec<_>>())
        }
        Operation::ReadRules { roots, rules } => {
            message(14, &roots.iter().chain(rules).map(|place| place.as_slice()).collect::<Vec<_>>())
        }
        Operation::PermanentAddress { ifname } => message(7, &[ifname]),
        Operation::LockDisk { path } => message(8, &[path]),
        Operation::CloseDisk { disk } => message(9, &[disk]),
        Operation::SetReadOnly { path, devnum } => message(10, &[path, devnum.to_string().as_bytes()]),
    }
}

/// The operation of a message; None for anything else.
pub fn decode(bytes: &[u8]) -> Option<Operation> {
    let (&kind, rest) = bytes.split_first()?;
    let texts = texts(rest)?;
    let mut texts = texts.into_iter().map(BStr::to_owned);
    let mut next = || texts.next();
    let operation = match kind {
        1 => Operation::WriteAttr { path: next()?, value: next()? },
        2 => Operation::WriteSysctl { path: next()?, value: next()? },
        3 => Operation::ReadAttr { sys: next()?, place: AttrPlace { devpath: next()?, name: next()? } },
        5 => Operation::ReReadPartitions { devnode: next()?, syspath: next()? },
        6 => return Some(Operation::Trigger { text: next()?, syspaths: texts.collect() }),
        7 => Operation::PermanentAddress { ifname: next()? },
        8 => Operation::LockDisk { path: next()? },
        9 => Operation::CloseDisk { disk: next()? },
        11 => Operation::ReadFile { path: next()? },
        12 => Operation::TestFile { path: next()? },
        13 => {
            let count = u32::from_ne_bytes(next()?.as_slice().try_into().ok()?) as usize;
            let mut rules: Vec<BString> = texts.collect();
            if count > rules.len() {
                return None;
            }
            let links = rules.split_off(count);
            return Some(Operation::LookAtRules { rules, links });
        }
        14 => {
            let roots = Box::new([next()?, next()?, next()?, next()?]);
            return Some(Operation::ReadRules { roots, rules: texts.collect() });
        }
        10 => Operation::SetReadOnly { path: next()?, devnum: DevNum::parse(&next()?)? },
        _ => return None,
    };
    next().is_none().then_some(operation)
}

/// The message of a reply, and the file in memory that goes with it if its text is too long for a message. Where
/// there can be none, the reason why takes the place of the text.
pub fn pack(reply: &OperationReply) -> (Vec<u8>, Option<OwnedFd>) {
    let long = long_text(reply).filter(|text| text.len() > MAX_INLINE);
    match long.map(|text| sys::fs::file_in_memory(text)) {
        None => (encode_reply(reply), None),
        Some(Ok(file)) => {
            let mut bytes = encode_reply(&with_text(reply, Ok(BString::default())));
            bytes[0] |= LONG;
            (bytes, Some(file.into()))
        }
        Some(Err(error)) => (encode_reply(&with_text(reply, Err(Errno::of(&error)))), None),
    }
}

/// The reply of a message and of the file that came with it, and the open file that the reply passes on; None for
/// anything else, and where that has not come.
pub fn unpack(bytes: &[u8], passed: Option<OwnedFd>) -> Option<(OperationReply, Option<OwnedFd>)> {
    let (&kind, rest) = bytes.split_first()?;
    if kind & LONG != 0 {
        let reply = decode_reply(&[&[kind & !LONG], rest].concat())?;
        let limit =
            if matches!(reply, OperationReply::Files(_)) { reading::MAX_TEXT } else { files::IMPORT_MAX };
        let text = sys::fs::content_of(&passed?.into(), limit).map_err(|e| Errno::of(&e));
        return Some((with_text(&reply, text.map(BString::from)), None));
    }
    let reply = decode_reply(bytes)?;
    let lends = reply == OperationReply::Lock(Ok(LockState::Held));
    if lends && passed.is_none() {
        return None;
    }
    Some((reply, passed.filter(|_| lends)))
}

/// The text that may be long.
fn long_text(reply: &OperationReply) -> Option<&BString> {
    match reply {
        OperationReply::Attr { value: Ok(text), .. }
        | OperationReply::File(Ok(Some(text)))
        | OperationReply::State(Ok(text))
        | OperationReply::Files(Ok(text)) => Some(text),
        _ => None,
    }
}

/// The same reply with another text.
fn with_text(reply: &OperationReply, text: Result<BString, Errno>) -> OperationReply {
    match reply {
        OperationReply::Attr { place, waited, .. } => {
            OperationReply::Attr { place: place.clone(), value: text, waited: *waited }
        }
        OperationReply::File(_) => OperationReply::File(text.map(Some)),
        OperationReply::State(_) => OperationReply::State(text),
        OperationReply::Files(_) => OperationReply::Files(text),
        other => other.clone(),
    }
}

fn encode_reply(reply: &OperationReply) -> Vec<u8> {
    let number = |result: Result<u32, Errno>| match result {
        Ok(value) => [0i32.to_ne_bytes(), value.to_ne_bytes()].concat(),
        Err(errno) => [errno.0.to_ne_bytes(), [0; 4]].concat(),
    };
    match reply {
        OperationReply::Done(result) => message(1, &[&number(result.map(|()| 0))]),
        OperationReply::Attr { place, value, waited } => {
            let start = [&number(Ok(u32::from(*waited))), place.devpath.as_slice(), &place.name];
            match value {
                Ok(text) => message(2, &[&start[..], &[&number(Ok(0)), text]].concat()),
                Err(errno) => message(2, &[&start[..], &[&number(Err(*errno)), &[]]].concat()),
            }
        }
        OperationReply::File(Ok(Some(text))) => message(11, &[&number(Ok(0)), text]),
        OperationReply::File(Ok(None)) => message(11, &[&number(Ok(0))]),
        OperationReply::File(Err(errno)) => message(11, &[&number(Err(*errno))]),
        OperationReply::State(Ok(text)) => message(14, &[&number(Ok(0)), text]),
        OperationReply::State(Err(errno)) => message(14, &[&number(Err(*errno))]),
        OperationReply::Files(Ok(text)) => message(15, &[&number(Ok(0)), text]),
        OperationReply::Files(Err(errno)) => message(15, &[&number(Err(*errno))]),
        OperationReply::Mode(Ok(None)) => message(12, &[]),
        OperationReply::Mode(Ok(Some(mode))) => message(12, &[&number(Ok(*mode))]),
        OperationReply::Mode(Err(errno)) => message(12, &[&number(Err(*errno))]),
        OperationReply::Partitions(result) => message(3, &[&number(result.map(u32::from))]),
        OperationReply::Lock(result) => message(8, &[&number(result.map(lock_number))]),
        OperationReply::Triggered { done, failed } => message(4, &[&number(Ok(*done)), &number(Ok(*failed))]),
        OperationReply::TimedOut => message(5, &[]),
        OperationReply::Died => message(6, &[]),
        OperationReply::Refused => message(13, &[]),
        OperationReply::Address(Ok(address)) => message(7, &[&number(Ok(0)), address]),
        OperationReply::Address(Err(errno)) => message(7, &[&number(Err(*errno)), &[]]),
    }
}

fn decode_reply(bytes: &[u8]) -> Option<OperationReply> {
    let (&kind, rest) = bytes.split_first()?;
    let texts = texts(rest)?;
    let number = |at: usize| -> Option<Result<u32, Errno>> {
        let (errno, value) = texts.get(at)?.split_at_checked(4)?;
        let value = u32::from_ne_bytes(value.try_into().ok()?);
        let errno = i32::from_ne_bytes(errno.try_into().ok()?);
        Some(if errno == 0 { Ok(value) } else { Err(Errno(errno)) })
    };
    let text = |at: usize| texts.get(at).map(|&text| text.to_owned());
    Some(match kind {
        1 => OperationReply::Done(number(0)?.map(drop)),
        2 => OperationReply::Attr {
            waited: number(0)?.ok()? != 0,
            place: AttrPlace { devpath: text(1)?, name: text(2)? },
            value: match number(3)? {
                Ok(_) => Ok(text(4)?),
                Err(errno) => Err(errno),
            },
        },
        3 => OperationReply::Partitions(number(0)?.map(|n| n != 0)),
        4 => OperationReply::Triggered { done: number(0)?.ok()?, failed: number(1)?.ok()? },
        5 => OperationReply::TimedOut,
        6 => OperationReply::Died,
        13 => OperationReply::Refused,
        7 => match number(0)? {
            Ok(_) => OperationReply::Address(Ok(text(1)?)),
            Err(errno) => OperationReply::Address(Err(errno)),
        },
        8 => OperationReply::Lock(number(0)?.map(lock_state)),
        11 => OperationReply::File(number(0)?.map(|_| text(1))),
        14 => OperationReply::State(match number(0)? {
            Ok(_) => Ok(text(1)?),
            Err(errno) => Err(errno),
        }),
        15 => OperationReply::Files(match number(0)? {
            Ok(_) => Ok(text(1)?),
            Err(errno) => Err(errno),
        }),
        12 => OperationReply::Mode(number(0).map_or(Ok(None), |mode| mode.map(Some))),
        _ => return None,
    })
}

const HELD: u32 = 0;
const BUSY: u32 = 1;
const NOT_NEEDED: u32 = 2;

fn lock_number(lock: LockState) -> u32 {
    match lock {
        LockState::Held => HELD,
        LockState::Busy => BUSY,
        LockState::NotNeeded => NOT_NEEDED,
    }
}

fn lock_state(number: u32) -> LockState {
    match number {
        HELD => LockState::Held,
        NOT_NEEDED => LockState::NotNeeded,
        _ => LockState::Busy,
    }
}

pub(super) fn message(kind: u8, texts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![kind];
    for text in texts {
        bytes.extend_from_slice(&(text.len() as u32).to_ne_bytes());
        bytes.extend_from_slice(text);
    }
    bytes
}

fn texts(mut bytes: &[u8]) -> Option<Vec<&BStr>> {
    let mut texts = Vec::new();
    while !bytes.is_empty() {
        let (len, rest) = bytes.split_at_checked(4)?;
        let (text, rest) = rest.split_at_checked(u32::from_ne_bytes(len.try_into().ok()?) as usize)?;
        texts.push(text.as_bstr());
        bytes = rest;
    }
    Some(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(devpath: &str, name: &str) -> AttrPlace {
        AttrPlace { devpath: devpath.into(), name: name.into() }
    }

    #[test]
    fn operations_go_both_ways_and_cut_ones_are_refused() {
        let all = [
            Operation::WriteAttr { path: "/sys/a".into(), value: "1".into() },
            Operation::WriteSysctl { path: "/proc/sys/a".into(), value: "".into() },
            Operation::ReadAttr { sys: "/sys".into(), place: attr("/devices/a", "b") },
            Operation::ReadFile { path: "/etc/a".into() },
            Operation::LookAtRules { rules: vec!["/a".into(), "/b".into()], links: vec!["/c".into()] },
            Operation::ReadRules {
                roots: Box::new(["/a", "/b", "/c", "/d"].map(BString::from)),
                rules: vec!["/e".into()],
            },
            Operation::TestFile { path: "/etc/b".into() },
            Operation::PermanentAddress { ifname: "eth0".into() },
            Operation::ReReadPartitions { devnode: "/dev/sda".into(), syspath: "/sys/block/sda".into() },
            Operation::Trigger { text: "add".into(), syspaths: vec!["/sys/a".into(), "/sys/b".into()] },
            Operation::LockDisk { path: "/dev/sda".into() },
            Operation::CloseDisk { disk: "/dev/sda".into() },
            Operation::SetReadOnly { path: "/dev/sda".into(), devnum: DevNum { major: 8, minor: 0 } },
        ];
        for operation in all {
            let bytes = encode(&operation);
            assert_eq!(decode(&bytes), Some(operation.clone()));
            for cut in 0..bytes.len() {
                assert_ne!(decode(&bytes[..cut]), Some(operation.clone()));
            }
        }
        for bytes in [&[][..], &[99], &[3, 0xff, 0xff, 0xff, 0xff], &[9]] {
            assert_eq!(decode(bytes), None);
        }
    }

    #[test]
    fn replies_go_both_ways() {
        let all = [
            OperationReply::Done(Ok(())),
            OperationReply::Done(Err(Errno(libc::EBUSY))),
            OperationReply::Attr { place: attr("/devices/a", "b"), value: Ok("".into()), waited: false },
            OperationReply::Attr { place: attr("/devices/a", "b"), value: Ok("1".into()), waited: true },
            OperationReply::Attr {
                place: attr("/devices/a", "b"),
                value: Err(Errno(libc::EIO)),
                waited: true,
            },
            OperationReply::Attr {
                place: attr("/devices/a", "b"),
                value: Ok(vec![b'x'; MAX_INLINE].into()),
                waited: true,
            },
            OperationReply::Attr {
                place: attr("/devices/a", "b"),
                value: Ok(vec![b'x'; MAX_INLINE + 1].into()),
                waited: true,
            },
            OperationReply::Attr {
                place: attr("/devices/a", "b"),
                value: Ok(vec![b'x'; files::IMPORT_MAX].into()),
                waited: false,
            },
            OperationReply::File(Ok(Some("".into()))),
            OperationReply::File(Ok(Some(vec![b'x'; files::IMPORT_MAX].into()))),
            OperationReply::File(Ok(None)),
            OperationReply::File(Err(Errno(libc::EIO))),
            OperationReply::State(Ok("x".into())),
            OperationReply::State(Ok(vec![b'x'; MAX_INLINE + 1].into())),
            OperationReply::State(Err(Errno(libc::EIO))),
            OperationReply::Files(Ok("".into())),
            OperationReply::Files(Ok(vec![b'x'; 2 * files::IMPORT_MAX].into())),
            OperationReply::Files(Err(Errno(libc::EFBIG))),
            OperationReply::Mode(Ok(Some(0o100644))),
            OperationReply::Mode(Ok(None)),
            OperationReply::Mode(Err(Errno(libc::EIO))),
            OperationReply::Address(Ok("\0\x01\x02".into())),
            OperationReply::Address(Ok("".into())),
            OperationReply::Address(Err(Errno(libc::ENODEV))),
            OperationReply::Partitions(Ok(true)),
            OperationReply::Partitions(Err(Errno(libc::EBUSY))),
            OperationReply::Triggered { done: 7, failed: 1 },
            OperationReply::Lock(Ok(LockState::Busy)),
            OperationReply::Lock(Ok(LockState::NotNeeded)),
            OperationReply::Lock(Err(Errno(libc::EACCES))),
            OperationReply::TimedOut,
            OperationReply::Refused,
            OperationReply::Died,
        ];
        for reply in all {
            let (bytes, passed) = pack(&reply);
            assert!(bytes.len() < MAX_MESSAGE);
            let (unpacked, opened) = unpack(&bytes, passed).expect("a reply");
            assert!(unpacked == reply && opened.is_none(), "{reply:?}");
            for cut in 0..bytes.len().min(100) {
                let _ = unpack(&bytes[..cut], None);
            }
        }
    }

    #[test]
    fn a_lock_comes_with_its_file_or_not_at_all() {
        let held = OperationReply::Lock(Ok(LockState::Held));
        let (bytes, _) = pack(&held);
        assert!(unpack(&bytes, None).is_none());
        let (reply, file) =
            unpack(&bytes, Some(std::fs::File::open("/dev/null").unwrap().into())).expect("a reply");
        assert!(reply == held && file.is_some());
    }
}
