//! Thin doors to the kernel, the only place with `unsafe`. No policy: every function does one thing
//! and returns an `io::Result`.
#![allow(unsafe_code)]
pub mod at_once;
pub mod child;
pub mod clock;
pub mod cpu;
#[cfg(test)]
pub mod faults;
#[cfg(test)]
pub mod fnmatch;
pub mod fs;
pub mod inotify;
pub mod ioctl;
pub mod netlink;
pub mod node;
pub mod output;
pub mod process;
pub mod random;
pub mod signal;
pub mod unix;
