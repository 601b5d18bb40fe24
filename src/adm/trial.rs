//! The rules on one device, tried: questions are answered from the real system, and whatever would
//! change it is answered as if it had been done.
//!
//! Must stay true: nothing is changed but by the programs of PROGRAM and IMPORT{program}, which run, as
//! with udevadm. All waiting is done on the spot.

use super::Stop;
use super::view::Devices;
use crate::builtin::Builtins;
use crate::builtin::naming_scheme::Flag;
use crate::daemon::sources::children::{self, Budget, Children, Purpose, Wanted, run_to_end};
use crate::daemon::upkeep::reload;
use crate::engine::JobId;
use crate::helper::{operations, rtnl};
use crate::links::wire::DATAGRAM_MAX;
use crate::links::{Origin, Reply, Table};
use crate::model::need::{Exit, Fact, Need};
use crate::model::operation::{Operation, OperationReply};
use crate::model::{Action, Errno, Event, IfIndex, ResolveNames, SeqNum, Uevent};
use crate::rules::eval::{EvalConfig, Evaluation, Halt};
use crate::rules::outcome::Outcome;
use crate::rules::skip::Programs;
use crate::rules::{Answer, Ask};
use crate::sys::{clock, netlink, process};
use crate::tasks::{Answers, Pending};
use crate::world::accounts::Accounts;
use crate::world::config::{self, Overrides, Settings};
use crate::world::constants::Constants;
use crate::world::database::{OtherDevices, Records};
use crate::world::files::Files;
use crate::world::rule_files::RuleFiles;
use bstr::BStr;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

/// There is only one.
const JOB: JobId = JobId(0);

/// Needs of one question at most: more than any has.
const NEEDS_MAX: usize = 100;

/// How often the kernel is asked for all links while they keep changing.
const DUMPS_MAX: usize = 5;

/// Bytes of the longest piece of a dump.
const REPLY_MAX: usize = 64 << 10;

/// All that is needed to answer for one device.
pub(super) struct Trial {
    answers: Answers,
    /// Of other devices; None where no daemon has ever run.
    records: Option<Records>,
    settings: Settings,
    config: EvalConfig,
    links: Links,
    children: Children,
}

impl Trial {
    /// Reads configuration, .link files and the table of links.
    pub(super) fn new(devices: &Devices) -> Result<Trial, Stop> {
        let roots = devices.roots;
        let kernel =
            Files::new(roots).command_line(&Constants::new(roots)).ok().flatten().unwrap_or_default();
        let environment = |name: &str| std::env::var_os(name);
        let (settings, messages) =
            config::load(config::Files::read(roots), environment, &Overrides::default(), &kernel);
        let scheme = environment("NET_NAMING_SCHEME").map(|v| v.into_encoded_bytes());
        let (builtins, more) = Builtins::load(roots, &kernel, scheme.as_deref());
        messages.iter().chain(&more).for_each(|message| log::warn!("{message}"));
        let config = EvalConfig {
            strict_names: builtins.naming_scheme().has(Flag::ReplaceStrictly),
            in_initrd: config::in_initrd(roots),
            ..EvalConfig::default()
        };
        let null = File::options().read(true).write(true).open(process::NULL);
        let null = null.map_err(|e| Stop::Failed(format!("{}: {e}", process::NULL)))?;
        Ok(Trial {
            children: Children::new(null, roots.lib.join("udev"), settings.timeout_signal),
            links: if roots.sys_is_real() { Links::read()? } else { Links::none() },
            answers: Answers::new(roots, builtins),
            records: Records::open(&roots.run).ok(),
            settings,
            config,
        })
    }

    /// Runs the rules; those in `extra` folders come before, and hide, those of the same name elsewhere.
    pub(super) fn run_rules(
        &mut self,
        event: Event,
        extra: &[PathBuf],
        resolve_names: Option<ResolveNames>,
    ) -> Result<Outcome, Stop> {
        let roots = &self.answers.roots;
        let folders = [extra, RuleFiles::new(roots, &[]).folders()].concat();
        let loaded = RuleFiles::new(roots, &folders).load();
        reload::report(&loaded);
        let resolve_names = resolve_names.unwrap_or(self.settings.resolve_names);
        let rules = reload::compile_all(&loaded.files, resolve_names, &Accounts::new(roots));
        let program = Programs::new(rules).for_event(&event);
        let mut outcome = Outcome::new(event);
        let mut evaluation = Evaluation::start(program, self.config.clone());
        loop {
            let step = evaluation.run(&mut outcome);
            for note in evaluation.take_notes() {
                log::log!(note.level, "{}", note.text);
            }
            let Halt::Ask(ask) = step else { return Ok(outcome) };
            let answer = self.answer(&outcome.event, &ask)?;
            evaluation.answer(answer);
        }
    }

    /// Answers one question, doing one after the other what it needs.
    pub(super) fn answer(&mut self, event: &Event, ask: &Ask) -> Result<Answer, Stop> {
        let mut pending = Pending::default();
        for _ in 0..NEEDS_MAX {
            let others = self.records.as_ref().map(|records| records as &dyn OtherDevices);
            let known = (&mut self.links.table, others);
            match self.answers.answer(known, JOB, event, ask, &pending.facts) {
                Ok(answer) => return Ok(answer),
                Err(need) => pending.learn(self.meet(event, need)?),
            }
        }
        Err(Stop::Failed(format!("there is no end to what is needed for {ask:?}")))
    }

