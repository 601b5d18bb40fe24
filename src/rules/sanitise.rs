//! Character replacement (rules.md 6.1): what may stand in symlinks, names and values that come
//! from hardware or programs. Bytes are replaced one for one, so lengths never change.

use super::subst::is_blank;
use std::borrow::Cow;

/// Bytes that are kept besides the base set for `$attr{}` values and the results of programs.
pub const VALUE: &[u8] = b"/ $%?,";
/// The same for SYMLINK.
pub const SYMLINK: &[u8] = b"/ ";
/// The same for SYMLINK with `string_escape=replace`.
pub const PATH: &[u8] = b"/";
/// The same for ENV with `string_escape=replace`.
pub const NOTHING: &[u8] = b"";

/// Replaces by `_` every byte that is neither in the base set (`0-9A-Za-z#+-.:=@_`, well-formed
/// multi-byte UTF-8, the introducer `\x`) nor in `extra`. If `extra` has a space, white space becomes
/// a space.
pub fn replace_bytes<'a>(text: &'a [u8], extra: &[u8]) -> Cow<'a, [u8]> {
    let mut out: Cow<'a, [u8]> = Cow::Borrowed(text);
    let mut at = 0;
    while at < text.len() {
        let kept = kept_length(&text[at..], extra);
        if kept > 0 {
            at += kept;
            continue;
        }
        let blank = is_blank(text[at]) && extra.contains(&b' ');
        out.to_mut()[at] = if blank { b' ' } else { b'_' };
        at += 1;
    }
    out
}

/// How many bytes at the start of `text` (not empty) stay as they are; 0 if the first one must go.
fn kept_length(text: &[u8], extra: &[u8]) -> usize {
    let byte = text[0];
    if byte.is_ascii_alphanumeric() || b"#+-.:=@_".contains(&byte) || extra.contains(&byte) {
        return 1;
    }
    if text.starts_with(b"\\x") {
        return 2;
    }
    if byte.is_ascii() {
        return 0;
    }
    match bstr::decode_utf8(text) {
        (Some(_), length) => length,
        (None, _) => 0,
    }
}

/// The characters of an interface name (naming scheme v249 and later): everything up to the space,
/// from DEL on, and `:`, `/`, `%` become `_`.
pub fn interface_name(text: &[u8]) -> Cow<'_, [u8]> {
    let bad = |b: &u8| *b <= b' ' || *b >= 0x7f || matches!(b, b':' | b'/' | b'%');
    if !text.iter().any(bad) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.iter().map(|b| if bad(b) { b'_' } else { *b }).collect())
}

/// `text` without white space at its end.
pub fn trim_end(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|b| !is_blank(*b)).map_or(0, |i| i + 1);
    &text[..end]
}

/// `text` without white space at either end.
pub fn trim(text: &[u8]) -> &[u8] {
    let text = trim_end(text);
    let start = text.iter().position(|b| !is_blank(*b)).unwrap_or(text.len());
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_outside_the_sets_become_underscores_one_for_one() {
        for (text, extra, expected) in [
            (&b"name; (/usr/bin/x)"[..], VALUE, &b"name_ _/usr/bin/x_"[..]),
            (b"Head (AVRCP)  ", VALUE, b"Head _AVRCP_  "),
            (b"a\tb\x0bc\n", VALUE, b"a b c "),
            (b"a b/c", PATH, b"a_b/c"),
            (b"a b/c", NOTHING, b"a_b_c"),
            (b"a\\x20b\\y", SYMLINK, b"a\\x20b_y"),
            (b"\xc3\xa4\xe2\x82\xac", NOTHING, b"\xc3\xa4\xe2\x82\xac"),
            (b"\xc3(\xff\xed\xa0\x80", NOTHING, b"______"),
            (b"\\", NOTHING, b"_"),
            (b"", VALUE, b""),
        ] {
            assert_eq!(replace_bytes(text, extra), expected, "{text:?}");
        }
        assert!(matches!(replace_bytes(b"plain", NOTHING), Cow::Borrowed(_)));
    }

    #[test]
    fn interface_names_are_strict() {
        assert_eq!(&*interface_name(b"a b:c/d%e\x7f\xc3"), b"a_b_c_d_e__");
        assert_eq!(&*interface_name(b"wl.0;x"), b"wl.0;x");
    }
}
