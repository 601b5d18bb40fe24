//! The reference in `doc/`: what a comment cites must be there. A citation is the name of a file of `doc/`, with
//! or without `doc/`, and behind it the sections (`rules.md` 3.4 and 3.8, `interop.md` section 5, `builtins.md` 3.4(9)), or
//! ARCHITECTURE.md and a heading in quotes. Links from one document to another are looked at too, the numbers of
//! the cases in `test/cases/`, and the figures of README.md, which are those of the recorded benchmark.
//!
//! Must stay true: a citation that this test does not understand is none that passes: a name without a file fails,
//! and so does a section, or a point in it, that has no heading, or no line, of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where citations stand, besides the documents at the top.
const FOLDERS: &[&str] = &["src", "test", "man", "init", "doc"];
const DOCUMENTS: &[&str] = &["ARCHITECTURE.md", "README.md"];

/// What can be cited.
#[derive(Default)]
struct Reference {
    /// By name of the file: the text of each section, by number.
    files: BTreeMap<String, BTreeMap<String, String>>,
    /// Headings of ARCHITECTURE.md.
    headings: BTreeSet<String>,
}

/// The sections of a document, by number: a heading begins with it. A section ends where the next one begins.
fn sections(text: &str) -> BTreeMap<String, String> {
    let mut sections = BTreeMap::new();
    let mut number = String::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("##") {
            let first = heading.trim_start_matches('#').split_whitespace().next().unwrap_or_default();
            number = first.trim_end_matches('.').to_owned();
        }
        let section: &mut String = sections.entry(number.clone()).or_default();
        section.push_str(line);
        section.push('\n');
    }
    sections.retain(|number: &String, _| number.starts_with(|c: char| c.is_ascii_digit()));
    sections
}

/// The headings of a document, as they are written.
fn headings(text: &str) -> BTreeSet<String> {
    text.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_owned).collect()
}

/// Text without line ends, which remembers where its lines began.
#[derive(Default)]
struct Flat {
    text: String,
    /// Offset in the text, and line.
    lines: Vec<(usize, usize)>,
}

impl Flat {
    fn add(&mut self, line: usize, text: &str) {
        self.lines.push((self.text.len(), line));
        self.text.push_str(text);
        self.text.push(' ');
    }

    fn line_of(&self, offset: usize) -> usize {
        let after = self.lines.partition_point(|&(start, _)| start <= offset);
        self.lines[after - 1].1
    }
}

/// The comments of Rust code: those that follow each other are one text, since citations go on in the next line.
fn comments(code: &str) -> Flat {
    let mut flat = Flat::default();
    for (i, line) in code.lines().enumerate() {
        let comment = match line.trim_start().strip_prefix("//") {
            Some(comment) => comment.trim_start_matches(['/', '!']),
            None => line.split_once(" // ").map_or(".", |(_, comment)| comment),
        };
        flat.add(i + 1, comment.trim());
    }
    flat
}

/// All of a text that is no Rust code.
fn prose(text: &str) -> Flat {
    let mut flat = Flat::default();
    text.lines().enumerate().for_each(|(i, line)| flat.add(i + 1, line.trim_start_matches('#').trim()));
    flat
}

/// A file that is named, and what of it.
#[derive(Debug, PartialEq)]
struct Citation {
    line: usize,
    file: String,
    /// Numbers of sections, or headings.
    sections: Vec<String>,
}

fn citations(flat: &Flat) -> Vec<Citation> {
    let mut found = Vec::new();
    for (end, _) in flat.text.match_indices(".md") {
        let rest = &flat.text[end + 3..];
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '.');
        let start = flat.text[..end].rfind(|c| !is_name(c)).map_or(0, |at| at + 1);
        let file = flat.text[start..end + 3].trim_start_matches("../").trim_start_matches("doc/");
        if rest.starts_with(is_name) && !rest.starts_with(". ") || !is_cited_by_section(file) {
            continue;
        }
        let rest = rest.trim_start_matches(['`', ')', ']']);
        let sections = match file {
            "ARCHITECTURE.md" => quoted(rest),
            _ => numbers(rest),
        };
        found.push(Citation { line: flat.line_of(start), file: file.to_owned(), sections });
    }
    found
}

/// Names of our reference are small, those of all other documents great: README.md, RESULTS.md.
fn is_cited_by_section(file: &str) -> bool {
    file == "ARCHITECTURE.md" || file.bytes().all(|b| b.is_ascii_lowercase() || b == b'.')
}

/// The heading behind a name: `, "The layers"`.
fn quoted(text: &str) -> Vec<String> {
    let heading = text.trim_start_matches([',', ' ']).strip_prefix('"').and_then(|rest| rest.split_once('"'));
    heading.map(|(heading, _)| heading.to_owned()).into_iter().collect()
}

