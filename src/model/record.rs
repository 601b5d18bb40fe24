//! A file under `/run/udev/data` (interop.md 1.3): what is kept of a device between events.
//!
//! [`Record::render`] writes the bytes and order of systemd v249 and later; [`Record::parse`] reads
//! with the tolerance of systemd's reader (interop.md 1.5) and never fails: a line that says nothing
//! is skipped. What must stay true: no value can break out of its line, so whatever cannot be
//! written without doing so is left out.
//!
//! ```text
//! S:disk/by-id/x      symlink, below /dev/
//! L:-3                priority, when not 0
//! I:725464701         first seen, CLOCK_MONOTONIC microseconds
//! E:KEY=VALUE         stored property
//! G:tag  Q:tag        ever given, given by the last event
//! V:1                 always last
//! ```

use super::event::{OrderedSet, SymlinkSet, Tags};
use super::properties::{Properties, Property};
use bstr::{BStr, ByteSlice};
use std::io::Write;

/// The content of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `S:` symlinks relative to `/dev/`.
    pub symlinks: SymlinkSet,
    /// `L:`.
    pub priority: i32,
    /// `I:` CLOCK_MONOTONIC microseconds.
    pub usec_initialized: Option<u64>,
    /// `E:` in order. They are not marked as stored, because all of them are.
    pub properties: Properties,
    /// `G:` every tag ever given.
    pub tags: OrderedSet,
    /// `Q:` the tags of the last event, a part of `tags`. For a record without a `V:` line these are empty, as for
    /// libudev from v261.
    pub current_tags: OrderedSet,
}

impl Record {
    /// Whether there is nothing to store: then the file has no bytes at all, or is not there
    /// (interop.md 1.3). The time alone does not count, nor does what cannot be written.
    pub fn is_empty(&self) -> bool {
        self.priority == 0
            && self.symlinks_to_write().next().is_none()
            && self.properties_to_write().next().is_none()
            && tags_to_write(&self.tags).next().is_none()
            && tags_to_write(&self.current_tags).next().is_none()
    }

    fn symlinks_to_write(&self) -> impl Iterator<Item = &BStr> {
        self.symlinks.iter().filter(|link| fits_line(link))
    }

    fn properties_to_write(&self) -> impl Iterator<Item = Property<'_>> {
        self.properties.iter().filter(|Property { name, value, .. }| {
            fits_line(name) && fits_line(value) && !name.starts_with(b".") && !name.contains(&b'=')
        })
    }

    /// The bytes of the file; none for an empty record.
    ///
    /// Left out are names that begin with a dot, empty values and tags that are none, and whatever
    /// contains a newline.
    #[allow(dead_code, reason = "tests and fuzzing read what it renders")]
    pub fn render(&self) -> Vec<u8> {
        let mut file = Vec::new();
        self.render_into(&mut file);
        file
    }

    /// Appends what [`render`](Self::render) returns.
    pub fn render_into(&self, file: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        for link in self.symlinks_to_write() {
            push_line(file, b'S', link);
        }
        if self.priority != 0 {
            push_number(file, b'L', self.priority);
        }
        if let Some(usec) = self.usec_initialized.filter(|&usec| usec > 0) {
            push_number(file, b'I', usec);
        }
        for Property { name, value, .. } in self.properties_to_write() {
            file.extend_from_slice(b"E:");
            file.extend_from_slice(name);
            file.push(b'=');
            file.extend_from_slice(value);
            file.push(b'\n');
        }
        for (key, tags) in [(b'G', &self.tags), (b'Q', &self.current_tags)] {
            for tag in tags_to_write(tags) {
                push_line(file, key, tag);
            }
        }
        file.extend_from_slice(b"V:1\n");
    }

    /// Reads a file of any writer, or garbage.
    pub fn parse(file: &[u8]) -> Record {
        let mut record = Record::default();
        let mut has_version = false;
        let mut rest = file;
        while let Some((line, tail)) = next_line(rest) {
            rest = tail;
            let Some((key, value)) = line else { continue };
            match key {
                b'S' => _ = record.symlinks.insert(value),
                b'L' => record.priority = parse_number(value).unwrap_or(record.priority),
                b'I' => record.usec_initialized = parse_number(value).or(record.usec_initialized),
                b'E' => read_property(value, &mut record.properties),
                b'G' if Tags::is_valid(value) => _ = record.tags.insert(value),
                b'Q' if Tags::is_valid(value) => {
                    record.tags.insert(value);
                    record.current_tags.insert(value);
                }
                b'V' => has_version = true,
                _ => {}
            }
        }
        record.usec_initialized = record.usec_initialized.filter(|&usec| usec > 0);
        record.properties = without_unset(record.properties);
        if !has_version {
            record.current_tags.clear();
        }
        record
    }
}

