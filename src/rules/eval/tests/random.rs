//! Random small rule sets: specialised and plain programs agree, whatever they ask, and a clone at any
//! question comes to the same end.

use super::{Begun, evaluate_all_ways, machine, null, sda1};
use crate::model::{Action, Event, Key};
use crate::rules::ask::Answer;
use crate::rules::eval::{EvalConfig, Halt};
use crate::rules::pattern::Pattern;
use crate::rules::program::{
    AttrName, Class, Line, ListOp, Match, MatchKey, ParentKey, ParentMatch, RuleSet, RunCommand, Token,
};
use crate::rules::skip::{EventKind, Specialised};
use crate::rules::subst::Template;
use proptest::prelude::*;
use std::sync::Arc;

/// A token but for its value.
#[derive(Clone, Debug)]
enum TokenShape {
    Action { negate: bool },
    Kernel { negate: bool },
    Env { key: u8, negate: bool },
    Subsystem { negate: bool },
    Attr { name: u8, negate: bool },
    Sysctl,
    Parents(Vec<(u8, bool)>),
    Program { negate: bool },
    SetEnv { key: u8, append: bool },
    WriteAttr { name: u8 },
    Symlink { op: ListOp },
    Run,
}

const KEYS: [&str; 2] = ["A", "B"];
const ATTRS: [&str; 3] = ["size", "vendor", "none"];
/// So few that they often meet.
const VALUES: [&str; 16] = [
    "a",
    "b",
    "1",
    "10",
    "ATA",
    "0x8086",
    "",
    "a|10",
    "|b",
    "?*",
    "*",
    "1*",
    "sda1|null",
    "block",
    "add",
    "remove",
];
const TEXTS: [&str; 8] = ["a", "b", "10", "", "%b", "%k$env{A}", "$attr{size}", "%c"];

fn pattern(value: &str) -> (Pattern, bool) {
    match value {
        "?*" => (Pattern::compile(b"", false), true),
        value => (Pattern::compile(value.as_bytes(), false), false),
    }
}

fn token(shape: &TokenShape, pick: u8) -> Token {
    let (compiled, flip) = pattern(VALUES[usize::from(pick) % VALUES.len()]);
    let text = Template::parse(TEXTS[usize::from(pick) % TEXTS.len()].as_bytes()).0;
    let compare =
        |subject, negate: bool, pattern| Token::Match(Match { subject, negate: negate != flip, pattern });
    match shape {
        TokenShape::Action { negate } => compare(MatchKey::Action, *negate, compiled),
        TokenShape::Kernel { negate } => compare(MatchKey::Kernel, *negate, compiled),
        TokenShape::Env { key, negate } => compare(MatchKey::Env(key_of(*key)), *negate, compiled),
        TokenShape::Subsystem { negate } => {
            compare(MatchKey::Subsystem { any_class: false }, *negate, compiled)
        }
        TokenShape::Attr { name, negate } => compare(MatchKey::Attr(attr_of(*name)), *negate, compiled),
        TokenShape::Sysctl => {
            let name = if pick.is_multiple_of(5) { "a/../b" } else { "kernel/x" };
            compare(MatchKey::Sysctl(Template::literal(name)), false, compiled)
        }
        TokenShape::Parents(members) => Token::Parents(
            members
                .iter()
                .map(|(kind, negate)| {
                    let (pattern, flip) =
                        pattern(VALUES[usize::from(pick.wrapping_add(*kind)) % VALUES.len()]);
                    let subject = match kind % 5 {
                        4 => ParentKey::Driver,
                        0 => ParentKey::Subsystem,
                        1 => ParentKey::Kernel,
                        2 => ParentKey::Attr(attr_of(1)),
                        _ => ParentKey::Attr(attr_of(0)),
                    };
                    ParentMatch { subject, negate: *negate != flip, pattern }
                })
                .collect(),
        ),
        TokenShape::Program { negate } => Token::Program { negate: *negate, command: text },
        TokenShape::SetEnv { key, append } => Token::Env { key: key_of(*key), append: *append, value: text },
        TokenShape::WriteAttr { name } => {
            Token::Attr { target: ATTRS[usize::from(*name) % 3].into(), value: text }
        }
        TokenShape::Symlink { op } => Token::Symlink { op: *op, value: text, last: pick.is_multiple_of(13) },
        TokenShape::Run => {
            let command = RunCommand::Program(Template::parse(b"%b %d $env{A} $env{B} %c %L").0);
            Token::Run { op: ListOp::Add, command, last: false }
        }
    }
}

