//! Lines to programs: what is kept, dropped, sorted and said.

use super::*;
use crate::rules::diagnostic::Severity;
use crate::rules::program::*;

struct Staff;

impl Accounts for Staff {
    fn user(&self, name: &[u8]) -> Option<u32> {
        (name == b"alice").then_some(100)
    }
    fn group(&self, name: &[u8]) -> Option<u32> {
        (name == b"disk").then_some(6)
    }
}

fn compiled(text: &str) -> Compiled {
    let file = SourceFile { path: "t.rules".into(), content: text.into() };
    compile(&[file], &CompileOptions { resolve_names: ResolveNames::Early, accounts: &Staff })
}

fn kinds(line: &Line) -> Vec<String> {
    line.tokens
        .iter()
        .map(|t| format!("{t:?}").split([' ', '(', '{']).next().unwrap_or_default().into())
        .collect()
}

#[test]
fn tokens_are_sorted_by_kind_and_keep_their_order_within_one() {
    let all = compiled(
        "RUN+=\"/b\", RUN{builtin}+=\"kmod load\", ENV{A}=\"1\", ATTRS{x}==\"1\", PROGRAM==\"/p\", KERNELS==\"k\", KERNEL==\"a\", OWNER=\"0\", OWNER=\"%k\", RESULT==\"r\"",
    );
    let expected = ["Match", "Parents", "Program", "Match", "OwnerByName", "Owner", "Env", "Run", "Run"];
    assert_eq!(kinds(&all.rules.lines[0]), expected);
    let Token::Parents(parents) = &all.rules.lines[0].tokens[1] else { panic!() };
    assert!(
        matches!(parents[0].subject, ParentKey::Kernel) && matches!(parents[1].subject, ParentKey::Attr(_))
    );
    assert!(matches!(all.rules.lines[0].tokens[7], Token::Run { command: RunCommand::Builtin(..), .. }));
}

#[test]
fn parents_are_asked_for_attributes_last() {
    let all = compiled(
        "ATTRS{b}==\"1\", TAGS==\"t\", ATTRS{a}==\"2\", DRIVERS==\"d\", SUBSYSTEMS==\"s\", KERNELS==\"k\", SUBSYSTEMS==\"r\", RUN+=\"/x\"",
    );
    let Token::Parents(parents) = &all.rules.lines[0].tokens[0] else { panic!() };
    let order: Vec<String> =
        parents.iter().map(|p| format!("{:?} {}", p.subject, p.pattern.as_literal().unwrap())).collect();
    assert_eq!(
        order,
        [
            "Kernel k",
            "Subsystem s",
            "Subsystem r",
            "Driver d",
            "Tag t",
            "Attr(Literal(\"b\")) 1",
            "Attr(Literal(\"a\")) 2"
        ]
    );
}

#[test]
fn a_line_that_only_jumped_nowhere_is_dropped_and_jumps_across_it_still_arrive() {
    let all =
        compiled("GOTO=\"x\"\nKERNEL==\"k\", GOTO=\"nowhere\"\nLABEL=\"y\", GOTO=\"nowhere\"\nLABEL=\"x\"\n");
    let lines: Vec<_> = all.rules.lines.iter().map(|l| (l.number, l.goto)).collect();
    assert_eq!(lines, [(1, Some(2)), (3, None), (4, None)]);
    let said: Vec<_> = all.diagnostics.iter().map(|d| (d.line, d.severity)).collect();
    assert_eq!(said, [(2, Severity::Error), (3, Severity::Error)]);
    assert!(all.diagnostics[0].message.ends_with("and the rule with it"));
}

#[test]
fn faulty_lines_are_dropped_with_a_word_about_why_and_others_stand() {
    let dropped = [
        "KERN==\"x\", ENV{A}=\"1\"",
        "KERNEL=\"x\"",
        "KERNEL{}==\"x\", ENV{A}=\"1\"",
        "ENV==\"x\"",
        "ENV{}=\"1\"",
        "ATTR{a}-=\"1\"",
        "NAME=\"%k\"",
        "NAME=\"\"",
        "NAME-=\"x\"",
        "ENV{DEVPATH}=\"x\"",
        "ENV{SYNTH_ARG_X}=\"1\"",
        "TEST{8}==\"x\", ENV{A}=\"1\"",
        "IMPORT{builtin}=\"nonesuch\"",
        "IMPORT{what}=\"x\"",
        "RUN{}+=\"x\"",
        "RUN{builtin}+=\"path\"",
        "RUN==\"x\"",
        "OWNER=\"bob\"",
        "GROUP=\"\"",
        "OWNER==\"0\"",
        "OPTIONS=\"link_priority=x\"",
        "OPTIONS=\"log_level=x\"",
        "OPTIONS-=\"watch\"",
        "CONST{x}==\"1\", ENV{A}=\"1\"",
        "SECLABEL=\"x\"",
        "SECLABEL{s}-=\"x\"",
        "TAG==\"x\"",
        "KERNEL==\"x\"",
        "TEST==\"x\"",
        "ENV{A}=i\"x\"",
        "TEST==i\"x\", ENV{A}=\"1\"",
        "PROGRAM=i\"x\"",
        "SYMLINK+==\"no\"",
        "ENV{A}=\"1",
        "ENV{A=\"1\"",
        "LABEL==\"x\"",
        "GOTO{x}=\"y\"",
        "IMPORT{db}-=\"x\"",
        "MODE-=\"1\"",
    ];
    for text in dropped {
        let all = compiled(&format!("ENV{{BEFORE}}=\"1\"\n{text}\nENV{{AFTER}}=\"1\"\n"));
        assert_eq!(all.rules.lines.len(), 2, "{text}");
        assert_eq!(all.diagnostics.len(), 1, "{text}: {:?}", all.diagnostics);
        assert_eq!(all.diagnostics[0].line, 2, "{text}");
    }
}

