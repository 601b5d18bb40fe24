//! `%k`, `$attr{x}`: templates, parsed when rules are loaded, expanded when a token is evaluated
//! (rules.md section 5).
//!
//! Must stay true: parsing never fails and loses no text but what follows a malformed form; an
//! expansion never exceeds its limit, and one that would is [`Expansion::TooLong`], so that nobody
//! uses half a value by mistake.

use bstr::{BStr, BString, ByteSlice};
use std::borrow::Cow;

/// Length from which the argument between braces is an error (rules.md 5.2).
const MAX_ARGUMENT: usize = 1024;

/// A value with substitutions. Parsing never fails: what is no substitution is literal text, and a
/// form that stops substitution at run time (rules.md 5.2) becomes [`Part::Stop`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    /// Adjacent literals are joined; no literal is empty.
    pub parts: Vec<Part>,
    /// The text as written; empty for a literal, which says it itself.
    raw: BString,
}

/// A piece of a [`Template`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Literal(BString),
    Subst(Subst),
    /// A malformed substitution: what was produced before it is the value.
    Stop,
}

/// A substitution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subst {
    Kernel,
    Number,
    Devpath,
    Id,
    Driver,
    Attr(BString),
    Env(BString),
    Major,
    Minor,
    Result(ResultPart),
    Parent,
    Name,
    Links,
    Root,
    Sys,
    Devnode,
}

/// The argument of `%c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultPart {
    All,
    /// The n-th word, from 1.
    Word(u32),
    /// From word n to the end.
    From(u32),
}

/// The first thing that is wrong in a template. It is kept all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// Offset of the `%` or `$` in the text.
    pub at: usize,
    pub kind: TemplateErrorKind,
}

/// See [`TemplateError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateErrorKind {
    /// No substitution has this name or letter: copied as it is.
    Unknown,
    /// `{` without `}`: the value ends here.
    Unterminated,
    /// `{}`: the value ends here.
    EmptyArgument,
    /// An argument of 1024 bytes or more: the value ends here.
    LongArgument,
    /// `$attr` or `$env` without `{...}`: the value ends here.
    MissingArgument,
    /// `%c{x}`, x no number: the value ends here.
    BadNumber,
}

impl std::fmt::Display for TemplateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use TemplateErrorKind::*;
        f.write_str(match self.kind {
            Unknown => "no such substitution; the text is kept as it is",
            Unterminated => "`{` without `}`; the value ends before it",
            EmptyArgument => "nothing between the braces; the value ends before it",
            LongArgument => "too much between the braces; the value ends before it",
            MissingArgument => "this substitution needs an argument in braces; the value ends before it",
            BadNumber => "the number of a word is wanted here; the value ends before it",
        })
    }
}

impl std::error::Error for TemplateError {}

/// Names after `$`, tried as prefixes in this order (rules.md 5.2), with their letters after `%`.
const NAMES: [(&str, u8, SubstForm); 18] = [
    ("devnode", b'N', SubstForm::Plain(Subst::Devnode)),
    ("tempnode", b'N', SubstForm::Plain(Subst::Devnode)),
    ("attr", b's', SubstForm::Attr),
    ("sysfs", b's', SubstForm::Attr),
    ("env", b'E', SubstForm::Env),
    ("kernel", b'k', SubstForm::Plain(Subst::Kernel)),
    ("number", b'n', SubstForm::Plain(Subst::Number)),
    ("driver", b'd', SubstForm::Plain(Subst::Driver)),
    ("devpath", b'p', SubstForm::Plain(Subst::Devpath)),
    ("id", b'b', SubstForm::Plain(Subst::Id)),
    ("major", b'M', SubstForm::Plain(Subst::Major)),
    ("minor", b'm', SubstForm::Plain(Subst::Minor)),
    ("result", b'c', SubstForm::Result),
    ("parent", b'P', SubstForm::Plain(Subst::Parent)),
    ("name", b'D', SubstForm::Plain(Subst::Name)),
    ("links", b'L', SubstForm::Plain(Subst::Links)),
    ("root", b'r', SubstForm::Plain(Subst::Root)),
    ("sys", b'S', SubstForm::Plain(Subst::Sys)),
];

/// What must stand behind a name.
enum SubstForm {
    Plain(Subst),
    Attr,
    Env,
    Result,
}

/// The outcome of [`Template::expand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expansion<'t> {
    Text(Cow<'t, BStr>),
    /// It did not fit into the limit (rules.md 6.3).
    TooLong,
}

