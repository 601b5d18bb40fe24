//! The command lines of PROGRAM, IMPORT{program}, RUN and of builtins (rules.md 10.1), and that of the
//! kernel. There is no shell: words, two kinds of quotes, nothing else.

use bstr::{BString, ByteSlice};

/// Splits a command into words at runs of space, tab, CR and LF. `'...'` and `"..."` group and are
/// removed, also in the middle of a word; an unbalanced quote runs to the end; a backslash is an
/// ordinary byte. `''` is an empty word.
pub fn split_command(command: &[u8]) -> Vec<BString> {
    split_at(command, |byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
}

/// The words of a kernel command line: like those of a command, but all white space separates, and so
/// does NUL.
pub fn kernel_words(command_line: &[u8]) -> Vec<BString> {
    split_at(command_line, |byte| matches!(byte, b' ' | b'\t'..=b'\r' | 0))
}

/// The value of a key on the kernel command line: that of the last `key=value`, else Some(None) for a bare
/// `key` (rules.md section 4). `-` and `_` are equal in keys; words with `rd.` in front count in the
/// initrd only.
pub fn kernel_value(command_line: &[u8], key: &[u8], in_initrd: bool) -> Option<Option<BString>> {
    let plain = |byte: &u8| if *byte == b'-' { b'_' } else { *byte };
    let same = |name: &[u8]| name.iter().map(plain).eq(key.iter().map(plain));
    let mut found = None;
    for word in kernel_words(command_line) {
        if word.starts_with(b"rd.") && !in_initrd {
            continue;
        }
        match word.split_once_str("=") {
            Some((name, value)) if same(name) => found = Some(Some(BString::from(value))),
            None if same(&word) => found = found.or(Some(None)),
            _ => {}
        }
    }
    found
}

fn split_at(command: &[u8], is_blank: impl Fn(u8) -> bool) -> Vec<BString> {
    let mut words = Vec::new();
    let mut word: Option<BString> = None;
    let mut quote = None;
    for &byte in command {
        match (quote, byte) {
            (Some(open), _) if open == byte => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(byte),
            (None, b'\'' | b'"') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (None, _) if is_blank(byte) => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_quotes() {
        let cases: [(&str, &[&str]); 10] = [
            ("", &[]),
            (" \t\r\n", &[]),
            ("a", &["a"]),
            ("  /bin/x  a\tb\n", &["/bin/x", "a", "b"]),
            ("x 'a b' \"c d\"", &["x", "a b", "c d"]),
            ("x a'b c'd", &["x", "ab cd"]),
            ("x '' \"\"", &["x", "", ""]),
            ("x 'a \"b' \"c 'd\"", &["x", "a \"b", "c 'd"]),
            ("x 'a b", &["x", "a b"]),
            ("x a\\ b", &["x", "a\\", "b"]),
        ];
        for (command, words) in cases {
            assert_eq!(split_command(command.as_bytes()), words, "{command:?}");
        }
        assert_eq!(split_command(b"a\x0bb\0c"), ["a\x0bb\0c"]);
        assert_eq!(kernel_words(b"a\x0bb\0'c d'\0"), ["a", "b", "c d"]);
    }

    #[test]
    fn the_last_value_on_the_kernel_command_line_counts() {
        let line = b"root=/dev/x quiet foo-bar=1 foo_bar=\"2 3\" foo-bar rd.a=1 e= 'b c'=d \"net.x=v\"\n";
        for (key, in_initrd, value) in [
            ("quiet", false, Some(None)),
            ("foo_bar", false, Some(Some("2 3"))),
            ("foo-bar", false, Some(Some("2 3"))),
            ("rd.a", false, None),
            ("rd.a", true, Some(Some("1"))),
            ("e", false, Some(Some(""))),
            ("b c", false, Some(Some("d"))),
            ("net.x", false, Some(Some("v"))),
            ("foo", false, None),
            ("net", false, None),
        ] {
            let expected = value.map(|v: Option<&str>| v.map(BString::from));
            assert_eq!(kernel_value(line, key.as_bytes(), in_initrd), expected, "{key}");
        }
    }
}
