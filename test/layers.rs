//! The layers of the house (ARCHITECTURE.md), checked on the source text: pure layers import nothing
//! from below, `unsafe` stands only in `sys/`, mio only in `daemon/`, absolute paths only in `world/` and
//! `main.rs`. No files of `daemon/` or `builtin/` name each other in a circle. Comments, `#[cfg(test)]` modules and files
//! named `...tests.rs` are exempt.

#[path = "layers/circles.rs"]
mod circles;

use std::path::{Path, PathBuf};

/// For each layer the layers that it may name. What is not listed here may be named by nobody else.
const MAY_USE: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("rules", &["model"]),
    ("links", &["model"]),
    ("engine", &["model", "rules", "links"]),
    ("sys", &["model"]),
    ("world", &["model", "rules", "links", "sys"]),
    ("builtin", &["model", "rules", "links", "sys", "world"]),
    ("helper", &["model", "rules", "links", "sys", "world", "builtin"]),
    ("tasks", &["model", "rules", "links", "engine", "sys", "world", "builtin", "helper"]),
    ("daemon", &["model", "rules", "links", "engine", "sys", "world", "builtin", "helper", "tasks"]),
    ("adm", &["model", "rules", "links", "engine", "sys", "world", "builtin", "helper", "tasks", "daemon"]),
];

const PURE: &[&str] = &["model", "rules", "links", "engine"];

/// What does I/O or knows the machine. `std::path` is not here: a path is a value.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "std::thread",
    "std::os::",
    "std::time::Instant",
    "std::time::SystemTime",
    "Instant::now",
    "SystemTime::now",
    "println!",
    "mio::",
];

/// Folders that stand for an absolute path of the machine when a string begins with them. `/dev` may be
/// named by formats (DEVNAME, DEVLINKS), and `/sys` alone, with which a syspath begins; `/devices` and
/// `/class` are devpaths.
const MACHINE: &[&str] = &["/sys", "/run", "/proc", "/etc", "/usr", "/lib", "/bin", "/sbin", "/tmp", "/var"];

/// A source file taken apart: the code without comments and strings, and the strings with their lines.
struct Source {
    code: String,
    strings: Vec<(usize, String)>,
}

/// Splits Rust text, as far as this check needs: comments, plain, byte and raw strings, char literals.
fn take_apart(text: &str) -> Source {
    let bytes = text.as_bytes();
    let (mut code, mut strings) = (String::new(), Vec::new());
    let (mut i, mut line) = (0, 1);
    let starts = |i: usize, what: &str| bytes[i..].starts_with(what.as_bytes());
    while i < bytes.len() {
        if starts(i, "//") {
            while i < bytes.len() && bytes[i] != b'\n' {
                i += 1;
            }
        } else if starts(i, "/*") {
            let end = text[i..].find("*/").map_or(bytes.len(), |n| i + n + 2);
            line += text[i..end].matches('\n').count();
            i = end;
        } else if let Some(hashes) = raw_string(&bytes[i..], code.as_bytes().last()) {
            let open = i + text[i..].find('"').unwrap() + 1;
            let close = format!("\"{}", "#".repeat(hashes));
            let end = text[open..].find(&close).map_or(bytes.len(), |n| open + n);
            strings.push((line, text[open..end].to_owned()));
            line += text[open..end].matches('\n').count();
            i = (end + close.len()).min(bytes.len());
            code.push_str("\"\"");
        } else if bytes[i] == b'"' {
            let (start, first) = (i + 1, line);
            i += 1;
            while i < bytes.len() && bytes[i] != b'"' {
                line += usize::from(bytes[i] == b'\n');
                i += if bytes[i] == b'\\' { 2 } else { 1 };
            }
            let end = i.min(bytes.len());
            strings.push((first, String::from_utf8_lossy(&bytes[start..end]).into_owned()));
            i += 1;
            code.push_str("\"\"");
        } else if bytes[i] == b'\'' && is_char(&bytes[i..]) {
            i += 1;
            while i < bytes.len() && bytes[i] != b'\'' {
                i += if bytes[i] == b'\\' { 2 } else { 1 };
            }
            i += 1;
            code.push_str("' '");
        } else {
            line += usize::from(bytes[i] == b'\n');
            code.push(char::from(bytes[i]));
            i += 1;
        }
    }
    Source { code, strings }
}

