//! The tool as a whole process, beside a running daemon in a cell of its own: what it prints, and how
//! it exits.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/live.rs"]
mod live;

use live::{Live, eventually, in_cell, tool_path};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

const RULES: &str = "KERNEL==\"lo\", ENV{SEEN}=\"$env{ACTION}\", TAG+=\"tagged\", RUN+=\"/bin/true\"\n";

/// Exit status, output and error output of the tool.
fn adm(words: &[&str]) -> (i32, String, String) {
    let output =
        Command::new(tool_path()).args(words).stdin(Stdio::null()).output().expect("starts the tool");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// Output of the tool, which must succeed.
fn said(words: &[&str]) -> String {
    let (code, out, error) = adm(words);
    assert_eq!(code, 0, "{words:?}: {out}{error}\n{}", live::log());
    out
}

#[test]
fn a_triggered_event_is_through_when_trigger_with_settle_ends() {
    in_cell(|| {
        let daemon = Live::start(RULES);
        let out = said(&["trigger", "--verbose", "--settle", "--action=add", "/sys/class/net/lo"]);
        assert_eq!(out, "/sys/devices/virtual/net/lo\nsettle /sys/devices/virtual/net/lo\n");
        assert_eq!(said(&["info", "-q", "property", "--property=SEEN", "/sys/class/net/lo"]), "SEEN=add\n");
        let uuid = said(&["trigger", "--uuid", "--wait-daemon", "-y", "lo", "--subsystem-match=net"]);
        assert_eq!(uuid.trim().split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{uuid}");
        said(&["settle", "--timeout=20"]);
        assert!(!Path::new("/run/udev/queue").exists());
        assert_eq!(said(&["info", "-q", "property", "--property=SEEN", "n1"]), "SEEN=change\n");
        assert_eq!(
            said(&["trigger", "--dry-run", "-v", "--tag-match=tagged"]),
            "/sys/devices/virtual/net/lo\n",
            "found by the tag index"
        );
        daemon.stop();
    });
}

/// Case F01 from the field, but for DEVLINKS: devices with nodes send their events to every cell. Those are in
/// `adm::trigger` and `adm_vs_debian.rs`.
#[test]
fn what_the_daemon_wrote_can_be_matched_as_it_is_printed() {
    in_cell(|| {
        let daemon = Live::start("KERNEL==\"lo\", TAG+=\"t1\", TAG+=\"t2\", ENV{A}=\"b=c\"\n");
        said(&["trigger", "--settle", "--action=add", "/sys/class/net/lo"]);
        let (printed, lo) = (said(&["info", "-q", "property", "n1"]), "/sys/devices/virtual/net/lo\n");
        let names = ["A", "TAGS", "CURRENT_TAGS", "USEC_INITIALIZED", "DEVPATH", "SUBSYSTEM", "IFINDEX"];
        for name in names {
            let property = printed.lines().find(|line| line.starts_with(&format!("{name}=")));
            let property = property.unwrap_or_else(|| panic!("{name} is in {printed}"));
            let matching = format!("--property-match={property}");
            assert!(said(&["trigger", "-n", "-v", &matching]).contains(lo), "{property}");
        }
        assert_eq!(said(&["trigger", "-n", "-v", "-p", "TAGS=:t1:t2:"]), lo);
        assert_eq!(said(&["trigger", "-n", "-v", "-p", "CURRENT_TAGS=*:t2:*"]), lo);
        daemon.stop();
    });
}

#[test]
fn control_steers_the_daemon_and_status_shows_it() {
    in_cell(|| {
        let mut daemon = Live::start(RULES);
        said(&["control", "--ping"]);
        said(&["control", "--log-level=debug", "--children-max=7", "--property=GLOBAL=1"]);
        let status: serde_json::Value = serde_json::from_str(&said(&["status", "--json"])).expect("JSON");
        assert_eq!((&status["log_level"], &status["children_max"]), (&"debug".into(), &7.into()));
        assert_eq!((&status["pid"], &status["ready"]), (&daemon.pid().into(), &true.into()));

        said(&["control", "--stop-exec-queue"]);
        said(&["trigger", "/sys/class/net/lo"]);
        let (code, _, error) = adm(&["settle", "--timeout=0"]);
        assert_eq!(code, 1, "an event waits: {error}");
        assert!(said(&["status"]).contains("0 running, 1 waiting"), "{}", said(&["status"]));
        said(&["control", "--start-exec-queue"]);
        said(&["settle"]);
        let links: serde_json::Value =
            serde_json::from_str(&said(&["links", "--json=pretty"])).expect("JSON");
        assert_eq!((&links[0]["name"], &links[0]["ifindex"]), (&"lo".into(), &1.into()));
        assert!(said(&["links"]).lines().nth(1).is_some_and(|line| line.contains(" lo ")));

        std::fs::write("/run/udev/rules.d/50-test.rules", "KERNEL==\"lo\", ENV{NEW}=\"1\"\n").unwrap();
        said(&["control", "--reload"]);
        said(&["trigger", "--settle", "/sys/class/net/lo"]);
        assert_eq!(said(&["info", "-q", "property", "--property=NEW", "n1"]), "NEW=1\n");

        assert_eq!(adm(&["control", "--exit"]), (0, String::new(), String::new()));
        eventually("the daemon ends", || !daemon.alive());
    });
}

#[test]
fn without_a_daemon_settle_has_nothing_to_wait_for_and_the_rest_fails() {
    in_cell(|| {
        assert_eq!(adm(&["settle"]), (0, String::new(), String::new()));
        for words in [
            &["control", "--reload"][..],
            &["control", "--ping"],
            &["status"],
            &["links", "--json"],
            &["trigger", "--wait-daemon=0.01", "/sys/class/net/lo"],
        ] {
            let (code, out, error) = adm(words);
            assert_eq!((code, &*out, error.lines().count()), (1, "", 1), "{words:?}: {error}");
        }
    });
}

#[test]
fn monitor_shows_both_sides_of_an_event_line_by_line_and_ends_at_sigterm() {
    in_cell(|| {
        let daemon = Live::start(RULES);
        let mut monitor = Command::new(tool_path())
            .args(["monitor", "--property", "--subsystem-match=net"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts the tool");
        let mut lines =
            BufReader::new(monitor.stdout.take().unwrap()).lines().map(|line| line.expect("text"));
        let heading: Vec<String> = lines.by_ref().take(4).collect();
        assert!(heading[1].starts_with("UDEV - ") && heading[2].starts_with("KERNEL - "), "{heading:?}");
        assert_eq!(heading[3], "");
        said(&["trigger", "/sys/class/net/lo"]);
        let mut block = || lines.by_ref().take_while(|line| !line.is_empty()).collect::<Vec<String>>();
        let (kernel, udev) = (block(), block());
        for (block, source) in [(&kernel, "KERNEL["), (&udev, "UDEV  [")] {
            assert!(block[0].starts_with(source), "{block:?}");
            assert!(block[0].ends_with("] change   /devices/virtual/net/lo (net)"), "{block:?}");
            assert_eq!(block[1], "ACTION=change");
        }
        assert!(udev.contains(&"SEEN=change".to_owned()) && !kernel.contains(&"SEEN=change".to_owned()));
        unsafe { libc::kill(monitor.id() as i32, libc::SIGTERM) };
        assert!(monitor.wait().expect("ends").success());
        daemon.stop();
    });
}

#[test]
fn rules_are_tested_on_a_real_device_and_leave_no_trace() {
    in_cell(|| {
        std::fs::write(
            "/run/udev/rules.d/50-test.rules",
            "KERNEL==\"lo\", ATTR{mtu}==\"65536\", PROGRAM=\"/bin/echo $name\", ENV{RESULT}=\"%c\"\n\
             KERNEL==\"lo\", ATTR{ifalias}=\"changed\", ATTR{[net/lo]flags}==\"0x9\", RUN+=\"/bin/false %k\"\n\
             KERNEL==\"null\", MODE=\"0600\", SYMLINK+=\"link\"\n",
        )
        .unwrap();
        let out = said(&["test", "/sys/class/net/lo"]);
        assert!(out.contains("\nRESULT=lo\n") && out.ends_with("run: '/bin/false lo'\n"), "{out}");
        assert_eq!(std::fs::read_to_string("/sys/class/net/lo/ifalias").unwrap().trim(), "");
        let json: serde_json::Value =
            serde_json::from_str(&said(&["test", "--json=pretty", "/dev/null"])).expect("JSON");
        assert_eq!(json["node"]["symlinks"][0], "/dev/link");
        assert!(!Path::new("/dev/link").exists() && !Path::new("/run/udev/data").exists());
        let (code, _, _) = adm(&["test-builtin", "path_id", "/sys/class/net/lo"]);
        assert_eq!(code, 1, "lo is nowhere on a bus");
    });
}

#[test]
fn a_reader_that_goes_away_ends_the_tool_quietly() {
    in_cell(|| {
        let mut tool = Command::new(tool_path())
            .args(["info", "--export-db"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts the tool");
        drop(tool.stdout.take());
        let mut error = String::new();
        tool.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        assert_eq!((tool.wait().unwrap().code(), &*error), (Some(0), ""));
    });
}

#[test]
fn what_the_tool_is_called_decides_nothing_of_what_it_does() {
    in_cell(|| {
        let call = |name: &str, words: &[&str]| {
            let path = Path::new("/run").join(name);
            let _ = std::os::unix::fs::symlink(tool_path().canonicalize().unwrap(), &path);
            let output = Command::new(path).args(words).output().expect("starts");
            String::from_utf8(output.stdout).expect("text")
        };
        assert_eq!(call("udevadm", &["--version"]), call("mudev", &["adm", "--version"]));
        assert_eq!(call("udevadm", &["info", "-q", "path", "n1"]), "/devices/virtual/net/lo\n");
    });
}

#[test]
fn who_has_rules_read_again_hears_what_is_wrong_with_them() {
    in_cell(|| {
        let daemon = Live::start(RULES);
        assert_eq!(adm(&["control", "--reload"]), (0, String::new(), String::new()));
        let file = "/run/udev/rules.d/50-test.rules";
        std::fs::write(file, "KERNEL==\"lo\", FOO=\"1\"\nTAG+=\"a\"\n").expect("written");
        // A second time too: they are still wrong.
        for _ in 0..2 {
            let (code, out, error) = adm(&["control", "--reload"]);
            assert_eq!((code, &*out), (0, ""), "{error}");
            assert!(error.starts_with(&format!("{file}:1:")) && !error.contains(":2:"), "{error}");
        }
        assert_eq!(adm(&["control", "--reload", "--timeout=0"]), (0, String::new(), String::new()));
        let bad: String = (0..20_000).map(|n| format!("KERNEL==\"x{n}\", FOO=\"1\"\n")).collect();
        std::fs::write(file, bad).expect("written");
        let (code, _, error) = adm(&["control", "--reload"]);
        assert!(code == 0 && error.len() < 300_000, "bounded: {}", error.len());
        assert!(error.trim_end().ends_with(" more; see the log of the daemon"));
        daemon.stop();
    });
}
