//! Where messages go: standard error, or, where that leads nowhere (an initramfs, `--daemon`), the kernel's
//! log.
//!
//! Must stay true: no line waits for the reader of the log. A line that would wait is dropped and counted, and the
//! count is said when there is room again; of a line that went in part the rest is kept and comes first. The kernel's
//! log takes what it is given at once, and no more than its own limit of lines in a time. Lines that strangers can
//! cause are bounded before they get here ([`super::quota`]).
//!
//! A file in memory is written as it is. One on a disk or in a network is written by a helper, since both may
//! answer late ([`may_wait`], [`redirect`], [`FileLog`]). From then on only that helper has it open: closing any
//! descriptor of such a file may wait too, and each child closes those that it was given. Once the helper has ended,
//! nobody can write the file any more: the kernel's log takes over, and says so.

use super::Roots;
use super::quota::Quota;
use crate::model::Now;
use crate::sys::clock::monotonic;
use crate::sys::output::Output;
use crate::sys::process::{self, Standard};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// Bytes of a line; a longer one is cut.
const MAX_LINE: usize = 64 * 1024;

/// Bytes of one record of the kernel's log, which refuses more than 1,024; a longer line is several.
const MAX_RECORD: usize = 900;

/// How long after a line was dropped the log is first looked at again, without a new line, and the longest time
/// between two looks: each is longer than the one before.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const LAST_LOOK: Duration = Duration::from_secs(60);

/// Our own open files.
const OWN_FDS: &str = "/proc/self/fd";

/// Device number of /dev/kmsg and of /dev/null (devices.txt of the kernel).
const KMSG: (u64, u64) = (1, 11);
const NULL: (u64, u64) = (1, 3);

/// What takes bytes, or says that it would have to wait.
trait Taker {
    fn take(&self, bytes: &[u8]) -> io::Result<usize>;
}

impl Taker for Output {
    fn take(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write(bytes)
    }
}

impl Taker for File {
    fn take(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self;
        file.write(bytes)
    }
}

/// The lines that were said, and those that had to be dropped.
#[derive(Debug)]
struct Sink<T> {
    to: T,
    /// Of a line that went in part.
    rest: Vec<u8>,
    dropped: u64,
    why: String,
    /// The last try that failed said that nobody will ever take a line.
    is_broken: bool,
    /// When to try again, and the time after that.
    again_at: Option<Now>,
    pause: Duration,
}

impl<T: Taker> Sink<T> {
    fn new(to: T) -> Sink<T> {
        Sink {
            to,
            rest: Vec::new(),
            dropped: 0,
            why: String::new(),
            is_broken: false,
            again_at: None,
            pause: FIRST_LOOK,
        }
    }

    /// Says a line, its end included, or counts it. `render` makes a line of a text, for the count.
    fn say(&mut self, line: &[u8], now: Now, render: impl Fn(&str) -> Vec<u8>) {
        let said = self.catch_up(now, render) && self.put(line);
        if !said {
            self.dropped += 1;
        }
        if !said || !self.rest.is_empty() {
            self.again_at.get_or_insert(now + self.pause);
        }
    }

    /// Says what is left of earlier lines, and how many were dropped; whether there is room for more.
    fn catch_up(&mut self, now: Now, render: impl Fn(&str) -> Vec<u8>) -> bool {
        if self.rest.is_empty() && self.dropped == 0 {
            return true;
        }
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() && !self.put(&rest) {
            self.rest = rest;
        }
        if self.rest.is_empty() && self.dropped > 0 {
            let lines = if self.dropped == 1 { "line was" } else { "lines were" };
            let count = render(&format!("{} {lines} dropped because {}", self.dropped, self.why));
            if self.put(&count) {
                self.dropped = 0;
            }
        }
        let is_through = self.rest.is_empty() && self.dropped == 0;
        (self.again_at, self.pause) = match is_through {
            true => (None, FIRST_LOOK),
            false if self.again_at.is_none_or(|at| at <= now) => {
                (Some(now + self.pause), (self.pause * 2).min(LAST_LOOK))
            }
            false => (self.again_at, self.pause),
        };
        is_through
    }

    /// Writes as much as goes, and keeps the rest. False: nothing of it went.
    fn put(&mut self, bytes: &[u8]) -> bool {
        let mut written = 0;
        while written < bytes.len() {
            match self.to.take(&bytes[written..]) {
                Ok(0) => break,
                Ok(n) => written += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    use io::ErrorKind::{BrokenPipe, ConnectionReset};
                    self.is_broken = matches!(error.kind(), BrokenPipe | ConnectionReset);
                    self.why = match error.kind() {
                        io::ErrorKind::WouldBlock => "nobody reads the log".to_owned(),
                        _ => format!("the log cannot be written: {error}"),
                    };
                    break;
                }
            }
        }
        if written > 0 {
            self.rest = bytes[written..].to_vec();
        }
        written > 0 || bytes.is_empty()
    }
}

