//! Network interfaces on the real kernel: records, announcements, renames. Cases O11, O12 and O15 of the open
//! bug cases are here.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/live.rs"]
mod live;

use live::{Live, fresh_uuid, ifindex, in_cell, ip, record, run, write_uevent};

const NET: &str = "/devices/virtual/net";

#[test]
fn the_record_stands_before_the_announcement() {
    in_cell(|| {
        let mut live = Live::start("SUBSYSTEM==\"net\", ENV{SEEN}=\"$attr{mtu}\", TAG+=\"t\"\n");
        for n in 0..20 {
            ip(&format!("link add a{n} type veth peer name b{n}"));
            for _ in 0..2 {
                let message = live.announced_that("add of a link", |m| {
                    m.get("ACTION") == "add"
                        && m.get("SUBSYSTEM") == "net"
                        && m.get("INTERFACE").ends_with(&n.to_string())
                });
                let id = format!("n{}", message.get("IFINDEX"));
                assert!(record(&id).contains("E:SEEN=1500\n"), "{}", record(&id));
                assert!(std::path::Path::new(&format!("/run/udev/tags/t/{id}")).exists());
                assert_eq!(message.get("SEEN"), "1500");
                assert_eq!(message.get("TAGS"), ":t:");
                assert_eq!(message.get("CURRENT_TAGS"), ":t:");
                assert!(!message.get("USEC_INITIALIZED").is_empty());
                assert!(record(&id).contains(&format!("I:{}\n", message.get("USEC_INITIALIZED"))));
            }
        }
        live.stop();
    });
}

#[test]
fn every_event_of_the_kernel_is_announced_once_and_in_order_per_device() {
    in_cell(|| {
        let mut live = Live::start("SUBSYSTEM==\"net\", ENV{X}=\"1\"\n");
        for n in 0..50 {
            ip(&format!("link add a{n} type veth peer name b{n}"));
        }
        for n in 0..50 {
            ip(&format!("link del a{n}"));
        }
        let messages = live.settled();
        let mut numbers = std::collections::HashSet::new();
        let mut last = std::collections::HashMap::new();
        for message in messages.iter().filter(|m| m.get("DEVPATH").contains("/net/")) {
            let number: u64 = message.get("SEQNUM").parse().expect("a number");
            assert!(numbers.insert(number), "{number} came twice");
            let before = last.insert(message.get("DEVPATH").to_owned(), number);
            assert!(before.is_none_or(|b| b < number), "{} out of order", message.title());
        }
        // What was added and removed before its turn may cancel out; the first ones cannot.
        assert!(numbers.len() >= 20, "{} events", numbers.len());
        let left: Vec<_> = std::fs::read_dir("/run/udev/data").expect("data").flatten().collect();
        assert!(left.iter().all(|e| !e.file_name().to_string_lossy().starts_with('n')
            || record(&e.file_name().to_string_lossy()).contains("E:X=1")));
        let interfaces = left.iter().filter(|e| e.file_name().to_string_lossy().starts_with('n')).count();
        assert!(interfaces <= 1, "{interfaces} records are left, at most that of lo may be");
        live.stop();
    });
}

#[test]
fn a_rule_renames_an_interface() {
    in_cell(|| {
        let rules = "ACTION==\"add\", SUBSYSTEM==\"net\", KERNEL==\"e0\", NAME=\"e9\", ENV{MINE}=\"1\"\n";
        let mut live = Live::start(rules);
        ip("link add e0 type veth peer name p0");
        let add =
            live.announced_that("add of e9", |m| m.get("ACTION") == "add" && m.get("INTERFACE") == "e9");
        assert_eq!(add.get("DEVPATH"), format!("{NET}/e9"));
        assert_eq!(add.get("INTERFACE_OLD"), "e0");
        assert_eq!(add.get("ID_RENAMING"), "1");
        assert_eq!(add.get("MINE"), "1");
        let moved = live.announced("move", &format!("{NET}/e9"));
        assert_eq!(moved.get("DEVPATH_OLD"), format!("{NET}/e0"));
        assert_eq!(moved.get("ID_RENAMING"), "");
        assert_eq!(moved.get("INTERFACE"), "e9");
        let record = record(&format!("n{}", ifindex("e9")));
        assert!(!record.contains("ID_RENAMING"), "{record}");
        live.stop();
    });
}

