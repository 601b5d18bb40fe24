//! Settings of files and command lines that are read again while the daemon runs.
//!
//! Must stay true: what has changed since the last reading holds from then on, whatever a client said before; what has
//! not changed leaves a client's word in force.

use super::super::work::{Work, children_max};
use crate::builtin::Builtins;
use crate::builtin::naming_scheme::Flag;
use crate::engine::EngineConfig;
use crate::model::ResolveNames;
use crate::world::Roots;
use crate::world::config::{self, Overrides, Settings};

/// See the module.
pub struct Configuration {
    /// As last read; clients may have changed [`Work::settings`] since.
    pub configured: Settings,
    /// What our own command line says.
    pub overrides: Overrides,
}

impl Configuration {
    /// Puts settings that were read again into force. When names of rules are resolved from now on, if anything has
    /// changed.
    pub(crate) fn take(&mut self, work: &mut Work, files: config::Files) -> Option<ResolveNames> {
        let answers = &mut work.stores.answers;
        let kernel = answers.files.command_line(&answers.constants).ok().flatten().unwrap_or_default();
        let (new, messages) = config::load(files, |name| std::env::var_os(name), &self.overrides, &kernel);
        messages.iter().for_each(|message| log::warn!("{message}"));
        let old = std::mem::replace(&mut self.configured, new.clone());
        if new == old {
            return None;
        }
        let is_as_before = new.children_max == old.children_max;
        let children_at_most = if is_as_before { work.settings.children_max } else { new.children_max };
        if new.log_level != old.log_level {
            log::set_max_level(new.log_level);
        }
        let resolve_names = new.resolve_names;
        work.settings = Settings { children_max: children_at_most, ..new };
        work.children.set_max(children_max(&work.settings));
        work.children.set_timeout_signal(work.settings.timeout_signal);
        let config = engine_config(&work.settings, &work.roots, &work.stores.answers.builtins);
        if let Some(recorder) = &mut work.recorder {
            recorder.config(&config);
        }
        work.engine.set_config(config);
        Some(resolve_names)
    }
}

/// The part of the settings that the engine goes by.
pub(crate) fn engine_config(settings: &Settings, roots: &Roots, builtins: &Builtins) -> EngineConfig {
    EngineConfig {
        event_timeout: settings.event_timeout,
        exec_delay: settings.exec_delay,
        blockdev_read_only: settings.blockdev_read_only,
        strict_names: builtins.naming_scheme().has(Flag::ReplaceStrictly),
        in_initrd: config::in_initrd(roots),
        ..EngineConfig::default()
    }
}