/// A log in a file that lines are taken to, for the helper that does so.
#[derive(Debug)]
pub struct FileLog(Sink<File>);

impl FileLog {
    /// In this file, at its place.
    pub fn new(file: File) -> FileLog {
        FileLog(Sink::new(file))
    }

    /// Writes a line, its end included.
    pub fn say(&mut self, line: &[u8], now: Now) {
        self.0.say(line, now, |text| render(false, log::Level::Warn, text));
    }
}

/// The log of the daemon.
struct DaemonLog {
    /// None: it leads nowhere.
    stderr: Option<Sink<Output>>,
    /// It leads to a helper, which has the file.
    has_writer: bool,
    kernel_log: Option<File>,
    /// The reader of standard error understands `<4>` (sd-daemon(3)).
    is_numbered: bool,
    quota: Quota,
}

impl DaemonLog {
    fn open(roots: &Roots) -> DaemonLog {
        let stderr = Output::copy_of(io::stderr().as_fd(), &roots.proc.join("self/fd")).ok();
        let stderr = stderr.filter(|_| !leads_nowhere());
        // The service manager says which socket leads to its journal, since a program may be given another.
        let journal = std::env::var("JOURNAL_STREAM").ok();
        let identity = stderr.as_ref().and_then(|output| output.identity().ok());
        let is_numbered =
            identity.is_some_and(|(dev, ino)| journal.as_deref() == Some(&format!("{dev}:{ino}")));
        let stderr = stderr.map(Sink::new);
        let kernel_log = open_kernel_log(roots);
        DaemonLog { stderr, has_writer: false, kernel_log, is_numbered, quota: Quota::default() }
    }

    fn log(&mut self, record: &log::Record) {
        if self.quota.admits(record.target(), monotonic()) {
            self.say(record.level(), &record.args().to_string());
        }
    }

    fn say_left_out(&mut self, left_out: Vec<String>) {
        left_out.iter().for_each(|text| self.say(log::Level::Warn, text));
    }

    fn say(&mut self, level: log::Level, text: &str) {
        let is_numbered = self.is_numbered;
        if let Some(sink) = &mut self.stderr {
            let render = |level, text: &str| render(is_numbered, level, text);
            sink.say(&render(level, text), monotonic(), |text| render(log::Level::Warn, text));
            self.leave_dead_writer();
        }
        // A line that the writer did not take is the kernel's too.
        if self.stderr.is_none() {
            self.say_to_kernel(level, text);
        }
    }

    fn say_to_kernel(&mut self, level: log::Level, text: &str) {
        let Some(file) = &mut self.kernel_log else { return };
        for record in kernel_records(level, text) {
            // Nobody is left to be told.
            let _ = file.write(&record);
        }
    }

    /// Goes over to the kernel's log, if there is one, when the helper that has the file has ended.
    fn leave_dead_writer(&mut self) {
        let is_broken = self.stderr.as_ref().is_some_and(|sink| sink.is_broken);
        if self.has_writer && is_broken && self.kernel_log.is_some() {
            self.stderr = None;
            let text = "The helper that writes the log to its file has ended, its last lines may be lost: \
                        the log goes on here";
            self.say_to_kernel(log::Level::Error, text);
        }
    }

    fn catch_up(&mut self, now: Now) {
        let is_numbered = self.is_numbered;
        if let Some(sink) = &mut self.stderr {
            sink.catch_up(now, |text| render(is_numbered, log::Level::Warn, text));
            self.leave_dead_writer();
        }
    }
}

/// Standard error is /dev/null, or not open.
fn leads_nowhere() -> bool {
    let metadata = io::stderr().as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    metadata.is_ok_and(|m| is_device(&m, NULL))
}

fn is_device(metadata: &std::fs::Metadata, (major, minor): (u64, u64)) -> bool {
    let rdev = metadata.rdev();
    metadata.file_type().is_char_device() && (rdev >> 8 & 0xfff, rdev & 0xff) == (major, minor)
}

/// The kernel's log, and nothing else that stands in its place.
fn open_kernel_log(roots: &Roots) -> Option<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().write(true).custom_flags(flags).open(roots.dev.join("kmsg")).ok()?;
    file.metadata().is_ok_and(|m| is_device(&m, KMSG)).then_some(file)
}

/// Number of a level in syslog(3).
fn number(level: log::Level) -> u8 {
    match level {
        log::Level::Error => 3,
        log::Level::Warn => 4,
        log::Level::Info => 6,
        log::Level::Debug | log::Level::Trace => 7,
    }
}

