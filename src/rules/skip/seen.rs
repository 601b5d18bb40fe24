//! What one event has shown so far, and with it the next line that may hold.

use super::super::lex::MAX_LINE;
use super::super::program::Match;
use super::Specialised;
use super::fold::KeptLine;
use super::guards::{Guard, driver_hash, subsystem_hash, value_hash};
use super::runs::ParentsKey;
use super::stretches::Stretch;
use crate::model::Key;
use bstr::BStr;
use std::borrow::Cow;

/// Bytes of a value from which on its hash takes its share of the turn.
const LONG: usize = 16;

/// The event as [`Seen`] looks at it; the evaluator answers.
pub(in crate::rules) trait EventView {
    /// Why there is no answer yet.
    type Stop;

    /// A property that is not derived, then a global one; empty if neither is set.
    fn property(&self, key: &Key) -> &BStr;

    /// How many parents the device has, if that is known.
    fn known_parents(&self) -> Option<u16>;

    /// Driver and subsystem of the event's device (0) or its n-th parent, if both are known.
    fn known_names(&self, device: u16) -> Option<(&BStr, &BStr)>;

    /// Whether a match holds.
    fn holds(&self, m: &Match) -> Result<bool, Self::Stop>;

    /// The value that a match compares; None if the match fails whatever its operator.
    fn value(&self, m: &Match) -> Result<Option<Cow<'_, BStr>>, Self::Stop>;

    /// Calls `visit` with the value that the attribute has on each device on which the shared matches hold, from the
    /// event's own upward, until `visit` is content.
    fn each_value(&self, key: &ParentsKey<'_>, visit: impl FnMut(&BStr) -> bool) -> Result<(), Self::Stop>;

    /// Takes the cost of a line from the turn; false if the turn is over.
    fn pays_for_line(&self) -> bool;

    /// Takes these units of work from the turn.
    fn spend(&self, units: usize);
}

/// Where passing over lines has led.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::rules) struct Next<S> {
    /// The place reached. All lines in front of it are done with.
    pub at: usize,
    /// Lines were passed over whose parent group fails, so that there is no parent any more.
    pub forgets_parent: bool,
    pub arrival: Arrival<S>,
}

/// What there is at the place reached.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::rules) enum Arrival<S> {
    /// A line that may hold.
    Line,
    /// No line: the program ends here.
    End,
    /// The turn is over. To go on from this place is as right as to do something else first.
    TurnOver,
    /// To know more there must be an answer first.
    Stopped(S),
}

/// One step over lines.
pub(super) struct Pace {
    /// The place from which the step was made if its line may hold; else one further on.
    pub to: usize,
    /// See [`Next::forgets_parent`].
    pub forgets_parent: bool,
}

impl Pace {
    pub(super) fn to(to: usize) -> Pace {
        Pace { to, forgets_parent: false }
    }
}

/// What one event has shown so far of the questions of its program.
#[derive(Clone, Debug)]
pub(in crate::rules) struct Seen {
    /// Grows with every change of a property: what guards said of properties counts no more then.
    property_changes: u32,
    /// For each guard what `property_changes` was when it last failed, plus one; [`FOR_EVER`] for those that no
    /// change of a property can mend.
    failed: Vec<u32>,
    /// For each subject what `property_changes` was when its value was last hashed, plus one, and that hash.
    values: Vec<(u32, u32)>,
    /// Hashes of the drivers and subsystems of the device and its parents, once all are known.
    present: Option<Vec<u32>>,
}

/// See [`Seen::failed`].
const FOR_EVER: u32 = u32::MAX;

impl Seen {
    /// Nothing yet.
    pub(in crate::rules) fn new(program: &Specialised) -> Seen {
        Seen {
            property_changes: 0,
            failed: vec![0; program.guards.len()],
            values: vec![(0, 0); program.guards.subjects().len()],
            present: None,
        }
    }

    /// A property changed, or may have.
    pub(in crate::rules) fn property_changed(&mut self) {
        self.property_changes += 1;
    }

    /// The first token of the line at this place did not hold.
    pub(in crate::rules) fn first_token_failed(&mut self, program: &Specialised, at: usize) {
        let Some(number) = program.lines.get(at).and_then(KeptLine::guard) else { return };
        let when = match program.guards.get(number) {
            Some(Guard::Property) => self.property_changes + 1,
            _ => FOR_EVER,
        };
        if let Some(failed) = self.failed.get_mut(number) {
            *failed = when;
        }
    }

