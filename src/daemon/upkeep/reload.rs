//! Rules and configuration: read at the start, and again when told to or when files have changed
//! (rules.md 1.2).
//!
//! Must stay true: old rules stay when nothing can be read, and while there is no descriptor left to read with; running evaluations keep the rules they
//! began with; files are looked at no more than every 3 s, and only when an event is about to start. Once the daemon
//! runs, the loop itself looks at and reads only what is in memory or cached. All else is for a helper: new events wait
//! for it a while, so that what happens after a reload is judged by the new rules; a file system that does not answer
//! costs them that while and no more, and the old rules stay. What was read is compiled in portions ([`super::compiling`]),
//! while the old rules hold.

use super::super::readiness::Readiness;
use super::super::trace::RuleText;
use super::super::work::{Caller, Work};
use super::compiling::Compiling;
use super::configuration::Configuration;
use super::findings::Findings;
use crate::builtin::host::os_release_places;
use crate::builtin::link_files;
use crate::engine::Input;
use crate::helper::operations::state_of_rules;
use crate::helper::reading::Reading;
use crate::model::operation::{Operation, OperationReply};
use crate::model::{Errno, Now, ResolveNames};
use crate::rules::compile::SourceFile;
use crate::rules::program::RuleSet;
use crate::sys::clock::monotonic;
use crate::sys::process;
use crate::world::Roots;
use crate::world::accounts::Accounts;
use crate::world::config;
use crate::world::patience;
use crate::world::rule_files::{Loaded, RuleFiles, Snapshot};
use bstr::BString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at the files.
const INTERVAL: Duration = Duration::from_secs(3);

/// How long a helper may look at files, and how long none looks after one that hung.
const HANGS: Duration = Duration::from_secs(60);

/// How long a helper may take to read them; then the old ones stay.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long new events wait for rules that a helper reads; then they go on with the old ones.
const HOLD: Duration = Duration::from_secs(1);

/// Files that the loop itself looks at and reads, if they are at hand; with more a helper does, since they take tens of
/// milliseconds.
const MANY: usize = 500;

/// How long rules are compiled in one turn of the loop, but for the rest of a file.
const PORTION: Duration = Duration::from_millis(1);

/// Files and folders that are open at one time while files are read.
const DESCRIPTORS: usize = 4;

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
    /// New ones are read or compiled.
    under_way: Option<UnderWay>,
    /// The last time they could not be read, or some of the files: a reload that is asked for reads them again though
    /// none has changed.
    has_failed: bool,
}

/// A reload that a helper reads for, or that is being compiled.
struct UnderWay {
    /// When either began.
    since: Now,
    /// Somebody said so; otherwise files had changed.
    is_asked: bool,
    /// Somebody has said so since.
    again: bool,
    /// None: they are read yet.
    compiling: Option<Compiling>,
}

