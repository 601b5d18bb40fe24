//! `mudevadm verify [FILE|DIR...]`: compiles rules files and says what is wrong with them
//! (interop.md 5.5, rules.md 1.8).
//!
//! Must stay true: the exit code is 0 only if no file fails. Errors and warnings fail a file, and so
//! does style unless `--no-style` is given; everything found is printed all the same.

use super::{Out, Outcome, Stop, other_option};
use crate::model::ResolveNames;
use crate::model::command_line::{LongNames, next_arg};
use crate::rules::compile::{CompileOptions, SourceFile, compile};
use crate::rules::diagnostic::{Diagnostic, Severity};
use crate::rules::lint;
use crate::world::Roots;
use crate::world::accounts::Accounts;
use crate::world::logger::complain;
use crate::world::rule_files::{self, RuleFiles};
use lexopt::Arg;

use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What `verify --help` says.
pub(super) const HELP: &str = "verify [OPTIONS] [FILE|DIR...]

Check rules files: those of the system, or the given ones.

  -N --resolve-names=early|late|never  When to look up users and groups (default early)
     --root=DIR                        Check the rules files of the system below DIR
     --no-summary                      Do not print how many files were checked
     --no-style                        Do not fail a file for its style
  -h --help                            Show this help
  -V --version                         Show the version";

/// Its long options.
const LONG: &[LongNames] = &[&["resolve-names", "root", "no-summary", "no-style"]];

/// The options and arguments.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    resolve_names: ResolveNames,
    root: Option<PathBuf>,
    no_summary: bool,
    no_style: bool,
    paths: Vec<PathBuf>,
}

impl Options {
    fn parse(parser: &mut lexopt::Parser) -> Result<Options, Stop> {
        let mut options = Options::default();
        while let Some(arg) = next_arg(parser, LONG)? {
            match arg {
                Arg::Short('N') | Arg::Long("resolve-names") => {
                    let word = parser.value()?;
                    options.resolve_names = ResolveNames::parse(word.as_bytes())
                        .ok_or_else(|| Stop::failed("--resolve-names= takes early, late or never"))?;
                }
                Arg::Long("root") => {
                    let root = PathBuf::from(parser.value()?);
                    options.root = Some(root).filter(|root| !root.as_os_str().is_empty());
                }
                Arg::Long("no-summary") => options.no_summary = true,
                Arg::Long("no-style") => options.no_style = true,
                Arg::Value(path) => options.paths.push(path.into()),
                other => return Err(other_option(other)),
            }
        }
        Ok(options)
    }

    /// The given ones, or their like below `--root=`.
    fn roots(&self, usual: &Roots) -> Roots {
        let Some(root) = &self.root else { return usual.clone() };
        let below = |path: &Path| below(root, path);
        Roots {
            etc: below(&usual.etc),
            run: below(&usual.run),
            lib: below(&usual.lib),
            local_lib: below(&usual.local_lib),
            ..usual.clone()
        }
    }
}

