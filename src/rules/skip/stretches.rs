//! Stretches: consecutive lines that can be passed over in one step when a little is known of the event, be they
//! of hundreds of vendors.

use super::NONE;
use super::fold::KeptLine;
use super::guards::{Guard, Guards};

/// Lines of a stretch from one place where it can be passed over to the next.
const STRETCH_STEP: usize = 4;

/// Lines of a stretch at most: a guard of which nothing is known yet keeps all of them from being passed over.
const STRETCH_MAX: usize = 64;

/// More guards or subjects than these are not looked at in one step.
const STRETCH_GUARDS: usize = 8;

/// The stretches of a program, in order.
#[derive(Debug, Default)]
pub(super) struct Stretches(Vec<Stretch>);

/// Consecutive lines, and what must be known so that none of them can hold.
#[derive(Debug)]
pub(super) struct Stretch {
    /// The place after the last line.
    pub end: usize,
    /// The place after the last line with a parent group: to pass over one leaves no parent.
    pub parents_end: usize,
    /// Hashes of which the device and its parents must have none; sorted, no duplicates.
    required: Vec<u32>,
    /// Guards that must all have failed.
    pub guards: Vec<u32>,
    /// Subjects of the literals below; each once.
    pub subjects: Vec<u32>,
    /// (subject, hash of a literal), sorted: no subject may have such a value.
    literals: Vec<(u32, u32)>,
}

impl Stretches {
    /// Joins consecutive lines of whose first tokens something is known, and writes the numbers of the stretches
    /// into the lines.
    pub(super) fn find(guards: &Guards, lines: &mut [KeptLine]) -> Stretches {
        let mut stretches = Vec::new();
        let mut start = 0;
        while start < lines.len() {
            let stretch = Stretch::from(start, lines, guards);
            let end = stretch.end;
            if end >= start + STRETCH_STEP {
                let number = stretches.len() as u32;
                lines[start..end].iter_mut().step_by(STRETCH_STEP).for_each(|line| line.stretch = number);
                stretches.push(stretch);
            }
            start = end.max(start + 1);
        }
        Stretches(stretches)
    }

    /// The stretch that can be passed over from this line on.
    pub(super) fn of(&self, line: &KeptLine) -> Option<&Stretch> {
        self.0.get(line.stretch as usize)
    }
}

impl Stretch {
    fn from(start: usize, lines: &[KeptLine], guards: &Guards) -> Stretch {
        let mut stretch = Stretch {
            end: start,
            parents_end: start,
            required: Vec::new(),
            guards: Vec::new(),
            subjects: Vec::new(),
            literals: Vec::new(),
        };
        for line in lines[start..].iter().take(STRETCH_MAX) {
            if !stretch.takes(line) {
                break;
            }
            stretch.end += 1;
            let asks_parents = line.guard().and_then(|guard| guards.get(guard)) == Some(Guard::Parents);
            if line.required().is_some() || asks_parents {
                stretch.parents_end = stretch.end;
            }
        }
        stretch.literals.sort_unstable();
        stretch.required.sort_unstable();
        stretch.required.dedup();
        stretch
    }

    /// Adds what is known of a line; false if there is nothing, or no room for it.
    fn takes(&mut self, line: &KeptLine) -> bool {
        match (line.literal(), line.required(), line.guard) {
            (Some((subject, literal)), ..) => {
                if !self.subjects.contains(&subject) {
                    if self.subjects.len() == STRETCH_GUARDS {
                        return false;
                    }
                    self.subjects.push(subject);
                }
                self.literals.push((subject, literal));
            }
            (None, Some(name), _) => self.required.push(name),
            (None, None, NONE) => return false,
            (None, None, guard) if self.guards.contains(&guard) => {}
            (None, None, _) if self.guards.len() == STRETCH_GUARDS => return false,
            (None, None, guard) => self.guards.push(guard),
        }
        true
    }

    /// Whether a line wants one of these drivers and subsystems.
    pub(super) fn wants(&self, present: &[u32]) -> bool {
        present.iter().any(|name| self.required.binary_search(name).is_ok())
    }

    /// Whether a line wants the subject to have a value of this hash.
    pub(super) fn wants_value(&self, subject: u32, hash: u32) -> bool {
        self.literals.binary_search(&(subject, hash)).is_ok()
    }

    /// Whether any line wants a driver or subsystem.
    pub(super) fn asks_names(&self) -> bool {
        !self.required.is_empty()
    }
}