/// Number of `#` if a raw string starts here; `before` is the last byte of code.
fn raw_string(bytes: &[u8], before: Option<&u8>) -> Option<usize> {
    if before.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_') {
        return None;
    }
    let rest = bytes.strip_prefix(b"r").or_else(|| bytes.strip_prefix(b"br"))?;
    let hashes = rest.iter().take_while(|&&b| b == b'#').count();
    (rest.get(hashes) == Some(&b'"')).then_some(hashes)
}

/// A char literal, not a lifetime.
fn is_char(bytes: &[u8]) -> bool {
    match bytes.get(1) {
        Some(b'\\') => true,
        Some(b) if !b.is_ascii() => true,
        Some(_) => bytes.get(2) == Some(&b'\''),
        None => false,
    }
}

/// Cuts the test module off, which stands at the end of a file by convention, and takes declarations of such modules out.
fn without_tests(text: &str) -> String {
    const MARK: &str = "#[cfg(test)]\n";
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(MARK) {
        let (before, marked) = rest.split_at(at);
        let item = &marked[MARK.len()..];
        let is_module = ["mod ", "pub mod ", "pub(crate) mod "].iter().any(|word| item.starts_with(word));
        let line = item.split_inclusive('\n').next().unwrap_or("");
        kept.push_str(before);
        if is_module && line.contains('{') {
            return kept;
        }
        // Lines keep their numbers.
        kept.push_str(if is_module { "\n\n" } else { &marked[..MARK.len() + line.len()] });
        rest = &item[line.len()..];
    }
    kept + rest
}

/// Everything wrong with one file; `path` is below `src/`.
fn findings(path: &str, text: &str) -> Vec<String> {
    let layer = path.split('/').next().unwrap_or("");
    if path.ends_with("tests.rs") || path.contains("/tests/") {
        return Vec::new();
    }
    let source = take_apart(&without_tests(text));
    let mut found = Vec::new();
    let mut each_line = |check: &dyn Fn(&str) -> Option<String>| {
        for (number, line) in source.code.lines().enumerate() {
            if let Some(message) = check(line) {
                found.push(format!("src/{path}:{}: {message}", number + 1));
            }
        }
    };
    if let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == layer) {
        let forbidden = MAY_USE.iter().filter(|(name, _)| *name != layer && !allowed.contains(name));
        for (other, _) in forbidden {
            each_line(&|line| {
                named(line, &format!("crate::{other}")).then(|| format!("{layer} names {other}"))
            });
        }
    }
    if PURE.contains(&layer) {
        for impure in IMPURE {
            each_line(&|line| named(line, impure).then(|| format!("{layer} is pure but names {impure}")));
        }
    }
    if layer != "sys" {
        each_line(&|line| named(line, "unsafe").then(|| "unsafe outside sys/".to_owned()));
    }
    if layer != "daemon" {
        each_line(&|line| named(line, "mio::").then(|| "mio outside daemon/".to_owned()));
    }
    if layer != "world" && path != "main.rs" {
        for (line, string) in &source.strings {
            let absolute = MACHINE.iter().find(|root| {
                string.strip_prefix(**root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            });
            // A syspath begins with `/sys` by definition: alone it is a word, not a place.
            let word = string == "/sys" || string == "/sys/";
            if absolute.is_some() && !word {
                found.push(format!("src/{path}:{line}: absolute path {string:?} outside world/"));
            }
        }
    }
    found
}

/// Whether a line of code names `what` as a word of its own.
fn named(line: &str, what: &str) -> bool {
    let word = |b: Option<char>| b.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(what).any(|(at, _)| {
        let before = word(line[..at].chars().next_back());
        let after =
            what.ends_with(|c: char| c.is_alphanumeric()) && word(line[at + what.len()..].chars().next());
        !before && !after
    })
}

