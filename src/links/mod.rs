//! The link table, without I/O (ARCHITECTURE.md, "The link table"; builtins.md section 3): the facts about network
//! interfaces in the kernel's RTM_NEWLINK messages, and the text that sysfs would show for them.
//!
//! * [`wire`]: walking netlink messages, and building those that no crate builds: our own to the request helper, and
//!   those of tests;
//! * [`decode`]: one RTM_NEWLINK to a [`Link`]; acknowledgements to a [`Reply`];
//! * [`table`]: `ifindex -> Link`, kept right through overruns, dumps and out-of-order replies;
//! * [`mod@attr`]: the text of a sysfs file from a row, or where else to ask;
//! * [`request`]: the bytes of requests.
//!
//! * [`exchange`]: in which order notifications, requests and replies go in and out of a table.
//!
//! How the daemon uses it: messages from the subscribed socket and from the request helper go to an [`Exchange`],
//! which knows when requests may leave and replies count; the reasons are in [`table`].

pub mod attr;
pub mod decode;
pub mod exchange;
pub mod link;
pub mod request;
pub mod table;
pub mod wire;

pub use attr::{Exists, LinkAttr, Refresh, attr, exists, is_free_of_locks};
pub use decode::Reply;
pub use exchange::{Ended, Errand, Exchange};
pub use link::Link;
pub use table::{Lookup, Mark, Origin, Table};
