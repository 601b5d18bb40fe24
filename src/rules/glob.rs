//! Shell patterns, exactly as `fnmatch(3)` with flags 0 (or FNM_CASEFOLD) treats them in the C locale
//! of glibc: `*` and `?` also match `/` and a leading dot, sets are sets of bytes. Folding is that of
//! FNM_CASEFOLD too: it holds for plain bytes and the ends of ranges, not for classes and `[.x.]`, `[=x=]`.
//!
//! A pattern is translated once into elements; matching goes back to the last `*` only. Where that begins to
//! take long, what stands between the `*` is looked for in one pass ([`search`]). Tests compare with the C library.
//!
//! The C library reads a set in two ways: once it has found the byte it only looks for the end, and then it
//! takes some brackets otherwise than before (`[5+-[:digit:]]` ends at the first `]` or at the second). What
//! follows such a set depends on the byte; it is matched by [`Forks`], slower, for all readings at once.

mod forks;
mod search;

use bstr::{BString, ByteSlice, ByteVec};
use forks::Forks;

/// Comparisons of one match, for each byte of the text and besides, before another way is taken. Almost no pattern
/// needs that many.
const STEPS_PER_BYTE: usize = 8;
const STEPS_MIN: usize = 256;

/// Brackets of one pattern that are not closed, or that close in several places: for each of them the rest of the
/// pattern is read. A pattern with more matches nothing.
const MAX_OPEN_BRACKETS: usize = 64;

/// Steps of reading and matching patterns in this thread: tests look at how they grow.
#[cfg(test)]
mod work {
    use std::cell::Cell;

    thread_local! { static STEPS: Cell<usize> = const { Cell::new(0) } }

    pub fn add(steps: usize) {
        STEPS.set(STEPS.get() + steps);
    }

    /// The steps that something takes.
    pub fn of<T>(task: impl FnOnce() -> T) -> (T, usize) {
        STEPS.set(0);
        let result = task();
        (result, STEPS.get())
    }
}

#[cfg(not(test))]
mod work {
    pub fn add(_steps: usize) {}
}

/// Whether `text` matches `pattern`, a case-sensitive shell pattern without alternatives.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    Glob::new(pattern, false).matches(text)
}

/// Whether `text` has a byte that makes it a shell pattern in the rules language (rules.md 3.1).
/// A lone backslash does not.
pub fn is_glob(text: &[u8]) -> bool {
    text.iter().any(|b| matches!(b, b'*' | b'?' | b'['))
}

/// A translated pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob {
    elements: Vec<Element>,
    /// Bytes of `elements` are lower case and so is what they are compared with.
    ignore_case: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Element {
    Byte(u8),
    AnyByte,
    /// `*`.
    AnyRun,
    Set(Box<ByteSet>),
    /// From the last `*` in front of a set with several ends on, or from the beginning; always the last element.
    Forks(Box<Forks>),
    /// An ill-formed rest (backslash at the end, unknown class): nothing matches.
    Never,
}

/// What a pattern is when it is simpler than a glob.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    Literal(BString),
    /// `text*`.
    Prefix(BString),
    /// `*text`.
    Suffix(BString),
    /// `*`.
    Anything,
    Other,
}

impl Glob {
    /// Translates `pattern`; never fails.
    pub fn new(pattern: &[u8], ignore_case: bool) -> Glob {
        let mut elements = Vec::with_capacity(pattern.len());
        let mut rest = pattern;
        // Behind the last `*`: how many elements there are before it, and the pattern from there on.
        let (mut kept, mut segment) = (0, pattern);
        let mut open_brackets = 0;
        while !rest.is_empty() {
            let (piece, length) = parse_piece(rest, ignore_case);
            if rest[0] == b'[' && length == 1 {
                open_brackets += 1;
            }
            if open_brackets > MAX_OPEN_BRACKETS {
                elements.push(Element::Never);
                break;
            }
            rest = &rest[length..];
            match piece {
                Piece::Element(Element::AnyRun) => {
                    if elements.last() != Some(&Element::AnyRun) {
                        elements.push(Element::AnyRun);
                    }
                    (kept, segment) = (elements.len(), rest);
                }
                Piece::Element(element) => elements.push(element),
                Piece::Fork(_) => {
                    elements.truncate(kept);
                    elements.push(Element::Forks(Box::new(Forks::new(segment, ignore_case))));
                    break;
                }
            }
        }
        Glob { elements, ignore_case }
    }