/// Whether the file is a module that its parent declares for tests only.
fn is_test_module(src: &Path, file: &Path) -> bool {
    let (Some(folder), Some(name)) = (file.parent(), file.file_stem().and_then(|n| n.to_str())) else {
        return false;
    };
    let parents = [folder.join("mod.rs"), folder.with_extension("rs"), src.join("lib.rs")];
    parents.iter().filter(|p| p.as_path() != file).any(|parent| {
        let text = std::fs::read_to_string(parent).unwrap_or_default();
        ["mod", "pub mod", "pub(crate) mod"]
            .iter()
            .any(|word| text.contains(&format!("#[cfg(test)]\n{word} {name};")))
    })
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("src/ can be read");
    for entry in entries.map(|e| e.expect("src/ can be read").path()) {
        if entry.is_dir() {
            sources(&entry, into);
        } else if entry.extension().is_some_and(|e| e == "rs") {
            into.push(entry);
        }
    }
}

/// All sources but tests, by their path below `src/`.
fn all_sources() -> Vec<(String, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    files.sort();
    let read = |file: &PathBuf| {
        let path = file.strip_prefix(&src).expect("below src/").to_str().expect("plain names").to_owned();
        (path, std::fs::read_to_string(file).expect("sources are text"))
    };
    files.iter().filter(|file| !is_test_module(&src, file)).map(read).collect()
}

#[test]
fn every_layer_names_only_what_is_below_it() {
    let files = all_sources();
    assert!(files.len() > 20, "only {} files found below src/", files.len());
    let found: Vec<String> = files.iter().flat_map(|(path, text)| findings(path, text)).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn no_files_of_a_folder_name_each_other_in_a_circle() {
    for folder in ["daemon/", "builtin/"] {
        let is_test = |path: &str| path.ends_with("tests.rs") || path.contains("/simulation/");
        let files = all_sources().into_iter().filter(|(path, _)| path.starts_with(folder) && !is_test(path));
        let files: Vec<_> = files.map(|(path, text)| (path, without_tests(&text))).collect();
        assert!(files.len() > 10, "only {} files found in {folder}", files.len());
        let found = circles::circles(&circles::graph(&files));
        assert!(found.is_empty(), "in a circle:\n{}", found.join("\n"));
    }
}

#[test]
fn each_breach_is_found() {
    let bad = [
        ("model/a.rs", "use crate::rules::Ask;"),
        ("rules/a.rs", "use crate::engine::Job;"),
        ("rules/a.rs", "let x = crate::world::read();"),
        ("engine/a.rs", "use std::fs;"),
        ("links/a.rs", "let now = std::time::Instant::now();"),
        ("world/a.rs", "use crate::daemon::Loop;"),
        ("tasks/a.rs", "use crate::daemon::Loop;"),
        ("helper/a.rs", "use crate::tasks::Task;"),
        ("world/a.rs", "unsafe { libc::close(1) };"),
        ("adm/a.rs", "use mio::Poll;"),
        ("daemon/a.rs", "let p = \"/run/udev\";"),
        ("rules/a.rs", "let p = b\"/etc/udev\";"),
        ("builtin/a.rs", "let p = r#\"/proc/cmdline\"#;"),
        ("builtin/mod.rs", "#[cfg(test)]\nmod machine;\nuse crate::daemon::Loop;"),
        ("model/a.rs", "#[cfg(test)]\nuse super::b;\nuse crate::world::Roots;"),
    ];
    for (path, text) in bad {
        assert!(!findings(path, text).is_empty(), "{path}: {text}");
    }
}

#[test]
fn comments_strings_tests_and_formats_are_no_breach() {
    let good = [
        ("model/a.rs", "// unsafe, std::fs, \"/run\"\nlet dev = \"/dev/null\";"),
        ("model/a.rs", "let text = \"say unsafe or mio::Poll\"; /* crate::world */"),
        ("rules/a.rs", "fn f<'a>(x: &'a str) { let c = '\"'; let d = '\\''; } // \"/etc\""),
        ("engine/a.rs", "fn f() {}\n#[cfg(test)]\nmod tests { use std::fs; }"),
        ("daemon/a.rs", "let p = \"/devices/virtual\"; let q = \"/sysfoo\";"),
        ("world/a.rs", "let p = \"/etc/udev\";"),
        ("sys/a.rs", "unsafe { libc::close(1) };"),
        ("lib.rs", "#![deny(unsafe_code)]"),
    ];
    for (path, text) in good {
        assert!(findings(path, text).is_empty(), "{path}: {text}: {:?}", findings(path, text));
    }
}
