//! Attributes that are slow to read are read by helpers (ARCHITECTURE.md, "Nothing blocks").
//!
//! Must stay true: which are slow is learnt from waits that are the read's own, and a read that is quick costs
//! nothing more for it. So the loop only looks at the clock. What took long is *suspected*: a helper
//! reads it the next time, in which nothing else can wait, and tells. What was quick there is read by the
//! loop again, and watched closely for a while.

use crate::world::patience;
use bstr::{BStr, BString};
use std::collections::HashMap;

/// Attributes remembered at most; what is slow beyond that is read by the loop.
const MAX: usize = 1024;

/// How often what was suspected without cause is watched: each time costs two system calls.
const WATCHED: u8 = 100;

/// What is known of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// It once took long on the loop. A helper finds out why.
    Suspected,
    /// It was suspected without cause, and is watched for so many more reads.
    Watched(u8),
    /// Reading it waits.
    Slow,
}

/// See the module.
#[derive(Debug, Default)]
pub struct SlowAttributes {
    /// By subsystem and name.
    known: HashMap<BString, HashMap<BString, Pace>>,
    count: usize,
}

impl SlowAttributes {
    /// Whether a helper is to read this one.
    pub fn is_for_helper(&self, subsystem: &BStr, name: &BStr) -> bool {
        matches!(self.pace(subsystem, name), Some(Pace::Suspected | Pace::Slow))
    }

    fn pace(&self, subsystem: &BStr, name: &BStr) -> Option<Pace> {
        if self.count == 0 {
            return None;
        }
        self.known.get(subsystem)?.get(name).copied()
    }

    fn set(&mut self, subsystem: &BStr, name: &BStr, pace: Pace) {
        match self.known.get_mut(subsystem).and_then(|names| names.get_mut(name)) {
            Some(known) => *known = pace,
            None if self.count < MAX => {
                self.known.entry(subsystem.to_owned()).or_default().insert(name.to_owned(), pace);
                self.count += 1;
            }
            None => {}
        }
    }

    fn set_slow(&mut self, subsystem: &BStr, name: &BStr) {
        log::info!("Attribute {name} of {subsystem} is slow: helpers read it from now on");
        self.set(subsystem, name, Pace::Slow);
    }

    fn forget(&mut self, subsystem: &BStr, name: &BStr) {
        let Some(names) = self.known.get_mut(subsystem) else { return };
        self.count -= usize::from(names.remove(name).is_some());
        if names.is_empty() {
            self.known.remove(subsystem);
        }
    }

    /// Reads an attribute on the loop, and remembers it if that took long.
    pub fn read<T>(&mut self, subsystem: &BStr, name: &BStr, read: impl FnOnce() -> T) -> T {
        let Some(Pace::Watched(left)) = self.pace(subsystem, name) else {
            let (value, long) = patience::time(read);
            if long {
                log::debug!("Attribute {name} of {subsystem} took long: a helper reads it the next time");
                self.set(subsystem, name, Pace::Suspected);
            }
            return value;
        };
        let (value, waited) = patience::watch(read);
        match left.checked_sub(1) {
            _ if waited => self.set_slow(subsystem, name),
            Some(left) => self.set(subsystem, name, Pace::Watched(left)),
            None => self.forget(subsystem, name),
        }
        value
    }

    /// A helper has read this attribute; it had to wait for it or not.
    pub fn learn(&mut self, subsystem: &BStr, name: &BStr, waited: bool) {
        if self.pace(subsystem, name) == Some(Pace::Suspected) {
            match waited {
                true => self.set_slow(subsystem, name),
                false => self.set(subsystem, name, Pace::Watched(WATCHED)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: (&str, &str) = ("block", "size");

    fn sleep() {
        std::thread::sleep(2 * patience::LONG);
    }

    #[test]
    fn a_read_that_took_long_is_tried_by_a_helper_and_stays_there_if_it_waited_itself() {
        let mut slow = SlowAttributes::default();
        let (block, size) = (BStr::new(BLOCK.0), BStr::new(BLOCK.1));
        assert_eq!(slow.read(block, size, || 1), 1);
        assert!(!slow.is_for_helper(block, size));
        slow.read(block, size, sleep);
        assert!(slow.is_for_helper(block, size) && !slow.is_for_helper("scsi".into(), size));
        slow.learn(block, size, true);
        slow.learn(block, size, false);
        assert!(slow.is_for_helper(block, size), "a quick read later says nothing");
    }

    #[test]
    fn a_read_that_was_held_up_by_others_goes_back_to_the_loop_and_is_watched() {
        let mut slow = SlowAttributes::default();
        let (block, size) = (BStr::new(BLOCK.0), BStr::new(BLOCK.1));
        slow.set(block, size, Pace::Suspected);
        slow.learn(block, size, false);
        assert!(!slow.is_for_helper(block, size));
        slow.read(block, size, || ());
        assert_eq!(slow.pace(block, size), Some(Pace::Watched(WATCHED - 1)));
        slow.read(block, size, sleep);
        assert_eq!(slow.pace(block, size), Some(Pace::Slow), "no helper needs to say it");
    }

    #[test]
    fn what_was_quick_for_long_is_watched_no_more() {
        let mut slow = SlowAttributes::default();
        let (block, size) = (BStr::new(BLOCK.0), BStr::new(BLOCK.1));
        slow.set(block, size, Pace::Suspected);
        slow.learn(block, size, false);
        (0..=WATCHED).for_each(|_| slow.read(block, size, || ()));
        assert_eq!((slow.pace(block, size), slow.count), (None, 0));
        assert!(slow.known.is_empty(), "nothing is kept for subsystems without one");
    }

    #[test]
    fn what_is_read_by_helpers_for_another_reason_is_not_remembered() {
        let mut slow = SlowAttributes::default();
        slow.learn("net".into(), "speed".into(), true);
        assert_eq!(slow.count, 0);
    }

    #[test]
    fn no_more_are_remembered_than_the_limit() {
        let mut slow = SlowAttributes::default();
        for n in 0..MAX + 10 {
            slow.set("x".into(), n.to_string().as_str().into(), Pace::Suspected);
        }
        slow.set("y".into(), "0".into(), Pace::Suspected);
        assert_eq!((slow.count, slow.known.len()), (MAX, 1));
        assert!(slow.is_for_helper("x".into(), "0".into()));
        slow.learn("x".into(), "0".into(), false);
        assert!(!slow.is_for_helper("x".into(), "0".into()), "those within it change");
    }
}
