//! What a reload reads: rules files, .link files, files of settings. A helper reads them where that may wait, and
//! passes them on as one text.
//!
//! Must stay true: nothing in here looks at a file but [`Reading::read`].
//!
//! The text is a list of entries: a byte for the kind, then two texts, each its length as u32 in native order and
//! its bytes.

use super::messages::message;
use crate::builtin::link_files::{self, Part};
use crate::model::Errno;
use crate::rules::compile::SourceFile;
use crate::world::rule_files::{Loaded, RuleFiles, Snapshot};
use crate::world::{Roots, config};
use bstr::{BStr, BString, ByteSlice};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of all files together, with their names; with more the old rules stay.
pub const MAX: usize = 64 << 20;

/// Bytes of the longest text.
pub const MAX_TEXT: usize = MAX + 1024;

/// See the module.
#[derive(Debug)]
pub struct Reading {
    pub rules: Loaded,
    pub link_files: link_files::Texts,
    pub settings: config::Files,
}

/// What an entry is.
const RULES: u8 = b'r';
const UNREAD_RULES: u8 = b'R';
const STATES: u8 = b's';
/// A .link file; drop-ins follow theirs.
const LINK: u8 = b'l';
const UNREAD_LINK: u8 = b'L';
const DROP_IN: u8 = b'd';
const UNREAD_DROP_IN: u8 = b'D';
const MACHINE_ID: u8 = b'm';
const OS_RELEASE: u8 = b'o';
const SETTINGS: u8 = b'c';
const MESSAGE: u8 = b'C';
const IN_INITRD: u8 = b'i';

impl Reading {
    /// Reads them all; may wait.
    pub fn read(roots: &Roots, rules: &RuleFiles) -> Reading {
        Reading {
            rules: rules.load(),
            link_files: link_files::Texts::read(roots),
            settings: config::Files::read(roots),
        }
    }

    /// One text for all of it; EFBIG beyond [`MAX`].
    pub fn encode(&self) -> Result<BString, Errno> {
        let mut text = Vec::new();
        let mut add = |kind, first: &[u8], second: &[u8]| {
            if text.len() + first.len() + second.len() > MAX {
                return Err(Errno(libc::EFBIG));
            }
            text.append(&mut message(kind, &[first, second]));
            Ok(())
        };
        for file in &self.rules.files {
            add(RULES, &file.path, &file.content)?;
        }
        for (path, error) in &self.rules.failures {
            add(UNREAD_RULES, path.as_os_str().as_bytes(), error.to_string().as_bytes())?;
        }
        add(STATES, &self.rules.snapshot.0, self.link_files.state.as_bytes())?;
        for parts in &self.link_files.files {
            for (at, part) in parts.iter().enumerate() {
                let kinds = if at == 0 { (LINK, UNREAD_LINK) } else { (DROP_IN, UNREAD_DROP_IN) };
                let path = part.path.as_os_str().as_bytes();
                match &part.content {
                    Ok(content) => add(kinds.0, path, content)?,
                    Err(why) => add(kinds.1, path, why.as_bytes())?,
                }
            }
        }
        if let Some(id) = &self.link_files.told.machine_id {
            add(MACHINE_ID, id, b"")?;
        }
        add(OS_RELEASE, &self.link_files.told.os_release, b"")?;
        for (path, content) in &self.settings.files {
            add(SETTINGS, path.as_os_str().as_bytes(), content)?;
        }
        for message in &self.settings.messages {
            add(MESSAGE, message.as_bytes(), b"")?;
        }
        if self.settings.in_initrd {
            add(IN_INITRD, b"", b"")?;
        }
        Ok(text.into())
    }

    /// What [`Reading::encode`] has made a text of; None for anything else.
    pub fn decode(mut text: &[u8]) -> Option<Reading> {
        let snapshot = Snapshot(BString::default());
        let mut reading = Reading {
            rules: Loaded { files: Vec::new(), failures: Vec::new(), snapshot },
            link_files: link_files::Texts::default(),
            settings: config::Files::default(),
        };
        while let Some((&kind, rest)) = text.split_first() {
            let (first, rest) = take(rest)?;
            let (second, rest) = take(rest)?;
            reading.take(kind, first, second)?;
            text = rest;
        }
        Some(reading)
    }

