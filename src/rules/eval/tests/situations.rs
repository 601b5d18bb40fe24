//! The situations of rules.md 15.2 that are the evaluator's, and the tables of sections 3 to 8. The
//! number in front of a name is that of the situation.

use super::*;
use crate::model::Errno;
use crate::model::need::Exit;
use crate::model::record::Record;
use crate::rules::ask::{BuiltinResult, Subject};
use crate::rules::outcome::Watch;

/// Which of these conditions hold on an event: each is the only match of its line.
fn holding<'c>(conditions: &[&'c str], event: &Event, world: &MemoryWorld) -> Vec<&'c str> {
    let rules: String =
        conditions.iter().enumerate().map(|(i, c)| format!("{c}, ENV{{C{i}}}=\"1\"\n")).collect();
    let seen = run(&rules, event, world);
    assert_eq!(seen.outcome.failure, None);
    conditions.iter().enumerate().filter(|(i, _)| seen.is_set(&format!("C{i}"))).map(|(_, c)| *c).collect()
}

fn check(event: &Event, world: &MemoryWorld, yes: &[&str], no: &[&str]) {
    let all: Vec<&str> = yes.iter().chain(no).copied().collect();
    assert_eq!(holding(&all, event, world), yes);
}

/// The value of `ENV{V}="..."`.
fn expand(text: &str, event: &Event, world: &MemoryWorld) -> Option<String> {
    run(&format!("ENV{{V}}=\"{text}\""), event, world).env("V")
}

#[test]
fn s01_s03_padding_of_attributes() {
    check(
        &sda1(),
        &machine(),
        &[
            r#"ATTRS{vendor}=="A??""#,
            r#"ATTRS{vendor}=="AT?""#,
            r#"ATTRS{vendor}=="??A""#,
            r#"ATTRS{model}=="ST910021AS""#,
            r#"ATTRS{whitespace_test}=="WHITE  SPACE""#,
            r#"ATTRS{whitespace_test}=="WHITE  SPACE   ""#,
        ],
        &[
            r#"ATTRS{vendor}=="?ATA""#,
            r#"ATTRS{vendor}=="ATA?""#,
            r#"ATTRS{vendor}=="ATAS""#,
            r#"ATTRS{model}=="ST910021AS ""#,
            r#"ATTRS{whitespace_test}=="WHITE  SPACE ""#,
        ],
    );
}

#[test]
fn s04_all_parent_matches_hold_on_one_device() {
    check(
        &sda1(),
        &machine(),
        &[
            r#"SUBSYSTEMS=="scsi", KERNELS=="0:0:0:0", DRIVERS=="sd", ATTRS{vendor}=="ATA", ATTRS{queue_depth}=="1""#,
        ],
        &[
            r#"SUBSYSTEMS=="scsi", ATTRS{vendor}=="ATA", ATTRS{queue_depth}=="3""#,
            r#"SUBSYSTEMS=="scsi", DRIVERS=="ahci""#,
        ],
    );
}

#[test]
fn s06_s08_paths_of_symlinks_are_made_plain() {
    let seen = run(
        r#"
SYMLINK+="/./dev///x", SYMLINK+="././y"
SYMLINK+="a b", SYMLINK-="x", SYMLINK-="/dev//./y/./"
SYMLINK+="unsafe/../../path", SYMLINK+="/nondev/path"
SYMLINK+=".///a/././b//./ c  /dev/d/"
SYMLINK+="."
"#,
        &sda(),
        &machine(),
    );
    assert_eq!(seen.links(), ["a", "b", "a/b", "c", "d"]);
    assert_eq!(seen.notes.len(), 3, "{:?}", seen.notes);
    assert!(seen.notes[0].text.contains("unsafe/../../path"));
    assert_eq!(seen.outcome.failure, None);
}

#[test]
fn s09_s13_characters_of_symlinks() {
    let mut event = sda();
    event.properties.set("P", "one    two");
    event.properties.set("Q", "   lead/?;;  x ");
    let links = |rules: &str| run(rules, &event, &machine()).links();
    assert_eq!(links("SYMLINK=\"a?b;c%%d'e/f\""), ["a_b_c_d_e/f"]);
    assert_eq!(links("OPTIONS=\"string_escape=replace\", SYMLINK=\"a   b\""), ["a___b"]);
    assert_eq!(links("SYMLINK=\"x-%E{P}-y $env{Q}\""), ["x-one_two-y", "lead/____x"]);
    assert_eq!(links("OPTIONS=\"string_escape=replace\", ENV{R}=\"a/b\", SYMLINK=\"%E{R}\""), ["a_b"]);
    assert_eq!(links("ENV{R}=\"a/b\"\nSYMLINK=\"%E{R}\""), ["a/b"]);
    assert_eq!(links("OPTIONS=\"string_escape=none\", SYMLINK=\"a;b %E{P}\""), ["a;b", "one", "two"]);
    for both in [
        "OPTIONS=\"string_escape=none\", OPTIONS=\"string_escape=replace\"",
        "OPTIONS=\"string_escape=replace\", OPTIONS=\"string_escape=none\"",
    ] {
        assert_eq!(links(&format!("{both}, SYMLINK=\"a;b c\"")), ["a_b_c"]);
    }
    // the mode lasts for one line
    assert_eq!(links("OPTIONS=\"string_escape=none\", ENV{Z}=\"1\"\nSYMLINK=\"a;b\""), ["a_b"]);
}

