//! No circle of files in a folder: who reads a file must not have to know those that are built on it.
//!
//! A file names another by a path that begins with `super::`, `self::` or `crate::`, or by the name of a module that it
//! declares. An `impl` of a type of another file, which that file can call without naming anyone, counts as if it did.

use super::take_apart;
use std::collections::{BTreeMap, BTreeSet};

/// Which modules name which. A module is its path below `src/`, without `.rs` and `/mod`.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// The graph of some files, given by their paths below `src/`, with their text.
pub fn graph(files: &[(String, String)]) -> Graph {
    let modules: BTreeSet<String> = files.iter().map(|(path, _)| module(path)).collect();
    let mut graph: Graph = modules.iter().map(|module| (module.clone(), BTreeSet::new())).collect();
    for (path, text) in files {
        let here = module(path);
        let code = take_apart(text).code;
        let named: Vec<(String, Vec<String>)> =
            paths(&here, &code).iter().filter_map(|path| resolve(path, &modules)).collect();
        for (other, rest) in named.iter().filter(|(other, _)| *other != here) {
            graph.entry(here.clone()).or_default().insert(other.clone());
            if rest.first().is_some_and(|item| extended(&code).contains(item)) {
                graph.entry(other.clone()).or_default().insert(here.clone());
            }
        }
    }
    graph
}

/// The edges that are part of a circle.
pub fn circles(graph: &Graph) -> Vec<String> {
    let edges = graph.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to)));
    let circular = edges.filter(|(from, to)| reaches(graph, to, from));
    circular.map(|(from, to)| format!("{from} -> {to}")).collect()
}

fn reaches(graph: &Graph, from: &str, to: &str) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        if module == to {
            return true;
        }
        if seen.insert(module) {
            open.extend(graph.get(module).into_iter().flatten().map(String::as_str));
        }
    }
    false
}

fn module(path: &str) -> String {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    path.strip_suffix("/mod").unwrap_or(path).to_owned()
}

/// The module that a path leads to, and what it names there.
fn resolve(path: &[String], modules: &BTreeSet<String>) -> Option<(String, Vec<String>)> {
    (1..=path.len()).rev().find_map(|length| {
        let module = path[..length].join("/");
        modules.contains(&module).then(|| (module, path[length..].to_vec()))
    })
}

/// Every path in the code of a module, from `src/` on.
fn paths(here: &str, code: &str) -> Vec<Vec<String>> {
    let own: Vec<String> = here.split('/').map(str::to_owned).collect();
    let children = declared(code);
    let mut found = Vec::new();
    for (at, word) in words(code) {
        let base = match word {
            "super" | "self" => own.clone(),
            "crate" => Vec::new(),
            child if children.contains(child) => own.clone(),
            _ => continue,
        };
        let rest = &code[at + word.len()..];
        let is_inside = code[..at].ends_with("::");
        if is_inside || !rest.starts_with("::") {
            continue;
        }
        let mut tree = Vec::new();
        read_tree(&mut code[at..].chars().peekable(), &[], &mut tree);
        found.extend(tree.iter().map(|path| follow(base.clone(), path)));
    }
    found
}

/// Goes from a module along a path.
fn follow(mut base: Vec<String>, path: &[String]) -> Vec<String> {
    for segment in path {
        match segment.as_str() {
            "super" => drop(base.pop()),
            "self" | "crate" => {}
            name => base.push(name.to_owned()),
        }
    }
    base
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Reads a path, or several with braces, as in `use`.
fn read_tree(chars: &mut Chars, before: &[String], found: &mut Vec<Vec<String>>) {
    let mut path = before.to_vec();
    loop {
        skip_space(chars);
        if chars.next_if_eq(&'{').is_some() {
            while chars.peek().is_some_and(|c| *c != '}') {
                read_tree(chars, &path, found);
                while chars.next_if(|c| !matches!(c, ',' | '}')).is_some() {}
                chars.next_if_eq(&',');
                skip_space(chars);
            }
            chars.next();
            return;
        }
        let name = std::iter::from_fn(|| chars.next_if(|c| c.is_alphanumeric() || *c == '_')).collect();
        path.push(name);
        if chars.next_if_eq(&':').is_none() || chars.next_if_eq(&':').is_none() {
            return found.push(path);
        }
    }
}

fn skip_space(chars: &mut Chars) {
    while chars.next_if(|c| c.is_whitespace()).is_some() {}
}

/// The words of the code and where they begin.
fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_edge = |c: char| !c.is_alphanumeric() && c != '_';
    code.split(is_edge)
        .filter(|word| !word.is_empty())
        .map(|word| (word.as_ptr() as usize - code.as_ptr() as usize, word))
}