fn key_of(key: u8) -> Key {
    Key::new(KEYS[usize::from(key) % KEYS.len()])
}

fn attr_of(name: u8) -> AttrName {
    AttrName::Literal(ATTRS[usize::from(name) % ATTRS.len()].into())
}

/// The order of kinds in a line.
fn rank(shape: &TokenShape) -> u8 {
    match shape {
        TokenShape::Action { .. } => 0,
        TokenShape::Kernel { .. } => 1,
        TokenShape::Env { .. } => 2,
        TokenShape::Subsystem { .. } => 3,
        TokenShape::Attr { .. } => 4,
        TokenShape::Sysctl => 5,
        TokenShape::Parents(_) => 6,
        TokenShape::Program { .. } => 7,
        TokenShape::SetEnv { .. } => 8,
        TokenShape::Symlink { .. } => 9,
        TokenShape::WriteAttr { .. } => 10,
        TokenShape::Run => 11,
    }
}

fn class(shapes: &[TokenShape], goto: bool) -> Class {
    let node = |s: &TokenShape| matches!(s, TokenShape::Symlink { .. });
    let effect = |s: &TokenShape| rank(s) >= 7;
    Class {
        goto,
        node: shapes.iter().any(node),
        other: shapes.iter().any(|s| effect(s) && !node(s)),
        name: false,
    }
}

fn shape() -> impl Strategy<Value = TokenShape> {
    let op = prop_oneof![Just(ListOp::Set), Just(ListOp::Add), Just(ListOp::Remove)];
    prop_oneof![
        1 => any::<bool>().prop_map(|negate| TokenShape::Action { negate }),
        2 => any::<bool>().prop_map(|negate| TokenShape::Kernel { negate }),
        4 => (0u8..2, prop::bool::weighted(0.2)).prop_map(|(key, negate)| TokenShape::Env { key, negate }),
        1 => any::<bool>().prop_map(|negate| TokenShape::Subsystem { negate }),
        4 => (0u8..3, prop::bool::weighted(0.2)).prop_map(|(name, negate)| TokenShape::Attr { name, negate }),
        1 => Just(TokenShape::Sysctl),
        4 => prop::collection::vec((0u8..5, prop::bool::weighted(0.1)), 1..3).prop_map(|mut members| {
            members.sort();
            TokenShape::Parents(members)
        }),
        1 => any::<bool>().prop_map(|negate| TokenShape::Program { negate }),
        4 => (0u8..2, any::<bool>()).prop_map(|(key, append)| TokenShape::SetEnv { key, append }),
        1 => (0u8..3).prop_map(|name| TokenShape::WriteAttr { name }),
        2 => op.prop_map(|op| TokenShape::Symlink { op }),
        3 => Just(TokenShape::Run),
    ]
}

/// A number of lines of one shape, with other values; each may jump ahead.
fn block() -> impl Strategy<Value = Vec<(Vec<TokenShape>, u8, Option<u8>)>> {
    let jump = prop::option::weighted(0.15, 1u8..8);
    (prop::collection::vec(shape(), 0..4), prop::collection::vec((any::<u8>(), jump), 1..9)).prop_map(
        |(mut shapes, lines)| {
            shapes.sort_by_key(rank);
            let parents = shapes.iter().filter(|s| matches!(s, TokenShape::Parents(_))).count();
            if parents > 1 {
                shapes.retain(|s| !matches!(s, TokenShape::Parents(_)));
            }
            lines.into_iter().map(|(pick, goto)| (shapes.clone(), pick, goto)).collect()
        },
    )
}

/// Lines that begin with one of few questions, as those of many packages do, each with an effect.
fn packages() -> impl Strategy<Value = Vec<(Vec<TokenShape>, u8, Option<u8>)>> {
    let question = prop_oneof![
        2 => prop::sample::select(vec![0u8, 4]).prop_map(|kind| TokenShape::Parents(vec![(kind, false)])),
        1 => (0u8..2).prop_map(|key| TokenShape::Env { key, negate: false }),
        1 => Just(TokenShape::Kernel { negate: false }),
    ];
    let effect =
        prop_oneof![3 => Just(TokenShape::Run), 1 => Just(TokenShape::SetEnv { key: 0, append: false })];
    let jump = prop::option::weighted(0.1, 1u8..8);
    let pick = prop::sample::select(vec![0u8, 2, 9, 12, 13]);
    let line = (question, effect, pick, jump)
        .prop_map(|(question, effect, pick, goto)| (vec![question, effect], pick, goto));
    prop::collection::vec(line, 4..20)
}

