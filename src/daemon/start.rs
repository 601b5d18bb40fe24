//! From the command line to the running loop.
//!
//! Must stay true: sockets are bound and the kernel's group is joined before `--daemon` forks, so that
//! what is triggered right after is not lost; the parent exits 0 only when the child is ready.

use super::options::CommandLine;
use super::questions::Questions;
use super::readiness::Readiness;
use super::recorder::Recorder;
use super::shell::Shell;
use super::sources::children::Children;
use super::sources::control::{self, Control};
use super::sources::intake::{self, Intake};
use super::sources::links::Links;
use super::sources::passed::Passed;
use super::sources::source::{Source, Sources};
use super::sources::status::{self, StatusServer};
use super::stats::Stats;
use super::upkeep::coldplug::Coldplug;
use super::upkeep::configuration::{Configuration, engine_config};
use super::upkeep::leftovers::Leftovers;
use super::upkeep::mend::Mender;
use super::upkeep::queue_file::QueueFile;
use super::upkeep::reload::Rules;
use super::upkeep::resync::Resync;
use super::upkeep::{follow_up, static_nodes};
use super::work::{Work, children_max};
use crate::builtin::Builtins;
use crate::engine::Engine;
use crate::helper::pool::{Executable, Launcher, Pool};
use crate::helper::writer;
use crate::model::Now;
use crate::sys::child::Child;
use crate::sys::clock::monotonic;
use crate::sys::fs::Dir;
use crate::sys::output::Output;
use crate::sys::process::{self, Forked, Standard};
use crate::sys::signal::{self, SignalFd};
use crate::sys::{netlink, unix};
use crate::tasks::Stores;
use crate::tasks::effects::MAX_ANNOUNCEMENT;
use crate::world::config::{self, Settings};
use crate::world::constants::Constants;
use crate::world::files::Files;
use crate::world::logger;
use crate::world::watch_dir::WatchDir;
use crate::world::watches::Watches;
use crate::world::{OWN_EXECUTABLE, Roots, Sysfs, database, missing_parts, open_own_executable};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// What went wrong, for the one line in the log.
type Failure = String;

/// RTNLGRP_LINK of linux/rtnetlink.h.
const RTNLGRP_LINK: u32 = 1;

/// Receive buffer of the socket for links: a notification is about 1.5 KiB.
const LINKS_BUFFER: usize = 16 << 20;

/// Bytes of a file of events; with more the daemon does not start.
const MAX_EVENTS: u64 = 256 << 20;

/// As a file of events: what is read from standard input.
const STANDARD_INPUT: &str = "-";

/// Runs the daemon until it is told to end.
pub(super) fn run(line: CommandLine) -> Result<(), Failure> {
    fill_standard_descriptors().map_err(|e| format!("Cannot open /dev/null: {e}"))?;
    let passed = Passed::take(line.ready_fd);
    logger::start_daemon(&line.roots);
    let_go(Standard::Output)?;
    if !reads_input(&line) {
        let_go(Standard::Input)?;
    }
    // Until the settings say otherwise.
    log::set_max_level(Settings::default().log_level);
    let passed = passed?;
    let launcher = Launcher::new(null()?, own_executable());
    let own_fds = line.roots.proc.join("self/fd");
    // A daemon that detaches leaves its standard error to others.
    if (!line.daemon || line.debug)
        && let Err(error) = pass_log_on(&launcher, &own_fds)
    {
        log::warn!("The log is on a disk, and no helper writes it: {error}");
    }
    let environment = |name: &str| std::env::var_os(name);
    let text = |name: &str| environment(name).and_then(|v| v.into_string().ok());
    let command_line = kernel_command_line(&line.roots);
    let (settings, messages) =
        config::load(config::Files::read(&line.roots), environment, &line.overrides, &command_line);
    log::set_max_level(settings.log_level);
    line.messages.iter().chain(&messages).for_each(|message| log::warn!("{message}"));
    if line.events.is_none() {
        missing_parts(&line.roots).iter().for_each(|line| log::warn!("{line}"));
    }
    signal::reset_actions();
    process::set_umask(0o022);
    // Each disk that is worked on is held open, and there may be thousands.
    if let Err(error) = process::raise_descriptor_limit() {
        log::warn!("Cannot raise the limit of open files: {error}");
    }

    let ready_fd = passed.ready.map(|fd| ready_output(fd, &launcher, &own_fds)).transpose();
    let (ready_fd, ready_writer) = ready_fd.map_err(|e| format!("--ready-fd: {e}"))?.unzip();
    let sockets = Sockets::open(&line, passed.sockets)?;
    let (builtins, messages) =
        Builtins::load(&line.roots, &command_line, text("NET_NAMING_SCHEME").as_deref().map(str::as_bytes));
    messages.iter().for_each(|message| log::warn!("{message}"));
    let rules = read_rules(&line, &settings);

    let parent = if line.daemon { detach(&line)? } else { None };
    let status = format!("Processing with {} children at max", children_max(&settings));
    let readiness = Readiness::new(&text, ready_fd, parent, status, monotonic());
    let mut shell = assemble(line, settings, &launcher, sockets, builtins, rules, readiness)?;
    shell.work.helpers.reap_when_ended(ready_writer.flatten());
    let ended = shell.run().map_err(|e| format!("Cannot wait for events: {e}"));
    if let Some(recorder) = shell.work.recorder.take() {
        recorder.finish();
    }
    // The kernel takes thousands of small pieces back faster than we could.
    std::mem::forget(shell.rules);
    ended
}

