//! The daemon's command line (interop.md 4.3). Its settings are merged with those of files, of the
//! environment and of the kernel command line by [`crate::world::config`]. A bad value of an option that udevd
//! has too is said and passed over, as udevd does: a machine whose daemon does not start does not boot.

use crate::model::ResolveNames;
use crate::model::command_line::{LongNames, next_arg};
use crate::world::Roots;
use crate::world::config::{self, Overrides};
use lexopt::{Arg, ValueExt};
use std::ffi::OsString;
use std::path::PathBuf;

/// Text of `--help`.
pub const HELP: &str = "\
mudevd [OPTION...]

Manages devices: receives the kernel's events, evaluates the rules, sets up nodes, symlinks and
records below /run/udev, and announces the events.

  -h --help                   this text
  -V --version                the level of behaviour, a bare number
  -d --daemon                 detach, once all is ready
  -D --debug                  log at level debug, to the standard error
  -c --children-max=N         programs at one time; 0: by the size of the machine
  -e --exec-delay=SECONDS     wait before the programs of RUN
  -t --event-timeout=SECONDS  time for one event and its programs (180)
     --timeout-signal=SIGNAL  what follows it (SIGKILL)
  -N --resolve-names=WHEN     early, late or never: names of users and groups
     --ready-fd=N             write a newline to this descriptor and close it, once ready
     --coldplug               trigger all devices; ready when they are through
     --events=FILE            take events from a file (-: standard input) instead of the kernel,
                              handle them all, and exit
     --record=FILE            write all inputs, for `mudevadm replay`
     --rules-dir=DIR          read rules from here instead of the usual places; may be repeated
     --sys-dir=DIR --dev-dir=DIR --run-dir=DIR --proc-dir=DIR --etc-dir=DIR
                              where the system stands
";

/// Its long options.
const LONG: &[LongNames] = &[&[
    "daemon",
    "debug",
    "children-max",
    "exec-delay",
    "event-timeout",
    "timeout-signal",
    "resolve-names",
    "ready-fd",
    "coldplug",
    "events",
    "record",
    "rules-dir",
    "sys-dir",
    "dev-dir",
    "run-dir",
    "proc-dir",
    "etc-dir",
]];

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invocation {
    Run(Box<CommandLine>),
    Help,
    Version,
}

/// What was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    pub roots: Roots,
    /// Empty: the usual places.
    pub rules_dirs: Vec<PathBuf>,
    pub daemon: bool,
    pub debug: bool,
    pub ready_fd: Option<i32>,
    pub coldplug: bool,
    pub events: Option<PathBuf>,
    pub record: Option<PathBuf>,
    pub overrides: Overrides,
    /// What was passed over, for the log.
    pub messages: Vec<String>,
}

/// Reads the command line, the name of the program first. The error is for people.
pub fn parse(args: Vec<OsString>) -> Result<Invocation, String> {
    let mut parser = lexopt::Parser::from_iter(args);
    parse_options(&mut parser).map_err(|error| error.to_string())
}

fn parse_options(parser: &mut lexopt::Parser) -> Result<Invocation, lexopt::Error> {
    let mut line = CommandLine::default();
    let (overrides, messages) = (&mut line.overrides, &mut line.messages);
    while let Some(arg) = next_arg(parser, LONG)? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Ok(Invocation::Help),
            Arg::Short('V') | Arg::Long("version") => return Ok(Invocation::Version),
            Arg::Short('d') | Arg::Long("daemon") => line.daemon = true,
            Arg::Short('D') | Arg::Long("debug") => line.debug = true,
            Arg::Short('c') | Arg::Long("children-max") => {
                lenient(parser, &mut overrides.children_max, messages, "a number of programs", number)?;
            }
            Arg::Short('e') | Arg::Long("exec-delay") => {
                lenient(parser, &mut overrides.exec_delay, messages, "a time", config::parse_time_span)?;
            }
            Arg::Short('t') | Arg::Long("event-timeout") => {
                lenient(parser, &mut overrides.event_timeout, messages, "a time", config::parse_time_span)?;
            }
            Arg::Long("timeout-signal") => {
                lenient(parser, &mut overrides.timeout_signal, messages, "a signal", config::parse_signal)?;
            }
            Arg::Short('N') | Arg::Long("resolve-names") => {
                lenient(
                    parser,
                    &mut overrides.resolve_names,
                    messages,
                    "early, late or never",
                    ResolveNames::parse,
                )?;
            }
            Arg::Long("ready-fd") => {
                line.ready_fd = Some(value(parser, "a descriptor", number)?);
            }
            Arg::Long("coldplug") => line.coldplug = true,
            Arg::Long("events") => line.events = Some(parser.value()?.into()),
            Arg::Long("record") => line.record = Some(parser.value()?.into()),
            Arg::Long("rules-dir") => line.rules_dirs.push(parser.value()?.into()),
            Arg::Long("sys-dir") => line.roots.sys = directory(parser)?,
            Arg::Long("dev-dir") => line.roots.dev = directory(parser)?,
            Arg::Long("run-dir") => line.roots.run = directory(parser)?,
            Arg::Long("proc-dir") => line.roots.proc = directory(parser)?,
            Arg::Long("etc-dir") => line.roots.etc = directory(parser)?,
            Arg::Value(word) => messages.push(format!("the argument {word:?} is ignored")),
            other => return Err(other.unexpected()),
        }
    }
    if line.ready_fd.is_some_and(|fd| fd < 3 && fd != 1) {
        return Err("--ready-fd must be 1, or 3 or more: 2 is for the log".into());
    }
    if line.events.is_some() && (line.daemon || line.coldplug) {
        return Err(
            "--events takes no events from the kernel: --daemon and --coldplug have no place beside it"
                .into(),
        );
    }
    if line.debug {
        line.overrides.log_level = Some(log::LevelFilter::Debug);
    }
    Ok(Invocation::Run(Box::new(line)))
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The value of an option, which must be `what`.
fn value<T>(
    parser: &mut lexopt::Parser,
    what: &str,
    parse: impl Fn(&[u8]) -> Option<T>,
) -> Result<T, lexopt::Error> {
    let text = parser.value()?.string()?;
    parse(text.as_bytes()).ok_or_else(|| format!("'{text}' is not {what}").into())
}