#[test]
fn s14_s18_lists_of_symlinks() {
    let seen = run(
        r#"
SYMLINK+="link1", SYMLINK+="removed1"
SYMLINK-="removed1"
SYMLINK=="link1", ENV{A}="1"
SYMLINK!="removed1", ENV{B}="1"
SYMLINK=="link*", ENV{C}="1"
SYMLINK=="removed1", ENV{D}="1"
"#,
        &sda(),
        &machine(),
    );
    assert_eq!(seen.set(&["A", "B", "C", "D"]), ["A", "B", "C"]);
    let links = |rules: &str| run(rules, &sda1(), &machine()).links();
    assert_eq!(links("SYMLINK=\"  one     two   \""), ["one", "two"]);
    assert_eq!(links("SYMLINK=\"a-%n b-%k c-%b\""), ["a-1", "b-sda1", "c-"]);
    assert_eq!(links("SYMLINK+=\"x\", SYMLINK=\"modem%n\""), ["modem1"]);
    assert_eq!(links("SYMLINK+=\"x\"\nSYMLINK=\"\"\nSYMLINK+=\"y\""), ["y"]);
    // the list is cleared before the value is substituted
    assert_eq!(links("SYMLINK+=\"x\"\nSYMLINK+=\"y$links\"\nSYMLINK=\"z$links\""), ["z"]);
    assert_eq!(links("SYMLINK:=\"x\"\nSYMLINK+=\"y\"\nSYMLINK-=\"x\"\nSYMLINK=\"\""), ["x"]);
    assert!(run("SYMLINK=\"x\", ENV{A}=\"1\"", &veth(), &machine()).links().is_empty());
}

#[test]
fn a_symlink_that_is_too_long_leaves_the_list_empty_and_closed() {
    let rules = format!("SYMLINK+=\"a\"\nSYMLINK:=\"{}\"\nSYMLINK+=\"b\"\nENV{{A}}=\"1\"", "x".repeat(1024));
    let seen = run(&rules, &sda(), &machine());
    assert!(seen.links().is_empty() && seen.is_set("A"));
    let rules = format!("SYMLINK+=\"{}\"", "x".repeat(1023));
    assert_eq!(run(&rules, &sda(), &machine()).links().len(), 1);
}

#[test]
fn s26_many_tags() {
    let mut rules: String = (0..10_000).map(|i| format!("TAG+=\"t{i}\"\n")).collect();
    rules += "TAGS==\"t1\", TAGS==\"t99\", TAGS==\"t555\", TAGS==\"t9999\", TAGS==\"t0\", ENV{A}=\"1\"\n";
    let seen = run(&rules, &sda(), &machine());
    assert_eq!(seen.tags().len(), 10_000);
    assert!(seen.is_set("A"));
}

#[test]
fn s27_s33_results_of_programs() {
    let mut world = machine();
    world.program("/t/abc", "foo1 foo2 foo3 foo4 foo5 foo6 foo7\n\n");
    world.program("/t/odd", "name; (/usr/bin/x)");
    world.program("/t/bytes", b"\xc3\xa4 \xe8\xff".as_slice());
    world.program("/t/two", "a\nb\n");
    let seen = run(
        r#"
PROGRAM=="/t/abc", RESULT=="foo1*foo7", ENV{W7}="%c{7}", SYMLINK="%c{6+}"
PROGRAM=="/t/odd", RESULT=="name_ _/usr/bin/x_", ENV{ODD}="1"
PROGRAM=="/t/bytes", ENV{BYTES}="%c"
PROGRAM=="/t/two", ENV{TWO}="%c"
PROGRAM!="/bin/false", ENV{NEGATED}="1"
RESULT=="", ENV{CLEARED}="1"
"#,
        &sda(),
        &world,
    );
    assert_eq!(seen.env("W7").as_deref(), Some("foo7"));
    assert_eq!(seen.links(), ["foo6", "foo7"]);
    assert_eq!(seen.env("BYTES").as_deref(), Some("ä __"));
    assert_eq!(seen.env("TWO").as_deref(), Some("a b"));
    assert_eq!(seen.set(&["ODD", "NEGATED", "CLEARED"]), ["ODD", "NEGATED", "CLEARED"]);
    assert_eq!(seen.times_asked(|ask| matches!(ask, Ask::Run { .. })), 5, "each program once");
}

#[test]
fn a_program_does_not_see_the_result_before_it_and_an_empty_one_is_false() {
    let mut world = machine();
    world.program("/t/a", "one");
    world.program("/t/b []", "two");
    let rules = r#"
PROGRAM=="/t/a"
PROGRAM=="/t/b [%c]", ENV{A}="%c"
PROGRAM=="$env{UNSET}", ENV{B}="1"
PROGRAM!="$env{UNSET}", ENV{C}="1"
"#;
    let seen = run(rules, &null(), &world);
    assert_eq!(seen.env("A").as_deref(), Some("two"));
    assert_eq!(seen.set(&["B", "C"]), ["C"]);
}

