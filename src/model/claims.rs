//! Who owns which symlink: an in-memory table of claims (rules.md 11.2).