/// One substituted value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'v> {
    Text(Cow<'v, BStr>),
    /// The value exceeds its own limit, and so the whole text is too long.
    TooLong,
}

impl<'v> Value<'v> {
    /// A value that lives elsewhere.
    pub fn borrowed(text: &'v [u8]) -> Value<'v> {
        Value::Text(Cow::Borrowed(text.as_bstr()))
    }

    /// A value made for the purpose.
    pub fn owned(text: impl Into<BString>) -> Value<'v> {
        Value::Text(Cow::Owned(text.into()))
    }
}

impl Template {
    /// A text in which nothing is substituted.
    #[cfg(test)]
    pub(super) fn literal(text: impl Into<BString>) -> Template {
        let text = text.into();
        let parts = if text.is_empty() { Vec::new() } else { vec![Part::Literal(text)] };
        Template { parts, raw: BString::default() }
    }

    /// Parses a value (rules.md 5.1, 5.2). The template is usable whatever the error says.
    pub fn parse(text: &[u8]) -> (Template, Option<TemplateError>) {
        let mut parts = Vec::new();
        let mut literal = Vec::new();
        let mut error = None;
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            if byte != b'$' && byte != b'%' {
                literal.push(byte);
                at += 1;
                continue;
            }
            let rest = &text[at + 1..];
            if rest.first() == Some(&byte) {
                literal.push(byte);
                at += 2;
                continue;
            }
            let (subst, used) = parse_subst(byte, rest);
            match subst {
                Ok(subst) => {
                    push_literal(&mut parts, &mut literal);
                    parts.push(Part::Subst(subst));
                    at += 1 + used;
                }
                Err(kind) => {
                    error.get_or_insert(TemplateError { at, kind });
                    if kind != TemplateErrorKind::Unknown {
                        push_literal(&mut parts, &mut literal);
                        parts.push(Part::Stop);
                        break;
                    }
                    literal.push(byte);
                    at += 1;
                }
            }
        }
        push_literal(&mut parts, &mut literal);
        let mut template = Template { parts, raw: BString::default() };
        if !template.is_literal() {
            template.raw = text.into();
        }
        (template, error)
    }

    /// Whether nothing is substituted.
    pub fn is_literal(&self) -> bool {
        self.as_literal().is_some()
    }

    /// The text, if nothing is substituted.
    pub fn as_literal(&self) -> Option<&BStr> {
        match self.parts.as_slice() {
            [] => Some(b"".as_bstr()),
            [Part::Literal(text)] => Some(text.as_bstr()),
            _ => None,
        }
    }

    /// Whether the value is empty: not even a substitution was written.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The text as it was written (`%%` of a literal is `%`).
    pub fn raw(&self) -> &BStr {
        self.as_literal().unwrap_or(self.raw.as_bstr())
    }

    /// Puts the parts of the template together. `limit` counts a terminator, as the table of rules.md 6.3 does: the
    /// text has at most `limit - 1` bytes. `value` gives the value of a substitution or stops the
    /// expansion, because an answer is missing. With `fold`, blanks of values are folded as in rules.md
    /// 6.2, but not those of `%c`.
    pub fn expand<'t, 'v, E>(
        &'t self,
        limit: usize,
        fold: bool,
        mut value: impl FnMut(&'t Subst) -> Result<Value<'v>, E>,
    ) -> Result<Expansion<'t>, E> {
        if let Some(text) = self.as_literal() {
            let fits = text.len() < limit;
            return Ok(if fits { Expansion::Text(Cow::Borrowed(text)) } else { Expansion::TooLong });
        }
        let mut text: Vec<u8> = Vec::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => text.extend_from_slice(literal),
                Part::Stop => break,
                Part::Subst(subst) => match value(subst)? {
                    Value::TooLong => return Ok(Expansion::TooLong),
                    Value::Text(value) if fold && !matches!(subst, Subst::Result(_)) => {
                        fold_blanks(&value, &mut text);
                    }
                    Value::Text(value) => text.extend_from_slice(&value),
                },
            }
            if text.len() >= limit {
                return Ok(Expansion::TooLong);
            }
        }
        Ok(Expansion::Text(Cow::Owned(text.into())))
    }
}

fn push_literal(parts: &mut Vec<Part>, literal: &mut Vec<u8>) {
    if !literal.is_empty() {
        parts.push(Part::Literal(std::mem::take(literal).into()));
    }
}