    fn take(&mut self, kind: u8, first: &BStr, second: &BStr) -> Option<()> {
        let words = |text: &BStr| text.to_str_lossy().into_owned();
        match kind {
            RULES => self.rules.files.push(SourceFile { path: first.into(), content: second.to_vec() }),
            UNREAD_RULES => self.rules.failures.push((path(first), io::Error::other(words(second)))),
            STATES => {
                self.rules.snapshot = Snapshot(first.into());
                self.link_files.state = words(second);
            }
            LINK | UNREAD_LINK | DROP_IN | UNREAD_DROP_IN => {
                let content = match kind {
                    LINK | DROP_IN => Ok(second.to_vec()),
                    _ => Err(words(second)),
                };
                if matches!(kind, LINK | UNREAD_LINK) {
                    self.link_files.files.push(Vec::new());
                }
                self.link_files.files.last_mut()?.push(Part { path: path(first), content });
            }
            MACHINE_ID => self.link_files.told.machine_id = Some(first.as_bytes().try_into().ok()?),
            OS_RELEASE => self.link_files.told.os_release = first.into(),
            SETTINGS => self.settings.files.push((path(first), second.into())),
            MESSAGE => self.settings.messages.push(words(first)),
            IN_INITRD => self.settings.in_initrd = true,
            _ => return None,
        }
        Some(())
    }
}

fn take(bytes: &[u8]) -> Option<(&BStr, &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(u32::from_ne_bytes(*len) as usize)?;
    Some((text.as_bstr(), rest))
}

fn path(bytes: &BStr) -> PathBuf {
    Path::new(OsStr::from_bytes(bytes)).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tree::Tree;

    #[test]
    fn what_a_helper_has_read_arrives_as_it_was_and_cut_texts_do_not() {
        let tree = Tree::new();
        tree.file("etc/udev/rules.d/1.rules", b"# \xff\n")
            .file("etc/udev/rules.d/2.rules", "")
            .file("lib/udev/rules.d/2.rules", "# hidden\n")
            .file("etc/udev/udev.conf", "udev_log=debug\n")
            .dir("etc/udev/udev.conf.d/1.conf")
            .file("etc/initrd-release", "")
            .file("usr/lib/os-release", "ID=x\n")
            .file("etc/machine-id", "000102030405060708090a0b0c0d0e0f\n")
            .file("etc/systemd/network/1.link", "[Match]\n")
            .file("etc/systemd/network/1.link.d/a.conf", "[Link]\n")
            .dir("etc/systemd/network/1.link.d/b.conf")
            .dir("etc/systemd/network/2.link");
        let roots = tree.roots();
        let mut read = Reading::read(&roots, &RuleFiles::new(&roots, &[]));
        read.rules.failures.push(("/x".into(), io::Error::from_raw_os_error(libc::EIO)));
        let text = read.encode().unwrap();
        let decoded = Reading::decode(&text).unwrap();
        assert_eq!((&decoded.link_files, &decoded.settings), (&read.link_files, &read.settings));
        assert_eq!(decoded.rules.snapshot, read.rules.snapshot);
        assert_eq!(format!("{:?}", decoded.rules.files), format!("{:?}", read.rules.files));
        let why = |reading: &Reading| {
            let (path, error) = &reading.rules.failures[0];
            (path.clone(), error.to_string())
        };
        assert_eq!(why(&decoded), why(&read));
        assert_eq!(
            (read.rules.files.len(), read.link_files.files.len(), read.link_files.files[0].len()),
            (1, 2, 3)
        );
        assert_eq!((read.settings.files.len(), read.settings.messages.len()), (1, 1));
        assert!(
            read.settings.in_initrd
                && read.link_files.told.machine_id.is_some()
                && read.link_files.told.os_release == "ID=x\n"
        );
        assert!(Reading::decode(&text[..text.len() - 1]).is_none());
        assert!(Reading::decode(b"?\0\0\0\0\0\0\0\0").is_none());
        read.settings.files.push(("/large".into(), vec![b'x'; MAX].into()));
        assert_eq!(read.encode(), Err(Errno(libc::EFBIG)));
    }
}