    /// The next line that may hold, from this place on, and whether a parent was forgotten on the way.
    pub(in crate::rules) fn next_line<V: EventView>(
        &mut self,
        program: &Specialised,
        mut at: usize,
        view: &V,
    ) -> Next<V::Stop> {
        let mut forgets_parent = false;
        let arrival = loop {
            let Some(line) = program.lines.get(at) else { break Arrival::End };
            if !view.pays_for_line() {
                break Arrival::TurnOver;
            }
            match self.pace(program, line, at, view) {
                Ok(pace) if pace.to == at => break Arrival::Line,
                Ok(pace) => {
                    forgets_parent |= pace.forgets_parent;
                    at = pace.to;
                }
                Err(stop) => break Arrival::Stopped(stop),
            }
        };
        Next { at, forgets_parent, arrival }
    }

    /// One step from the line at this place.
    #[inline]
    fn pace<V: EventView>(
        &mut self,
        program: &Specialised,
        line: &KeptLine,
        at: usize,
        view: &V,
    ) -> Result<Pace, V::Stop> {
        if let Some(stretch) = program.stretches.of(line)
            && self.rules_out(program, stretch, view)
        {
            return Ok(Pace { to: stretch.end, forgets_parent: at < stretch.parents_end });
        }
        if let Some(number) = line.guard()
            && self.guard_failed(number)
        {
            let forgets_parent = program.guards.get(number) == Some(Guard::Parents);
            return Ok(Pace { to: at + 1, forgets_parent });
        }
        let run = program.runs.of(line);
        // A run finds its next line faster.
        if run.is_none()
            && let Some((subject, literal)) = line.literal()
            && self.hash_of_value(program, subject, view) != literal
        {
            return Ok(Pace::to(at + 1));
        }
        if let Some(wanted) = line.required()
            && self.lacks(wanted, view)
        {
            return Ok(Pace { to: at + 1, forgets_parent: true });
        }
        run.map_or(Ok(Pace::to(at)), |run| run.enter(&program.rules, at, view))
    }

    fn guard_failed(&self, number: usize) -> bool {
        let failed = self.failed.get(number).copied().unwrap_or(0);
        failed == FOR_EVER || failed == self.property_changes + 1
    }

    /// Whether no line of the stretch can hold.
    fn rules_out<V: EventView>(&mut self, program: &Specialised, stretch: &Stretch, view: &V) -> bool {
        let names_lack = || self.present.as_ref().is_some_and(|all| !stretch.wants(all));
        stretch.guards.iter().all(|&guard| self.guard_failed(guard as usize))
            && (!stretch.asks_names() || names_lack())
            && stretch.subjects.iter().all(|&subject| {
                let hash = self.hash_of_value(program, subject, view);
                !stretch.wants_value(subject, hash)
            })
    }

    fn hash_of_value<V: EventView>(&mut self, program: &Specialised, subject: u32, view: &V) -> u32 {
        let now = self.property_changes + 1;
        match self.values.get(subject as usize) {
            Some(&(when, hash)) if when == now => hash,
            _ => {
                let key = program.guards.subjects().get(subject as usize);
                let hash = match key.map(|key| view.property(key)) {
                    // No literal is as long, and no hash is 0.
                    Some(value) if value.len() <= MAX_LINE => {
                        if value.len() >= LONG {
                            view.spend(value.len());
                        }
                        value_hash(value)
                    }
                    _ => 0,
                };
                if let Some(known) = self.values.get_mut(subject as usize) {
                    *known = (now, hash);
                }
                hash
            }
        }
    }

    /// Whether it is known that neither the device nor a parent has the driver or subsystem of this hash.
    fn lacks<V: EventView>(&mut self, wanted: u32, view: &V) -> bool {
        if self.present.is_none() {
            self.present = present(view);
        }
        self.present.as_ref().is_some_and(|all| !all.contains(&wanted))
    }
}

/// See [`Seen::present`].
fn present<V: EventView>(view: &V) -> Option<Vec<u32>> {
    let count = view.known_parents()?;
    let mut all = Vec::with_capacity(2 * (usize::from(count) + 1));
    for device in 0..=count {
        let (driver, subsystem) = view.known_names(device)?;
        all.push(driver_hash(driver));
        all.push(subsystem_hash(subsystem));
    }
    Some(all)
}
