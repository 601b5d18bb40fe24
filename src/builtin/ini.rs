//! The text form of .link files (builtins.md 2.1): sections, `key=value`, comments, continued lines.
//!
//! A line that says nothing is warned about and skipped. Two faults void the whole file, because what
//! follows them would be read in the wrong section or not at all: a broken section header and a value
//! that is not UTF-8.

/// One `key=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    /// Counted from 1; of a continued line, its first piece.
    pub line: usize,
    pub section: String,
    /// Which header of the file it stands under: repeated sections may count one by one.
    pub instance: usize,
    pub key: String,
    /// Without blanks around it.
    pub value: String,
}

/// A text for the log about one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    pub line: usize,
    pub text: String,
}

impl Complaint {
    fn new(line: usize, text: &str) -> Complaint {
        Complaint { line, text: text.into() }
    }
}

/// Reads a file. Err: nothing of it counts.
pub(super) fn parse(text: &[u8]) -> Result<(Vec<Assignment>, Vec<Complaint>), Complaint> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut reader = Reader::default();
    let mut whole: Vec<u8> = Vec::new();
    let mut first = None;
    for (index, line) in text.split(|&b| b == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if matches!(line.trim_ascii_start().first(), Some(b'#' | b';')) {
            continue;
        }
        let number = *first.get_or_insert(index + 1);
        match line.strip_suffix(b"\\") {
            Some(piece) => {
                whole.extend_from_slice(piece);
                whole.push(b' ');
            }
            None => {
                whole.extend_from_slice(line);
                reader.line(number, &whole)?;
                whole.clear();
                first = None;
            }
        }
    }
    if let Some(number) = first {
        reader.line(number, &whole)?;
    }
    Ok((reader.assignments, reader.complaints))
}

#[derive(Default)]
struct Reader {
    assignments: Vec<Assignment>,
    complaints: Vec<Complaint>,
    section: Option<String>,
    instance: usize,
}

impl Reader {
    fn line(&mut self, line: usize, text: &[u8]) -> Result<(), Complaint> {
        let Ok(text) = str::from_utf8(text) else {
            return Err(Complaint::new(line, "not UTF-8, the file is ignored"));
        };
        let text = text.trim_ascii();
        if text.is_empty() {
            return Ok(());
        }
        if let Some(header) = text.strip_prefix('[') {
            let Some(name) = header.strip_suffix(']').filter(|name| !name.is_empty()) else {
                return Err(Complaint::new(line, "broken section header, the file is ignored"));
            };
            self.section = Some(name.into());
            self.instance += 1;
            return Ok(());
        }
        match (text.split_once('='), &self.section) {
            (None, _) => self.complaints.push(Complaint::new(line, "no '=' in this line, ignored")),
            (_, None) => {
                self.complaints.push(Complaint::new(line, "assignment before any section, ignored"));
            }
            (Some((key, value)), Some(section)) => self.assignments.push(Assignment {
                line,
                section: section.clone(),
                instance: self.instance,
                key: key.trim_ascii_end().into(),
                value: value.trim_ascii_start().into(),
            }),
        }
        Ok(())
    }
}

/// Splits a value at blanks; quotes keep blanks together. With `escapes`, C escapes are undone, else a
/// backslash is a letter. None if a quote is not closed, an escape is none, or the result is not UTF-8.
pub(super) fn split_quoted(value: &str, escapes: bool) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut rest = value.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match byte {
            b'\\' if escapes => {
                let (bytes, tail) = unescape(rest)?;
                word.get_or_insert_default().extend(bytes);
                rest = tail;
            }
            b'"' | b'\'' if quote.is_none() => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            _ if quote == Some(byte) => quote = None,
            _ if byte.is_ascii_whitespace() && quote.is_none() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(*byte),
        }
    }
    if quote.is_some() {
        return None;
    }
    words.extend(word);
    words.into_iter().map(|word| String::from_utf8(word).ok()).collect()
}

