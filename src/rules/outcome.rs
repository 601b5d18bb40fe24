//! What the rules decided for one event.

use crate::model::{Errno, Event};
use bstr::BString;

/// An entry of the RUN list, substituted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunItem {
    Program(BString),
    Builtin(super::ask::BuiltinName, BString),
}

/// OPTIONS="watch" and "nowatch".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    On,
    Off,
}

/// The result of all rules. `event` holds properties, tags and symlinks as the rules left them.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub event: Event,
    /// NAME=, already sanitised.
    pub name: Option<BString>,
    pub owner: Option<u32>,
    pub group: Option<u32>,
    pub mode: Option<u32>,
    /// (module, label).
    pub seclabels: Vec<(BString, BString)>,
    pub run: Vec<RunItem>,
    pub watch: Option<Watch>,
    pub db_persist: bool,
    pub link_priority: i32,
    pub log_level: Option<log::LevelFilter>,
    /// From net_setup_link.
    pub alt_names: Vec<BString>,
    /// Set when a token aborted the event (rules.md 9.5); what was set before stays.
    pub failure: Option<Errno>,
}

impl Outcome {
    /// Nothing is decided yet.
    pub fn new(event: Event) -> Outcome {
        Outcome {
            event,
            name: None,
            owner: None,
            group: None,
            mode: None,
            seclabels: Vec::new(),
            run: Vec::new(),
            watch: None,
            db_persist: false,
            link_priority: 0,
            log_level: None,
            alt_names: Vec::new(),
            failure: None,
        }
    }
}
