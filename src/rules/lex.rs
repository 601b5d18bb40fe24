//! Bytes of a rules file to logical lines, and a logical line to tokens (rules.md 1.3 to 1.5).
//!
//! Bytes are opaque: no encoding, no locale. Nothing here knows what a key means. Every token keeps
//! the place of its parts, so that a diagnostic can point at them. Lines and tokens borrow from the
//! file wherever a rule is written on one line and a value without escapes.

use bstr::{BStr, BString, ByteSlice};
use std::borrow::Cow;
use std::ops::Range;

/// A physical line of this length or more drops the whole file; so many bytes of a logical line or more
/// drop that line.
pub const MAX_LINE: usize = 16384;

/// What went wrong while lines were put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineError {
    /// The whole file is dropped.
    PhysicalTooLong { line: u32 },
    /// The logical line that begins here is dropped.
    LogicalTooLong { line: u32 },
    /// The file ends with a continuation; the line is dropped.
    EndsInContinuation { line: u32 },
}

/// A rule after continuations were joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalLine<'c> {
    /// First physical line, from 1.
    pub number: u32,
    pub text: Cow<'c, BStr>,
    first: Fragment,
    more: Vec<Fragment>,
}

/// A physical line's share of a logical one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fragment {
    /// Where it begins in the joined text.
    at: usize,
    line: u32,
    /// The physical line in the file.
    raw: Range<usize>,
    /// Leading blanks that were cut.
    indent: usize,
}

/// A place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePlace {
    pub line: u32,
    /// From 1.
    pub column: u32,
    /// The physical line in the file.
    pub raw: Range<usize>,
}

impl LogicalLine<'_> {
    /// Where this offset of the joined text stands in the file.
    pub fn place(&self, offset: usize) -> SourcePlace {
        let piece = self.more.iter().rev().find(|p| p.at <= offset).unwrap_or(&self.first);
        let column = offset.saturating_sub(piece.at) + piece.indent + 1;
        SourcePlace { line: piece.line, column: column as u32, raw: piece.raw.clone() }
    }
}

/// All logical lines of a file that hold something.
pub fn logical_lines(content: &[u8]) -> (Vec<LogicalLine<'_>>, Vec<LineError>) {
    let mut joiner = Joiner::default();
    for (n, raw) in physical_lines(content).enumerate() {
        let line = n as u32 + 1;
        if raw.len() >= MAX_LINE {
            return (Vec::new(), vec![LineError::PhysicalTooLong { line }]);
        }
        joiner.add(content, line, raw);
    }
    joiner.end()
}

/// Ranges of the physical lines. LF, CR and NUL end a line, and so do LF or CR followed by the other
/// one and by NUL: CRLF is one end, two LFs are two.
fn physical_lines(content: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= content.len() {
            return None;
        }
        let end = content[at..].find_byteset(b"\n\r\0").map_or(content.len(), |n| at + n);
        let raw = at..end;
        at = end;
        let mut eat = |byte: u8| {
            let found = content.get(at) == Some(&byte);
            at += usize::from(found);
            found
        };
        if eat(b'\n') {
            eat(b'\r');
            eat(0);
        } else if eat(b'\r') {
            eat(b'\n');
            eat(0);
        } else {
            eat(0);
        }
        Some(raw)
    })
}

#[derive(Default)]
struct Joiner<'c> {
    lines: Vec<LogicalLine<'c>>,
    errors: Vec<LineError>,
    open: Option<LogicalLine<'c>>,
    too_long: bool,
}

impl<'c> Joiner<'c> {
    fn add(&mut self, content: &'c [u8], line: u32, raw: Range<usize>) {
        let text = &content[raw.clone()];
        let indent = text.iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n')).count();
        let text = &text[indent..];
        match text.first() {
            // Also inside a continuation, which goes on.
            Some(b'#') => return,
            None => return self.close(),
            Some(_) => {}
        }
        let (text, goes_on) = match text.strip_suffix(b"\\") {
            Some(front) => (front, true),
            None => (text, false),
        };
        let piece = |at| Fragment { at, line, raw, indent };
        match &mut self.open {
            None => {
                let text = Cow::Borrowed(text.as_bstr());
                self.open = Some(LogicalLine { number: line, text, first: piece(0), more: Vec::new() });
            }
            Some(open) => {
                open.more.push(piece(open.text.len()));
                self.too_long |= open.text.len() + text.len() >= MAX_LINE;
                if !self.too_long {
                    open.text.to_mut().extend_from_slice(text);
                }
            }
        }
        if !goes_on {
            self.close();
        }
    }

    fn close(&mut self) {
        let Some(line) = self.open.take() else { return };
        if std::mem::take(&mut self.too_long) {
            self.errors.push(LineError::LogicalTooLong { line: line.number });
        } else if !line.text.is_empty() {
            self.lines.push(line);
        }
    }

