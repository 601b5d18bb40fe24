//! The tool, `mudevadm`: one file per subcommand (interop.md section 5). Names, options, output and
//! exit codes are those of `udevadm`.
//!
//! Must stay true: a subcommand returns why it stopped, and only [`main`] prints that and chooses the
//! exit code; output goes through the one buffered writer that a subcommand is given, and a reader
//! that goes away ends the tool without a word.

mod control;
mod filter;
mod info;
mod monitor;
mod reach;
mod replay;
mod settle;
mod status;
mod test;
mod trial;
mod trigger;
mod verify;
mod view;

use crate::model::Action;
use crate::model::command_line::next_arg;
use crate::world::config::parse_time_span;
use crate::world::{Roots, logger};
use bstr::BString;
use lexopt::{Arg, Parser};
use serde_json::Serializer;
use serde_json::ser::{Formatter, PrettyFormatter};
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::ExitCode;
use std::time::Duration;

/// Why a subcommand stopped early.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// Its help is wanted.
    Help,
    /// The version is wanted.
    Version,
    /// Nobody reads the output any more.
    ReaderGone,
    /// It failed; one line for the user.
    Failed(String),
}

impl Stop {
    /// A failure.
    pub fn failed(text: impl Display) -> Stop {
        Stop::Failed(text.to_string())
    }
}

impl From<lexopt::Error> for Stop {
    fn from(error: lexopt::Error) -> Stop {
        Stop::failed(error)
    }
}

/// For errors of the output. Code that talks to another process words its errors itself.
impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Stop::ReaderGone,
            _ => Stop::failed(error),
        }
    }
}

/// What a subcommand gives.
pub type Outcome = Result<ExitCode, Stop>;

/// Where a subcommand prints.
pub type Out<'a> = &'a mut dyn Write;

/// A subcommand.
struct Verb {
    name: &'static str,
    about: &'static str,
    help: &'static str,
    run: fn(&mut Parser, &Roots, Out) -> Outcome,
}

/// All subcommands in the order of `--help`.
const VERBS: &[Verb] = &[
    Verb { name: "info", about: "Show devices and their records", help: info::HELP, run: info::run },
    Verb { name: "trigger", about: "Have the kernel send uevents", help: trigger::HELP, run: trigger::run },
    Verb { name: "settle", about: "Wait for pending events", help: settle::HELP, run: settle::run },
    Verb { name: "control", about: "Control the daemon", help: control::HELP, run: control::run },
    Verb { name: "monitor", about: "Show events as they come", help: monitor::HELP, run: monitor::run },
    Verb {
        name: "test",
        about: "Run the rules for a device, change nothing",
        help: test::HELP,
        run: test::run,
    },
    Verb {
        name: "test-builtin",
        about: "Run one builtin for a device",
        help: test::BUILTIN_HELP,
        run: test::run_builtin,
    },
    Verb { name: "verify", about: "Check rules files", help: verify::HELP, run: verify::run },
    Verb { name: "status", about: "Show what the daemon is doing", help: status::HELP, run: status::run },
    Verb {
        name: "links",
        about: "Show the daemon's table of links",
        help: status::LINKS_HELP,
        run: status::run_links,
    },
    Verb { name: "replay", about: "Run a recorded trace again", help: replay::HELP, run: replay::run },
];

/// Subcommands of udevadm that are still to be written.
const LATER: &[&str] = &["hwdb", "wait", "lock", "cat"];

/// `mudevadm`.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let name = args.next().unwrap_or_default();
    let name = std::path::Path::new(&name).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let outcome = dispatch(&mut Parser::from_args(args), &name, &Roots::default(), &mut out);
    match outcome.and_then(|code| Ok(out.flush().map(|()| code)?)) {
        Ok(code) => code,
        // Parents take a death by SIGPIPE, which this stands for, as success too.
        Err(Stop::ReaderGone) => ExitCode::SUCCESS,
        Err(Stop::Failed(text)) => {
            // The output from before the failure comes first. If it cannot be written, nothing more can be done.
            let _ = out.flush();
            complain(format_args!("{name}: {text}"));
            ExitCode::FAILURE
        }
        Err(Stop::Help | Stop::Version) => ExitCode::FAILURE,
    }
}

/// A line for the user. If it cannot be written, nothing more can be done.
fn complain(text: std::fmt::Arguments) {
    logger::complain(&text.to_string());
}

fn dispatch(parser: &mut Parser, name: &str, roots: &Roots, out: Out) -> Outcome {
    let mut level = log::LevelFilter::Info;
    loop {
        match next_arg(parser, &[&["debug"]])? {
            Some(Arg::Short('d') | Arg::Long("debug")) => level = log::LevelFilter::Debug,
            Some(Arg::Short('h') | Arg::Long("help")) => return print_help(name, out),
            Some(Arg::Short('V') | Arg::Long("version")) => return print_version(out),
            Some(Arg::Value(verb)) => {
                logger::start_tool(level);
                return run_verb(&verb.to_string_lossy(), parser, name, roots, out);
            }
            Some(other) => return Err(other.unexpected().into()),
            None => return Err(Stop::failed("a subcommand is required; --help lists them")),
        }
    }
}

