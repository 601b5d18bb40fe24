//! What goes into the engine and what comes out of it: plain values.

use crate::model::effect::{Done, Effect};
use crate::model::{Event, Uevent};
use crate::rules::outcome::RunItem;
use crate::rules::program::RuleSet;
use crate::rules::{Answer, Ask};
use bstr::BString;
use std::fmt;
use std::sync::Arc;

/// Names one job for its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// What the outside tells the engine.
#[derive(Clone, Debug)]
pub enum Input {
    /// It is queued; [`Input::Start`] starts it.
    Uevent(Uevent),
    /// The outside has nothing better to do: start one event that may run.
    Start,
    /// Rules that have paused go on: those of the job whose [`Output::Pause`] was the last output, else those that
    /// have waited longest for their turn.
    GoOn,
    /// To an [`Output::Request`] of this job.
    Reply {
        job: JobId,
        reply: JobReply,
    },
    /// Something was closed on this disk or partition: events that wait for the disk's lock are tried again.
    DiskMayBeFree {
        devpath: BString,
    },
    Rules(Arc<RuleSet>),
    StopQueue,
    StartQueue,
    /// Global property; an empty value unsets it.
    SetGlobal {
        name: BString,
        value: BString,
    },
    /// Finish running jobs, start no others.
    Exit,
    /// Time went on.
    Tick,
}

/// What a job wants. The job keeps it until the reply comes.
#[derive(Clone, Copy, Debug)]
pub enum JobRequest<'e> {
    /// A question of the rules.
    Ask(&'e Ask),
    Perform(&'e Effect),
    /// An entry of the RUN list.
    Run(&'e RunItem),
}

/// How a request went.
#[derive(Clone, Debug)]
pub enum JobReply {
    /// To [`JobRequest::Ask`].
    Answer(Answer),
    /// To [`JobRequest::Perform`].
    Done(Done),
    /// To [`JobRequest::Run`]; whoever runs the entry logs failures.
    Ran,
}

/// What the engine wants.
pub enum Output<'e> {
    /// A job wants something; its event is the context. The reply is [`Input::Reply`], at once or later.
    Request { job: JobId, event: &'e Event, request: JobRequest<'e> },
    /// The rules of this job have worked for a while. With [`Input::GoOn`] as the next input they go on at once, else
    /// the job waits for its turn.
    Pause { job: JobId },
    /// Nobody replies to it.
    Notice(Notice),
}

/// What the engine only tells.
#[derive(Clone, Debug)]
pub enum Notice {
    /// The queue became busy (true) or idle (false): `/run/udev/queue`.
    Busy(bool),
    /// Log level for the rest of this event; None: the daemon's.
    LogLevel { job: JobId, level: Option<log::LevelFilter> },
    /// A line for the administrator, SEQNUM and devpath included.
    Log { level: log::Level, text: String },
}

/// What a replay prints: without the event.
impl fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Output::Request { job, request: JobRequest::Ask(ask), .. } => {
                f.debug_struct("Ask").field("job", job).field("ask", ask).finish()
            }
            Output::Request { job, request: JobRequest::Perform(effect), .. } => {
                f.debug_struct("Perform").field("job", job).field("effect", effect).finish()
            }
            Output::Request { job, request: JobRequest::Run(item), .. } => {
                f.debug_struct("Run").field("job", job).field("item", item).finish()
            }
            Output::Pause { job } => f.debug_struct("Pause").field("job", job).finish(),
            Output::Notice(notice) => notice.fmt(f),
        }
    }
}
