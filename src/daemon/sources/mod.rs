//! What the loop reads, one file for each source, and [`source`], by which the loop knows them.
//!
//! Must stay true: a source is read until there is nothing more, or its share of a turn is used up; then it is ready
//! still, and the loop does not wait. Reading is not deciding: what was read becomes an input, or an order for the loop.

pub mod children;
pub mod control;
pub mod intake;
pub mod links;
pub mod listener;
pub mod passed;
pub mod source;
pub mod status;
