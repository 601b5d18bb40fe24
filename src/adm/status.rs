//! `status` and `links`: what the daemon says of itself over its own socket.

use super::reach::{self, Peer};
use super::{Json, Out, Outcome, Stop, other_option};
use crate::daemon::sources::status::{LinkRow, SOCKET, Status};
use crate::model::command_line::{LongNames, next_arg};
use crate::sys::{process, unix};
use crate::world::Roots;
use lexopt::{Arg, Parser};
use serde::de::DeserializeOwned;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

/// What `status --help` says.
pub(super) const HELP: &str = "status [OPTIONS]

Show what the daemon is doing: its queue, each running event with what it waits for and since when,
its counters, and the longest turn of its loop.

     --json[=short|pretty|off]  JSON, as the daemon sends it
  -h --help                     Show this help
  -V --version                  Show the version";

/// What `links --help` says.
pub(super) const LINKS_HELP: &str = "links [OPTIONS]

Show the network interfaces as the daemon knows them from the kernel's messages.

     --json[=short|pretty|off]  JSON, as the daemon sends it
  -h --help                     Show this help
  -V --version                  Show the version";

/// The long options of both.
const LONG: &[LongNames] = &[&["json"]];

/// More than any answer has: about 300 bytes for each link or job.
const ANSWER_MAX: usize = 256 << 20;

/// Runs `status`.
pub(super) fn run(parser: &mut Parser, roots: &Roots, out: Out) -> Outcome {
    show::<Status>(parser, roots, out, "status", print_status)
}

/// Runs `links`.
pub(super) fn run_links(parser: &mut Parser, roots: &Roots, out: Out) -> Outcome {
    show::<Vec<LinkRow>>(parser, roots, out, "links", |rows, out| print_links(rows, out))
}

fn show<T: DeserializeOwned + serde::Serialize>(
    parser: &mut Parser,
    roots: &Roots,
    out: Out,
    request: &str,
    print: fn(&T, Out) -> io::Result<()>,
) -> Outcome {
    let json = parse(parser)?;
    let answer = ask(roots, request)?;
    let answer: T = serde_json::from_slice(&answer)
        .map_err(|error| Stop::Failed(format!("cannot understand the daemon's answer: {error}")))?;
    match json {
        Some(json) => json.write(out, &answer)?,
        None => print(&answer, out)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(parser: &mut Parser) -> Result<Option<Json>, Stop> {
    let mut json = None;
    while let Some(arg) = next_arg(parser, LONG)? {
        match arg {
            Arg::Long("json") => {
                json = match parser.optional_value() {
                    Some(text) => Json::parse(&text.to_string_lossy())?,
                    None => Some(Json::Short),
                };
            }
            other => return Err(other_option(other)),
        }
    }
    Ok(json)
}

/// Asks the daemon and reads to the end of its answer.
pub(super) fn ask(roots: &Roots, request: &str) -> Result<Vec<u8>, Stop> {
    let path = roots.run.join("udev").join(SOCKET);
    let unreached = |error: io::Error| Stop::Failed(reach::unreached("mudevd", &error));
    let socket = unix::connect_seqpacket_within(&path, reach::SHORT).map_err(unreached)?;
    let answer = unix::send(socket.as_fd(), request.as_bytes()).and_then(|()| read_answer(&socket));
    answer.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            Stop::Failed(reach::no_answer(Peer::of(socket.as_fd(), roots).as_ref()))
        }
        _ => Stop::Failed(format!("mudevd did not answer: {error}")),
    })
}