/// Parses what follows `sign`; also says how many bytes it takes.
fn parse_subst(sign: u8, rest: &[u8]) -> (Result<Subst, TemplateErrorKind>, usize) {
    let found = NAMES.iter().find_map(|(name, letter, kind)| match sign {
        b'$' => rest.starts_with(name.as_bytes()).then_some((name.len(), kind)),
        _ => (rest.first() == Some(letter)).then_some((1, kind)),
    });
    let Some((name_len, kind)) = found else { return (Err(TemplateErrorKind::Unknown), 0) };
    match parse_argument(&rest[name_len..]) {
        Err(error) => (Err(error), 0),
        Ok(argument) => {
            let used = name_len + argument.map_or(0, |a| a.len() + 2);
            (with_argument(kind, argument), used)
        }
    }
}

/// The text between the braces, if there are any.
fn parse_argument(text: &[u8]) -> Result<Option<&[u8]>, TemplateErrorKind> {
    let Some(inside) = text.strip_prefix(b"{") else { return Ok(None) };
    match inside.find_byte(b'}') {
        None => Err(TemplateErrorKind::Unterminated),
        Some(0) => Err(TemplateErrorKind::EmptyArgument),
        Some(end) if end >= MAX_ARGUMENT => Err(TemplateErrorKind::LongArgument),
        Some(end) => Ok(Some(&inside[..end])),
    }
}

fn with_argument(kind: &SubstForm, argument: Option<&[u8]>) -> Result<Subst, TemplateErrorKind> {
    let needed = || argument.map(BString::from).ok_or(TemplateErrorKind::MissingArgument);
    Ok(match kind {
        SubstForm::Plain(subst) => subst.clone(),
        SubstForm::Attr => Subst::Attr(needed()?),
        SubstForm::Env => Subst::Env(needed()?),
        SubstForm::Result => Subst::Result(match argument {
            None => ResultPart::All,
            Some(text) => parse_result_part(text).ok_or(TemplateErrorKind::BadNumber)?,
        }),
    })
}

