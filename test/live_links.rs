//! The link table of the running daemon when messages are many, long or lost, and what becomes of requests that
//! the kernel keeps waiting. The daemon is stopped (SIGSTOP) while links change, and its receive buffer made
//! small from outside, so that few changes do what many would.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/live.rs"]
mod live;
#[path = "support/rtnl.rs"]
mod rtnl;

use live::{Live, eventually, fresh_uuid, helpers, in_cell, ip, run, tool_path, write_uevent};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

const NET: &str = "/devices/virtual/net";

/// Tells the MTU by the table.
const MTU_RULE: &str = "SUBSYSTEM==\"net\", ENV{MTU}=\"$attr{mtu}\"\n";

/// Runs many commands of `ip` in one process.
fn ip_batch(lines: &[String]) {
    let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().expect("starts ip");
    ip.stdin.take().expect("a pipe").write_all(lines.join("\n").as_bytes()).expect("writes");
    assert!(ip.wait().expect("ends").success(), "ip -batch");
}

fn signal(live: &Live, signal: i32) {
    assert_eq!(unsafe { libc::kill(live.pid() as i32, signal) }, 0);
}

/// Stops the daemon; when this returns it does not run.
fn stop(live: &Live) {
    signal(live, libc::SIGSTOP);
    eventually("the daemon is stopped", || state_of(live.pid() as i32) == Some('T'));
}

/// The letter of /proc/PID/stat.
fn state_of(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim().chars().next()
}

/// The daemon's socket of notifications: of its netlink sockets the one that is in RTNLGRP_LINK.
fn link_socket(live: &Live) -> OwnedFd {
    let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, live.pid(), 0) } as i32;
    let pidfd = unsafe { OwnedFd::from_raw_fd(cell::check(pidfd).expect("opens the daemon")) };
    for entry in std::fs::read_dir(format!("/proc/{}/fd", live.pid())).expect("lists").flatten() {
        let number: i32 = entry.file_name().to_str().and_then(|n| n.parse().ok()).expect("a number");
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0) } as i32;
        let Ok(fd) = cell::check(fd) else { continue };
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let option = |level, name| {
            let (mut value, mut length) = (0i32, 4 as libc::socklen_t);
            let value_at = (&raw mut value).cast();
            let got = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value_at, &raw mut length) };
            (got == 0).then_some(value)
        };
        let is_route = option(libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(libc::AF_NETLINK)
            && option(libc::SOL_SOCKET, libc::SO_PROTOCOL) == Some(libc::NETLINK_ROUTE);
        if is_route && option(libc::SOL_NETLINK, libc::NETLINK_LIST_MEMBERSHIPS).is_some_and(|g| g & 1 != 0) {
            return fd;
        }
    }
    panic!("the daemon has no socket for links");
}

fn set_receive_buffer(socket: &OwnedFd, bytes: i32) {
    let (value, length) = ((&raw const bytes).cast(), 4);
    let name = libc::SO_RCVBUFFORCE;
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, value, length) };
    cell::check(set).expect("sets the buffer");
}

