//! Patterns against the C library, in every corner of sets, and how much work they take.

use super::*;
use crate::sys::fnmatch::fnmatch;
use bstr::ByteSlice;
use proptest::prelude::*;

/// Whether `text` matches `pattern`, a case-sensitive shell pattern without alternatives.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    Glob::new(pattern, false).matches(text)
}

#[test]
fn patterns_match_like_the_c_library() {
    for (pattern, text, expected) in [
        ("", "", true),
        ("", "a", false),
        ("*", "", true),
        ("*", ".a/b", true),
        ("a?c", "a/c", true),
        ("?", "", false),
        ("a*b*c", "aXbYbZc", true),
        ("a*b*c", "aXbYbZ", false),
        ("*a", "aaab", false),
        ("sd[a-z]", "sdq", true),
        ("sd[!a-z]", "sdq", false),
        ("sd[^a-z]", "sd1", true),
        ("[]x]", "]", true),
        ("[!]x]", "]", false),
        ("[]-a]", "^", true),
        ("[a-]", "-", true),
        ("[[:digit:]x]", "7", true),
        ("[[:digit:]x]", "x", true),
        ("[[:nosuch:]]", "x", false),
        ("[[:digit:", ":", false),
        ("[abc", "[abc", true),
        ("[abc", "a", false),
        ("a\\*", "a*", true),
        ("a\\*", "ab", false),
        ("a\\", "a\\", false),
        ("[\\]]", "]", true),
        ("[a\\-z]", "m", false),
        ("[[=a=]]", "a", true),
        ("[[.-.]]", "-", true),
        ("[z-a]", "m", false),
        ("[[:z:]", "z", true),
        ("[x[:nosuch:]y]", "x", true),
        ("[x[:nosuch:]y]", "y", false),
        ("[!x[:nosuch:]y]", "z", false),
        ("[x[.bb.]y]", "x", true),
        ("[x[.bb]y]", "x", false),
        ("[[.b.]-]", "b", false),
        ("[[.b.]-]", "-", true),
        ("[a-[.z.]]", "q", true),
        ("[+-[:digit:]]", "5", false),
        ("[+-[:digit:]]", "5]", true),
        ("[5+-[:digit:]]", "5", true),
        ("[5+-[:digit:]]", "5]", false),
        ("[5+-[:digit:]]", "6]", true),
        ("x*[5+-[:digit:]]*y", "x6]5y", true),
        ("x*[5+-[:digit:]]y", "x5y6y", false),
        ("[!5+-[:digit:]]", "~]", true),
        ("[+-[=b=]]", "=]", true),
        ("[Z-[:nosuch:]]", "Z]", true),
        ("[a-", "[a-", false),
        ("[a[-", "[a[-", true),
    ] {
        assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} on {text}");
        assert_eq!(fnmatch(pattern.as_bytes(), text.as_bytes(), false), expected, "C: {pattern} on {text}");
    }
}

#[test]
fn folding_leaves_out_classes_and_bytes_written_by_name() {
    for (pattern, matching, other) in [
        ("[[:upper:]]", "AZ", "az"),
        ("[[:lower:]B]", "azbB", "AZ"),
        ("[b-D]", "bBcCdD", "aAeE"),
        ("[[=b=]]", "b", "B"),
        ("[[.B.]]", "B", "b"),
        ("[[.B.]-D]", "ABCDabcd[_", "Ee"),
        ("[[.b.]-D]", "BCDbcd", "Aa_"),
        ("[B-[.D.]]", "", "BCDbcd"),
        ("[x[:nosuch:]y]", "xX", "yY"),
    ] {
        let texts = matching.bytes().map(|b| (b, true)).chain(other.bytes().map(|b| (b, false)));
        for (byte, expected) in texts {
            let found = Glob::new(pattern.as_bytes(), true).matches(&[byte]);
            assert_eq!(found, expected, "{pattern} on {}", byte as char);
            assert_eq!(fnmatch(pattern.as_bytes(), &[byte], true), expected, "C: {pattern}");
        }
    }
}

#[test]
fn shapes_are_recognised_and_unescaped() {
    let shape = |p: &str| Glob::new(p.as_bytes(), false).shape();
    assert_eq!(shape("a\\*b"), Shape::Literal("a*b".into()));
    assert_eq!(shape("ab*"), Shape::Prefix("ab".into()));
    assert_eq!(shape("**ab"), Shape::Suffix("ab".into()));
    assert_eq!(shape("***"), Shape::Anything);
    assert_eq!(shape("a*b"), Shape::Other);
    assert_eq!(shape("a?"), Shape::Other);
    assert_eq!(Glob::new(b"ab[c]d", false).literal_prefix(), "ab");
}

