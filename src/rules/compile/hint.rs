//! Guesses which key somebody meant who wrote an unknown one.

use crate::model::nearest::nearest;

/// All keys, for the hint.
const KEYS: [&str; 29] = [
    "ACTION",
    "ATTR",
    "ATTRS",
    "CONST",
    "DEVPATH",
    "DRIVER",
    "DRIVERS",
    "ENV",
    "GOTO",
    "GROUP",
    "IMPORT",
    "KERNEL",
    "KERNELS",
    "LABEL",
    "MODE",
    "NAME",
    "OPTIONS",
    "OWNER",
    "PROGRAM",
    "RESULT",
    "RUN",
    "SECLABEL",
    "SUBSYSTEM",
    "SUBSYSTEMS",
    "SYMLINK",
    "SYSCTL",
    "TAG",
    "TAGS",
    "TEST",
];

/// The key that is most like this word.
pub(super) fn nearest_key(key: &[u8]) -> Option<&'static str> {
    nearest(&key.to_ascii_uppercase(), KEYS)
}