/// Sockets that must be there before anyone is told that we are.
#[derive(Default)]
struct Sockets {
    uevents: Option<OwnedFd>,
    control: Option<OwnedFd>,
    status: Option<OwnedFd>,
    links: Option<OwnedFd>,
    announcer: Option<OwnedFd>,
}

impl Sockets {
    fn open(line: &CommandLine, passed: Vec<OwnedFd>) -> Result<Sockets, Failure> {
        let udev = line.roots.run.join("udev");
        std::fs::create_dir_all(&udev).map_err(|e| format!("Cannot create {}: {e}", udev.display()))?;
        let mut sockets = Sockets::default();
        if line.roots.sys_is_real() {
            sockets.links = Some(open_links().map_err(|e| format!("Cannot listen for links: {e}"))?);
        }
        if line.events.is_some() {
            return Ok(sockets);
        }
        // By type, in any order; names are ignored.
        passed.into_iter().try_for_each(|fd| sockets.take_one(fd))?;
        if sockets.uevents.is_none() {
            sockets.uevents =
                Some(intake::open_socket().map_err(|e| format!("Cannot listen for events: {e}"))?);
        }
        let listen = |name: &str| {
            let path = udev.join(name);
            control::listen_when_free(&path).map_err(|e| format!("Cannot listen at {}: {e}", path.display()))
        };
        if sockets.control.is_none() {
            sockets.control = Some(listen("control")?);
        }
        sockets.status = Some(listen(status::SOCKET)?);
        let announcer = netlink::open_uevent(0).map_err(|e| format!("Cannot announce events: {e}"))?;
        // The kernel doubles it, for what a datagram costs beside its bytes.
        if let Err(error) = netlink::set_send_buffer(announcer.as_fd(), MAX_ANNOUNCEMENT / 2) {
            log::debug!("Long events may not be announced: {error}");
        }
        sockets.announcer = Some(announcer);
        Ok(sockets)
    }

    fn take_one(&mut self, fd: OwnedFd) -> Result<(), Failure> {
        let kind =
            unix::socket_kind(fd.as_fd()).map_err(|e| format!("A passed descriptor is no socket: {e}"))?;
        let is_control = kind.domain == libc::AF_UNIX && kind.kind == libc::SOCK_SEQPACKET && kind.listens;
        let is_uevents = kind.domain == libc::AF_NETLINK && kind.protocol == libc::NETLINK_KOBJECT_UEVENT;
        if is_control && self.control.is_none() {
            self.control = Some(fd);
        } else if is_uevents && self.uevents.is_none() {
            // Its buffer is the business of who made it (ReceiveBuffer= of the unit). Without the kernel's group
            // we would hear nothing, and nobody would tell.
            netlink::pass_credentials(fd.as_fd())
                .and_then(|()| netlink::hear_kernel(fd.as_fd()))
                .and_then(|()| unix::set_nonblocking(fd.as_fd()))
                .map_err(|e| format!("Cannot use the passed socket for events: {e}"))?;
            self.uevents = Some(fd);
        } else {
            return Err(format!("Do not know what to do with a passed socket: {kind:?}"));
        }
        Ok(())
    }
}

fn open_links() -> io::Result<OwnedFd> {
    let socket = netlink::open_route(false)?;
    netlink::set_receive_buffer(socket.as_fd(), LINKS_BUFFER)?;
    netlink::add_membership(socket.as_fd(), RTNLGRP_LINK)?;
    Ok(socket)
}

fn null() -> Result<File, Failure> {
    process::open_null().map_err(|e| format!("{}: {e}", process::NULL))
}

/// Whoever started us without standard descriptors must not see them taken by sockets.
fn fill_standard_descriptors() -> io::Result<()> {
    while !(0..3).all(process::is_open) {
        std::mem::forget(process::open_null()?);
    }
    Ok(())
}

