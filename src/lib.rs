//! mudev: a udev for small systems. One executable, one thread, one loop.
//!
//! ```text
//!   uevents  rtnetlink  control  inotify  signals  children  helpers  clock
//!       \        |         |        |        |        |         |      /
//!        `-------+---------+--------+--------+--------+---------+-----'
//!                                   v
//!   daemon/   read until WouldBlock  ->  plain inputs              (no decision here)
//!   engine/   queue, jobs: which event may run, and what comes next
//!   rules/    the evaluator: asks for facts, ends in an outcome
//!   tasks/    answers asks and performs effects through world/, builtin/; says what it needs for that
//!   daemon/   meets these needs: children, helpers, the link table
//! ```
//!
//! Layers (arrows point downward only; `make layers` checks it):
//!
//! * pure, no I/O: [`model`], [`rules`], [`links`], [`engine`];
//! * [`sys`]: thin doors to the kernel, the only `unsafe`;
//! * [`world`]: reads and writes files under movable roots; [`builtin`]: properties from devices;
//!   [`helper`]: operations that may block, run in processes of their own;
//! * [`tasks`]: what jobs want, done or said what it needs;
//! * [`daemon`]: the loop, the only user of mio; [`adm`]: the tool.
//!
//! Invariants: effects are never performed where they are decided; no call on the loop waits for
//! hardware, a lock or another process; no global state but the logger.

#![deny(unsafe_code)]
#![warn(unreachable_pub)]
// The docs are for those who read the source, and are built with what is private.
#![allow(rustdoc::private_intra_doc_links)]

pub mod adm;
pub mod builtin;
pub mod daemon;
pub mod engine;
pub mod helper;
pub mod links;
pub mod model;
pub mod rules;
pub mod sys;
pub mod tasks;
pub mod world;

use std::ffi::OsString;
use std::process::ExitCode;

/// The release of systemd whose behaviour is reproduced: what `--version` says, and scripts compare.
pub const LEVEL: u32 = 255;

/// Runs what the name in `args[0]` asks for: daemon, tool or helper. As `mudev` the first argument
/// chooses `daemon` or `adm`.
pub fn dispatch(args: Vec<OsString>) -> ExitCode {
    let name = args
        .first()
        .and_then(|a| std::path::Path::new(a).file_name())
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    match name.as_str() {
        "mudevd" | "udevd" | "systemd-udevd" => daemon::main(args),
        "mudevadm" | "udevadm" => adm::main(args),
        helper::PROGRAM_NAME => helper::main(args),
        _ => match args.get(1).and_then(|a| a.to_str()) {
            Some("daemon") => daemon::main(args[1..].to_vec()),
            Some("adm") => adm::main(args[1..].to_vec()),
            _ => {
                let hint = "say `mudev daemon` or `mudev adm`, or call it mudevd or mudevadm";
                world::logger::complain(&format!("{name}: {hint}"));
                ExitCode::FAILURE
            }
        },
    }
}
