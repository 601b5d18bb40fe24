//! `info`: shows devices as sysfs and the records describe them (interop.md 5.2).

mod cleanup;
mod lines;
mod tree;
mod walk;

use super::filter::{self, Match, enumerate, filter_help};
use super::monitor::{Receiver, Speaker};
use super::view::Devices;
use super::{Json, Out, Outcome, Stop, bytes_value, json_value, other_option, parse_seconds, text_value};
use crate::model::command_line::{LongNames, next_arg};
use crate::sys::process::wait_any_readable;
use crate::world::Roots;
use crate::world::described::Described;
use crate::world::enumerate::{Filter, Kind};
use bstr::{BStr, BString};
use lexopt::{Arg, Parser};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What `info --help` says.
pub(super) const HELP: &str = concat!(
    "info [OPTIONS] [DEVICE...]

Show devices. A DEVICE is a path in /dev or /sys, a device id (b8:0, n1, +pci:0000:00:02.0) or the
name of a unit (dev-sda.device). Of -a, -t, -e, -c and -d the last one holds.

  -q --query=TYPE             What to show: name, symlink, path, property (or env), all (default)
     --property=NAME,...      Only these properties
     --value                  Values of properties without their names
  -p --path=PATH              Device by its path in /sys, with or without /sys in front
  -n --name=NAME              Device by its node or a symlink to it
  -r --root                   Names of nodes and symlinks with /dev/ in front
  -a --attribute-walk         Attributes as rules match them, up the chain of parents
  -t --tree                   The device, those above and those below it as a tree; without a device, all
  -d --device-id-of-file=FILE Device number of the file system that this file is on
  -x --export                 Properties as a shell reads them
  -P --export-prefix=PREFIX   The same, with a prefix before each name
  -e --export-db              All devices (not modules, buses and drivers)
  -c --cleanup-db             Remove what is known of devices, but for records marked db_persist
  -w --wait-for-initialization[=SECONDS]
                              Wait until the device has a record
     --no-pager               Accepted; there is never a pager
     --json=pretty|short|off  JSON
  -h --help                   Show this help
  -V --version                Show the version

Which devices --export-db and --tree show (long options only):
",
    filter_help!()
);

/// Its long options.
const LONG: &[LongNames] = &[
    filter::LONG,
    &[
        "query",
        "property",
        "value",
        "path",
        "name",
        "root",
        "attribute-walk",
        "tree",
        "device-id-of-file",
        "export",
        "export-prefix",
        "export-db",
        "cleanup-db",
        "wait-for-initialization",
        "no-pager",
        "json",
    ],
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Query {
    Name,
    Symlink,
    Path,
    Property,
    All,
}

impl Query {
    fn parse(word: &str) -> Option<Query> {
        Some(match word {
            "name" => Query::Name,
            "symlink" => Query::Symlink,
            "path" => Query::Path,
            "property" | "env" => Query::Property,
            "all" => Query::All,
            _ => return None,
        })
    }
}

/// The action that the options choose; the last of these wins. `-q` chooses none, it only names the query.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Task {
    Query,
    Walk,
    Tree,
    Export,
    Cleanup,
    DeviceIdOfFile(PathBuf),
}

#[derive(Debug)]
struct Options {
    task: Task,
    query: Query,
    format: Format,
    json: Option<Json>,
    /// How long to wait for the record.
    wait: Option<Duration>,
    filter: Filter,
    /// Devpaths: those of options, then those of words, as getopt_long(3) sorts them.
    found: Vec<Result<BString, Stop>>,
}

/// How answers to queries look.
#[derive(Debug, Default)]
struct Format {
    /// `/dev/` in front of names.
    root: bool,
    /// `KEY='VALUE'`.
    export: bool,
    prefix: Option<BString>,
    /// Only the values.
    value: bool,
    /// Only these properties.
    only: Option<Vec<BString>>,
}

impl Format {
    fn wants(&self, property: &BStr) -> bool {
        self.only.as_ref().is_none_or(|names| names.iter().any(|name| name == property))
    }
}

