//! One try of what a job wants.

use super::stores::Stores;
use crate::engine::{JobId, JobReply, JobRequest};
use crate::links::Table;
use crate::model::need::{Fact, Need};
use crate::model::{Action, Event};
use crate::world::database::OtherDevices;

impl Stores {
    /// Tries what a job wants.
    pub fn attempt(
        &mut self,
        links: &mut Table,
        job: JobId,
        event: &Event,
        request: JobRequest<'_>,
        facts: &[Fact],
    ) -> Result<JobReply, Need> {
        let tried = match request {
            JobRequest::Ask(ask) => {
                let others: Option<&dyn OtherDevices> = Some(&self.database);
                self.answers.answer((links, others), job, event, ask, facts).map(JobReply::Answer)
            }
            // A question looks to that itself, since it may be about another link.
            _ if facts.is_empty()
                && links.is_behind()
                && self.answers.attributes.is_about_links(links, event) =>
            {
                Err(Need::LinksRead)
            }
            JobRequest::Perform(effect) => self.perform(links, job, event, effect, facts).map(JobReply::Done),
            JobRequest::Run(item) => self.answers.run(links, event, item, facts).map(|()| JobReply::Ran),
        };
        self.note_lack(event);
        tried
    }

    fn note_lack(&mut self, event: &Event) {
        if self.answers.attributes.sysfs.take_lack() {
            self.unfinished.on_lack(event);
        }
    }

    /// The job announces its event: nothing is remembered of it from here on, and a link that was deleted
    /// needs no tombstone any more.
    pub fn forget(&mut self, links: &mut Table, job: JobId, event: &Event) {
        self.answers.attributes.forget(job);
        if let (Action::Remove, Some(ifindex)) = (event.action, event.device.ifindex) {
            links.forget(ifindex);
        }
    }
}
