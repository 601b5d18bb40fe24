//! Rules and configuration: read at the start, and again when told to or when files have changed
//! (rules.md 1.2).
//!
//! Must stay true: old rules stay when nothing can be read, and while there is no descriptor left to read with; running evaluations keep the rules they
//! began with; files are looked at no more than every 3 s, and only when an event is about to start. A file system
//! that does not answer holds up nothing then. Only what has changed, or is to be read because somebody said so,
//! is read by the loop itself.

use super::shell::{self, Caller, Shell};
use super::start;
use super::trace::RuleText;
use crate::builtin::Builtins;
use crate::engine::Input;
use crate::helper::operations::{Operation, Reply, state_of_rules};
use crate::model::{Errno, Now, ResolveNames};
use crate::rules::compile::{CompileOptions, SourceFile, compile};
use crate::rules::diagnostic::Severity;
use crate::rules::program::RuleSet;
use crate::world::Roots;
use crate::world::accounts::Accounts;
use crate::world::config;
use crate::world::patience;
use crate::world::rule_files::{Loaded, RuleFiles, Snapshot};
use bstr::BString;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at the files.
const INTERVAL: Duration = Duration::from_secs(3);

/// How long a helper may look at files, and how long none looks after one that hung.
const HANGS: Duration = Duration::from_secs(60);

/// Files and folders that are open at one time while files are read.
const DESCRIPTORS: usize = 4;

/// Bytes of what was found in the rules that are kept for who asks; what is beyond is counted.
const MAX_FINDINGS: usize = 256 * 1024;

/// Errors and warnings in the rules, for who asked to have them read again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    pub texts: Vec<String>,
    /// For which there was no room.
    pub left_out: usize,
    #[serde(skip)]
    bytes: usize,
}

impl Findings {
    fn push(&mut self, text: String) {
        if self.left_out > 0 || self.bytes + text.len() > MAX_FINDINGS {
            self.left_out += 1;
        } else {
            self.bytes += text.len();
            self.texts.push(text);
        }
    }
}

/// The rules in use, and where they come from.
pub struct Rules {
    current: Arc<RuleSet>,
    findings: Findings,
    files: RuleFiles,
    snapshot: Snapshot,
    accounts: Accounts,
    resolve_names: ResolveNames,
    /// They were compiled with another setting.
    is_outdated: bool,
    looked_at: Now,
    /// Looking at the files once waited: helpers look from then on.
    look_waits: bool,
    /// A helper looks at them.
    is_looked_at: bool,
}

impl Rules {
    /// Reads rules for the first time. `folders` replaces the usual ones unless it is empty.
    pub fn read(roots: &Roots, folders: &[PathBuf], resolve_names: ResolveNames, now: Now) -> Rules {
        let files = RuleFiles::new(roots, folders);
        let loaded = files.load();
        let mut findings = Findings::default();
        report_into(&loaded, &mut findings);
        let accounts = Accounts::new(roots);
        let current = compile_into(&loaded.files, resolve_names, &accounts, &mut findings);
        Rules {
            current,
            findings,
            files,
            snapshot: loaded.snapshot,
            accounts,
            resolve_names,
            is_outdated: false,
            looked_at: now,
            look_waits: false,
            is_looked_at: false,
        }
    }

    /// The rules in use.
    pub fn current(&self) -> &Arc<RuleSet> {
        &self.current
    }

    /// What is wrong with them, and with files that could not be read.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Files and lines.
    pub fn size(&self) -> (usize, usize) {
        (self.current.files.len(), self.current.lines.len())
    }

    /// The text of the rules, for a trace.
    pub fn texts(&self) -> Vec<RuleText> {
        let text = |file: SourceFile| (file.path, file.content.into());
        self.files.load().files.into_iter().map(text).collect()
    }

    /// When names are resolved, in rules that are read from now on.
    fn set_resolve_names(&mut self, resolve_names: ResolveNames) {
        self.is_outdated |= resolve_names != self.resolve_names;
        self.resolve_names = resolve_names;
    }

    /// New rules, if files or settings have changed; the old ones stay when none of the files can be read.
    fn read_again(&mut self) -> Option<Arc<RuleSet>> {
        if !std::mem::take(&mut self.is_outdated) && !self.files.changed(&self.snapshot) {
            return None;
        }
        let loaded = self.files.load();
        self.findings = Findings::default();
        report_into(&loaded, &mut self.findings);
        let failed = loaded.is_failure();
        self.snapshot = loaded.snapshot;
        if failed {
            log::error!("No rules could be read; the old ones stay in force");
            return None;
        }
        self.current = compile_into(&loaded.files, self.resolve_names, &self.accounts, &mut self.findings);
        let (files, lines) = self.size();
        log::info!("Read {lines} rules in {files} files");
        Some(self.current.clone())
    }
}

/// Says what could not be read.
pub fn report(loaded: &Loaded) {
    report_into(loaded, &mut Findings::default());
}

/// The same, and keeps it.
fn report_into(loaded: &Loaded, findings: &mut Findings) {
    for (path, error) in &loaded.failures {
        let text = format!("Cannot read {}: {error}", path.display());
        log::error!("{text}");
        findings.push(text);
    }
}

