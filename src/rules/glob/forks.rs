//! The end of a pattern in which a set has several ends: all readings are followed at once.

use super::{ByteSet, Element, MAX_OPEN_BRACKETS, Piece, fold, parse_piece, work};

/// The places of a pattern that a reading can come to, the first one first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Forks {
    places: Vec<Place>,
    ignore_case: bool,
}

/// What stands at a place, and where it leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    Element(Element, u32),
    /// Bytes, and where these lead.
    Fork(Vec<(ByteSet, u32)>),
    End,
}

/// Places that the text may have come to, each once.
struct Reached {
    list: Vec<u32>,
    /// By place: the round in which it was last listed.
    round_of: Vec<usize>,
    round: usize,
}

impl Reached {
    fn add(&mut self, place: u32) {
        if std::mem::replace(&mut self.round_of[place as usize], self.round) != self.round {
            self.list.push(place);
        }
    }
}

impl Forks {
    /// Reads `pattern`, which has a set with several ends.
    pub fn new(pattern: &[u8], ignore_case: bool) -> Forks {
        const UNKNOWN: u32 = u32::MAX;
        // By offset, and the offsets in the order of their numbers.
        let mut numbers = vec![UNKNOWN; pattern.len() + 1];
        let mut offsets = vec![0];
        numbers[0] = 0;
        let mut places = Vec::new();
        let mut open_brackets = 0;
        while let Some(&offset) = offsets.get(places.len()) {
            let mut number = |to: usize| {
                if numbers[to] == UNKNOWN {
                    numbers[to] = offsets.len() as u32;
                    offsets.push(to);
                }
                numbers[to]
            };
            places.push(match &pattern[offset..] {
                [] => Place::End,
                [b'[', ..] if open_brackets > MAX_OPEN_BRACKETS => Place::Element(Element::Never, 0),
                rest => match parse_piece(rest, ignore_case) {
                    (Piece::Element(element), length) => {
                        open_brackets += usize::from(rest[0] == b'[' && length == 1);
                        Place::Element(element, number(offset + length))
                    }
                    (Piece::Fork(branches), _) => {
                        open_brackets += 1;
                        let branch = |(set, length)| (set, number(offset + length));
                        Place::Fork(branches.into_iter().map(branch).collect())
                    }
                },
            });
        }
        Forks { places, ignore_case }
    }

    /// Whether the whole of `text` matches, or with `floats` the end of it. Takes a step for each byte and each
    /// place that it may have come to.
    pub fn matches(&self, text: &[u8], floats: bool) -> bool {
        let mut now = Reached { list: vec![0], round_of: vec![0; self.places.len()], round: 1 };
        let mut next = Vec::new();
        for &byte in text {
            self.pass_runs(&mut now);
            std::mem::swap(&mut now.list, &mut next);
            now.list.clear();
            now.round += 1;
            work::add(next.len());
            for &at in &next {
                match &self.places[at as usize] {
                    Place::Element(Element::AnyRun, _) => now.add(at),
                    Place::Element(element, to) if self.accepts(element, byte) => now.add(*to),
                    Place::Fork(branches) => {
                        let taken = branches.iter().filter(|(set, _)| set.contains(byte));
                        taken.for_each(|(_, to)| now.add(*to));
                    }
                    Place::Element(..) | Place::End => {}
                }
            }
            if floats {
                now.add(0);
            } else if now.list.is_empty() {
                return false;
            }
        }
        self.pass_runs(&mut now);
        now.list.iter().any(|&at| self.places[at as usize] == Place::End)
    }

    /// Lets the places pass the `*` that they stand in front of.
    fn pass_runs(&self, reached: &mut Reached) {
        let mut at = 0;
        while let Some(&place) = reached.list.get(at) {
            if let Place::Element(Element::AnyRun, to) = &self.places[place as usize] {
                reached.add(*to);
            }
            at += 1;
        }
    }

    fn accepts(&self, element: &Element, byte: u8) -> bool {
        match element {
            Element::Byte(wanted) => *wanted == fold(byte, self.ignore_case),
            Element::AnyByte => true,
            Element::Set(set) => set.contains(byte),
            Element::AnyRun | Element::Forks(_) | Element::Never => false,
        }
    }
}
