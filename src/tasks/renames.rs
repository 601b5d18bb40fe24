//! Names of interfaces: a rename, and alternative names. Each is a small machine: every fact brings it from one state to
//! the next, and the state decides the next need or the result.
//!
//! Must stay true: an alternative name that was taken away for a rename is put back when the rename fails. Only a fresh row
//! says which names an interface has, because the kernel does not announce changes of a link that is down.

use crate::links::{Lookup, Table, request};
use crate::model::effect::Done;
use crate::model::need::{Fact, Need};
use crate::model::{Errno, Event, IfIndex};
use bstr::BString;

/// Where a rename stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renaming {
    /// The kernel is to set the name.
    Set,
    /// The name exists. Whose it is, a fresh row tells.
    Exists,
    /// The row is fresh. If the name is an alternative one of this interface, it is taken away.
    Fresh,
    /// It was taken away; the kernel is to set the name.
    SetAgain,
    /// That failed, by this error: the alternative name is put back.
    PutBack(Errno),
    Renamed,
    Failed(Errno),
}

impl Renaming {
    fn after(facts: &[Fact]) -> Renaming {
        facts.iter().fold(Renaming::Set, Renaming::next)
    }

    fn next(self, fact: &Fact) -> Renaming {
        use Renaming::*;
        match (self, fact) {
            (Set, Fact::Rtnl(Err(Errno(libc::EEXIST)))) => Exists,
            (Exists, Fact::Link) => Fresh,
            (Fresh, Fact::Rtnl(Ok(()))) => SetAgain,
            (Set | SetAgain, Fact::Rtnl(Ok(()))) => Renamed,
            (SetAgain, Fact::Rtnl(Err(errno))) => PutBack(*errno),
            (Set | Fresh, Fact::Rtnl(Err(errno))) => Failed(*errno),
            // Whether it could be put back or not.
            (PutBack(errno), Fact::Rtnl(_)) => Failed(errno),
            (state, _) => state,
        }
    }
}

/// Renames an interface. The kernel says EEXIST also when the name is one of the interface's own
/// alternative names; then that one is taken away first and restored should the rename fail again
/// (rules.md 9.4). Whether it is one is asked of a fresh row only then.
pub(super) fn rename(
    links: &Table,
    ifindex: IfIndex,
    (from, to): (&BString, &BString),
    facts: &[Fact],
) -> Result<Done, Need> {
    let name = std::slice::from_ref(to);
    match Renaming::after(facts) {
        Renaming::Set | Renaming::SetAgain => Err(Need::Rtnl(request::set_name(ifindex, to, 0))),
        Renaming::Exists => Err(Need::FreshLink { ifindex, statistics: false }),
        Renaming::Fresh if has_alt_name(links, ifindex, to) => {
            Err(Need::Rtnl(request::remove_alt_names(ifindex, name, 0)))
        }
        Renaming::Fresh => Ok(Done::Failed(Errno(libc::EEXIST))),
        Renaming::PutBack(_) => Err(Need::Undo(request::add_alt_names(ifindex, name, 0))),
        Renaming::Renamed => {
            log::debug!("renamed {from} to {to}");
            Ok(Done::Ok)
        }
        Renaming::Failed(errno) => Ok(Done::Failed(errno)),
    }
}

fn has_alt_name(links: &Table, ifindex: IfIndex, name: &BString) -> bool {
    match links.lookup(ifindex) {
        Lookup::Known(link) => link.alt_names().contains(name),
        _ => false,
    }
}

/// Where the addition of alternative names stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Naming {
    /// The names in the row may be out of date.
    Unsure,
    /// The row is fresh.
    Fresh,
    /// One of the names exists. Whose it is, a fresh row tells.
    Exists,
    /// Each name by itself: so many were tried, the last one with this result.
    Singly(usize, Result<(), Errno>),
    Given,
    Failed(Errno),
}

impl Naming {
    fn after(facts: &[Fact]) -> Naming {
        facts.iter().fold(Naming::Unsure, Naming::next)
    }

    fn next(self, fact: &Fact) -> Naming {
        use Naming::*;
        match (self, fact) {
            (Unsure, Fact::Link) => Fresh,
            (Unsure | Fresh, Fact::Rtnl(Ok(()))) => Given,
            (Unsure | Fresh, Fact::Rtnl(Err(Errno(libc::EEXIST)))) => Exists,
            (Unsure | Fresh, Fact::Rtnl(Err(errno))) => Failed(*errno),
            (Exists, Fact::Link) => Singly(0, Ok(())),
            (Singly(tried, _), Fact::Rtnl(result)) => Singly(tried + 1, *result),
            (state, _) => state,
        }
    }
}

