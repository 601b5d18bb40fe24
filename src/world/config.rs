//! Settings of the daemon, from five sources; a later one overrides an earlier one (rules.md 12.6):
//!
//! 1. `udev.conf` (the first found in `/etc`, `/run`, `/usr/local/lib`, `/usr/lib`, each `/udev`), then
//!    the drop-ins `udev.conf.d/*.conf` of all four folders by name, where a name hides the same name
//!    in later folders;
//! 2. the environment: UDEV_LOG, SYSTEMD_LOG_LEVEL;
//! 3. the command line;
//! 4. the kernel command line: `udev.*`, and in the initrd `rd.udev.*`;
//! 5. what clients set at run time, which is not ours.
//!
//! Reading is the last function of this file; everything else is pure. A bad value is one message
//! and otherwise as if it were not there.

use super::{Roots, files};
use crate::model::ResolveNames;
use crate::model::command::kernel_words;
use bstr::{BStr, BString, ByteSlice};
use log::LevelFilter;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// Largest settings file that is read.
const FILE_MAX: u64 = 1 << 20;
/// Longest time span: what is longer (`infinity`) means this, so that adding it to a time is safe.
const SPAN_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// What the daemon goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub log_level: LevelFilter,
    /// None: by the size of the machine, see [`default_children_max`].
    pub children_max: Option<usize>,
    /// Waited before the RUN list.
    pub exec_delay: Duration,
    pub event_timeout: Duration,
    /// Sent to a program that is past its time.
    pub timeout_signal: i32,
    pub resolve_names: ResolveNames,
    pub blockdev_read_only: bool,
    /// Trace logging; log_level is at least debug then.
    pub trace: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            log_level: LevelFilter::Info,
            children_max: None,
            exec_delay: Duration::ZERO,
            event_timeout: Duration::from_secs(180),
            timeout_signal: libc::SIGKILL,
            resolve_names: ResolveNames::Early,
            blockdev_read_only: false,
            trace: false,
        }
    }
}

/// The settings of one source; None where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    pub log_level: Option<LevelFilter>,
    /// 0: by the size of the machine.
    pub children_max: Option<usize>,
    pub exec_delay: Option<Duration>,
    pub event_timeout: Option<Duration>,
    pub timeout_signal: Option<i32>,
    pub resolve_names: Option<ResolveNames>,
    pub blockdev_read_only: Option<bool>,
    pub trace: Option<bool>,
}

impl Overrides {
    /// Sets one by its name; false if the value is none for it.
    fn set(&mut self, name: Name, value: &[u8]) -> bool {
        fn put<T>(place: &mut Option<T>, value: Option<T>) -> bool {
            let good = value.is_some();
            *place = value.or(place.take());
            good
        }
        match name {
            Name::LogLevel => put(&mut self.log_level, crate::model::parse_log_level(value)),
            Name::ChildrenMax => put(&mut self.children_max, parse_number(value)),
            Name::ExecDelay => put(&mut self.exec_delay, parse_time_span(value)),
            Name::EventTimeout => put(&mut self.event_timeout, parse_time_span(value)),
            Name::TimeoutSignal => put(&mut self.timeout_signal, parse_signal(value)),
            Name::ResolveNames => put(&mut self.resolve_names, ResolveNames::parse(value)),
            Name::BlockdevReadOnly => put(&mut self.blockdev_read_only, parse_bool(value)),
            Name::Trace => put(&mut self.trace, parse_bool(value)),
        }
    }

    /// Replaces those settings that `later` has too.
    fn override_by(&mut self, later: &Overrides) {
        self.log_level = later.log_level.or(self.log_level);
        self.children_max = later.children_max.or(self.children_max);
        self.exec_delay = later.exec_delay.or(self.exec_delay);
        self.event_timeout = later.event_timeout.or(self.event_timeout);
        self.timeout_signal = later.timeout_signal.or(self.timeout_signal);
        self.resolve_names = later.resolve_names.or(self.resolve_names);
        self.blockdev_read_only = later.blockdev_read_only.or(self.blockdev_read_only);
        self.trace = later.trace.or(self.trace);
    }
}

/// The settings there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    LogLevel,
    ChildrenMax,
    ExecDelay,
    EventTimeout,
    TimeoutSignal,
    ResolveNames,
    BlockdevReadOnly,
    Trace,
}

impl Name {
    /// A key of udev.conf.
    fn of_file(key: &[u8]) -> Option<Name> {
        Some(match key {
            b"udev_log" => Name::LogLevel,
            b"children_max" => Name::ChildrenMax,
            b"exec_delay" => Name::ExecDelay,
            b"event_timeout" => Name::EventTimeout,
            b"timeout_signal" => Name::TimeoutSignal,
            b"resolve_names" => Name::ResolveNames,
            _ => return None,
        })
    }

