//! Values of match keys, classified once (rules.md 3.1).

use bstr::BString;

/// A compiled match value: alternatives between `|`, each a literal or a glob.
///
/// `?*` alone is not stored as a pattern: the compiler turns it into the pattern of `""` and flips
/// the operator (rules.md 3.1), which is what gives the set-valued keys their traps (3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// An empty alternative, or the empty value: the empty subject matches.
    pub matches_empty: bool,
    /// The stored (non-empty) alternatives in order.
    pub alternatives: Vec<Alternative>,
    /// i"...".
    pub ignore_case: bool,
    /// Trailing blanks of an attribute are cut before comparing (rules.md 3.4).
    pub trims_attribute: bool,
}

/// One alternative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alternative {
    Literal(BString),
    /// `text*`.
    Prefix(BString),
    /// `*text`.
    Suffix(BString),
    /// `*`.
    Anything,
    /// Any other glob, as written.
    Glob(BString),
}
