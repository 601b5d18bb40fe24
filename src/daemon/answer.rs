use super::shell::Shell;
use crate::engine::{Input, JobId};
use crate::model::effect::{Done, Effect};
use crate::rules::{Answer, Ask};
impl Shell {
    pub fn answer(&mut self, job: JobId, _ask: Ask) {
        self.inbox.push_back(Input::Answer { job, answer: Answer::Written })
    }
    pub fn run_item(&mut self, job: JobId, item: crate::rules::outcome::RunItem) {
        match item {
            crate::rules::outcome::RunItem::Program(c) => {
                self.run_program(job, super::children::Purpose::Run, c.as_ref())
            }
            _ => self.inbox.push_back(Input::Ran { job }),
        }
    }
    pub fn perform(&mut self, job: JobId, effect: Effect) {
        let done = match effect {
            Effect::ReadRecord { .. } => Done::Record(None),
            _ => Done::Ok,
        };
        self.inbox.push_back(Input::Performed { job, done });
    }
    pub fn link_is_known(&mut self, _job: JobId) {}
    pub fn helper_replied(&mut self, _job: JobId, _reply: crate::helper::operations::Reply) {}
    pub fn rtnl_replied(&mut self, _job: JobId, _reply: crate::links::Reply) {}
    pub fn program_ended(&mut self, job: JobId, _exit: crate::rules::ask::Exit) {
        self.inbox.push_back(Input::Ran { job })
    }
}
