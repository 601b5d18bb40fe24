//! What mudevd opens while it handles network interfaces, seen by strace: nothing below /sys/class/net and the
//! interface's own folder, but the four files that stand in no rtnetlink message.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/live.rs"]
mod live;

use live::{Live, in_cell, ip};
use std::process::Command;

/// Values that rtnetlink does not tell; reading them takes no RTNL.
const ALLOWED: [&str; 4] = ["addr_assign_type", "name_assign_type", "dev_port", "dev_id"];

/// Rules that ask for everything that rules ask of links, by every way there is.
const RULES: &str = "\
    SUBSYSTEM!=\"net\", GOTO=\"end\"\n\
    ATTR{mtu}==\"1500\", ENV{MTU}=\"$attr{mtu}\", ENV{ADDRESS}=\"$attr{address}\"\n\
    ATTR{type}==\"1\", ENV{TYPE}=\"$attr{type}\", ENV{FLAGS}=\"$attr{flags}\"\n\
    ENV{IFLINK}=\"$attr{iflink}\", ENV{IFINDEX_}=\"$attr{ifindex}\", ENV{OPERSTATE}=\"$attr{operstate}\"\n\
    ENV{CARRIER}=\"$attr{carrier}\", ENV{QLEN}=\"$attr{tx_queue_len}\", ENV{ALIAS}=\"$attr{ifalias}\"\n\
    ATTRS{address}==\"?*\", ENV{WALK}=\"1\"\n\
    TEST==\"address\", ENV{TESTED}=\"1\"\n\
    ENV{ASSIGN}=\"$attr{addr_assign_type} $attr{name_assign_type} $attr{dev_id} $attr{dev_port}\"\n\
    ENV{LO}=\"$attr{[net/lo]mtu}\"\n\
    IMPORT{builtin}=\"net_id\"\n\
    IMPORT{builtin}=\"net_driver\"\n\
    IMPORT{builtin}=\"path_id\"\n\
    IMPORT{builtin}=\"net_setup_link\"\n\
    LABEL=\"end\"\n\
    ENV{ID_SEAT}==\"\", IMPORT{parent}=\"ID_SEAT\"\n\
    SUBSYSTEM==\"queues\", IMPORT{parent}=\"DEVTYPE\", IMPORT{parent}=\"T*\"\n";

#[test]
fn net_events_open_nothing_of_the_interface_in_sysfs() {
    in_cell(|| {
        let probe = Command::new("strace").args(["-qq", "-o", "/run/strace.probe", "true"]).status();
        assert!(probe.is_ok_and(|s| s.success()), "strace is needed (make test installs it)");
        let mut live = Live::start_with(RULES, |command| {
            let traced = std::mem::replace(command, Command::new("strace"));
            command.args(["-D", "-f", "-y", "-qq", "-e", "trace=open,openat,openat2", "-o", "/run/strace"]);
            command.arg(traced.get_program()).args(traced.get_args());
            command.envs(traced.get_envs().filter_map(|(k, v)| Some((k, v?))));
            command.stdin(std::process::Stdio::null());
            let log = std::fs::File::create("/run/log").expect("creates the log");
            command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        });
        let net = "/devices/virtual/net";
        for n in 0..5 {
            ip(&format!("link add s{n} type veth peer name r{n}"));
        }
        ip("link add br0 type bridge");
        ip("link set s0 master br0");
        ip("link set s1 name q1");
        ip("link set s2 mtu 1400");
        // They do not depend on each other: either may come first.
        let (add, moved) = (format!("add {net}/br0"), format!("move {net}/q1"));
        let queue = format!("add {net}/br0/queues/rx-0");
        let (mut bridge, mut of_parent, mut has_moved) = (None, None, false);
        live.announced_that("add of br0 and its queue, and move of q1", |m| {
            has_moved |= m.title() == moved;
            if m.title() == queue {
                of_parent = Some(["DEVTYPE", "TYPE", "TESTED"].map(|key| m.get(key).to_owned()));
            }
            if m.title() == add {
                bridge = Some(["LO", "TYPE", "TESTED"].map(|key| m.get(key).to_owned()));
            }
            has_moved && bridge.is_some() && of_parent.is_some()
        });
        // What the kernel says of the bridge, and what the rules left of it.
        assert_eq!(of_parent.expect("it was announced"), ["bridge", "1", "1"]);
        assert_eq!(bridge.expect("it was announced"), ["65536", "1", "1"]);
        for n in 2..5 {
            ip(&format!("link del s{n}"));
        }
        live.settled();
        let trace = std::fs::read_to_string("/run/strace").expect("strace wrote");
        let opened: Vec<&str> = trace.lines().filter(|l| is_interface_file(l)).collect();
        let bad: Vec<&&str> = opened
            .iter()
            .filter(|l| {
                !ALLOWED.iter().any(|a| l.contains(&format!("{a}\"")) || l.contains(&format!("{a}>")))
            })
            .collect();
        assert!(bad.is_empty(), "opened below an interface:\n{bad:#?}");
        // The check would pass on an empty trace: the four files must have been seen.
        assert!(opened.iter().any(|l| l.contains("name_assign_type")), "nothing was traced:\n{trace}");
        live.stop();
    });
}

/// A line of strace that opens something below an interface's folder; with -y the folder of a relative path
/// stands in the line as well. The `queues` folders are devices of another subsystem.
fn is_interface_file(line: &str) -> bool {
    if line.contains("/queues/") {
        return false;
    }
    let below = |root: &str| {
        line.match_indices(root).any(|(at, _)| {
            let rest = &line[at + root.len()..];
            rest.starts_with(|c: char| c.is_ascii_alphanumeric())
        })
    };
    below("/sys/class/net/") || below("/net/") && line.contains("/sys/devices/")
}