/// Adds alternative names that the interface does not have: all in one request; where one belongs to
/// another interface, each by itself (builtins.md 2.4). Failures are only logged.
///
/// Names of a link that is down change without a message. So the kernel is asked before a name is left out because the
/// link has it, and before the log says that another link has it.
pub(super) fn add_alt_names(
    links: &Table,
    event: &Event,
    ifindex: IfIndex,
    (name, wanted): (&BString, &[BString]),
    facts: &[Fact],
) -> Result<Done, Need> {
    let has = |name: &BString| has_alt_name(links, ifindex, name);
    let mut names: Vec<BString> = wanted.iter().filter(|n| *n != name).cloned().collect();
    names.sort();
    names.dedup();
    let add = |names: &[BString]| Err(Need::Rtnl(request::add_alt_names(ifindex, names, 0)));
    let log = |names: &[BString], errno: Errno| {
        log::warn!("{}: cannot give {name} the names {names:?}: {errno}", event.title());
    };
    let fresh = || Err(Need::FreshLink { ifindex, statistics: false });
    match Naming::after(facts) {
        Naming::Unsure if names.iter().any(has) => fresh(),
        Naming::Unsure | Naming::Fresh => {
            names.retain(|name| !has(name));
            if names.is_empty() { Ok(Done::Ok) } else { add(&names) }
        }
        Naming::Exists => fresh(),
        Naming::Singly(tried, last) => {
            let last_name = tried.checked_sub(1).and_then(|at| names.get(at));
            if let (Err(errno), Some(last_name)) = (last, last_name)
                && !has(last_name)
            {
                log(std::slice::from_ref(last_name), errno);
            }
            match names.get(tried) {
                Some(next) => add(std::slice::from_ref(next)),
                None => Ok(Done::Ok),
            }
        }
        Naming::Given => Ok(Done::Ok),
        Naming::Failed(errno) => {
            log(&names, errno);
            Ok(Done::Ok)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::Origin;
    use crate::links::wire::{Builder, IFLA_ALT_IFNAME, IFLA_IFNAME, IFLA_MTU, IFLA_PROP_LIST, RTM_NEWLINK};
    use crate::model::{SeqNum, Uevent};

    const LINK: IfIndex = IfIndex(5);

    /// A table with one link that has the alternative name `alt`.
    fn table() -> Table {
        let mut table = Table::new();
        let alt_names = Builder::new(0, 0, 0).text(IFLA_ALT_IFNAME, b"alt").finish();
        let row = Builder::new(RTM_NEWLINK, 0, 0)
            .ifinfo(LINK.0)
            .text(IFLA_IFNAME, b"l0")
            .u32(IFLA_MTU, 1500)
            .attribute(IFLA_PROP_LIST, &alt_names[crate::links::wire::HEADER..])
            .finish();
        table.apply(&row, Origin::Notification, &mut Vec::new());
        table
    }

    fn event() -> Event {
        Event::new(Uevent {
            action: crate::model::Action::Add,
            seqnum: SeqNum(1),
            devpath: "/devices/virtual/net/l0".into(),
            subsystem: "net".into(),
            properties: Default::default(),
        })
    }

    const EXISTS: Fact = Fact::Rtnl(Err(Errno(libc::EEXIST)));
    const LATE: Fact = Fact::Rtnl(Err(Errno(libc::ETIMEDOUT)));
    const OK: Fact = Fact::Rtnl(Ok(()));

    #[test]
    fn a_name_that_the_link_has_as_an_alternative_one_is_taken_from_there_and_put_back() {
        let (table, to) = (table(), BString::from("alt"));
        let rename = |facts: &[Fact]| rename(&table, LINK, (&"l0".into(), &to), facts);
        let set_name = || Err(Need::Rtnl(request::set_name(LINK, b"alt", 0)));
        let own = std::slice::from_ref(&to);
        assert_eq!(rename(&[]), set_name());
        assert_eq!(rename(&[LATE]), Ok(Done::Failed(Errno(libc::ETIMEDOUT))));
        assert_eq!(rename(&[EXISTS]), Err(Need::FreshLink { ifindex: LINK, statistics: false }));
        let remove = Need::Rtnl(request::remove_alt_names(LINK, own, 0));
        assert_eq!(rename(&[EXISTS, Fact::Link]), Err(remove));
        assert_eq!(rename(&[EXISTS, Fact::Link, OK]), set_name());
        assert_eq!(rename(&[EXISTS, Fact::Link, OK, OK]), Ok(Done::Ok));
        // Whatever the time of the event, it is not lost.
        let undo = Need::Undo(request::add_alt_names(LINK, own, 0));
        assert_eq!(rename(&[EXISTS, Fact::Link, OK, LATE]), Err(undo));
        let failed = Ok(Done::Failed(Errno(libc::ETIMEDOUT)));
        assert_eq!(rename(&[EXISTS, Fact::Link, OK, LATE, OK]), failed);
    }

    #[test]
    fn alternative_names_are_left_out_only_by_a_fresh_row() {
        let (table, event) = (table(), event());
        let give = |wanted: &[&str], facts: &[Fact]| {
            let wanted: Vec<BString> = wanted.iter().map(|name| BString::from(*name)).collect();
            add_alt_names(&table, &event, LINK, (&"l0".into(), &wanted), facts)
        };
        let add = |names: &[&str]| {
            let names: Vec<BString> = names.iter().map(|name| BString::from(*name)).collect();
            Err(Need::Rtnl(request::add_alt_names(LINK, &names, 0)))
        };
        let fresh = Err(Need::FreshLink { ifindex: LINK, statistics: false });
        assert_eq!(give(&["x", "l0"], &[]), add(&["x"]), "it has none of them");
        assert_eq!(give(&["alt", "x"], &[]), fresh);
        assert_eq!(give(&["alt", "x"], &[Fact::Link]), add(&["x"]));
        assert_eq!(give(&["alt"], &[Fact::Link]), Ok(Done::Ok));
        // Who has a name that exists is asked before each is tried by itself.
        assert_eq!(give(&["x", "y"], &[EXISTS]), fresh);
        assert_eq!(give(&["x", "y"], &[EXISTS, Fact::Link]), add(&["x"]));
        assert_eq!(give(&["x", "y"], &[EXISTS, Fact::Link, EXISTS]), add(&["y"]));
        assert_eq!(give(&["x", "y"], &[EXISTS, Fact::Link, EXISTS, OK]), Ok(Done::Ok));
    }
}
