//! What is wrong with a rules file, for the person who wrote it: where, what, and what to do.
//! A diagnostic never stops the other lines.

use bstr::BString;
use std::fmt;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Only taste (`verify`).
    Style,
    Warning,
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Style => "style",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    pub file: BString,
    /// First physical line of the rule, from 1: other tools name it, and it puts diagnostics in order.
    pub rule: u32,
    /// The physical line that is meant, from 1; in a continued rule it may be a later one than `rule`.
    pub line: u32,
    /// Byte in `text`, from 1.
    pub column: u32,
    /// Bytes that the caret line marks, at least 1.
    pub width: u32,
    pub message: String,
    /// What to do instead; may be empty.
    pub hint: String,
    /// The line `line`.
    pub text: BString,
}

/// Bytes of a source line that are shown.
const MAX_SHOWN: usize = 160;

impl fmt::Display for Diagnostic {
    /// `file:line:column: severity: message`, where a continued rule begins if that is another line, then
    /// the source line with carets below, then the hint.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}: {}", self.file, self.line, self.column, self.severity, self.message)?;
        if self.rule != self.line {
            write!(f, " (in the rule that begins at line {})", self.rule)?;
        }
        if !self.text.is_empty() {
            let (shown, column) = self.window();
            let width = (self.width as usize).clamp(1, shown.chars().count().saturating_sub(column).max(1));
            write!(f, "\n    {shown}\n    {}{}", " ".repeat(column), "^".repeat(width))?;
        }
        if !self.hint.is_empty() {
            write!(f, "\n    hint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl Diagnostic {
    /// The part of the line around the column, printable, and the column in it from 0.
    fn window(&self) -> (String, usize) {
        let column = (self.column as usize).saturating_sub(1).min(self.text.len());
        let start = column.saturating_sub(MAX_SHOWN / 2);
        let end = self.text.len().min(start + MAX_SHOWN);
        let clean = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes)
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect::<String>()
        };
        let before = clean(&self.text[start..column]);
        let shown = before.clone() + &clean(&self.text[column..end]);
        (shown, before.chars().count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_points_at_the_place_and_says_what_to_do() {
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            file: "a.rules".into(),
            rule: 3,
            line: 3,
            column: 5,
            width: 4,
            message: "unknown key KERN".into(),
            hint: "did you mean KERNEL?".into(),
            text: "\t \t KERN==\"x\"".into(),
        };
        let expected = "a.rules:3:5: error: unknown key KERN\n        KERN==\"x\"\n        ^^^^\n    hint: did you mean KERNEL?";
        assert_eq!(diagnostic.to_string(), expected);
        let continued = Diagnostic { rule: 1, ..diagnostic.clone() };
        let first = "a.rules:3:5: error: unknown key KERN (in the rule that begins at line 1)";
        assert_eq!(continued.to_string().lines().next(), Some(first));
        let far = Diagnostic { column: 900, text: "x".repeat(1000).into(), ..diagnostic.clone() };
        assert!(far.to_string().lines().all(|l| l.len() < 200));
        let odd = Diagnostic { column: 99, text: b"\xff\xfe\x00".into(), ..diagnostic };
        assert!(odd.to_string().contains('^'));
    }
}