/// The sections behind a name: `12.1`, `section 5`, `§ 3`, `1.3 to 1.5`, `3.4, 3.5 and 4`, `3.4(9)`.
fn numbers(mut text: &str) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        text = text.trim_start();
        for word in ["sections ", "section ", "§§", "§"] {
            text = text.strip_prefix(word).unwrap_or(text).trim_start();
        }
        let Some((number, rest)) = number(text) else { return found };
        found.push(number);
        let separators = [", and ", " and ", " to ", ", ", "; "];
        match separators.iter().find_map(|separator| rest.strip_prefix(separator)) {
            Some(rest) => text = rest,
            None => return found,
        }
    }
}

/// A number of a section at the start of a text, and what follows it.
fn number(text: &str) -> Option<(String, &str)> {
    let len = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = text[..len].trim_end_matches('.');
    let rest = &text[number.len()..];
    if number.is_empty() || rest.starts_with(|c: char| c.is_alphanumeric()) {
        return None;
    }
    let point = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    match point {
        Some((point, rest)) if point.len() < 3 => Some((format!("{number}({point})"), rest)),
        _ => Some((number.to_owned(), rest)),
    }
}

/// What is wrong with the citations of a text.
fn faults(flat: &Flat, reference: &Reference) -> Vec<String> {
    let mut faults = Vec::new();
    for Citation { line, file, sections } in citations(flat) {
        let wrong = |section: &&String| match file.as_str() {
            "ARCHITECTURE.md" => !reference.headings.contains(*section),
            _ => !reference.files.get(&file).is_some_and(|known| has_section(known, section)),
        };
        if file != "ARCHITECTURE.md" && !reference.files.contains_key(&file) {
            faults.push(format!("{line}: there is no doc/{file}"));
        } else if let Some(section) = sections.iter().find(wrong) {
            faults.push(format!("{line}: {file} has no section {section}"));
        }
    }
    faults
}

fn has_section(known: &BTreeMap<String, String>, cited: &str) -> bool {
    match cited.split_once('(') {
        None => known.contains_key(cited),
        Some((section, point)) => known.get(section).is_some_and(|text| {
            let point = point.trim_end_matches(')');
            let begins = |line: &str| {
                let line = line.trim_start_matches(['-', '*', '|', ' ']);
                line.starts_with(&format!("{point}. ")) || line.starts_with(&format!("({point}) "))
            };
            text.lines().any(begins)
        }),
    }
}

/// Files that links of a document lead to and that are not there; links into the network are passed over.
fn dead_links(text: &str, folder: &Path) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let files = targets.filter_map(|target| target.split('#').next());
    let dead = files.filter(|file| !file.is_empty() && !file.contains("://") && !folder.join(file).exists());
    dead.map(|file| format!("a link leads to {file}, which is not there")).collect()
}

/// The numbers that cases have, as `case R07 ...` says.
fn case_ids(text: &str) -> Vec<&str> {
    let names = text.lines().filter_map(|line| line.strip_prefix("case "));
    names.filter_map(|name| name.split_whitespace().next()).filter(|id| is_case_id(id)).collect()
}

fn is_case_id(id: &str) -> bool {
    id.len() == 3 && id.starts_with(['F', 'O', 'R']) && id[1..].bytes().all(|b| b.is_ascii_digit())
}

/// Whether a case is a row of a table: O and F in cases.md, R by its number in `rules.md` 15.2.
fn is_described(id: &str, reference: &Reference) -> bool {
    let (file, row) = match id.strip_prefix('R') {
        Some(number) => ("rules.md", format!("| {} |", number.trim_start_matches('0'))),
        None => ("cases.md", format!("| {id} |")),
    };
    let sections = reference.files.get(file).into_iter().flatten();
    let mut tables = sections.filter(|(number, _)| file == "cases.md" || *number == "15.2");
    tables.any(|(_, text)| text.lines().any(|line| line.starts_with(&row)))
}

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
        .into_owned()
}