/// Sets dev_parent, so that the last line shows whether it was cleared.
fn first_line() -> Line {
    let any =
        ParentMatch { subject: ParentKey::Kernel, negate: false, pattern: Pattern::compile(b"*", false) };
    line_of(1, vec![Token::Parents(vec![any]), token(&TokenShape::SetEnv { key: 1, append: false }, 0)])
}

fn line_of(number: u32, tokens: Vec<Token>) -> Line {
    Line { file: 0, number, tokens, class: Class { other: true, ..Class::default() }, goto: None }
}

fn rule_set() -> impl Strategy<Value = RuleSet> {
    prop::collection::vec(prop_oneof![3 => block(), 1 => packages()], 0..7).prop_map(|blocks| {
        let plan: Vec<_> = blocks.into_iter().flatten().collect();
        let count = plan.len() as u32;
        let mut lines = vec![first_line()];
        lines.extend((1..).zip(&plan).map(|(i, (shapes, pick, jump))| {
            let goto = jump.map(|j| i + u32::from(j)).filter(|t| *t <= count);
            let tokens = (0..).zip(shapes).map(|(n, s)| token(s, pick.wrapping_mul(1 + n))).collect();
            Line { file: 0, number: i + 1, tokens, class: class(shapes, goto.is_some()), goto }
        }));
        lines.push(line_of(count + 2, vec![token(&TokenShape::Run, 0)]));
        RuleSet { files: vec!["random.rules".into()], lines, static_nodes: Vec::new() }
    })
}

fn event() -> impl Strategy<Value = Event> {
    (any::<bool>(), any::<bool>(), prop::option::of(0usize..VALUES.len())).prop_map(|(disk, remove, a)| {
        let mut event = if disk { sda1() } else { null() };
        if remove {
            event.action = Action::Remove;
        }
        if let Some(a) = a {
            event.properties.set("A", VALUES[a]);
        }
        event
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn specialised_and_plain_programs_agree(rules in rule_set(), event in event()) {
        let mut world = machine();
        world.program("a", "b\n");
        world.program("10", "10");
        evaluate_all_ways(Arc::new(rules), &event, &mut world, &EvalConfig::default());
    }
}

#[test]
fn a_list_of_vendors_becomes_a_run_and_costs_one_question() {
    let line = |i: u32| {
        let value = Pattern::compile(format!("{i:04x}").as_bytes(), false);
        let attr = |name: &str, pattern: Pattern| {
            let subject = MatchKey::Attr(AttrName::Literal(name.into()));
            Token::Match(Match { subject, negate: false, pattern })
        };
        let run = RunCommand::Program(Template::literal(format!("run {i}")));
        Line {
            file: 0,
            number: i,
            tokens: vec![
                attr("idVendor", value.clone()),
                attr("idProduct", value),
                Token::Run { op: ListOp::Add, command: run, last: false },
            ],
            class: Class { other: true, ..Class::default() },
            goto: None,
        }
    };
    let rules = Arc::new(RuleSet {
        files: vec!["x".into()],
        lines: (1..=400).map(line).collect(),
        static_nodes: vec![],
    });
    let program =
        crate::rules::skip::Specialised::new(rules.clone(), crate::rules::skip::EventKind::of(&null()));
    assert_eq!(program.size(), (400, 1));

    let mut world = machine();
    evaluate_all_ways(rules.clone(), &null(), &mut world, &EvalConfig::default());
    assert_eq!(world.asked.len(), 1, "{:?}", world.asked);

    let mut world = machine();
    for device in &mut world.devices {
        device.attrs.insert("idVendor".into(), "00c8".into());
        device.attrs.insert("idProduct".into(), "00c8".into());
    }
    let (outcome, _) = evaluate_all_ways(rules, &null(), &mut world, &EvalConfig::default());
    assert_eq!(outcome.run, [crate::rules::outcome::RunItem::Program("run 200".into())]);
    assert_eq!(world.asked.len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    #[test]
    fn answers_of_the_wrong_kind_never_keep_a_question_open(rules in rule_set(), event in event(), text: bool) {
        let wrong = if text { Answer::Text(Ok(None)) } else { Answer::Id(None) };
        let program = Arc::new(Specialised::new(Arc::new(rules), EventKind::of(&event)));
        let Begun { mut evaluation, mut outcome } = Begun::new(program, &event, &EvalConfig::default());
        let mut asked = 0;
        while let Halt::Ask(_) = evaluation.run(&mut outcome) {
            asked += 1;
            prop_assert!(asked < 10_000);
            evaluation.answer(wrong.clone());
        }
    }
}
