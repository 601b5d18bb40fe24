//! FNV-1a, the hash of names that are looked up often: quick for short texts, without a seed.
//!
//! Somebody who may choose many names can make look-ups slow, but not wrong, because keys are compared in full. So
//! this hash is for names that rules, drivers or root chose, and for numbers. What media, files or programs can name is
//! kept under the standard hasher, which has a seed (symlinks of all devices, properties where they are many).

use std::hash::{BuildHasherDefault, Hasher};

/// Builds [`Fnv`] for maps and sets.
pub type BuildFnv = BuildHasherDefault<Fnv>;

/// The hash so far.
#[derive(Clone)]
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.0 = (self.0 ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    // Numbers need not be taken apart.
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(26) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }
}

impl Fnv {
    /// The hash in 32 bits.
    pub fn finish_short(&self) -> u32 {
        (self.0 ^ (self.0 >> 32)) as u32
    }
}

/// The hash of one text in 32 bits.
pub fn short_hash(text: &[u8]) -> u32 {
    let mut hasher = Fnv::default();
    hasher.write(text);
    hasher.finish_short()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_hashes_of_fnv_1a() {
        for (text, hash) in
            [("", 0xcbf2_9ce4_8422_2325_u64), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            let mut hasher = Fnv::default();
            hasher.write(text.as_bytes());
            assert_eq!(hasher.finish(), hash, "{text}");
            assert_eq!(short_hash(text.as_bytes()), (hash ^ (hash >> 32)) as u32, "{text}");
        }
    }
}