#[test]
fn milder_faults_cost_a_token_or_nothing() {
    let kept = [
        ("ATTR{a}+=\"1\"", Severity::Warning),
        ("ENV{A}:=\"1\"", Severity::Warning),
        ("NAME+=\"x\"", Severity::Warning),
        ("TAG:=\"x\"", Severity::Warning),
        ("MODE+=\"0600\"", Severity::Warning),
        ("RUN+=\"\"", Severity::Error),
        ("TEST==\"\", ENV{A}=\"1\"", Severity::Error),
        ("PROGRAM==\"\"", Severity::Error),
        ("MODE=\"9x\"", Severity::Error),
        ("OPTIONS+=\"last_rule\", ENV{A}=\"1\"", Severity::Warning),
        ("SUBSYSTEM==\"bus\", ENV{A}=\"1\"", Severity::Warning),
        ("ATTRS{device/x}==\"1\", ENV{A}=\"1\"", Severity::Warning),
        ("ENV{A}=\"%z\"", Severity::Error),
        ("GOTO=\"nowhere\", ENV{A}=\"1\"", Severity::Error),
        ("LABEL=\"a\", LABEL=\"b\"", Severity::Warning),
    ];
    for (text, severity) in kept {
        let all = compiled(text);
        assert_eq!(all.rules.lines.len(), 1, "{text}: {:?}", all.diagnostics);
        assert_eq!(all.diagnostics.iter().map(|d| d.severity).collect::<Vec<_>>(), [severity], "{text}");
    }
    for text in [
        "IMPORT{program}+=\"/x\"",
        "PROGRAM=\"/x\"",
        "OPTIONS+=\"watch\"",
        "RUN:=\"/x\"",
        "SYMLINK-=\"x\"",
        "OWNER=\"alice\", GROUP=\"disk\"",
        "GROUP=\"nobody\"",
    ] {
        assert_eq!(compiled(text).diagnostics, [], "{text}");
    }
}

#[test]
fn jumps_lead_to_the_next_line_of_that_label_below() {
    let all = compiled(
        "LABEL=\"x\", ENV{A}=\"1\", GOTO=\"x\"\nGOTO=\"x\", ENV{B}=\"1\"\nLABEL=\"x\"\nLABEL=\"x\", ENV{C}=\"1\"\n",
    );
    let gotos: Vec<_> = all.rules.lines.iter().map(|l| l.goto).collect();
    assert_eq!(gotos, [Some(2), Some(2), None, None]);
    let label = all.rules.lines[2].class;
    assert!(!label.goto && !label.other && !label.node && !label.name);
}

#[test]
fn jumps_do_not_leave_their_file() {
    let file = |path: &str, text: &str| SourceFile { path: path.into(), content: text.into() };
    let files = [file("a", "ENV{A}=\"1\"\nGOTO=\"x\", ENV{B}=\"1\""), file("b", "GOTO=\"x\"\nLABEL=\"x\"")];
    let all = compile(&files, &CompileOptions { resolve_names: ResolveNames::Early, accounts: &Staff });
    assert_eq!(all.rules.lines.iter().map(|l| l.goto).collect::<Vec<_>>(), [None, None, Some(3), None]);
    assert_eq!(all.diagnostics.len(), 1);
}

#[test]
fn static_nodes_carry_what_their_line_gives() {
    let all = compiled(
        "KERNEL==\"x\", OPTIONS+=\"static_node=snd/seq\", GROUP=\"disk\", TAG+=\"uaccess\"\nKERNEL==\"y\", OPTIONS=\"static_node=z\"\n",
    );
    let expected = StaticNode {
        name: "snd/seq".into(),
        owner: None,
        group: Some(6),
        mode: None,
        tags: vec!["uaccess".into()],
    };
    assert_eq!(all.rules.static_nodes, [expected]);
}

#[test]
fn names_are_resolved_early_late_or_never() {
    let with = |resolve_names, text: &str| {
        let file = SourceFile { path: "t".into(), content: text.into() };
        compile(&[file], &CompileOptions { resolve_names, accounts: &Staff })
    };
    let late = with(ResolveNames::Late, "OWNER=\"bob\", GROUP=\"5\"");
    assert_eq!(kinds(&late.rules.lines[0]), ["OwnerByName", "Group"]);
    let never = with(ResolveNames::Never, "OWNER=\"bob\", GROUP=\"5\"");
    assert_eq!(kinds(&never.rules.lines[0]), ["Group"]);
    assert_eq!(never.diagnostics, []);
    let nothing_else = with(ResolveNames::Never, "KERNEL==\"kvm\", GROUP=\"kvm\"");
    assert_eq!(nothing_else.rules.lines.len(), 0);
    assert_eq!(nothing_else.diagnostics, [], "the rule is right; an initramfs would be full of this");
}

#[test]
fn an_unknown_key_comes_with_the_nearest_one() {
    let all = compiled("\n  SUBSYTEM==\"net\", ENV{A}=\"1\"");
    let found = &all.diagnostics[0];
    assert_eq!((found.line, found.column, found.hint.as_str()), (2, 3, "did you mean SUBSYSTEM?"));
    for (key, hint) in [("kernel", "did you mean KERNEL?"), ("KERN", "did you mean KERNEL?"), ("FOO", "")] {
        assert_eq!(compiled(&format!("{key}==\"x\"")).diagnostics[0].hint, hint, "{key}");
    }
}