#[test]
fn o11_interface_after_several_renames() {
    in_cell(|| {
        let mut live = Live::start("SUBSYSTEM==\"net\", ENV{SEEN}=\"$env{INTERFACE}\"\n");
        ip("link add d0 type veth peer name p0");
        live.announced("add", &format!("{NET}/d0"));
        let id = format!("n{}", ifindex("d0"));
        for (old, new) in [("d0", "d1"), ("d1", "d2"), ("d2", "d3")] {
            ip(&format!("link set {old} name {new}"));
            let moved = live.announced("move", &format!("{NET}/{new}"));
            assert_eq!(moved.get("INTERFACE"), new);
            assert_eq!(moved.get("DEVPATH_OLD"), format!("{NET}/{old}"));
            assert_eq!(moved.get("SEEN"), new);
            let text = record(&id);
            assert!(text.contains(&format!("E:SEEN={new}\n")), "{text}");
            for key in ["INTERFACE", "DEVPATH", "ACTION", "SEQNUM"] {
                assert!(!text.contains(&format!("E:{key}=")), "{text}");
            }
        }
        live.stop();
    });
}

#[test]
fn o12_a_failed_rename_keeps_the_properties() {
    in_cell(|| {
        let rules = "\
            SUBSYSTEM!=\"net\", GOTO=\"end\"\n\
            KERNEL==\"src0\", ENV{B}=\"1\"\n\
            KERNEL==\"src0\", ENV{D}=\"1\", NAME=\"taken0\"\n\
            KERNEL==\"src0\", ENV{A}=\"1\", TAG+=\"x\"\n\
            LABEL=\"end\"\n";
        let mut live = Live::start(rules);
        ip("link add taken0 type veth peer name p1");
        live.announced("add", &format!("{NET}/taken0"));
        ip("link add src0 type veth peer name p0");
        let message = live.announced("add", &format!("{NET}/src0"));
        let id = format!("n{}", ifindex("src0"));
        let text = record(&id);
        for line in ["E:B=1\n", "E:D=1\n", "E:A=1\n", "G:x\n"] {
            assert!(text.contains(line), "{line:?} is missing:\n{text}");
        }
        assert!(!text.contains("ID_RENAMING"), "{text}");
        assert!(
            std::path::Path::new(&format!("/run/udev/tags/x/{id}")).exists(),
            "no entry in the tag index"
        );
        for (key, value) in [
            ("INTERFACE", "src0"),
            ("INTERFACE_OLD", ""),
            ("ID_RENAMING", ""),
            ("UDEV_WORKER_FAILED", "1"),
            ("UDEV_WORKER_ERRNO", "17"),
            ("UDEV_WORKER_ERRNO_NAME", "EEXIST"),
            ("B", "1"),
            ("A", "1"),
        ] {
            assert_eq!(message.get(key), value, "{key}");
        }
        live.stop();
    });
}

#[test]
fn o15_a_trigger_with_uuid_is_answered_once_under_the_new_name() {
    in_cell(|| {
        // The rule of the case fires for the triggered `add` only.
        let rules = "ACTION==\"add\", KERNEL==\"e0\", ENV{SYNTH_UUID}==\"?*\", NAME=\"e9\"\n";
        let mut live = Live::start(rules);
        ip("link add e0 type veth peer name p0");
        live.announced("add", &format!("{NET}/e0"));
        let uuid = fresh_uuid();
        write_uevent("/sys/class/net/e0", &format!("add {uuid} A=1 BC=2x"));
        let messages = {
            let first = live.announced_that("the answer", |m| m.get("SYNTH_UUID") == uuid);
            let mut all = vec![first];
            all.extend(live.settled());
            all
        };
        let answers: Vec<_> = messages.iter().filter(|m| m.get("SYNTH_UUID") == uuid).collect();
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].title(), format!("add {NET}/e9"));
        assert_eq!(answers[0].get("SYNTH_ARG_A"), "1");
        assert_eq!(answers[0].get("SYNTH_ARG_BC"), "2x");
        let moved =
            messages.iter().find(|m| m.title() == format!("move {NET}/e9")).expect("the kernel's move");
        assert_eq!(moved.get("SYNTH_UUID"), "");
        live.stop();
    });
}

#[test]
fn a_trigger_for_a_device_that_goes_away_is_answered_too() {
    in_cell(|| {
        let mut live = Live::start("KERNEL==\"gone0\", PROGRAM==\"/bin/sleep 0.2\"\n");
        ip("link add gone0 type veth peer name p0");
        let uuid = fresh_uuid();
        write_uevent("/sys/class/net/gone0", &format!("change {uuid}"));
        ip("link del gone0");
        live.announced_that("the answer", |m| m.get("SYNTH_UUID") == uuid);
        live.announced("remove", &format!("{NET}/gone0"));
        live.stop();
    });
}