/// None: only the ways to write JSON were to be listed.
fn parse(parser: &mut Parser, devices: &Devices, out: Out) -> Result<Option<Options>, Stop> {
    let mut words = Vec::new();
    let mut options = Options {
        task: Task::Query,
        query: Query::All,
        format: Format::default(),
        json: None,
        wait: None,
        filter: Filter::default(),
        found: Vec::new(),
    };
    while let Some(arg) = next_arg(parser, LONG)? {
        let Options { task, query, format, .. } = &mut options;
        match arg {
            Arg::Short('q') | Arg::Long("query") => {
                let word = text_value(parser)?;
                *query = Query::parse(&word).ok_or_else(|| Stop::Failed(format!("{word:?} is no query")))?;
            }
            Arg::Short('a') | Arg::Long("attribute-walk") => *task = Task::Walk,
            Arg::Short('t') | Arg::Long("tree") => *task = Task::Tree,
            Arg::Short('e') | Arg::Long("export-db") => *task = Task::Export,
            Arg::Short('c') | Arg::Long("cleanup-db") => *task = Task::Cleanup,
            Arg::Short('d') | Arg::Long("device-id-of-file") => {
                *task = Task::DeviceIdOfFile(parser.value()?.into());
            }
            Arg::Long("property") => {
                let names = bytes_value(parser)?;
                let names = names.split(|&b| b == b',').filter(|n| !n.is_empty()).map(BString::from);
                format.only.get_or_insert_default().extend(names);
            }
            Arg::Long("value") => format.value = true,
            Arg::Short('r') | Arg::Long("root") => format.root = true,
            Arg::Short('x') | Arg::Long("export") => format.export = true,
            Arg::Short('P') | Arg::Long("export-prefix") => {
                format.export = true;
                format.prefix = Some(bytes_value(parser)?);
            }
            Arg::Short('w') | Arg::Long("wait-for-initialization") => {
                // As with udevadm a time of nothing is not to wait, and not to fail.
                options.wait = match parser.optional_value() {
                    Some(text) => Some(parse_seconds(&text)?).filter(|limit| !limit.is_zero()),
                    None => Some(Duration::MAX),
                };
            }
            Arg::Long("no-pager") => {}
            Arg::Long("json") => match json_value(parser, out)? {
                Some(json) => options.json = json,
                None => return Ok(None),
            },
            Arg::Short('p') | Arg::Long("path") => {
                options.found.push(devices.find_syspath(&bytes_value(parser)?));
            }
            Arg::Short('n') | Arg::Long("name") => {
                options.found.push(devices.find_node(&bytes_value(parser)?));
            }
            Arg::Value(device) => words.push(devices.find(&device.into_vec())),
            Arg::Long(name) if let Some(matching) = Match::from_long(name) => {
                matching.read(parser, &mut options.filter, devices)?;
            }
            other => return Err(other_option(other)),
        }
    }
    if options.format.export && options.format.value {
        return Err(Stop::failed("--value cannot be used with -x/--export or -P/--export-prefix"));
    }
    options.found.append(&mut words);
    if matches!(options.task, Task::Cleanup | Task::DeviceIdOfFile(_)) && !options.found.is_empty() {
        return Err(Stop::failed("no device may be given with -d/--device-id-of-file and -c/--cleanup-db"));
    }
    Ok(Some(options))
}

/// Runs the subcommand.
pub(super) fn run(parser: &mut Parser, roots: &Roots, out: Out) -> Outcome {
    let devices = Devices::new(roots);
    let Some(options) = parse(parser, &devices, out)? else { return Ok(ExitCode::SUCCESS) };
    match &options.task {
        Task::Cleanup => cleanup::run(&roots.run.join("udev"))?,
        Task::DeviceIdOfFile(file) => print_device_id(file, &options.format, out)?,
        Task::Export => export(&devices, &options, out)?,
        Task::Tree if options.found.is_empty() => {
            tree::print(&devices, all(&devices, Kind::All, &options.filter), out)?;
        }
        Task::Walk | Task::Tree if options.found.len() > 1 => {
            return Err(Stop::failed("only one device may be given with -a/--attribute-walk and -t/--tree"));
        }
        Task::Walk | Task::Tree | Task::Query => return on_devices(&devices, options, out),
    }
    Ok(ExitCode::SUCCESS)
}

/// The devices that were named, one after the other. One that is not there does not stop the others; one
/// that has not what is asked for does.
fn on_devices(devices: &Devices, mut options: Options, out: Out) -> Outcome {
    let found = std::mem::take(&mut options.found);
    if found.is_empty() {
        return Err(Stop::failed("a device name or path is required"));
    }
    let last = found.len() - 1;
    let mut code = ExitCode::SUCCESS;
    for (index, found) in found.into_iter().enumerate() {
        match found {
            Ok(devpath) => on_device(devices, &devpath, &options, out)?,
            Err(Stop::Failed(text)) if index < last => {
                out.flush()?;
                log::error!("{text}");
                code = ExitCode::FAILURE;
            }
            Err(stop) => return Err(stop),
        }
    }
    Ok(code)
}

