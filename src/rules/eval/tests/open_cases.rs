//! Public bug reports as cases: what an evaluator must get right of O01 to O10.

use super::*;

#[test]
fn o01_empty_alternative_in_a_pattern() {
    for star in ["", "*"] {
        let rules = format!(
            "ENV{{FOO}}==\"|x{star}\", ENV{{HIT1}}=\"1\"\nENV{{FOO}}==\"a{star}||b\", ENV{{HIT2}}=\"1\"\n\
             ENV{{FOO}}==\"x{star}|\", ENV{{HIT3}}=\"1\"\nENV{{FOO}}!=\"|x{star}\", ENV{{HIT4}}=\"1\"\n"
        );
        for (foo, hits) in [
            (None, &["HIT1", "HIT2", "HIT3"][..]),
            (Some(""), &["HIT1", "HIT2", "HIT3"]),
            (Some("x"), &["HIT1", "HIT3"]),
            (Some("y"), &["HIT4"]),
        ] {
            let mut event = null();
            if let Some(foo) = foo {
                event.properties.set("FOO", foo);
            }
            let seen = run(&rules, &event, &machine());
            assert_eq!(seen.set(&["HIT1", "HIT2", "HIT3", "HIT4"]), hits, "{foo:?} {star}");
        }
    }
}

#[test]
fn o02_test_with_a_mode_is_a_mask() {
    let mut world = machine();
    world.file("/t/f", 0o754, "");
    let seen = run(
        r#"
TEST{0111}=="/t/f", ENV{A}="1"
TEST{0002}=="/t/f", ENV{B}="1"
TEST{0002}!="/t/f", ENV{C}="1"
TEST{0111}!="/t/none", ENV{D}="1"
TEST=="uevent", ENV{E}="1"
TEST=="none", ENV{F}="1"
TEST!="none", ENV{G}="1"
TEST=="", ENV{H}="1"
"#,
        &null(),
        &world,
    );
    assert_eq!(seen.set(&["A", "B", "C", "D", "E", "F", "G", "H"]), ["A", "C", "D", "E", "G", "H"]);
}

#[test]
fn o03_parent_conditions_on_a_line_whose_only_action_is_goto() {
    let seen = run(
        r#"
SUBSYSTEMS=="scsi", ATTRS{vendor}=="ATA", GOTO="skip"
ENV{BAD}="1"
LABEL="skip"
SUBSYSTEMS=="scsi", ATTRS{vendor}=="NOPE", GOTO="skip2"
ENV{GOOD}="1"
LABEL="skip2"
SUBSYSTEMS=="pci", ATTRS{vendor}=="ATA", ENV{SPLIT}="1"
"#,
        &sda1(),
        &machine(),
    );
    assert_eq!(seen.set(&["BAD", "GOOD", "SPLIT"]), ["GOOD"]);
}

#[test]
fn o04_parent_substitution_on_a_device_without_parent() {
    let seen = run("KERNEL==\"null\", ENV{V}=\"a%Pb$parent-c\"\nENV{AFTER}=\"1\"\n", &null(), &machine());
    assert_eq!(seen.env("V").as_deref(), Some("ab-c"));
    assert!(seen.is_set("AFTER"));
    assert_eq!(seen.outcome.failure, None);
    // a parent without a node is empty as well, one with a node is not
    assert_eq!(run("ENV{V}=\"a%Pb\"", &sda(), &machine()).env("V").as_deref(), Some("ab"));
    assert_eq!(run("ENV{V}=\"%P-part-%n\"", &sda1(), &machine()).env("V").as_deref(), Some("sda-part-1"));
}

#[test]
fn o05_blanks_in_a_substituted_value_inside_symlink() {
    let mut world = machine();
    let attrs = [("model", "  Big   Fast Disk  "), ("serial", "S1")];
    world.devices.retain(|d| d.devpath != SDA);
    world.devices.push(MemoryDevice::new(SDA, "block", &attrs));
    world.program("/t/say 'p q'", "p q");
    let seen = run("SYMLINK+=\"d/nv-%s{model}_%s{serial} other\"", &sda(), &world);
    assert_eq!(seen.links(), ["d/nv-Big_Fast_Disk_S1", "other"]);
    let seen =
        run("OPTIONS=\"string_escape=none\", SYMLINK+=\"d/nv-%s{model}_%s{serial} other\"", &sda(), &world);
    assert_eq!(seen.links(), ["d/nv-", "Big", "Fast", "Disk_S1", "other"]);
    let seen = run("PROGRAM==\"/t/say 'p q'\", SYMLINK+=\"%c\"", &sda(), &world);
    assert_eq!(seen.links(), ["p", "q"]);
}

