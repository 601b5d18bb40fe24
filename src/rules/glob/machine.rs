//! Follows all readings of a pattern at once, in one pass over the text.
//!
//! The places that a reading can come to are numbered, and those that the text so far leads to are the bits of a number
//! (Baeza-Yates and Gonnet, "shift-and"). Nearly all places lead to the next one, so that a byte of the text
//! costs a step for each 64 places; places that lead further are moved on by how far. Sets with several ends, of which a
//! pattern has few, are looked at one by one.

use super::set::ByteSet;
use super::{Element, work};
use std::collections::BTreeMap;

/// Where bytes lead from sets of places. Place 0 is the beginning.
pub(super) struct Machine<'p> {
    /// Of a set of places, in numbers of 64 bits.
    width: usize,
    /// For each byte: the places that take it, but for forks and `*`.
    taking: Vec<u64>,
    /// By how far they lead: those places.
    moves: BTreeMap<usize, Vec<u64>>,
    /// The places that are `*`, as numbers of 64 bits that are not 0 and their indices: each stays where it is, and leads
    /// to the next one without a byte.
    runs: BTreeMap<usize, u64>,
    forks: Vec<(usize, &'p [(ByteSet, usize)])>,
    /// The place behind the last element; None if no reading comes to an end.
    end: Option<usize>,
}

impl<'p> Machine<'p> {
    /// A machine with so many places, of which nothing is known yet.
    pub(super) fn new(places: usize) -> Machine<'p> {
        let width = places.div_ceil(64);
        Machine {
            width,
            taking: vec![0; width * 256],
            moves: BTreeMap::new(),
            runs: BTreeMap::new(),
            forks: Vec::new(),
            end: None,
        }
    }

    /// An element, and the place that it leads to.
    pub(super) fn add(&mut self, at: usize, to: usize, element: &Element, ignore_case: bool) {
        match element {
            Element::AnyRun => return *self.runs.entry(at / 64).or_default() |= 1 << (at % 64),
            Element::Forks(_) | Element::Never => return,
            Element::Byte(_) | Element::AnyByte | Element::Set(_) => {}
        }
        set(self.moves.entry(to - at).or_insert_with(|| vec![0; self.width]), at);
        let mut take = |byte: u8| self.taking[usize::from(byte) * self.width + at / 64] |= 1 << (at % 64);
        match element {
            Element::Byte(byte) if ignore_case => {
                take(byte.to_ascii_lowercase());
                take(byte.to_ascii_uppercase());
            }
            Element::Byte(byte) => take(*byte),
            Element::Set(set) => (0..=u8::MAX).filter(|&byte| set.contains(byte)).for_each(take),
            _ => (0..=u8::MAX).for_each(take),
        }
    }

    /// A set with several ends: bytes, and the places that these lead to.
    pub(super) fn add_fork(&mut self, at: usize, branches: &'p [(ByteSet, usize)]) {
        self.forks.push((at, branches));
    }

    /// The place behind the last element.
    pub(super) fn set_end(&mut self, at: usize) {
        self.end = Some(at);
    }

    /// In how many different ways far places lead: what a byte of the text costs.
    pub(super) fn distances(&self) -> usize {
        self.moves.len() + usize::from(!self.runs.is_empty())
    }

    /// Whether the whole of `text` matches, or with `floats` the end of it.
    pub(super) fn matches(&self, text: &[u8], floats: bool) -> bool {
        let mut places = self.start();
        for &byte in text {
            self.pass(byte, &mut places, floats);
            if !floats && places.now.iter().all(|&word| word == 0) {
                return false;
            }
        }
        self.is_at_end(&places)
    }

    fn start(&self) -> Places {
        let mut places = Places { now: vec![0; self.width], next: vec![0; self.width] };
        set(&mut places.now, 0);
        self.pass_runs(&mut places.now);
        places
    }

    fn is_at_end(&self, places: &Places) -> bool {
        self.end.is_some_and(|end| is_set(&places.now, end))
    }

    /// Moves on by one byte. With `floats` a reading may also begin behind it.
    fn pass(&self, byte: u8, places: &mut Places, floats: bool) {
        self.pass_byte(byte, &places.now, &mut places.next);
        std::mem::swap(&mut places.now, &mut places.next);
        if floats {
            set(&mut places.now, 0);
        }
        self.pass_runs(&mut places.now);
    }

    /// Where `byte` leads from `now`.
    fn pass_byte(&self, byte: u8, now: &[u64], next: &mut [u64]) {
        work::add((1 + self.moves.len()) * self.width);
        next.fill(0);
        for (&word, runs) in &self.runs {
            next[word] = now[word] & runs;
        }
        let taking = &self.taking[usize::from(byte) * self.width..][..self.width];
        for (&distance, places) in &self.moves {
            let (words, bits) = (distance / 64, distance % 64);
            let mut carry = 0;
            let moved = now.iter().zip(taking).zip(places);
            for (((now, taking), places), next) in moved.zip(&mut next[words..]) {
                let moved = now & taking & places;
                *next |= moved << bits | carry;
                carry = moved >> 1 >> (63 - bits);
            }
        }
        for (_, branches) in self.forks.iter().filter(|(at, _)| is_set(now, *at)) {
            let taken = branches.iter().filter(|(bytes, _)| bytes.contains(byte));
            taken.for_each(|(_, to)| set(next, *to));
        }
    }

    /// Lets the places pass the `*` that they stand in front of.
    fn pass_runs(&self, now: &mut [u64]) {
        for (&word, runs) in &self.runs {
            set_moved(now, word, now[word] & runs, 1);
        }
    }
}

/// The places that the text so far leads to.
struct Places {
    now: Vec<u64>,
    /// Room for those of the next byte.
    next: Vec<u64>,
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
