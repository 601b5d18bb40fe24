//! Looks for the pieces of a pattern between its `*`, each in one pass over the text.
//!
//! The leftmost place of each piece is the best one, since what follows may then stand anywhere behind it. A piece
//! of plain bytes is found in time linear in the text. One with sets or `?` takes a step for each byte of
//! the text and 64 elements: the pieces of the pattern that the text so far ends with are the bits of a number,
//! which moves on by one bit with each byte (Baeza-Yates and Gonnet, "shift-and").

use super::{Element, Glob, work};
use bstr::ByteSlice;

impl Glob {
    /// Whether an end of `text` matches `elements`, in front of which there is a `*`.
    pub(super) fn search(&self, elements: &[Element], text: &[u8]) -> bool {
        let mut rest = text;
        let mut pieces = elements.split(|element| *element == Element::AnyRun).peekable();
        while let Some(piece) = pieces.next() {
            if let [Element::Forks(forks)] = piece {
                return forks.matches(rest, true);
            }
            if pieces.peek().is_none() {
                return self.ends_with(rest, piece);
            }
            match self.find(piece, rest) {
                Some(end) => rest = &rest[end..],
                None => return false,
            }
        }
        true
    }

    /// An empty piece stands behind the `*` at the end of a pattern.
    fn ends_with(&self, text: &[u8], piece: &[Element]) -> bool {
        let Some(start) = text.len().checked_sub(piece.len()) else { return false };
        piece.iter().zip(&text[start..]).all(|(element, &byte)| self.accepts(element, byte))
    }

    /// The end of the leftmost place of `piece`.
    fn find(&self, piece: &[Element], text: &[u8]) -> Option<usize> {
        let byte = |element: &Element| match element {
            Element::Byte(byte) if !self.ignore_case => Some(*byte),
            _ => None,
        };
        match piece.iter().map(byte).collect::<Option<Vec<u8>>>() {
            Some(plain) => {
                let found = text.find(&plain);
                work::add(found.unwrap_or(text.len()) + plain.len());
                found.map(|at| at + plain.len())
            }
            None => Shifts::new(self, piece).find(text),
        }
    }
}

/// See the module.
struct Shifts {
    /// Of a piece, in numbers of 64 bits.
    width: usize,
    /// The last bit of a piece.
    last: u64,
    /// For each byte: which elements accept it.
    accepting: Vec<u64>,
}

impl Shifts {
    fn new(glob: &Glob, piece: &[Element]) -> Shifts {
        let width = piece.len().div_ceil(64);
        let mut always = vec![0; width];
        for (at, _) in piece.iter().enumerate().filter(|(_, element)| **element == Element::AnyByte) {
            always[at / 64] |= 1 << (at % 64);
        }
        let mut accepting = always.repeat(256);
        for (at, element) in piece.iter().enumerate() {
            let mut accept = |byte: u8| accepting[usize::from(byte) * width + at / 64] |= 1 << (at % 64);
            match element {
                Element::Byte(byte) if glob.ignore_case => {
                    accept(byte.to_ascii_lowercase());
                    accept(byte.to_ascii_uppercase());
                }
                Element::Byte(byte) => accept(*byte),
                Element::Set(set) => (0..=u8::MAX).filter(|&byte| set.contains(byte)).for_each(accept),
                Element::AnyByte | Element::AnyRun | Element::Forks(_) | Element::Never => {}
            }
        }
        Shifts { width, last: 1 << ((piece.len() + 63) % 64), accepting }
    }

    /// The end of the leftmost place in `text`; the piece is not empty.
    fn find(&self, text: &[u8]) -> Option<usize> {
        let mut states = vec![0u64; self.width];
        // Numbers from here on are 0.
        let mut used = 0;
        for (at, &byte) in text.iter().enumerate() {
            work::add(used + 1);
            let accepting = &self.accepting[usize::from(byte) * self.width..][..self.width];
            let mut carry = 1;
            let mut highest = 0;
            for (n, (state, accepting)) in states.iter_mut().zip(accepting).take(used + 1).enumerate() {
                let moved = (*state << 1 | carry) & accepting;
                carry = *state >> 63;
                *state = moved;
                if moved != 0 {
                    highest = n + 1;
                }
            }
            used = highest;
            if used == self.width && states[used - 1] & self.last != 0 {
                return Some(at + 1);
            }
        }
        None
    }
}
