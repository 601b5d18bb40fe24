//! What is odd in a rule but has no effect at run time (rules.md 1.8): style, repetition, contradiction.
//! For `mudevadm verify`; the daemon does not look.

use super::compile::SourceFile;
use super::diagnostic::{Diagnostic, Severity};
use super::glob::{self, Glob};
use super::lex::{self, LogicalLine, Op, RawToken};
use bstr::{BStr, BString, ByteSlice};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

/// What is odd in a file; lines that cannot be read are left to the compiler.
pub fn file(file: &SourceFile) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let lines = lex::logical_lines(&file.content).0;
    let mut wanted_labels: Vec<Cow<BStr>> = Vec::new();
    for source in &lines {
        let mut tokens = Vec::new();
        if lex::tokens(&source.text, &mut tokens).is_err() {
            continue;
        }
        let mut say = |severity, span, message| found.push(diagnostic(file, source, severity, span, message));
        line(&source.text, &tokens, &mut say);
        let assigned = |key: &'static str| tokens.iter().filter(move |t| t.key == key && t.op == Op::Assign);
        // A jump never leads to its own line, so the label comes first.
        if let Some(label) = assigned("LABEL").next_back() {
            let before = wanted_labels.len();
            wanted_labels.retain(|wanted| *wanted != label.value);
            if wanted_labels.len() == before {
                let message = format!("LABEL=\"{}\" is not used", label.value);
                say(Severity::Style, label.span.clone(), message);
            }
        }
        wanted_labels.extend(assigned("GOTO").next().map(|goto| goto.value.clone()));
    }
    found
}

fn diagnostic(
    file: &SourceFile,
    line: &LogicalLine,
    severity: Severity,
    span: Range<usize>,
    message: String,
) -> Diagnostic {
    let place = line.place(span.start);
    Diagnostic {
        severity,
        file: file.path.clone(),
        rule: line.number,
        line: place.line,
        column: place.column,
        width: span.len() as u32,
        message,
        hint: String::new(),
        text: file.content.get(place.raw).unwrap_or_default().into(),
    }
}

/// Looks at one line and its tokens; says what it finds by `report(severity, place, message)`.
fn line(text: &[u8], expressions: &[RawToken], mut report: impl FnMut(Severity, Range<usize>, String)) {
    style(text, expressions, |at, message| report(Severity::Style, at..at + 1, message.to_owned()));
    let compared: Vec<Expression> = expressions.iter().map(Expression::of).collect();
    for (i, late) in compared.iter().enumerate() {
        let Some(verdict) = compared[..i].iter().find_map(|early| late.judge(early)) else { continue };
        let key = late.name();
        match verdict {
            Verdict::Repeated => report(Severity::Warning, late.span.clone(), format!("{key} is repeated")),
            Verdict::Contradictory => report(
                Severity::Error,
                late.span.clone(),
                format!("this {key} and an earlier one cannot both hold"),
            ),
        }
    }
    let result = expressions.iter().find(|e| e.key == "RESULT");
    let program = expressions.iter().find(|e| e.key == "PROGRAM");
    if let (Some(result), Some(program)) = (result, program)
        && result.span.start < program.span.start
    {
        let message = "RESULT is written before PROGRAM, but compared after it ran";
        report(Severity::Warning, result.span.clone(), message.to_owned());
    }
}

/// Commas and blanks between expressions.
fn style(text: &[u8], expressions: &[RawToken], mut report: impl FnMut(usize, &str)) {
    let mut end = 0;
    for (i, expression) in expressions.iter().enumerate() {
        let gap = &text[end..expression.span.start];
        if i == 0 {
            if let Some(comma) = gap.find_byte(b',') {
                report(comma, "a comma in front of the first token");
            }
        } else {
            gap_style(gap, end, &mut report);
        }
        end = expression.span.end;
    }
    if let Some(comma) = text[end..].find_byte(b',')
        && !expressions.is_empty()
    {
        report(end + comma, "a comma behind the last token");
    }
}