/// Compiles, and says what is wrong with the files.
pub fn compile_all(files: &[SourceFile], resolve_names: ResolveNames, accounts: &Accounts) -> Arc<RuleSet> {
    compile_into(files, resolve_names, accounts, &mut Findings::default())
}

/// The same, and keeps it.
fn compile_into(
    files: &[SourceFile],
    resolve_names: ResolveNames,
    accounts: &Accounts,
    findings: &mut Findings,
) -> Arc<RuleSet> {
    let compiled = compile(files, &CompileOptions { resolve_names, accounts: &accounts.at_once() });
    for diagnostic in &compiled.diagnostics {
        match diagnostic.severity {
            Severity::Error => log::error!("{diagnostic}"),
            Severity::Warning => log::warn!("{diagnostic}"),
            Severity::Style => log::debug!("{diagnostic}"),
        }
        if diagnostic.severity > Severity::Style {
            findings.push(diagnostic.to_string());
        }
    }
    for text in Builtins::unwritten_used(compiled.rules.builtins()) {
        log::warn!("{text}");
        findings.push(text.to_string());
    }
    Arc::new(compiled.rules)
}

/// Whether there are descriptors for reading files.
fn try_descriptors() -> io::Result<()> {
    let stderr = io::stderr();
    let copies = (0..DESCRIPTORS).map(|_| stderr.as_fd().try_clone_to_owned());
    copies.collect::<io::Result<Vec<OwnedFd>>>().map(drop)
}

impl Shell {
    /// Looks at the files if that was long enough ago. Where that has to wait, a helper does, and the old rules
    /// hold until it has seen others.
    pub(super) fn reload_if_due(&mut self) {
        if self.now < self.rules.looked_at + INTERVAL || self.rules.is_looked_at {
            return;
        }
        let (links, _) = self.world.answers.builtins.link_files();
        let rules = self.rules.files.folders();
        let files = &mut self.world.answers.files;
        if self.rules.look_waits || rules.iter().chain(&links).any(|folder| files.must_wait_for(folder)) {
            let bytes = |folder: &PathBuf| BString::from(folder.as_os_str().as_bytes());
            let (rules, links) = (rules.iter().map(bytes).collect(), links.iter().map(bytes).collect());
            self.rules.is_looked_at = true;
            let operation = Operation::LookAtRules { rules, links };
            return self.request_helper(Caller::Rules, operation, self.now + HANGS);
        }
        let (has_read, waited) = patience::watch(|| self.reload_now());
        self.rules.look_waits |= waited && !has_read;
    }

    /// A helper has looked at the files.
    pub(super) fn rules_were_looked_at(&mut self, reply: &Reply) {
        self.rules.is_looked_at = false;
        self.rules.looked_at = self.now;
        let (_, links) = self.world.answers.builtins.link_files();
        match reply {
            Reply::State(Ok(state)) if *state == state_of_rules(&self.rules.snapshot, &links) => {}
            Reply::State(Ok(_)) => drop(self.reload_now()),
            other => {
                let errno = other.errno().unwrap_or(Errno(libc::EIO));
                log::warn!("Cannot look for changed rules, they stay for now: {errno}");
                self.rules.looked_at = self.now + HANGS;
            }
        }
    }

    /// Reads the settings again; what has changed holds from now on, whatever a client said before.
    pub(super) fn reload_settings(&mut self) {
        let kernel = self
            .world
            .answers
            .files
            .command_line(&self.world.answers.constants)
            .ok()
            .flatten()
            .unwrap_or_default();
        let (new, messages) =
            config::load(&self.roots, |name| std::env::var_os(name), &self.overrides, &kernel);
        messages.iter().for_each(|message| log::warn!("{message}"));
        let old = std::mem::replace(&mut self.configured, new.clone());
        if new == old {
            return;
        }
        let children_max =
            if new.children_max == old.children_max { self.settings.children_max } else { new.children_max };
        if new.log_level != old.log_level {
            log::set_max_level(new.log_level);
        }
        self.rules.set_resolve_names(new.resolve_names);
        self.settings = config::Settings { children_max, ..new };
        self.children.set_max(shell::children_max(&self.settings));
        self.children.set_timeout_signal(self.settings.timeout_signal);
        let config = start::engine_config(&self.settings, &self.roots, &self.world.answers.builtins);
        if let Some(recorder) = &mut self.recorder {
            recorder.config(&config);
        }
        self.engine.set_config(config);
    }

    /// Reads again what has changed; says whether something had.
    pub(super) fn reload_now(&mut self) -> bool {
        self.rules.looked_at = self.now;
        if let Err(error) = try_descriptors() {
            // Files that cannot be opened are not gone.
            log::warn!("Cannot look for changed rules, they stay for now: {error}");
            return false;
        }
        let links_changed = self.world.answers.builtins.changed();
        if links_changed {
            log::info!("Reading .link files again");
            self.world.answers.builtins.reload().iter().for_each(|message| log::warn!("{message}"));
        }
        let Some(rules) = self.rules.read_again() else { return links_changed };
        if let Some(recorder) = &mut self.recorder {
            recorder.rules(&self.rules.texts());
        }
        self.input(Input::Rules(rules));
        true
    }
}