/// Patterns that go back as far as they can, against half a mebibyte of one byte: to go back each time would
/// take a thousand million steps, even half a minute where it is quadratic in the pattern only.
#[test]
fn matching_takes_time_linear_in_the_text() {
    let a = |n: usize| "a".repeat(n);
    let text = a(128 * 1024).into_bytes();
    for pattern in [
        format!("*{}b", a(2000)),
        format!("*{}?b", a(2000)),
        format!("*{}[ab]{}c", a(1000), a(1000)),
        format!("*{}b*", a(2000)),
        format!("*?{}[bc]*?c", a(2000)),
        "a*".repeat(1000) + "b",
        "a?*".repeat(600) + "[bc]*",
        "*[5+-[:digit:]]b".into(),
        "*[a+-[:digit:]]b".into(),
        format!("*{}[a+-[:digit:]]b", a(600)),
        format!("*[a+-[:digit:]]{}b", a(600)),
        format!("[a+-[:digit:]]*{}b", a(600)),
    ] {
        for ignore_case in [false, true] {
            let glob = Glob::new(pattern.as_bytes(), ignore_case);
            let (matches, half) = work::of(|| glob.matches(&text[..text.len() / 2]));
            assert!(!matches, "{pattern}");
            let (matches, whole) = work::of(|| glob.matches(&text));
            assert!(!matches, "{pattern}");
            // Two steps for each byte, besides those that come to nothing, of 64 elements each.
            let elements = 2 + glob.elements.len().div_ceil(64).max(32);
            assert!(whole <= (STEPS_PER_BYTE + 2 * elements) * text.len(), "{whole}: {pattern}");
            assert!(2 * whole <= 5 * half, "{half}, then {whole}: {pattern}");
        }
    }
}

#[test]
fn patterns_full_of_open_brackets_are_read_in_bounded_time() {
    let text = "[".repeat(MAX_OPEN_BRACKETS);
    assert!(matches(text.as_bytes(), text.as_bytes()));
    for piece in ["[", "[a", "[a-", "[[=a=]", "[\\]", "[5+-[:digit:]]", "[a+-[=b=]]*"] {
        let pattern = piece.repeat(16 * 1024 / piece.len());
        let (matches, steps) = work::of(|| matches(pattern.as_bytes(), pattern.as_bytes()));
        assert!(!matches, "{piece}");
        // For each open bracket, and each byte that it may take, the rest is read.
        assert!(steps <= 4 * MAX_OPEN_BRACKETS * pattern.len(), "{steps}: {piece}");
    }
}

/// Pieces that meet the corners of sets more often than random bytes would.
fn pattern() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just("*"),
        Just("?"),
        Just("["),
        Just("]"),
        Just("!"),
        Just("^"),
        Just("-"),
        Just("\\"),
        Just("a"),
        Just("b"),
        Just("B"),
        Just("Z"),
        Just("z"),
        Just("["),
        Just("[a-c]"),
        Just("[!b]"),
        Just("[[:alpha:]"),
        Just("[[:upper:]]"),
        Just("[[:lower:]-b]"),
        Just(":]"),
        Just("[:"),
        Just("."),
        Just("[[=b=]]"),
        Just("[[=B=]]"),
        Just("[[.b.]]"),
        Just("[[.B.]"),
        Just("[.bb.]"),
        Just("[:z:]"),
        Just("[A-c]"),
        Just("[a-Z]"),
        Just("/"),
        Just("é"),
    ];
    proptest::collection::vec(piece, 0..8).prop_map(|p| p.concat().into_bytes())
}