fn run_verb(verb: &str, parser: &mut Parser, name: &str, roots: &Roots, out: Out) -> Outcome {
    match verb {
        "help" => return print_help(name, out),
        "version" => return print_version(out),
        _ => {}
    }
    let Some(found) = VERBS.iter().find(|v| v.name == verb) else {
        let what = if LATER.contains(&verb) { "is not written yet" } else { "is no subcommand" };
        return Err(Stop::Failed(format!("{verb:?} {what}; --help lists those there are")));
    };
    match (found.run)(parser, roots, out) {
        Err(Stop::Help) => {
            writeln!(out, "{name} {}", found.help)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(Stop::Version) => print_version(out),
        Err(Stop::Failed(text)) => Err(Stop::Failed(format!("{verb}: {text}"))),
        other => other,
    }
}

fn print_version(out: Out) -> Outcome {
    writeln!(out, "{}", crate::LEVEL)?;
    Ok(ExitCode::SUCCESS)
}

fn print_help(name: &str, out: Out) -> Outcome {
    writeln!(out, "{name} [-d|--debug] [-h|--help] [-V|--version] SUBCOMMAND [OPTIONS]\n")?;
    for verb in VERBS {
        writeln!(out, "  {:<14}{}", verb.name, verb.about)?;
    }
    writeln!(out, "\nEach subcommand explains its options with --help.")?;
    Ok(ExitCode::SUCCESS)
}

/// An option that a subcommand does not know itself.
fn other_option(arg: Arg) -> Stop {
    match arg {
        Arg::Short('h') | Arg::Long("help") => Stop::Help,
        Arg::Short('V') | Arg::Long("version") => Stop::Version,
        other => other.unexpected().into(),
    }
}

/// A word that a subcommand has no use for. udevadm ignores such words, so scripts may pass some without anybody
/// having noticed.
fn ignore_word(word: &OsStr) {
    complain(format_args!("Ignoring the argument {word:?}"));
}

/// Seconds, decimals allowed, or a time span such as `2min 30s`.
fn parse_seconds(text: &OsStr) -> Result<Duration, Stop> {
    parse_time_span(text.as_bytes()).ok_or_else(|| Stop::Failed(format!("{text:?} is no time span")))
}

/// The value of an option, in bytes.
fn bytes_value(parser: &mut Parser) -> Result<BString, Stop> {
    Ok(parser.value()?.into_vec().into())
}

/// The value of an option as text.
fn text_value(parser: &mut Parser) -> Result<String, Stop> {
    parser.value()?.into_string().map_err(|bad| Stop::Failed(format!("{bad:?} is not UTF-8")))
}

/// The value of `--action`; None if it was `help` and the list is printed.
fn action_value(parser: &mut Parser, out: Out) -> Result<Option<Action>, Stop> {
    let text = text_value(parser)?;
    if text == "help" {
        for action in Action::ALL {
            writeln!(out, "{action}")?;
        }
        return Ok(None);
    }
    Action::parse(text.as_bytes()).map(Some).ok_or_else(|| Stop::Failed(format!("Unknown action '{text}'")))
}

/// The value of `--json`, which may be `off`; None if it was `help` and the list is printed.
fn json_value(parser: &mut Parser, out: Out) -> Result<Option<Option<Json>>, Stop> {
    match &*text_value(parser)? {
        "help" => {
            out.write_all(b"pretty\nshort\noff\n")?;
            Ok(None)
        }
        text => Json::parse(text).map(Some),
    }
}

/// Subcommands that speak with the system do nothing in a chroot: a script in there does not mean the daemon outside
/// (interop.md 5.1).
fn ignored_in_chroot(verb: &str, roots: &Roots) -> bool {
    if std::env::var_os("SYSTEMD_IGNORE_CHROOT").is_some_and(|v| v == "1") || !roots.in_chroot() {
        return false;
    }
    complain(format_args!("Running in chroot, ignoring request: {verb}"));
    true
}

/// How JSON is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Json {
    Short,
    Pretty,
}

impl Json {
    /// `pretty`, `short`, or `off`: None.
    fn parse(text: &str) -> Result<Option<Json>, Stop> {
        match text {
            "pretty" => Ok(Some(Json::Pretty)),
            "short" => Ok(Some(Json::Short)),
            "off" => Ok(None),
            _ => Err(Stop::Failed(format!("{text:?} is none of pretty, short, off"))),
        }
    }

    /// One value and the end of its line.
    fn write(self, out: Out, value: &impl serde::Serialize) -> Result<(), Stop> {
        let mut text = Vec::new();
        match self {
            Json::Short => value.serialize(&mut Serializer::new(&mut text)),
            Json::Pretty => value.serialize(&mut Serializer::with_formatter(&mut text, Tabs::new())),
        }
        .map_err(Stop::failed)?;
        text.push(b'\n');
        Ok(out.write_all(&text)?)
    }
}

/// JSON with lines and tabs, and spaces around colons, as udevadm writes it.
struct Tabs(PrettyFormatter<'static>);

impl Tabs {
    fn new() -> Tabs {
        Tabs(PrettyFormatter::with_indent(b"\t"))
    }
}

impl Formatter for Tabs {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b" : ")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

#[cfg(test)]
mod tests;
