//! Programs of rules: started without waiting, watched by pidfd, read by non-blocking pipes, ended
//! by the one computed timeout of the loop (rules.md section 10).
//!
//! Must stay true: a child is finished when its exit status is known *and* its output is read to the
//! end, or to what is there when a grandchild keeps the pipe; every [`Children::spawn`] gives exactly
//! one [`Finished`], also when nothing could be started; no flood of output keeps the loop.

use super::source::{Source, Sources};
use crate::engine::JobId;
use crate::helper::dying::Dying;
use crate::model::command::split_command;
use crate::model::need::Exit;
use crate::model::{Errno, Event, Now};
use crate::sys::child::{self, Child, Ended, ExecStrings, Program, Spawn};
use crate::sys::clock::monotonic;
use crate::sys::process;
use bstr::{BString, ByteSlice};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of standard output that are kept (rules.md 10.4).
const MAX_OUTPUT: usize = 16383;

/// Bytes beyond [`MAX_OUTPUT`] that are read and thrown away, so that a program that says too much
/// still ends by itself. After that the pipe fills up and the deadline decides. So many are read for the log, too,
/// once the program has ended.
const MAX_DISCARDED: usize = 1024 * 1024;

/// Bytes read from one pipe in one go: what a pipe holds.
const MAX_READ: usize = 64 * 1024;

/// Bytes of one line of output in the log.
const MAX_LOG_LINE: usize = 1024;

/// A killed child that does not die (it hangs in the kernel) is given up after this time.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// Programs that were given up and still hang in the kernel, at most. Beyond it no program is started.
const MAX_LOST: usize = 64;

/// Why a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// PROGRAM or IMPORT{program}: the rules wait for status and output.
    Ask,
    /// An entry of the RUN list: only its end matters.
    Run,
}

/// The time an event may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub deadline: Now,
    /// At a third of it: a line in the log.
    pub warn_at: Now,
}

impl Budget {
    /// The budget of an event that started then.
    pub fn new(started: Now, event_timeout: Duration) -> Budget {
        Budget { deadline: started + event_timeout, warn_at: started + event_timeout / 3 }
    }
}

/// A child's life is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    pub job: JobId,
    pub purpose: Purpose,
    pub exit: Exit,
    /// The deadline was reached, before or after the start.
    pub timed_out: bool,
    /// It could not be started for want of descriptors or memory.
    pub lacked: bool,
}

/// A program to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub job: JobId,
    pub purpose: Purpose,
    /// Which event it is for: stands in front of every message.
    pub event: String,
    /// Its device: devpath.
    pub device: BString,
    /// Not split yet.
    pub command: BString,
    /// The whole environment ([`environment`]).
    pub env: ExecStrings,
    pub budget: Budget,
}

/// The environment of an event's programs (rules.md 10.2): its properties, then the global ones that it
/// does not have itself.
pub fn environment(event: &Event, globals: &BTreeMap<BString, BString>) -> ExecStrings {
    let mut env = ExecStrings::new();
    let mut push = |name: &[u8], value: &[u8]| env.push(&[name, b"=", value]);
    event.plain_properties().for_each(|(name, value)| push(name, value));
    event.derived_properties().iter().for_each(|(name, value)| push(name.as_bytes(), value));
    for (name, value) in globals.iter().filter(|(name, _)| event.property(name).is_none()) {
        push(name, value);
    }
    push(b"UDEV_DATABASE_VERSION", b"1");
    env
}

impl Wanted {
    fn not_started(self, timed_out: bool) -> Finished {
        let exit = Exit { success: false, output: BString::default(), truncated: false };
        Finished { job: self.job, purpose: self.purpose, exit, timed_out, lacked: false }
    }
}

struct Stream {
    pipe: OwnedFd,
    name: &'static str,
    /// The last piece without line end.
    line: BString,
}

