//! The end of a pattern in which a set has several ends: all readings are followed at once.
//!
//! The places that a reading can come to are numbered in the order of the pattern, and those that the text so far
//! leads to are the bits of a number, as in [`search`](super::search). Nearly all places lead to the next one, so that a
//! byte of the text costs a step for each 64 places; places that lead further are moved on by how far. Sets with several
//! ends, of which a pattern has few, are looked at one by one.

use super::{Branch, ByteSet, Element, MAX_OPEN_BRACKETS, Piece, fold, parse_piece, work};
use std::collections::BTreeMap;

/// How far places may lead, in so many different ways. Only readings that lie across each other for long need
/// more; a pattern with more matches nothing.
const MAX_DISTANCES: usize = 16;

/// The places of a pattern, the first one first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Forks {
    places: Vec<Place>,
    ignore_case: bool,
}

/// What stands at a place, and where it leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    Element(Element, usize),
    /// Bytes, and where these lead.
    Fork(Vec<(ByteSet, usize)>),
    End,
}

impl Place {
    /// The same, with other names of where it leads.
    fn renamed(self, name: impl Fn(usize) -> usize) -> Place {
        match self {
            Place::Element(element, to) => Place::Element(element, name(to)),
            Place::Fork(branches) => {
                Place::Fork(branches.into_iter().map(|(set, to)| (set, name(to))).collect())
            }
            Place::End => Place::End,
        }
    }
}

impl Forks {
    /// Reads `pattern`, which has a set with several ends and does not begin with `*`.
    pub fn new(pattern: &[u8], ignore_case: bool) -> Forks {
        let never = || Forks { places: vec![Place::Element(Element::Never, 0)], ignore_case };
        let Some(by_offset) = read(pattern, ignore_case) else { return never() };
        let mut numbers = vec![0; pattern.len() + 1];
        by_offset.keys().enumerate().for_each(|(number, &offset)| numbers[offset] = number);
        let places = by_offset.into_values().map(|place| place.renamed(|offset| numbers[offset]));
        let forks = Forks { places: places.collect(), ignore_case };
        if Steps::new(&forks).moves.len() > MAX_DISTANCES { never() } else { forks }
    }

    /// Whether the whole of `text` matches, or with `floats` the end of it.
    pub fn matches(&self, text: &[u8], floats: bool) -> bool {
        let steps = Steps::new(self);
        let mut now = vec![0; steps.width];
        let mut next = now.clone();
        set(&mut now, 0);
        for &byte in text {
            steps.pass_runs(&mut now);
            steps.pass_byte(byte, &now, &mut next);
            std::mem::swap(&mut now, &mut next);
            if floats {
                set(&mut now, 0);
            } else if now.iter().all(|&word| word == 0) {
                return false;
            }
        }
        steps.pass_runs(&mut now);
        self.places.iter().enumerate().any(|(at, place)| *place == Place::End && is_set(&now, at))
    }
}

/// The places by where they stand in the pattern; each leads to such offsets. None if too many brackets are open.
fn read(pattern: &[u8], ignore_case: bool) -> Option<BTreeMap<usize, Place>> {
    let mut places = BTreeMap::new();
    let mut wanted = vec![0];
    let mut open_brackets = 0;
    // Of several `*` in a row the last one will do: it leads to something else.
    let place_at = |offset: usize| {
        let stars = pattern[offset..].iter().take_while(|&&byte| byte == b'*').count();
        offset + stars.saturating_sub(1)
    };
    while let Some(offset) = wanted.pop() {
        if places.contains_key(&offset) {
            continue;
        }
        let rest = &pattern[offset..];
        let place = if rest.is_empty() {
            Place::End
        } else {
            let (piece, length) = parse_piece(rest, ignore_case);
            open_brackets += usize::from(rest[0] == b'[' && length == 1);
            match piece {
                Piece::Element(element) => Place::Element(element, place_at(offset + length)),
                Piece::Fork(branches) => {
                    let to = |(set, length): Branch| (set, place_at(offset + length));
                    Place::Fork(branches.into_iter().map(to).collect())
                }
            }
        };
        if open_brackets > MAX_OPEN_BRACKETS {
            return None;
        }
        match &place {
            Place::Element(_, to) => wanted.push(*to),
            Place::Fork(branches) => wanted.extend(branches.iter().map(|(_, to)| to)),
            Place::End => {}
        }
        places.insert(offset, place);
    }
    Some(places)
}

