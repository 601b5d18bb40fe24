//! `settle`: waits until the daemon has no events (interop.md 3.5, 5.4).

use super::control::{self, SendError};
use super::reach::Varlink;
use super::{Out, Outcome, Stop, ignore_word, ignored_in_chroot, other_option, parse_seconds};
use crate::model::command_line::{LongNames, next_arg};
use crate::model::control::Message;
use crate::sys::inotify::Inotify;
use crate::sys::process;
use crate::world::Roots;
use lexopt::{Arg, Parser};
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How often the file of `--exit-if-exists` is looked for: nothing tells of it. So is the queue where it cannot
/// be watched.
const LOOK: Duration = Duration::from_millis(100);

/// What `settle --help` says.
pub(super) const HELP: &str = "settle [OPTIONS]

Wait until the daemon has handled all events.

  -t --timeout=SECONDS        How long to wait (120; 0: only look)
  -E --exit-if-exists=FILE    Stop waiting when this file is there
  -h --help                   Show this help
  -V --version                Show the version";

/// Its long options.
const LONG: &[LongNames] = &[&["timeout", "exit-if-exists", "seq-start", "seq-end", "quiet"]];

#[derive(Debug, PartialEq, Eq)]
struct Options {
    timeout: Duration,
    exit_if_exists: Option<PathBuf>,
}

fn parse(parser: &mut Parser) -> Result<Options, Stop> {
    let mut options = Options { timeout: Duration::from_secs(120), exit_if_exists: None };
    while let Some(arg) = next_arg(parser, LONG)? {
        match arg {
            Arg::Short('t') | Arg::Long("timeout") => options.timeout = parse_seconds(&parser.value()?)?,
            Arg::Short('E') | Arg::Long("exit-if-exists") => {
                options.exit_if_exists = Some(parser.value()?.into());
            }
            Arg::Short('s' | 'e' | 'q') | Arg::Long("seq-start" | "seq-end" | "quiet") => {
                return Err(Stop::failed("options -s, -e and -q are no longer supported"));
            }
            Arg::Value(word) => ignore_word(&word),
            other => return Err(other_option(other)),
        }
    }
    Ok(options)
}

/// Runs the subcommand.
pub(super) fn run(parser: &mut Parser, roots: &Roots, _out: Out) -> Outcome {
    let options = parse(parser)?;
    if ignored_in_chroot("settle", roots) {
        return Ok(ExitCode::SUCCESS);
    }
    if process::is_root() {
        if !is_caught_up(roots, &options)? {
            return Ok(ExitCode::SUCCESS);
        }
    } else {
        let control = roots.run.join("udev/control");
        if !control.exists() {
            return Err(Stop::Failed(format!("no daemon: {} is not there", control.display())));
        }
    }
    let dir = roots.run.join("udev");
    let inotify = watch(&dir);
    if let Err(error) = &inotify {
        log::debug!("Looking at the queue from time to time: {error}");
    }
    wait(&dir, inotify.ok(), &options)
}

/// Has the daemon say that all events that the kernel had sent are in its queue. False: there is none, and
/// nothing to wait for, whatever a dead one has left.
fn is_caught_up(roots: &Roots, options: &Options) -> Result<bool, Stop> {
    let limit = options.timeout.max(Duration::from_secs(5));
    match control::send(roots, &[Message::Ping], Some(limit)) {
        Ok(_) => Ok(true),
        Err(SendError::NoDaemon(_)) => Ok(false),
        // It marks its queue by the same file.
        Err(SendError::OtherProtocol(peer)) => {
            let varlink = Varlink::find(roots);
            let answered = varlink.map(|varlink| varlink.ping(roots, limit));
            match answered.unwrap_or(Ok(true)).map_err(Stop::failed)? {
                true => Ok(true),
                false => Err(Stop::failed(SendError::TimedOut(peer))),
            }
        }
        Err(error) => Err(Stop::failed(error)),
    }
}

fn wait(dir: &Path, inotify: Option<Inotify>, options: &Options) -> Outcome {
    let queue = dir.join("queue");
    let deadline = Instant::now() + options.timeout;
    let mut buffer = [0; 4096];
    loop {
        if options.exit_if_exists.as_ref().is_some_and(|file| file.exists()) || !queue.exists() {
            return Ok(ExitCode::SUCCESS);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            if !options.timeout.is_zero() {
                log::error!("Timed out while waiting for the queue to become empty");
            }
            return Ok(ExitCode::FAILURE);
        }
        let has_to_look = options.exit_if_exists.is_some() || inotify.is_none();
        let nap = if has_to_look { left.min(LOOK) } else { left };
        match &inotify {
            Some(inotify) => {
                if process::wait_readable(inotify.as_fd(), nap).map_err(Stop::failed)? {
                    while inotify.read(&mut buffer).is_ok() {}
                }
            }
            None => std::thread::sleep(nap),
        }
    }
}

/// Watches what is removed from a folder. The kernel lets all processes of root together have 128 such
/// watchers, which is not many on a machine of containers.
fn watch(dir: &Path) -> io::Result<Inotify> {
    let inotify = Inotify::new()?;
    inotify.watch(&CString::new(dir.as_os_str().as_bytes())?, libc::IN_DELETE)?;
    Ok(inotify)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tree::Tree;

    fn parse_words(words: &[&str]) -> Result<Options, Stop> {
        parse(&mut Parser::from_args(words))
    }

    #[test]
    fn options_are_read_and_old_ones_refused() {
        let options = parse_words(&["--timeout", "1min", "-E", "/x"]).unwrap();
        assert_eq!((options.timeout, options.exit_if_exists), (Duration::from_secs(60), Some("/x".into())));
        assert_eq!(parse_words(&[]).unwrap().timeout, Duration::from_secs(120));
        assert_eq!(parse_words(&["-t1", "word"]).unwrap().timeout, Duration::from_secs(1));
        for words in [&["-s", "1"][..], &["-e", "1"], &["--quiet"], &["-t", "soon"], &["--frob"]] {
            assert!(matches!(parse_words(words), Err(Stop::Failed(_))), "{words:?}");
        }
    }

    #[test]
    fn waiting_ends_without_a_queue_with_the_file_or_with_the_time() {
        let tree = Tree::new();
        tree.dir("run/udev");
        let dir = tree.path("run/udev");
        let wait = |millis, exit_if_exists| {
            let options = Options { timeout: Duration::from_millis(millis), exit_if_exists };
            wait(&dir, Some(watch(&dir).unwrap()), &options)
        };
        assert_eq!(wait(0, None), Ok(ExitCode::SUCCESS));
        tree.file("run/udev/queue", "");
        assert_eq!(wait(0, None), Ok(ExitCode::FAILURE));
        assert_eq!(wait(10, None), Ok(ExitCode::FAILURE));
        assert_eq!(wait(60_000, Some(dir.clone())), Ok(ExitCode::SUCCESS));
        let remove = |queue| std::thread::spawn(move || std::fs::remove_file(queue));
        let remover = remove(dir.join("queue"));
        assert_eq!(wait(60_000, None), Ok(ExitCode::SUCCESS));
        remover.join().unwrap().unwrap();

        tree.file("run/udev/queue", "");
        let remover = remove(dir.join("queue"));
        let options = Options { timeout: Duration::from_secs(60), exit_if_exists: None };
        assert_eq!(super::wait(&dir, None, &options), Ok(ExitCode::SUCCESS), "without a watch");
        remover.join().unwrap().unwrap();
    }
}
