//! What the daemon does beside events: it keeps rules, `/run/udev` and devices as they should be.
//!
//! Must stay true: nothing here holds an event up for longer than a slice; who ends begins nothing anew.

pub mod coldplug;
pub mod compiling;
pub mod configuration;
pub mod findings;
pub mod follow_up;
pub mod leftovers;
pub mod mend;
pub mod queue_file;
pub mod reload;
pub mod resync;
pub mod static_nodes;
pub mod unfinished;
