//! The logic, without I/O: which event may run now (queue), what comes next in it (job).
//!
//! Contract: after every [`Engine::handle`], drain [`Engine::poll_output`] until None before the
//! next input; every [`Output::Ask`] and [`Output::Perform`] is replied to exactly once, at once or
//! later; wake up at [`Engine::poll_timeout`] with [`Input::Tick`].

use crate::model::effect::{Done, Effect};
use crate::model::{Event, Now, Uevent};
use crate::rules::outcome::RunItem;
use crate::rules::program::RuleSet;
use crate::rules::{Answer, Ask};
use bstr::BString;
use std::sync::Arc;
use std::time::Duration;

/// Names one job for its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// What the outside tells the engine.
#[derive(Clone, Debug)]
pub enum Input {
    Uevent(Uevent),
    /// To an [`Output::Ask`].
    Answer {
        job: JobId,
        answer: Answer,
    },
    /// To an [`Output::Perform`].
    Performed {
        job: JobId,
        done: Done,
    },
    /// To an [`Output::Run`]; failures are logged by who runs.
    Ran {
        job: JobId,
    },
    /// The program or helper of this job exceeded its time and was killed by this signal.
    TimedOut {
        job: JobId,
    },
    /// A close-write or a new uevent on a whole disk: events that wait for its lock are tried again.
    DiskMayBeFree {
        devnode: BString,
    },
    Rules(Arc<RuleSet>),
    StopQueue,
    StartQueue,
    /// Global property; empty value unsets it.
    SetGlobal {
        name: BString,
        value: BString,
    },
    ChildrenMax(usize),
    /// Finish running jobs, start no others.
    Exit,
    /// Time went on.
    Tick,
}

/// What the engine wants.
#[derive(Clone, Debug)]
pub enum Output {
    /// A question of the rules; the context is [`Engine::event`].
    Ask { job: JobId, ask: Ask },
    /// An effect. `Effect::Announce` and all others are performed in the order they come out.
    Perform { job: JobId, effect: Effect },
    /// An entry of the RUN list: run it, then reply [`Input::Ran`].
    Run { job: JobId, item: RunItem },
    /// The queue became busy (true) or idle (false): `/run/udev/queue`.
    Busy(bool),
    /// Log level for the rest of this event; None: the daemon's.
    LogLevel { job: JobId, level: Option<log::LevelFilter> },
    /// A line for the administrator, SEQNUM and devpath included.
    Log { level: log::Level, text: String },
}

/// Settings that change how events are handled.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    pub event_timeout: Duration,
    pub exec_delay: Duration,
    pub children_max: usize,
    pub blockdev_read_only: bool,
}

/// Where a job stands, for `status`.
#[derive(Clone, Debug, serde::Serialize)]
pub struct JobStatus {
    pub job: u64,
    pub seqnum: u64,
    pub action: String,
    pub devpath: String,
    /// Name of the phase, `rules`, `run`, `lock`, ...
    pub phase: String,
    /// What it waits for, empty if it does not.
    pub waits_for: String,
    /// Since when, seconds of CLOCK_MONOTONIC.
    pub since: f64,
}

/// See the module.
pub struct Engine {
    _config: EngineConfig,
}

impl Engine {
    /// An idle engine.
    pub fn new(config: EngineConfig, _rules: Arc<RuleSet>) -> Engine {
        Engine { _config: config }
    }

    /// Takes one input.
    pub fn handle(&mut self, _input: Input, _now: Now) {
        todo!()
    }

    /// The next thing to do; None when all is drained.
    pub fn poll_output(&mut self) -> Option<Output> {
        todo!()
    }

    /// When to come back with [`Input::Tick`] at the latest.
    pub fn poll_timeout(&self) -> Option<Now> {
        todo!()
    }

    /// The event of a running job: what children get as environment, what builtins read.
    pub fn event(&self, _job: JobId) -> Option<&Event> {
        todo!()
    }

    /// The devpaths of the parents as the evaluation knows them, if it has asked.
    pub fn job_started(&self, _job: JobId) -> Option<Now> {
        todo!()
    }

    /// Number of events waiting and running.
    pub fn queue_len(&self) -> (usize, usize) {
        todo!()
    }

    /// Running jobs.
    pub fn status(&self, _now: Now) -> Vec<JobStatus> {
        todo!()
    }

    /// No event waits or runs.
    pub fn is_idle(&self) -> bool {
        todo!()
    }
}
