//! How builtins read numbers out of attributes, properties and settings
//! (builtins.md 0.3, 2.1).

use bstr::ByteSlice;

/// A number in automatic base: `0x10`, `0o20`, `020`, `0b10000`, `16`.
pub fn parse_number(text: &[u8]) -> Option<u64> {
    let (digits, base) = match text {
        [b'0', b'x' | b'X', rest @ ..] => (rest, 16),
        [b'0', b'o' | b'O', rest @ ..] => (rest, 8),
        [b'0', b'b' | b'B', rest @ ..] => (rest, 2),
        [b'0', rest @ ..] if !rest.is_empty() => (rest, 8),
        _ => (text, 10),
    };
    if !digits.first()?.is_ascii_hexdigit() {
        return None;
    }
    u64::from_str_radix(digits.to_str().ok()?, base).ok()
}

/// Decimal digits only.
pub fn parse_decimal(text: &[u8]) -> Option<u32> {
    crate::model::device::parse_u32(text)
}

/// A hexadecimal number without anything in front.
pub fn parse_hex(text: &[u8]) -> Option<u32> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u32::from_str_radix(text.to_str().ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_of_a_number_is_in_its_first_letters() {
        for (text, number) in [
            ("16", Some(16)),
            ("0x10", Some(16)),
            ("010", Some(8)),
            ("0o10", Some(8)),
            ("0b101", Some(5)),
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("08", None),
            ("0x", None),
            ("+1", None),
            ("0x+1", None),
            ("-1", None),
            ("", None),
            ("6-1", None),
            ("x7", None),
            (" 1", None),
        ] {
            assert_eq!(parse_number(text.as_bytes()), number, "{text:?}");
        }
    }

    #[test]
    fn hexadecimal_has_no_sign_and_no_prefix() {
        assert_eq!(parse_hex(b"1f"), Some(31));
        assert_eq!(parse_hex(b"+f"), None);
        assert_eq!(parse_hex(b"0x1"), None);
        assert_eq!(parse_hex(b"123456789"), None);
    }
}