    /// Whether the whole of `text` matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.matches_within(text, text.len() * STEPS_PER_BYTE + STEPS_MIN)
    }

    /// The same, with so many comparisons that may come to nothing.
    fn matches_within(&self, text: &[u8], mut steps_left: usize) -> bool {
        let (mut at, mut from) = (0, 0);
        // Where to go on after a mismatch: behind the last `*`, and the text it has not swallowed yet.
        let mut retry = None;
        loop {
            work::add(1);
            match (self.elements.get(at), text.get(from)) {
                (Some(Element::AnyRun), _) => {
                    at += 1;
                    if at == self.elements.len() {
                        return true;
                    }
                    retry = Some((at, from));
                    continue;
                }
                (Some(Element::Forks(forks)), _) => return forks.matches(&text[from..], retry.is_some()),
                (Some(element), Some(&byte)) if self.accepts(element, byte) => {
                    at += 1;
                    from += 1;
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            match &mut retry {
                Some((behind_star, start)) if *start < text.len() => {
                    let steps = from - *start + 1;
                    if steps > steps_left {
                        return self.search(&self.elements[*behind_star..], &text[*start + 1..]);
                    }
                    steps_left -= steps;
                    *start += 1;
                    (at, from) = (*behind_star, *start);
                }
                _ => return false,
            }
        }
    }

    fn accepts(&self, element: &Element, byte: u8) -> bool {
        match element {
            Element::Byte(wanted) => *wanted == fold(byte, self.ignore_case),
            Element::AnyByte | Element::AnyRun => true,
            Element::Set(set) => set.contains(byte),
            Element::Forks(_) | Element::Never => false,
        }
    }

    /// The cheaper form of this pattern, if it has one. Text is lower case when case is ignored.
    pub fn shape(&self) -> Shape {
        fn text(elements: &[Element]) -> Option<BString> {
            let byte = |e: &Element| if let Element::Byte(b) = e { Some(*b) } else { None };
            elements.iter().map(byte).collect::<Option<Vec<u8>>>().map(BString::from)
        }
        let other = |shape: Option<Shape>| shape.unwrap_or(Shape::Other);
        match self.elements.as_slice() {
            [Element::AnyRun] => Shape::Anything,
            [Element::AnyRun, rest @ ..] => other(text(rest).map(Shape::Suffix)),
            [rest @ .., Element::AnyRun] => other(text(rest).map(Shape::Prefix)),
            all => other(text(all).map(Shape::Literal)),
        }
    }

    /// The bytes that every matching text begins with (lower case when case is ignored).
    pub fn literal_prefix(&self) -> BString {
        let mut prefix = BString::default();
        for element in &self.elements {
            let Element::Byte(byte) = element else { break };
            prefix.push_byte(*byte);
        }
        prefix
    }
}

/// One piece of a pattern.
enum Piece {
    Element(Element),
    /// A set whose end depends on the byte: which bytes it takes, and how long it is for them.
    Fork(Vec<Branch>),
}

/// Parses the first piece of a pattern, which is not empty, and its length; that of a fork counts for nothing.
fn parse_piece(pattern: &[u8], ignore_case: bool) -> (Piece, usize) {
    let (element, length) = match *pattern {
        [b'?', ..] => (Element::AnyByte, 1),
        [b'*', ..] => (Element::AnyRun, 1),
        [b'\\', escaped, ..] => (Element::Byte(fold(escaped, ignore_case)), 2),
        [b'\\'] | [] => (Element::Never, 1),
        [b'[', ref set @ ..] => {
            let mut branches = parse_set(set, ignore_case);
            match (branches.pop(), branches.is_empty()) {
                (None, _) => (Element::Never, 1),
                // An opening bracket that is never closed is an ordinary byte.
                (Some((_, 0)), true) => (Element::Byte(b'['), 1),
                (Some((set, length)), true) => (Element::Set(Box::new(set)), 1 + length),
                (Some(last), false) => {
                    branches.push(last);
                    branches.iter_mut().for_each(|(_, length)| *length += 1);
                    return (Piece::Fork(branches), 1);
                }
            }
        }
        [byte, ..] => (Element::Byte(fold(byte, ignore_case)), 1),
    };
    (Piece::Element(element), length)
}

fn fold(byte: u8, ignore_case: bool) -> u8 {
    if ignore_case { byte.to_ascii_lowercase() } else { byte }
}

/// A set of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct ByteSet([u64; 4]);

impl ByteSet {
    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn contains(&self, byte: u8) -> bool {
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
type Branch = (ByteSet, usize);

/// Parses what follows `[`, for all bytes at once. Almost every set has one branch; none: it takes no byte. If
/// there is no closing bracket, the opening one is an ordinary byte: a branch of length 0.
fn parse_set(text: &[u8], ignore_case: bool) -> Vec<Branch> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fnmatch::fnmatch;
    use proptest::prelude::*;

    #[test]
    fn patterns_match_like_the_c_library() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", ".a/b", true),
            ("a?c", "a/c", true),
            ("?", "", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("*a", "aaab", false),
            ("sd[a-z]", "sdq", true),
            ("sd[!a-z]", "sdq", false),
            ("sd[^a-z]", "sd1", true),
            ("[]x]", "]", true),
            ("[!]x]", "]", false),
            ("[]-a]", "^", true),
            ("[a-]", "-", true),
            ("[[:digit:]x]", "7", true),
            ("[[:digit:]x]", "x", true),
            ("[[:nosuch:]]", "x", false),
            ("[[:digit:", ":", false),
            ("[abc", "[abc", true),
            ("[abc", "a", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("a\\", "a\\", false),
            ("[\\]]", "]", true),
            ("[a\\-z]", "m", false),
            ("[[=a=]]", "a", true),
            ("[[.-.]]", "-", true),
            ("[z-a]", "m", false),
            ("[[:z:]", "z", true),
            ("[x[:nosuch:]y]", "x", true),
            ("[x[:nosuch:]y]", "y", false),
            ("[!x[:nosuch:]y]", "z", false),
            ("[x[.bb.]y]", "x", true),
            ("[x[.bb]y]", "x", false),
            ("[[.b.]-]", "b", false),
            ("[[.b.]-]", "-", true),
            ("[a-[.z.]]", "q", true),
            ("[+-[:digit:]]", "5", false),
            ("[+-[:digit:]]", "5]", true),
            ("[5+-[:digit:]]", "5", true),
            ("[5+-[:digit:]]", "5]", false),
            ("[5+-[:digit:]]", "6]", true),
            ("x*[5+-[:digit:]]*y", "x6]5y", true),
            ("x*[5+-[:digit:]]y", "x5y6y", false),
            ("[!5+-[:digit:]]", "~]", true),
            ("[+-[=b=]]", "=]", true),
            ("[Z-[:nosuch:]]", "Z]", true),
            ("[a-", "[a-", false),
            ("[a[-", "[a[-", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} on {text}");
            assert_eq!(
                fnmatch(pattern.as_bytes(), text.as_bytes(), false),
                expected,
                "C: {pattern} on {text}"
            );
        }
    }

    #[test]
    fn folding_leaves_out_classes_and_bytes_written_by_name() {
        for (pattern, matching, other) in [
            ("[[:upper:]]", "AZ", "az"),
            ("[[:lower:]B]", "azbB", "AZ"),
            ("[b-D]", "bBcCdD", "aAeE"),
            ("[[=b=]]", "b", "B"),
            ("[[.B.]]", "B", "b"),
            ("[[.B.]-D]", "ABCDabcd[_", "Ee"),
            ("[[.b.]-D]", "BCDbcd", "Aa_"),
            ("[B-[.D.]]", "", "BCDbcd"),
            ("[x[:nosuch:]y]", "xX", "yY"),
        ] {
            let texts = matching.bytes().map(|b| (b, true)).chain(other.bytes().map(|b| (b, false)));
            for (byte, expected) in texts {
                let found = Glob::new(pattern.as_bytes(), true).matches(&[byte]);
                assert_eq!(found, expected, "{pattern} on {}", byte as char);
                assert_eq!(fnmatch(pattern.as_bytes(), &[byte], true), expected, "C: {pattern}");
            }
        }
    }

    #[test]
    fn shapes_are_recognised_and_unescaped() {
        let shape = |p: &str| Glob::new(p.as_bytes(), false).shape();
        assert_eq!(shape("a\\*b"), Shape::Literal("a*b".into()));
        assert_eq!(shape("ab*"), Shape::Prefix("ab".into()));
        assert_eq!(shape("**ab"), Shape::Suffix("ab".into()));
        assert_eq!(shape("***"), Shape::Anything);
        assert_eq!(shape("a*b"), Shape::Other);
        assert_eq!(shape("a?"), Shape::Other);
        assert_eq!(Glob::new(b"ab[c]d", false).literal_prefix(), "ab");
    }

    /// Patterns that go back as far as they can, against half a mebibyte of one byte: to go back each time would
    /// take a thousand million steps, even half a minute where it is quadratic in the pattern only.
    #[test]
    fn matching_takes_time_linear_in_the_text() {
        let a = |n: usize| "a".repeat(n);
        let text = a(128 * 1024).into_bytes();
        for pattern in [
            format!("*{}b", a(2000)),
            format!("*{}?b", a(2000)),
            format!("*{}[ab]{}c", a(1000), a(1000)),
            format!("*{}b*", a(2000)),
            format!("*?{}[bc]*?c", a(2000)),
            "a*".repeat(1000) + "b",
            "a?*".repeat(600) + "[bc]*",
            "*[5+-[:digit:]]b".into(),
            "*[a+-[:digit:]]b".into(),
            format!("*{}[a+-[:digit:]]b", a(600)),
            format!("*[a+-[:digit:]]{}b", a(600)),
            format!("[a+-[:digit:]]*{}b", a(600)),
        ] {
            for ignore_case in [false, true] {
                let glob = Glob::new(pattern.as_bytes(), ignore_case);
                let (matches, half) = work::of(|| glob.matches(&text[..text.len() / 2]));
                assert!(!matches, "{pattern}");
                let (matches, whole) = work::of(|| glob.matches(&text));
                assert!(!matches, "{pattern}");
                // Two steps for each byte, besides those that come to nothing, of 64 elements each.
                let elements = 2 + glob.elements.len().div_ceil(64).max(32);
                assert!(whole <= (STEPS_PER_BYTE + 2 * elements) * text.len(), "{whole}: {pattern}");
                assert!(2 * whole <= 5 * half, "{half}, then {whole}: {pattern}");
            }
        }
    }

    #[test]
    fn patterns_full_of_open_brackets_are_read_in_bounded_time() {
        let text = "[".repeat(MAX_OPEN_BRACKETS);
        assert!(matches(text.as_bytes(), text.as_bytes()));
        for piece in ["[", "[a", "[a-", "[[=a=]", "[\\]", "[5+-[:digit:]]", "[a+-[=b=]]*"] {
            let pattern = piece.repeat(16 * 1024 / piece.len());
            let (matches, steps) = work::of(|| matches(pattern.as_bytes(), pattern.as_bytes()));
            assert!(!matches, "{piece}");
            // For each open bracket, and each byte that it may take, the rest is read.
            assert!(steps <= 4 * MAX_OPEN_BRACKETS * pattern.len(), "{steps}: {piece}");
        }
    }

    /// Pieces that meet the corners of sets more often than random bytes would.
    fn pattern() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just("*"),
            Just("?"),
            Just("["),
            Just("]"),
            Just("!"),
            Just("^"),
            Just("-"),
            Just("\\"),
            Just("a"),
            Just("b"),
            Just("B"),
            Just("Z"),
            Just("z"),
            Just("["),
            Just("[a-c]"),
            Just("[!b]"),
            Just("[[:alpha:]"),
            Just("[[:upper:]]"),
            Just("[[:lower:]-b]"),
            Just(":]"),
            Just("[:"),
            Just("."),
            Just("[[=b=]]"),
            Just("[[=B=]]"),
            Just("[[.b.]]"),
            Just("[[.B.]"),
            Just("[.bb.]"),
            Just("[:z:]"),
            Just("[A-c]"),
            Just("[a-Z]"),
            Just("/"),
            Just("é"),
        ];
        proptest::collection::vec(piece, 0..8).prop_map(|p| p.concat().into_bytes())
    }

    /// Patterns out of the bytes that sets are made of, against all short texts of the same bytes.
    #[test]
    fn patterns_full_of_brackets_agree_with_fnmatch() {
        const PIECES: &[&str] = &[
            "[",
            "[",
            "[",
            "]",
            "]",
            "!",
            "^",
            "-",
            "-",
            "\\",
            ":",
            ".",
            "=",
            "*",
            "?",
            "a",
            "b",
            "c",
            "[:",
            ":]",
            "[.",
            ".]",
            "[=",
            "=]",
            "[:alpha:]",
            "[:z:]",
            "[=b=]",
            "[.b.]",
            "[.bc.]",
            "-[",
            "A",
            "B",
        ];
        const BYTES: &[u8] = b"[]!^-\\:.=*?abcBC";
        let count = std::env::var("GLOB_PATTERNS").map_or(2000, |n| n.parse().expect("a number"));
        let mut texts: Vec<Vec<u8>> = BYTES.iter().map(|&b| vec![b]).collect();
        texts.extend(BYTES.iter().flat_map(|&a| BYTES.iter().map(move |&b| vec![a, b])));
        texts.push(Vec::new());
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % limit
        };
        for _ in 0..count {
            let length = 1 + random(10);
            let pattern = (0..length).map(|_| PIECES[random(PIECES.len())]).collect::<String>().into_bytes();
            let long = (0..3 + random(4)).map(|_| BYTES[random(BYTES.len())]).collect();
            for ignore_case in [false, true] {
                let glob = Glob::new(&pattern, ignore_case);
                for text in texts.iter().chain([&long]) {
                    let expected = fnmatch(&pattern, text, ignore_case);
                    assert_eq!(
                        (glob.matches(text), glob.matches_within(text, 0)),
                        (expected, expected),
                        "{:?} on {:?}, ignoring case: {ignore_case}",
                        pattern.as_bstr(),
                        text.as_bstr()
                    );
                }
            }
        }
    }

    /// Readings of a set with several ends go on for long, beside each other or together.
    #[test]
    fn what_follows_a_set_with_several_ends_may_be_long() {
        const BYTES: &[u8] = b"[]5+-b\\a";
        let mut heads: Vec<Vec<u8>> = BYTES.iter().map(|&a| vec![a]).collect();
        heads.extend(BYTES.iter().flat_map(|&a| BYTES.iter().map(move |&b| vec![a, b])));
        let mut matching = 0;
        for set in [
            "[5+-[:digit:]]",
            "*[a+-[:digit:]]",
            "[a+-[:digit:]]*",
            "[!5+-[:digit:]]",
            "[+-[=b=]]",
            "[5+-[.b]",
        ] {
            for (body, text) in [
                ("a?".repeat(40), "ab".repeat(40)),
                ("a***?".repeat(40), "ab".repeat(40)),
                ("\\\\".repeat(100), "\\".repeat(100)),
                ("[ab]b]".repeat(30) + "[ab", "bb]".repeat(30) + "[ab"),
            ] {
                for end in ["", "*", "]", "[5+-[:digit:]]"] {
                    let pattern = [set, &body, end].concat().into_bytes();
                    for (head, tail) in heads.iter().zip(["", "]", "5", "5]"].iter().cycle()) {
                        let text = [head.as_slice(), text.as_bytes(), tail.as_bytes()].concat();
                        let expected = fnmatch(&pattern, &text, false);
                        matching += usize::from(expected);
                        assert_eq!(
                            matches(&pattern, &text),
                            expected,
                            "{} on {}",
                            pattern.as_bstr(),
                            text.as_bstr()
                        );
                    }
                }
            }
        }
        assert!(matching > 50, "{matching}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..Default::default() })]
        #[test]
        fn any_pattern_agrees_with_fnmatch(pattern in pattern(), text in "[]\\[a-cA-CzZ!^:.\\\\/é-]{0,6}", fold: bool) {
            let (glob, expected) = (Glob::new(&pattern, fold), fnmatch(&pattern, text.as_bytes(), fold));
            prop_assert_eq!((glob.matches(text.as_bytes()), glob.matches_within(text.as_bytes(), 0)),
                (expected, expected),
                "{:?} on {:?}", String::from_utf8_lossy(&pattern), text);
        }

        /// Few different bytes and long pieces, so that pieces are found late and overlap themselves.
        #[test]
        fn long_pieces_are_found_where_going_back_finds_them(
            pattern in "([ab?*]|\\[ab\\]){1,9}[*]([aB?]|\\[!b\\]){60,140}[*]?[ab]{0,3}",
            repeated in "[ab]{1,4}",
            tail in "[abc]{0,6}",
            fold: bool,
        ) {
            let text = repeated.repeat(70) + &tail + &repeated.repeat(20);
            let glob = Glob::new(pattern.as_bytes(), fold);
            prop_assert_eq!(glob.matches_within(text.as_bytes(), 0), glob.matches_within(text.as_bytes(), usize::MAX));
        }

        #[test]
        fn no_pattern_panics(pattern: Vec<u8>, text: Vec<u8>, fold: bool) {
            let _ = Glob::new(&pattern, fold).matches(&text);
        }
    }
}
