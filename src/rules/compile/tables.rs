//! The tables of the specification, row by row.

use super::*;
use crate::rules::diagnostic::Severity;
use crate::rules::program::*;
use proptest::prelude::*;

/// alice is 7, a system account; bob is 1234, none.
struct Two;

impl Accounts for Two {
    fn user(&self, name: &[u8]) -> Option<u32> {
        match name {
            b"alice" => Some(7),
            b"bob" => Some(1234),
            _ => None,
        }
    }

    fn group(&self, name: &[u8]) -> Option<u32> {
        self.user(name).map(|id| id + 100)
    }
}

fn compile_with(text: &[u8], resolve_names: ResolveNames) -> Compiled {
    let file = SourceFile { path: "t.rules".into(), content: text.into() };
    compile(&[file], &CompileOptions { resolve_names, accounts: &Two })
}

fn early(text: &str) -> Compiled {
    compile_with(text.as_bytes(), ResolveNames::Early)
}

fn severities(compiled: &Compiled) -> Vec<Severity> {
    compiled.diagnostics.iter().map(|d| d.severity).collect()
}

/// The only line's tokens, as debug text.
fn tokens(text: &str) -> String {
    let compiled = early(text);
    assert_eq!(compiled.rules.lines.len(), 1, "{text}: {:?}", compiled.diagnostics);
    format!("{:?}", compiled.rules.lines[0].tokens)
}

/// `TAG+="x"` gives every line an effect of its own, so that only the token in question can drop it.
fn fate(token: &str) -> (bool, Vec<Severity>) {
    let compiled = early(&format!("TAG+=\"x\", {token}"));
    (!compiled.rules.lines.is_empty(), severities(&compiled))
}

use Severity::{Error, Warning};

