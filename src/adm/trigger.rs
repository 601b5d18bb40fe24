//! `trigger`: has the kernel send uevents of devices again (interop.md 5.3 and section 7).

use super::filter::{self, Match, enumerate, filter_help};
use super::monitor::{Receiver, Speaker};
use super::view::Devices;
use super::{Out, Outcome, Stop, action_value, ignored_in_chroot, other_option, text_value};
use crate::builtin::host::compare_versions;
use crate::model::command_line::{LongNames, next_arg};
use crate::model::control::Message;
use crate::model::{Action, SeqNum, Uevent};
use crate::sys::{process, random};
use crate::world::Roots;
use crate::world::config::parse_time_span;
use crate::world::enumerate::{Filter, Kind};
use crate::world::sysfs::syspath;
use bstr::{BString, ByteSlice};
use lexopt::{Arg, Parser};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What `trigger --help` says.
pub(super) const HELP: &str = concat!(
    "trigger [OPTIONS] [DEVICE...]

Have the kernel send uevents of devices again. A DEVICE (path in /sys or /dev, device id, unit)
stands for itself and all below it.

  -v --verbose                      Print the devices
  -n --dry-run                      Do not write anything
  -q --quiet                        No messages about what could not be written
  -t --type=TYPE                    devices (default), subsystems (and drivers), all
  -c --action=ACTION|help           What the uevents say (change)
",
    filter_help!(),
    "
     --include-parents              The parents of those found too
     --prioritized-subsystem=SUBSYSTEM[,SUBSYSTEM...]
                                    Devices of these subsystems first
  -w --settle                       Wait until the daemon has handled these events
     --wait-daemon[=SECONDS]        Wait for the daemon first (5)
     --uuid                         Print the UUID of each event
  -h --help                         Show this help
  -V --version                      Show the version"
);

/// Its long options.
const LONG: &[LongNames] = &[
    filter::LONG,
    &[
        "verbose",
        "dry-run",
        "quiet",
        "type",
        "action",
        "include-parents",
        "prioritized-subsystem",
        "settle",
        "wait-daemon",
        "uuid",
    ],
];

/// How long the daemon is waited for if nothing else is said.
const WAIT_DAEMON: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Options {
    verbose: bool,
    dry_run: bool,
    quiet: bool,
    kind: Kind,
    action: Action,
    filter: Filter,
    prioritized: Vec<BString>,
    settle: bool,
    wait_daemon: Option<Duration>,
    uuid: bool,
}

/// None: only the list of actions was wanted.
fn parse(parser: &mut Parser, devices: &Devices, out: Out) -> Result<Option<Options>, Stop> {
    let mut options = Options {
        verbose: false,
        dry_run: false,
        quiet: false,
        kind: Kind::Devices,
        action: Action::Change,
        filter: Filter::default(),
        prioritized: Vec::new(),
        settle: false,
        wait_daemon: None,
        uuid: false,
    };
    while let Some(arg) = next_arg(parser, LONG)? {
        let matching = match arg {
            Arg::Short(letter) => Match::from_short(letter),
            Arg::Long(name) => Match::from_long(name),
            Arg::Value(_) => None,
        };
        if let Some(matching) = matching {
            matching.read(parser, &mut options.filter, devices)?;
            continue;
        }
        match arg {
            Arg::Short('v') | Arg::Long("verbose") => options.verbose = true,
            Arg::Short('n') | Arg::Long("dry-run") => options.dry_run = true,
            Arg::Short('q') | Arg::Long("quiet") => options.quiet = true,
            Arg::Short('t') | Arg::Long("type") => options.kind = parse_kind(&text_value(parser)?)?,
            Arg::Short('c') | Arg::Long("action") => match action_value(parser, out)? {
                Some(action) => options.action = action,
                None => return Ok(None),
            },
            Arg::Long("include-parents") => options.filter.include_parents = true,
            Arg::Long("prioritized-subsystem") => {
                let names = text_value(parser)?;
                options.prioritized.extend(names.split(',').filter(|n| !n.is_empty()).map(BString::from));
            }
            Arg::Short('w') | Arg::Long("settle") => options.settle = true,
            Arg::Long("wait-daemon") => {
                options.wait_daemon = Some(match parser.optional_value() {
                    None => WAIT_DAEMON,
                    // The only place where udevadm is content with nonsense.
                    Some(text) => parse_time_span(text.as_bytes()).unwrap_or_else(|| {
                        log::warn!("--wait-daemon={} is no time span, ignored", text.display());
                        WAIT_DAEMON
                    }),
                });
            }
            Arg::Long("uuid") => options.uuid = true,
            Arg::Value(device) => {
                options.filter.parents.push(devices.find(&device.into_vec())?);
            }
            other => return Err(other_option(other)),
        }
    }
    Ok(Some(options))
}

