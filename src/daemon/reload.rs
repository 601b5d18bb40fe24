//! Rules and configuration: read at the start, and again when told to or when files have changed
//! (rules.md 1.2).
//!
//! Must stay true: old rules stay when nothing can be read; running evaluations keep the rules they
//! began with; files are looked at no more than every 3 s, and only when an event is about to start.

use super::shell::Shell;
use super::trace::RuleText;
use crate::engine::Input;
use crate::model::{Now, ResolveNames};
use crate::rules::program::RuleSet;
use crate::world::Roots;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at the files.
const INTERVAL: Duration = Duration::from_secs(3);

/// The rules in use, and where they come from.
pub struct Rules {
    current: Arc<RuleSet>,
    /// Their text, kept only for a trace.
    texts: Vec<RuleText>,
    looked_at: Now,
}

impl Rules {
    /// Rules that were just read.
    pub fn new(current: Arc<RuleSet>, texts: Vec<RuleText>, now: Now) -> Rules {
        Rules { current, texts, looked_at: now }
    }

    /// Reads rules for the first time.
    pub fn read(roots: &Roots, folders: &[PathBuf], resolve_names: ResolveNames, now: Now) -> Rules {
        let _ = (roots, folders, resolve_names);
        log::error!("Rules are not read: there is no compiler yet");
        Rules::new(Arc::default(), Vec::new(), now)
    }

    /// The rules in use.
    pub fn current(&self) -> &Arc<RuleSet> {
        &self.current
    }

    /// Files and lines.
    pub fn size(&self) -> (usize, usize) {
        (self.current.files.len(), self.current.lines.len())
    }

    /// See [`Rules::new`].
    pub fn texts(&self) -> &[RuleText] {
        &self.texts
    }
}

impl Shell {
    /// Looks at the files if that was long enough ago.
    pub(super) fn reload_if_due(&mut self) {
        if self.now >= self.rules.looked_at + INTERVAL {
            self.reload_now();
        }
    }

    /// Reads again what has changed.
    pub(super) fn reload_now(&mut self) {
        self.rules.looked_at = self.now;
        if self.world.builtins.changed() {
            log::info!("Reading .link files again");
            self.world.builtins.reload().iter().for_each(|message| log::warn!("{message}"));
        }
        let changed: Option<(Arc<RuleSet>, Vec<RuleText>)> = None;
        if let Some((rules, texts)) = changed {
            self.rules.current = rules.clone();
            self.rules.texts = texts;
            if let Some(recorder) = &mut self.recorder {
                recorder.rules(&self.rules.texts);
            }
            self.inbox.push_front(Input::Rules(rules));
        }
    }
}