#[test]
fn an_interface_that_moves_between_namespaces_keeps_no_record_here() {
    in_cell(|| {
        let mut live = Live::start("SUBSYSTEM==\"net\", ENV{X}=\"1\"\n");
        ip("link add here0 type veth peer name there0");
        live.announced("add", &format!("{NET}/there0"));
        let id = format!("n{}", ifindex("there0"));
        assert!(record(&id).contains("E:X=1"));
        let mut other = std::process::Command::new("unshare")
            .args(["-n", "cat"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("a namespace");
        let target = other.id().to_string();
        let same = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let ours = std::fs::read_link("/proc/thread-self/ns/net").ok();
        live::eventually("the other namespace is there", || same(&target) != ours);
        ip(&format!("link set there0 netns {target}"));
        live.announced("remove", &format!("{NET}/there0"));
        assert_eq!(record(&id), "");
        drop(other.stdin.take());
        let _ = other.wait();
        live.stop();
    });
}

#[test]
fn altnames_mtu_and_changes_leave_the_table_right() {
    in_cell(|| {
        let mut live = Live::start(
            "SUBSYSTEM==\"net\", ENV{MTU}=\"$attr{mtu}\", ENV{OP}=\"$attr{operstate}\", ENV{ALIAS}=\"$attr{ifalias}\"\n",
        );
        ip("link add m0 type veth peer name m1");
        live.announced("add", &format!("{NET}/m0"));
        ip("link set m0 mtu 1234 alias hello up");
        ip("link set m1 up");
        let uuid = fresh_uuid();
        write_uevent("/sys/class/net/m0", &format!("change {uuid}"));
        let message = live.announced_that("change", |m| m.get("SYNTH_UUID") == uuid);
        assert_eq!(message.get("MTU"), "1234");
        assert_eq!(message.get("ALIAS"), "hello");
        assert_eq!(
            message.get("OP"),
            std::fs::read_to_string("/sys/class/net/m0/operstate").expect("sysfs").trim()
        );
        live.stop();
    });
}

#[test]
fn the_tool_sees_what_the_daemon_wrote() {
    in_cell(|| {
        let mut live = Live::start("SUBSYSTEM==\"net\", ENV{TOLD}=\"yes\"\n");
        ip("link add t0 type veth peer name t1");
        let tool = live::tool_path();
        let tool = tool.to_str().expect("plain");
        run(tool, &["settle", "--timeout=10"]);
        live.announced("add", &format!("{NET}/t0"));
        let shown = run(tool, &["info", "-q", "property", "/sys/class/net/t0"]);
        assert!(shown.lines().any(|l| l == "TOLD=yes"), "{shown}");
        run(tool, &["control", "--ping"]);
        let links = run(tool, &["links"]);
        assert!(links.contains("t0") && links.contains("t1"), "{links}");
        let status: serde_json::Value =
            serde_json::from_str(&run(tool, &["status", "--json"])).expect("JSON");
        assert!(status.is_object());
        live.stop();
    });
}

/// Row 68 of the situations, as 262 does it: the program gets the signal, the token is false, the rules go on.
#[test]
fn a_program_that_takes_too_long_gets_the_signal_of_the_settings() {
    in_cell(|| {
        let rules = "\
            KERNEL==\"slow0\", PROGRAM!=\"/bin/sh -c 'trap \\\"echo told >/run/told; exit 1\\\" ABRT; while :; do sleep 0.05; done'\", ENV{WENT_ON}=\"1\"\n";
        let mut live = Live::start_with(rules, |c| {
            c.args(["--event-timeout=1", "--timeout-signal=SIGABRT"]);
        });
        ip("link add slow0 type veth peer name p0");
        let add = live.announced("add", &format!("{NET}/slow0"));
        assert_eq!(add.get("WENT_ON"), "1");
        assert_eq!(add.get("UDEV_WORKER_FAILED"), "");
        live::eventually("the program was told by SIGABRT", || std::path::Path::new("/run/told").exists());
        live.stop();
    });
}

/// Row 69.
#[test]
fn a_property_of_the_daemon_is_seen_by_rules_until_it_is_taken_back() {
    in_cell(|| {
        let rules = "ENV{FOO}==\"?*\", ENV{SEEN}=\"$env{FOO}\"\nENV{FOO}==\"\", ENV{SEEN}=\"nothing\"\n";
        let mut live = Live::start(rules);
        ip("link add g0 type veth peer name g1");
        live.announced("add", &format!("{NET}/g0"));
        let tool = live::tool_path();
        let tool = tool.to_str().expect("plain");
        let mut seen_after = |property: Option<&str>| {
            if let Some(property) = property {
                run(tool, &["control", &format!("--property={property}")]);
            }
            let uuid = live::fresh_uuid();
            live::write_uevent("/sys/class/net/g0", &format!("change {uuid}"));
            live.announced_that("change", |m| m.get("SYNTH_UUID") == uuid).get("SEEN").to_owned()
        };
        assert_eq!(seen_after(None), "nothing");
        assert_eq!(seen_after(Some("FOO=one")), "one");
        assert_eq!(seen_after(Some("FOO=two words")), "two words");
        assert_eq!(seen_after(Some("FOO=")), "nothing");
        live.stop();
    });
}

/// Row 70: more than the 8 KiB that old receivers take.
#[test]
fn a_hundred_properties_of_a_hundred_bytes_are_all_announced() {
    in_cell(|| {
        let rules: String = (0..100).map(|n| format!("ENV{{P{n}}}=\"{n:0>100}\"\n")).collect();
        let mut live = Live::start(&rules);
        ip("link add w0 type veth peer name w1");
        let add = live.announced("add", &format!("{NET}/w0"));
        for n in 0..100 {
            assert_eq!(add.get(&format!("P{n}")), format!("{n:0>100}"));
        }
        live.stop();
    });
}

/// Bad names in rules and events: nothing outside the folders is touched, and the rest of the line stands.
#[test]
fn names_that_lead_elsewhere_lead_nowhere() {
    in_cell(|| {
        let rules = b"KERNEL==\"n0\", SYMLINK+=\"../../run/evil\", TAG+=\"../evil\", TAG+=\"good\", ENV{BYTES}=\"a\xff b\xc3\xa4\", ENV{N}=\"$attr{../../../../etc/hostname}\"\n";
        std::fs::create_dir_all("/run/udev/rules.d").expect("the folder");
        std::fs::write("/run/udev/rules.d/40-bytes.rules", rules).expect("writes rules");
        let mut live = Live::start("ENV{FINE}=\"1\"\n");
        ip("link add n0 type veth peer name n1");
        let add = live.announced("add", &format!("{NET}/n0"));
        assert_eq!((add.get("FINE"), add.get("TAGS"), add.get("N")), ("1", ":good:", ""));
        assert!(!std::path::Path::new("/run/evil").exists());
        assert!(!std::path::Path::new("/run/udev/evil").exists());
        live.stop();
    });
}

/// Rules are read again when told to, and by themselves; when none can be read the old ones stay.
#[test]
fn changed_rules_hold_from_the_next_event() {
    in_cell(|| {
        let mut live = Live::start("ENV{RULES}=\"first\"\n");
        ip("link add c0 type veth peer name c1");
        let tool = live::tool_path();
        let tool = tool.to_str().expect("plain");
        let rules = std::path::Path::new("/run/udev/rules.d/50-test.rules");
        let mut now = || {
            let uuid = live::fresh_uuid();
            live::write_uevent("/sys/class/net/c0", &format!("change {uuid}"));
            live.announced_that("change", |m| m.get("SYNTH_UUID") == uuid).get("RULES").to_owned()
        };
        assert_eq!(now(), "first");
        std::fs::write(rules, "ENV{RULES}=\"second\"\n").expect("writes rules");
        run(tool, &["control", "--reload"]);
        assert_eq!(now(), "second");
        std::fs::write(rules, "ENV{RULES}=\"by itself\"\n").expect("writes rules");
        live::eventually("the change is seen", || now() == "by itself");
        // The only file cannot be read: it is larger than any file of rules may be.
        let file = std::fs::File::create(rules).expect("makes the file anew");
        file.set_len(17 << 20).expect("a sparse file");
        run(tool, &["control", "--reload"]);
        assert_eq!(now(), "by itself");
        assert!(live::log().contains("the old ones stay in force"), "{}", live::log());
        std::fs::write(rules, "ENV{RULES}=\"last\"\n").expect("writes rules");
        run(tool, &["control", "--reload"]);
        assert_eq!(now(), "last");
        live.stop();
    });
}