    fn end(mut self) -> (Vec<LogicalLine<'c>>, Vec<LineError>) {
        if let Some(line) = self.open.take() {
            self.errors.push(LineError::EndsInContinuation { line: line.number });
        }
        (self.lines, self.errors)
    }
}

/// An operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `==`
    Match,
    /// `!=`
    NoMatch,
    /// `=`
    Assign,
    /// `:=`
    AssignFinal,
    /// `+=`
    Add,
    /// `-=`
    Remove,
}

impl Op {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Op::Match => "==",
            Op::NoMatch => "!=",
            Op::Assign => "=",
            Op::AssignFinal => ":=",
            Op::Add => "+=",
            Op::Remove => "-=",
        }
    }

    /// `==` or `!=`.
    pub fn is_match(self) -> bool {
        matches!(self, Op::Match | Op::NoMatch)
    }
}

/// A token as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawToken<'t> {
    pub key: &'t BStr,
    /// Between the braces, which may hold nothing.
    pub attr: Option<&'t BStr>,
    pub op: Op,
    /// Without quotes, escapes decoded.
    pub value: Cow<'t, BStr>,
    /// i"...".
    pub ignore_case: bool,
    /// The whole token, the key, the operator, and the value between its quotes, in the joined text.
    pub span: Range<usize>,
    pub key_span: Range<usize>,
    pub op_span: Range<usize>,
    pub value_span: Range<usize>,
}

/// Why a line has no form; it is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenError {
    /// Where in the joined text.
    pub at: usize,
    pub message: &'static str,
    pub hint: &'static str,
}

fn error<T>(at: usize, message: &'static str, hint: &'static str) -> Result<T, TokenError> {
    Err(TokenError { at, message, hint })
}

/// Bytes that separate tokens.
fn is_separator(byte: u8) -> bool {
    byte == b',' || is_blank(byte)
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// All tokens of a line, or the first fault. `found` keeps those before the fault.
pub fn tokens<'t>(text: &'t BStr, found: &mut Vec<RawToken<'t>>) -> Result<(), TokenError> {
    let mut at = 0;
    loop {
        at += text[at..].iter().take_while(|b| is_separator(**b)).count();
        if at >= text.len() {
            return Ok(());
        }
        let token = token(text, at)?;
        at = token.span.end;
        found.push(token);
    }
}

fn token(text: &BStr, start: usize) -> Result<RawToken<'_>, TokenError> {
    let key_end = key_end(text, start)?;
    let mut at = key_end;
    let attr = if text.get(at) == Some(&b'{') {
        let Some(len) = text[at + 1..].find_byte(b'}') else {
            return error(at, "the brace is not closed", "write KEY{name}");
        };
        let attr = &text[at + 1..at + 1 + len];
        at += len + 2;
        Some(attr)
    } else {
        None
    };
    at += text[at..].iter().take_while(|b| is_blank(**b)).count();
    let Some(op) = op(&text[at..]) else {
        return error(at, "an operator must stand here", "one of == != = += -= :=");
    };
    let op_span = at..at + op.as_str().len();
    at = op_span.end;
    at += text[at..].iter().take_while(|b| is_blank(**b)).count();
    let (escaped, ignore_case, quote) = prefix(text, at)?;
    let (value, end) = value(text, quote, escaped)?;
    Ok(RawToken {
        key: &text[start..key_end],
        attr,
        op,
        value,
        ignore_case,
        span: start..end + 1,
        key_span: start..key_end,
        op_span,
        value_span: quote + 1..end,
    })
}

fn key_end(text: &BStr, start: usize) -> Result<usize, TokenError> {
    for (n, &byte) in text[start..].iter().enumerate() {
        let at = start + n;
        let before_equals = || text.get(at + 1) == Some(&b'=');
        let ends = is_blank(byte)
            || matches!(byte, b'=' | b'{')
            || (matches!(byte, b'+' | b'-' | b'!' | b':') && before_equals());
        if ends && n == 0 {
            return error(at, "a key must stand here", "write KEY==\"value\"");
        }
        if ends {
            return Ok(at);
        }
    }
    error(
        start,
        "a key without operator and value",
        "write KEY==\"value\"; a rule that goes on ends in a backslash",
    )
}

fn op(text: &[u8]) -> Option<Op> {
    [Op::Match, Op::NoMatch, Op::AssignFinal, Op::Add, Op::Remove, Op::Assign]
        .into_iter()
        .find(|op| text.starts_with(op.as_str().as_bytes()))
}

