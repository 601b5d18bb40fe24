//! What is passed over, seen from the one question that the evaluator asks. That nothing is passed over that could
//! have held is shown by the tests of the evaluator, which compare with [`Specialised::plain`].

use super::*;
use crate::model::{Action, Key, Properties, ResolveNames};
use crate::rules::compile::{Accounts, CompileOptions, SourceFile, compile};
use bstr::{BStr, BString, ByteSlice};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;

struct Nobody;

impl Accounts for Nobody {
    fn user(&self, _name: &[u8]) -> Option<u32> {
        None
    }

    fn group(&self, _name: &[u8]) -> Option<u32> {
        None
    }
}

fn program(text: &str) -> Specialised {
    let file = SourceFile { path: "t.rules".into(), content: text.into() };
    let compiled = compile(&[file], &CompileOptions { resolve_names: ResolveNames::Late, accounts: &Nobody });
    assert!(compiled.diagnostics.is_empty(), "{:?}", compiled.diagnostics);
    let kind =
        EventKind { action: Action::Add, subsystem: b"usb".as_bstr(), has_devnum: false, has_ifindex: false };
    Specialised::new(Arc::new(compiled.rules), kind)
}

/// An event of the subsystem usb, with some parents, whose attributes are all the same.
#[derive(Default)]
struct View {
    properties: Properties,
    /// (driver, subsystem) of the device and its parents; empty if they are not known.
    names: Vec<(BString, BString)>,
    attrs: BTreeMap<BString, BString>,
    questions: Cell<usize>,
    paid: Cell<usize>,
    /// Lines in one turn.
    turn: Option<usize>,
}

impl EventView for View {
    /// An attribute that is not known.
    type Stop = BString;

    fn property(&self, key: &Key) -> &BStr {
        self.properties.get_key(key).unwrap_or_default()
    }

    fn known_parents(&self) -> Option<u16> {
        (self.names.len() as u16).checked_sub(1)
    }

    fn known_names(&self, device: u16) -> Option<(&BStr, &BStr)> {
        self.names.get(usize::from(device)).map(|(driver, subsystem)| (driver.as_bstr(), subsystem.as_bstr()))
    }

    fn holds(&self, m: &Match) -> Result<bool, BString> {
        Ok(self.value(m)?.is_some_and(|value| m.pattern.matches(&value) != m.negate))
    }

    fn value(&self, m: &Match) -> Result<Option<Cow<'_, BStr>>, BString> {
        match &m.subject {
            MatchKey::Env(key) => Ok(Some(Cow::Borrowed(self.property(key)))),
            MatchKey::Attr(super::super::program::AttrName::Literal(name)) => {
                self.questions.set(self.questions.get() + 1);
                self.attrs
                    .get(name)
                    .map(|value| Some(Cow::Borrowed(value.as_bstr())))
                    .ok_or_else(|| name.clone())
            }
            other => panic!("{other:?} is asked for"),
        }
    }

    fn each_value(&self, key: &ParentsKey<'_>, mut visit: impl FnMut(&BStr) -> bool) -> Result<(), BString> {
        self.questions.set(self.questions.get() + 1);
        let value = self.attrs.get(key.attr).ok_or_else(|| BString::from(key.attr))?;
        visit(value.as_bstr());
        Ok(())
    }

    fn pays_for_line(&self) -> bool {
        self.paid.set(self.paid.get() + 1);
        self.paid.get() <= self.turn.unwrap_or(usize::MAX)
    }

    fn spend(&self, _units: usize) {}
}

/// Where the next line is, whether a parent was forgotten, and the number of lines that were paid for.
fn pass(seen: &mut Seen, program: &Specialised, at: usize, view: &View) -> (usize, bool, usize) {
    view.paid.set(0);
    let next = seen.next_line(program, at, view);
    let expected = if program.line(next.at).is_some() { Arrival::Line } else { Arrival::End };
    assert_eq!(next.arrival, expected);
    (next.at, next.forgets_parent, view.paid.get())
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect()
}

#[test]
fn lines_that_the_kind_decides_are_not_in_the_program() {
    let program = program(
        "SUBSYSTEM==\"block\", RUN+=\"a\"\nACTION!=\"add\", RUN+=\"a\"\nSUBSYSTEM==\"usb\", RUN+=\"b\"\n\
         ACTION==\"add\", GOTO=\"end\"\nRUN+=\"never\"\nLABEL=\"end\"\nRUN+=\"c\"\n",
    );
    let numbers: Vec<u32> = (0..).map_while(|at| program.line(at)).map(|line| line.number).collect();
    assert_eq!(numbers, [3, 7]);
    assert_eq!(program.tokens(0).1, 1, "SUBSYSTEM holds already");
}