/// The value of an option of udevd; one that makes no sense leaves what was said before, with a message.
fn lenient<T>(
    parser: &mut lexopt::Parser,
    setting: &mut Option<T>,
    messages: &mut Vec<String>,
    what: &str,
    parse: impl Fn(&[u8]) -> Option<T>,
) -> Result<(), lexopt::Error> {
    let text = parser.value()?;
    match parse(text.as_encoded_bytes()) {
        Some(value) => *setting = Some(value),
        None => messages.push(format!("{text:?} is not {what}, it is ignored")),
    }
    Ok(())
}

/// An absolute path without a slash at its end.
fn directory(parser: &mut lexopt::Parser) -> Result<PathBuf, lexopt::Error> {
    let path = PathBuf::from(parser.value()?);
    let path = std::path::absolute(&path).map_err(|e| lexopt::Error::Custom(e.into()))?;
    Ok(path.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn parse_line(args: &[&str]) -> Result<Invocation, String> {
        parse(["mudevd"].iter().chain(args).map(OsString::from).collect())
    }

    fn line(args: &[&str]) -> CommandLine {
        match parse_line(args) {
            Ok(Invocation::Run(line)) => *line,
            other => panic!("{args:?}: {other:?}"),
        }
    }

    #[test]
    fn options_have_short_and_long_forms() {
        for args in [
            &["-d", "-D", "-c", "3", "-e1", "-t", "5", "-N", "late"][..],
            &[
                "--daem",
                "--deb",
                "--children-max=3",
                "--exec-delay",
                "1",
                "--event-timeout=5s",
                "--resolve-names=late",
            ],
        ] {
            let line = line(args);
            assert!(line.daemon && line.debug);
            let said = line.overrides;
            assert_eq!(said.children_max, Some(3));
            assert_eq!(said.exec_delay, Some(Duration::from_secs(1)));
            assert_eq!(said.event_timeout, Some(Duration::from_secs(5)));
            assert_eq!(said.resolve_names, Some(ResolveNames::Late));
            assert_eq!(said.log_level, Some(log::LevelFilter::Debug));
        }
        assert_eq!(parse_line(&["-V"]), Ok(Invocation::Version));
        assert_eq!(parse_line(&["--coldplug", "-h"]), Ok(Invocation::Help));
        assert_eq!(line(&["--ready-fd=1"]).ready_fd, Some(1));
        assert_eq!(line(&["--timeout-signal=ABRT"]).overrides.timeout_signal, Some(libc::SIGABRT));
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        for args in [
            &["--frob"][..],
            &["--d"],
            &["--e=1"],
            &["-c"],
            &["--ready-fd=0"],
            &["--ready-fd=2"],
            &["--ready-fd=-3"],
            &["--ready-fd=x"],
            &["--coldplug=yes"],
            &["--events=-", "--daemon"],
            &["--events=-", "--coldplug"],
        ] {
            assert!(parse_line(args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn a_bad_value_of_an_option_of_udevd_is_said_and_passed_over() {
        for (args, message) in [
            (&["-c", "x"][..], "\"x\" is not a number of programs, it is ignored"),
            (&["--children-max=-1"], "\"-1\" is not a number of programs, it is ignored"),
            (&["-c", "-V"], "\"-V\" is not a number of programs, it is ignored"),
            (&["-e", ""], "\"\" is not a time, it is ignored"),
            (&["-t", "5 parsecs"], "\"5 parsecs\" is not a time, it is ignored"),
            (&["--timeout-signal=NONE"], "\"NONE\" is not a signal, it is ignored"),
            (&["-N", "sometimes"], "\"sometimes\" is not early, late or never, it is ignored"),
            (&["file"], "the argument \"file\" is ignored"),
        ] {
            let line = line(args);
            assert_eq!(line.messages, [message], "{args:?}");
            assert_eq!(line.overrides, Overrides::default(), "{args:?}");
        }
        assert_eq!(line(&["-c", "3", "-c", "x"]).overrides.children_max, Some(3));
        assert_eq!(parse_line(&["-c", "x", "-V"]), Ok(Invocation::Version));
    }

    #[test]
    fn roots_are_absolute_and_plain() {
        let roots = line(&["--sys-dir", "/tmp/x/sys/", "--run-dir=/r"]).roots;
        assert_eq!((roots.sys.to_str(), roots.run.to_str()), (Some("/tmp/x/sys"), Some("/r")));
        assert!(line(&["--dev-dir=dev"]).roots.dev.is_absolute());
    }
}
