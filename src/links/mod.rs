//! The link table, without I/O (design.md section 3, builtins.md section 3): what the kernel's
//! RTM_NEWLINK messages say of network interfaces, and the text that sysfs would show for it.
//!
//! * [`wire`]: walking and building netlink messages;
//! * [`decode`]: one RTM_NEWLINK to a [`Link`]; acknowledgements to a [`Reply`];
//! * [`table`]: `ifindex -> Link`, kept right through overruns, dumps and out-of-order replies;
//! * [`attr`]: the text of a sysfs file from a row, or who else can tell;
//! * [`request`]: the bytes of requests.
//!
//! How the daemon uses it: datagrams of the subscribed socket go to [`Table::apply`] as
//! [`Origin::Notification`], those of the request helper as [`Origin::Reply`]. **Read the subscribed
//! socket until it is empty before a mark is made, a request or dump is made, and a reply is applied**:
//! the order rules of [`table`] rest on that.

pub mod attr;
pub mod decode;
pub mod link;
pub mod request;
pub mod table;
pub mod wire;

pub use attr::{Exists, LinkAttr, Refresh, attr, exists, is_free_of_locks};
pub use decode::Reply;
pub use link::{Link, Short};
pub use table::{Applied, Change, Lookup, Mark, News, Origin, Table};