/// Takes an `E:` line. A name stands where its first line stood and has the value of its last line. An empty value
/// unsets it; [`without_unset`] sees to that at the end.
fn read_property(line: &[u8], properties: &mut Properties) {
    if let Some((name, value)) = line.split_once_str("=")
        && !name.is_empty()
    {
        properties.set(name, value);
    }
}

/// The properties without those whose value is empty.
fn without_unset(properties: Properties) -> Properties {
    let has_unset = properties.iter().any(|p| p.value.is_empty());
    if has_unset { properties.iter().filter(|p| !p.value.is_empty()).collect() } else { properties }
}

/// Key letter and value.
type RecordLine<'a> = (u8, &'a [u8]);

/// The next line, and what follows it; the line is None when it says nothing. None
/// at the end of the file, and for a last line without a newline, which a torn write leaves.
///
/// A key without a value takes the following line with it: systemd's reader accepts the newline as
/// the first byte of the value, or as what should have been the colon. The two lines together say
/// nothing.
fn next_line(file: &[u8]) -> Option<(Option<RecordLine<'_>>, &[u8])> {
    let end = file.find_byte(b'\n')?;
    let tail = &file[end + 1..];
    match &file[..end] {
        [_] | [_, b':'] => tail.find_byte(b'\n').map(|end| (None, &tail[end + 1..])),
        [key, b':', value @ ..] => Some((Some((*key, value)), tail)),
        _ => Some((None, tail)),
    }
}

fn parse_number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    text.trim_ascii_start().to_str().ok()?.parse().ok()
}

fn tags_to_write(tags: &OrderedSet) -> impl Iterator<Item = &BStr> {
    tags.iter().filter(|tag| Tags::is_valid(tag))
}

fn fits_line(text: &[u8]) -> bool {
    !text.is_empty() && !text.contains(&b'\n')
}

fn push_line(file: &mut Vec<u8>, key: u8, value: &[u8]) {
    file.extend_from_slice(&[key, b':']);
    file.extend_from_slice(value);
    file.push(b'\n');
}

fn push_number(file: &mut Vec<u8>, key: u8, value: impl std::fmt::Display) {
    // Writing to a Vec cannot fail.
    let _ = writeln!(file, "{}:{value}", key as char);
}

#[cfg(test)]
mod tests {
    use super::*;
    use bstr::BString;
    use proptest::prelude::*;

    fn tiny() -> Record {
        Record {
            symlinks: ["disk/by-id/x"].into_iter().collect(),
            priority: -3,
            usec_initialized: Some(725464701),
            properties: [("FOO", "b ar")].into_iter().collect(),
            tags: ["systemd"].into_iter().collect(),
            current_tags: ["systemd"].into_iter().collect(),
        }
    }

    /// interop.md 1.3.
    const TINY: [u8; 67] = [
        0x53, 0x3a, 0x64, 0x69, 0x73, 0x6b, 0x2f, 0x62, 0x79, 0x2d, 0x69, 0x64, 0x2f, 0x78, 0x0a, 0x4c, 0x3a,
        0x2d, 0x33, 0x0a, 0x49, 0x3a, 0x37, 0x32, 0x35, 0x34, 0x36, 0x34, 0x37, 0x30, 0x31, 0x0a, 0x45, 0x3a,
        0x46, 0x4f, 0x4f, 0x3d, 0x62, 0x20, 0x61, 0x72, 0x0a, 0x47, 0x3a, 0x73, 0x79, 0x73, 0x74, 0x65, 0x6d,
        0x64, 0x0a, 0x51, 0x3a, 0x73, 0x79, 0x73, 0x74, 0x65, 0x6d, 0x64, 0x0a, 0x56, 0x3a, 0x31, 0x0a,
    ];

    #[test]
    fn the_tiny_record_has_exactly_these_bytes() {
        assert_eq!(tiny().render().as_bstr(), TINY.as_bstr());
        assert_eq!(Record::parse(&TINY), tiny());
    }

    #[test]
    fn an_empty_record_is_an_empty_file_even_with_a_time() {
        let record = Record { usec_initialized: Some(5), ..Record::default() };
        assert!(record.is_empty() && record.render().is_empty());
        assert_eq!(Record::parse(b""), Record::default());
        assert!(!tiny().is_empty());
    }