impl Rules {
    /// Reads rules for the first time. `folders` replaces the usual ones unless it is empty.
    pub fn read(roots: &Roots, folders: &[PathBuf], resolve_names: ResolveNames, now: Now) -> Rules {
        let files = RuleFiles::new(roots, folders);
        let loaded = files.load();
        let mut findings = Findings::default();
        report_into(&loaded, &mut findings);
        let has_failed = !loaded.failures.is_empty();
        let accounts = Accounts::new(roots);
        let (current, findings, _) = Compiling::new(loaded.files, resolve_names, &accounts, findings).end();
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
            under_way: None,
            has_failed,
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

    /// The text of the rules, for a trace; reads them, and so may wait.
    pub fn texts(&self) -> Vec<RuleText> {
        texts(&self.files.load().files)
    }

    /// Until when new events wait for rules that a helper reads or that are being compiled.
    pub(crate) fn hold_until(&self) -> Option<Now> {
        self.under_way.as_ref().map(|reading| reading.since + HOLD)
    }

    /// Whether they are read or compiled because somebody said so.
    pub(crate) fn are_asked_for(&self) -> bool {
        self.under_way.as_ref().is_some_and(|reading| reading.is_asked || reading.again)
    }

    /// When names are resolved, in rules that are read from now on.
    fn set_resolve_names(&mut self, resolve_names: ResolveNames) {
        self.is_outdated |= resolve_names != self.resolve_names;
        self.resolve_names = resolve_names;
    }

    /// What is to be compiled, if files or settings have changed, or a file could not be read the last time; the old
    /// ones stay when none of the files could be read.
    fn take(&mut self, loaded: Loaded) -> Option<Compiling> {
        if !std::mem::take(&mut self.is_outdated) && loaded.snapshot == self.snapshot && !self.has_failed {
            return None;
        }
        self.has_failed = !loaded.failures.is_empty();
        let mut findings = Findings::default();
        report_into(&loaded, &mut findings);
        let failed = loaded.is_failure();
        self.snapshot = loaded.snapshot;
        if failed {
            log::error!("No rules could be read; the old ones stay in force");
            self.findings = findings;
            return None;
        }
        Some(Compiling::new(loaded.files, self.resolve_names, &self.accounts, findings))
    }

    /// Whether a helper looks at them and reads them, though that waits for nobody.
    fn are_many(&self) -> bool {
        self.current.files.len() > MANY
    }

    /// Whether there is more to compile.
    pub(crate) fn are_compiling(&self) -> bool {
        self.under_way.as_ref().is_some_and(|reload| reload.compiling.is_some())
    }

    /// They could not be read: who asked for that is told, and so is the log.
    fn cannot_be_read(&mut self, why: &str) {
        let text = format!("Cannot read the rules, the old ones stay in force: {why}");
        log::error!("{text}");
        self.has_failed = true;
        self.findings = Findings::default();
        self.findings.push(text);
    }
}

/// The text of rules, for a trace.
fn texts(files: &[SourceFile]) -> Vec<RuleText> {
    let text = |file: &SourceFile| (file.path.clone(), file.content.clone().into());
    files.iter().map(text).collect()
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
    Compiling::new(files.to_vec(), resolve_names, accounts, Findings::default()).end().0
}

/// Whether there are descriptors for reading files.
fn try_descriptors() -> io::Result<()> {
    // Not copies of what was handed to us: closing those may wait.
    let opened = (0..DESCRIPTORS).map(|_| process::open_null());
    opened.collect::<io::Result<Vec<File>>>().map(drop)
}

/// What a reload is done with, and what it changes beside the rules.
pub(crate) struct Surroundings<'a> {
    pub work: &'a mut Work,
    pub readiness: &'a mut Readiness,
    pub configuration: &'a mut Configuration,
}

impl Rules {
    /// Looks at the files if that was long enough ago. Where that has to wait, a helper does, and the old rules
    /// hold until it has seen others.
    pub(crate) fn look_if_due(&mut self, on: &mut Surroundings) {
        let is_busy = self.is_looked_at || self.under_way.is_some();
        if is_busy || on.work.now < self.looked_at + INTERVAL {
            return;
        }
        self.looked_at = on.work.now;
        if let Err(error) = try_descriptors() {
            // Files that cannot be opened are not gone.
            return log::warn!("Cannot look for changed rules, they stay for now: {error}");
        }
        let (links, _) = on.work.stores.answers.builtins.link_files();
        if self.look_waits || self.are_many() || !self.are_at_hand(on, false) {
            let bytes = |folder: &PathBuf| BString::from(folder.as_os_str().as_bytes());
            let rules = self.files.folders().iter().map(bytes).collect();
            let links = links.iter().map(bytes).collect();
            self.is_looked_at = true;
            let operation = Operation::LookAtRules { rules, links };
            return on.work.request_helper(Caller::Rules, operation, on.work.now + HANGS);
        }
        let look = || state_of_rules(&self.files.snapshot(), &link_files::state_of(&links));
        let (state, waited) = patience::watch(look);
        self.look_waits |= waited;
        self.found_in(on, &state);
    }

    /// A helper has looked at the files.
    pub(crate) fn were_looked_at(&mut self, on: &mut Surroundings, reply: &OperationReply) {
        self.is_looked_at = false;
        self.looked_at = on.work.now;
        match reply {
            OperationReply::State(Ok(state)) => self.found_in(on, state),
            other => {
                let errno = other.errno().unwrap_or(Errno(libc::EIO));
                log::warn!("Cannot look for changed rules, they stay for now: {errno}");
                self.looked_at = on.work.now + HANGS;
            }
        }
    }

