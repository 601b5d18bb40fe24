//! The command lines of PROGRAM, IMPORT{program}, RUN and of builtins (rules.md 10.1). There is no
//! shell: words, two kinds of quotes, nothing else.

use bstr::BString;

/// Splits a command into words at runs of space, tab, CR and LF. `'...'` and `"..."` group and are
/// removed, also in the middle of a word; an unbalanced quote runs to the end; a backslash is an
/// ordinary byte. `''` is an empty word.
pub fn split_command(command: &[u8]) -> Vec<BString> {
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
            (None, b' ' | b'\t' | b'\r' | b'\n') => words.extend(word.take()),
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
    }
}
