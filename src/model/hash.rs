//! The hashes that other programs compute too: MurmurHash2 and the tag bloom of announcements
//! (interop.md 2.2), and the file name of a symlink's claim directory (interop.md 1.6).
//!
//! * [`murmur_hash2`]: 32 bits of a text, seed 0.
//! * [`tag_bloom`]: 64 bits of a set of tags; receivers filter on it in the kernel.
//! * [`escape_symlink`], [`unescape_symlink`]: `disk/by-id/x` <-> `disk\x2fby-id\x2fx`.

use bstr::{BString, ByteSlice};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// MurmurHash2, 32-bit, seed 0. Blocks are loaded in native byte order, as libudev does.
pub fn murmur_hash2(text: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    // The length is part of the hash modulo 2^32.
    let mut h = text.len() as u32;
    let (blocks, tail) = text.as_chunks::<4>();
    for &block in blocks {
        let mut k = u32::from_ne_bytes(block).wrapping_mul(M);
        k ^= k >> R;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (i, &byte) in tail.iter().enumerate() {
            h ^= u32::from(byte) << (8 * i);
        }
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ (h >> 15)
}

/// The bloom word of these tags: four bits each; 0 for none.
pub fn tag_bloom<T: AsRef<[u8]>>(tags: impl IntoIterator<Item = T>) -> u64 {
    tags.into_iter().fold(0, |bloom, tag| {
        let h = murmur_hash2(tag.as_ref());
        [0, 6, 12, 18].iter().fold(bloom, |bloom, shift| bloom | 1 << ((h >> shift) & 63))
    })
}

/// The longest file name, and so the longest claim directory name.
const NAME_MAX: usize = 255;
/// Characters of hash at the end of a name that was too long.
const HASH_CHARS: usize = 11;
/// What remains of the escaped name in front of the hash.
const KEPT: usize = NAME_MAX - HASH_CHARS;

const LINK_HASH_KEY: [u8; 16] =
    [0xb9, 0x6a, 0xf1, 0xce, 0x40, 0x31, 0x44, 0x1a, 0x9e, 0x19, 0xec, 0x8b, 0xae, 0xf3, 0xe3, 0x2f];

/// The claim directory of a symlink: `link` is relative to `/dev/`. A name that does not fit ends in
/// a hash of the whole.
pub fn escape_symlink(link: &[u8]) -> BString {
    let mut name = BString::new(Vec::with_capacity(link.len() + 16));
    for &byte in link {
        let unit: &[u8] = match byte {
            b'/' => b"\\x2f",
            b'\\' => b"\\x5c",
            _ => std::slice::from_ref(&byte),
        };
        if name.len() + unit.len() > KEPT {
            // The reference leaves the bytes after a cut escape undefined; ours are `_`.
            name.resize(KEPT, b'_');
            push_symlink_hash(&mut name, link);
            return name;
        }
        name.extend_from_slice(unit);
    }
    name
}

/// SipHash-2-4 over the link and a NUL, as eleven characters of the URL-safe base64 alphabet.
fn push_symlink_hash(name: &mut BString, link: &[u8]) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut hasher = SipHasher24::new_with_key(&LINK_HASH_KEY);
    hasher.write(link);
    hasher.write(&[0]);
    let hash = hasher.finish();
    // The first character has 4 bits, the others 6.
    for i in 0..HASH_CHARS {
        name.push(ALPHABET[(hash >> (60 - 6 * i)) as usize & 63]);
    }
}

