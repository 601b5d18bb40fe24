//! Values of match keys, classified once (rules.md 3.1).

use super::glob::{self, Glob, Shape};
use bstr::BString;

/// A compiled match value: alternatives between `|`, each a literal or a glob.
///
/// `?*` alone is not stored as a pattern: the compiler turns it into the pattern of `""` and flips
/// the operator (rules.md 3.1), which is what gives the set-valued keys their traps (3.3).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// An empty alternative, or the empty value: the empty subject matches.
    pub matches_empty: bool,
    /// The stored (non-empty) alternatives in order.
    pub alternatives: Vec<Alternative>,
    /// i"...": all texts in `alternatives` are lower case.
    pub ignore_case: bool,
    /// Trailing blanks of an attribute are cut before comparing (rules.md 3.4).
    pub trims_attribute: bool,
}

/// One alternative.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Alternative {
    Literal(BString),
    /// `text*`.
    Prefix(BString),
    /// `*text`.
    Suffix(BString),
    /// `*`.
    Anything,
    /// Any other glob.
    Glob(Glob),
}

impl Pattern {
    /// Compiles a value. If one alternative is a glob, all are (so that a backslash escapes in each);
    /// otherwise all are compared byte for byte.
    pub fn compile(value: &[u8], ignore_case: bool) -> Pattern {
        let are_globs = glob::is_glob(value);
        let mut pattern = Pattern {
            matches_empty: false,
            // Nearly all values are one alternative, and patterns are what most of a program consists of.
            alternatives: Vec::with_capacity(1 + value.iter().filter(|&&b| b == b'|').count()),
            ignore_case,
            trims_attribute: false,
        };
        for text in value.split(|&b| b == b'|') {
            match text.last() {
                None => pattern.matches_empty = true,
                Some(last) => {
                    if pattern.alternatives.is_empty() {
                        pattern.trims_attribute = !matches!(last, b' ' | b'\t' | b'\n' | b'\r');
                    }
                    pattern.alternatives.push(Alternative::new(text, are_globs, ignore_case));
                }
            }
        }
        pattern
    }

    /// Whether the subject is matched by one of the alternatives.
    pub fn matches(&self, subject: &[u8]) -> bool {
        if subject.is_empty() && self.matches_empty {
            return true;
        }
        self.alternatives.iter().any(|a| a.matches(subject, self.ignore_case))
    }

    /// What a comparison with a subject of so many bytes costs, in nanoseconds. Nearly all patterns take less; the worst of
    /// 16 KiB takes some ten times as long.
    pub fn cost(&self, length: usize) -> usize {
        let of = |alternative: &Alternative| match alternative {
            Alternative::Glob(_) => 16 * length,
            _ => 8 + length / 8,
        };
        self.alternatives.iter().map(of).sum()
    }

    /// The value, if the pattern is one literal that is compared byte for byte.
    pub fn as_literal(&self) -> Option<&BString> {
        match self.alternatives.as_slice() {
            [Alternative::Literal(text)] if !self.matches_empty && !self.ignore_case => Some(text),
            _ => None,
        }
    }
}

impl Alternative {
    fn new(text: &[u8], is_glob: bool, ignore_case: bool) -> Alternative {
        if !is_glob {
            let text = if ignore_case { text.to_ascii_lowercase() } else { text.to_vec() };
            return Alternative::Literal(text.into());
        }
        let glob = Glob::new(text, ignore_case);
        match glob.shape() {
            Shape::Literal(text) => Alternative::Literal(text),
            Shape::Prefix(text) => Alternative::Prefix(text),
            Shape::Suffix(text) => Alternative::Suffix(text),
            Shape::Anything => Alternative::Anything,
            Shape::Other => Alternative::Glob(glob),
        }
    }

    fn matches(&self, subject: &[u8], ignore_case: bool) -> bool {
        let same = |a: &[u8], b: &[u8]| if ignore_case { a.eq_ignore_ascii_case(b) } else { a == b };
        match self {
            Alternative::Literal(text) => same(text, subject),
            Alternative::Prefix(text) => subject.get(..text.len()).is_some_and(|head| same(text, head)),
            Alternative::Suffix(text) => {
                subject.len().checked_sub(text.len()).is_some_and(|at| same(text, &subject[at..]))
            }
            Alternative::Anything => true,
            Alternative::Glob(glob) => glob.matches(subject),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_match_as_written() {
        for (value, matching, other) in [
            ("", &[""][..], &["a", " "][..]),
            ("abc", &["abc"], &["", "ab", "abcd", "ABC"]),
            ("a|b", &["a", "b"], &["", "a|b", "c"]),
            ("|a", &["", "a"], &["b", "|a"]),
            ("a|", &["", "a"], &["b"]),
            ("a||b", &["", "a", "b"], &["|"]),
            ("|", &[""], &["|"]),
            ("*", &["", "a"], &[]),
            ("a*|b", &["a", "axy", "b"], &["", "bx"]),
            ("*a", &["a", "xa"], &["", "ax"]),
            ("?*|y", &["a", "y"], &[""]),
            ("|x*", &["", "xy"], &["y"]),
            ("a\\b", &["a\\b"], &["ab"]),
            ("a\\b|[c]", &["ab", "c"], &["a\\b"]),
            ("attyACM0|ttyACM0a|ttyACM0", &["ttyACM0"], &["ttyACM"]),
        ] {
            let pattern = Pattern::compile(value.as_bytes(), false);
            for subject in matching {
                assert!(pattern.matches(subject.as_bytes()), "{value} on {subject}");
            }
            for subject in other {
                assert!(!pattern.matches(subject.as_bytes()), "{value} on {subject}");
            }
        }
    }

    #[test]
    fn case_is_ignored_on_demand_in_every_class_of_pattern() {
        for (value, subject) in [
            ("aBc", "AbC"),
            ("aB*", "ABx"),
            ("*bC", "xBc"),
            ("a?C", "AxC"),
            ("x|[a-c]y", "BY"),
            ("[A-C]", "b"),
        ] {
            assert!(
                Pattern::compile(value.as_bytes(), true).matches(subject.as_bytes()),
                "{value} on {subject}"
            );
            assert!(
                !Pattern::compile(value.as_bytes(), false).matches(subject.as_bytes()),
                "{value} on {subject}"
            );
        }
    }

    #[test]
    fn attributes_are_trimmed_unless_the_first_alternative_ends_in_a_blank() {
        for (value, trims) in [
            ("", false),
            ("|", false),
            ("foo", true),
            ("foo ", false),
            ("foo|bar ", true),
            ("foo |bar", false),
            ("|foo ", false),
            ("|foo", true),
            ("foo\t", false),
            ("*", true),
            (" ", false),
        ] {
            assert_eq!(Pattern::compile(value.as_bytes(), false).trims_attribute, trims, "{value:?}");
        }
    }

    #[test]
    fn nearly_all_values_of_the_field_need_no_glob() {
        use Alternative::*;
        let one = |v: &str| Pattern::compile(v.as_bytes(), false).alternatives.remove(0);
        assert_eq!(one("sda"), Literal("sda".into()));
        assert_eq!(one("sd*"), Prefix("sd".into()));
        assert_eq!(one("*sd"), Suffix("sd".into()));
        assert_eq!(one("*"), Anything);
        assert_eq!(one("s\\*d*"), Prefix("s*d".into()));
        assert!(matches!(one("sd[a-z]"), Glob(_)));
        assert_eq!(Pattern::compile(b"sda", false).as_literal().unwrap(), "sda");
        assert_eq!(Pattern::compile(b"sda|", false).as_literal(), None);
    }
}
