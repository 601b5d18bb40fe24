//! A directory where a record is to be: nothing of ours makes one, and a file cannot replace it.
//!
//! Must stay true: nothing that is in it is lost. An empty one is removed; another is moved aside, under a name that
//! is no record's, so that the device has a record again.

use crate::sys::fs::Dir;
use bstr::ByteSlice;
use std::io;

/// So many bytes of a name stay when it is moved aside, so that there is room for a prefix.
const MAX_NAME: usize = 240;

/// The new name of a directory that stood in the way and was not empty.
pub(super) fn aside(name: &[u8]) -> Vec<u8> {
    [b".dir-", &name[..name.len().min(MAX_NAME)]].concat()
}

/// Writes a record; once more if a directory was in its way that could be removed or moved.
pub(super) fn write_over(data: &Dir, name: &[u8], write: impl Fn() -> io::Result<()>) -> io::Result<()> {
    match write() {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            clear(data, name)?;
            write()
        }
        result => result,
    }
}

fn clear(data: &Dir, name: &[u8]) -> io::Result<()> {
    let shown = name.as_bstr();
    match data.remove_dir(name) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            let aside = aside(name);
            data.rename(name, &aside)?;
            let aside = aside.as_bstr();
            log::warn!("A directory that is not empty was in place of the record {shown}: it is {aside} now");
        }
        result => {
            result?;
            log::warn!("An empty directory was in place of the record {shown}, it is removed");
        }
    }
    Ok(())
}

/// Whether a file could not be read because there is something else in its place: a directory, a symlink, a
/// socket, a device that nobody serves. Then there is no record.
pub(super) fn is_other(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EISDIR | libc::ELOOP | libc::ENXIO | libc::ENODEV))
}