#[test]
fn malformed_input_is_met_as_the_table_of_the_language_says() {
    for (token, kept, said) in [
        (r#"FOO=="x""#, false, &[Error][..]),
        (r#"KERNEL{a}=="x""#, false, &[Error]),
        (r#"KERNEL{}=="x""#, false, &[Error]),
        (r#"ENV=="x""#, false, &[Error]),
        (r#"ENV{}=="x""#, false, &[Error]),
        (r#"ATTR=="x""#, false, &[Error]),
        (r#"SECLABEL="x""#, false, &[Error]),
        (r#"IMPORT="x""#, false, &[Error]),
        (r#"IMPORT{what}="x""#, false, &[Error]),
        (r#"RUN{}+="x""#, false, &[Error]),
        (r#"RUN{what}+="x""#, false, &[Error]),
        (r#"CONST{what}=="x""#, false, &[Error]),
        (r#"CONST{cvm}=="none""#, true, &[]),
        (r#"TEST{}=="x""#, true, &[]),
        (r#"TEST{0711}=="x""#, true, &[]),
        (r#"TEST{9}=="x""#, false, &[Error]),
        (r#"ENV{a}="%y""#, true, &[Error]),
        (r#"ATTR{$dev}=="x""#, true, &[Error]),
        (r#"TAG+="""#, true, &[Error]),
        (r#"TEST=="""#, true, &[Error]),
        (r#"PROGRAM=="""#, true, &[Error]),
        (r#"IMPORT{file}=="""#, true, &[Error]),
        (r#"IMPORT{program}=="""#, true, &[Error]),
        (r#"MODE="""#, true, &[Error]),
        (r#"SECLABEL{x}="""#, true, &[Error]),
        (r#"RUN="""#, true, &[Error]),
        (r#"OWNER="""#, false, &[Error]),
        (r#"GROUP="""#, false, &[Error]),
        (r#"OWNER="nosuch""#, false, &[Error]),
        (r#"GROUP="01""#, false, &[Error]),
        (r#"OWNER="65535""#, false, &[Error]),
        (r#"OWNER="bob""#, true, &[Warning]),
        (r#"OPTIONS="last_rule""#, true, &[Warning]),
        (r#"OPTIONS="watch db_persist""#, true, &[Warning]),
        (r#"OPTIONS="link_priority=x""#, false, &[Error]),
        (r#"OPTIONS="link_priority=4294967296""#, false, &[Error]),
        (r#"OPTIONS="log_level=x""#, false, &[Error]),
        (r#"IMPORT{builtin}="nosuch""#, false, &[Error]),
        (r#"IMPORT{builtin}="path""#, false, &[Error]),
        (r#"RUN{builtin}+="nosuch x""#, false, &[Error]),
        (r#"NAME="%k""#, false, &[Error]),
        (r#"NAME="""#, false, &[Error]),
        (r#"NAME="$kernel""#, true, &[]),
        (r#"NAME=="""#, true, &[]),
        (r#"ENV{e-d}="x""#, true, &[Warning]),
        (r#"ATTRS{device/x}=="y""#, true, &[Warning]),
        (r#"ATTRS{../x}=="y""#, true, &[Warning]),
        (r#"SUBSYSTEM=="bus""#, true, &[Warning]),
        (r#"SUBSYSTEM=="class""#, true, &[Warning]),
        (r#"SUBSYSTEM=="subsystem""#, true, &[]),
        (r#"LABEL="a", LABEL="b""#, true, &[Warning]),
        (r#"KERNEL"#, false, &[Error]),
        (r#"KERNEL=="x"#, false, &[Error]),
        (r#"KERNEL==x"#, false, &[Error]),
        (r#"MODE="9x""#, true, &[Error]),
        (r#"MODE="$env{m}""#, true, &[]),
        (r#"KERNEL==i"x""#, true, &[]),
        (r#"ENV{x}=i"y""#, false, &[Error]),
        (r#"TEST==i"y""#, false, &[Error]),
        (r#"PROGRAM==i"y""#, false, &[Error]),
        (r#"IMPORT{db}==i"y""#, false, &[Error]),
    ] {
        assert_eq!(fate(token), (kept, said.to_vec()), "{token}");
    }
}

#[test]
fn operators_are_taken_bent_or_refused_per_key() {
    // k: kept, w: kept with a warning, d: the line is dropped; in the order == != = += -= :=
    for (key, value, fates) in [
        ("ACTION", "x", "kkdddd"),
        ("DEVPATH", "x", "kkdddd"),
        ("KERNEL", "x", "kkdddd"),
        ("SUBSYSTEM", "x", "kkdddd"),
        ("DRIVER", "x", "kkdddd"),
        ("CONST{arch}", "x", "kkdddd"),
        ("KERNELS", "x", "kkdddd"),
        ("SUBSYSTEMS", "x", "kkdddd"),
        ("DRIVERS", "x", "kkdddd"),
        ("ATTRS{a}", "x", "kkdddd"),
        ("TAGS", "x", "kkdddd"),
        ("TEST", "x", "kkdddd"),
        ("RESULT", "x", "kkdddd"),
        ("PROGRAM", "x", "kkkkdk"),
        ("IMPORT{db}", "x", "kkkkdk"),
        ("NAME", "x", "kkkwdk"),
        ("SYMLINK", "x", "kkkkkk"),
        ("ATTR{a}", "x", "kkkwdw"),
        ("SYSCTL{a}", "x", "kkkwdw"),
        ("ENV{a}", "x", "kkkkdw"),
        ("TAG", "x", "kkkkkw"),
        ("OWNER", "7", "ddkwdk"),
        ("GROUP", "7", "ddkwdk"),
        ("MODE", "7", "ddkwdk"),
        ("SECLABEL{a}", "x", "ddkkdw"),
        ("RUN", "x", "ddkkdk"),
        ("RUN{program}", "x", "ddkkdk"),
        ("RUN{builtin}", "kmod load x", "ddkkdk"),
        ("OPTIONS", "watch", "ddkkdk"),
        ("LABEL", "x", "ddkddd"),
    ] {
        let operators = ["==", "!=", "=", "+=", "-=", ":="];
        let found: String = operators
            .iter()
            .map(|op| match fate(&format!("{key}{op}\"{value}\"")) {
                (true, said) if said.is_empty() => 'k',
                (true, said) if said == [Warning] => 'w',
                (false, said) if said == [Error] => 'd',
                odd => panic!("{key}{op}: {odd:?}"),
            })
            .collect();
        assert_eq!(found, fates, "{key}");
    }
    for (op, kept) in [("==", false), ("!=", false), ("=", true), ("+=", false), ("-=", false), (":=", false)]
    {
        let compiled = early(&format!("TAG+=\"x\", GOTO{op}\"l\"\nLABEL=\"l\""));
        assert_eq!(compiled.rules.lines.len() == 2, kept, "GOTO{op}");
    }
}

#[test]
fn protected_properties_are_read_but_not_set() {
    for name in "ACTION DEVLINKS DEVNAME DEVPATH DEVTYPE DRIVER IFINDEX MAJOR MINOR SEQNUM SUBSYSTEM TAGS SYNTH_UUID \
        SYNTH_ARG_X DEVPATH_OLD MODALIAS DEVMODE DEVUID DEVGID DISKSEQ PARTN INTERFACE INTERFACE_OLD CURRENT_TAGS \
        USEC_INITIALIZED UDEV_DATABASE_VERSION"
        .split_whitespace() {
        assert_eq!(fate(&format!("ENV{{{name}}}=\"x\"")), (false, vec![Error]), "{name}");
        assert_eq!(fate(&format!("ENV{{{name}}}+=\"x\"")), (false, vec![Error]), "{name}");
        assert_eq!(fate(&format!("ENV{{{name}}}==\"x\"")), (true, vec![]), "{name}");
    }
    for name in ["ID_PROCESSING", "ID_RENAMING", "UDEV_WORKER_FAILED", "PARTNAME", ".x", "SYNTH_ARG"] {
        assert_eq!(fate(&format!("ENV{{{name}}}=\"x\"")), (true, vec![]), "{name}");
    }
}

#[test]
fn a_line_without_effect_is_dropped() {
    for (line, kept) in [
        (r#"KERNEL=="x""#, false),
        (r#"TEST=="x", RESULT=="y", KERNELS=="z""#, false),
        (r#"OPTIONS="nosuch""#, false),
        (r#"PROGRAM=="x""#, true),
        (r#"IMPORT{db}="x""#, true),
        (r#"OPTIONS="static_node=x""#, true),
        (r#"LABEL="x""#, true),
        (r#"SYMLINK+="x""#, true),
        (r#"ENV{x}="""#, true),
    ] {
        let compiled = early(line);
        assert_eq!(compiled.rules.lines.len() == 1, kept, "{line}");
        assert_eq!(severities(&compiled).last() == Some(&Warning), !kept, "{line}");
    }
}

#[test]
fn jumps_lead_to_the_next_line_below_with_that_label() {
    let targets =
        |text: &str| -> Vec<Option<u32>> { early(text).rules.lines.iter().map(|l| l.goto).collect() };
    let run = "RUN+=\"r\"\n";
    assert_eq!(
        targets(&format!("GOTO=\"a\"\n{run}LABEL=\"a\"\n{run}LABEL=\"a\"")),
        [Some(2), None, None, None, None]
    );
    // Its own label is not below.
    assert_eq!(targets("LABEL=\"a\", GOTO=\"a\"\nLABEL=\"a\""), [Some(1), None]);
    // Dropped lines leave no label behind and shift no target.
    assert_eq!(
        targets(&format!("GOTO=\"a\"\nKERNEL==\"x\"\nLABEL=\"a\", FOO=\"x\"\nLABEL=\"a\"\n{run}")),
        [Some(1), None, None]
    );
    // Missing and upward ones: the rest of the line stays, a mere label too; a mere jump goes.
    let compiled =
        early("LABEL=\"up\"\nRUN+=\"r\", GOTO=\"up\"\nLABEL=\"b\", GOTO=\"no\"\nKERNEL==\"x\", GOTO=\"no\"");
    assert_eq!(
        compiled.rules.lines.iter().map(|l| (l.number, l.goto)).collect::<Vec<_>>(),
        [(1, None), (2, None), (3, None)]
    );
    assert!(compiled.rules.lines.iter().all(|l| !l.class.goto));
    assert_eq!(severities(&compiled), [Error, Error, Error]);
    // The second GOTO of a line is ignored, the second LABEL replaces the first.
    assert_eq!(
        targets("GOTO=\"a\", GOTO=\"b\"\nLABEL=\"b\"\nLABEL=\"x\", LABEL=\"a\""),
        [Some(2), None, None]
    );
}

#[test]
fn labels_do_not_leave_their_file() {
    let file = |text: &str| SourceFile { path: "f".into(), content: text.into() };
    let files = [file("GOTO=\"a\", TAG=\"x\""), file("LABEL=\"a\"\nGOTO=\"b\"\nLABEL=\"b\"")];
    let options = CompileOptions { resolve_names: ResolveNames::Early, accounts: &Two };
    let rules = compile(&files, &options).rules;
    assert_eq!(
        rules.lines.iter().map(|l| (l.file, l.goto)).collect::<Vec<_>>(),
        [(0, None), (1, None), (1, Some(3)), (1, None)]
    );
}

#[test]
fn tokens_are_sorted_by_kind_and_stay_in_order_within_one() {
    let compiled = early(
        "RUN+=\"p\", RUN{builtin}+=\"kmod\", SYMLINK+=\"a\", SYMLINK=\"b\", OWNER=\"0\", OWNER=\"$env{o}\", \
         RESULT==\"r\", PROGRAM==\"p\", ENV{b}=\"1\", TAG+=\"t\", OPTIONS+=\"watch\", OPTIONS+=\"dump\", \
         TEST==\"t\", ATTRS{x}==\"1\", IMPORT{db}=\"d\", SYSCTL{s}==\"v\", ATTR{a}==\"v\", ENV{c}==\"v\", \
         KERNELS==\"k\", ACTION==\"add\"",
    );
    assert_eq!(severities(&compiled), []);
    let kind = |token: &Token| match token {
        Token::Match(m) => format!("{:?}", m.subject).split(['(', ' ']).next().unwrap().to_owned(),
        token => format!("{token:?}").split(['(', ' ']).next().unwrap().to_owned(),
    };
    let kinds: Vec<String> = compiled.rules.lines[0].tokens.iter().map(kind).collect();
    assert_eq!(
        kinds.join(" "),
        "Action Env Attr Sysctl Parents Test Program ImportDb Result Option Option \
        OwnerByName Owner Tag Env Symlink Symlink Run Run"
    );
    let text = format!("{:?}", compiled.rules.lines[0].tokens);
    assert!(text.find("Symlink { op: Add").unwrap() < text.find("Symlink { op: Set").unwrap());
    let Token::Parents(parents) = &compiled.rules.lines[0].tokens[4] else { panic!() };
    assert_eq!(parents.len(), 2);
}

#[test]
fn lines_know_what_makes_them_worth_a_look() {
    let class = |text: &str| early(text).rules.lines[0].class;
    let none = Class::default();
    assert_eq!(class("LABEL=\"x\""), none);
    assert_eq!(class("OPTIONS=\"static_node=x\""), none);
    assert_eq!(class("GOTO=\"x\"\nLABEL=\"x\""), Class { goto: true, ..none });
    assert_eq!(class("NAME=\"x\""), Class { name: true, ..none });
    for text in ["SYMLINK+=\"x\"", "OWNER=\"0\"", "GROUP=\"alice\"", "MODE=\"0600\""] {
        assert_eq!(class(text), Class { node: true, ..none }, "{text}");
    }
    for text in [
        "PROGRAM==\"x\"",
        "IMPORT{db}=\"x\"",
        "ENV{x}=\"y\"",
        "TAG+=\"x\"",
        "ATTR{x}=\"y\"",
        "SYSCTL{x}=\"y\"",
        "RUN+=\"x\"",
        "SECLABEL{x}=\"y\"",
        "OPTIONS=\"watch\"",
    ] {
        assert_eq!(class(text), Class { other: true, ..none }, "{text}");
    }
}

#[test]
fn a_value_that_only_asks_for_text_is_the_negated_empty_one() {
    for (token, negated) in [("ENV{a}==\"?*\"", true), ("ENV{a}!=\"?*\"", false), ("ENV{a}!=\"\"", true)] {
        let compiled = early(&format!("{token}, TAG+=\"x\""));
        let Token::Match(m) = &compiled.rules.lines[0].tokens[0] else { panic!() };
        assert_eq!(
            (m.negate, m.pattern.matches(b""), m.pattern.matches(b"x")),
            (negated, true, false),
            "{token}"
        );
        assert_eq!(m.pattern.trims_attribute, token.contains("?*"), "{token}");
    }
}

#[test]
fn names_become_numbers_when_they_are_told_to() {
    let node = |text: &str, resolve| {
        let compiled = compile_with(format!("{text}, TAG+=\"x\"").as_bytes(), resolve);
        format!("{:?}", compiled.rules.lines[0].tokens[0]).split(' ').next().unwrap().to_owned()
    };
    use ResolveNames::*;
    for (token, in_early, in_late, in_never) in [
        ("OWNER=\"7\"", "Owner", "Owner", "Owner"),
        ("OWNER=\"alice\"", "Owner", "OwnerByName", "Tag"),
        ("OWNER=\"$env{o}\"", "OwnerByName", "OwnerByName", "OwnerByName"),
        ("GROUP=\"[x\"", "GroupByName", "GroupByName", "GroupByName"),
        ("GROUP=\"nobody\"", "Group", "GroupByName", "Tag"),
    ] {
        assert_eq!(node(token, Early), in_early, "{token}");
        assert_eq!((node(token, Late), node(token, Never)), (in_late.into(), in_never.into()), "{token}");
    }
    assert!(tokens("GROUP:=\"alice\"").contains("Group { id: 107, last: true }"));
    assert!(tokens("OWNER=\"root\"").contains("id: 0,"));
    assert!(tokens("GROUP=\"nobody\"").contains("id: 65534,"));
}

#[test]
fn a_program_that_is_a_builtin_is_called_as_one() {
    assert!(tokens("IMPORT{program}=\"usb_id --x\"").contains("ImportBuiltin"));
    assert!(tokens("IMPORT{program}=\"usb_idx\"").contains("ImportProgram"));
    assert!(tokens("IMPORT{program}=\"\"").contains("ImportProgram"));
}

#[test]
fn attribute_names_are_told_apart() {
    for (name, wanted) in [
        ("a/b", "Literal(\"a/b\")"),
        ("[net/eth0]address", "Of { subsystem: \"net\", sysname: \"eth0\", attr: \"address\" }"),
        ("[a/b/c]/x/y", "Of { subsystem: \"a\", sysname: \"b/c\", attr: \"x/y\" }"),
        ("[net/eth0]", "Literal(\"[net/eth0]\")"),
        ("[net]x", "Literal(\"[net]x\")"),
        ("[/x]y", "Literal(\"[/x]y\")"),
        ("[net/%k]x", "Of { subsystem: \"net\", sysname: \"%k\", attr: \"x\" }"),
        ("pcmC%nD0p/pcm_class", "Template("),
        ("a$kernel", "Template("),
    ] {
        let text = tokens(&format!("ATTR{{{name}}}==\"x\", TAG+=\"x\""));
        assert!(text.contains(wanted), "{name}: {text}");
    }
}

#[test]
fn options_are_read_as_one_word_each() {
    for (value, wanted) in [
        ("string_escape=none", "StringEscape(None)"),
        ("string_escape=replace", "StringEscape(Replace)"),
        ("db_persist", "DbPersist"),
        ("nowatch", "Watch { on: false, last: false }"),
        ("link_priority=-10", "LinkPriority(-10)"),
        ("link_priority=0x10", "LinkPriority(16)"),
        ("link_priority=0b11", "LinkPriority(3)"),
        ("link_priority=0o17", "LinkPriority(15)"),
        ("link_priority=017", "LinkPriority(15)"),
        ("link_priority=0", "LinkPriority(0)"),
        ("link_priority=-2147483648", "LinkPriority(-2147483648)"),
        ("log_level=debug", "LogLevel(Some(Debug))"),
        ("log_level=3", "LogLevel(Some(Error))"),
        ("log_level=reset", "LogLevel(None)"),
        ("dump", "Dump { json: false }"),
        ("dump-json", "Dump { json: true }"),
    ] {
        assert!(tokens(&format!("OPTIONS=\"{value}\"")).contains(wanted), "{value}");
    }
    assert!(tokens("OPTIONS:=\"watch\"").contains("Watch { on: true, last: true }"));
}

#[test]
fn static_nodes_take_what_their_line_says_wherever_it_stands() {
    let rules = early(
        "OPTIONS+=\"static_node=a\", KERNEL==\"x\", GROUP=\"alice\", MODE=\"0600\", TAG+=\"t\", \
         OPTIONS+=\"static_node=b\"\nOPTIONS=\"static_node=c\", FOO=\"x\"",
    )
    .rules;
    let node = |name: &str| StaticNode {
        name: name.into(),
        owner: None,
        group: Some(107),
        mode: Some(0o600),
        tags: vec!["t".into()],
    };
    assert_eq!(rules.static_nodes, [node("a"), node("b")]);
}

#[test]
fn diagnostics_show_the_place_and_name_the_first_line_of_its_rule() {
    let compiled = early("# c\nKERNEL==\"x\", \\\n  # c\n  KERNL==\"y\"\nRUN+=\"z\"\n");
    assert_eq!(compiled.rules.lines.len(), 1);
    let found = &compiled.diagnostics[0];
    assert_eq!((found.rule, found.line, found.column), (2, 4, 3));
    assert_eq!(found.text, "  KERNL==\"y\"");
    assert!(found.to_string().contains(":4:3: error: ") && found.to_string().contains("at line 2)"));
    assert!(found.hint.contains("KERNEL"));
}

#[test]
fn a_file_with_an_endless_line_is_not_used_at_all() {
    let text = format!("RUN+=\"a\"\n#{}\nRUN+=\"b\"", "x".repeat(16383));
    let compiled = early(&text);
    assert_eq!((compiled.rules.lines.len(), severities(&compiled)), (0, vec![Error]));
    assert_eq!(early(&text.replacen('x', "", 1)).rules.lines.len(), 2);
}

/// Debian's rules, if someone has unpacked them: no copy of them is kept here.
#[test]
fn the_rules_of_debian_compile_without_an_error() {
    let folder = "/tmp/peer/root/lib/udev/rules.d";
    let Ok(entries) = std::fs::read_dir(folder) else {
        eprintln!("skipped: no {folder}");
        return;
    };
    let files: Vec<SourceFile> = entries
        .flatten()
        .filter(|e| e.path().extension().is_some_and(|x| x == "rules"))
        .map(|e| SourceFile {
            path: e.path().to_string_lossy().into_owned().into(),
            content: std::fs::read(e.path()).unwrap(),
        })
        .collect();
    let begin = std::time::Instant::now();
    let options = CompileOptions { resolve_names: ResolveNames::Late, accounts: &Two };
    let compiled = compile(&files, &options);
    eprintln!("{} files, {} lines: {:?}", files.len(), compiled.rules.lines.len(), begin.elapsed());
    assert_eq!(compiled.diagnostics, []);
    assert!(compiled.rules.lines.len() > 300);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
    #[test]
    fn arbitrary_bytes_never_panic(content: Vec<u8>) {
        let compiled = compile_with(&content, ResolveNames::Early);
        compiled.diagnostics.iter().for_each(|d| { d.to_string(); });
    }

    #[test]
    fn shuffled_pieces_of_rules_never_panic(pieces in proptest::collection::vec(
        prop_oneof![
            Just("KERNEL"), Just("ENV{a}"), Just("ATTRS{[a/b]c}"), Just("IMPORT{program}"), Just("RUN"), Just("GOTO"),
            Just("LABEL"), Just("=="), Just("="), Just("+="), Just("\"x|*\""), Just("\"$attr{\""), Just("e\"\\x41\""),
            Just("i\"?*\""), Just(", "), Just("\\\n"), Just("\n"), Just("#"), Just("OPTIONS"), Just("\"static_node=x\""),
            Just("OWNER"), Just("{"), Just("}"),
        ], 0..40)) {
        let compiled = compile_with(pieces.concat().as_bytes(), ResolveNames::Early);
        for (i, line) in compiled.rules.lines.iter().enumerate() {
            prop_assert!(line.goto.is_none_or(|target| target as usize > i && (target as usize) < compiled.rules.lines.len()));
        }
        compiled.diagnostics.iter().for_each(|d| { d.to_string(); });
    }
}