    fn meet(&mut self, event: &Event, need: Need) -> Result<Fact, Stop> {
        Ok(match need {
            // Its requests are waited for, and it hears no notifications: there is nothing to read.
            Need::LinksRead => {
                self.links.table.caught_up();
                Fact::LinksRead
            }
            Need::Link(ifindex) => self.links.refresh(ifindex, false)?,
            Need::FreshLink { ifindex, statistics } => self.links.refresh(ifindex, statistics)?,
            Need::Program { command, capture } => {
                let purpose = if capture { Purpose::Ask } else { Purpose::Run };
                let budget = Budget::new(clock::monotonic(), self.settings.event_timeout);
                let wanted = Wanted {
                    job: JOB,
                    purpose,
                    event: event.title().to_string(),
                    device: event.device.devpath.clone(),
                    command,
                    env: children::environment(event, &BTreeMap::new()),
                    budget,
                };
                Fact::Exit(self.run_program(wanted)?)
            }
            Need::Helper(operation) => Fact::Helper(perform_dry(&operation)),
            Need::Driver { ifname, .. } => Fact::Driver(rtnl::driver(&ifname).map_err(|e| Errno::of(&e))),
            // All these requests change a link.
            Need::Rtnl(_) | Need::Undo(_) => Fact::Rtnl(Ok(())),
            Need::Turn(progress) => Fact::Turn(progress),
        })
    }

    fn run_program(&mut self, wanted: Wanted) -> Result<Exit, Stop> {
        let finished = run_to_end(&mut self.children, wanted);
        Ok(finished.map_err(|e| Stop::Failed(format!("cannot wait for a program: {e}")))?.exit)
    }
}

/// Reads are done, writes are only said.
fn perform_dry(operation: &Operation) -> OperationReply {
    if operation.only_reads() {
        return operations::perform(operation, None).0;
    }
    if let Operation::WriteAttr { path, value } | Operation::WriteSysctl { path, value } = operation {
        log::info!("Would write {value:?} to {path}");
    }
    OperationReply::Done(Ok(()))
}

/// The event that the rules are to see: the device as sysfs and record describe it now.
pub(super) fn event_of(devices: &Devices, devpath: &BStr, action: Action) -> Event {
    let mut properties = devices.sysfs.properties(devpath);
    properties.set("ACTION", action.as_str());
    let subsystem = devices.sysfs.subsystem(devpath).unwrap_or_default();
    // No kernel message: there is no sequence number.
    let uevent = Uevent { action, seqnum: SeqNum(0), devpath: devpath.into(), subsystem, properties };
    let mut event = Event::new(uevent);
    if let Some(record) = devices.record(&event.device) {
        event.know_old(Arc::new(record));
    }
    // Only what is there, and can have a record, becomes known now.
    if action != Action::Remove && event.device.id().is_some() {
        event.usec_initialized.get_or_insert_with(|| clock::monotonic().since_boot().as_micros() as u64);
    }
    event
}

/// The table of links, filled by requests that are waited for.
struct Links {
    table: Table,
    /// None where links come from a tree of files.
    socket: Option<OwnedFd>,
}

impl Links {
    fn none() -> Links {
        Links { table: Table::new(), socket: None }
    }

    /// All links as they are now.
    fn read() -> Result<Links, Stop> {
        let socket =
            netlink::open_route(true).map_err(|e| Stop::Failed(format!("cannot ask for links: {e}")))?;
        let mut links = Links { table: Table::new(), socket: Some(socket) };
        links.table.speak_for_sysfs();
        for _ in 0..DUMPS_MAX {
            let (seq, request) = links.table.begin_dump();
            let reply = links.request(seq, &request)?;
            if reply.is_some_and(|reply| links.table.end_dump(&reply, &mut Vec::new())) {
                break;
            }
        }
        Ok(links)
    }

    /// Asks for one link.
    fn refresh(&mut self, ifindex: IfIndex, statistics: bool) -> Result<Fact, Stop> {
        let (seq, request) = self.table.request(ifindex, statistics);
        if self.request(seq, &request)?.is_some_and(|reply| reply.result.is_err()) {
            self.table.note_absent(ifindex, seq);
        }
        Ok(Fact::Link)
    }

    /// Sends a request and takes its reply to the end; None without a socket.
    fn request(&mut self, seq: u32, request: &[u8]) -> Result<Option<Reply>, Stop> {
        let Some(socket) = &self.socket else { return Ok(None) };
        let failed = |error| Stop::Failed(format!("cannot ask for links: {error}"));
        netlink::send(socket.as_fd(), request).map_err(failed)?;
        let mut buffer = vec![0; REPLY_MAX];
        loop {
            let length = netlink::next_len(socket.as_fd()).map_err(failed)?;
            if length > buffer.len() {
                buffer.resize(length.min(DATAGRAM_MAX), 0);
            }
            let received = netlink::receive(socket.as_fd(), &mut buffer).map_err(failed)?;
            if received.truncated {
                return Err(Stop::Failed(format!("a link takes {length} bytes: more than {DATAGRAM_MAX}")));
            }
            let datagram = buffer.get(..received.len).filter(|_| received.sender.portid == 0);
            let applied = self.table.apply(datagram.unwrap_or_default(), Origin::Reply, &mut Vec::new());
            if let Some(reply) = applied.reply.filter(|reply| reply.seq == seq) {
                return Ok(Some(reply));
            }
        }
    }
}