#[test]
fn a_question_that_failed_fails_the_lines_that_begin_with_it() {
    let program = program(&lines(40, |n| format!("ENV{{A}}==\"?*\", RUN+=\"{n}\"\n")));
    let (mut seen, view) = (Seen::new(&program), View::default());
    assert_eq!(pass(&mut seen, &program, 0, &view), (0, false, 1));
    seen.first_token_failed(&program, 0);
    let (end, _, steps) = pass(&mut seen, &program, 1, &view);
    assert_eq!(end, 40);
    assert!(steps <= 4, "a stretch is passed over in one step, not {steps}");
    seen.property_changed();
    assert_eq!(pass(&mut seen, &program, 7, &view), (7, false, 1), "the property may have changed");
}

#[test]
fn lines_for_drivers_that_nobody_has_are_passed_over_and_leave_no_parent() {
    let text = lines(10, |n| format!("DRIVERS==\"d{n}\", RUN+=\"{n}\"\n")) + "RUN+=\"last\"\n";
    let program = program(&text);
    let mut seen = Seen::new(&program);
    let unknown = View::default();
    assert_eq!(pass(&mut seen, &program, 0, &unknown), (0, false, 1), "it is not known who has what");
    let names = [("", "usb"), ("d7", "usb")].map(|(driver, subsystem)| (driver.into(), subsystem.into()));
    let view = View { names: names.to_vec(), ..View::default() };
    assert_eq!(pass(&mut seen, &program, 0, &view), (7, true, 8));
    assert_eq!(pass(&mut seen, &program, 10, &view), (10, false, 1));
}

#[test]
fn lines_for_other_values_of_a_property_are_passed_over_until_it_changes() {
    // Not a run: the tokens behind the first one are no matter.
    let program =
        program("ENV{A}==\"x\", RUN+=\"1\"\nENV{B}==\"y\", RUN+=\"2\"\nENV{A}==\"z\", RUN+=\"3\"\n");
    let (mut seen, mut view) = (Seen::new(&program), View::default());
    view.properties.set("B", "y");
    assert_eq!(pass(&mut seen, &program, 0, &view).0, 1);
    view.properties.set("A", "z");
    seen.property_changed();
    assert_eq!(pass(&mut seen, &program, 0, &view).0, 1);
    assert_eq!(pass(&mut seen, &program, 2, &view).0, 2);
}

#[test]
fn a_run_is_entered_at_the_line_that_can_hold_for_one_question() {
    for (key, forgets) in [("ATTR", false), ("ATTRS", true)] {
        let text = lines(100, |n| format!("{key}{{id}}==\"{n:04}\", RUN+=\"{n}\"\n")) + "RUN+=\"last\"\n";
        let program = program(&text);
        assert_eq!(program.size(), (101, 1));
        let (mut seen, mut view) = (Seen::new(&program), View::default());
        let next = seen.next_line(&program, 0, &view);
        assert_eq!((next.at, next.arrival), (0, Arrival::Stopped("id".into())), "nobody knows the attribute");
        view.attrs.insert("id".into(), "0042".into());
        view.questions.set(0);
        assert_eq!(pass(&mut seen, &program, 0, &view), (42, forgets, 2));
        assert_eq!(view.questions.get(), 2, "once to find the line, once to see that it is the one");
        assert_eq!(pass(&mut seen, &program, 42, &view), (42, false, 1));
        assert_eq!(pass(&mut seen, &program, 43, &view), (100, forgets, 2));
    }
}

#[test]
fn a_turn_that_is_over_ends_the_way_where_it_is_and_the_next_one_goes_on() {
    let text = lines(100, |n| format!("ENV{{A}}==\"{n}\", RUN+=\"{n}\"\nENV{{B}}==\"{n}\", RUN+=\"{n}\"\n"));
    let program = program(&text);
    let mut seen = Seen::new(&program);
    let mut view = View::default();
    let whole = pass(&mut seen.clone(), &program, 0, &view);
    assert!(whole.0 == 200 && whole.2 > 2, "{whole:?}");
    view.turn = Some(1);
    let (mut at, mut turns) = (0, 0);
    loop {
        view.paid.set(0);
        let next = seen.next_line(&program, at, &view);
        (at, turns) = (next.at, turns + 1);
        match next.arrival {
            Arrival::TurnOver => {}
            other => break assert_eq!(other, Arrival::End),
        }
    }
    assert_eq!((at, turns), (200, whole.2));
}
