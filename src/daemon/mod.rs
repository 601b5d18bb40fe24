//! The daemon: one loop that reads what comes in, lets the engine decide, and does what it wants.
//!
//! * [`shell`] is the loop, by a table of parts ([`turn`]); `start` puts it together from [`options`];
//! * [`work`] is the work on events: the engine and who meets the needs of its jobs ([`questions`]);
//! * [`sources`] are read: uevents, links, children, clients;
//! * [`upkeep`] is done beside events: rules, `/run/udev`, devices of which events were lost;
//! * [`readiness`] tells who started us, [`recorder`] and [`trace`] keep what the engine was told, [`stats`] counts.
//!
//! Must stay true: no files in here name each other in a circle. Sources and upkeep know the work on events, which
//! knows nothing of clients and upkeep but the mark of the queue and the end of leftovers; the loop knows all of them.

pub mod options;
pub mod questions;
mod readiness;
pub mod recorder;
pub mod shell;
#[cfg(test)]
mod simulation;
pub mod sources;
pub mod stats;
pub mod trace;
mod turn;
pub mod upkeep;
pub mod work;

mod start;

use crate::world::logger::complain;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// Prints what was asked for; a reader that goes away ends us without a word.
fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

/// `mudevd`.
pub fn main(args: Vec<OsString>) -> ExitCode {
    match options::parse(args) {
        Err(error) => {
            complain(&format!("mudevd: {error}"));
            ExitCode::FAILURE
        }
        Ok(options::Invocation::Help) => print(options::HELP),
        Ok(options::Invocation::Version) => print(&format!("{}\n", crate::LEVEL)),
        Ok(options::Invocation::Run(line)) => match start::run(*line) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                log::error!("{error}");
                ExitCode::FAILURE
            }
        },
    }
}
