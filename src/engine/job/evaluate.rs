//! The rules, and what they have to say.

use super::{Action, Awaiting, Job, JobStep, Notice, Phase};
use crate::rules::eval::{Note, TurnEnd};

impl Job {
    pub(super) fn evaluate(&mut self) -> Option<JobStep> {
        let Some(evaluation) = &mut self.evaluation else { return Some(JobStep::WantRules) };
        if std::mem::take(&mut self.pauses) {
            return Some(JobStep::Pause);
        }
        let end = evaluation.go_on(&mut self.outcome);
        let notes = evaluation.take_notes();
        let level = self.outcome.log_level;
        if level != self.log_level || !notes.is_empty() {
            self.pauses = end == TurnEnd::Pauses;
            return Some(JobStep::Tell(self.tell(level, notes)));
        }
        match end {
            TurnEnd::Pauses => Some(JobStep::Pause),
            TurnEnd::Asks => {
                self.awaiting = Awaiting::Answer;
                Some(JobStep::Request)
            }
            TurnEnd::Done => self.rules_are_done(),
        }
    }

    fn rules_are_done(&mut self) -> Option<JobStep> {
        self.evaluation = None;
        self.phase = match self.event().action {
            Action::Remove => Phase::Symlinks,
            _ => Phase::AnnounceRenaming,
        };
        let failure = self.outcome.failure?;
        Some(JobStep::Tell(vec![self.fail(failure)]))
    }

    /// What the rules have to say, under the log level that they chose.
    pub(super) fn tell(&mut self, level: Option<log::LevelFilter>, notes: Vec<Note>) -> Vec<Notice> {
        let mut notices = Vec::new();
        if level != self.log_level {
            self.log_level = level;
            notices.push(Notice::LogLevel { job: self.id, level });
        }
        notices.extend(notes.into_iter().map(|note| self.log(note.level, note.text)));
        notices
    }
}