    /// A key of the kernel command line, without `udev.`, `-` turned into `_`.
    fn of_kernel(key: &[u8]) -> Option<Name> {
        Some(match key {
            b"log_level" | b"log_priority" => Name::LogLevel,
            b"children_max" => Name::ChildrenMax,
            b"exec_delay" => Name::ExecDelay,
            b"event_timeout" => Name::EventTimeout,
            b"timeout_signal" => Name::TimeoutSignal,
            b"blockdev_read_only" => Name::BlockdevReadOnly,
            b"trace" => Name::Trace,
            _ => return None,
        })
    }

    /// Without a value it means yes.
    fn is_switch(self) -> bool {
        matches!(self, Name::BlockdevReadOnly | Name::Trace)
    }
}

/// What all sources say, plainly.
#[derive(Debug, Default)]
pub struct Sources<'a> {
    /// udev.conf and drop-ins, in the order of reading: (path for messages, content).
    pub files: Vec<(PathBuf, BString)>,
    pub udev_log: Option<BString>,
    pub systemd_log_level: Option<BString>,
    pub arguments: Overrides,
    pub command_line: &'a [u8],
    pub in_initrd: bool,
}

/// The settings, and a message for each value that is none.
pub fn merge(sources: &Sources) -> (Settings, Vec<String>) {
    let mut messages = Vec::new();
    let mut all = Overrides::default();
    for (path, content) in &sources.files {
        all.override_by(&parse_file(content, &path.display().to_string(), &mut messages));
    }
    for (name, value) in [("UDEV_LOG", &sources.udev_log), ("SYSTEMD_LOG_LEVEL", &sources.systemd_log_level)]
    {
        let Some(value) = value else { continue };
        if !all.set(Name::LogLevel, value) {
            messages.push(format!("environment: {name}={value} ignored, it is no log level"));
        }
    }
    all.override_by(&sources.arguments);
    all.override_by(&parse_kernel_command_line(sources.command_line, sources.in_initrd, &mut messages));
    (settle(&all, &mut messages), messages)
}

/// Fills in the defaults and mends what does not go together.
fn settle(all: &Overrides, messages: &mut Vec<String>) -> Settings {
    let default = Settings::default();
    let mut settings = Settings {
        log_level: all.log_level.unwrap_or(default.log_level),
        children_max: all.children_max.filter(|&n| n > 0),
        exec_delay: all.exec_delay.unwrap_or(default.exec_delay),
        event_timeout: all.event_timeout.unwrap_or(default.event_timeout),
        timeout_signal: all.timeout_signal.unwrap_or(default.timeout_signal),
        resolve_names: all.resolve_names.unwrap_or(default.resolve_names),
        blockdev_read_only: all.blockdev_read_only.unwrap_or(default.blockdev_read_only),
        trace: all.trace.unwrap_or(default.trace),
    };
    if settings.event_timeout.is_zero() {
        messages.push(format!("event_timeout=0 ignored, {} s it is", default.event_timeout.as_secs()));
        settings.event_timeout = default.event_timeout;
    }
    if settings.exec_delay >= settings.event_timeout {
        messages.push("exec_delay ignored, it is not shorter than event_timeout".into());
        settings.exec_delay = Duration::ZERO;
    }
    if settings.trace {
        settings.log_level = settings.log_level.max(LevelFilter::Debug);
    }
    settings
}

/// Number of programs at once if nobody says: two per CPU and 16 more, but not more than
/// memory has room for at 128 MiB each (10 at least), and at most 2048.
pub fn default_children_max(cpus: usize, memory: u64) -> usize {
    let by_memory = usize::try_from(memory / (128 << 20)).unwrap_or(usize::MAX).max(10);
    cpus.saturating_mul(2).saturating_add(16).min(by_memory).min(2048)
}

/// What a settings file says: `key=value` lines as a shell would read them.
fn parse_file(content: &[u8], path: &str, messages: &mut Vec<String>) -> Overrides {
    let mut overrides = Overrides::default();
    for (index, line) in content.lines().enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || matches!(line[0], b'#' | b';') {
            continue;
        }
        let mut complain = |what: &str| messages.push(format!("{path}:{}: {what}", index + 1));
        let Some((key, value)) = line.split_once_str("=") else {
            complain("a line without '=' ignored");
            continue;
        };
        let (key, value) = (key.trim_ascii().as_bstr(), unquote(value.trim_ascii()));
        match Name::of_file(key) {
            None => complain(&format!("unknown setting {key} ignored")),
            Some(_) if value.is_empty() => {}
            Some(name) if overrides.set(name, &value) => {}
            Some(_) => complain(&format!("{key}={value} ignored, the value is none for it")),
        }
    }
    overrides
}

