//! `--record`: writes the inputs of the engine to a trace ([`super::trace`]).
//!
//! Must stay true: the loop never waits for the file, which a helper writes ([`crate::helper::writer`]).
//! What the helper has no room for is kept, up to a bound; then, or when the file cannot be written, the
//! trace ends with one message, and the daemon goes on.

use super::trace::{self, RuleText};
use crate::engine::{EngineConfig, Input};
use crate::helper::dying::Dying;
use crate::helper::pool::Launcher;
use crate::helper::writer::{self, Content};
use crate::model::Now;
use crate::sys::{process, unix};
use serde_json::Value;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a message to the helper. So many are sent at the latest.
const PIECE: usize = 32 * 1024;

/// Bytes that are kept while the helper has no room. Beyond it the trace ends: what is missing in its middle would
/// make the rest worthless.
const MAX_UNSENT: usize = 32 << 20;

/// After this time a helper that had no room is tried again.
const RETRY: Duration = Duration::from_millis(20);

/// How long the end of the daemon waits for the end of the trace.
const FAREWELL: Duration = Duration::from_secs(5);

/// Why a trace ends early.
#[derive(Debug, PartialEq, Eq)]
enum End {
    TooSlow,
    Failed(String),
}

/// A trace that is being written.
#[derive(Debug)]
struct Open {
    socket: OwnedFd,
    unsent: Vec<u8>,
}

impl Open {
    /// Sends what there is room for; whether that is all.
    fn send(&mut self) -> Result<bool, End> {
        let mut sent = 0;
        let result = loop {
            let piece = &self.unsent[sent..];
            if piece.is_empty() {
                break Ok(true);
            }
            let piece = &piece[..piece.len().min(PIECE)];
            match unix::send(self.socket.as_fd(), piece) {
                Ok(()) => sent += piece.len(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(false),
                Err(error) => break Err(self.why(&error)),
            }
        };
        self.unsent.drain(..sent);
        match result {
            Ok(false) if self.unsent.len() > MAX_UNSENT => Err(End::TooSlow),
            other => other,
        }
    }

    /// What the helper says, or what was seen of its end.
    fn why(&self, seen: &io::Error) -> End {
        let said = writer::failure(self.socket.as_fd());
        End::Failed(said.map_or_else(|| seen.to_string(), |errno| errno.to_string()))
    }

    /// Waits for the end of what was sent.
    fn finish(&mut self, limit: Duration) -> Result<(), End> {
        let end = Instant::now() + limit;
        while !self.send()? {
            if Instant::now() >= end {
                return Err(End::TooSlow);
            }
            std::thread::sleep(RETRY);
        }
        let failed = |error: io::Error| End::Failed(error.to_string());
        unix::end_sending(self.socket.as_fd()).map_err(failed)?;
        let left = end.saturating_duration_since(Instant::now());
        if !process::wait_readable(self.socket.as_fd(), left).map_err(failed)? {
            return Err(End::TooSlow);
        }
        writer::failure(self.socket.as_fd()).map_or(Ok(()), |errno| Err(End::Failed(errno.to_string())))
    }
}

/// See the module.
#[derive(Debug)]
pub struct Recorder {
    /// None: it has ended early, which was said.
    open: Option<Open>,
    again_at: Option<Now>,
    /// Reaped when it has ended after an early end.
    helper: Dying,
}

impl Recorder {
    /// Begins a trace in a new file, or in place of an old one. Only a regular file will do: others have
    /// readers.
    pub fn create(path: &Path, launcher: &Launcher, config: &EngineConfig) -> io::Result<Recorder> {
        let mut options = File::options();
        options.write(true).create(true).truncate(true);
        let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let (child, socket) = writer::start(launcher, Content::Trace, file.as_fd())?;
        let mut recorder = Recorder::to(socket, config);
        recorder.helper.push(child);
        Ok(recorder)
    }

    fn to(socket: OwnedFd, config: &EngineConfig) -> Recorder {
        let open = Some(Open { socket, unsent: Vec::new() });
        let mut recorder = Recorder { open, again_at: None, helper: Dying::default() };
        recorder.config(config);
        recorder
    }

    /// The settings that hold from here on.
    pub fn config(&mut self, config: &EngineConfig) {
        self.line(&trace::render_config(config));
    }

