//! Values that are numbers or names: modes, ids, priorities, properties that are not for rules.

use bstr::ByteSlice;

/// Names that rules must not assign: the list of v258 (rules.md section 13).
pub(super) fn is_protected(name: &[u8]) -> bool {
    const NAMES: [&str; 25] = [
        "ACTION",
        "CURRENT_TAGS",
        "DEVGID",
        "DEVLINKS",
        "DEVMODE",
        "DEVNAME",
        "DEVPATH",
        "DEVPATH_OLD",
        "DEVTYPE",
        "DEVUID",
        "DISKSEQ",
        "DRIVER",
        "IFINDEX",
        "INTERFACE",
        "INTERFACE_OLD",
        "MAJOR",
        "MINOR",
        "MODALIAS",
        "PARTN",
        "SEQNUM",
        "SUBSYSTEM",
        "SYNTH_UUID",
        "TAGS",
        "UDEV_DATABASE_VERSION",
        "USEC_INITIALIZED",
    ];
    name.starts_with(b"SYNTH_ARG_") || NAMES.iter().any(|n| n.as_bytes() == name)
}

/// Octal digits, leading zeros and blanks allowed, at most 07777.
pub fn parse_mode(text: &[u8]) -> Option<u32> {
    let text = text.trim_ascii_start();
    if text.is_empty() || !text.iter().all(|b| (b'0'..=b'7').contains(b)) {
        return None;
    }
    u32::from_str_radix(text.to_str().ok()?, 8).ok().filter(|mode| *mode <= 0o7777)
}

/// A plain decimal id: no sign, no blanks, no leading zero, and not one of the two that mean "none".
pub fn parse_id(text: &[u8]) -> Option<u32> {
    let plain = text == b"0" || (!text.starts_with(b"0") && text.iter().all(u8::is_ascii_digit));
    if text.is_empty() || !plain {
        return None;
    }
    text.to_str().ok()?.parse().ok().filter(|id| *id != 65535 && *id != u32::MAX)
}

/// A signed number: decimal, 0x, 0b, 0o or C's octal.
pub(super) fn parse_priority(text: &[u8]) -> Option<i32> {
    let text = text.to_str().ok()?.trim_start();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let number = i64::from_str_radix(digits, radix).ok()?;
    i32::try_from(if negative { -number } else { number }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_strictly() {
        for (text, id) in [
            ("0", Some(0)),
            ("1000", Some(1000)),
            ("01", None),
            ("-1", None),
            (" 1", None),
            ("", None),
            ("65535", None),
            ("4294967295", None),
            ("4294967294", Some(4294967294)),
            ("99999999999", None),
        ] {
            assert_eq!(parse_id(text.as_bytes()), id, "{text}");
        }
        for (text, mode) in [
            ("0644", Some(0o644)),
            ("7777", Some(0o7777)),
            ("10000", None),
            (" 600", Some(0o600)),
            ("8", None),
            ("", None),
            ("-1", None),
            ("0000000660", Some(0o660)),
            ("+6", None),
        ] {
            assert_eq!(parse_mode(text.as_bytes()), mode, "{text}");
        }
        for (text, number) in [
            ("-100", Some(-100)),
            ("0x10", Some(16)),
            ("0b11", Some(3)),
            ("0o17", Some(15)),
            ("017", Some(15)),
            ("x", None),
            ("", None),
            ("--1", None),
        ] {
            assert_eq!(parse_priority(text.as_bytes()), number, "{text}");
        }
    }
}
