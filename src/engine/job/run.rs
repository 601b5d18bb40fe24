//! The RUN list: programs and builtins, one after the other.

use super::{Awaiting, EngineConfig, Job, JobStep, Phase};
use crate::model::Now;
use crate::rules::outcome::RunItem;

impl Job {
    /// Whether there are programs or builtins to run after the rules.
    pub(super) fn runs(&self) -> bool {
        self.failure.is_none() && !self.outcome.run.is_empty()
    }

    /// Where to go once record and symlinks stand.
    pub(super) fn first_run(&self, now: Now, config: &EngineConfig) -> Phase {
        if self.runs() { self.run_phase(0, now, config) } else { Phase::Unlock }
    }

    /// exec_delay comes before each program, unless it would use up the event's time.
    fn run_phase(&self, item: usize, now: Now, config: &EngineConfig) -> Phase {
        let is_program = matches!(self.outcome.run.get(item), Some(RunItem::Program(_)));
        let until = now + config.exec_delay;
        let in_time = until < self.started + config.event_timeout;
        match is_program && !config.exec_delay.is_zero() && in_time {
            true => Phase::Delay { item, until },
            false => Phase::Run { item },
        }
    }

    pub(super) fn run(&mut self, item: usize, now: Now, config: &EngineConfig) -> Option<JobStep> {
        let left = self.outcome.run.len().saturating_sub(item);
        let is_late = now >= self.started + config.event_timeout;
        if left > 0 && !is_late {
            self.phase = self.run_phase(item + 1, now, config);
            self.awaiting = Awaiting::Ran(item);
            return Some(JobStep::Request);
        }
        self.phase = if self.is_removal() { Phase::Unlock } else { Phase::Watch };
        let text = format!("its time is used up, {left} RUN entries are not started");
        (left > 0).then(|| JobStep::Tell(vec![self.log(log::Level::Warn, text)]))
    }
}