/// /proc/cmdline, or that of the container.
fn kernel_command_line(roots: &Roots) -> Vec<u8> {
    let text = Files::new(roots).command_line(&Constants::new(roots));
    text.ok().flatten().map(Vec::from).unwrap_or_default()
}

/// Forks. The parent ends here, when the child is ready or has failed; the child gets the descriptor
/// that the parent waits at.
fn detach(line: &CommandLine) -> Result<Option<OwnedFd>, Failure> {
    let failed = |e: io::Error| format!("Cannot detach: {e}");
    let (reader, writer) = process::pipe().map_err(failed)?;
    match process::fork().map_err(failed)? {
        Forked::Parent => {
            drop(writer);
            let forever = Duration::from_secs(u64::from(u32::MAX));
            let mut byte = [0];
            let ready = process::wait_readable(reader.as_fd(), forever)
                .and_then(|_| process::read(reader.as_fd(), &mut byte))
                .is_ok_and(|n| n == 1);
            std::process::exit(if ready { 0 } else { 1 });
        }
        Forked::Child => {
            drop(reader);
            process::new_session().map_err(failed)?;
            std::env::set_current_dir(Path::new("/")).map_err(failed)?;
            if !line.debug {
                let null = null()?;
                for target in [Standard::Input, Standard::Output, Standard::Error] {
                    process::redirect(null.as_fd(), target).map_err(failed)?;
                }
                logger::detach();
            }
            let score = line.roots.proc.join("self/oom_score_adj");
            if let Err(error) = std::fs::write(score, "-1000") {
                log::debug!("Cannot keep the kernel from ending us first: {error}");
            }
            Ok(Some(writer))
        }
    }
}

/// Has a standard descriptor lead nowhere. Nothing is read from or written to it, and where it is a file of a server
/// that does not answer, each child would wait in closing its copy.
fn let_go(descriptor: Standard) -> Result<(), Failure> {
    process::redirect(null()?.as_fd(), descriptor).map_err(|e| format!("Cannot redirect {descriptor:?}: {e}"))
}

/// Whether events are read from standard input.
fn reads_input(line: &CommandLine) -> bool {
    line.events.as_deref() == Some(Path::new(STANDARD_INPUT))
}

/// `--ready-fd`. A file that may wait is written and closed by a helper.
fn ready_output(fd: OwnedFd, launcher: &Launcher, own_fds: &Path) -> io::Result<(Output, Option<Child>)> {
    let output = Output::new(fd, own_fds)?;
    if !output.may_wait() {
        return Ok((output, None));
    }
    let (child, socket) = writer::start(launcher, writer::Content::Log, output.descriptor())?;
    Ok((Output::new(socket, own_fds)?, Some(child)))
}

/// A log on a disk or in a network would hold the loop when that does not answer: a helper writes it then, and
/// nobody else keeps it open.
fn pass_log_on(launcher: &Launcher, own_fds: &Path) -> Result<(), Failure> {
    if !logger::may_wait() {
        return Ok(());
    }
    let started = writer::start(launcher, writer::Content::Log, io::stderr().as_fd());
    let output = started.and_then(|(_, socket)| Output::new(socket, own_fds));
    output.and_then(logger::redirect).map_err(|e| e.to_string())
}

fn own_executable() -> Executable {
    match open_own_executable() {
        Ok(file) => Executable::Open(file),
        Err(error) => {
            log::warn!("Our own executable cannot be opened, helpers may not start: {error}");
            Executable::Named(OWN_EXECUTABLE.to_owned())
        }
    }
}

/// Rules, or none where nothing can be read.
fn read_rules(line: &CommandLine, settings: &Settings) -> Rules {
    // Of the usual folders any may be missing; one that was asked for is meant.
    for folder in &line.rules_dirs {
        if let Err(error) = std::fs::read_dir(folder) {
            log::warn!("No rules from --rules-dir {}: {error}", folder.display());
        }
    }
    Rules::read(&line.roots, &line.rules_dirs, settings.resolve_names, monotonic())
}

/// What `--events` names, whole. Waits as long as somebody still writes it, so signals must end us still.
fn read_events(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut content = Vec::new();
    let read = if path == Path::new(STANDARD_INPUT) {
        let read = io::stdin().take(MAX_EVENTS + 1).read_to_end(&mut content);
        let_go(Standard::Input)?;
        read
    } else {
        File::open(path).and_then(|f| f.take(MAX_EVENTS + 1).read_to_end(&mut content))
    };
    match read {
        Ok(length) if length as u64 > MAX_EVENTS => {
            Err(format!("Cannot read {}: more than {} MiB of events", path.display(), MAX_EVENTS >> 20))
        }
        Ok(_) => Ok(content),
        Err(error) => Err(format!("Cannot read {}: {error}", path.display())),
    }
}