/// A value as a shell would read it: quotes are removed, a backslash keeps the next byte, a `#` after
/// a blank begins a comment.
fn unquote(text: &[u8]) -> BString {
    let mut value = BString::default();
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (Some(open), _) if byte == open => quote = None,
            (None, b'\'' | b'"') => quote = Some(byte),
            (None | Some(b'"'), b'\\') => value.extend(bytes.next()),
            (None, b'#') if value.last().is_none_or(u8::is_ascii_whitespace) => break,
            _ => value.push(byte),
        }
    }
    match quote {
        None => value.trim_ascii_end().into(),
        Some(_) => value,
    }
}

/// What the kernel command line says: `udev.key=value`, in the initrd also with `rd.` in front.
fn parse_kernel_command_line(text: &[u8], in_initrd: bool, messages: &mut Vec<String>) -> Overrides {
    let mut overrides = Overrides::default();
    for word in kernel_words(text) {
        let stripped = match word.strip_prefix(b"rd.") {
            Some(_) if !in_initrd => continue,
            Some(rest) => rest,
            None => &word,
        };
        let Some(option) = stripped.strip_prefix(b"udev.") else { continue };
        let (key, value) = match option.split_once_str("=") {
            Some((key, value)) => (key, Some(value.as_bstr())),
            None => (option, None),
        };
        let name = Name::of_kernel(&key.replace("-", "_"));
        let value = value.or(name.filter(|name| name.is_switch()).map(|_| BStr::new("1")));
        let problem = match (name, value) {
            (None, _) => "there is no such setting",
            (Some(_), None) => "it has no value",
            (Some(name), Some(value)) if overrides.set(name, value) => continue,
            _ => "the value is none for it",
        };
        messages.push(format!("kernel command line: {word} ignored, {problem}"));
    }
    overrides
}

fn parse_number(text: &[u8]) -> Option<usize> {
    crate::model::device::parse_u32(text).and_then(|n| usize::try_from(n).ok())
}

/// A yes or no, as people write it.
pub fn parse_bool(text: &[u8]) -> Option<bool> {
    match text.to_ascii_lowercase().as_slice() {
        b"1" | b"yes" | b"y" | b"true" | b"t" | b"on" => Some(true),
        b"0" | b"no" | b"n" | b"false" | b"f" | b"off" => Some(false),
        _ => None,
    }
}

/// A signal by name, with or without `SIG`, or number; `RTMIN+n` and `RTMAX-n` too.
pub fn parse_signal(text: &[u8]) -> Option<i32> {
    let text = text.to_str().ok()?.trim();
    if let Ok(number) = text.parse::<i32>() {
        return (1..=libc::SIGRTMAX()).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Some(&(_, number)) = SIGNALS.iter().find(|(known, _)| *known == name) {
        return Some(number);
    }
    let offset = |rest: &str, sign| match rest {
        "" => Some(0),
        _ => rest.strip_prefix(sign).and_then(|n| n.parse::<u8>().ok()).map(i32::from),
    };
    let number = match name.strip_prefix("RTMIN") {
        Some(rest) => libc::SIGRTMIN() + offset(rest, '+')?,
        None => libc::SIGRTMAX() - offset(name.strip_prefix("RTMAX")?, '-')?,
    };
    (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&number).then_some(number)
}

const SIGNALS: [(&str, i32); 30] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ILL", libc::SIGILL),
    ("TRAP", libc::SIGTRAP),
    ("ABRT", libc::SIGABRT),
    ("BUS", libc::SIGBUS),
    ("FPE", libc::SIGFPE),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("SEGV", libc::SIGSEGV),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("CHLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("WINCH", libc::SIGWINCH),
    ("IO", libc::SIGIO),
    ("PWR", libc::SIGPWR),
    ("SYS", libc::SIGSYS),
];

/// Name of a signal without `SIG`, as UDEV_WORKER_SIGNAL_NAME has it.
pub fn signal_name(number: i32) -> Option<&'static str> {
    SIGNALS.iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}

