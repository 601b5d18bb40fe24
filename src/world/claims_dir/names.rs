//! Names of symlinks and nodes below `/dev`, and what a symlink must contain to lead to a node.

use super::super::symlinks::split_last;
use super::error::ClaimErrorKind;
use crate::model::DevNum;
use bstr::{BStr, BString, ByteSlice};

pub(super) fn number_symlink(block: bool, number: DevNum) -> BString {
    let folder = if block { "block" } else { "char" };
    format!("{folder}/{}:{}", number.major, number.minor).into()
}

/// A symlink name that stays below `/dev` and on one line.
pub(super) fn plain_name(symlink: &[u8]) -> Result<&[u8], ClaimErrorKind> {
    let plain = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
    if symlink.split(|&b| b == b'/').all(plain) && !symlink.contains(&0) && !symlink.contains(&b'\n') {
        Ok(symlink)
    } else {
        Err(ClaimErrorKind::BadName)
    }
}

/// The part of a devnode behind `/dev/`.
pub(super) fn node_name(devnode: &[u8]) -> Result<&BStr, ClaimErrorKind> {
    let node = devnode.strip_prefix(b"/dev/").and_then(|node| plain_name(node).ok());
    node.map(BStr::new).ok_or_else(|| ClaimErrorKind::BadNode(devnode.into()))
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&b| b == b'/').filter(|component| !component.is_empty())
}

/// What a symlink must contain to lead to the node; both are relative to `/dev`.
pub(super) fn relative_target(symlink: &[u8], node: &[u8]) -> BString {
    let (folder, _) = split_last(symlink);
    let (mut up, mut down) = (components(folder).peekable(), node);
    while let (Some(component), Some((first, rest))) = (up.peek(), down.split_once_str("/")) {
        if *component != first {
            break;
        }
        up.next();
        down = rest;
    }
    let mut target = BString::from("../".repeat(up.count()));
    target.extend_from_slice(down);
    target
}

/// The node, relative to `/dev`, that a symlink leads to; None if the target is not as [`relative_target`] makes it.
pub(super) fn node_of_target(symlink: &[u8], target: &[u8]) -> Option<BString> {
    let (mut folder, _) = split_last(symlink);
    let mut down = target;
    while let Some(rest) = down.strip_prefix(b"../") {
        if folder.is_empty() {
            return None;
        }
        (folder, down) = (split_last(folder).0, rest);
    }
    let separator: &[u8] = if folder.is_empty() { b"" } else { b"/" };
    let node = BString::from([folder, separator, down].concat());
    (plain_name(&node).is_ok() && relative_target(symlink, &node) == target).then_some(node)
}
