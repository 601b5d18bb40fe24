//! What jobs wait for. Whatever a job wants is *tried*, and a try gives its result or the first [`Need`] that it cannot
//! have without waiting. Once that is met the same is tried again with one [`Fact`] more. Builtins, questions of rules,
//! effects and programs all speak of the same needs, and the daemon and the tool meet them.
//!
//! Must stay true: both are values, which can be printed, compared and kept.

use super::operation::{Operation, OperationReply};
use super::{Errno, IfIndex};
use bstr::BString;
use std::sync::Arc;

/// What a try cannot have without waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// The link table has to catch up first: what it says may be older than the event. -> [`Fact::LinksRead`]
    LinksRead,
    /// The row of a link that the table does not know (yet). -> [`Fact::Link`]
    Link(IfIndex),
    /// A row no older than now, by a request of its own: a column that changes silently is asked for.
    /// -> [`Fact::Link`]
    FreshLink { ifindex: IfIndex, statistics: bool },
    /// A child. -> [`Fact::Exit`]
    Program { command: BString, capture: bool },
    /// A helper. -> [`Fact::Helper`]
    Helper(Operation),
    /// The driver of an interface by ethtool (GDRVINFO), from the process that sends rtnetlink requests.
    /// -> [`Fact::Driver`]
    ///
    /// While this is asked for one interface, others with the same `constant_of` need not ask: when the
    /// answer is there, they are tried again ([`Fact::Asked`]).
    Driver { ifname: BString, constant_of: Option<BString> },
    /// An rtnetlink request: a complete message with NLM_F_ACK set. Its sequence number is 0, and who sends it puts
    /// its own there. -> [`Fact::Rtnl`]
    Rtnl(Vec<u8>),
    /// One that takes back what an earlier one did: it has a time of its own. -> [`Fact::Rtnl`]
    Undo(Vec<u8>),
    /// Another turn: of its parts so many are done. -> [`Fact::Turn`]
    Turn(PartsDone),
}

/// How a need was met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The link table has caught up: it is tried again as if for the first time.
    LinksRead,
    /// The table was told of the link, or will not be.
    Link,
    Exit(Exit),
    Helper(OperationReply),
    /// EOPNOTSUPP: the driver does not say; ENODEV: the interface is gone.
    Driver(Result<BString, Errno>),
    /// Somebody else has asked the same; what was learned by that is known now.
    Asked,
    Rtnl(Result<(), Errno>),
    /// The next turn has come. It is the only fact of its task.
    Turn(PartsDone),
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit status 0.
    pub success: bool,
    /// Captured standard output, at most 16383 bytes.
    pub output: BString,
    /// There was more.
    pub truncated: bool,
}

/// How far work of many parts has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartsDone {
    /// Parts that were tried.
    pub done: usize,
    /// The first error.
    pub failed: Option<Errno>,
    /// What the work is where that had to be found out first.
    pub rest: Option<Arc<Rest>>,
}

/// What a device has, or seems to have, that nothing calls for any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    pub links: Vec<BString>,
    pub tags: Vec<BString>,
}

impl PartsDone {
    /// What an effect that has been tried before has done.
    pub fn of(facts: &[Fact]) -> PartsDone {
        match facts {
            [Fact::Turn(parts)] => parts.clone(),
            _ => PartsDone::default(),
        }
    }

    /// It cannot even be found out what is to be done.
    pub fn fail(&mut self, error: &std::io::Error) {
        self.failed.get_or_insert(Errno::of(error));
    }

    /// Whether a portion was done.
    pub fn has_begun(&self) -> bool {
        self.done > 0
    }

    /// How all of it went.
    pub fn result(&self) -> std::io::Result<()> {
        self.failed.map_or(Ok(()), |errno| Err(std::io::Error::from_raw_os_error(errno.0)))
    }
}
