//! Texts that rules import or name: lines of programs and files, the kernel command line, symlink
//! paths, names of kernel parameters and devices.

use crate::rules::sanitise::trim;
use bstr::{BString, ByteSlice};

/// Longest line of an imported file (rules.md section 4); reading stops at a longer one.
const MAX_LINE: usize = 1 << 20;

/// See [`next_line`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TextLine<'t> {
    Some(&'t [u8]),
    /// Reading ends here.
    TooLong,
    None,
}

/// The line of a program's output or a file that begins at `at`, which is then where the next one begins.
pub(super) fn next_line<'t>(text: &'t [u8], at: &mut usize) -> TextLine<'t> {
    let Some(rest) = text.get(*at..) else { return TextLine::None };
    let line = rest.find_byteset(b"\n\r\0").map_or(rest, |end| &rest[..end]);
    *at += line.len() + 1;
    if line.len() > MAX_LINE { TextLine::TooLong } else { TextLine::Some(line) }
}

/// The property that such a line sets, an empty value included (rules.md section 4).
pub(super) fn parse_property(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = trim(line);
    if line.starts_with(b"#") {
        return None;
    }
    let (name, value) = line.split_once_str("=")?;
    let (name, value) = (trim(name), trim(value));
    let (&first, &last) = (value.first()?, value.last()?);
    if name.is_empty() {
        return None;
    }
    if first != b'"' && first != b'\'' {
        return Some((name, value));
    }
    (value.len() >= 2 && first == last).then(|| (name, &value[1..value.len() - 1]))
}

/// Output of which the end is missing, without its last, partial line.
pub(super) fn whole_lines(output: &[u8]) -> &[u8] {
    output.rfind_byteset(b"\n\r").map_or(b"", |end| &output[..end])
}

/// A symlink below `/dev/` as a relative path without `.`, `..` and empty components (rules.md 8.3);
/// None for one that leads elsewhere or to `/dev` itself.
pub(super) fn link_path(text: &[u8]) -> Option<BString> {
    let mut components = text.split(|&b| b == b'/').filter(|c| !matches!(*c, b"" | b"."));
    if text.starts_with(b"/") && components.next() != Some(b"dev") {
        return None;
    }
    let mut path = BString::default();
    for component in components {
        if component == b".." {
            return None;
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(component);
    }
    (!path.is_empty()).then_some(path)
}

/// The name of a kernel parameter in slash form (rules.md 3.6): if the first separator is a dot, dots
/// and slashes change places. None if it is no plain path below `/proc/sys`.
pub(super) fn sysctl_name(name: &[u8]) -> Option<BString> {
    let dotted = name.iter().find(|b| matches!(b, b'/' | b'.')) == Some(&b'.');
    let name: Vec<u8> = match dotted {
        false => name.to_vec(),
        true => name
            .iter()
            .map(|b| match b {
                b'.' => b'/',
                b'/' => b'.',
                other => *other,
            })
            .collect(),
    };
    let path = name.strip_prefix(b"/").unwrap_or(&name);
    let plain = path.split(|&b| b == b'/').all(|part| !matches!(part, b"" | b"." | b".."));
    plain.then(|| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All properties, and why reading ended.
    fn properties(text: &[u8]) -> (Vec<(BString, BString)>, TextLine<'static>) {
        let (mut at, mut all) = (0, Vec::new());
        loop {
            match next_line(text, &mut at) {
                TextLine::Some(line) => all.extend(parse_property(line).map(|(a, b)| (a.into(), b.into()))),
                TextLine::TooLong => return (all, TextLine::TooLong),
                TextLine::None => return (all, TextLine::None),
            }
        }
    }

    #[test]
    fn lines_of_programs_and_files() {
        let text = b"  A=1\n#B=2\n C = two words \r\nD=\n=5\nnonsense\nE=\"quoted \"\nF='x\nG=\"\nH=\"\"\nI=a\\x20b=c\n\n # J=1";
        let expected = [("A", "1"), ("C", "two words"), ("E", "quoted "), ("H", ""), ("I", "a\\x20b=c")];
        let expected: Vec<(BString, BString)> =
            expected.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        assert_eq!(properties(text), (expected, TextLine::None));
    }

    #[test]
    fn a_line_of_more_than_a_mebibyte_ends_the_file() {
        let mut text = b"A=1\nB=".to_vec();
        text.resize((1 << 20) + 10, b'x');
        text.extend_from_slice(b"\nC=1");
        assert_eq!(properties(&text), (vec![("A".into(), "1".into())], TextLine::TooLong));
    }

    #[test]
    fn the_partial_line_of_cut_output_is_dropped() {
        assert_eq!(whole_lines(b"A=1\nB=2\nC="), b"A=1\nB=2");
        assert_eq!(whole_lines(b"A=1"), b"");
    }

    #[test]
    fn symlinks_stay_below_dev() {
        for (text, path) in [
            ("a", Some("a")),
            ("/./dev///x", Some("x")),
            ("/dev//./y/./", Some("y")),
            (".///a/././b//./", Some("a/b")),
            ("unsafe/../../path", None),
            ("/nondev/a", None),
            ("/dev", None),
            (".", None),
            ("..a/b..", Some("..a/b..")),
        ] {
            assert_eq!(link_path(text.as_bytes()), path.map(BString::from), "{text}");
        }
    }

    #[test]
    fn kernel_parameters_in_both_notations() {
        for (name, path) in [
            ("net/ipv4/conf/eth0.1/x", Some("net/ipv4/conf/eth0.1/x")),
            ("net.ipv4.conf.eth0/1.x", Some("net/ipv4/conf/eth0.1/x")),
            ("/kernel/x", Some("kernel/x")),
            ("plain", Some("plain")),
            ("a/../b", None),
            ("a//b", None),
            ("", None),
        ] {
            assert_eq!(sysctl_name(name.as_bytes()), path.map(BString::from), "{name}");
        }
    }
}
