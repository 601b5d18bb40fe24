//! Compiles rules a portion at a time: a hundred thousand lines take a fifth of a second, which is too long for one
//! turn of the loop.
//!
//! Must stay true: the result does not depend on where the portions end; users and groups are those of one moment, and
//! so are the files.

use super::findings::Findings;
use crate::builtin::Builtins;
use crate::model::{Now, ResolveNames};
use crate::rules::compile::{CompileOptions, Compiled, SourceFile};
use crate::rules::diagnostic::{Diagnostic, Severity};
use crate::rules::program::RuleSet;
use crate::sys::clock::monotonic;
use crate::world::accounts::{Accounts, AtOnce};
use std::sync::Arc;

/// Rules on their way; see the module.
pub struct Compiling {
    files: Vec<SourceFile>,
    /// How many of them are compiled.
    done: usize,
    compiled: Compiled,
    resolve_names: ResolveNames,
    accounts: AtOnce,
    findings: Findings,
}

impl Compiling {
    /// Has compiled nothing yet; what is wrong with the files joins these findings.
    pub fn new(
        files: Vec<SourceFile>,
        resolve_names: ResolveNames,
        accounts: &Accounts,
        findings: Findings,
    ) -> Compiling {
        let (compiled, accounts) = (Compiled::default(), accounts.at_once());
        Compiling { files, done: 0, compiled, resolve_names, accounts, findings }
    }

    /// Compiles the next file, and more while there is time. True: that was all.
    pub fn go_on(&mut self, until: Now) -> bool {
        while let Some(file) = self.files.get(self.done) {
            let options = CompileOptions { resolve_names: self.resolve_names, accounts: &self.accounts };
            self.compiled.add(file, &options);
            self.done += 1;
            for diagnostic in self.compiled.diagnostics.drain(..) {
                tell(&diagnostic, &mut self.findings);
            }
            if monotonic() >= until {
                break;
            }
        }
        self.done == self.files.len()
    }

    /// The rules, what is wrong with them, and the files. Compiles what is left.
    pub fn end(mut self) -> (Arc<RuleSet>, Findings, Vec<SourceFile>) {
        while !self.go_on(Now::MAX) {}
        for text in Builtins::unwritten_used(self.compiled.rules.builtins()) {
            log::warn!("{text}");
            self.findings.push(text);
        }
        (Arc::new(self.compiled.rules), self.findings, self.files)
    }
}

fn tell(diagnostic: &Diagnostic, findings: &mut Findings) {
    match diagnostic.severity {
        Severity::Error => log::error!("{diagnostic}"),
        Severity::Warning => log::warn!("{diagnostic}"),
        Severity::Style => log::debug!("{diagnostic}"),
    }
    if diagnostic.severity > Severity::Style {
        findings.push(diagnostic.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::compile::compile;
    use crate::world::tree::Tree;

    #[test]
    fn portions_give_the_rules_that_one_go_gives() {
        let tree = Tree::new();
        let accounts = Accounts::new(&tree.file("etc/group", "disk:x:6:\n").roots());
        let file = |n: u32| SourceFile {
            path: format!("/{n}.rules").into(),
            content: format!(
                "KERNEL==\"a{n}\", GOTO=\"end\"\nGROUP=\"disk\", TAG+=\"t{n}\"\nBAD=\"{n}\"\nLABEL=\"end\"\n"
            )
            .into(),
        };
        let files: Vec<SourceFile> = (0..5).map(file).collect();
        let mut compiling =
            Compiling::new(files.clone(), ResolveNames::Early, &accounts, Findings::default());
        for n in 1..5 {
            assert!(!compiling.go_on(Now::ZERO), "one file at a time when there is no time");
            assert_eq!(compiling.done, n);
            // Who is who is asked once.
            tree.file("etc/group", "disk:x:7:\n");
        }
        assert!(compiling.go_on(Now::ZERO));
        let (rules, findings, back) = compiling.end();
        tree.file("etc/group", "disk:x:6:\n");
        let options = CompileOptions { resolve_names: ResolveNames::Early, accounts: &accounts.at_once() };
        let at_once = compile(&files, &options);
        assert_eq!(format!("{rules:?}"), format!("{:?}", Arc::new(at_once.rules)));
        assert_eq!((findings.texts.len(), back.len()), (5, 5));
        let (whole, _, _) = Compiling::new(files, ResolveNames::Early, &accounts, Findings::default()).end();
        assert_eq!(format!("{whole:?}"), format!("{rules:?}"));
    }
}