/// The bytes of one C escape, its backslash read already, and what follows it.
fn unescape(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (&letter, rest) = text.split_first()?;
    let number = |base: u32, digits: &[u8]| -> Option<u32> {
        u32::from_str_radix(str::from_utf8(digits).ok()?, base).ok().filter(|&n| n > 0)
    };
    let plain = |byte: u8| Some((vec![byte], rest));
    match letter {
        b'a' => plain(7),
        b'b' => plain(8),
        b'f' => plain(12),
        b'n' => plain(b'\n'),
        b'r' => plain(b'\r'),
        b't' => plain(b'\t'),
        b'v' => plain(11),
        b's' => plain(b' '),
        b'\\' | b'"' | b'\'' => plain(letter),
        b'x' => {
            let (digits, rest) = rest.split_at_checked(2)?;
            Some((vec![u8::try_from(number(16, digits)?).ok()?], rest))
        }
        b'u' | b'U' => {
            let (digits, rest) = rest.split_at_checked(if letter == b'u' { 4 } else { 8 })?;
            let letter = char::from_u32(number(16, digits)?)?;
            Some((letter.to_string().into_bytes(), rest))
        }
        b'0'..=b'7' => {
            let (digits, rest) = text.split_at_checked(3)?;
            Some((vec![u8::try_from(number(8, digits)?).ok()?], rest))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(text: &str) -> Vec<String> {
        let (assignments, complaints) = parse(text.as_bytes()).expect(text);
        let said = assignments.iter().map(|a| format!("{} {} {}={}", a.line, a.section, a.key, a.value));
        said.chain(complaints.iter().map(|c| format!("{}: {}", c.line, c.text))).collect()
    }

    #[test]
    fn blanks_around_key_and_value_go_and_comments_stand_at_line_starts_only() {
        assert_eq!(
            flat("\u{feff}# c\n[Link]\n ; c\n  MTUBytes = 1400 # x \r\nName=\n"),
            ["4 Link MTUBytes=1400 # x", "5 Link Name="]
        );
    }

    #[test]
    fn a_backslash_at_the_end_of_a_line_is_one_blank() {
        assert_eq!(
            flat("[Match]\nOriginalName=a\\\n# no\n  b\\\nc\n[Link]\nName=x\\"),
            ["2 Match OriginalName=a   b c", "7 Link Name=x"]
        );
    }

    #[test]
    fn lines_that_say_nothing_are_told_of() {
        assert_eq!(
            flat("A=1\n[L]\nword\nB=2"),
            ["4 L B=2", "1: assignment before any section, ignored", "3: no '=' in this line, ignored"]
        );
    }

    #[test]
    fn a_broken_header_or_broken_text_voids_the_file() {
        assert_eq!(parse(b"[L]\nA=1\n[Match\n").unwrap_err().line, 3);
        assert_eq!(parse(b"[]\n").unwrap_err().line, 1);
        assert_eq!(parse(b"[L]\nA=\xff\n").unwrap_err().line, 2);
        assert!(parse(b"[L]\n# \xff\n").is_ok());
    }

    #[test]
    fn sections_of_one_name_are_counted() {
        let (assignments, _) = parse(b"[S]\nA=1\n[S]\nA=2\n").unwrap();
        assert_eq!(assignments.iter().map(|a| a.instance).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn quotes_and_escapes_make_words() {
        for (value, words) in [
            ("a  b", Some(vec!["a", "b"])),
            ("A=\"x y\" 'B=z'", Some(vec!["A=x y", "B=z"])),
            (r"A=\x41\u00e9\101\s", Some(vec!["A=AéA "])),
            ("\"\"", Some(vec![""])),
            ("", Some(vec![])),
            ("\"a", None),
            (r"a\q", None),
            (r"a\x4", None),
            (r"a\xff", None),
            ("a\\", None),
        ] {
            let words = words.map(|w| w.into_iter().map(String::from).collect::<Vec<_>>());
            assert_eq!(split_quoted(value, true), words, "{value}");
        }
        assert_eq!(split_quoted(r"a\\q 'b c'", false), Some(vec![r"a\\q".into(), "b c".into()]));
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text: Vec<u8>, lines in r#"([\[\]=#;\\"'a\n x0-9é]){0,60}"#) {
            for text in [text.as_slice(), lines.as_bytes()] {
                if let Ok((assignments, _)) = parse(text) {
                    for assignment in assignments {
                        let _ = (split_quoted(&assignment.value, true), split_quoted(&assignment.value, false));
                    }
                }
            }
        }
    }
}