#[test]
fn s35_s36_imports_of_programs_and_parents() {
    let mut world = machine();
    world.program("/t/p", "   A_KEY=1\n  B_KEY=a\\x20b\n#C=1\nD='x'\nE=\"\"\n");
    let mut event = sda1();
    event.properties.set("E", "kernel");
    let seen = run(
        "IMPORT{program}=\"/t/p\", ENV{OK}=\"1\"\nIMPORT{parent}=\"PARENT*\", ENV{P1}=\"1\"\nIMPORT{parent}=\"NONE*\", ENV{P2}=\"1\"\nIMPORT{parent}!=\"NONE*\", ENV{P3}=\"1\"\n",
        &event,
        &world,
    );
    assert_eq!(seen.env("A_KEY").as_deref(), Some("1"));
    assert_eq!(seen.env("B_KEY").as_deref(), Some("a\\x20b"));
    assert_eq!(seen.env("D").as_deref(), Some("x"));
    assert_eq!(seen.env("PARENT_A").as_deref(), Some("1"));
    assert_eq!(
        seen.set(&["OK", "C", "E", "OTHER", "P1", "P2", "P3"]),
        ["OK", "P1", "P3"],
        "an empty value is no property"
    );
    assert!(run("IMPORT{parent}=\"*\", ENV{A}=\"1\"", &null(), &machine()).env("A").is_none());
}

#[test]
fn cut_output_loses_its_partial_line() {
    let mut world = machine();
    let exit = Exit { success: true, output: "A=1\nB=2".into(), truncated: true };
    world.programs.insert("/t/long".into(), exit);
    let seen = run("IMPORT{program}=\"/t/long\"", &null(), &world);
    assert_eq!(seen.set(&["A", "B"]), ["A"]);
    assert_eq!(seen.notes.len(), 1);
}