/// A time span as systemd.time(7) writes it: `90`, `1.5s`, `2min 30 s`, `infinity`; a bare number is
/// seconds. A longer time than a hundred years counts as a hundred years.
pub fn parse_time_span(text: &[u8]) -> Option<Duration> {
    let mut rest = text.to_str().ok()?.trim();
    if rest == "infinity" {
        return Some(SPAN_MAX);
    }
    if rest.is_empty() {
        return None;
    }
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let span = span_of(number, unit_micros(unit)?)?;
        sum = sum.saturating_add(span).min(SPAN_MAX);
        rest = after.trim_start();
    }
    Some(sum)
}

/// Microseconds in a unit.
fn unit_micros(unit: &str) -> Option<u64> {
    const SECOND: u64 = 1_000_000;
    const DAY: u64 = 86_400 * SECOND;
    Some(match unit {
        "us" | "usec" | "µs" | "μs" => 1,
        "ms" | "msec" => 1000,
        "" | "s" | "sec" | "second" | "seconds" => SECOND,
        "m" | "min" | "minute" | "minutes" => 60 * SECOND,
        "h" | "hr" | "hour" | "hours" => 3600 * SECOND,
        "d" | "day" | "days" => DAY,
        "w" | "week" | "weeks" => 7 * DAY,
        // 30.44 and 365.25 days.
        "M" | "month" | "months" => 2_629_800 * SECOND,
        "y" | "year" | "years" => 31_557_600 * SECOND,
        _ => return None,
    })
}

/// `number` (digits, at most one point) units; digits behind the point count to the microsecond.
fn span_of(number: &str, unit: u64) -> Option<Duration> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && part.is_empty()) || !digits(whole) || !digits(part) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().unwrap_or(u64::MAX) };
    let mut micros = whole.saturating_mul(unit);
    let mut scale = unit;
    for digit in part.bytes() {
        scale /= 10;
        micros = micros.saturating_add(u64::from(digit - b'0') * scale);
    }
    Some(Duration::from_micros(micros).min(SPAN_MAX))
}

/// Whether the running system is an initrd: it has `/etc/initrd-release`.
pub fn in_initrd(roots: &Roots) -> bool {
    roots.etc.join("initrd-release").exists()
}

/// The four folders of settings and rules, the strongest first.
pub fn folders(roots: &Roots) -> [PathBuf; 4] {
    [&roots.etc, &roots.run, &roots.local_lib, &roots.lib].map(|root| root.join("udev"))
}

/// What files say about settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// udev.conf and its drop-ins in the order of their weight, the weakest first: (path, content).
    pub files: Vec<(PathBuf, BString)>,
    /// One for each file that could not be read.
    pub messages: Vec<String>,
    pub in_initrd: bool,
}

impl Files {
    /// Reads them; may wait.
    pub fn read(roots: &Roots) -> Files {
        let mut messages = Vec::new();
        let files = read_files(roots, &mut messages);
        Files { files, messages, in_initrd: in_initrd(roots) }
    }
}

fn read_files(roots: &Roots, messages: &mut Vec<String>) -> Vec<(PathBuf, BString)> {
    let folders = folders(roots);
    let main = folders.iter().map(|folder| folder.join("udev.conf")).find(|path| path.exists());
    let mut drop_ins = BTreeMap::new();
    for folder in &folders {
        let folder = folder.join("udev.conf.d");
        for name in super::sysfs::list(&folder).into_iter().filter(|name| name.ends_with(b".conf")) {
            let path = folder.join(std::ffi::OsStr::from_bytes(&name));
            drop_ins.entry(name).or_insert(path);
        }
    }
    let mut contents = Vec::new();
    for path in main.into_iter().chain(drop_ins.into_values()) {
        match files::read_bounded(&path, FILE_MAX) {
            Ok(content) => contents.push((path, content)),
            Err(error) => messages.push(format!("cannot read {}: {error}", path.display())),
        }
    }
    contents
}

/// Merges all sources. `environment` looks up one variable; `arguments` is what our own command line says, and
/// `command_line` the kernel's.
pub fn load(
    files: Files,
    environment: impl Fn(&str) -> Option<OsString>,
    arguments: &Overrides,
    command_line: &[u8],
) -> (Settings, Vec<String>) {
    let variable = |name: &str| environment(name).map(|value| BString::from(value.into_vec()));
    let Files { files, mut messages, in_initrd } = files;
    let sources = Sources {
        files,
        udev_log: variable("UDEV_LOG"),
        systemd_log_level: variable("SYSTEMD_LOG_LEVEL"),
        arguments: arguments.clone(),
        command_line,
        in_initrd,
    };
    let (settings, more) = merge(&sources);
    messages.extend(more);
    (settings, messages)
}

#[cfg(test)]
mod tests;