fn read_answer(socket: &OwnedFd) -> io::Result<Vec<u8>> {
    let (mut answer, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    while answer.len() < ANSWER_MAX {
        if !process::wait_readable(socket.as_fd(), reach::SHORT)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match unix::receive(socket.as_fd(), &mut piece)?.len {
            // It ended, or had too many clients.
            0 if answer.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
            0 => return Ok(answer),
            len => answer.extend_from_slice(piece.get(..len).unwrap_or_default()),
        }
    }
    Err(io::ErrorKind::FileTooLarge.into())
}

fn print_status(status: &Status, out: Out) -> io::Result<()> {
    let state = match (status.exiting, status.ready) {
        (true, _) => "exiting",
        (false, true) => "ready",
        (false, false) => "starting",
    };
    let (counters, turns) = (&status.counters, &status.turns);
    writeln!(
        out,
        "mudevd {}, process {}, {state}, log level {}",
        status.version, status.pid, status.log_level
    )?;
    writeln!(out, "Rules     {} lines in {} files", status.rule_lines, status.rule_files)?;
    writeln!(out, "Queue     {} running, {} waiting", status.running, status.waiting)?;
    for job in &status.jobs {
        let waits_for = if job.waits_for.is_empty() { "nothing" } else { &job.waits_for };
        let seconds = (status.now - job.since).max(0.0);
        writeln!(
            out,
            "  {} {} {}: {}, waits for {waits_for} since {seconds:.3} s",
            job.seqnum, job.action, job.devpath, job.phase
        )?;
    }
    writeln!(
        out,
        "Events    {} received, {} done, {} merged, {} cancelled, {} duplicates, {} refused",
        counters.received,
        counters.finished,
        counters.merged,
        counters.cancelled,
        counters.duplicates,
        turns.uevents_refused
    )?;
    writeln!(out, "Overruns  {} of uevents, {} of link messages", turns.uevents_lost, status.link_overruns)?;
    writeln!(
        out,
        "Loop      {} turns, {} inputs, longest turn {}.{:03} ms",
        turns.turns,
        turns.inputs,
        turns.longest_turn_usec / 1000,
        turns.longest_turn_usec % 1000
    )?;
    writeln!(
        out,
        "Programs  {} running, {} waiting, {} at most, {} so far",
        status.children_running, status.children_waiting, status.children_max, turns.children
    )?;
    writeln!(
        out,
        "Helpers   {} working, {} requests waiting, {} so far",
        status.helpers_working, status.helper_requests_waiting, turns.helper_requests
    )?;
    for helper in &status.slow_helpers {
        let seconds = (status.now - helper.since).max(0.0);
        let state = if helper.hangs { "hangs in the kernel" } else { "works" };
        writeln!(out, "  process {} {state} since {seconds:.0} s: {}", helper.pid, helper.work)?;
    }
    let stale = if status.links_stale { ", being read again" } else { "" };
    writeln!(
        out,
        "Links     {}{stale}, {} events wait for one",
        status.links, status.jobs_waiting_for_links
    )?;
    writeln!(out, "Watches   {} nodes; {} control clients", status.watches, status.clients)
}

fn print_links(rows: &[LinkRow], out: Out) -> io::Result<()> {
    let name_of = |ifindex: u32| match rows.iter().find(|row| row.ifindex == ifindex) {
        Some(row) => row.name.clone(),
        None if ifindex == 0 => "-".to_owned(),
        None => ifindex.to_string(),
    };
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let heading = [
        "INDEX",
        "NAME",
        "KIND",
        "STATE",
        "CARRIER",
        "MTU",
        "ADDRESS",
        "MASTER",
        "LINK",
        "PARENT",
        "OTHER NAMES",
    ];
    let mut table: Vec<Vec<String>> = vec![heading.iter().map(|h| (*h).to_owned()).collect()];
    for row in rows {
        let carrier = row.carrier.map_or("-", |carrier| if carrier { "yes" } else { "no" });
        let names: Vec<&str> = row
            .alt_names
            .iter()
            .chain(Some(&row.alias).filter(|a| !a.is_empty()))
            .map(|n| n.as_str())
            .collect();
        table.push(vec![
            row.ifindex.to_string(),
            row.name.clone(),
            or_dash(&row.kind),
            format!("{}/{}", if row.up { "up" } else { "down" }, row.operstate),
            carrier.to_owned(),
            row.mtu.to_string(),
            or_dash(&row.address),
            name_of(row.master),
            if row.iflink == row.ifindex { "-".to_owned() } else { name_of(row.iflink) },
            or_dash(&row.parent),
            or_dash(&names.join(" ")),
        ]);
    }
    let widths: Vec<usize> = (0..heading.len())
        .map(|i| table.iter().map(|cells| cells[i].chars().count()).max().unwrap_or(0))
        .collect();
    for cells in &table {
        let line: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        writeln!(out, "{}", line.join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::JobStatus;
    use crate::helper::hanging::SlowHelper;

    fn row(ifindex: u32, name: &str) -> LinkRow {
        LinkRow {
            ifindex,
            name: name.into(),
            alt_names: vec![],
            kind: "veth".into(),
            flags: 1,
            up: true,
            operstate: "up".into(),
            carrier: Some(true),
            address: "02:00:00:00:00:01".into(),
            mtu: 1500,
            master: 0,
            iflink: ifindex,
            alias: String::new(),
            parent: String::new(),
        }
    }

    #[test]
    fn links_are_a_table_that_names_other_links() {
        let port = LinkRow { master: 1, iflink: 7, alt_names: vec!["other".into()], ..row(12, "port") };
        let bridge = LinkRow { kind: "bridge".into(), carrier: None, up: false, ..row(1, "br0") };
        let mut out = Vec::new();
        print_links(&[bridge, port], &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "INDEX  NAME  KIND    STATE    CARRIER  MTU   ADDRESS            MASTER  LINK  PARENT  OTHER NAMES\n\
             1      br0   bridge  down/up  -        1500  02:00:00:00:00:01  -       -     -       -\n\
             12     port  veth    up/up    yes      1500  02:00:00:00:00:01  br0     7     -       other\n"
        );
    }

    #[test]
    fn a_running_event_shows_what_it_waits_for_and_how_long() {
        let job = JobStatus {
            job: 1,
            seqnum: 77,
            action: "add".into(),
            devpath: "/devices/x".into(),
            phase: "rules".into(),
            waits_for: "program /bin/x".into(),
            since: 1.25,
        };
        let status = Status { jobs: vec![job], now: 3.5, running: 1, ..example() };
        let mut out = Vec::new();
        print_status(&status, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains(
                "1 running, 0 waiting\n  77 add /devices/x: rules, waits for program /bin/x since 2.250 s\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn helpers_that_take_long_are_shown_with_what_they_do() {
        let slow = |pid, hangs| SlowHelper { pid, work: "open /dev/sda".into(), since: 1.0, hangs };
        let status = Status { slow_helpers: vec![slow(7, false), slow(8, true)], now: 31.2, ..example() };
        let mut out = Vec::new();
        print_status(&status, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines = "  process 7 works since 30 s: open /dev/sda\n  process 8 hangs in the kernel since 30 s: open /dev/sda\n";
        assert!(text.contains(lines), "{text}");
    }

    fn example() -> Status {
        let json = r#"{"pid":1,"version":"1","ready":true,"exiting":false,"log_level":"info","waiting":0,
            "running":0,"jobs":[],"counters":{"received":0,"finished":0,"merged":0,"cancelled":0,
            "duplicates":0},"now":0.0,"turns":{"turns":0,"inputs":0,"longest_turn_usec":0,"uevents_lost":0,
            "uevents_refused":0,"children":0,"helper_requests":0},"children_running":0,"children_waiting":0,
            "children_max":1,"helpers_working":0,"helper_requests_waiting":0,"links":0,"links_stale":false,
            "link_overruns":0,"jobs_waiting_for_links":0,"watches":0,"clients":0,"rule_files":0,
            "rule_lines":0}"#;
        serde_json::from_str(json).expect("a status")
    }

    #[test]
    fn json_may_be_asked_for_in_two_forms() {
        let parse = |words: &[&str]| parse(&mut Parser::from_args(words));
        assert_eq!(parse(&[]), Ok(None));
        assert_eq!(parse(&["--json"]), Ok(Some(Json::Short)));
        assert_eq!(parse(&["--json=pretty"]), Ok(Some(Json::Pretty)));
        assert!(matches!(parse(&["--json=x"]), Err(Stop::Failed(_))));
        assert!(matches!(parse(&["all"]), Err(Stop::Failed(_))));
    }
}
