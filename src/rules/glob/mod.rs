//! Shell patterns, exactly as `fnmatch(3)` with flags 0 (or FNM_CASEFOLD) treats them in the C locale
//! of glibc: `*` and `?` also match `/` and a leading dot, sets are sets of bytes. Folding is that of
//! FNM_CASEFOLD too: it holds for plain bytes and the ends of ranges, not for classes and `[.x.]`, `[=x=]`.
//!
//! A pattern is translated once into elements; matching goes back to the last `*` only. Where that begins to
//! take long, what stands between the `*` is looked for in one pass ([`search`]). Tests compare with the C library.
//!
//! A set may have several ends, each for other bytes ([`set`]). What follows such a set is matched by [`Forks`], slower,
//! for all readings at once.

mod forks;
mod machine;
mod search;
mod set;
#[cfg(test)]
mod tests;

use bstr::{BString, ByteVec};
use forks::Forks;
use set::{Branch, ByteSet, parse_set};

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

    pub(super) fn add(steps: usize) {
        STEPS.set(STEPS.get() + steps);
    }

    /// The steps that something takes.
    pub(super) fn of<T>(task: impl FnOnce() -> T) -> (T, usize) {
        STEPS.set(0);
        let result = task();
        (result, STEPS.get())
    }
}

#[cfg(not(test))]
mod work {
    pub(super) fn add(_steps: usize) {}
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