/// Where bytes lead from sets of places.
struct Steps<'f> {
    /// Of a set of places, in numbers of 64 bits.
    width: usize,
    /// For each byte: the places that take it, but for forks.
    taking: Vec<u64>,
    /// By how far they lead: those places.
    moves: BTreeMap<usize, Vec<u64>>,
    /// The places that are `*`: each stays where it is, and leads to the next one without a byte.
    runs: Vec<u64>,
    forks: Vec<(usize, &'f [(ByteSet, usize)])>,
}

impl Steps<'_> {
    fn new(forks: &Forks) -> Steps<'_> {
        let width = forks.places.len().div_ceil(64);
        let mut steps = Steps {
            width,
            taking: vec![0; width * 256],
            moves: BTreeMap::new(),
            runs: vec![0; width],
            forks: Vec::new(),
        };
        for (at, place) in forks.places.iter().enumerate() {
            match place {
                Place::Element(element, to) => {
                    steps.add(at, *to, element, forks.ignore_case);
                }
                Place::Fork(branches) => steps.forks.push((at, branches)),
                Place::End => {}
            }
        }
        steps
    }

    fn add(&mut self, at: usize, to: usize, element: &Element, ignore_case: bool) {
        let distance = match element {
            Element::AnyRun => {
                set(&mut self.runs, at);
                0
            }
            Element::Forks(_) | Element::Never => return,
            Element::Byte(_) | Element::AnyByte | Element::Set(_) => to - at,
        };
        set(self.moves.entry(distance).or_insert_with(|| vec![0; self.width]), at);
        let takes = |byte: u8| match element {
            Element::Byte(wanted) => *wanted == fold(byte, ignore_case),
            Element::Set(set) => set.contains(byte),
            _ => true,
        };
        for byte in (0..=u8::MAX).filter(|&byte| takes(byte)) {
            self.taking[usize::from(byte) * self.width + at / 64] |= 1 << (at % 64);
        }
    }

    /// Where `byte` leads from `now`.
    fn pass_byte(&self, byte: u8, now: &[u64], next: &mut [u64]) {
        work::add(self.moves.len() * self.width);
        next.fill(0);
        let taking = &self.taking[usize::from(byte) * self.width..][..self.width];
        for (&distance, places) in &self.moves {
            for (word, ((now, taking), places)) in now.iter().zip(taking).zip(places).enumerate() {
                set_moved(next, word, now & taking & places, distance);
            }
        }
        for (_, branches) in self.forks.iter().filter(|(at, _)| is_set(now, *at)) {
            let taken = branches.iter().filter(|(bytes, _)| bytes.contains(byte));
            taken.for_each(|(_, to)| set(next, *to));
        }
    }

    /// Lets the places pass the `*` that they stand in front of.
    fn pass_runs(&self, now: &mut [u64]) {
        for (word, runs) in self.runs.iter().enumerate() {
            set_moved(now, word, now[word] & runs, 1);
        }
    }
}

fn set(places: &mut [u64], at: usize) {
    places[at / 64] |= 1 << (at % 64);
}

fn is_set(places: &[u64], at: usize) -> bool {
    places[at / 64] >> (at % 64) & 1 == 1
}

/// Adds the places of one number of a set, each so much further.
fn set_moved(places: &mut [u64], word: usize, moved: u64, distance: usize) {
    if moved == 0 {
        return;
    }
    let (word, bits) = (word + distance / 64, distance % 64);
    places[word] |= moved << bits;
    // What does not fit leads to places that are there, so the next number is there too.
    let rest = if bits == 0 { 0 } else { moved >> (64 - bits) };
    if rest != 0 {
        places[word + 1] |= rest;
    }
}