fn parse_result_part(text: &[u8]) -> Option<ResultPart> {
    let (digits, from) = match text.strip_suffix(b"+") {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    Some(match crate::model::device::parse_u32(digits)? {
        0 => ResultPart::All,
        n if from => ResultPart::From(n),
        n => ResultPart::Word(n),
    })
}

/// Appends `value` without blanks at either end, each inner run of blanks as one `_`.
fn fold_blanks(value: &[u8], out: &mut Vec<u8>) {
    let words = value.split(|b| is_blank(*b)).filter(|word| !word.is_empty());
    for (i, word) in words.enumerate() {
        if i > 0 {
            out.push(b'_');
        }
        out.extend_from_slice(word);
    }
}

/// Space, tab, LF, VT, FF, CR: what counts as white space in values.
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// The part of a program's result that `%c` wants (rules.md 5.1); empty if there are not so many
/// words.
pub fn result_part(result: &[u8], part: ResultPart) -> &[u8] {
    let (n, to_end) = match part {
        ResultPart::All => return result,
        ResultPart::Word(n) => (n, false),
        ResultPart::From(n) => (n, true),
    };
    let mut rest = result;
    for i in 1..=n {
        let Some(start) = rest.iter().position(|b| !is_blank(*b)) else { return b"" };
        rest = &rest[start..];
        if i == n {
            break;
        }
        let end = rest.iter().position(|b| is_blank(*b)).unwrap_or(rest.len());
        rest = &rest[end..];
    }
    if to_end {
        return rest;
    }
    let end = rest.iter().position(|b| is_blank(*b)).unwrap_or(rest.len());
    &rest[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Shows each substitution as `<...>`.
    fn show(text: &str) -> String {
        let (template, _) = Template::parse(text.as_bytes());
        let shown = template.expand(4096, false, |s| Ok::<_, Infallible>(Value::owned(format!("<{s:?}>"))));
        match shown {
            Ok(Expansion::Text(text)) => text.to_string(),
            other => panic!("{other:?}"),
        }
    }

    fn error(text: &str) -> Option<(usize, TemplateErrorKind)> {
        Template::parse(text.as_bytes()).1.map(|e| (e.at, e.kind))
    }

    #[test]
    fn names_are_prefixes_and_letters_have_no_end() {
        for (text, shown) in [
            ("a%k-$kernel", "a<Kernel>-<Kernel>"),
            ("$idx $system $majors", "<Id>x <Sys>tem <Major>s"),
            ("$sysfs{a}$sysf", "<Attr(\"a\")><Sys>f"),
            ("$attr{a/b}%s{c}", "<Attr(\"a/b\")><Attr(\"c\")>"),
            ("$env{A}%E{B}", "<Env(\"A\")><Env(\"B\")>"),
            ("%k{ignored}x", "<Kernel>x"),
            ("$devnode$tempnode%N", "<Devnode><Devnode><Devnode>"),
            (
                "%c %c{0} %c{0+} %c{01} %c{2+}",
                "<Result(All)> <Result(All)> <Result(All)> <Result(Word(1))> <Result(From(2))>",
            ),
            ("%%k $$kernel", "%k $kernel"),
        ] {
            assert_eq!(show(text), shown, "{text}");
            assert_eq!(error(text), None, "{text}");
        }
    }

    #[test]
    fn unknown_forms_are_copied_and_reported() {
        for text in ["$dev", "$KERNEL", "%x", "$(a)", "${a}", "a$", "a%", "100% sure"] {
            assert_eq!(show(text), text);
            assert!(matches!(error(text), Some((_, TemplateErrorKind::Unknown))), "{text}");
        }
        assert_eq!(error("ab%x$y"), Some((2, TemplateErrorKind::Unknown)));
    }

    #[test]
    fn malformed_forms_end_the_value() {
        use TemplateErrorKind::*;
        for (text, kind) in [
            ("ab%k{c d", Unterminated),
            ("ab$env{}d", EmptyArgument),
            ("ab$attr d", MissingArgument),
            ("ab%E d", MissingArgument),
            ("ab%c{x}d", BadNumber),
            ("ab%c{+}d", BadNumber),
            ("ab%c{99999999999}d", BadNumber),
        ] {
            assert_eq!(show(text), "ab", "{text}");
            assert_eq!(error(text), Some((2, kind)), "{text}");
        }
        assert_eq!(show(&format!("x%E{{{}}}", "a".repeat(1024))), "x");
        assert_eq!(error(&format!("x%E{{{}}}", "a".repeat(1023))), None);
    }

    #[test]
    fn a_literal_is_not_copied_and_an_empty_one_has_no_parts() {
        let (template, _) = Template::parse(b"50%% off");
        assert_eq!(template.as_literal().unwrap(), "50% off");
        assert_eq!(template, Template::literal("50% off"));
        assert!(Template::parse(b"").0.is_empty());
        assert!(!Template::parse(b"%k").0.is_literal());
        assert_eq!(Template::parse(b"a%k$$").0.raw(), "a%k$$");
    }

    #[test]
    fn the_limit_counts_a_terminator() {
        let value = |_: &Subst| Ok::<_, Infallible>(Value::borrowed(b"12345"));
        let (template, _) = Template::parse(b"%k");
        assert_eq!(template.expand(6, false, value), Ok(Expansion::Text(Cow::Borrowed(b"12345".as_bstr()))));
        assert_eq!(template.expand(5, false, value), Ok(Expansion::TooLong));
        assert_eq!(Template::literal("12345").expand(5, false, value), Ok(Expansion::TooLong));
        let too_long = |_: &Subst| Ok::<_, Infallible>(Value::TooLong);
        assert_eq!(template.expand(600, false, too_long), Ok(Expansion::TooLong));
    }

    #[test]
    fn the_first_missing_answer_stops_the_expansion() {
        let (template, _) = Template::parse(b"a%k%n");
        let missing =
            template.expand(99, false, |s| if *s == Subst::Kernel { Err("kernel") } else { Err("number") });
        assert_eq!(missing, Err("kernel"));
    }

    #[test]
    fn blanks_of_values_fold_but_not_those_of_a_result() {
        let value = |_: &Subst| Ok::<_, Infallible>(Value::borrowed(b"  a \t b  "));
        let (template, _) = Template::parse(b"x %k %c y");
        let Ok(Expansion::Text(text)) = template.expand(99, true, value) else { panic!() };
        assert_eq!(&*text, "x a_b   a \t b   y");
    }

    #[test]
    fn words_of_a_result() {
        let text = b"  one  two   three ";
        for (part, expected) in [
            (ResultPart::All, "  one  two   three "),
            (ResultPart::Word(1), "one"),
            (ResultPart::Word(2), "two"),
            (ResultPart::Word(4), ""),
            (ResultPart::From(1), "one  two   three "),
            (ResultPart::From(3), "three "),
            (ResultPart::From(9), ""),
        ] {
            assert_eq!(result_part(text, part).as_bstr(), expected, "{part:?}");
        }
    }
}