fn render(is_numbered: bool, level: log::Level, text: &str) -> Vec<u8> {
    let mut line = match is_numbered {
        true => format!("<{}>mudevd: {text}", number(level)),
        false => format!("mudevd: {text}"),
    }
    .into_bytes();
    line.truncate(MAX_LINE);
    line.push(b'\n');
    line
}

/// One record for each line, and for each piece of a long one.
fn kernel_records(level: log::Level, text: &str) -> impl Iterator<Item = Vec<u8>> {
    let pieces = text.lines().flat_map(|line| line.as_bytes().chunks(MAX_RECORD));
    pieces.map(move |piece| [format!("<{}>mudevd: ", number(level)).as_bytes(), piece, b"\n"].concat())
}

/// The logger of this process.
enum Logger {
    Daemon(Box<Mutex<DaemonLog>>),
    /// Plain lines; its user waits for them.
    Tool,
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata) -> bool {
        true
    }

    fn log(&self, record: &log::Record) {
        match self {
            Logger::Tool => complain(&record.args().to_string()),
            Logger::Daemon(_) => with_daemon(|log| log.log(record)).unwrap_or_default(),
        }
    }

    /// Says what was left out so far.
    fn flush(&self) {
        with_daemon(|log| {
            let left_out = log.quota.take_all();
            log.say_left_out(left_out);
        });
    }
}

/// A lock that is taken is not waited for: a panic within the log would wait for ever.
fn with_daemon<T>(act: impl FnOnce(&mut DaemonLog) -> T) -> Option<T> {
    let Some(Logger::Daemon(log)) = LOGGER.get() else { return None };
    log.try_lock().ok().map(|mut log: MutexGuard<DaemonLog>| act(&mut log))
}

fn start(logger: impl FnOnce() -> Logger) {
    // Only tests have a logger already.
    let _ = log::set_logger(LOGGER.get_or_init(logger));
}

/// Starts the log of the daemon, at all levels; [`log::set_max_level`] chooses. A panic is a line of it too.
pub fn start_daemon(roots: &Roots) {
    start(|| Logger::Daemon(Box::new(Mutex::new(DaemonLog::open(roots)))));
    std::panic::set_hook(Box::new(|panic| {
        log::error!("{panic}");
        let trace = std::backtrace::Backtrace::capture();
        if trace.status() == std::backtrace::BacktraceStatus::Captured {
            log::error!("{trace}");
        }
    }));
}

/// Starts the log of the tool: plain lines.
pub fn start_tool(level: log::LevelFilter) {
    start(|| Logger::Tool);
    log::set_max_level(level);
}

/// Standard error leads nowhere from now on, and what it led to is let go.
pub fn detach() {
    with_daemon(|log| log.stderr = None);
}

/// Lines go to this helper from now on, and so does standard error: what it led to is let go, here and for the
/// children to come. Waits for the file, if it makes its last user wait.
pub fn redirect(to: Output) -> io::Result<()> {
    process::redirect(to.descriptor(), Standard::Error)?;
    with_daemon(|log| {
        log.stderr = Some(Sink::new(to));
        log.has_writer = true;
    });
    Ok(())
}

/// Whether the log goes to a file that is not in memory.
pub fn may_wait() -> bool {
    with_daemon(|log| log.stderr.as_ref().is_some_and(|sink| sink.to.may_wait())).unwrap_or(false)
}

/// When [`on_time`] is to be called: something was dropped or left out that was not said.
pub fn timeout() -> Option<Now> {
    let timeouts = |log: &mut DaemonLog| {
        let dropped = log.stderr.as_ref().and_then(|sink| sink.again_at);
        dropped.into_iter().chain(log.quota.timeout()).min()
    };
    with_daemon(timeouts).flatten()
}

/// Says how many lines were dropped, if there is room again, and how many were left out, if their time is over.
pub fn on_time(now: Now) {
    if timeout().is_none_or(|at| at > now) {
        return;
    }
    with_daemon(|log| {
        if log.stderr.as_ref().is_some_and(|sink| sink.again_at.is_some_and(|at| at <= now)) {
            log.catch_up(now);
        }
        let left_out = log.quota.take_due(now);
        log.say_left_out(left_out);
    });
}

