//! Questions whose answer is the same for many jobs: one asks, the others wait for its answer.
//!
//! A thousand interfaces of one kind that come at once would else ask a thousand times for their driver,
//! each time under the lock that configures links.
//!
//! Must stay true: a job that waits here is given back once, when the job that asked has its reply,
//! whatever that is; so it costs nobody more than the reply's time-out.

use crate::engine::JobId;
use bstr::BString;
use std::collections::HashMap;

/// See the module.
#[derive(Debug, Default)]
pub struct Questions {
    waiting: HashMap<BString, Vec<JobId>>,
    asking: HashMap<JobId, BString>,
}

impl Questions {
    /// Whether this job is the one to ask. Else it waits for the one that does. A question without a name
    /// is the job's own.
    pub fn begin(&mut self, job: JobId, name: Option<BString>) -> bool {
        let Some(name) = name else { return true };
        match self.waiting.get_mut(&name) {
            Some(waiting) => {
                waiting.push(job);
                false
            }
            None => {
                self.waiting.insert(name.clone(), Vec::new());
                self.asking.insert(job, name);
                true
            }
        }
    }

    /// This job has its reply: those that waited for it.
    pub fn end(&mut self, job: JobId) -> Vec<JobId> {
        let name = self.asking.remove(&job);
        name.and_then(|name| self.waiting.remove(&name)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_asks_and_the_others_wait_for_it() {
        let mut questions = Questions::default();
        let name = |text: &str| Some(BString::from(text));
        assert!(questions.begin(JobId(1), name("veth")));
        assert!(!questions.begin(JobId(2), name("veth")) && !questions.begin(JobId(3), name("veth")));
        assert!(questions.begin(JobId(4), name("bridge")) && questions.begin(JobId(5), None));
        assert_eq!(questions.end(JobId(5)), []);
        assert_eq!(questions.end(JobId(1)), [JobId(2), JobId(3)]);
        assert_eq!(questions.end(JobId(1)), []);
        assert!(questions.begin(JobId(2), name("veth")), "the answer was of no use: the next one asks");
        assert_eq!((questions.end(JobId(4)), questions.end(JobId(2))), (vec![], vec![]));
        assert!(questions.waiting.is_empty() && questions.asking.is_empty());
    }
}