    /// The rules that hold from here on. [`Input::Rules`] itself is not recorded: it holds no text.
    pub fn rules(&mut self, files: &[RuleText]) {
        self.line(&trace::render_rules(files));
    }

    /// One input.
    pub fn record(&mut self, input: &Input, now: Now) {
        if self.open.is_some()
            && let Some(line) = trace::render_input(input, now)
        {
            self.line(&line);
        }
    }

    /// What was recorded so far is on its way to the file.
    pub fn flush(&mut self, now: Now) {
        self.again_at = self.send().then_some(now + RETRY);
    }

    /// When to call [`Recorder::on_time`].
    pub fn timeout(&self) -> Option<Now> {
        if self.open.is_some() { self.again_at } else { self.helper.timeout() }
    }

    /// Goes on where the helper had no room.
    pub fn on_time(&mut self, now: Now) {
        if self.again_at.is_some_and(|at| at <= now) {
            self.flush(now);
        }
        if self.open.is_none() && self.helper.timeout().is_some_and(|at| at <= now) {
            self.helper.reap(now);
        }
    }

    /// Ends the trace, and waits for a time until it is on its file: the daemon has nothing else to do.
    pub fn finish(mut self) {
        if let Some(mut open) = self.open.take()
            && let Err(end) = open.finish(FAREWELL)
        {
            say(&end);
        }
    }

    fn line(&mut self, value: &Value) {
        let Some(open) = &mut self.open else { return };
        let before = open.unsent.len();
        // Memory takes all.
        let _ = writeln!(open.unsent, "{value}");
        // Not with each line while there is no room.
        if before / PIECE != open.unsent.len() / PIECE {
            self.send();
        }
    }

    /// Sends what can be sent; whether something is left.
    fn send(&mut self) -> bool {
        let Some(open) = &mut self.open else { return false };
        match open.send() {
            Ok(all) => !all,
            Err(end) => {
                say(&end);
                self.open = None;
                false
            }
        }
    }
}

fn say(end: &End) {
    match end {
        End::TooSlow => log::error!("The trace ends here: its file is written too slowly"),
        End::Failed(reason) => log::error!("The trace ends here, its file cannot be written: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::writer::serve_writer;

    /// A recorder, the other end of its socket, and a file to pass.
    fn setting(name: &str) -> (Recorder, OwnedFd, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("mudev-{name}-{}", std::process::id()));
        let (ours, theirs) = unix::seqpacket_pair().unwrap();
        let file = File::create(&path).unwrap();
        writer::pass_file(ours.as_fd(), Content::Trace, file.as_fd()).unwrap();
        (Recorder::to(ours, &EngineConfig::default()), theirs, path)
    }

    fn lines(recorder: &mut Recorder, count: usize) {
        for _ in 0..count {
            recorder.rules(&[("/r/1.rules".into(), "x".repeat(1000).into())]);
        }
    }

    #[test]
    fn what_a_slow_helper_has_no_room_for_is_kept_and_comes_whole() {
        let (mut recorder, theirs, path) = setting("recorder-slow");
        lines(&mut recorder, 2000);
        recorder.flush(Now::ZERO);
        assert_eq!(recorder.timeout(), Some(Now::ZERO + RETRY), "it does not fit into the socket");
        let helper = std::thread::spawn(move || serve_writer(theirs.as_fd()));
        recorder.finish();
        helper.join().unwrap().unwrap();
        let text = std::fs::read(&path).unwrap();
        assert_eq!(text.split(|&b| b == b'\n').count(), 2002);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_helper_that_takes_nothing_ends_the_trace_at_a_bound() {
        let (mut recorder, _theirs, path) = setting("recorder-stuck");
        lines(&mut recorder, MAX_UNSENT / 1000 + 1000);
        assert!(recorder.open.is_none() && recorder.timeout().is_none());
        lines(&mut recorder, 1);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_full_file_ends_the_trace_with_its_reason() {
        let (ours, theirs) = unix::seqpacket_pair().unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        writer::pass_file(ours.as_fd(), Content::Trace, full.as_fd()).unwrap();
        let mut open = Open { socket: ours, unsent: vec![b'x'; 100] };
        let helper = std::thread::spawn(move || serve_writer(theirs.as_fd()));
        let reason = crate::model::Errno(libc::ENOSPC).to_string();
        assert_eq!(open.finish(FAREWELL), Err(End::Failed(reason)));
        helper.join().unwrap().unwrap();
    }
}
