//! Thin doors to the kernel, the only place with `unsafe`. No policy: every function does one thing
//! and returns an `io::Result`.
#![allow(unsafe_code)]
