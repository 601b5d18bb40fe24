//! `control`: tells the daemon what to do, in dialect B of the classic protocol (interop.md 3.2, 3.3,
//! 5.4).

use super::reach::{self, Peer, Varlink};
use super::{
    Out, Outcome, Stop, bytes_value, complain, ignored_in_chroot, other_option, parse_seconds, text_value,
};
use crate::builtin::value::parse_number;
use crate::daemon::upkeep::findings::Findings;
use crate::model::command_line::{LongNames, next_arg};
use crate::model::control::{Datagram, Message};
use crate::sys::{process, unix};
use crate::world::Roots;
use bstr::ByteSlice;
use lexopt::{Arg, Parser};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

/// Why the daemon could not be told.
#[derive(Debug)]
pub(super) enum SendError {
    /// Nobody listens.
    NoDaemon(io::Error),
    /// The daemon that listens speaks another protocol.
    OtherProtocol(Option<Peer>),
    /// A text is too long for a datagram.
    TooLong,
    /// It did not answer in time.
    TimedOut(Option<Peer>),
    Io(io::Error),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::NoDaemon(error) => f.write_str(&reach::unreached("daemon", error)),
            SendError::OtherProtocol(peer) => {
                let peer = peer.as_ref().map_or("another daemon".to_owned(), Peer::to_string);
                write!(f, "{peer} answers here, and speaks Varlink only: its own udevadm can tell it")
            }
            SendError::TooLong => f.write_str("the text is longer than 255 bytes"),
            SendError::TimedOut(peer) => write!(f, "{} in time", reach::no_answer(peer.as_ref())),
            SendError::Io(error) => write!(f, "cannot talk to the daemon: {error}"),
        }
    }
}

/// Sends messages over one connection and waits so long for the daemon's answer; None: not at all. Returns which
/// daemon took them.
pub(super) fn send(
    roots: &Roots,
    messages: &[Message],
    limit: Option<Duration>,
) -> Result<Option<Peer>, SendError> {
    let limit = limit.filter(|l| !l.is_zero());
    let connection = connect(roots, limit.unwrap_or(reach::SHORT))?;
    let peer = || Peer::of(connection.as_fd(), roots);
    for message in messages.iter().chain([&Message::End]) {
        send_one(&connection, message).map_err(|error| match error {
            SendError::Io(error) if error.kind() == io::ErrorKind::WouldBlock => SendError::TimedOut(peer()),
            other => other,
        })?;
    }
    let Some(limit) = limit else { return Ok(peer()) };
    match reach::wait_for_answer(connection.as_fd(), roots, limit) {
        Ok(true) => Ok(peer()),
        Ok(false) => Err(SendError::TimedOut(peer())),
        Err(error) => Err(SendError::Io(error)),
    }
}

fn connect(roots: &Roots, limit: Duration) -> Result<OwnedFd, SendError> {
    let other_protocol = || Varlink::find(roots).map(|other| SendError::OtherProtocol(other.peer(roots)));
    unix::connect_seqpacket_within(&roots.run.join("udev/control"), limit).map_err(|error| match error {
        error if reach::nobody_listens(&error) => other_protocol().unwrap_or(SendError::NoDaemon(error)),
        error if error.raw_os_error() == Some(libc::EPROTOTYPE) => {
            other_protocol().unwrap_or(SendError::OtherProtocol(None))
        }
        error if error.kind() == io::ErrorKind::WouldBlock => SendError::TimedOut(None),
        error => SendError::Io(error),
    })
}

fn send_one(connection: &OwnedFd, message: &Message) -> Result<(), SendError> {
    let version = format!("udev-{}", crate::LEVEL).into();
    let datagram = Datagram { version, message: message.clone() };
    let datagram = datagram.render().ok_or(SendError::TooLong)?;
    match unix::send(connection.as_fd(), &datagram) {
        // The daemon has ended on EXIT before it read END.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe && *message == Message::End => Ok(()),
        result => result.map_err(SendError::Io),
    }
}

/// What `control --help` says.
pub(super) const HELP: &str = "control OPTION...

Tell the daemon what to do.

  -e --exit                   Finish running events and end the daemon
  -l --log-level=LEVEL        Set the log level (emerg ... debug, 0 ... 7)
  -s --stop-exec-queue        Queue events, start none
  -S --start-exec-queue       Start events again
  -R --reload                 Load rules and configuration again
  -p --property=KEY=VALUE     Set a global property; an empty value unsets it
  -m --children-max=N         Programs at once; 0 is the default
     --ping                   Wait until the daemon has all events that the kernel sent
  -t --timeout=SECONDS        How long to wait for the answer (60; 0: not at all)
  -h --help                   Show this help
  -V --version                Show the version";

/// Its long options.
const LONG: &[LongNames] = &[&[
    "exit",
    "log-level|log-priority",
    "stop-exec-queue",
    "start-exec-queue",
    "reload|reload-rules",
    "property|env",
    "children-max",
    "ping",
    "timeout",
]];

/// Syslog's number (syslog(3)) of a level by name or number.
fn log_number(text: &str) -> Option<u8> {
    Some(match text {
        "emerg" => 0,
        "alert" => 1,
        "crit" => 2,
        "err" | "error" => 3,
        "warning" | "warn" => 4,
        "notice" => 5,
        "info" => 6,
        "debug" => 7,
        _ => return text.parse().ok().filter(|&n| n <= 7),
    })
}