fn on_device(devices: &Devices, devpath: &BString, options: &Options, out: Out) -> Result<(), Stop> {
    if let Some(limit) = options.wait {
        wait_for_record(devices, devpath, limit)?;
    }
    match options.task {
        Task::Walk => walk::print(devices, devpath.as_ref(), options.json, out),
        Task::Tree => tree::print(devices, around(devices, devpath, &options.filter), out),
        Task::Query => answer(&devices.describe(devpath), options, out),
        Task::Export | Task::Cleanup | Task::DeviceIdOfFile(_) => Ok(()),
    }
}

/// A device with those above it and those below it that the filter wants, in the order of a tree.
fn around(devices: &Devices, devpath: &BString, filter: &Filter) -> Vec<BString> {
    let parents = devices.sysfs.parents(devpath).into_iter().rev();
    let mut found: Vec<_> = parents.filter(|p| !p.subsystem.is_empty()).map(|p| p.devpath).collect();
    let filter = Filter { parents: vec![devpath.clone()], ..filter.clone() };
    found.extend(all(devices, Kind::All, &filter));
    found
}

fn answer(device: &Described, options: &Options, out: Out) -> Result<(), Stop> {
    let format = &options.format;
    let slash_dev: &[u8] = if format.root { b"/dev/" } else { b"" };
    match options.query {
        Query::Name => {
            let node = device
                .node()
                .ok_or_else(|| Stop::Failed(format!("{} has no device node", device.device.devpath)))?;
            write_line(out, &[slash_dev, node])
        }
        Query::Symlink => {
            let links: Vec<Vec<u8>> = device.links().map(|link| [slash_dev, link].concat()).collect();
            let between = if format.value { "\n" } else { " " };
            write_line(out, &[&bstr::join(between, &links)])?;
            if format.value && !links.is_empty() { write_line(out, &[]) } else { Ok(()) }
        }
        Query::Path => write_line(out, &[&device.device.devpath]),
        Query::Property => {
            let prefix = format.prefix.as_ref().map_or(&b""[..], |p| p.as_slice());
            for p in device.properties.iter().filter(|p| format.wants(p.name)) {
                match (format.value, format.export) {
                    (true, _) => write_line(out, &[p.value])?,
                    (false, true) => write_line(out, &[prefix, p.name, b"='", p.value, b"'"])?,
                    (false, false) => write_line(out, &[p.name, b"=", p.value])?,
                }
            }
            Ok(())
        }
        Query::All => print_record(device, options, out),
    }
}

/// One record, as lines with an empty one behind, or as JSON.
fn print_record(device: &Described, options: &Options, out: Out) -> Result<(), Stop> {
    match options.json {
        Some(json) => json.write(out, &lines::AsJson(device)),
        None => {
            for line in lines::of(device) {
                write_line(out, &[&line])?;
            }
            write_line(out, &[])
        }
    }
}

fn write_line(out: Out, parts: &[&[u8]]) -> Result<(), Stop> {
    for part in parts {
        out.write_all(part)?;
    }
    Ok(out.write_all(b"\n")?)
}

/// Devpaths of all devices that the filter wants, in order.
fn all(devices: &Devices, kind: Kind, filter: &Filter) -> Vec<BString> {
    enumerate(devices, kind, filter, &[]).into_iter().map(|found| found.devpath).collect()
}

fn export(devices: &Devices, options: &Options, out: Out) -> Result<(), Stop> {
    all(devices, Kind::Devices, &options.filter)
        .iter()
        .try_for_each(|devpath| print_record(&devices.describe(devpath), options, out))
}

fn print_device_id(file: &std::path::Path, format: &Format, out: Out) -> Result<(), Stop> {
    let device = std::fs::metadata(file).map_err(|e| Stop::Failed(format!("{}: {e}", file.display())))?.dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    if format.export {
        let prefix = format.prefix.clone().unwrap_or_else(|| "INFO_".into());
        writeln!(out, "{prefix}MAJOR={major}\n{prefix}MINOR={minor}")?;
    } else {
        writeln!(out, "{major}:{minor}")?;
    }
    Ok(())
}

/// Waits until the daemon has handled the device.
fn wait_for_record(devices: &Devices, devpath: &[u8], limit: Duration) -> Result<(), Stop> {
    // Before the first look, so that nothing is missed. Should an announcement get lost, the next look
    // comes by itself.
    const LOOK: Duration = Duration::from_secs(1);
    let mut receiver = Receiver::open(Speaker::Udev, devices.roots)?;
    let begin = Instant::now();
    while !devices.is_initialized(devpath) {
        let left = limit.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Err(Stop::failed("the device was not initialized in time"));
        }
        wait_any_readable([receiver.as_fd()], Some(left.min(LOOK))).map_err(Stop::failed)?;
        while receiver.receive()?.is_some() {}
    }
    Ok(())
}

#[cfg(test)]
mod tests;
