//! The hashes that the formats prescribe: MurmurHash2 and the tag bloom (interop.md 2.2).