/// All files below a folder but those that a build has left there.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true if path.ends_with("target") => {}
            true => found.extend(files_below(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

fn reference() -> Reference {
    let files = files_below(&top().join("doc")).into_iter();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    Reference {
        files: files.map(|path| (name(&path), sections(&read(&path)))).collect(),
        headings: headings(&read(&top().join("ARCHITECTURE.md"))),
    }
}

fn citing_files() -> Vec<PathBuf> {
    let documents = DOCUMENTS.iter().map(|name| top().join(name));
    documents.chain(FOLDERS.iter().flat_map(|name| files_below(&top().join(name)))).collect()
}

#[test]
fn what_is_cited_is_there() {
    let reference = reference();
    let (mut wrong, mut cited) = (Vec::new(), 0);
    for path in citing_files() {
        let text = read(&path);
        let flat = if path.extension().is_some_and(|e| e == "rs") { comments(&text) } else { prose(&text) };
        cited += citations(&flat).len();
        let name = path.strip_prefix(top()).unwrap().display();
        wrong.extend(faults(&flat, &reference).iter().map(|fault| format!("{name}:{fault}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(cited > 100, "only {cited} citations were found");
}

#[test]
fn links_between_documents_lead_somewhere() {
    let documents = citing_files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "md"));
    let dead = documents.flat_map(|path| {
        let dead = dead_links(&read(&path), path.parent().unwrap());
        dead.into_iter().map(move |link| format!("{}: {link}", path.display())).collect::<Vec<_>>()
    });
    let dead: Vec<_> = dead.collect();
    assert!(dead.is_empty(), "\n{}", dead.join("\n"));
}

#[test]
fn every_case_with_a_number_is_described() {
    let reference = reference();
    let files = files_below(&top().join("test/cases"));
    let texts: Vec<_> = files.iter().map(|path| read(path)).collect();
    let ids: BTreeSet<&str> = texts.iter().flat_map(|text| case_ids(text)).collect();
    assert!(ids.len() > 50, "{ids:?}");
    let unknown: Vec<_> = ids.into_iter().filter(|id| !is_described(id, &reference)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn the_figures_of_the_readme_are_those_of_the_record() {
    let bench = top().join("test/bench");
    let summary =
        Command::new("awk").arg("-f").args(["summary.awk", "RESULTS.md"]).current_dir(bench).output();
    let summary = summary.expect("awk runs");
    assert!(summary.status.success(), "{}", String::from_utf8_lossy(&summary.stderr));
    let readme = read(&top().join("README.md"));
    let recorded = readme.split_once("<!-- results: begin").and_then(|(_, rest)| rest.split_once("-->"));
    let recorded = recorded.and_then(|(_, rest)| rest.split_once("<!-- results: end")).expect("both marks").0;
    assert_eq!(recorded.trim(), String::from_utf8_lossy(&summary.stdout).trim());
}

/// What the checks below look things up in.
fn small() -> Reference {
    let rules = sections(
        "# Title\n\n## 1. One\n\n### 1.1 First\n\n1. this\n10. that\n\n### 1.2 `Code`\n\n## 15. Rows\n\n### 15.2 Situations\n\n| 7 | a | b |\n",
    );
    let cases = sections("## 1. Reports\n\n| O01 | a | b |\n");
    Reference {
        files: [("rules.md".to_owned(), rules), ("cases.md".to_owned(), cases)].into(),
        headings: headings("# Title\n\n## The layers\n"),
    }
}

#[test]
fn right_citations_pass_in_every_form() {
    for right in [
        "rules.md 1.1",
        "rules.md section 1, and more",
        "doc/rules.md 1.2.",
        "see `rules.md` §1.1 and 1.2",
        "[rules.md](../doc/rules.md) 1.1",
        "(rules.md 1.1 to 1.2; rules.md 15.2)",
        "rules.md sections 1 and 15, 1.1 step 3",
        "rules.md 1.1(10)",
        "rules.md in general, 99 times",
        "the 99 lines of README.md 99.1",
        "ARCHITECTURE.md, \"The layers\"",
        "ARCHITECTURE.md says so",
    ] {
        assert_eq!(faults(&prose(right), &small()), Vec::<String>::new(), "{right}");
    }
}

#[test]
fn wrong_citations_are_found() {
    for (wrong, fault) in [
        ("rules.md 9.9", "1: rules.md has no section 9.9"),
        ("rules.md 1.1 to 1.9", "1: rules.md has no section 1.9"),
        ("rules.md sections 1 and 8", "1: rules.md has no section 8"),
        ("rules.md §3", "1: rules.md has no section 3"),
        ("doc/rules.md 1.1, 1.2 and 4", "1: rules.md has no section 4"),
        ("rules.md 1.1(9)", "1: rules.md has no section 1.1(9)"),
        ("rules.md 1.1.1", "1: rules.md has no section 1.1.1"),
        ("one\ntwo (rules.md\n1.1, 7)", "2: rules.md has no section 7"),
        ("design.md 5", "1: there is no doc/design.md"),
        ("see `design.md`", "1: there is no doc/design.md"),
        ("ARCHITECTURE.md, \"The cellar\"", "1: ARCHITECTURE.md has no section The cellar"),
    ] {
        assert_eq!(faults(&prose(wrong), &small()), [fault], "{wrong}");
    }
}

#[test]
fn citations_in_code_are_those_of_its_comments() {
    let code =
        "@! Head (rules.md\n@! 7.1).\nlet a = \"rules.md 7.2\"; @ rules.md 7.3\n@/ Doc of rules.md 7.4\n";
    let cited = citations(&comments(&code.replace('@', "//")));
    let cited: Vec<_> = cited.into_iter().map(|c| (c.line, c.sections.concat())).collect();
    assert_eq!(cited, [(1, "7.1".to_owned()), (3, "7.3".to_owned()), (4, "7.4".to_owned())]);
}

#[test]
fn cases_and_links_that_lead_nowhere_are_found() {
    assert_eq!(case_ids("case R07 links\n| case R08\ncase plain\ncase O01 x\n"), ["R07", "O01"]);
    assert!(is_described("R07", &small()) && is_described("O01", &small()));
    assert!(
        !is_described("R08", &small()) && !is_described("O02", &small()) && !is_described("F01", &small())
    );
    let text = "[a](layers.rs) [b](nowhere.md#x) [c](https://example.org/) [d](#top)";
    assert_eq!(dead_links(text, &top().join("test")), ["a link leads to nowhere.md, which is not there"]);
}