/// Reads the letters in front of the quote: (escaped, ignore_case, place of the quote).
fn prefix(text: &BStr, start: usize) -> Result<(bool, bool, usize), TokenError> {
    let (mut escaped, mut ignore_case) = (false, false);
    for (n, &byte) in text[start..].iter().enumerate() {
        let flag = match byte {
            b'"' => return Ok((escaped, ignore_case, start + n)),
            b'e' => &mut escaped,
            b'i' => &mut ignore_case,
            _ => break,
        };
        if std::mem::replace(flag, true) {
            return error(start + n, "the letter stands twice", "at most one e and one i before the quote");
        }
    }
    error(start, "the value must stand in double quotes", "write KEY==\"value\"")
}

/// Reads a value: (text, place of the closing quote).
fn value(text: &BStr, quote: usize, escaped: bool) -> Result<(Cow<'_, BStr>, usize), TokenError> {
    let start = quote + 1;
    let mut at = start;
    while let Some(n) = text[at..].find_byteset(b"\"\\") {
        at += n;
        if text[at] == b'"' {
            let raw = &text[start..at];
            let value = match raw.contains(&b'\\') {
                false => Cow::Borrowed(raw),
                true if escaped => Cow::Owned(decode(raw, start)?),
                true => Cow::Owned(raw.replace(b"\\\"", b"\"").into()),
            };
            return Ok((value, at));
        }
        // A backslash protects a quote; in e"..." any byte.
        at += match text.get(at + 1) {
            Some(b'"') => 2,
            Some(_) if escaped => 2,
            _ => 1,
        };
    }
    error(
        quote,
        "the value is not closed",
        "a quote inside a value is written \\\"; a plain value cannot end in a backslash",
    )
}

/// C-style escapes of e"..." values. `base` is the place of `text` in the line.
fn decode(text: &[u8], base: usize) -> Result<BString, TokenError> {
    let mut decoded = BString::default();
    let mut at = 0;
    while at < text.len() {
        if text[at] != b'\\' {
            decoded.push(text[at]);
            at += 1;
            continue;
        }
        let Some(len) = decode_one(&text[at + 1..], &mut decoded) else {
            return error(base + at, "not an escape sequence", "in e\"...\" a backslash is written \\\\");
        };
        at += 1 + len;
    }
    Ok(decoded)
}

