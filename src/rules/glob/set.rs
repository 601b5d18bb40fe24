//! Sets of bytes (`[...]`), read as the C library reads them.
//!
//! The C library reads a set in two ways: once it has found the byte it only looks for the end, and then it
//! takes some brackets otherwise than before (`[5+-[:digit:]]` ends at the first `]` or at the second). So a set may have
//! several ends, each for other bytes.

use super::{fold, work};
use bstr::ByteSlice;

/// A set of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    pub(super) fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    fn insert_all(&mut self, wanted: impl Fn(u8) -> bool) {
        (0..=u8::MAX).filter(|&b| wanted(b)).for_each(|b| self.insert(b));
    }

    fn with(self, other: ByteSet) -> ByteSet {
        ByteSet(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    fn without(self, other: ByteSet) -> ByteSet {
        ByteSet(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    fn and(self, other: ByteSet) -> ByteSet {
        ByteSet(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    fn complement(self) -> ByteSet {
        ByteSet(self.0.map(|word| !word))
    }
}

/// Bytes that a set takes, and the length of the set for them, the closing bracket included.
pub(super) type Branch = (ByteSet, usize);

/// Parses what follows `[`, for all bytes at once. Almost every set has one branch; none: it takes no byte. If
/// there is no closing bracket, the opening one is an ordinary byte: a branch of length 0.
pub(super) fn parse_set(text: &[u8], ignore_case: bool) -> Vec<Branch> {
    let negated = matches!(text.first(), Some(b'!' | b'^'));
    let begin = usize::from(negated);
    let mut bracket = ByteSet::default();
    bracket.insert(b'[');
    let mut branches = Vec::new();
    let mut found = ByteSet::default();
    let mut at = begin;
    loop {
        work::add(1);
        let Some(&byte) = text.get(at) else {
            add_branch(&mut branches, bracket.without(found), 0);
            return branches;
        };
        if byte == b']' && at > begin {
            let rest = if negated { found.complement() } else { ByteSet::default() };
            add_branch(&mut branches, rest, at + 1);
            return branches;
        }
        let Some(member) = parse_member(&text[at..], ignore_case) else { return branches };
        at += member.length;
        let new = member.bytes.without(found);
        if new != ByteSet::default() {
            found = found.with(new);
            match end_of_set(text, at) {
                End::At(end) if !negated => add_branch(&mut branches, new, end),
                End::Missing => add_branch(&mut branches, new.and(bracket), 0),
                End::At(_) | End::IllFormed => {}
            }
        }
        if member.is_last {
            return branches;
        }
    }
}

fn add_branch(branches: &mut Vec<Branch>, bytes: ByteSet, length: usize) {
    if bytes == ByteSet::default() {
        return;
    }
    match branches.iter_mut().find(|branch| branch.1 == length) {
        Some((set, _)) => *set = set.with(bytes),
        None => branches.push((bytes, length)),
    }
}

/// Where a set ends whose byte was found.
enum End {
    At(usize),
    Missing,
    /// Before its end the C library gives up.
    IllFormed,
}

/// Passes over the members from `at` on, which do not matter any more.
fn end_of_set(text: &[u8], mut at: usize) -> End {
    loop {
        work::add(1);
        let rest = &text[at..];
        at += match rest {
            [] => return End::Missing,
            [b']', ..] => return End::At(at + 1),
            [b'\\', _, ..] => 2,
            [b'[', b'.', inner @ ..] => match inner.find(b".]") {
                Some(length) => length + 4,
                None => return End::IllFormed,
            },
            [b'[', b'=', _, b'=', b']', ..] => 5,
            [b'[', b'=', ..] | [b'\\'] => return End::IllFormed,
            _ => class_name(rest).map_or(1, |name| name.len() + 4),
        }
    }
}

/// The name in `[:name:]`, with which `text` begins; what cannot be one makes `[` an ordinary byte. The
/// C library takes `a` to `y` for the letters of a name.
fn class_name(text: &[u8]) -> Option<&[u8]> {
    let inner = text.strip_prefix(b"[:")?;
    let name = &inner[..inner.iter().take_while(|b| matches!(b, b'a'..=b'y')).count()];
    inner[name.len()..].starts_with(b":]").then_some(name)
}

/// A byte of a set as it is written.
#[derive(Clone, Copy)]
enum Endpoint {
    /// As itself or escaped.
    Plain(u8),
    /// `[.x.]`, `[=x=]`: the C library does not fold these.
    Named(u8),
}

impl Endpoint {
    fn folded(self, ignore_case: bool) -> u8 {
        match self {
            Endpoint::Plain(byte) => fold(byte, ignore_case),
            Endpoint::Named(byte) => byte,
        }
    }
}

/// A member of a set.
struct Member {
    bytes: ByteSet,
    /// In the pattern.
    length: usize,
    /// What follows is ill-formed: the pattern ends in a range without an end.
    is_last: bool,
}

/// Parses one member of a set: a byte, an escaped byte, a range, a class; `text` is not empty. None if it is
/// ill-formed, where the C library gives up.
fn parse_member(text: &[u8], ignore_case: bool) -> Option<Member> {
    let mut bytes = ByteSet::default();
    if let Some(name) = class_name(text) {
        bytes.insert_all(class(name)?);
        return Some(Member { bytes, length: name.len() + 4, is_last: false });
    }
    if let [b'[', b'=', byte, b'=', b']', ..] = *text {
        bytes.insert(byte);
        return Some(Member { bytes, length: 5, is_last: false });
    }
    let (low, length) = parse_endpoint(text)?;
    let first = low.folded(ignore_case);
    let (range, length, is_last) = match (&text[length..], low) {
        // A quirk: a name in front of a final `-` counts for nothing.
        ([b'-'] | [b'-', b']', ..], Endpoint::Named(_)) => {
            return Some(Member { bytes, length, is_last: text.len() == length + 1 });
        }
        ([b'-'], _) => (Some(first..=first), length, true),
        ([b'-', after @ ..], _) if after[0] != b']' => {
            let (high, more) = parse_endpoint(after)?;
            (Some(first..=high.folded(ignore_case)), length + 1 + more, false)
        }
        (_, Endpoint::Plain(_)) => (Some(first..=first), length, false),
        (_, Endpoint::Named(_)) => (None, length, false),
    };
    match range {
        Some(range) if range.start() == range.end() => {
            bytes.insert(first);
            // A byte that is no lower case one of itself is never met folded.
            if ignore_case && fold(first, true) == first {
                bytes.insert(first.to_ascii_uppercase());
            } else if ignore_case {
                bytes = ByteSet::default();
            }
        }
        Some(range) => bytes.insert_all(|byte| range.contains(&fold(byte, ignore_case))),
        None => bytes.insert(first),
    }
    Some(Member { bytes, length, is_last })
}

/// A byte as written in a set (plain, escaped, or `[.x.]`) and the length of that; None if ill-formed.
fn parse_endpoint(text: &[u8]) -> Option<(Endpoint, usize)> {
    match *text {
        [b'[', b'.', byte, b'.', b']', ..] => Some((Endpoint::Named(byte), 5)),
        [b'[', b'.', ..] => None,
        [b'\\', byte, ..] => Some((Endpoint::Plain(byte), 2)),
        [b'\\'] | [] => None,
        [byte, ..] => Some((Endpoint::Plain(byte), 1)),
    }
}

fn class(name: &[u8]) -> Option<fn(u8) -> bool> {
    Some(match name {
        b"alnum" => |b| b.is_ascii_alphanumeric(),
        b"alpha" => |b| b.is_ascii_alphabetic(),
        b"blank" => |b| matches!(b, b' ' | b'\t'),
        b"cntrl" => |b| b.is_ascii_control(),
        b"digit" => |b| b.is_ascii_digit(),
        b"graph" => |b| b.is_ascii_graphic(),
        b"lower" => |b| b.is_ascii_lowercase(),
        b"print" => |b| b.is_ascii_graphic() || b == b' ',
        b"punct" => |b| b.is_ascii_punctuation(),
        b"space" => |b| matches!(b, b' ' | 0x09..=0x0d),
        b"upper" => |b| b.is_ascii_uppercase(),
        b"xdigit" => |b| b.is_ascii_hexdigit(),
        _ => return None,
    })
}
