//! Where a job stands, in words for `mudevadm status`.

use super::{Awaiting, Job, JobRequest, Phase};
use crate::rules::Ask;
use crate::rules::outcome::RunItem;

/// Where a job stands, for `status`.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
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

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Lock | Phase::LockWait { .. } => "lock",
            Phase::ReadOnly => "read-only",
            Phase::DropWatch | Phase::ReadRecord | Phase::MarkProcessing => "old record",
            Phase::RemoveTags | Phase::RemoveRecord => "remove record",
            Phase::Rules => "rules",
            Phase::RestoreWatch | Phase::RestoreRecord => "restore record",
            Phase::AnnounceRenaming | Phase::Rename | Phase::AltNames => "rename",
            Phase::Node => "node",
            Phase::Symlinks | Phase::NumberSymlink => "symlinks",
            Phase::Tags => "tags",
            Phase::Record | Phase::FinalRecord => "record",
            Phase::Delay { .. } => "delay",
            Phase::Run { .. } => "run",
            Phase::Watch => "watch",
            Phase::Unlock => "unlock",
            Phase::Announce { .. } => "announce",
            Phase::Finished => "finished",
        }
    }
}

impl Job {
    /// For `status`.
    pub fn status(&self) -> JobStatus {
        let event = self.event();
        let is_waiting = self.awaiting != Awaiting::Nothing;
        let phase = if is_waiting { self.asked_in } else { self.phase };
        let waits_for = match (self.request(), phase) {
            (Some(JobRequest::Ask(ask)), _) => describe(ask),
            (Some(JobRequest::Run(RunItem::Program(command))), _) => format!("program {command:?}"),
            (Some(JobRequest::Run(RunItem::Builtin(_, command))), _) => format!("builtin {command:?}"),
            (_, Phase::LockWait { .. }) => "the lock of the disk".to_string(),
            (_, Phase::Delay { .. }) => "exec_delay".to_string(),
            (Some(JobRequest::Perform(_)), _) => phase.name().to_string(),
            (None, _) => String::new(),
        };
        JobStatus {
            job: self.id.0,
            seqnum: event.seqnum.0,
            action: event.action.to_string(),
            devpath: event.device.devpath.to_string(),
            phase: phase.name().to_string(),
            waits_for,
            since: self.since.since_boot().as_secs_f64(),
        }
    }
}

/// An ask in the words of `status`.
fn describe(ask: &Ask) -> String {
    match ask {
        Ask::Run { command } => format!("program {command:?}"),
        Ask::Builtin { command, .. } => format!("builtin {command:?}"),
        Ask::Attr { name, .. } => format!("attribute {name:?}"),
        Ask::WriteAttr { target, .. } => format!("write to attribute {target:?}"),
        Ask::WriteSysctl { name, .. } => format!("write to sysctl {name:?}"),
        _ => "a fact".to_string(),
    }
}