struct Running {
    job: JobId,
    device: BString,
    purpose: Purpose,
    /// Event and command, for messages.
    name: String,
    child: Child,
    /// Kept standard output goes to `output`, other output line by line to the log.
    capture: bool,
    output: BString,
    truncated: bool,
    discarded: usize,
    streams: [Option<Stream>; 2],
    ended: Option<Ended>,
    budget: Budget,
    warned: bool,
    killed_at: Option<Now>,
}

/// All running children.
pub struct Children {
    null: File,
    /// Where programs with relative names are.
    lib_dir: PathBuf,
    timeout_signal: i32,
    /// Children at one time.
    max: usize,
    /// Those beyond, in order.
    waiting: VecDeque<Wanted>,
    running: HashMap<u64, Running>,
    next_id: u64,
    /// Pipes that were not read to WouldBlock.
    unread: Vec<(u64, usize)>,
    /// Given up.
    lost: Dying,
    finished: Vec<Finished>,
}

impl Children {
    /// No child. `null` is /dev/null, open both ways; `lib_dir` is where relative names are looked up.
    pub fn new(null: File, lib_dir: PathBuf, timeout_signal: i32) -> Children {
        Children {
            null,
            lib_dir,
            timeout_signal,
            max: usize::MAX,
            waiting: VecDeque::new(),
            running: HashMap::new(),
            next_id: 0,
            unread: Vec::new(),
            lost: Dying::default(),
            finished: Vec::new(),
        }
    }

    /// How many run at one time; the others wait for their turn. At least one does.
    pub fn set_max(&mut self, max: usize) {
        self.max = max.max(1);
    }

    /// See [`Children::set_max`].
    pub fn max(&self) -> usize {
        self.max
    }

    /// What follows the limit on time for one program.
    pub fn set_timeout_signal(&mut self, signal: i32) {
        self.timeout_signal = signal;
    }

    /// Running and waiting children.
    pub fn load(&self) -> (usize, usize) {
        (self.running.len(), self.waiting.len())
    }