fn tool(command: &str) -> Value {
    let output = Command::new(tool_path()).args([command, "--json=short"]).output().expect("runs mudevadm");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// ifindex -> name, MTU, alias.
type Rows = BTreeMap<u64, (String, u64, String)>;

/// As the daemon knows them, or the kernel.
fn rows(list: &Value, names: [&str; 3]) -> Rows {
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or("").to_owned();
    let row = |row: &Value| {
        let ifindex = row["ifindex"].as_u64().expect("a number");
        let name = text(row, names[0]);
        (ifindex, (name, row["mtu"].as_u64().expect("a number"), text(row, names[2])))
    };
    list.as_array().expect("a list").iter().map(row).collect()
}

fn known_rows() -> Rows {
    rows(&tool("links"), ["name", "mtu", "alias"])
}

fn kernel_rows() -> Rows {
    let list = run("ip", &["-d", "-j", "link"]);
    rows(&serde_json::from_str(&list).expect("JSON"), ["ifname", "mtu", "ifalias"])
}

/// Makes so many pairs, up, so that all their changes are announced.
fn make_pairs(count: usize) {
    let add = |n| [format!("link add a{n} up type veth peer name b{n}"), format!("link set b{n} up")];
    ip_batch(&(0..count).flat_map(add).collect::<Vec<_>>());
}

/// Changes MTU and alias of all pairs so many times.
fn change_pairs(count: usize, times: usize) {
    let change = |time: usize| {
        (0..count).flat_map(move |n| {
            let mtu = 1000 + time * 7 + n % 50;
            [
                format!("link set a{n} mtu {mtu}"),
                format!("link set b{n} mtu {mtu}"),
                format!("link set a{n} alias x{time}"),
            ]
        })
    };
    ip_batch(&(0..times).flat_map(change).collect::<Vec<_>>());
}

fn quiet() {
    for which in ["all", "default"] {
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
    }
}

#[test]
fn after_an_overrun_with_thousands_of_messages_waiting_all_rows_are_the_kernels() {
    in_cell(|| {
        quiet();
        const PAIRS: usize = 60;
        make_pairs(PAIRS);
        let mut live = Live::start(MTU_RULE);
        assert_eq!(tool("status")["link_overruns"], 0);
        stop(&live);
        // Room for some 10,000 messages: more than a turn reads.
        set_receive_buffer(&link_socket(&live), 12 << 20);
        change_pairs(PAIRS, 80);
        ip("link del a7");
        ip("link set a8 name renamed8");
        ip("link set a9 mtu 1399");
        signal(&live, libc::SIGCONT);
        eventually("the table is right again", || {
            let status = tool("status");
            status["links_stale"] == false && status["link_overruns"].as_u64() > Some(0)
        });
        assert_eq!(known_rows(), kernel_rows());
        assert!(!known_rows().values().any(|(name, ..)| name == "a7" || name == "b7"));
        // And events say so.
        let kernel = kernel_rows();
        for n in [0, 9, PAIRS - 1] {
            let name = format!("a{n}");
            write_uevent(&format!("/sys/class/net/{name}"), "change");
            let message = live.announced("change", &format!("{NET}/{name}"));
            let (_, mtu, _) = kernel.values().find(|(known, ..)| *known == name).expect("is there");
            assert_eq!(message.get("MTU"), mtu.to_string(), "{name}");
        }
        live.stop();
    });
}

#[test]
fn an_event_is_judged_by_what_the_kernel_sent_before_it_however_much_waits() {
    in_cell(|| {
        quiet();
        const PAIRS: usize = 40;
        make_pairs(PAIRS);
        let mut live = Live::start(MTU_RULE);
        stop(&live);
        change_pairs(PAIRS, 60);
        ip("link set a3 mtu 1311");
        write_uevent("/sys/class/net/a3", "change");
        signal(&live, libc::SIGCONT);
        let message = live.announced("change", &format!("{NET}/a3"));
        assert_eq!(message.get("MTU"), "1311");
        assert_eq!(tool("status")["link_overruns"], 0);
        live.stop();
    });
}

#[test]
fn links_with_more_alternative_names_than_a_buffer_holds_are_known() {
    in_cell(|| {
        quiet();
        let alt_names = |prefix: &str| {
            let name = |n: usize| format!("altname {prefix}{n:0>125}", prefix = prefix);
            let names: Vec<String> = (0..490).map(name).collect();
            names.chunks(7).map(|names| names.join(" ")).collect::<Vec<_>>()
        };
        let give = |link: &str, prefix: &str| {
            let line = |names: &String| format!("link property add dev {link} {names}");
            ip_batch(&alt_names(prefix).iter().map(line).collect::<Vec<_>>());
        };
        ip("link add a0 type veth peer name b0");
        give("a0", "a");
        let count = |name: &str| {
            let list = tool("links");
            let row = list.as_array().expect("a list").iter().find(|row| row["name"] == name).cloned();
            row.map_or(0, |row| row["alt_names"].as_array().map_or(0, Vec::len))
        };
        // It becomes ready.
        let mut live = Live::start(MTU_RULE);
        assert_eq!(count("a0"), 490);
        // The messages of a link that is up.
        ip("link set b0 up");
        give("b0", "b");
        eventually("the other end is known", || count("b0") == 490);
        ip("link set b0 mtu 1304");
        write_uevent("/sys/class/net/b0", "change");
        assert_eq!(live.announced("change", &format!("{NET}/b0")).get("MTU"), "1304");
        // One row by request, of a link that is down, and by the tool.
        let test = run(tool_path().to_str().expect("text"), &["test", "/sys/class/net/a0"]);
        assert!(test.contains("MTU=1500"), "{test}");
        live.stop();
    });
}

/// Renames a link when `change` says so.
const RENAME_RULE: &str = "SUBSYSTEM==\"net\", ENV{SYNTH_ARG_TO}==\"?*\", NAME=\"$env{SYNTH_ARG_TO}\"\n";

/// Asks for a rename by a synthetic event.
fn ask_rename(name: &str, to: &str) {
    write_uevent(&format!("/sys/class/net/{name}"), &format!("add {} TO={to}", fresh_uuid()));
}

fn is_there(name: &str) -> bool {
    std::path::Path::new(&format!("/sys/class/net/{name}")).exists()
}

/// Of a link: events of other devices come from the whole machine.
fn is_add(message: &cell::Message) -> bool {
    message.get("ACTION") == "add" && message.get("SUBSYSTEM") == "net"
}

/// RTNL, or None with the reason printed.
fn hold() -> Option<rtnl::Held> {
    rtnl::hold().inspect_err(|error| println!("skipped, RTNL cannot be held here: {error}")).ok()
}

/// Waits until the request helper is in the kernel's hands.
fn helper_in_the_kernel(live: &Live) -> i32 {
    let mut found = 0;
    eventually("the helper waits for RTNL", || {
        found = helpers(live.pid()).into_iter().find(|&pid| state_of(pid) == Some('D')).unwrap_or(0);
        found != 0
    });
    found
}

#[test]
fn a_rename_that_was_announced_as_failed_is_not_made_later_and_one_under_way_is_waited_for() {
    in_cell(|| {
        quiet();
        for n in 0..2 {
            ip(&format!("link add l{n} type veth peer name p{n}"));
        }
        let mut live = Live::start_with(RENAME_RULE, |command| {
            command.arg("--event-timeout=1");
        });
        let Some(held) = hold() else { return live.stop() };
        ask_rename("l0", "lan0");
        helper_in_the_kernel(&live);
        ask_rename("l1", "lan1");
        // The second comes first: nobody waits for the first one's end but itself.
        let message = live.announced_that("the rename that was not begun", is_add);
        assert_eq!((message.get("DEVPATH"), message.get("INTERFACE")), (&*format!("{NET}/l1"), "l1"));
        drop(held);
        let message = live.announced_that("the rename under way", is_add);
        assert_eq!((message.get("DEVPATH"), message.get("INTERFACE")), (&*format!("{NET}/lan0"), "lan0"));
        live.settled();
        // Another request has been through since: the helper has done all it had.
        ask_rename("p1", "q1");
        live.announced("add", &format!("{NET}/q1"));
        assert!(is_there("l1") && is_there("lan0") && !is_there("lan1") && !is_there("l0"));
        live.stop();
    });
}

#[test]
fn a_stopped_helper_holds_up_neither_events_nor_the_end() {
    in_cell(|| {
        quiet();
        ip("link add l0 type veth peer name p0");
        let mut live = Live::start_with(RENAME_RULE, |command| {
            command.arg("--event-timeout=1");
        });
        // There is one when something was asked for.
        ask_rename("p0", "q0");
        live.announced("add", &format!("{NET}/q0"));
        let stop = || {
            let helpers = live::helpers(live.pid());
            assert!(!helpers.is_empty());
            helpers.iter().for_each(|&helper| assert_eq!(unsafe { libc::kill(helper, libc::SIGSTOP) }, 0));
        };
        stop();
        ask_rename("l0", "lan0");
        let message = live.announced_that("the rename that was not begun", is_add);
        assert_eq!((message.get("INTERFACE"), message.get("UDEV_WORKER_ERRNO_NAME")), ("l0", "ETIMEDOUT"));
        assert!(is_there("l0"));
        live.stop();
    });
}

/// Long before the time of its event, which is three minutes, is over.
#[test]
fn a_helper_that_somebody_stopped_is_told_to_go_on() {
    in_cell(|| {
        quiet();
        ip("link add l0 type veth peer name p0");
        let mut live = Live::start(RENAME_RULE);
        ask_rename("p0", "q0");
        live.announced("add", &format!("{NET}/q0"));
        for helper in live::helpers(live.pid()) {
            assert_eq!(unsafe { libc::kill(helper, libc::SIGSTOP) }, 0);
            eventually("the helper is stopped", || state_of(helper) == Some('T'));
        }
        ask_rename("l0", "lan0");
        live.announced("add", &format!("{NET}/lan0"));
        live.stop();
    });
}

#[test]
fn the_daemon_ends_though_the_kernel_is_at_a_change_without_an_end() {
    in_cell(|| {
        quiet();
        ip("link add l0 type veth peer name p0");
        let live = Live::start_with(RENAME_RULE, |command| {
            command.arg("--event-timeout=1");
        });
        let Some(held) = hold() else { return live.stop() };
        ask_rename("l0", "lan0");
        helper_in_the_kernel(&live);
        live.stop();
        assert!(live::log().contains("Ending in the middle of an event"), "{}", live::log());
        drop(held);
    });
}

#[test]
fn what_a_killed_helper_was_at_is_done_by_the_next_and_told_as_it_is() {
    in_cell(|| {
        quiet();
        ip("link add l0 type veth peer name p0");
        std::fs::write("/sys/class/net/p0/netdev_group", "77").expect("sets the group");
        let rules = format!(
            "{RENAME_RULE}ACTION==\"change\", SUBSYSTEM==\"net\", ENV{{GROUP}}=\"$attr{{netdev_group}}\"\n"
        );
        let mut live = Live::start(&rules);
        for what in ["a rename", "a question"] {
            let Some(held) = hold() else { return live.stop() };
            match what {
                "a rename" => ask_rename("l0", "lan0"),
                _ => write_uevent("/sys/class/net/p0", "change"),
            }
            let helper = helper_in_the_kernel(&live);
            assert_eq!(unsafe { libc::kill(helper, libc::SIGKILL) }, 0);
            drop(held);
            match what {
                "a rename" => {
                    let message = live.announced_that(what, is_add);
                    assert_eq!(message.get("INTERFACE"), "lan0");
                    assert!(is_there("lan0") && !is_there("l0"));
                }
                _ => assert_eq!(live.announced("change", &format!("{NET}/p0")).get("GROUP"), "77"),
            }
            assert_ne!(state_of(helper), Some('S'), "it was killed");
        }
        live.stop();
    });
}

#[test]
fn settings_are_compared_with_what_the_kernel_has() {
    in_cell(|| {
        quiet();
        std::fs::create_dir_all("/run/systemd/network").expect("makes the folder");
        std::fs::write(
            "/run/systemd/network/10-test.link",
            "[Match]\nOriginalName=l0\n[Link]\nAlias=wanted\nMTUBytes=1400\nAlternativeName=other\n",
        )
        .expect("writes the file");
        let rules = "SUBSYSTEM==\"net\", IMPORT{builtin}=\"net_setup_link\"\n";
        let mut live = Live::start(rules);
        let file = |name: &str| {
            let text = std::fs::read_to_string(format!("/sys/class/net/l0/{name}")).expect("reads");
            text.trim().to_owned()
        };
        let names = || run("ip", &["link", "show", "l0"]).contains("altname other");
        ip("link add l0 type veth peer name p0");
        live.announced("add", &format!("{NET}/l0"));
        assert_eq!((file("ifalias"), file("mtu"), names()), ("wanted".into(), "1400".into(), true));
        // The message of the MTU brings the alias to the table; then it changes without one, the link is down.
        ip("link set l0 mtu 1300");
        ip("link set l0 mtu 1400");
        eventually("the table knows", || known_rows().values().any(|row| row.2 == "wanted" && row.1 == 1400));
        ip("link set l0 alias changed");
        ip("link property del dev l0 altname other");
        assert!(!names());
        write_uevent("/sys/class/net/l0", "add");
        live.announced("add", &format!("{NET}/l0"));
        assert_eq!((file("ifalias"), names()), ("wanted".into(), true));
        live.stop();
    });
}

/// The alias and the group of a link that is down change without an announcement.
#[test]
fn an_event_sees_what_it_has_changed_itself_on_its_link() {
    in_cell(|| {
        std::fs::create_dir_all("/run/systemd/network").expect("makes the folder");
        let file = "[Match]\nOriginalName=file\n[Link]\nAlias=of the file\n";
        std::fs::write("/run/systemd/network/10-alias.link", file).expect("writes a .link file");
        let rules = "SUBSYSTEM!=\"net\", GOTO=\"end\"\n\
            KERNEL==\"write\", ATTR{netdev_group}=\"9\"\n\
            KERNEL==\"program\", PROGRAM==\"/bin/sh -c 'echo 9 >/sys/class/net/program/netdev_group'\"\n\
            ENV{GROUP}=\"$attr{netdev_group}\"\n\
            IMPORT{builtin}=\"net_setup_link\"\n\
            ENV{ALIAS}=\"$attr{ifalias}\"\n\
            LABEL=\"end\"\n";
        let mut live = Live::start(rules);
        for (name, group, alias) in [("write", "9", ""), ("program", "9", ""), ("file", "0", "of the file")] {
            ip(&format!("link add {name} type bridge"));
            let event = live.announced("add", &format!("{NET}/{name}"));
            assert_eq!((event.get("GROUP"), event.get("ALIAS")), (group, alias), "{name}");
        }
    });
}