    #[test]
    fn a_record_of_what_cannot_be_written_is_empty() {
        let record = Record::parse(b"E:.HIDDEN=1\nI:5\nV:1\n");
        assert_eq!(record.properties.get(".HIDDEN").unwrap(), "1");
        assert!(record.is_empty() && record.render().is_empty());
    }

    #[test]
    fn odd_lines_are_read_as_systemd_reads_them() {
        let properties = |file: &str| {
            let read = Record::parse(file.as_bytes()).properties;
            read.iter().map(|p| format!("{}={}", p.name, p.value)).collect::<Vec<_>>().join(" ")
        };
        for (file, expected) in [
            ("E:A=1\nE:B=2", "A=1"),
            ("Ex:A=1\nE:B=2\n", "B=2"),
            ("Z:A=1\n\n\nE:B=2\n", "B=2"),
            ("E\nE:A=1\nE:B=2\n", "B=2"),
            ("E:\nE:A=1\nE:B=2\n", "B=2"),
            ("E:A=1\nE:B=2\nE:A=3\n", "A=3 B=2"),
            ("E:A=1\nE:A=\nE:B=2\n", "B=2"),
            ("E:A\nE:=1\nE:B==2=\n", "B==2="),
            ("W:3\nN:sda\nE:B=2\n", "B=2"),
            ("\0\0\nE:B=2\n", "B=2"),
            ("E:A=a\rb\nE:B=2\n", "A=a\rb B=2"),
        ] {
            assert_eq!(properties(file), expected, "{file:?}");
        }
        let record = Record::parse(b"L:x\nI:-1\nL: 4\nL:99999999999\nG:a b\nQ:ok\nI:+7\nI:y\nV:1\n");
        assert_eq!((record.priority, record.usec_initialized), (4, Some(7)));
        assert_eq!(record.tags, ["ok"].into_iter().collect());
        assert_eq!(record.current_tags, record.tags);
    }

    #[test]
    fn a_record_without_version_has_no_current_tags() {
        let record = Record::parse(b"I:1\nG:a\nQ:a\n");
        assert!(record.tags.contains(b"a") && record.current_tags.is_empty());
    }

    #[test]
    fn nothing_breaks_out_of_its_line() {
        let record = Record {
            symlinks: ["a\nL:9", "ok"].into_iter().collect(),
            properties: [
                ("A", "1\nG:evil"),
                ("B\nG:evil", "1"),
                (".HIDDEN", "1"),
                ("EMPTY", ""),
                ("C", "\u{e4} \\ '"),
            ]
            .into_iter()
            .collect(),
            tags: ["bad tag", "good"].into_iter().collect(),
            ..Record::default()
        };
        assert_eq!(record.render().as_bstr(), "S:ok\nE:C=\u{e4} \\ '\nG:good\nV:1\n");
    }

    fn text() -> impl Strategy<Value = BString> {
        prop::collection::vec(any::<u8>().prop_filter("newline", |&b| b != b'\n'), 1..20)
            .prop_map(BString::from)
    }

    proptest! {
        #[test]
        fn what_was_rendered_is_read_again(
            links in prop::collection::vec(text(), 0..4),
            priority: i32,
            usec in proptest::option::of(1u64..),
            properties in prop::collection::btree_map("[A-Z_][A-Z0-9_.]{0,8}", text(), 0..5),
            tags in prop::collection::vec("[A-Za-z0-9_-]{1,9}", 0..4),
            current in prop::collection::vec("[A-Za-z0-9_-]{1,9}", 0..4),
        ) {
            let record = Record {
                symlinks: links.into_iter().collect(),
                priority,
                usec_initialized: usec,
                properties: properties.into_iter().collect(),
                tags: tags.into_iter().chain(current.clone()).collect(),
                current_tags: current.into_iter().collect(),
            };
            let read = Record::parse(&record.render());
            prop_assert_eq!(read, if record.is_empty() { Record::default() } else { record });
        }

        #[test]
        fn garbage_is_read_without_harm(file in prop::collection::vec(any::<u8>(), 0..300)) {
            let record = Record::parse(&file);
            prop_assert_eq!(Record::parse(&record.render()).tags, record.tags);
        }

        #[test]
        fn lines_of_garbage_settle_after_one_reading(file in "([SLIEGQVX]:?[-a=:1\\n]{0,6}\\n){0,12}") {
            let once = Record::parse(file.as_bytes());
            let stored = |r: &Record| if r.is_empty() { Record::default() } else { r.clone() };
            prop_assert_eq!(Record::parse(&once.render()), stored(&once));
        }
    }
}