/// Patterns out of the bytes that sets are made of, against all short texts of the same bytes.
#[test]
fn patterns_full_of_brackets_agree_with_fnmatch() {
    const PIECES: &[&str] = &[
        "[",
        "[",
        "[",
        "]",
        "]",
        "!",
        "^",
        "-",
        "-",
        "\\",
        ":",
        ".",
        "=",
        "*",
        "?",
        "a",
        "b",
        "c",
        "[:",
        ":]",
        "[.",
        ".]",
        "[=",
        "=]",
        "[:alpha:]",
        "[:z:]",
        "[=b=]",
        "[.b.]",
        "[.bc.]",
        "-[",
        "A",
        "B",
    ];
    const BYTES: &[u8] = b"[]!^-\\:.=*?abcBC";
    let count = std::env::var("GLOB_PATTERNS").map_or(2000, |n| n.parse().expect("a number"));
    let mut texts: Vec<Vec<u8>> = BYTES.iter().map(|&b| vec![b]).collect();
    texts.extend(BYTES.iter().flat_map(|&a| BYTES.iter().map(move |&b| vec![a, b])));
    texts.push(Vec::new());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    for _ in 0..count {
        let length = 1 + random(10);
        let pattern = (0..length).map(|_| PIECES[random(PIECES.len())]).collect::<String>().into_bytes();
        let long = (0..3 + random(4)).map(|_| BYTES[random(BYTES.len())]).collect();
        for ignore_case in [false, true] {
            let glob = Glob::new(&pattern, ignore_case);
            for text in texts.iter().chain([&long]) {
                let expected = fnmatch(&pattern, text, ignore_case);
                assert_eq!(
                    (glob.matches(text), glob.matches_within(text, 0)),
                    (expected, expected),
                    "{:?} on {:?}, ignoring case: {ignore_case}",
                    pattern.as_bstr(),
                    text.as_bstr()
                );
            }
        }
    }
}

/// Readings of a set with several ends go on for long, beside each other or together.
#[test]
fn what_follows_a_set_with_several_ends_may_be_long() {
    const BYTES: &[u8] = b"[]5+-b\\a";
    let mut heads: Vec<Vec<u8>> = BYTES.iter().map(|&a| vec![a]).collect();
    heads.extend(BYTES.iter().flat_map(|&a| BYTES.iter().map(move |&b| vec![a, b])));
    let mut matching = 0;
    for set in
        ["[5+-[:digit:]]", "*[a+-[:digit:]]", "[a+-[:digit:]]*", "[!5+-[:digit:]]", "[+-[=b=]]", "[5+-[.b]"]
    {
        for (body, text) in [
            ("a?".repeat(40), "ab".repeat(40)),
            ("a***?".repeat(40), "ab".repeat(40)),
            ("\\\\".repeat(100), "\\".repeat(100)),
            ("[ab]b]".repeat(30) + "[ab", "bb]".repeat(30) + "[ab"),
        ] {
            for end in ["", "*", "]", "[5+-[:digit:]]"] {
                let pattern = [set, &body, end].concat().into_bytes();
                for (head, tail) in heads.iter().zip(["", "]", "5", "5]"].iter().cycle()) {
                    let text = [head.as_slice(), text.as_bytes(), tail.as_bytes()].concat();
                    let expected = fnmatch(&pattern, &text, false);
                    matching += usize::from(expected);
                    assert_eq!(
                        matches(&pattern, &text),
                        expected,
                        "{} on {}",
                        pattern.as_bstr(),
                        text.as_bstr()
                    );
                }
            }
        }
    }
    assert!(matching > 50, "{matching}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..Default::default() })]
    #[test]
    fn any_pattern_agrees_with_fnmatch(pattern in pattern(), text in "[]\\[a-cA-CzZ!^:.\\\\/é-]{0,6}", fold: bool) {
        let (glob, expected) = (Glob::new(&pattern, fold), fnmatch(&pattern, text.as_bytes(), fold));
        prop_assert_eq!((glob.matches(text.as_bytes()), glob.matches_within(text.as_bytes(), 0)),
            (expected, expected),
            "{:?} on {:?}", String::from_utf8_lossy(&pattern), text);
    }

    /// Few different bytes and long pieces, so that pieces are found late and overlap themselves.
    #[test]
    fn long_pieces_are_found_where_going_back_finds_them(
        pattern in "([ab?*]|\\[ab\\]){1,9}[*]([aB?]|\\[!b\\]){60,140}[*]?[ab]{0,3}",
        repeated in "[ab]{1,4}",
        tail in "[abc]{0,6}",
        fold: bool,
    ) {
        let text = repeated.repeat(70) + &tail + &repeated.repeat(20);
        let glob = Glob::new(pattern.as_bytes(), fold);
        prop_assert_eq!(glob.matches_within(text.as_bytes(), 0), glob.matches_within(text.as_bytes(), usize::MAX));
    }

    #[test]
    fn no_pattern_panics(pattern: Vec<u8>, text: Vec<u8>, fold: bool) {
        let _ = Glob::new(&pattern, fold).matches(&text);
    }
}