fn parse_kind(text: &str) -> Result<Kind, Stop> {
    match text {
        "devices" => Ok(Kind::Devices),
        "subsystems" => Ok(Kind::Subsystems),
        "all" => Ok(Kind::All),
        _ => Err(Stop::Failed(format!("Unknown type --type={text}"))),
    }
}

/// Runs the subcommand.
pub(super) fn run(parser: &mut Parser, roots: &Roots, out: Out) -> Outcome {
    let devices = Devices::new(roots);
    let Some(options) = parse(parser, &devices, out)? else { return Ok(ExitCode::SUCCESS) };
    if ignored_in_chroot("trigger", roots) {
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(limit) = options.wait_daemon {
        wait_for_daemon(roots, limit)?;
    }
    // Before the first event is asked for, so that none of the answers is missed.
    let waits = options.settle && !options.dry_run;
    let receiver = waits.then(|| Receiver::open(Speaker::Udev, roots)).transpose()?;
    let found = enumerate(&devices, options.kind, &options.filter, &options.prioritized);
    let paths = found.into_iter().map(|f| f.devpath);
    let last_event = || SeqNum(line_of(&roots.sys.join("kernel/uevent_seqnum")).parse().unwrap_or(0));
    let takes_uuids = takes_uuids(&line_of(&roots.proc.join("sys/kernel/osrelease")));
    if options.uuid && !takes_uuids {
        return Err(Stop::Failed(format!("--uuid needs kernel {UUID_KERNEL}, older ones take no UUIDs")));
    }
    let mut writer = Writer { write: &mut write_uevent, takes_uuids, last_event: &last_event };
    let (pending, code) = write_all(paths, &options, &devices, &mut writer, out)?;
    if let Some(receiver) = receiver {
        out.flush()?;
        settle(receiver, pending, options.verbose, out)?;
    }
    Ok(code)
}

/// Until the daemon answers a ping.
fn wait_for_daemon(roots: &Roots, limit: Duration) -> Result<(), Stop> {
    if !process::is_root() {
        return Err(Stop::failed("only root may wait for the daemon"));
    }
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // A limit of nothing would mean not to wait for the answer.
        match super::control::send(roots, &[Message::Ping], Some(left.max(Duration::from_millis(1)))) {
            Ok(_) => return Ok(()),
            Err(super::control::SendError::NoDaemon(_)) if !left.is_zero() => {
                std::thread::sleep(left.min(Duration::from_millis(50)));
            }
            Err(error) => return Err(Stop::failed(error)),
        }
    }
}

/// The events that were asked for and have not been announced, by devpath.
type Pending = HashMap<BString, Mark>;

/// How the announcement of an event that was asked for is known.
#[derive(Debug, PartialEq, Eq)]
enum Mark {
    Uuid(String),
    /// The kernel took no UUID: the first event of the device with this action and a later number. That
    /// somebody else triggers it at this moment cannot be told from ours, and makes no difference.
    After(Action, SeqNum),
}

/// Writes to all `uevent` files.
fn write_all(
    devpaths: impl Iterator<Item = BString>,
    options: &Options,
    devices: &Devices,
    writer: &mut Writer,
    out: Out,
) -> Result<(Pending, ExitCode), Stop> {
    let mut pending = Pending::new();
    let mut code = ExitCode::SUCCESS;
    for devpath in devpaths {
        if options.verbose {
            writeln!(out, "{}", syspath(&devpath))?;
        }
        if options.dry_run {
            continue;
        }
        let path = devices.sysfs.path_of(&devpath, b"uevent");
        match writer.trigger(&path, options) {
            Ok(Some(mark)) => {
                if let (Mark::Uuid(uuid), true) = (&mark, options.uuid) {
                    writeln!(out, "{uuid}")?;
                }
                pending.insert(devpath, mark);
            }
            Ok(None) => {}
            Err(error) => match judge(&error) {
                // The device has gone since it was found.
                Judgement::Gone => log::debug!("Cannot write to {}: {error}", path.display()),
                Judgement::Ignored if options.quiet => {}
                Judgement::Ignored => log::warn!("Cannot write to {}: {error}", path.display()),
                Judgement::Hopeless if options.quiet => return Ok((pending, ExitCode::FAILURE)),
                Judgement::Hopeless => {
                    return Err(Stop::Failed(format!("cannot write to {}: {error}", path.display())));
                }
                Judgement::Failed => {
                    code = ExitCode::FAILURE;
                    if !options.quiet {
                        log::error!("Cannot write to {}: {error}", path.display());
                    }
                }
            },
        }
    }
    Ok((pending, code))
}