    /// Whether none runs or waits.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.load() == (0, 0)
    }

    /// Whether [`Children::take_finished`] has something.
    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Whether [`Children::read_on`] has something to do.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Children that have finished since the last call.
    pub fn take_finished(&mut self) -> Vec<Finished> {
        std::mem::take(&mut self.finished)
    }

    /// Starts a program, at once or when there is room. Its end is told by
    /// [`Children::take_finished`].
    pub fn spawn(&mut self, sources: &Sources, wanted: Wanted, now: Now) {
        self.waiting.push_back(wanted);
        self.start_waiting(sources, now);
    }

    fn start_waiting(&mut self, sources: &Sources, now: Now) {
        while self.running.len() < self.max {
            let Some(wanted) = self.waiting.pop_front() else { return };
            if wanted.budget.deadline <= now {
                log::warn!("{}: not starting '{}', its time is used up", wanted.event, wanted.command);
                self.finished.push(wanted.not_started(true));
            } else if self.lost.has(wanted.device.as_ref()) || self.lost.count() >= MAX_LOST {
                let Wanted { event, command, .. } = &wanted;
                log::error!("{event}: not starting '{command}': an earlier program hangs in the kernel");
                self.finished.push(wanted.not_started(false));
            } else {
                self.start(sources, wanted, now);
            }
        }
    }

    fn start(&mut self, sources: &Sources, mut wanted: Wanted, now: Now) {
        let env = std::mem::take(&mut wanted.env);
        if let Err(error) = self.try_to_start(sources, &wanted, env, now) {
            log::warn!("{}: cannot execute '{}': {error}", wanted.event, wanted.command);
            // EAGAIN: no more processes are allowed.
            let errno = Errno::of(&error);
            let lacked = errno.is_lack() || errno == Errno(libc::EAGAIN);
            self.finished.push(Finished { lacked, ..wanted.not_started(false) });
        }
    }

    fn try_to_start(
        &mut self,
        sources: &Sources,
        wanted: &Wanted,
        envp: ExecStrings,
        now: Now,
    ) -> io::Result<()> {
        let Wanted { job, purpose, event, command, budget, .. } = wanted;
        let words = split_command(command);
        let program = Program::Path(self.path_of(words.first().map_or(&[], |w| w.as_slice()))?);
        let mut argv = ExecStrings::new();
        words.iter().for_each(|word| argv.push(&[word]));

        let capture = *purpose == Purpose::Ask;
        let verbose = log::log_enabled!(log::Level::Debug);
        let out = if capture || verbose { Some(process::pipe()?) } else { None };
        let err = if verbose { Some(process::pipe()?) } else { None };
        let child = {
            let null = self.null.as_fd();
            let stdout = out.as_ref().map_or(null, |(_, w)| w.as_fd());
            let stderr = err.as_ref().map_or(null, |(_, w)| w.as_fd());
            let stdio = [null, stdout, stderr];
            child::spawn(Spawn { program, argv, envp, stdio })?
        };
        let name = format!("{event}: '{command}'");
        log::debug!("{name} started as process {}", child.pid());

        let id = self.next_id;
        self.next_id += 1;
        let stream = |pipe: Option<(OwnedFd, OwnedFd)>, name| {
            pipe.map(|(pipe, _)| Stream { pipe, name, line: BString::default() })
        };
        let running = Running {
            job: *job,
            device: wanted.device.clone(),
            purpose: *purpose,
            name,
            child,
            capture,
            output: BString::default(),
            truncated: false,
            discarded: 0,
            streams: [stream(out, "stdout"), stream(err, "stderr")],
            ended: None,
            budget: *budget,
            warned: budget.warn_at <= now,
            killed_at: None,
        };
        if let Err(error) = running.watch(sources, id) {
            let _ = running.child.signal(libc::SIGKILL);
            self.lost.push(running.child);
            return Err(error);
        }
        self.running.insert(id, running);
        Ok(())
    }

    fn path_of(&self, word: &[u8]) -> io::Result<CString> {
        use std::os::unix::ffi::OsStrExt;
        let path = match word {
            b"" => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
            word if word[0] == b'/' => word.to_vec(),
            word => [self.lib_dir.as_os_str().as_bytes(), b"/", word].concat(),
        };
        CString::new(path).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
    }

    /// Standard output (0) or error output (1) of a child is readable.
    pub fn on_output(&mut self, id: u64, stream: usize) {
        let Some(child) = self.running.get_mut(&id) else { return };
        match child.read(stream) {
            Progress::Drained => {}
            Progress::More => self.unread.push((id, stream)),
            Progress::End => child.streams[stream] = None,
        }
        self.finish(id);
    }

    /// A child has ended: takes its status and what output there still is.
    pub fn on_exit(&mut self, id: u64) {
        let Some(child) = self.running.get_mut(&id) else { return };
        match child.child.try_wait() {
            Ok(None) => return,
            Ok(Some(ended)) => child.ended = Some(ended),
            Err(error) => {
                log::warn!("{}: cannot learn how it ended: {error}", child.name);
                child.ended = Some(Ended::Exited(1));
            }
        }
        for stream in 0..2 {
            match child.read(stream) {
                Progress::More => self.unread.push((id, stream)),
                // A grandchild may keep the pipe: what is there now is all.
                Progress::Drained | Progress::End => child.streams[stream] = None,
            }
        }
        self.finish(id);
    }

    /// Goes on with pipes that were left unread.
    pub fn read_on(&mut self) {
        for (id, stream) in std::mem::take(&mut self.unread) {
            let ended = self.running.get(&id).is_some_and(|c| c.ended.is_some());
            if ended { self.on_exit_read(id, stream) } else { self.on_output(id, stream) }
        }
    }

    fn on_exit_read(&mut self, id: u64, stream: usize) {
        let Some(child) = self.running.get_mut(&id) else { return };
        match child.read(stream) {
            Progress::More => self.unread.push((id, stream)),
            Progress::Drained | Progress::End => child.streams[stream] = None,
        }
        self.finish(id);
    }

    /// If status and output are complete, the child is over.
    fn finish(&mut self, id: u64) {
        let done = |c: &Running| c.ended.is_some() && c.streams.iter().all(Option::is_none);
        if !self.running.get(&id).is_some_and(done) {
            return;
        }
        if let Some(child) = self.running.remove(&id) {
            child.log_end();
            self.finished.push(child.into_finished());
        }
    }

    /// Warnings and deadlines that are due, and room for those that wait: once a turn, after all that
    /// was readable.
    pub fn on_time(&mut self, sources: &Sources, now: Now) {
        self.lost.reap(now);
        let mut given_up = Vec::new();
        for (&id, child) in &mut self.running {
            if !child.warned && child.budget.warn_at <= now {
                child.warned = true;
                log::warn!("{} (process {}) takes long", child.name, child.child.pid());
            }
            match child.killed_at {
                None if child.budget.deadline <= now => {
                    child.kill(self.timeout_signal);
                    child.killed_at = Some(now);
                }
                // Not every signal ends a program.
                Some(then) if then + KILL_PATIENCE <= now => given_up.push(id),
                _ => {}
            }
        }
        for id in given_up {
            self.give_up(id);
        }
        self.start_waiting(sources, now);
    }

    fn give_up(&mut self, id: u64) {
        let Some(mut child) = self.running.remove(&id) else { return };
        if child.ended.is_none() {
            log::error!("{} (process {}) does not end, going on without it", child.name, child.child.pid());
            child.kill(libc::SIGKILL);
        }
        self.finished.push(Finished {
            job: child.job,
            purpose: child.purpose,
            exit: Exit {
                success: false,
                output: std::mem::take(&mut child.output),
                truncated: child.truncated,
            },
            timed_out: true,
            lacked: false,
        });
        self.lost.push_for(child.device, child.child);
    }

    /// When [`Children::on_time`] has something to do.
    pub fn timeout(&self) -> Option<Now> {
        let next = |c: &Running| match (c.killed_at, c.warned) {
            (Some(then), _) => then + KILL_PATIENCE,
            (None, true) => c.budget.deadline,
            (None, false) => c.budget.warn_at.min(c.budget.deadline),
        };
        let waiting = self.waiting.front().filter(|_| self.running.len() < self.max).map(|_| Now::ZERO);
        self.running.values().map(next).chain(waiting).chain(self.lost.timeout()).min()
    }

    /// Waits for what the children do next and takes it in, where no loop does it for them. An interrupted
    /// wait is none.
    fn turn(&mut self, poll: &mut mio::Poll, events: &mut mio::Events, sources: &Sources) -> io::Result<()> {
        let left = self.timeout().map(|at| at.since(monotonic()));
        let patience = if self.has_unread() { Some(Duration::ZERO) } else { left };
        match poll.poll(events, patience) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in events.iter() {
            match Source::of(event.token()) {
                Some(Source::Child(id)) => self.on_exit(id),
                Some(Source::ChildOut(id)) => self.on_output(id, 0),
                Some(Source::ChildErr(id)) => self.on_output(id, 1),
                _ => {}
            }
        }
        self.read_on();
        self.on_time(sources, monotonic());
        Ok(())
    }
}

