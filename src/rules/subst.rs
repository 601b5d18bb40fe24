//! `%k`, `$attr{x}`: templates, parsed when rules are loaded, expanded when a token is evaluated
//! (rules.md section 5).

use bstr::BString;

/// A value with substitutions. Parsing never fails: what is no substitution is literal text, and a
/// form that stops substitution at run time (rules.md 5.2) becomes [`Part::Stop`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    pub parts: Vec<Part>,
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