/// A path in another root.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Runs the verb on the rest of the command line.
pub(super) fn run(parser: &mut lexopt::Parser, roots: &Roots, out: Out) -> Outcome {
    let options = Options::parse(parser)?;
    let roots = options.roots(roots);
    let (files, unread) = read_files(&options, &roots).map_err(Stop::failed)?;
    unread.iter().for_each(|message| complain(message));
    let mut report = verify(&files, &options, &Accounts::new(&roots));
    report.failed += unread.len();
    report.checked += unread.len();
    // Findings go to standard error, like log messages; the summary is output.
    if !report.text.is_empty() {
        complain(report.text.trim_end());
    }
    if !options.no_summary {
        out.write_all(report.summary().as_bytes())?;
    }
    Ok(if report.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The files that were read, and a message for each that could not be read.
type Read = (Vec<SourceFile>, Vec<String>);

/// Reads the given files and folders, or those of the system.
fn read_files(options: &Options, roots: &Roots) -> Result<Read, String> {
    let mut files = Vec::new();
    let mut unread = Vec::new();
    let mut load = |from: RuleFiles| {
        let loaded = from.load();
        files.extend(loaded.files);
        unread.extend(loaded.failures.iter().map(|(path, error)| format!("{}: {error}", path.display())));
    };
    let system = RuleFiles::new(roots, &[]);
    if options.paths.is_empty() {
        if let Some(root) = &options.root {
            std::fs::read_dir(root).map_err(|error| format!("{}: {error}", root.display()))?;
        }
        load(system.clone());
        if let Some(root) = options.root.as_ref().filter(|_| files.is_empty() && unread.is_empty()) {
            return Err(format!("no rules files below {}", root.display()));
        }
        return Ok((files, unread));
    }
    let mut single = Vec::new();
    for path in options.paths.iter().map(|path| locate(path, options, &system)) {
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let metadata = std::fs::metadata(&path).map_err(failed)?;
        if metadata.is_dir() {
            load(RuleFiles::new(roots, std::slice::from_ref(&path)));
        } else if rule_files::is_mask(&metadata) {
            log::info!("{} is a mask: it only hides files of its name", path.display());
        } else {
            single.push(rule_files::read(&path).map_err(failed)?);
        }
    }
    files.append(&mut single);
    Ok((files, unread))
}

/// Where a given file lies: a bare name is first looked up in the folders of the system.
fn locate(path: &Path, options: &Options, system: &RuleFiles) -> PathBuf {
    let is_bare = path.file_name() == Some(path.as_os_str());
    let found = is_bare.then(|| system.locate(path.as_os_str())).flatten();
    found.unwrap_or_else(|| match &options.root {
        Some(root) => below(root, path),
        None => path.to_owned(),
    })
}

/// The lines to print.
#[derive(Debug, Default)]
struct Report {
    text: String,
    checked: usize,
    failed: usize,
}

impl Report {
    fn summary(&self) -> String {
        let Report { checked, failed, .. } = self;
        format!(
            "\n{checked} udev rules files have been checked.\n  Success: {}\n  Fail:    {failed}\n",
            checked - failed
        )
    }
}

fn verify(files: &[SourceFile], options: &Options, accounts: &Accounts) -> Report {
    let mut report = Report::default();
    let accounts = &accounts.at_once();
    let compile_options = CompileOptions { resolve_names: options.resolve_names, accounts };
    for file in files {
        let mut found = compile(std::slice::from_ref(file), &compile_options).diagnostics;
        found.append(&mut lint::file(file));
        found.sort_by_key(|d| (d.rule, d.line, d.column));
        for diagnostic in &found {
            let _ = writeln!(report.text, "{diagnostic}");
        }
        let is_failure = |d: &Diagnostic| d.severity > Severity::Style || !options.no_style;
        report.checked += 1;
        report.failed += usize::from(found.iter().any(is_failure));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn options(args: &[&str]) -> Result<Options, String> {
        let mut parser = lexopt::Parser::from_args(args.iter().map(OsString::from));
        Options::parse(&mut parser).map_err(|e| format!("{e:?}"))
    }

    fn report(text: &str, args: &[&str]) -> Report {
        let file = SourceFile { path: "t.rules".into(), content: text.into() };
        verify(&[file], &options(args).unwrap(), &Accounts::new(&Roots::default()))
    }

    #[test]
    fn command_lines_are_understood_or_refused() {
        let all = options(&["-N", "late", "--no-summary", "--no-style", "a", "b"]).unwrap();
        assert_eq!(all.resolve_names, ResolveNames::Late);
        assert!(all.no_summary && all.no_style && all.root.is_none());
        assert_eq!(all.paths, [PathBuf::from("a"), "b".into()]);
        assert_eq!(
            options(&["--root=/x"]).unwrap().roots(&Roots::default()).lib,
            PathBuf::from("/x/usr/lib")
        );
        for bad in [&["-N", "soon"][..], &["--what"], &["--root"], &["--no-style=1"]] {
            assert!(options(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn errors_warnings_and_style_fail_a_file() {
        for (text, fails, fails_without_style) in [
            ("TAG+=\"a\"\n", false, false),
            ("TAG+=\"a\",\n", true, false),
            ("KERNEL==\"a\"\n", true, true),
            ("FOO=\"a\"\n", true, true),
            ("TAG+=\"a\", TAG+=\"a\"\n", true, true),
        ] {
            assert_eq!(report(text, &[]).failed == 1, fails, "{text}");
            let without = report(text, &["--no-style"]);
            assert_eq!(without.failed == 1, fails_without_style, "{text}");
            assert_eq!(without.text.is_empty(), !fails, "{text}");
        }
    }

    #[test]
    fn the_summary_counts_files() {
        let summary = report("FOO=\"a\"\n", &[]).summary();
        assert_eq!(summary, "\n1 udev rules files have been checked.\n  Success: 0\n  Fail:    1\n");
    }

    #[test]
    fn what_is_not_there_cannot_be_read() {
        let missing = options(&["/nowhere/x.rules"]).unwrap();
        assert!(read_files(&missing, &Roots::default()).unwrap_err().starts_with("/nowhere/x.rules: "));
    }

    fn exit(args: &[&str], roots: &Roots) -> Result<(bool, String), Stop> {
        let mut out = Vec::new();
        let code = run(&mut lexopt::Parser::from_args(args), roots, &mut out)?;
        Ok((code == ExitCode::SUCCESS, String::from_utf8(out).unwrap()))
    }

    #[test]
    fn names_masks_and_roots_are_taken_as_udevadm_takes_them() {
        let tree = crate::world::tree::Tree::new();
        let root = tree.path("");
        let text = |path: &str| tree.path(path).to_str().unwrap().to_owned();
        tree.file("etc/udev/rules.d/90-good.rules", "TAG+=\"a\"\n");
        tree.file("etc/udev/rules.d/91-mask.rules", "");
        tree.file("lib/udev/rules.d/90-good.rules", "FOO=1\n");
        tree.file("w/bad.rules", "FOO=1\n");
        tree.file("w/empty.rules", "");
        tree.dir("hollow");
        let roots = Roots { etc: root.join("etc"), lib: root.join("lib"), ..tree.roots() };
        let checked = |success, fail: usize| {
            let count = success + fail;
            let text = format!(
                "\n{count} udev rules files have been checked.\n  Success: {success}\n  Fail:    {fail}\n"
            );
            Ok((fail == 0, text))
        };
        for (args, expected) in [
            (&["90-good.rules"][..], checked(1, 0)),
            (&["90-good"], checked(1, 0)),
            (&["91-mask"], checked(0, 0)),
            (&["/dev/null"], checked(0, 0)),
            (&[&*text("w/empty.rules")], checked(0, 0)),
            (&[&*text("w/bad.rules"), "90-good"], checked(1, 1)),
            (&[&*text("hollow")], checked(0, 0)),
            (&[&*text("w")], checked(0, 1)),
            (&["--no-summary", &*text("w/empty.rules")], Ok((true, String::new()))),
            (&[&*format!("--root={}", text("")), "/w/bad.rules"], checked(0, 1)),
        ] {
            assert_eq!(exit(args, &roots), expected, "{args:?}");
        }
        for args in [
            &["--root=/nowhere"][..],
            &[&*format!("--root={}", text("hollow"))],
            &["nowhere.rules"],
            &["nowhere"],
            &["90-good", "/nowhere/x.rules"],
        ] {
            assert!(matches!(exit(args, &roots), Err(Stop::Failed(_))), "{args:?}");
        }
    }
}