/// Decodes one escape after its backslash; returns its length.
fn decode_one(text: &[u8], decoded: &mut BString) -> Option<usize> {
    let digits = |from: usize, count: usize, radix: u32| {
        let digits = text.get(from..from + count)?;
        let plain = digits.iter().all(|b| (*b as char).is_digit(radix));
        plain.then(|| u32::from_str_radix(digits.to_str().ok()?, radix).ok()).flatten().filter(|n| *n > 0)
    };
    let unicode = |n: u32| char::from_u32(n).filter(|c| *c != '\0');
    let (byte, len) = match text.first()? {
        b'a' => (7, 1),
        b'b' => (8, 1),
        b'f' => (12, 1),
        b'n' => (b'\n', 1),
        b'r' => (b'\r', 1),
        b't' => (b'\t', 1),
        b'v' => (11, 1),
        b's' => (b' ', 1),
        b'\\' => (b'\\', 1),
        b'"' => (b'"', 1),
        b'\'' => (b'\'', 1),
        b'x' => (digits(1, 2, 16)? as u8, 3),
        b'u' | b'U' => {
            let count = if text[0] == b'u' { 4 } else { 8 };
            let c = unicode(digits(1, count, 16)?)?;
            decoded.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(1 + count);
        }
        b'0'..=b'7' => (u8::try_from(digits(0, 3, 8)?).ok()?, 3),
        _ => return None,
    };
    decoded.push(byte);
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(content: &str) -> Vec<String> {
        logical_lines(content.as_bytes()).0.iter().map(|l| l.text.to_string()).collect()
    }

    fn lex(text: &str) -> Result<Vec<RawToken<'_>>, TokenError> {
        let mut found = Vec::new();
        tokens(text.into(), &mut found).map(|()| found)
    }

    #[test]
    fn each_terminator_is_one_end_of_line() {
        for end in ["\n", "\r", "\0", "\n\0", "\r\0", "\r\n", "\n\r", "\r\n\0", "\n\r\0"] {
            let content = format!("a{end}b");
            let (lines, _) = logical_lines(content.as_bytes());
            assert_eq!(lines.iter().map(|l| l.number).collect::<Vec<_>>(), [1, 2], "{end:?}");
        }
        for (text, number) in [("a\n\nb", 3), ("a\r\rb", 3), ("a\0\0b", 3), ("a\0\nb", 3)] {
            assert_eq!(logical_lines(text.as_bytes()).0[1].number, number, "{text:?}");
        }
        assert_eq!(texts("\u{b}a"), ["\u{b}a"], "a vertical tab is no blank");
    }

    #[test]
    fn continuations_join_and_comments_inside_are_passed_over() {
        assert_eq!(texts("a, \\\n   b\nc"), ["a, b", "c"]);
        assert_eq!(texts("a \\\n# comment\\\n  b"), ["a b"]);
        assert_eq!(texts("a \\\n\\\n\\\nb"), ["a b"]);
        assert_eq!(texts("a\\\n\nb"), ["a", "b"], "a blank line ends it");
        assert_eq!(texts("a\\\n \t\nb"), ["a", "b"]);
        assert_eq!(texts("# c\\\nb"), ["b"], "a comment is not continued");
        assert_eq!(texts("a \\ \nb"), ["a \\ ", "b"], "a blank after it disables it");
        let (lines, _) = logical_lines(b"\n\na\\\n  b");
        assert_eq!(lines[0].number, 3);
        assert_eq!((lines[0].place(0).line, lines[0].place(1).line, lines[0].place(1).column), (3, 4, 3));
        assert_eq!(logical_lines(b"x\na\\").1, [LineError::EndsInContinuation { line: 2 }]);
    }

    #[test]
    fn a_line_may_have_16383_bytes() {
        let line = |len: usize| "#".repeat(len);
        assert_eq!(texts(&format!("a\n{}\nb", line(16383))), ["a", "b"]);
        let content = format!("a\n{}\nb", line(16384));
        let (lines, errors) = logical_lines(content.as_bytes());
        assert_eq!((lines.len(), errors), (0, vec![LineError::PhysicalTooLong { line: 2 }]));
        let piece = "x".repeat(8000);
        let joined = |last: usize| format!("{piece}\\\n{piece}\\\n{}\nb", "y".repeat(last));
        assert_eq!(texts(&joined(383))[0].len(), 16383);
        let content = joined(384);
        let (lines, errors) = logical_lines(content.as_bytes());
        assert_eq!(errors, [LineError::LogicalTooLong { line: 1 }]);
        assert_eq!(*lines[0].text, "b");
    }

    #[test]
    fn separators_are_free_and_blanks_around_operators_too() {
        for text in
            ["A==\"x\", B=\"y\"", "A==\"x\"B=\"y\"", ",, A==\"x\" ,\tB=\"y\",", "A ==  \"x\" B\t=\"y\""]
        {
            let found = lex(text).unwrap();
            let keys: Vec<_> = found.iter().map(|t| (t.key.to_string(), t.op, t.value.to_string())).collect();
            assert_eq!(
                keys,
                [("A".into(), Op::Match, "x".into()), ("B".into(), Op::Assign, "y".into())],
                "{text}"
            );
        }
        let found = lex("ATTR{test:colon+plus!=x}!=\"v\" C{}+=\"\" D-=\"1\" E:=\"2\"").unwrap();
        assert_eq!(found[0].attr.unwrap(), "test:colon+plus!=x");
        assert_eq!(found[1].attr.unwrap(), "");
        assert_eq!(
            found.iter().map(|t| t.op).collect::<Vec<_>>(),
            [Op::NoMatch, Op::Add, Op::Remove, Op::AssignFinal]
        );
    }

    #[test]
    fn plain_values_keep_backslashes_and_escaped_ones_decode_them() {
        let value = |text: &str| lex(&format!("K={text}")).map(|t| t[0].value.to_string());
        let good = [
            (r#""va'l\'id\"op\"erand""#, r#"va'l\'id"op"erand"#),
            (r#""\\x\101""#, r"\\x\101"),
            (r#"e"\\\"""#, r#"\""#),
            (r#"e"a\x20\101\u00e4\U0001F600\s\t""#, "a A\u{e4}\u{1f600} \t"),
            (r#"ie"X""#, "X"),
            (r#"ei"X""#, "X"),
        ];
        for (text, expected) in good {
            assert_eq!(value(text).as_deref(), Ok(expected), "{text}");
        }
        for text in [
            r#""x"#,
            r#"x"#,
            r#""x\""#,
            r#"e"\\\""#,
            r#"e"\i""#,
            r#"e"\x00""#,
            r#"e"\ud800""#,
            r#"e"\400""#,
            r#"e"\8""#,
            r#"ee"x""#,
            r#"iei"x""#,
            r#"u"x""#,
            "",
            r#"e"\u12""#,
        ] {
            assert!(value(text).is_err(), "{text}");
        }
    }

    #[test]
    fn malformed_tokens_say_where() {
        for (text, at) in [
            ("KERNEL", 0),
            ("A {x}==\"1\"", 2),
            ("A{x==\"1\"", 1),
            ("A==\"1\" =\"2\"", 7),
            ("A=-\"1\"", 2),
            ("A==\"x", 3),
        ] {
            assert_eq!(lex(text).unwrap_err().at, at, "{text}");
        }
        let mut found = Vec::new();
        assert!(tokens("A==\"x\" B".into(), &mut found).is_err());
        assert_eq!(found.len(), 1);
    }
}