/// Runs one program and waits for its end: for the tool. Other children of these must not run.
pub fn run_to_end(children: &mut Children, wanted: Wanted) -> io::Result<Finished> {
    let mut poll = mio::Poll::new()?;
    let sources = Sources::new(&poll)?;
    let mut events = mio::Events::with_capacity(8);
    children.spawn(&sources, wanted, monotonic());
    loop {
        if let Some(finished) = children.take_finished().pop() {
            return Ok(finished);
        }
        children.turn(&mut poll, &mut events, &sources)?;
    }
}

/// How far a pipe was read.
enum Progress {
    /// To WouldBlock.
    Drained,
    /// The share of this turn; there may be more.
    More,
    /// To its end, or it need not be read any further.
    End,
}

impl Running {
    fn watch(&self, sources: &Sources, id: u64) -> io::Result<()> {
        sources.add(self.child.as_fd(), Source::Child(id))?;
        for (stream, source) in self.streams.iter().zip([Source::ChildOut(id), Source::ChildErr(id)]) {
            if let Some(stream) = stream {
                sources.add(stream.pipe.as_fd(), source)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, n: usize) -> Progress {
        let mut buffer = [0; 16 * 1024];
        let mut total = 0;
        while total < MAX_READ {
            let Some(stream) = &self.streams[n] else { return Progress::End };
            match process::read(stream.pipe.as_fd(), &mut buffer) {
                Ok(0) => {
                    self.end_line(n);
                    return Progress::End;
                }
                Ok(len) => {
                    total += len;
                    self.take(n, &buffer[..len]);
                    if self.discarded > MAX_DISCARDED {
                        // Neither read nor closed: it may wait until its deadline.
                        return Progress::Drained;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Progress::Drained,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    log::warn!("{}: cannot read its output: {error}", self.name);
                    return Progress::End;
                }
            }
        }
        Progress::More
    }

    fn take(&mut self, n: usize, bytes: &[u8]) {
        if n == 0 && self.capture {
            let room = MAX_OUTPUT - self.output.len();
            let kept = bytes.len().min(room);
            self.output.extend_from_slice(&bytes[..kept]);
            self.discarded += bytes.len() - kept;
            if kept < bytes.len() && !self.truncated {
                self.truncated = true;
                log::warn!("{} says more than {MAX_OUTPUT} bytes, the rest is dropped", self.name);
            }
            return;
        }
        if self.ended.is_some() {
            // A grandchild may fill the pipe for ever. What the program itself has said is less than this.
            self.discarded += bytes.len();
        }
        for piece in bytes.split_inclusive(|&b| b == b'\n') {
            let Some(stream) = &mut self.streams[n] else { return };
            let room = MAX_LOG_LINE.saturating_sub(stream.line.len());
            stream.line.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.end_line(n);
            }
        }
    }

    fn end_line(&mut self, n: usize) {
        if let Some(stream) = &mut self.streams[n] {
            let line = std::mem::take(&mut stream.line);
            let line = line.trim_end_with(|c| c.is_ascii_whitespace());
            if !line.is_empty() {
                log::debug!("{}({}) '{}'", self.name, stream.name, line.as_bstr());
            }
        }
    }

    /// The whole group; SIGCONT, so that a stopped program can follow any other signal than KILL.
    fn kill(&mut self, signal: i32) {
        log::error!("{} (process {}) is past its time, sending signal {signal}", self.name, self.child.pid());
        if self.ended.is_some() {
            // Only output is open: the group may be another's by now.
            self.streams = [None, None];
            return;
        }
        let mut sent = self.child.signal(signal);
        if signal != libc::SIGKILL {
            sent = sent.and_then(|()| self.child.signal(libc::SIGCONT));
        }
        if let Err(error) = sent {
            log::warn!("{}: cannot send it a signal: {error}", self.name);
        }
    }

    fn log_end(&self) {
        let level = match (self.ended, self.purpose) {
            (Some(Ended::Exited(0)), _) | (_, Purpose::Ask) => log::Level::Debug,
            _ => log::Level::Warn,
        };
        match self.ended {
            Some(Ended::Exited(0)) => log::debug!("{} succeeded", self.name),
            Some(Ended::Exited(status)) => {
                log::log!(level, "{} failed with exit status {status}", self.name)
            }
            Some(Ended::Killed(signal)) => {
                let name = crate::world::config::signal_name(signal).unwrap_or("?");
                log::log!(level, "{} was ended by signal {signal} ({name})", self.name);
            }
            Some(Ended::NotExecuted(errno)) => {
                log::warn!("{}: cannot be executed: {}", self.name, io::Error::from_raw_os_error(errno));
            }
            None => {}
        }
    }

    fn into_finished(self) -> Finished {
        let success = self.ended == Some(Ended::Exited(0));
        Finished {
            job: self.job,
            purpose: self.purpose,
            exit: Exit { success, output: self.output, truncated: self.truncated },
            timed_out: self.killed_at.is_some(),
            lacked: false,
        }
    }
}

#[cfg(test)]
mod tests;
