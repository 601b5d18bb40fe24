//! The needs of jobs. Whatever a job wants is *tried*, and a try gives its result or the first [`Need`] that it cannot
//! have without waiting. When the need is met, the job is tried again with one [`Fact`] more. Builtins, questions of rules,
//! effects and programs have these needs in common; the daemon and the tool meet them.
//!
//! Must stay true: needs and facts are values. They can be printed, compared and kept.

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
    /// An rtnetlink request: a complete message with NLM_F_ACK set. Its sequence number is 0 until it is sent.
    /// -> [`Fact::Rtnl`]
    Rtnl(Vec<u8>),
    /// A request that takes back what an earlier one did. It has a time limit of its own, not that of the event.
    /// -> [`Fact::Rtnl`]
    Undo(Vec<u8>),
    /// Another turn of the loop: the effect has more parts than fit into one. -> [`Fact::Turn`]
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
    /// Another job has asked for the same driver, and the builtin has learned the answer.
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
    /// The work itself, where it had to be looked up first.
    pub rest: Option<Arc<Rest>>,
}

/// Symlinks and tags of a device that its record does not name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    pub symlinks: Vec<BString>,
    pub tags: Vec<BString>,
}

impl PartsDone {
    /// The parts that earlier tries of an effect have done.
    pub fn of(facts: &[Fact]) -> PartsDone {
        match facts {
            [Fact::Turn(parts)] => parts.clone(),
            _ => PartsDone::default(),
        }
    }

    /// The list of parts cannot be found out.
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
