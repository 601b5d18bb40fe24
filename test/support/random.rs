//! Numbers that a seed decides, for tests that must give the same cases on every machine.
#![allow(dead_code)]

/// A small generator; good enough to choose cases (SplitMix64).
pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Whether it came out so, in `n` of `of` cases.
    pub(super) fn chance(&mut self, n: usize, of: usize) -> bool {
        self.below(of) < n
    }

    /// Less than `limit`; 0 if that is 0.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}
