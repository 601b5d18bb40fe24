//! The rules language, without I/O.
//!
//! ```text
//!   bytes -> lex (lines, tokens with spans) -> compile -> program::RuleSet
//!                                                              |
//!                                       skip: which lines may matter for this kind of event,
//!                                       which of them may hold by what the event has shown
//!                                                              |
//!   Event ------------------------------------------------->  eval  <-> Ask / Answer
//!                                                              |
//!                                                           Outcome
//! ```

pub mod ask;
pub mod compile;
pub mod diagnostic;
pub mod eval;
pub mod glob;
pub mod lex;
pub mod lint;
#[allow(dead_code, reason = "tests, the corpus and fuzzing evaluate rules in it")]
pub mod memory_world;
pub mod outcome;
pub mod pattern;
pub mod program;
pub mod sanitise;
pub mod skip;
pub mod subst;

pub use ask::{Answer, Ask};