fn open_intake(events: Option<&[u8]>, socket: Option<OwnedFd>, sources: &Sources) -> Result<Intake, Failure> {
    match (events, socket) {
        (Some(content), _) => Ok(Intake::from_file(content)),
        (None, Some(socket)) => {
            Intake::from_kernel(socket, sources).map_err(|e| format!("Cannot receive events: {e}"))
        }
        (None, None) => Err("No socket for events".to_owned()),
    }
}

/// The variable of the environment that, set to `sysfs`, has attributes of interfaces read from there: for the benchmark, which
/// shows by that what the link table is worth.
const LINKS: &str = "MUDEV_LINKS";

fn assemble(
    line: CommandLine,
    settings: Settings,
    launcher: &Launcher,
    sockets: Sockets,
    builtins: Builtins,
    rules: Rules,
    readiness: Readiness,
) -> Result<Shell, Failure> {
    let now: Now = monotonic();
    let failed = |e: io::Error| format!("Cannot start: {e}");
    let poll = mio::Poll::new().map_err(failed)?;
    let sources = Sources::new(&poll).map_err(failed)?;
    let config = engine_config(&settings, &line.roots, &builtins);
    let mut recorder = None;
    if let Some(path) = &line.record {
        let mut created = Recorder::create(path, launcher, &config)
            .map_err(|e| format!("Cannot write {}: {e}", path.display()))?;
        created.rules(&rules.texts());
        recorder = Some(created);
    }
    let mut children = Children::new(null()?, line.roots.lib.join("udev"), settings.timeout_signal);
    children.set_max(children_max(&settings));
    let events = line.events.as_deref().map(read_events).transpose()?;
    let signals = SignalFd::new(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]).map_err(failed)?;
    sources.add(signals.as_fd(), Source::Signals).map_err(failed)?;
    let udev = database::open_udev_dir(&line.roots.run).map_err(failed)?;
    let watches = Watches::new(&line.roots, watch_dir(&udev)).map_err(failed)?;
    watch(&watches, &sources).map_err(failed)?;
    let mut links = Links::new(sockets.links, launcher.clone());
    links.start(&sources, now).map_err(failed)?;
    let stores = Stores::open(&line.roots, builtins, watches, sockets.announcer);
    let mut stores =
        stores.map_err(|e| format!("Cannot open {}: {e}", line.roots.run.join("udev").display()))?;
    if std::env::var_os(LINKS).is_some_and(|value| value == "sysfs") {
        log::warn!("{LINKS}=sysfs: rules on interfaces wait for files and for RTNL");
        stores.answers.attributes.distrust_links();
    }
    let intake = open_intake(events.as_deref(), sockets.uevents, &sources)?;
    let control = sockets.control.map(|s| Control::new(s, &sources)).transpose().map_err(failed)?;
    let status = sockets.status.map(|s| StatusServer::new(s, &sources)).transpose().map_err(failed)?;
    let mut work = Work {
        sysfs: Sysfs::new(&line.roots),
        settings: settings.clone(),
        engine: Engine::new(config, rules.current().clone()),
        inbox: VecDeque::new(),
        facts: VecDeque::new(),
        resting: VecDeque::new(),
        resting_next: false,
        sources,
        intake,
        links,
        children,
        helpers: Pool::new(launcher.clone()),
        leftovers: Leftovers::new(&line.roots),
        queue_file: QueueFile::new(&line.roots),
        recorder,
        stats: Stats::default(),
        stores,
        questions: Questions::default(),
        globals: BTreeMap::new(),
        job_levels: HashMap::new(),
        now,
        roots: line.roots,
    };
    static_nodes::set_up(&mut work, rules.current());
    follow_up::restore_watches(&mut work);
    let (mut coldplug, mut resync) = (Coldplug::default(), Resync::default());
    resync.look_for_leftovers(&work);
    if line.coldplug {
        coldplug.start(&work);
    }
    Ok(Shell {
        poll,
        work,
        facts_next: false,
        control,
        status,
        signals,
        rules,
        configuration: Configuration { configured: settings, overrides: line.overrides },
        coldplug,
        resync,
        mender: Mender::default(),
        readiness,
        exiting: false,
    })
}

/// Has the loop told of what is watched.
fn watch(watches: &Watches, sources: &Sources) -> io::Result<()> {
    if let Some(Err(error)) = watches.mounts().map(|mounts| sources.add_urgent(mounts, Source::Mounts)) {
        log::debug!("Cannot watch the list of mounts: {error}");
    }
    sources.add(watches.inotify(), Source::Inotify)
}

fn watch_dir(udev: &Dir) -> Option<WatchDir> {
    WatchDir::open(udev).inspect_err(|error| log::warn!("Cannot note which nodes are watched: {error}")).ok()
}
