//! Why the disk does not agree with the table of claims about one symlink.

use super::super::symlinks::SymlinkError;
use crate::model::Errno;
use bstr::BString;
use std::io;

/// Why one symlink is not as it should be.
#[derive(Debug)]
pub struct ClaimError {
    /// Relative to `/dev/`.
    pub symlink: BString,
    pub kind: ClaimErrorKind,
}

/// See [`ClaimError`].
#[derive(Debug)]
pub enum ClaimErrorKind {
    /// The name is empty, or has an empty component, `.`, `..`, a NUL or a newline.
    BadName,
    /// The node is not below `/dev/`.
    BadNode(BString),
    /// Something that is no symlink is there.
    Occupied,
    /// The symlink in `/dev` could not be read, made or removed.
    Dev(io::Error),
    /// The same for its claim directory.
    Claim(io::Error),
}

impl ClaimError {
    /// Whether `/run/udev/links` is not there, or was removed.
    pub fn is_of_missing_folder(&self) -> bool {
        matches!(&self.kind, ClaimErrorKind::Claim(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether the same may succeed later; the symlink is then remembered for [`ClaimsDir::finish`](super::ClaimsDir::finish).
    pub fn is_shortage(&self) -> bool {
        self.kind.is_shortage()
    }

    /// The error number that an event which fails by this reports.
    pub fn errno(&self) -> Errno {
        match &self.kind {
            ClaimErrorKind::BadName | ClaimErrorKind::BadNode(_) => Errno(libc::EINVAL),
            ClaimErrorKind::Occupied => Errno(libc::EEXIST),
            ClaimErrorKind::Dev(error) | ClaimErrorKind::Claim(error) => Errno::of(error),
        }
    }
}

impl ClaimErrorKind {
    pub(super) fn is_shortage(&self) -> bool {
        match self {
            ClaimErrorKind::Dev(error) | ClaimErrorKind::Claim(error) => Errno::of(error).is_shortage(),
            ClaimErrorKind::BadName | ClaimErrorKind::BadNode(_) | ClaimErrorKind::Occupied => false,
        }
    }
}

impl std::fmt::Display for ClaimError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let symlink = &self.symlink;
        match &self.kind {
            ClaimErrorKind::BadName => write!(f, "cannot link {symlink:?}: not a name below /dev"),
            ClaimErrorKind::BadNode(node) => {
                write!(f, "cannot link /dev/{symlink} to {node:?}: not below /dev")
            }
            ClaimErrorKind::Occupied => {
                write!(f, "cannot link /dev/{symlink}: something that is no symlink is there")
            }
            ClaimErrorKind::Dev(error) => write!(f, "cannot change /dev/{symlink}: {error}"),
            ClaimErrorKind::Claim(error) => write!(f, "cannot note the claim on /dev/{symlink}: {error}"),
        }
    }
}

impl std::error::Error for ClaimError {}

impl From<SymlinkError> for ClaimErrorKind {
    fn from(error: SymlinkError) -> ClaimErrorKind {
        match error {
            SymlinkError::Occupied => ClaimErrorKind::Occupied,
            SymlinkError::Io(error) => ClaimErrorKind::Dev(error),
        }
    }
}