fn gap_style(gap: &[u8], at: usize, report: &mut impl FnMut(usize, &str)) {
    match gap.iter().filter(|&&b| b == b',').count() {
        0 if gap.is_empty() => report(at, "neither comma nor blank between tokens"),
        0 => report(at, "no comma between tokens"),
        1 => {
            if matches!(gap[0], b' ' | b'\t') {
                report(at, "a blank in front of a comma");
            }
            if gap.last() == Some(&b',') {
                report(at + gap.len() - 1, "no blank behind a comma");
            }
        }
        _ => report(at, "several commas between tokens"),
    }
}

/// An expression in comparable form.
struct Expression<'e> {
    key: &'e [u8],
    attr: &'e [u8],
    op: Op,
    /// Alternatives as a set; one element for values that have none.
    values: BTreeSet<Cow<'e, [u8]>>,
    ignore_case: bool,
    span: Range<usize>,
}

enum Verdict {
    Repeated,
    Contradictory,
}

impl<'e> Expression<'e> {
    fn of(e: &'e RawToken) -> Expression<'e> {
        let has_alternatives =
            e.op.is_match() && !matches!(e.key.as_bytes(), b"TEST" | b"PROGRAM" | b"IMPORT");
        let text: &[u8] = &e.value;
        // Trailing blanks of attributes are cut or not as the value says: too fine for this check.
        let text = if matches!(e.key.as_bytes(), b"ATTR" | b"ATTRS") {
            text.trim_end_with(|c| c == ' ' || c == '\t')
        } else {
            text
        };
        let folded: Cow<[u8]> = match e.ignore_case {
            true => Cow::Owned(text.to_ascii_lowercase()),
            false => Cow::Borrowed(text),
        };
        let values = match (&folded, has_alternatives) {
            (_, false) => BTreeSet::from([folded]),
            (Cow::Borrowed(text), true) => text.split(|&b| b == b'|').map(Cow::Borrowed).collect(),
            (Cow::Owned(text), true) => text.split(|&b| b == b'|').map(|a| Cow::Owned(a.to_vec())).collect(),
        };
        let mut expression = Expression {
            key: e.key,
            attr: e.attr.map_or(&[], |a| a.as_bytes()),
            op: e.op,
            values,
            ignore_case: e.ignore_case,
            span: e.span.clone(),
        };
        expression.normalise(has_alternatives, text);
        expression
    }

    /// Ops that mean the same become the same; `?*` is "not empty".
    fn normalise(&mut self, has_alternatives: bool, text: &[u8]) {
        if matches!(self.key, b"PROGRAM" | b"IMPORT") && self.op != Op::NoMatch {
            self.op = Op::Match;
        }
        if has_alternatives && text == b"?*" {
            self.values = BTreeSet::from([Cow::Borrowed(&b""[..])]);
            self.op = match self.op {
                Op::Match => Op::NoMatch,
                _ => Op::Match,
            };
        }
    }

    fn name(&self) -> String {
        match self.attr {
            b"" => self.key.as_bstr().to_string(),
            attr => format!("{}{{{}}}", self.key.as_bstr(), attr.as_bstr()),
        }
    }

    fn judge(&self, earlier: &Expression) -> Option<Verdict> {
        if (self.key, self.attr) != (earlier.key, earlier.attr) || matches!(self.key, b"GOTO" | b"LABEL") {
            return None;
        }
        let same = self.values == earlier.values && self.ignore_case == earlier.ignore_case;
        if same && self.op == earlier.op {
            return Some(Verdict::Repeated);
        }
        let opposed = self.op.is_match() && earlier.op.is_match() && self.op != earlier.op;
        // What PROGRAM and IMPORT say may change from call to call, and sets may hold many values at once.
        if same && opposed && !matches!(self.key, b"PROGRAM" | b"IMPORT") {
            return Some(Verdict::Contradictory);
        }
        let one_valued =
            !matches!(self.key, b"TAG" | b"TAGS" | b"SYMLINK" | b"TEST" | b"PROGRAM" | b"IMPORT");
        let both_equal = self.op == Op::Match && earlier.op == Op::Match;
        let may_overlap = || {
            let ignore_case = self.ignore_case || earlier.ignore_case;
            self.values.iter().any(|a| earlier.values.iter().any(|b| may_overlap(a, b, ignore_case)))
        };
        (one_valued && both_equal && !may_overlap()).then_some(Verdict::Contradictory)
    }
}

/// Whether some text may match both alternatives; true in doubt.
fn may_overlap(a: &[u8], b: &[u8], ignore_case: bool) -> bool {
    match (glob::is_glob(a), glob::is_glob(b)) {
        (false, false) => a == b || (ignore_case && a.eq_ignore_ascii_case(b)),
        (true, false) => Glob::new(a, ignore_case).matches(b),
        (false, true) => Glob::new(b, ignore_case).matches(a),
        (true, true) => {
            let prefix = |text: &[u8]| -> BString { Glob::new(text, ignore_case).literal_prefix() };
            let (a, b) = (prefix(a), prefix(b));
            a.starts_with(&b) || b.starts_with(&a)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Severity::{Error, Style, Warning};
    use super::*;

    fn severities(text: &str) -> Vec<Severity> {
        file(&SourceFile { path: "t".into(), content: text.into() }).iter().map(|d| d.severity).collect()
    }

    #[test]
    fn lint_finds_what_has_no_effect() {
        for (line, said) in [
            (r#"TAG+="a", TAG+="b""#, &[][..]),
            (r#", TAG+="a""#, &[Style]),
            (r#"TAG+="a","#, &[Style]),
            (r#"TAG+="a" TAG+="b""#, &[Style]),
            (r#"TAG+="a"TAG+="b""#, &[Style]),
            (r#"TAG+="a",, TAG+="b""#, &[Style]),
            (r#"TAG+="a" , TAG+="b""#, &[Style]),
            (r#"TAG+="a",TAG+="b""#, &[Style]),
            (r#"LABEL="a""#, &[Style]),
            (r#"TAG+="a", TAG+="a""#, &[Warning]),
            (r#"TAG+="a", KERNEL=="b|a", KERNEL=="a|b""#, &[Warning]),
            (r#"PROGRAM=="a", PROGRAM="a""#, &[Warning]),
            (r#"RESULT=="a", PROGRAM=="b""#, &[Warning]),
            (r#"TAG+="a", KERNEL=="a", KERNEL!="a""#, &[Error]),
            (r#"TAG+="a", KERNEL=="a|b", KERNEL=="c|d""#, &[Error]),
            (r#"TAG+="a", KERNEL=="a*|b*", KERNEL=="c*""#, &[Error]),
            (r#"TAG+="a", KERNEL=="ab*", KERNEL=="a*""#, &[]),
            (r#"TAG+="a", ENV{x}=="", ENV{x}=="?*""#, &[Error]),
            (r#"TAG+="a", ENV{x}=="|a", ENV{x}=="b|""#, &[]),
            (r#"TAG+="a", ENV{x}=="a", ENV{y}=="b""#, &[]),
            (r#"TAG+="a", ENV{x}==i"A", ENV{x}=="a""#, &[]),
            (r#"TAG+="a", TAG=="b", TAG=="c""#, &[]),
            (r#"TAG+="a", TAGS=="b", TAGS=="c""#, &[]),
            (r#"TAG+="a", KERNELS=="b", KERNELS=="c""#, &[Error]),
            (r#"TAG+="a", ATTRS{x}=="b", ATTRS{x}=="b ""#, &[Warning]),
            (r#"TAG+="a", TEST=="b", TEST=="c""#, &[]),
        ] {
            let found = severities(line);
            assert_eq!(found, said, "{line}");
        }
        assert_eq!(severities("GOTO=\"a\"\nLABEL=\"a\"\nLABEL=\"a\"\n"), [Style]);
        assert_eq!(severities("LABEL=\"a\"\nGOTO=\"a\"\n"), [Style]);
    }
}