#[test]
fn o06_a_tag_removed_earlier_must_not_match_later() {
    let seen = run(
        r#"
TAG+="t1", TAG+="t2"
TAG-="t1"
TAG=="t1", ENV{BAD}="1"
TAG=="t2", ENV{GOOD}="1"
TAGS=="t1", ENV{BAD2}="1"
ENV{CURRENT}="$env{CURRENT_TAGS}", ENV{ALL}="$env{TAGS}"
"#,
        &sda1(),
        &machine(),
    );
    assert_eq!(seen.set(&["BAD", "GOOD", "BAD2"]), ["GOOD"]);
    assert_eq!(seen.tags(), ["t2"]);
    assert_eq!(seen.env("CURRENT").as_deref(), Some(":t2:"));
    assert_eq!(seen.env("ALL").as_deref(), Some(":t1:t2:"));
}

#[test]
fn o07_order_of_run() {
    let first =
        "RUN+=\"/t/log a\"\nRUN+=\"/t/log b\"\nRUN{builtin}+=\"kmod load none-such\"\nRUN+=\"/t/log c\"\n";
    let all = ["/t/log a", "/t/log b", "kmod load none-such", "/t/log c"];
    assert_eq!(run(first, &null(), &machine()).run(), all);
    let rules = format!("{first}RUN=\"/t/log z\"\n");
    assert_eq!(run(&rules, &null(), &machine()).run(), ["/t/log z"]);
    let rules = format!("{first}RUN:=\"/t/log f\"\nRUN+=\"/t/log g\"\n");
    assert_eq!(run(&rules, &null(), &machine()).run(), ["/t/log f"]);
    // builtins of one line come before its programs, duplicates stay
    let rules = "RUN+=\"a\", RUN{builtin}+=\"kmod x\", RUN+=\"a\"";
    assert_eq!(run(rules, &null(), &machine()).run(), ["kmod x", "a", "a"]);
}

#[test]
fn o08_a_program_that_cannot_start() {
    let mut world = machine();
    world.program("/t/yes", "old");
    let seen = run(
        r#"
PROGRAM=="/t/yes", ENV{BEFORE}="%c"
PROGRAM=="/t/none-such", ENV{BAD}="1"
PROGRAM!="/t/none-such", ENV{A}="1"
IMPORT{program}="/t/none-such"
IMPORT{program}!="/bin/false", ENV{B}="1"
ENV{C}="1", ENV{RESULT_IS}="[%c]"
"#,
        &null(),
        &world,
    );
    assert_eq!(seen.set(&["A", "B", "C", "BAD"]), ["A", "B", "C"]);
    assert_eq!(seen.env("BEFORE").as_deref(), Some("old"));
    assert_eq!(seen.env("RESULT_IS").as_deref(), Some("[]"));
    assert_eq!(seen.outcome.failure, None);
}

#[test]
fn o09_backslashes_in_program_output() {
    let mut world = machine();
    world.program(r"/t/say 'a\x20b'", r"a\x20b");
    world.program(r"/t/say 'ID_Q=c\x2fd'", r"ID_Q=c\x2fd");
    let seen = run(
        r#"
PROGRAM=="/t/say 'a\x20b'", ENV{P}="%c"
IMPORT{program}="/t/say 'ID_Q=c\x2fd'"
SYMLINK+="x/$env{P}"
"#,
        &sda(),
        &world,
    );
    assert_eq!(seen.env("P").as_deref(), Some(r"a\x20b"));
    assert_eq!(seen.env("ID_Q").as_deref(), Some(r"c\x2fd"));
    assert_eq!(seen.links(), [r"x/a\x20b"]);
}

#[test]
fn o10_substitution_cleans_characters_matching_does_not() {
    let mut world = machine();
    world.devices.retain(|d| d.devpath != SDA);
    world.devices.push(MemoryDevice::new(SDA, "block", &[("name", "Head (AVRCP)  ")]));
    let seen = run(
        r#"
ATTR{name}=="Head (AVRCP)", ENV{M1}="1"
ATTR{name}=="Head (AVRCP)  ", ENV{M2}="1"
ENV{N}="%s{name}"
ATTR{name}=="Head _AVRCP_", ENV{BAD}="1"
"#,
        &sda(),
        &world,
    );
    assert_eq!(seen.set(&["M1", "M2", "BAD"]), ["M1", "M2"]);
    assert_eq!(seen.env("N").as_deref(), Some("Head _AVRCP_"));
}