/// The kernel that takes a UUID behind the action, so that the event can be told from others.
const UUID_KERNEL: &str = "4.13";

/// Writes one action to one `uevent` file after the other.
struct Writer<'a> {
    write: &'a mut dyn FnMut(&Path, &[u8]) -> io::Result<()>,
    /// False for older kernels: some refuse the whole text, some say nothing and send no event.
    takes_uuids: bool,
    /// The number of the last event that the kernel has sent.
    last_event: &'a dyn Fn() -> SeqNum,
}

impl Writer<'_> {
    /// Writes; None if nobody wants to recognise the event.
    fn trigger(&mut self, path: &Path, options: &Options) -> io::Result<Option<Mark>> {
        let action = options.action;
        if !options.uuid && !options.settle {
            return (self.write)(path, action.as_str().as_bytes()).map(|()| None);
        }
        if self.takes_uuids {
            let uuid = uuid_v4(random::sixteen()?);
            match (self.write)(path, format!("{action} {uuid}").as_bytes()) {
                Ok(()) => return Ok(Some(Mark::Uuid(uuid))),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) && !options.uuid => {}
                Err(error) => return Err(error),
            }
        }
        let after = (self.last_event)();
        (self.write)(path, action.as_str().as_bytes())?;
        self.takes_uuids = false;
        Ok(Some(Mark::After(action, after)))
    }
}

/// Whether a kernel of this release takes UUIDs; one that does not tell is asked to.
fn takes_uuids(release: &str) -> bool {
    release.is_empty() || compare_versions(release.as_bytes(), UUID_KERNEL.as_bytes()).is_ge()
}

/// What an error of a write means (interop.md 5.3).
#[derive(Debug, PartialEq, Eq)]
enum Judgement {
    Gone,
    Ignored,
    /// No other write will work.
    Hopeless,
    Failed,
}

fn judge(error: &io::Error) -> Judgement {
    match error.raw_os_error() {
        Some(libc::ENOENT) => Judgement::Gone,
        Some(libc::ENODEV) => Judgement::Ignored,
        Some(libc::EROFS) => Judgement::Hopeless,
        _ => Judgement::Failed,
    }
}

/// One write of the whole text.
fn write_uevent(path: &Path, text: &[u8]) -> io::Result<()> {
    let file = std::fs::OpenOptions::new().write(true).open(path)?;
    match crate::sys::fs::write_once(&file, text)? {
        n if n == text.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// A file of the kernel with one line; empty if it cannot be read.
fn line_of(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// A random UUID (RFC 9562, version 4).
fn uuid_v4(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Waits until the daemon has announced all of them; without a daemon, for ever.
fn settle(mut receiver: Receiver, mut pending: Pending, verbose: bool, out: Out) -> Result<(), Stop> {
    while !pending.is_empty() {
        match process::wait_any_readable([receiver.as_fd()], None) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(Stop::failed(error)),
            _ => {}
        }
        while let Some(uevent) = receiver.receive()? {
            if let Some(devpath) = take_settled(&mut pending, &uevent)
                && verbose
            {
                writeln!(out, "settle {}", syspath(&devpath))?;
                out.flush()?;
            }
        }
    }
    Ok(())
}

/// The devpath whose event this announcement ends.
fn take_settled(pending: &mut Pending, uevent: &Uevent) -> Option<BString> {
    let uuid = uevent.properties.get("SYNTH_UUID").map(|uuid| uuid.as_bytes());
    let ends = |devpath: &BString, mark: &Mark| match mark {
        Mark::Uuid(wanted) => uuid == Some(wanted.as_bytes()),
        Mark::After(action, after) => {
            (devpath, *action) == (&uevent.devpath, uevent.action) && uevent.seqnum > *after
        }
    };
    // An interface may have been renamed meanwhile, so that its devpath is another.
    let here = pending.get_key_value(&uevent.devpath).filter(|(devpath, mark)| ends(devpath, mark));
    let (devpath, _) = here.or_else(|| pending.iter().find(|(devpath, mark)| ends(devpath, mark)))?;
    let devpath = devpath.clone();
    pending.remove(&devpath);
    Some(devpath)
}

#[cfg(test)]
mod tests;