/// The modules that are declared here.
fn declared(code: &str) -> BTreeSet<&str> {
    let after = |(at, word): (usize, &'_ str)| (word == "mod").then(|| code[at + 3..].split_once(';'))?;
    words(code).filter_map(after).map(|(name, _)| name.trim()).collect()
}

/// The types that get functions of their own here.
fn extended(code: &str) -> BTreeSet<String> {
    let header =
        |line: &'_ str| line.strip_prefix("impl").filter(|_| !line.contains(" for ")).map(str::to_owned);
    let name = |header: String| {
        let generic = header.starts_with('<');
        let text = if generic { header.split_once("> ").map_or("", |(_, rest)| rest) } else { header.trim() };
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    code.lines().filter_map(header).map(name).collect()
}

#[test]
fn a_circle_is_found_however_it_is_written() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let circular = |files: &[(String, String)]| circles(&graph(files));
    let plain = file("d/a.rs", "use super::b::B;\nfn f() {}");
    assert!(circular(&[plain.clone(), file("d/b.rs", "pub struct B; // super::a")]).is_empty());
    let others = [
        "use super::a;",
        "use crate::d::a::A;",
        "use super::{c::C, a::{self, A}};",
        "use crate::{model::X, d::{a::A}};",
        "fn f() { super::a::f() }",
        "use super::x::super::super::d::a;",
    ];
    for other in others {
        let found = circular(&[plain.clone(), file("d/b.rs", other), file("d/x.rs", "")]);
        assert!(found.contains(&"d/a -> d/b".to_owned()), "{other}: {found:?}");
        assert!(found.contains(&"d/b -> d/a".to_owned()), "{other}: {found:?}");
    }
    let long = ["use super::b;", "use super::s::c;", "use super::super::a;"];
    let names = ["d/a.rs", "d/b.rs", "d/s/c.rs"];
    let files: Vec<_> = names.iter().zip(long).map(|(name, text)| file(name, text)).collect();
    assert_eq!(circular(&files), ["d/a -> d/b", "d/b -> d/s/c", "d/s/c -> d/a"]);
    let parent = [file("d/mod.rs", "mod a;\nfn f() { a::f() }"), file("d/a.rs", "use super::f;")];
    assert_eq!(circular(&parent), ["d -> d/a", "d/a -> d"]);
    let child_alone = [file("d/mod.rs", "mod a;"), file("d/a.rs", "use super::f;")];
    assert!(circular(&child_alone).is_empty());
}

#[test]
fn functions_for_the_type_of_another_file_make_a_circle() {
    let shell = ("d/shell.rs".to_owned(), "pub struct Shell;\nimpl Shell {}".to_owned());
    let part = |text: &str| circles(&graph(&[shell.clone(), ("d/part.rs".to_owned(), text.to_owned())]));
    assert_eq!(part("use super::shell::Shell;\nimpl Shell { fn f() {} }").len(), 2);
    assert_eq!(part("use super::shell::Shell;\nimpl<'a> Shell {}").len(), 2);
    assert!(part("use super::shell::Shell;\nimpl Part { fn f(x: &Shell) {} }").is_empty());
    assert!(part("use super::shell::Shell;\nimpl From<Shell> for Part {}").is_empty());
}
