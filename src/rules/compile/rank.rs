//! Ranks of tokens: those of a line are evaluated in the order of their ranks (rules.md 2.4).

pub(super) const ACTION: u8 = 0;
pub(super) const DEVPATH: u8 = 1;
pub(super) const KERNEL: u8 = 2;
pub(super) const SYMLINK_MATCH: u8 = 3;
pub(super) const NAME_MATCH: u8 = 4;
pub(super) const ENV_MATCH: u8 = 5;
pub(super) const CONST: u8 = 6;
pub(super) const TAG_MATCH: u8 = 7;
pub(super) const SUBSYSTEM: u8 = 8;
pub(super) const DRIVER: u8 = 9;
pub(super) const ATTR_MATCH: u8 = 10;
pub(super) const SYSCTL_MATCH: u8 = 11;
/// The group of parents. All its members must hold on one device, so their order does not change the outcome, only
/// what has to be read: attributes, which cost most, come last.
pub(super) const PARENT_KERNEL: u8 = 20;
pub(super) const PARENT_SUBSYSTEM: u8 = 21;
pub(super) const PARENT_DRIVER: u8 = 22;
pub(super) const PARENT_TAG: u8 = 23;
pub(super) const PARENT_ATTR: u8 = 24;
pub(super) const TEST: u8 = 30;
pub(super) const PROGRAM: u8 = 31;
pub(super) const IMPORT_FILE: u8 = 32;
pub(super) const IMPORT_PROGRAM: u8 = 33;
pub(super) const IMPORT_BUILTIN: u8 = 34;
pub(super) const IMPORT_DB: u8 = 35;
pub(super) const IMPORT_CMDLINE: u8 = 36;
pub(super) const IMPORT_PARENT: u8 = 37;
pub(super) const RESULT: u8 = 38;
/// From this rank on a token is an effect by itself.
pub(super) const DUMP: u8 = 40;
pub(super) const STRING_ESCAPE: u8 = 41;
pub(super) const DB_PERSIST: u8 = 42;
pub(super) const WATCH: u8 = 43;
pub(super) const LINK_PRIORITY: u8 = 44;
pub(super) const LOG_LEVEL: u8 = 45;
pub(super) const OWNER_NAME: u8 = 50;
pub(super) const GROUP_NAME: u8 = 51;
pub(super) const MODE_TEXT: u8 = 52;
pub(super) const OWNER: u8 = 53;
pub(super) const GROUP: u8 = 54;
pub(super) const MODE: u8 = 55;
pub(super) const TAG: u8 = 56;
pub(super) const STATIC_NODE: u8 = 57;
pub(super) const SECLABEL: u8 = 58;
pub(super) const ENV: u8 = 60;
pub(super) const NAME: u8 = 61;
pub(super) const SYMLINK: u8 = 62;
pub(super) const ATTR: u8 = 63;
pub(super) const SYSCTL: u8 = 64;
pub(super) const RUN_BUILTIN: u8 = 65;
pub(super) const RUN_PROGRAM: u8 = 66;

/// Whether a line with this token does anything (rules.md 1.6, last row).
pub(super) fn has_effect(rank: u8) -> bool {
    (PROGRAM..=IMPORT_PARENT).contains(&rank) || rank >= DUMP
}
