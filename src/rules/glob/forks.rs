//! The end of a pattern in which a set has several ends: all readings of it, as the places that they can come to.

use super::machine::Machine;
use super::set::{Branch, ByteSet};
use super::{Element, MAX_OPEN_BRACKETS, Piece, parse_piece};
use std::collections::BTreeMap;

/// How many different distances there may be from places to those that they lead to. Only readings that lie across each
/// other for long need more, and a pattern with more matches nothing.
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
    /// The same place, with other names for the places that it leads to.
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
    pub(super) fn new(pattern: &[u8], ignore_case: bool) -> Forks {
        let never = || Forks { places: vec![Place::Element(Element::Never, 0)], ignore_case };
        let Some(by_offset) = read(pattern, ignore_case) else { return never() };
        let mut numbers = vec![0; pattern.len() + 1];
        by_offset.keys().enumerate().for_each(|(number, &offset)| numbers[offset] = number);
        let places = by_offset.into_values().map(|place| place.renamed(|offset| numbers[offset]));
        let forks = Forks { places: places.collect(), ignore_case };
        if forks.machine().distances() > MAX_DISTANCES { never() } else { forks }
    }

    /// Whether the whole of `text` matches, or with `floats` the end of it.
    pub(super) fn matches(&self, text: &[u8], floats: bool) -> bool {
        self.machine().matches(text, floats)
    }

    fn machine(&self) -> Machine<'_> {
        let mut machine = Machine::new(self.places.len());
        for (at, place) in self.places.iter().enumerate() {
            match place {
                Place::Element(element, to) => machine.add(at, *to, element, self.ignore_case),
                Place::Fork(branches) => machine.add_fork(at, branches),
                Place::End => machine.set_end(at),
            }
        }
        machine
    }
}

/// Reads the places of a pattern, by their offsets in it; where a place leads is an offset too. None if too many
/// brackets are open.
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