#[test]
fn s37_s39_empty_and_missing_attributes() {
    check(
        &sda1(),
        &machine(),
        &[r#"ATTR{empty}=="""#, r#"ATTR{empty}!="?*""#, r#"ATTR{empty}=="*""#, r#"TEST!="none""#],
        &[
            r#"ATTR{empty}=="?*""#,
            r#"ATTR{empty}!="""#,
            r#"ATTR{none}=="?*""#,
            r#"ATTR{none}!="""#,
            r#"ATTR{none}=="""#,
            r#"ATTR{none}!="?*""#,
            r#"ATTR{none}=="*""#,
            r#"ATTRS{none}=="""#,
            r#"ATTRS{none}!="""#,
        ],
    );
}

#[test]
fn truth_of_the_common_idioms() {
    let mut event = null();
    event.properties.set("X", "x");
    let mut world = machine();
    world.sysctls.insert("kernel/x".into(), Ok(" v \n".into()));
    check(
        &event,
        &world,
        &[
            r#"ENV{U}=="""#,
            r#"ENV{U}!="?*""#,
            r#"ENV{U}=="*""#,
            r#"ENV{X}!="""#,
            r#"ENV{X}=="?*""#,
            r#"ENV{X}=="*""#,
            r#"SYSCTL{none}=="""#,
            r#"SYSCTL{none}!="?*""#,
            r#"SYSCTL{none}=="*""#,
            r#"SYSCTL{kernel.x}=="v""#,
            r#"SYSCTL{kernel/x}=="v""#,
            r#"DRIVER=="""#,
            r#"NAME=="""#,
            r#"TAG!="""#,
            r#"TAG=="?*""#,
            r#"TAG!="x""#,
            r#"SYMLINK!="""#,
            r#"SYMLINK=="?*""#,
        ],
        &[
            r#"ENV{U}!="""#,
            r#"ENV{U}=="?*""#,
            r#"ENV{X}=="""#,
            r#"ENV{X}!="?*""#,
            r#"SYSCTL{none}!="""#,
            r#"SYSCTL{none}=="?*""#,
            r#"TAG=="""#,
            r#"TAG!="?*""#,
            r#"TAG=="*""#,
            r#"TAG=="|x""#,
            r#"SYMLINK=="""#,
            r#"SYMLINK!="?*""#,
            r#"SYMLINK=="*""#,
        ],
    );
}

#[test]
fn s41_s45_the_walk_over_parents() {
    let mut sda_world = machine();
    sda_world.devices[2].tags.add(b"disktag");
    check(
        &sda1(),
        &sda_world,
        &[
            r#"SUBSYSTEMS=="scsi", KERNELS=="*""#,
            r#"SUBSYSTEMS=="block""#,
            r#"KERNELS!="sda1""#,
            r#"TAGS=="disktag""#,
            r#"TAGS!="disktag""#,
            r#"DRIVERS=="""#,
            r#"ATTR{test:colon+plus}=="*""#,
        ],
        &[r#"SUBSYSTEMS=="scsi", KERNEL=="0:0:0:0""#, r#"SUBSYSTEMS=="bus""#, r#"TAG=="disktag""#],
    );
    check(&null(), &machine(), &[r#"ATTRS{dev}=="1:3""#, r#"SUBSYSTEMS=="mem""#], &[r#"SUBSYSTEMS=="pci""#]);
    let seen = run(
        "SUBSYSTEMS==\"scsi\", ENV{A}=\"$id $driver %s{driver}\"\nSUBSYSTEMS==\"pci\", ENV{B}=\"$attr{driver}\"",
        &sda(),
        &machine(),
    );
    assert_eq!(seen.env("A").as_deref(), Some("0:0:0:0 sd sd"));
    assert_eq!(seen.env("B").as_deref(), Some("ahci"));
}

#[test]
fn the_found_parent_survives_its_line_until_a_group_fails() {
    let seen = run(
        r#"
SUBSYSTEMS=="scsi", ENV{A}="%b"
ENV{B}="%b"
SUBSYSTEMS=="pci", ENV{NONE}=="x", ENV{C}="%b"
ENV{D}="%b"
SUBSYSTEMS=="pci", PROGRAM=="/t/none"
ENV{E}="%b"
SUBSYSTEMS=="nothing", ENV{F}="1"
ENV{G}="[%b]"
"#,
        &sda(),
        &machine(),
    );
    let env = |name: &str| seen.env(name).unwrap_or_default();
    assert_eq!(
        [env("A"), env("B"), env("D"), env("E"), env("G")],
        ["0:0:0:0", "0:0:0:0", "0:0:0:0", "0000:00:1f.2", "[]"]
    );
}

#[test]
fn s44_an_exclamation_mark_in_a_name() {
    let properties = [("MAJOR", "8"), ("MINOR", "0"), ("DEVNAME", "/dev/fake/blockdev0")];
    let event =
        crate::rules::memory_world::event(Action::Add, "/devices/fake!blockdev0", "block", &properties);
    let text = expand("%k $name $devnode %n $major:$minor %r %S", &event, &machine());
    assert_eq!(text.as_deref(), Some("fake/blockdev0 fake/blockdev0 /dev/fake/blockdev0 0 8:0 /dev /sys"));
}

#[test]
fn s46_s49_alternatives() {
    let mut event = sda();
    event.tags.add(b"foo");
    check(
        &event,
        &machine(),
        &[
            r#"KERNEL=="X|sda|sdb""#,
            r#"ENV{U}=="|foo""#,
            r#"ENV{U}=="foo||bar""#,
            r#"ENV{U}=="foo|""#,
            r#"TAGS=="|foo""#,
            r#"TAGS=="foo||bar""#,
            r#"TAGS=="foo|""#,
            r#"TAGS!="foo""#,
        ],
        &[r#"KERNEL=="X|asda|sdaa""#, r#"ENV{U}=="aaa|bbb""#, r#"TAGS=="aaa|""#, r#"TAGS=="aaa|bbb""#],
    );
}

#[test]
fn s50_tags_are_checked() {
    let seen =
        run("TAG+=\"\", TAG+=\"a.b\", TAG+=\"a/b\", TAG+=\"$env{U}\", TAG+=\"good_-1\"", &sda(), &machine());
    assert_eq!(seen.tags(), ["good_-1"]);
    assert_eq!(seen.outcome.event.tags.sticky.len(), 1);
}

#[test]
fn a_tag_list_set_anew_keeps_the_tags_of_earlier_events() {
    let mut event = sda();
    let old = Record { tags: ["old"].into_iter().collect(), ..Record::default() };
    event.tags.sticky = old.tags.clone();
    event.old = Some(Arc::new(old));
    let seen = run("TAG+=\"a\"\nTAG=\"b\"\nTAG==\"old\", ENV{A}=\"1\"", &event, &machine());
    assert_eq!(seen.tags(), ["b"]);
    assert_eq!(seen.outcome.event.tags.sticky.iter().collect::<Vec<_>>(), ["old", "b"]);
    assert!(!seen.is_set("A"));
}

#[test]
fn s51_s55_owner_group_mode() {
    let mut world = machine();
    world.users.insert("late".into(), 17);
    world.program("/t/long", "0664664664664664");
    let seen = run(
        r#"
ENV{WHO}="late", ENV{M}="0640"
OWNER="$env{WHO}", GROUP:="5"
GROUP="0", MODE="440"
PROGRAM=="/t/long", MODE="%c"
"#,
        &sda(),
        &world,
    );
    // OWNER does not see ENV of its own line, but of lines before
    assert_eq!((seen.outcome.owner, seen.outcome.group, seen.outcome.mode), (Some(17), Some(5), Some(0o440)));
    let seen = run("OWNER=\"1\"\nOWNER=\"$env{UNKNOWN}x\"\nMODE=\"0060\"", &sda(), &world);
    assert_eq!((seen.outcome.owner, seen.outcome.group, seen.outcome.mode), (Some(1), None, Some(0o060)));
    assert_eq!(seen.notes.len(), 1);
    let seen = run("MODE=\"0000\"\nMODE=\"$env{NO}9x\"", &sda(), &world);
    assert_eq!(seen.outcome.mode, Some(0));
}

#[test]
fn s58_jumps_lead_to_the_line_of_the_label() {
    let seen = run(
        r#"
GOTO="a"
ENV{BAD1}="1"
LABEL="a", ENV{A}="1", GOTO="end"
ENV{BAD2}="1"
LABEL="end", ENV{E}="1"
KERNEL=="none", GOTO="far"
ENV{F}="1"
ENV{F}=="1", GOTO="far"
ENV{BAD3}="1"
LABEL="far"
"#,
        &sda(),
        &machine(),
    );
    assert_eq!(seen.set(&["A", "E", "F", "BAD1", "BAD2", "BAD3"]), ["A", "E", "F"]);
}

#[test]
fn s60_s61_tests_and_attributes_of_other_devices() {
    let mut world = machine();
    world.file("/t/x/f", 0o644, "");
    check(
        &sda(),
        &world,
        &[
            r#"TEST=="/t/x/f""#,
            r#"TEST=="[net/eth0]""#,
            r#"TEST=="[net/eth0]address""#,
            r#"TEST=="size""#,
            r#"TEST=="*/nr_requests""#,
            r#"TEST=="/t/*/f""#,
            r#"TEST=="/t/$env{U}x/f""#,
            r#"TEST{0111}!="/t/x/f""#,
            r#"ATTR{[net/eth0]address}=="00:11:*""#,
            r#"ATTR{[net/eth0]/address}=="00:11:*""#,
            r#"ATTR{[net/eth0]none}=="""#,
            r#"ATTR{queue/nr_requests}=="128""#,
        ],
        &[
            r#"TEST=="[net/eth1]""#,
            r#"TEST=="*/none""#,
            r#"ATTR{[net/eth1]address}=="*""#,
            r#"ATTR{[net/eth1]address}!="x""#,
        ],
    );
    let text = expand("$attr{[net/eth0]address} %s{[dmi/id]product_name} [%s{[no/no]x}]", &sda(), &world);
    assert_eq!(text.as_deref(), Some("00:11:22:33:44:55 Virtual Thing []"));
}

#[test]
fn names_of_attributes_are_substituted() {
    let mut world = machine();
    world.devices[3].attrs.insert("x1y".into(), "v".into());
    check(&sda1(), &world, &[r#"ATTR{x%ny}=="v""#, r#"ATTRS{x$numbery}=="v""#], &[r#"ATTR{x%kny}=="*""#]);
}

#[test]
fn errors_that_fail_the_event() {
    let mut world = machine();
    world.file("/t/f", 0o644, "");
    world.sysctls.insert("kernel/secret".into(), Err(Errno(libc::EACCES)));
    let unreadable = crate::rules::memory_world::MemoryFile { mode: 0, content: Err(Errno(libc::ELOOP)) };
    world.files.insert("/t/loop".into(), unreadable);
    for (line, errno) in [
        (r#"TEST=="/t/f/*/x""#, libc::ENOTDIR),
        (r#"SYSCTL{a/../b}=="x""#, libc::EINVAL),
        (r#"SYSCTL{kernel/secret}=="x""#, libc::EACCES),
        (r#"IMPORT{file}=="/t/loop""#, libc::ELOOP),
    ] {
        let rules = format!("ENV{{BEFORE}}=\"1\"\n{line}, ENV{{X}}=\"1\"\nENV{{AFTER}}=\"1\"\n");
        let seen = run(&rules, &null(), &world);
        assert_eq!(seen.outcome.failure, Some(Errno(errno)), "{line}");
        assert_eq!(seen.set(&["BEFORE", "X", "AFTER"]), ["BEFORE"], "{line}");
        assert!(seen.notes[0].text.contains(":2: "), "{:?}", seen.notes);
    }
}

#[test]
fn s69_global_properties() {
    let globals: crate::model::Properties = [("FOO", "g"), ("BAR", "g")].into_iter().collect();
    let config = EvalConfig { globals: Arc::new(globals), ..EvalConfig::default() };
    let mut event = null();
    event.properties.set("BAR", "own");
    let rules = r#"
ENV{FOO}=="g", ENV{A}="$env{FOO} $env{BAR}"
ENV{FOO}+="more"
"#;
    let seen = run_with(rules, &event, &machine(), &config);
    assert_eq!(seen.env("A").as_deref(), Some("g own"));
    assert_eq!(seen.env("FOO").as_deref(), Some("g more"));
}

#[test]
fn values_of_properties() {
    let mut event = null();
    event.properties.set("K", "kernel");
    let seen = run(
        r#"
ENV{A}="1"
ENV{A}+="2", ENV{B}+="first", ENV{C}="$env{U}", ENV{D}+="", ENV{A}+="$env{U}"
ENV{K}=""
ENV{e-d}="1", ENV{BAD}="a$env{A}", ENV{GOOD}="1"
"#,
        &event,
        &machine(),
    );
    assert_eq!(seen.env("A").as_deref(), Some("1 2 "));
    assert_eq!(seen.env("B").as_deref(), Some("first"));
    assert_eq!(seen.set(&["C", "D", "K", "e-d", "GOOD"]), ["GOOD"]);
    let stored: Vec<_> = seen.outcome.event.properties.stored().map(|p| p.name.to_string()).collect();
    assert_eq!(stored, ["A", "B", "BAD", "GOOD"]);
}

#[test]
fn a_value_that_no_record_can_hold_is_left_out_and_the_line_goes_on() {
    let mut world = machine();
    world.devices[6].attrs.insert("odd".into(), b"\xff".as_slice().into());
    let seen = run("ENV{T}=e\"a\\tb\", ENV{U}=\"1\"", &null(), &world);
    assert_eq!(seen.set(&["T", "U"]), ["U"]);
    assert_eq!(seen.notes.len(), 1);
}

#[test]
fn limits_of_values() {
    let (fits, too_long) = ("x".repeat(511), "x".repeat(512));
    let seen =
        run(&format!("ENV{{A}}=\"{fits}\"\nENV{{B}}=\"{too_long}\"\nENV{{A}}+=\"y\""), &null(), &machine());
    assert_eq!(seen.env("A").as_deref(), Some(fits.as_str()));
    assert!(!seen.is_set("B"));
    assert_eq!(seen.notes.len(), 2);
    let mut world = machine();
    world.devices[6].attrs.insert("long".into(), too_long.into());
    assert_eq!(expand("a$attr{long}", &null(), &world), None);
    // too long for a match: false for both operators
    let long = "x".repeat(2000);
    let rules = format!("TEST==\"{long}\", ENV{{A}}=\"1\"\nTEST!=\"{long}\", ENV{{B}}=\"1\"");
    assert_eq!(run(&rules, &null(), &world).set(&["A", "B"]), [""; 0]);
}

#[test]
fn malformed_substitutions_keep_the_text_before_them() {
    let event = null();
    for (text, value) in [
        ("ab%k{c", Some("ab")),
        ("ab$env{}c", Some("ab")),
        ("ab$attr", Some("ab")),
        ("%c{x}", None),
        ("100% $x", Some("100% $x")),
        ("$$%%", Some("$%")),
        ("$idx$system", Some("x/system")),
    ] {
        assert_eq!(expand(text, &event, &machine()).as_deref(), value, "{text}");
    }
}

#[test]
fn imports_from_the_old_state() {
    let mut event = sda();
    event.properties.set("KERNEL_SAYS", "k");
    let record = Record {
        properties: [("OLD", "o"), ("ID_RENAMING", "1"), ("DEVTYPE", "r")].into_iter().collect(),
        symlinks: ["a", "b"].into_iter().collect(),
        usec_initialized: Some(12),
        ..Record::default()
    };
    event.old = Some(Arc::new(record));
    let rules = r#"
IMPORT{db}="OLD", ENV{A}="1"
IMPORT{db}="NONE", ENV{B}="1"
IMPORT{db}!="NONE", ENV{C}="1"
IMPORT{db}="ID_RENAMING", ENV{D}="1"
ENV{KERNEL_SAYS}=""
IMPORT{db}="KERNEL_SAYS", ENV{E}="1"
IMPORT{db}="USEC_INITIALIZED", ENV{F}="1"
IMPORT{db}="A", ENV{G}="1"
IMPORT{db}="O*", ENV{H}="1"
IMPORT{db}="SEQNUM", ENV{I}="1"
"#;
    let names = ["A", "B", "C", "D", "E", "F", "G", "H", "I"];
    let seen = run(rules, &event, &machine());
    assert_eq!(seen.set(&names), ["A", "C", "E", "F", "I"]);
    assert_eq!(seen.env("OLD").as_deref(), Some("o"));
    assert_eq!(seen.env("KERNEL_SAYS").as_deref(), Some("k"));
    event.action = Action::Remove;
    assert_eq!(run(rules, &event, &machine()).set(&names), ["C"]);
}

#[test]
fn imports_from_the_command_line_and_files() {
    let mut world = machine();
    world.command_line = "quiet foo-bar=1 foo_bar=2 root=x".into();
    world.file("/t/env", 0o644, "A=1\nB = 'two words'\n#C=1\nD\n");
    let seen = run(
        r#"
IMPORT{cmdline}="quiet", ENV{A1}="1"
IMPORT{cmdline}="foo_bar", ENV{A2}="1"
IMPORT{cmdline}="none", ENV{A3}="1"
IMPORT{cmdline}!="none", ENV{A4}="1"
IMPORT{file}="/t/env", ENV{A5}="1"
IMPORT{file}="/t/none", ENV{A6}="1"
IMPORT{file}!="/t/none", ENV{A7}="1"
"#,
        &null(),
        &world,
    );
    assert_eq!(seen.set(&["A1", "A2", "A3", "A4", "A5", "A6", "A7"]), ["A1", "A2", "A4", "A5", "A7"]);
    assert_eq!(seen.env("quiet").as_deref(), Some("1"));
    assert_eq!(seen.env("foo_bar").as_deref(), Some("2"));
    assert_eq!(seen.env("B").as_deref(), Some("two words"));
}

#[test]
fn builtins_that_run_once_repeat_their_verdict() {
    let mut world = machine();
    let result = |success, name: &str| BuiltinResult {
        success,
        properties: vec![(name.into(), Some("1".into())), ("K".into(), None)],
        alt_names: vec!["alt".into()],
        messages: vec![format!("about {name}")],
    };
    world.builtins.insert("path_id".into(), result(true, "P"));
    world.builtins.insert("hwdb x".into(), result(true, "H1"));
    world.builtins.insert("hwdb y".into(), result(false, "H2"));
    let mut event = null();
    event.properties.set("K", "1");
    let seen = run(
        r#"
IMPORT{builtin}="path_id", ENV{A}="1"
IMPORT{builtin}="path_id other", ENV{B}="1"
IMPORT{builtin}!="path_id", ENV{C}="1"
IMPORT{builtin}="hwdb x", ENV{D}="1"
IMPORT{builtin}="hwdb y", ENV{E}="1"
"#,
        &event,
        &world,
    );
    assert_eq!(seen.set(&["A", "B", "C", "D", "E", "P", "H1", "K"]), ["A", "B", "D", "P", "H1"]);
    assert_eq!(seen.times_asked(|ask| matches!(ask, Ask::Builtin { .. })), 3);
    assert_eq!(seen.outcome.alt_names, ["alt"]);
    assert_eq!(seen.notes[0].text, "0.rules:2: path_id: about P");
}

#[test]
fn attributes_are_asked_once_absence_included_and_again_after_a_write() {
    let seen = run(
        r#"
ATTR{size}=="1000", ENV{A}="1"
ATTR{size}=="1000", ENV{B}="1"
ATTR{none}=="1", ENV{BAD}="1"
ATTR{none}=="2", ENV{BAD}="1"
ATTR{size}="55"
ATTR{size}=="55", ENV{C}="1"
"#,
        &sda(),
        &machine(),
    );
    assert_eq!(seen.set(&["A", "B", "C"]), ["A", "B", "C"]);
    let asked =
        |wanted: &str| seen.times_asked(|ask| matches!(ask, Ask::Attr { name, .. } if name == wanted));
    assert_eq!((asked("size"), asked("none")), (2, 1));
}

#[test]
fn writes_are_asked_for_in_place() {
    let seen = run(
        "ATTR{[net/eth0]address}=\"%k\", ATTR{queue/*/x}=\"1\"\nSYSCTL{net.ipv4.x}=\"$major\"\nSYSCTL{a/../b}=\"1\", ENV{A}=\"1\"",
        &sda(),
        &machine(),
    );
    let writes: Vec<String> = seen.asked.iter().map(|ask| format!("{ask:?}")).collect();
    assert_eq!(
        writes,
        [
            r#"WriteAttr { target: "[net/eth0]address", value: "sda" }"#,
            r#"WriteAttr { target: "queue/*/x", value: "1" }"#,
            r#"WriteSysctl { name: "net/ipv4/x", value: "8" }"#
        ]
    );
    assert!(seen.is_set("A"));
}

#[test]
fn names_of_interfaces() {
    let name = |rules: &str| run(rules, &veth(), &machine()).outcome.name.map(|n| n.to_string());
    assert_eq!(name("NAME=\"a b:c/d%%e\"").as_deref(), Some("a_b_c_d_e"));
    assert_eq!(name("NAME=\"first\"\nNAME=\"second\"").as_deref(), Some("second"));
    assert_eq!(name("NAME:=\"first\"\nNAME=\"second\"").as_deref(), Some("first"));
    assert_eq!(name("OPTIONS=\"string_escape=none\", NAME=\"a b\"").as_deref(), Some("a b"));
    let seen = run("NAME=\"new\"\nNAME==\"new\", ENV{A}=\"$name\"", &veth(), &machine());
    assert_eq!(seen.env("A").as_deref(), Some("new"));
    let seen = run("NAME=\"new\", ENV{A}=\"%D\"", &null(), &machine());
    assert_eq!((seen.outcome.name.is_none(), seen.env("A").as_deref()), (true, Some("null")));
    let loose = EvalConfig::default();
    let seen = run_with("NAME=\"a b:c/d\"", &veth(), &machine(), &loose);
    assert_eq!(seen.outcome.name.unwrap(), "a_b:c/d");
}

#[test]
fn lines_of_an_inactive_class_are_not_looked_at() {
    // dev_parent shows whether a line's parent group was tried
    let tried = |line: &str, event: &Event| {
        let rules =
            format!("SUBSYSTEMS==\"scsi\", ENV{{X}}=\"1\"\nSUBSYSTEMS==\"none\", {line}\nENV{{P}}=\"%b\"");
        run(&rules, event, &machine()).env("P").is_none()
    };
    let mut scsi = crate::rules::memory_world::event(Action::Add, SCSI, "scsi", &[]);
    assert!(!tried("SYMLINK+=\"x\"", &scsi) && !tried("MODE=\"0600\"", &scsi) && !tried("NAME=\"x\"", &scsi));
    assert!(tried("ENV{A}=\"1\"", &scsi) && tried("SYMLINK+=\"x\", ENV{A}=\"1\"", &scsi));
    assert!(tried("SYMLINK+=\"x\"", &sda()) && !tried("NAME=\"x\"", &sda()));
    assert!(!tried("OPTIONS=\"static_node=x\"", &sda()));
    scsi.action = Action::Remove;
    let mut removed = sda();
    removed.action = Action::Remove;
    assert!(!tried("SYMLINK+=\"x\"", &removed) && tried("TAG+=\"x\"", &removed));
}

#[test]
fn on_remove_the_links_of_the_record_are_known() {
    let mut event = sda();
    event.action = Action::Remove;
    event.symlinks = ["a", "b"].into_iter().collect();
    let seen = run("SYMLINK==\"a\", ENV{A}=\"1\"\nSYMLINK=\"x\"\nENV{L}=\"$links\"", &event, &machine());
    assert!(seen.is_set("A"));
    assert_eq!(seen.links(), ["a", "b"]);
    assert_eq!(seen.env("L").as_deref(), Some("a b"));
    let seen = run("SYMLINK=\"x\", ENV{Z}=\"1\"", &event, &machine());
    assert_eq!(seen.links(), ["x"], "another class made the line active");
}

#[test]
fn options() {
    let seen = run(
        "OPTIONS=\"watch\", OPTIONS=\"link_priority=0x10\", OPTIONS=\"db_persist\", OPTIONS=\"log_level=debug\"\n",
        &sda(),
        &machine(),
    );
    let o = &seen.outcome;
    assert_eq!((o.watch, o.link_priority, o.db_persist), (Some(Watch::On), 16, true));
    assert_eq!(o.log_level, Some(log::LevelFilter::Debug));
    let watch = |rules: &str| run(rules, &sda(), &machine()).outcome.watch;
    assert_eq!(watch("OPTIONS:=\"nowatch\"\nOPTIONS=\"watch\""), Some(Watch::Off));
    assert_eq!(watch("OPTIONS=\"nowatch\"\nOPTIONS+=\"watch\""), Some(Watch::On));
    assert_eq!(watch("ENV{A}=\"1\""), None);
}

#[test]
fn a_dump_tells_the_state_before_the_assignments_of_its_line() {
    let seen = run(
        "ENV{A}=\"1\", SYMLINK+=\"l1\"\nENV{B}=\"1\", OPTIONS=\"dump\", OPTIONS=\"dump-json\"",
        &sda(),
        &machine(),
    );
    assert_eq!(seen.notes.len(), 2);
    assert!(seen.notes[0].text.contains("A=1") && seen.notes[0].text.contains("symlinks: l1"));
    assert!(!seen.notes[0].text.contains("B=1"));
    let json = seen.notes[1].text.split_once(": ").unwrap().1;
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(json["properties"]["A"], "1");
}

#[test]
fn security_labels() {
    let seen = run("SECLABEL{smack}=\"a$env{U}\", SECLABEL{selinux}+=\"$env{U}\"", &sda(), &machine());
    let labels: Vec<_> = seen.outcome.seclabels.iter().map(|(m, l)| format!("{m}={l}")).collect();
    assert_eq!(labels, ["smack=a", "selinux=$env{U}"]);
}

#[test]
fn constants_and_the_alias_of_subsystem() {
    let mut world = machine();
    world.arch = "x86-64".into();
    let class = crate::rules::memory_world::event(Action::Add, "/class/x", "class", &[]);
    check(
        &class,
        &world,
        &[r#"SUBSYSTEM=="bus""#, r#"SUBSYSTEM=="subsystem""#, r#"CONST{arch}=="x86*""#],
        &[r#"SUBSYSTEM=="bus|x""#, r#"SUBSYSTEM!="bus""#, r#"CONST{virt}=="kvm""#],
    );
}

#[test]
fn kinds_of_tokens_are_tried_in_their_order_not_as_written() {
    let mut world = machine();
    world.program("/t/imp", "X=1");
    let seen = run(
        r#"
IMPORT{program}="/t/imp", ENV{X}=="1", ENV{BAD}="1"
ENV{X}=="1", ENV{GOOD}="1"
SYMLINK+="%E{Y}", ENV{Y}="y"
TAG+="$env{Z}", ENV{Z}="z"
"#,
        &sda(),
        &world,
    );
    assert_eq!(seen.set(&["BAD", "GOOD"]), [""; 0]);
    assert_eq!(seen.links(), ["y"]);
    assert!(seen.tags().is_empty());
}

#[test]
fn a_driver_that_the_message_does_not_name_is_asked_for_once() {
    let event = crate::rules::memory_world::event(Action::Add, SCSI, "scsi", &[]);
    let seen = run("DRIVER==\"sd\", ENV{A}=\"1\"\nDRIVER!=\"x\", ENV{B}=\"1\"", &event, &machine());
    assert_eq!(seen.set(&["A", "B"]), ["A", "B"]);
    assert_eq!(seen.asked, [Ask::Driver]);
}

#[test]
fn an_event_that_no_rule_touches_asks_nothing() {
    let seen = run(
        "SUBSYSTEM==\"usb\", ATTR{x}==\"1\", TAG+=\"a\"\nKERNEL==\"sd*\", ENV{A}=\"1\"",
        &null(),
        &machine(),
    );
    assert!(seen.asked.is_empty());
    let rules = compiled(&["SUBSYSTEM!=\"usb\", GOTO=\"end\"\nENV{A}=\"1\"\nENV{B}=\"1\"\nLABEL=\"end\"\n"]);
    assert_eq!(Specialised::new(rules, EventKind::of(&null())).size(), (0, 0));
}

/// Two names of one 64-bit FNV-1a hash. Each look-up knows which of the two is meant.
#[test]
fn attributes_whose_names_collide_are_asked_for_once_each() {
    let [a, b] = ["8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"];
    let mut world = machine();
    let disk = world.devices.iter_mut().find(|d| d.devpath == SDA).unwrap();
    disk.attrs.extend([(a.into(), "1\n".into()), (b.into(), "2\n".into())]);
    let rules = format!(
        "ATTR{{{a}}}==\"1\", ATTR{{{b}}}==\"2\", ENV{{BOTH}}=\"$attr{{{a}}}$attr{{{b}}}\"\n\
         ATTRS{{{a}}}==\"1\", ATTRS{{{b}}}==\"2\", ENV{{UP}}=\"1\"\n\
         ATTRS{{{a}}}==\"2\", ATTRS{{{b}}}==\"1\", ENV{{NONE}}=\"1\"\n"
    );
    let seen = run(&rules, &sda1(), &world);
    assert_eq!(seen.env("BOTH"), None, "the partition has none of them");
    assert_eq!(seen.env("UP").as_deref(), Some("1"));
    let seen = run(&rules, &sda(), &world);
    assert_eq!(seen.env("BOTH").as_deref(), Some("12"));
    assert!(seen.is_set("UP") && !seen.is_set("NONE"));
    for name in [a, b] {
        assert_eq!(
            seen.times_asked(
                |ask| matches!(ask, Ask::Attr { name: n, subject: Subject::Event } if n == name)
            ),
            1
        );
    }
}