/// A line on standard error, before there is a log. If it cannot be written, nothing more can be done.
pub fn complain(text: &str) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// The same for a helper, which must not wait either: a part that does not fit at once is lost.
pub fn complain_at_once(text: &str) {
    if let Ok(output) = Output::copy_of(io::stderr().as_fd(), Path::new(OWN_FDS)) {
        let _ = output.write(format!("{text}\n").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// Takes as many bytes as there is room for.
    #[derive(Default)]
    struct Reader {
        room: Cell<usize>,
        fails: Cell<bool>,
        got: RefCell<Vec<u8>>,
    }

    impl Taker for &Reader {
        fn take(&self, bytes: &[u8]) -> io::Result<usize> {
            if self.fails.get() {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            let n = bytes.len().min(self.room.get());
            if n == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.room.set(self.room.get() - n);
            self.got.borrow_mut().extend_from_slice(&bytes[..n]);
            Ok(n)
        }
    }

    fn say(sink: &mut Sink<&Reader>, text: &str, now: u64) {
        let plain = |text: &str| format!("{text}\n").into_bytes();
        sink.say(&plain(text), Now::from_secs(now), plain);
    }

    #[test]
    fn what_would_wait_is_counted_and_the_count_comes_before_the_next_line() {
        let reader = Reader::default();
        let mut sink = Sink::new(&reader);
        reader.room.set(9);
        say(&mut sink, "first", 0);
        // A part of this one goes, so its rest comes first when there is room.
        say(&mut sink, "second", 0);
        for n in 0..2000 {
            say(&mut sink, "lost", n / 1000);
        }
        assert_eq!(sink.rest.len(), 4, "what is kept is bounded");
        assert_eq!(sink.again_at, Some(Now::from_secs(2)), "it is looked again");
        reader.room.set(usize::MAX);
        say(&mut sink, "last", 9);
        let got = String::from_utf8(reader.got.take()).unwrap();
        assert_eq!(got, "first\nsecond\n2000 lines were dropped because nobody reads the log\nlast\n");
        assert_eq!((sink.again_at, sink.pause), (None, FIRST_LOOK));
    }

    #[test]
    fn the_count_is_said_without_a_new_line_too() {
        let reader = Reader::default();
        let mut sink = Sink::new(&reader);
        say(&mut sink, "lost", 0);
        let look = |n| Now::ZERO + FIRST_LOOK * n;
        assert_eq!(sink.again_at, Some(look(1)));
        let plain = |text: &str| format!("{text}\n").into_bytes();
        assert!(!sink.catch_up(look(1), plain));
        assert_eq!((sink.again_at, sink.pause), (Some(look(2)), FIRST_LOOK * 2), "less and less often");
        reader.room.set(1000);
        assert!(sink.catch_up(look(3), plain));
        let got = String::from_utf8(reader.got.take()).unwrap();
        assert_eq!(got, "1 line was dropped because nobody reads the log\n");
        assert_eq!(sink.again_at, None);
    }

    #[test]
    fn a_log_that_cannot_be_written_is_no_worse() {
        let reader = Reader::default();
        let mut sink = Sink::new(&reader);
        reader.fails.set(true);
        say(&mut sink, "lost", 0);
        reader.fails.set(false);
        reader.room.set(1000);
        say(&mut sink, "there", 0);
        let got = String::from_utf8(reader.got.take()).unwrap();
        let full = io::Error::from_raw_os_error(libc::ENOSPC);
        assert_eq!(got, format!("1 line was dropped because the log cannot be written: {full}\nthere\n"));
    }

    #[test]
    fn after_the_death_of_the_helper_that_writes_it_the_log_goes_on_in_the_kernels() {
        let path = std::env::temp_dir().join(format!("mudev-kernel-log-{}", std::process::id()));
        let (ours, theirs) = crate::sys::unix::seqpacket_pair().unwrap();
        let mut log = DaemonLog {
            stderr: Some(Sink::new(Output::new(ours, Path::new(OWN_FDS)).unwrap())),
            has_writer: true,
            kernel_log: Some(File::create(&path).unwrap()),
            is_numbered: false,
            quota: Quota::default(),
        };
        log.say(log::Level::Warn, "to the file");
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        // A child that another test is starting may have a copy of it for a moment: closing it is not enough.
        std::os::unix::net::UnixStream::from(theirs).shutdown(std::net::Shutdown::Both).unwrap();
        log.say(log::Level::Warn, "one");
        log.say(log::Level::Info, "two");
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("<3>mudevd: The helper that writes the log to its file has ended"),
            "{text}"
        );
        assert_eq!(lines[1..], ["<4>mudevd: one", "<6>mudevd: two"], "said once, and no line is missing");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn lines_are_bounded_and_the_kernel_gets_a_record_for_each_piece() {
        let long = "x".repeat(2 * MAX_LINE);
        let line = render(true, log::Level::Warn, &long);
        assert!(line.len() == MAX_LINE + 1 && line.starts_with(b"<4>mudevd: x") && line.ends_with(b"x\n"));
        let text = format!("one\n{}", &long[..MAX_RECORD + 1]);
        let records: Vec<Vec<u8>> = kernel_records(log::Level::Error, &text).collect();
        assert_eq!(records.len(), 3);
        assert_eq!(records[0], b"<3>mudevd: one\n");
        assert!(records.iter().all(|r| r.len() < 1024 && r.starts_with(b"<3>mudevd: ")));
    }
}
