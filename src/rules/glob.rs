//! Shell patterns, exactly as `fnmatch(3)` with flags 0 (or FNM_CASEFOLD) treats them in the C locale
//! of glibc: `*` and `?` also match `/` and a leading dot, sets are sets of bytes. Folding is that of
//! FNM_CASEFOLD too: it holds for plain bytes and the ends of ranges, not for classes and `[.x.]`, `[=x=]`.
//!
//! A pattern is translated once into elements; matching goes back to the last `*` only, so that its
//! cost is at most pattern length times subject length. Tests compare with the C library.

use bstr::{BString, ByteSlice, ByteVec};

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
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            elements.push(match byte {
                b'?' => Element::AnyByte,
                b'*' if elements.last() == Some(&Element::AnyRun) => continue,
                b'*' => Element::AnyRun,
                b'\\' => match rest.split_first() {
                    Some((&escaped, after)) => {
                        rest = after;
                        Element::Byte(fold(escaped, ignore_case))
                    }
                    None => Element::Never,
                },
                b'[' => match parse_set(rest, ignore_case) {
                    ParsedSet::Set(set, length) => {
                        rest = &rest[length..];
                        Element::Set(Box::new(set))
                    }
                    ParsedSet::Unterminated => Element::Byte(b'['),
                    ParsedSet::IllFormed => Element::Never,
                },
                _ => Element::Byte(fold(byte, ignore_case)),
            });
        }
        Glob { elements, ignore_case }
    }

    /// Whether the whole of `text` matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        let (mut at, mut from) = (0, 0);
        // Where to go on after a mismatch: behind the last `*`, and the text it has not swallowed yet.
        let mut retry = None;
        loop {
            match (self.elements.get(at), text.get(from)) {
                (Some(Element::AnyRun), _) => {
                    at += 1;
                    if at == self.elements.len() {
                        return true;
                    }
                    retry = Some((at, from));
                    continue;
                }
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
            Element::Never => false,
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

    fn complement(self) -> ByteSet {
        ByteSet(self.0.map(|word| !word))
    }
}

enum ParsedSet {
    /// And its length, the closing bracket included.
    Set(ByteSet, usize),
    /// No closing bracket: the opening one is an ordinary byte.
    Unterminated,
    IllFormed,
}

/// Parses what follows `[`.
fn parse_set(text: &[u8], ignore_case: bool) -> ParsedSet {
    let negated = matches!(text.first(), Some(b'!' | b'^'));
    let begin = usize::from(negated);
    let mut set = ByteSet::default();
    let mut lost = ByteSet::default();
    let mut at = begin;
    loop {
        let Some(&byte) = text.get(at) else { return ParsedSet::Unterminated };
        if byte == b']' && at > begin {
            let set = if negated { set.complement() } else { set };
            return ParsedSet::Set(set.without(lost), at + 1);
        }
        if text[at..].starts_with(b"[=") && !matches!(text[at..], [_, _, _, b'=', b']', ..]) {
            // A quirk of the C library: having found its byte in front of an equivalence class that is
            // not closed, it gives up; having not, it takes the bracket for an ordinary byte.
            lost = lost.with(set);
        }
        match parse_member(&text[at..]) {
            Member::Class(class, length) => {
                set.insert_all(class);
                at += length;
            }
            Member::Byte(byte, length) => {
                let wanted = byte.folded(ignore_case);
                set.insert(wanted);
                if ignore_case && matches!(byte, Endpoint::Plain(_)) {
                    set.insert(wanted.to_ascii_uppercase());
                }
                at += length;
            }
            Member::Range(low, high, length) => {
                let range = low.folded(ignore_case)..=high.folded(ignore_case);
                match ignore_case {
                    true => set.insert_all(|b| range.contains(&fold(b, true))),
                    false => range.for_each(|b| set.insert(b)),
                }
                at += length;
            }
            Member::Nothing(length) => at += length,
            // It gives up there, too, unless it has found its byte before.
            Member::IllFormed => {
                return match end_of_set(text, at) {
                    Some(end) if !negated => ParsedSet::Set(set.without(lost), end),
                    _ => ParsedSet::IllFormed,
                };
            }
        }
    }
}

/// Where a set ends that goes on at `at` with members which do not matter any more, as their byte was
/// found; None if it does not end.
fn end_of_set(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let rest = &text[at..];
        at += match rest {
            [b']', ..] => return Some(at + 1),
            [b'\\', _, ..] => 2,
            [b'[', b'.', inner @ ..] => inner.find(b".]")? + 4,
            [b'[', b'=', _, b'=', b']', ..] => 5,
            [b'[', b'=', ..] | [b'\\'] | [] => return None,
            _ => class_name(rest).map_or(1, |name| name.len() + 4),
        }
    }
}

enum Member {
    Class(fn(u8) -> bool, usize),
    /// And its length in the pattern.
    Byte(Endpoint, usize),
    /// First, last, length in the pattern.
    Range(Endpoint, Endpoint, usize),
    /// Something of this length that stands for no byte.
    Nothing(usize),
    IllFormed,
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

/// The name in `[:name:]`, with which `text` begins; what cannot be one makes `[` an ordinary byte. The
/// C library takes `a` to `y` for the letters of a name.
fn class_name(text: &[u8]) -> Option<&[u8]> {
    let inner = text.strip_prefix(b"[:")?;
    let name = &inner[..inner.iter().take_while(|b| matches!(b, b'a'..=b'y')).count()];
    inner[name.len()..].starts_with(b":]").then_some(name)
}

/// Parses one member of a set: a byte, an escaped byte, a range, a class; `text` is not empty.
fn parse_member(text: &[u8]) -> Member {
    if let Some(name) = class_name(text) {
        return match class(name) {
            Some(class) => Member::Class(class, name.len() + 4),
            None => Member::IllFormed,
        };
    }
    if let [b'[', b'=', byte, b'=', b']', ..] = *text {
        return Member::Byte(Endpoint::Named(byte), 5);
    }
    let Some((low, length)) = parse_endpoint(text) else { return Member::IllFormed };
    match (&text[length..], low) {
        // Another quirk: a name in front of a final `-` counts for nothing.
        ([b'-', b']', ..], Endpoint::Named(_)) => Member::Nothing(length),
        ([b'-', after @ ..], _) if !after.is_empty() && after[0] != b']' => match parse_endpoint(after) {
            Some((high, more)) => Member::Range(low, high, length + 1 + more),
            None => Member::IllFormed,
        },
        _ => Member::Byte(low, length),
    }
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

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        let pattern = b"a*".repeat(200);
        let mut text = b"a".repeat(2000);
        text.push(b'b');
        let mut pattern = pattern;
        pattern.push(b'c');
        assert!(!matches(&pattern, &text));
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

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..Default::default() })]
        #[test]
        fn any_pattern_agrees_with_fnmatch(pattern in pattern(), text in "[]\\[a-cA-CzZ!^:.\\\\/é-]{0,6}", fold: bool) {
            // A range up to such a bracket is the one form that the C library reads in two ways, and so
            // finds two ends of: a class when it has found its byte before, the bracket itself when not.
            prop_assume!(!pattern.contains_str("-[:") && !pattern.contains_str("-[="));
            prop_assert_eq!(Glob::new(&pattern, fold).matches(text.as_bytes()),
                fnmatch(&pattern, text.as_bytes(), fold),
                "{:?} on {:?}", String::from_utf8_lossy(&pattern), text);
        }

        #[test]
        fn no_pattern_panics(pattern: Vec<u8>, text: Vec<u8>, fold: bool) {
            let _ = Glob::new(&pattern, fold).matches(&text);
        }
    }
}