    /// Has files read that are in another state than those in use were.
    fn found_in(&mut self, on: &mut Surroundings, state: &BString) {
        let (_, links) = on.work.stores.answers.builtins.link_files();
        if *state != state_of_rules(&self.snapshot, links) && self.under_way.is_none() {
            self.read_anew(on, false);
        }
    }

    /// Whether looking at rules and .link files waits for nobody, or reading them and the settings does not.
    fn are_at_hand(&mut self, on: &mut Surroundings, with_contents: bool) -> bool {
        let (links, _) = on.work.stores.answers.builtins.link_files();
        let files = &mut on.work.stores.answers.files;
        let mut is_at_hand = |place: &Path, endings: &[&str]| files.is_at_hand(place, endings, with_contents);
        let mut all = self.files.folders().iter().all(|folder| is_at_hand(folder, &[".rules"]))
            && links.iter().all(|folder| is_at_hand(folder, &[".link", ".link.d", ".conf"]));
        if with_contents {
            let folders = config::folders(&on.work.roots);
            let [first, second] = os_release_places(&on.work.roots);
            let [id, initrd] = ["machine-id", "initrd-release"].map(|name| on.work.roots.etc.join(name));
            let single = [id, initrd, first, second];
            all = all
                && folders.iter().all(|folder| is_at_hand(&folder.join("udev.conf"), &[]))
                && folders.iter().all(|folder| is_at_hand(&folder.join("udev.conf.d"), &[".conf"]))
                && single.iter().all(|place| is_at_hand(place, &[]));
        }
        all
    }

    /// Reads rules and configuration again where they have changed, whatever the time.
    pub(crate) fn reload(&mut self, on: &mut Surroundings) {
        if let Some(reading) = &mut self.under_way {
            // What it has read by now may be of before.
            reading.again = true;
            return;
        }
        on.readiness.reloading(on.work.now);
        self.read_anew(on, true);
    }

    /// Reads all files at once where that waits for nobody; otherwise a helper does, and new events wait for it a
    /// while. `is_asked`: settings too.
    fn read_anew(&mut self, on: &mut Surroundings, is_asked: bool) {
        self.looked_at = on.work.now;
        if let Err(error) = try_descriptors() {
            self.cannot_be_read(&error.to_string());
            return self.end_reload(on, is_asked);
        }
        if !self.are_many() && self.are_at_hand(on, true) {
            let compiling = self.take_reading(on, Reading::read(&on.work.roots, &self.files), is_asked);
            return self.begin_compiling(on, compiling, is_asked, false);
        }
        let bytes = |place: &PathBuf| BString::from(place.as_os_str().as_bytes());
        let Roots { etc, run, local_lib, lib, .. } = &on.work.roots;
        let roots = Box::new([etc, run, local_lib, lib].map(bytes));
        let rules = self.files.folders().iter().map(bytes).collect();
        self.under_way = Some(UnderWay { since: on.work.now, is_asked, again: false, compiling: None });
        on.work.request_helper(Caller::Reload, Operation::ReadRules { roots, rules }, on.work.now + PATIENCE);
    }

    /// A helper has read the files.
    pub(crate) fn were_read(&mut self, on: &mut Surroundings, reply: &OperationReply) {
        let Some(UnderWay { is_asked, again, .. }) = self.under_way.take() else { return };
        self.looked_at = on.work.now;
        let compiling = match reply {
            OperationReply::Files(Ok(text)) => match Reading::decode(text) {
                Some(reading) => self.take_reading(on, reading, is_asked),
                None => {
                    self.cannot_be_read("a helper has garbled them");
                    None
                }
            },
            other => {
                let why = match other {
                    OperationReply::TimedOut => format!("no answer in {} s", PATIENCE.as_secs()),
                    OperationReply::Refused => "a helper still waits for them".to_owned(),
                    other => other.errno().unwrap_or(Errno(libc::EIO)).to_string(),
                };
                self.cannot_be_read(&why);
                self.looked_at = on.work.now + HANGS;
                None
            }
        };
        self.begin_compiling(on, compiling, is_asked, again);
    }