/// What the options ask for: messages, and how long to wait.
fn parse(parser: &mut Parser) -> Result<(Vec<Message>, Duration), Stop> {
    let mut messages = Vec::new();
    let mut timeout = None;
    while let Some(arg) = next_arg(parser, LONG)? {
        match arg {
            Arg::Short('e') | Arg::Long("exit") => messages.push(Message::Exit),
            Arg::Short('l') | Arg::Long("log-level") => {
                let text = text_value(parser)?;
                let level =
                    log_number(&text).ok_or_else(|| Stop::Failed(format!("{text:?} is no log level")))?;
                messages.push(Message::SetLogLevel(level));
            }
            Arg::Short('s') | Arg::Long("stop-exec-queue") => messages.push(Message::StopExecQueue),
            Arg::Short('S') | Arg::Long("start-exec-queue") => messages.push(Message::StartExecQueue),
            Arg::Short('R') | Arg::Long("reload") => messages.push(Message::Reload),
            Arg::Short('p') | Arg::Long("property") => {
                let text = bytes_value(parser)?;
                let Some((name, value)) = text.split_once_str("=") else {
                    return Err(Stop::Failed(format!("{text:?} is not of the form KEY=VALUE")));
                };
                messages.push(Message::SetEnv { name: name.into(), value: value.into() });
            }
            Arg::Short('m') | Arg::Long("children-max") => {
                let text = text_value(parser)?;
                let number = parse_number(text.as_bytes()).and_then(|n| i32::try_from(n).ok());
                let number =
                    number.ok_or_else(|| Stop::Failed(format!("{text:?} is no number of programs")))?;
                messages.push(Message::SetChildrenMax(number.unsigned_abs()));
            }
            Arg::Long("ping") => messages.push(Message::Ping),
            Arg::Short('t') | Arg::Long("timeout") => timeout = Some(parse_seconds(&parser.value()?)?),
            other => return Err(other_option(other)),
        }
    }
    if messages.is_empty() && timeout.is_none() {
        return Err(Stop::failed("say what to do; --help lists the options"));
    }
    Ok((messages, timeout.unwrap_or(Duration::from_secs(60))))
}

/// Runs the subcommand.
pub(super) fn run(parser: &mut Parser, roots: &Roots, _out: Out) -> Outcome {
    let (messages, timeout) = parse(parser)?;
    if ignored_in_chroot("control", roots) {
        return Ok(ExitCode::SUCCESS);
    }
    if !process::is_root() {
        return Err(Stop::failed("only root may control the daemon"));
    }
    // With a time and nothing to do udevadm is content too.
    if !messages.is_empty() {
        // Before: one that is told to exit cannot be asked any more.
        let is_mudevd = reach::is_mudevd(roots);
        let told = send(roots, &messages, Some(timeout)).map_err(Stop::failed)?;
        say_who_was_told(told.as_ref(), is_mudevd);
        // A caller that does not wait for the answer does not wait for this either.
        if messages.contains(&Message::Reload) && !timeout.is_zero() {
            say_findings(roots);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The faults that mudevd has found in the rules. It has loaded them all the same. Other daemons write such faults to
/// their logs.
fn say_findings(roots: &Roots) {
    let Ok(answer) = super::status::ask(roots, "findings") else { return };
    match serde_json::from_slice::<Findings>(&answer) {
        Ok(findings) => {
            findings.texts.iter().for_each(|text| complain(format_args!("{}", text.trim_end())));
            if findings.left_out > 0 {
                complain(format_args!("... and {} more; see the log of the daemon", findings.left_out));
            }
        }
        Err(error) => log::debug!("Cannot understand what the daemon found in the rules: {error}"),
    }
}

/// Users of this tool mean mudevd: a line says that another daemon has taken the message.
fn say_who_was_told(told: Option<&Peer>, is_mudevd: bool) {
    let Some(peer) = told else { return };
    let level = if is_mudevd { log::Level::Debug } else { log::Level::Info };
    log::log!(level, "Told {peer}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &[&str]) -> Result<(Vec<Message>, Duration), Stop> {
        parse(&mut Parser::from_args(words))
    }

    #[test]
    fn options_become_messages_in_their_order() {
        let set = |name: &str, value: &str| Message::SetEnv { name: name.into(), value: value.into() };
        for (words, expected) in [
            (&["--reload"][..], vec![Message::Reload]),
            (&["--reload-rules", "-R"], vec![Message::Reload, Message::Reload]),
            (&["-l", "debug"], vec![Message::SetLogLevel(7)]),
            (&["--log-priority=3", "--ping"], vec![Message::SetLogLevel(3), Message::Ping]),
            (&["-s", "-S"], vec![Message::StopExecQueue, Message::StartExecQueue]),
            (&["-pA=b=c", "--env=D="], vec![set("A", "b=c"), set("D", "")]),
            (&["-m", "70000", "-m0x10"], vec![Message::SetChildrenMax(70000), Message::SetChildrenMax(16)]),
            (&["-t", "60"], vec![]),
            (&["-m", "0", "--exit"], vec![Message::SetChildrenMax(0), Message::Exit]),
        ] {
            assert_eq!(parse_words(words), Ok((expected, Duration::from_secs(60))), "{words:?}");
        }
        assert_eq!(parse_words(&["-t", "0", "-e"]), Ok((vec![Message::Exit], Duration::ZERO)));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for words in [
            &[][..],
            &["-p", "A"],
            &["-l", "loud"],
            &["-l", "8"],
            &["-m", "-1"],
            &["-m", "4294967296"],
            &["--frob"],
            &["word"],
            &["-t", "x", "-e"],
        ] {
            assert!(matches!(parse_words(words), Err(Stop::Failed(_))), "{words:?}");
        }
        assert_eq!(parse_words(&["-e", "-h"]), Err(Stop::Help));
    }
}
