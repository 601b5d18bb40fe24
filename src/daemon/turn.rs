//! What a turn of the loop goes through: a table of parts. The same rows say when the loop wakes and what it does then,
//! so no part can wake the loop that the loop does not go on with, and none can be waited for that does not wake it.
//!
//! Must stay true: [`Part::go_on`] is called in every turn, whoever woke the loop, so it looks itself whether there is
//! something to do. A part that is ready when the turn is over gets its next one without a wait.

use crate::model::Now;
use std::time::Duration;

/// A part of the loop that is owned by an `S`.
pub(super) struct Part<S> {
    /// Whether there is something to go on with now.
    pub is_ready: fn(&S) -> bool,
    /// When there will be, whatever comes from outside.
    pub deadline: fn(&S) -> Option<Now>,
    /// Does it, as far as it may go in one turn.
    pub go_on: fn(&mut S),
}

impl<S> Part<S> {
    /// A part that only does something when others have.
    pub(super) const fn following(go_on: fn(&mut S)) -> Part<S> {
        Part { is_ready: |_| false, deadline: |_| None, go_on }
    }

    /// A part that goes by the clock alone.
    pub(super) const fn timed(deadline: fn(&S) -> Option<Now>, go_on: fn(&mut S)) -> Part<S> {
        Part { is_ready: |_| false, deadline, go_on }
    }
}

/// How long the loop may wait for something from outside; None: for ever.
pub(super) fn wait<S>(parts: &[Part<S>], owner: &S, clock: impl FnOnce() -> Now) -> Option<Duration> {
    if parts.iter().any(|part| (part.is_ready)(owner)) {
        return Some(Duration::ZERO);
    }
    let next = parts.iter().filter_map(|part| (part.deadline)(owner)).min()?;
    Some(next.since(clock()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Owner {
        ready: bool,
        due: Option<Now>,
        later: Option<Now>,
    }

    const PARTS: &[Part<Owner>] = &[
        Part::following(|_| {}),
        Part::timed(|o| o.later, |o| o.later = None),
        Part { is_ready: |o| o.ready, deadline: |o| o.due, go_on: |o| *o = Owner::default() },
    ];

    #[test]
    fn the_loop_waits_for_the_first_deadline_and_not_at_all_while_a_part_is_ready() {
        let wait = |owner: &Owner| wait(PARTS, owner, || Now::from_secs(10));
        let second = |n| Some(Now::from_secs(n));
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!(wait(&Owner::default()), None, "for ever");
        assert_eq!(wait(&Owner { later: second(15), ..Owner::default() }), seconds(5));
        let mut owner = Owner { later: second(15), due: second(12), ready: false };
        assert_eq!(wait(&owner), seconds(2), "for the first");
        owner.due = second(9);
        assert_eq!(wait(&owner), seconds(0), "it is over");
        owner = Owner { ready: true, later: second(15), due: None };
        assert_eq!(wait(&owner), seconds(0));
        PARTS.iter().for_each(|part| (part.go_on)(&mut owner));
        assert_eq!(wait(&owner), None);
    }
}