    /// Compiles what was read, as far as there is time in this turn.
    fn begin_compiling(
        &mut self,
        on: &mut Surroundings,
        compiling: Option<Compiling>,
        is_asked: bool,
        again: bool,
    ) {
        if compiling.is_none() {
            return self.go_on_with_reload(on, is_asked, again);
        }
        self.under_way = Some(UnderWay { since: on.work.now, is_asked, again, compiling });
        self.go_on_compiling(on);
    }

    /// Compiles a portion more. All compiled, they are put into force.
    pub(crate) fn go_on_compiling(&mut self, on: &mut Surroundings) {
        let compiling = self.under_way.as_mut().and_then(|reload| reload.compiling.as_mut());
        if !compiling.is_some_and(|compiling| compiling.go_on(monotonic() + PORTION)) {
            return;
        }
        let Some(UnderWay { is_asked, again, compiling: Some(compiling), .. }) = self.under_way.take() else {
            return;
        };
        let (rules, findings, sources) = compiling.end();
        (self.current, self.findings) = (rules.clone(), findings);
        let (files, lines) = self.size();
        log::info!("Read {lines} rules in {files} files");
        if let Some(recorder) = &mut on.work.recorder {
            recorder.rules(&texts(&sources));
        }
        on.work.input(Input::Rules(rules));
        self.go_on_with_reload(on, is_asked, again);
    }

    /// Ends a reload, or begins the one that was asked for meanwhile.
    fn go_on_with_reload(&mut self, on: &mut Surroundings, is_asked: bool, again: bool) {
        match again {
            true => {
                if !is_asked {
                    on.readiness.reloading(on.work.now);
                }
                self.read_anew(on, true);
            }
            false => self.end_reload(on, is_asked),
        }
    }

    fn end_reload(&mut self, on: &mut Surroundings, is_asked: bool) {
        if is_asked {
            on.readiness.reloaded(on.work.now);
        }
    }

    /// Puts what was read into force, but for the rules, which are to be compiled.
    fn take_reading(
        &mut self,
        on: &mut Surroundings,
        reading: Reading,
        with_settings: bool,
    ) -> Option<Compiling> {
        let Reading { rules, link_files, settings } = reading;
        if with_settings && let Some(resolve_names) = on.configuration.take(on.work, settings) {
            self.set_resolve_names(resolve_names);
        }
        if link_files.state != on.work.stores.answers.builtins.link_files().1 {
            log::info!("Reading .link files again");
            on.work
                .stores
                .answers
                .builtins
                .reload(&link_files)
                .iter()
                .for_each(|message| log::warn!("{message}"));
        }
        self.take(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tree::Tree;

    #[test]
    fn a_file_that_could_not_be_read_is_read_at_the_next_reload_though_it_is_the_same() {
        let tree = Tree::new();
        tree.file("rules/1.rules", "TAG+=\"a\"\n").file("rules/2.rules", "TAG+=\"b\"\n");
        let mut rules =
            Rules::read(&tree.roots(), &[tree.path("rules")], ResolveNames::Never, Now::from_secs(1));
        let read = |failed: &[usize]| {
            let mut loaded = rules_of(&tree).load();
            for &at in failed.iter().rev() {
                let file = loaded.files.remove(at);
                let error = io::Error::from_raw_os_error(libc::EIO);
                loaded.failures.push((PathBuf::from(file.path.to_string()), error));
            }
            loaded
        };
        let files = |compiling: Option<Compiling>| compiling.map(|compiling| compiling.end().2.len());
        assert_eq!(files(rules.take(read(&[]))), None, "nothing has changed");
        tree.file("rules/1.rules", "TAG+=\"other\"\n");
        assert_eq!(files(rules.take(read(&[0, 1]))), None, "none could be read: the old ones stay");
        assert_eq!(files(rules.take(read(&[1]))), Some(1));
        assert_eq!(files(rules.take(read(&[]))), Some(2));
        assert_eq!(files(rules.take(read(&[]))), None);
    }

    fn rules_of(tree: &Tree) -> RuleFiles {
        RuleFiles::in_folders(vec![tree.path("rules")])
    }
}