/// The symlink of a claim directory, relative to `/dev/`; both name forms (with and without the
/// leading slash) give the same. None for a name that was cut, which cannot be undone, and for one
/// that is no escaped name.
pub fn unescape_symlink(name: &[u8]) -> Option<BString> {
    if name.len() >= NAME_MAX {
        return None;
    }
    let mut link = BString::new(Vec::with_capacity(name.len()));
    let mut rest = name;
    while let Some(at) = rest.find_byte(b'\\') {
        link.extend_from_slice(&rest[..at]);
        let tail = &rest[at..];
        let (byte, tail) = match (tail.strip_prefix(b"\\x2f"), tail.strip_prefix(b"\\x5c")) {
            (Some(tail), _) => (b'/', tail),
            (_, Some(tail)) => (b'\\', tail),
            _ => return None,
        };
        link.push(byte);
        rest = tail;
    }
    link.extend_from_slice(rest);
    if link.first() == Some(&b'/') {
        link.remove(0);
    }
    (!link.is_empty()).then_some(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// interop.md 2.2.
    #[cfg(target_endian = "little")]
    #[test]
    fn murmur_hashes_of_known_words() {
        for (text, hash) in [
            ("", 0x00000000),
            ("a", 0x92685f5e),
            ("ab", 0x1aa14063),
            ("abc", 0x13577c9b),
            ("abcd", 0x26873021),
            ("net", 0xa74d3cc8),
            ("block", 0xf0031db7),
            ("disk", 0x7bcbc5ee),
            ("partition", 0xcb234489),
            ("usb_interface", 0xb1024765),
            ("power_supply", 0xb1acbcca),
            ("video4linux", 0xe9cf3931),
            ("ieee80211", 0x531f3fa6),
        ] {
            assert_eq!(murmur_hash2(text.as_bytes()), hash, "{text}");
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn blooms_of_known_tags() {
        for (tags, bloom) in [
            (&[][..], 0),
            (&["systemd"][..], 0x02000400_10800000),
            (&["seat"], 0x02080000_00400001),
            (&["uaccess"], 0x00002008_00001008),
            (&["master-of-seat"], 0x00120108_00000000),
            (&["power-switch"], 0x80002000_40000010),
            (&["security-device"], 0x10000600_00400000),
            (&["seat", "uaccess", "power-switch"], 0x82082008_40401019),
            (&["t-one", "systemd", "uaccess2"], 0x03022408_10c01012),
        ] {
            assert_eq!(tag_bloom(tags), bloom, "{tags:?}");
        }
    }

    #[test]
    fn claim_directories_of_known_links() {
        for (link, name) in [
            ("disk/by-id/usb-A\\x20B".to_owned(), "disk\\x2fby-id\\x2fusb-A\\x5cx20B".to_owned()),
            ("a".repeat(244), "a".repeat(244)),
            ("a".repeat(245), "a".repeat(244) + "CiHnxpd1fRN"),
            ("x".repeat(300), "x".repeat(244) + "K5hVCitzbm3"),
            (
                "disk/by-label/".to_owned() + &"z".repeat(236),
                "disk\\x2fby-label\\x2f".to_owned() + &"z".repeat(224) + "Hcio9lbiAEy",
            ),
            (
                "/disk/by-id/".to_owned() + &"a".repeat(243),
                "\\x2fdisk\\x2fby-id\\x2f".to_owned() + &"a".repeat(223) + "N3YhcCqFeID",
            ),
        ] {
            assert_eq!(escape_symlink(link.as_bytes()), name);
        }
        let cut = escape_symlink(&[b"a".repeat(242), b"/bc".to_vec()].concat());
        assert_eq!((cut.len(), &cut[242..244]), (255, &b"__"[..]));
    }

    #[test]
    fn directory_names_are_read_in_both_forms() {
        for (name, link) in [
            ("disk\\x2fby-id\\x2fusb-A\\x5cx20B", Some("disk/by-id/usb-A\\x20B")),
            ("\\x2fdisk\\x2fx", Some("disk/x")),
            ("plain", Some("plain")),
            ("", None),
            ("\\x2f", None),
            ("a\\x41", None),
            ("a\\", None),
        ] {
            assert_eq!(unescape_symlink(name.as_bytes()), link.map(BString::from), "{name}");
        }
        assert_eq!(unescape_symlink(&escape_symlink(&[b'a'; 300])), None);
    }
}
