//! Builtins: one file each. A builtin reads devices through world and the link table and returns
//! properties as data; what may block it asks for ([`Need`]) and is tried again with one fact more,
//! like an operation of the rules.

use crate::model::{Errno, Event, IfIndex};
use crate::rules::ask::{BuiltinName, BuiltinResult};
use bstr::BString;

/// What a builtin cannot know by itself without waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// The row of this link: unknown so far.
    Link(IfIndex),
    /// The row of this link, refreshed by a targeted request: a column that changes silently is asked for.
    FreshLink(IfIndex),
    /// The driver of an interface by ethtool GDRVINFO, in a helper. -> [`Fact::Driver`]
    Driver { ifname: BString },
    /// An rtnetlink request (complete message, NLM_F_ACK set), sent by the request helper.
    /// -> [`Fact::Rtnl`]
    Rtnl(Vec<u8>),
    /// Write a sysfs attribute in a helper. -> [`Fact::Written`]
    Write { path: BString, value: BString },
}

/// The answer to a [`Need`], in the order of asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    Link,
    Driver(Result<Option<BString>, Errno>),
    Rtnl(Result<(), Errno>),
    Written(Result<(), Errno>),
}

/// One try of a builtin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    Done(BuiltinResult),
    Need(Need),
}

/// A call as the builtin sees it.
pub struct Call<'a> {
    pub builtin: BuiltinName,
    /// Words of the command, the builtin's name first.
    pub argv: &'a [BString],
    pub event: &'a Event,
    /// Answers to the needs of earlier tries of this call, in order.
    pub facts: &'a [Fact],
    /// `udevadm test` and `test-builtin`: no effect on the system.
    pub dry: bool,
}
