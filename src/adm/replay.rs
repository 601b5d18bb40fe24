//! `replay`: runs a trace (`mudevd --record`) again, without touching the system.

use super::{Out, Outcome, Stop, other_option};
use crate::daemon::trace;
use crate::model::command_line::{LongNames, next_arg};
use crate::world::Roots;
use crate::world::accounts::Accounts;
use lexopt::{Arg, Parser};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Bytes of the longest trace, of either kind.
const MAX_TRACE: u64 = 1 << 30;

/// What `replay --help` says.
pub(super) const HELP: &str = "replay [OPTIONS] FILE

Run a trace that `mudevd --record FILE` wrote and print what the daemon would do, one effect a line.
Nothing of the system is touched.

     --expect=FILE            Print nothing, compare with these lines; exit status 1 at a difference
  -h --help                   Show this help
  -V --version                Show the version";

/// Its long options.
const LONG: &[LongNames] = &[&["expect"]];

/// Runs the subcommand.
pub(super) fn run(parser: &mut Parser, roots: &Roots, out: Out) -> Outcome {
    let (mut file, mut expected) = (None, None);
    while let Some(arg) = next_arg(parser, LONG)? {
        match arg {
            Arg::Long("expect") => expected = Some(PathBuf::from(parser.value()?)),
            Arg::Value(path) if file.is_none() => file = Some(PathBuf::from(path)),
            other => return Err(other_option(other)),
        }
    }
    let file = file.ok_or_else(|| Stop::failed("a trace is required"))?;
    let accounts = Accounts::new(roots);
    let outputs = trace::replay(&read(&file)?, &|files| trace::compile(files, &accounts.at_once()))
        .map_err(|error| Stop::Failed(format!("{}: {error}", file.display())))?;
    match expected {
        Some(expected) => match trace::first_difference(&read(&expected)?, &outputs) {
            Some(difference) => Err(Stop::Failed(difference)),
            None => Ok(ExitCode::SUCCESS),
        },
        None => {
            for line in outputs {
                writeln!(out, "{line}")?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Stop> {
    read_bounded(path, MAX_TRACE)
        .map_err(|error| Stop::Failed(format!("cannot read {}: {error}", path.display())))
}

/// Devices are refused: some have no end, and others nothing to say until somebody types it.
fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() && !metadata.file_type().is_fifo() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a pipe"));
    }
    let mut content = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tree::Tree;

    const TRACE: &str = r#"{"config":{"event_timeout":1000000,"exec_delay":0,"blockdev_read_only":false,"strict_names":true,"in_initrd":false,"coalesce_above":1000}}
{"rules":[["/r.rules","ENV{A}=\"1\"\n"]]}
"#;

    fn replay(tree: &Tree, words: &[&str]) -> (Outcome, String) {
        let mut out = Vec::new();
        let words: Vec<_> = words
            .iter()
            .map(|word| if word.starts_with('-') { (*word).into() } else { tree.path(word).into_os_string() })
            .collect();
        let outcome = run(&mut Parser::from_args(words), &tree.roots(), &mut out);
        (outcome, String::from_utf8(out).expect("text"))
    }

    #[test]
    fn a_trace_gives_its_effects_or_is_compared() {
        let tree = Tree::new();
        tree.file("trace", TRACE)
            .file("none", "")
            .file("other", "Busy(true)\n")
            .file("bad", "{\"frob\":1}\n");
        assert_eq!(replay(&tree, &["trace"]), (Ok(ExitCode::SUCCESS), String::new()));
        assert_eq!(replay(&tree, &["--expect", "none", "trace"]).0, Ok(ExitCode::SUCCESS));
        for words in [&["--expect", "other", "trace"][..], &["bad"], &["missing"], &[], &["trace", "trace"]] {
            assert!(matches!(replay(&tree, words).0, Err(Stop::Failed(_))), "{words:?}");
        }
    }

    #[test]
    fn what_has_no_end_is_not_read() {
        let tree = Tree::new();
        tree.file("trace", TRACE).link("zeroes", "/dev/zero");
        for words in [&["zeroes"][..], &["--expect", "zeroes", "trace"]] {
            let (outcome, _) = replay(&tree, words);
            let Err(Stop::Failed(why)) = outcome else { panic!("{words:?}: {outcome:?}") };
            assert!(why.ends_with("neither a file nor a pipe"), "{why}");
        }
        assert_eq!(
            read_bounded(&tree.path("trace"), 9).map_err(|e| e.kind()),
            Err(io::ErrorKind::FileTooLarge)
        );
    }
}
