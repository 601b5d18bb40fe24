//! Users and groups of the system that is being managed: its `etc/passwd` and `etc/group`.
//!
//! The files alone are read, never the name service: it may ask the network, which a device manager
//! must not wait for, and a static executable has none.

use super::Roots;
use bstr::{BString, ByteSlice};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};

/// Bytes of a file that are read at most.
const MAX_FILE: u64 = 16 << 20;

/// Both files.
#[derive(Clone, Debug)]
pub struct Accounts {
    passwd: PathBuf,
    group: PathBuf,
}

impl Accounts {
    /// Those below these roots.
    pub fn new(roots: &Roots) -> Accounts {
        Accounts { passwd: roots.etc.join("passwd"), group: roots.etc.join("group") }
    }

    /// The file with the users, for a name that only an event knows.
    pub fn passwd(&self) -> &Path {
        &self.passwd
    }

    /// The file with the groups.
    pub fn group(&self) -> &Path {
        &self.group
    }

    /// The name of a user.
    pub fn user_name(&self, uid: u32) -> Option<BString> {
        name_of(&read(&self.passwd), uid)
    }

    /// The name of a group.
    pub fn group_name(&self, gid: u32) -> Option<BString> {
        name_of(&read(&self.group), gid)
    }

    /// For one load of all rules: each file is read at the first question about it, and no more.
    pub fn at_once(&self) -> AtOnce {
        AtOnce { accounts: self.clone(), passwd: OnceCell::new(), group: OnceCell::new() }
    }
}

/// See [`Accounts::at_once`].
pub struct AtOnce {
    accounts: Accounts,
    passwd: OnceCell<Vec<u8>>,
    group: OnceCell<Vec<u8>>,
}

impl crate::rules::compile::Accounts for AtOnce {
    fn user(&self, name: &[u8]) -> Option<u32> {
        find(self.passwd.get_or_init(|| read(&self.accounts.passwd)), name)
    }

    fn group(&self, name: &[u8]) -> Option<u32> {
        find(self.group.get_or_init(|| read(&self.accounts.group)), name)
    }
}

fn read(path: &Path) -> Vec<u8> {
    super::files::read_start(path, MAX_FILE)
        .unwrap_or_else(|error| {
            log::debug!("cannot read {}: {error}", path.display());
            BString::default()
        })
        .into()
}

/// The id of a user or group in the content of its file: third field of the line whose first is `name` (passwd(5), group(5)).
pub fn find(content: &[u8], name: &[u8]) -> Option<u32> {
    let id = |line: &[u8]| -> Option<u32> {
        let after_name = line.strip_prefix(name)?.strip_prefix(b":")?;
        after_name.split(|&b| b == b':').nth(1)?.to_str().ok()?.parse().ok()
    };
    content.lines().find_map(id)
}

/// First field of the first line whose third is `id`.
fn name_of(content: &[u8], id: u32) -> Option<BString> {
    let mut lines = content.lines().map(|line| line.split(|&b| b == b':'));
    lines.find_map(|mut fields| {
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.to_str().ok()?.parse() == Ok(id)).then(|| name.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_load_reads_each_file_once() {
        use crate::rules::compile::Accounts as _;
        let etc = std::env::temp_dir().join(format!("mudev-accounts-{}", std::process::id()));
        std::fs::create_dir_all(&etc).unwrap();
        let write = |text: &str| std::fs::write(etc.join("group"), text).unwrap();
        write("disk:x:6:\n");
        let accounts = Accounts::new(&Roots { etc: etc.clone(), ..Roots::default() });
        let at_once = accounts.at_once();
        assert_eq!((at_once.group(b"disk"), at_once.user(b"disk")), (Some(6), None));
        write("disk:x:7:\n");
        assert_eq!((at_once.group(b"disk"), accounts.at_once().group(b"disk")), (Some(6), Some(7)));
        std::fs::remove_dir_all(&etc).unwrap();
    }

    #[test]
    fn nobody_is_waited_for_who_writes_a_fifo_in_place_of_the_file() {
        let tree = crate::world::tree::Tree::new();
        tree.dir("etc").fifo("etc/passwd");
        use crate::rules::compile::Accounts as _;
        assert_eq!(Accounts::new(&tree.roots()).at_once().user(b"root"), None);
    }

    #[test]
    fn the_third_field_of_the_first_line_of_that_name_counts() {
        let content = b"root:x:0:0:r:/root:/bin/sh\nbad\nalice:x:1000:100::/:\nalice:x:5:\nodd:x:y:\n";
        assert_eq!(find(content, b"alice"), Some(1000));
        assert_eq!(find(content, b"root"), Some(0));
        for name in ["odd", "bad", "bob", ""] {
            assert_eq!(find(content, name.as_bytes()), None, "{name}");
        }
        assert_eq!(name_of(content, 5).unwrap(), "alice");
        assert_eq!(name_of(content, 0).unwrap(), "root");
        assert_eq!(name_of(content, 1), None);
    }
}
