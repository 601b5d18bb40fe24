//! Does what jobs want, with files, the link table and builtins. What a job wants ([`crate::engine::JobRequest`]) is
//! *tried*: the try gives the reply, or the first need that this layer cannot meet without waiting. The daemon, or the
//! tool, meets the need and tries the request again with one fact more ([`crate::model::need`]). So all waiting has one
//! form, and a request that is dropped needs no undoing.
//!
//! * `attempt` tries what a job wants, and [`pending`] is what is known of what must wait;
//! * [`answers`] and [`attributes`] answer what rules ask, with [`slow`] and [`absent`], which learn of attributes;
//! * [`effects`] performs, with `renames` (of interfaces), [`disk_locks`], [`portions`] (work of many parts) and
//!   [`turn`] (its time);
//! * [`stores`] holds the stores that all of this reads and writes;
//! * [`unfinished`] (with `finishing`), [`gone`], [`interrupted`] and [`follow_ups`] know what is left to do when no job
//!   asks for it.
//!
//! Must stay true: nothing in this layer waits. Every try begins the request anew, so a try changes something only in its
//! last step, when it has all facts. An effect of many parts is different: its need says how many of them are done.

pub mod absent;
pub mod answers;
mod attempt;
pub mod attributes;
pub mod disk_locks;
pub mod effects;
mod finishing;
pub mod follow_ups;
pub mod gone;
pub mod interrupted;
pub mod pending;
pub mod portions;
mod renames;
pub mod slow;
pub mod stores;
pub mod turn;
pub mod unfinished;

pub use answers::Answers;
pub use pending::Pending;
pub use stores::Stores;
