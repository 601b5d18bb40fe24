//! Where an evaluation pauses. That pauses change nothing is shown by all tests (`finish_in_steps`).

use super::*;
use crate::rules::eval::TURN;

/// Pauses until the end; world and rules must ask for nothing but what the world answers.
fn pauses(rules: &str, event: &Event, world: &MemoryWorld) -> (usize, Outcome) {
    let mut world = world.clone();
    let program = Arc::new(Specialised::new(compiled(&[rules]), EventKind::of(event)));
    let Begun { mut evaluation, mut outcome } = Begun::new(program, event, &EvalConfig::default());
    let mut pauses = 0;
    loop {
        match evaluation.go_on(&mut outcome) {
            TurnEnd::Done => return (pauses, outcome),
            TurnEnd::Pauses => pauses += 1,
            TurnEnd::Asks => {
                let ask = evaluation.asked().expect("it asks").clone();
                evaluation.answer(world.answer(&outcome.event, &ask));
            }
        }
    }
}

fn value(outcome: &Outcome, name: &str) -> Option<String> {
    outcome.event.properties.get(name).map(|value| value.to_string())
}

#[test]
fn ordinary_events_are_through_in_one_turn() {
    let rules =
        (0..300).map(|n| format!("ATTRS{{a{}}}==\"x\", ENV{{V{n}}}=\"1\"\n", n % 5)).collect::<String>();
    assert_eq!(pauses(&rules, &sda1(), &machine()).0, 0);
}

#[test]
fn an_import_of_many_lines_pauses_in_between() {
    let lines = |count: usize| (0..count).map(|n| format!("P{n}={n}\n")).collect::<String>();
    let mut world = machine();
    world.file("/many", 0o644, lines(20_000));
    let rules = "IMPORT{file}==\"/many\", ENV{ALL}=\"$env{P0}-$env{P19999}\"\nENV{AFTER}=\"1\"\n";
    let (count, outcome) = pauses(rules, &null(), &world);
    let expected = 20_000 * (64 + "P10000=10000".len()) / TURN;
    assert!((expected - 2..expected + 3).contains(&count), "{count} pauses, about {expected} expected");
    assert_eq!(value(&outcome, "ALL").as_deref(), Some("0-19999"));
    assert_eq!(value(&outcome, "AFTER").as_deref(), Some("1"));
}

#[test]
fn a_long_line_ends_an_import_that_has_paused() {
    let mut world = machine();
    let text =
        (0..5000).map(|n| format!("P{n}={n}\n")).collect::<String>() + &"x".repeat((1 << 20) + 1) + "\nQ=1\n";
    world.file("/long", 0o644, text);
    let rules = "IMPORT{file}==\"/long\", ENV{HELD}=\"1\"\nIMPORT{file}!=\"/long\", ENV{NOT}=\"1\"\n";
    let seen = run(rules, &null(), &world);
    assert_eq!(seen.set(&["P0", "P4999", "Q", "HELD", "NOT"]), ["P0", "P4999", "NOT"]);
    assert_eq!(seen.notes.len(), 2, "{:?}", seen.notes);
}

#[test]
fn properties_of_a_parent_are_imported_in_portions() {
    let mut world = machine();
    let disk = world.devices.iter_mut().find(|d| d.devpath == SDA).unwrap();
    disk.properties = (0..5000).map(|n| (format!("P{n}"), "x")).collect();
    let (count, outcome) = pauses("IMPORT{parent}==\"P*9\", ENV{HELD}=\"1\"\n", &sda1(), &world);
    assert!(count > 1, "{count}");
    assert_eq!(value(&outcome, "HELD").as_deref(), Some("1"));
    let imported =
        outcome.event.properties.iter().filter(|p| p.name.starts_with(b"P") && p.value == "x").count();
    assert_eq!(imported, 500);
}

/// Long values and patterns that go back as far as they can: hundreds of such lines are many turns.
#[test]
fn lines_that_compare_much_pause_in_between() {
    let mut event = null();
    event.properties.set("LONG", "a".repeat(16_000));
    // Each of its own, or the second one is known to fail.
    let line = |n| format!("ENV{{LONG}}==\"*{}[ab]c{n}\", ENV{{HIT}}=\"1\"\n", "a".repeat(4000));
    let (count, outcome) = pauses(&(0..100).map(line).collect::<String>(), &event, &machine());
    assert!(count >= 30, "{count}");
    assert_eq!(value(&outcome, "HIT"), None);
    let long = "ENV{LONG}==\"abc\", ENV{HIT}=\"1\"\nENV{X}=\"$env{LONG}\"\nRUN+=\"$env{LONG}\"\n";
    assert!(pauses(&long.repeat(100), &event, &machine()).0 >= 10);
}

#[test]
fn questions_that_are_answered_at_once_are_part_of_a_turn() {
    let rules = (0..200).map(|n| format!("ATTR{{a{n}}}==\"x\", ENV{{V}}=\"1\"\n")).collect::<String>();
    let (count, _) = pauses(&rules, &sda(), &machine());
    assert!((4..=9).contains(&count), "{count}");
}
