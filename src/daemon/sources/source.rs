//! What the loop watches: every descriptor has a token that says what it is.
//!
//! Registration is edge-triggered: who is told that its descriptor is readable reads to WouldBlock,
//! or remembers that it did not. Descriptors leave by being closed.

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// One descriptor of the loop. Numbers are never used twice, so a late event of a closed descriptor
/// finds nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Uevents,
    /// Notifications of links.
    Links,
    /// The request helper of rtnetlink.
    Rtnl(u64),
    Inotify,
    Signals,
    /// Listener of the classic control protocol.
    Control,
    Client(u64),
    /// Listener of status requests.
    Status,
    StatusClient(u64),
    Child(u64),
    ChildOut(u64),
    ChildErr(u64),
    Helper(u64),
    /// The list of mounts.
    Mounts,
}

/// Bits of the token that say which kind of source it is.
const KIND_BITS: u32 = 4;

impl Source {
    fn token(self) -> Token {
        let (kind, number) = match self {
            Source::Uevents => (0, 0),
            Source::Links => (1, 0),
            Source::Rtnl(n) => (2, n),
            Source::Inotify => (3, 0),
            Source::Signals => (4, 0),
            Source::Control => (5, 0),
            Source::Client(n) => (6, n),
            Source::Status => (7, 0),
            Source::StatusClient(n) => (8, n),
            Source::Child(n) => (9, n),
            Source::ChildOut(n) => (10, n),
            Source::ChildErr(n) => (11, n),
            Source::Helper(n) => (12, n),
            Source::Mounts => (13, 0),
        };
        // 28 bits of number on 32-bit machines: a late event would have to wait for 2^28 others.
        Token(((number as usize) << KIND_BITS) | kind)
    }

    /// The source of a token made by us.
    pub fn of(token: Token) -> Option<Source> {
        let number = (token.0 >> KIND_BITS) as u64;
        Some(match token.0 & ((1 << KIND_BITS) - 1) {
            0 => Source::Uevents,
            1 => Source::Links,
            2 => Source::Rtnl(number),
            3 => Source::Inotify,
            4 => Source::Signals,
            5 => Source::Control,
            6 => Source::Client(number),
            7 => Source::Status,
            8 => Source::StatusClient(number),
            9 => Source::Child(number),
            10 => Source::ChildOut(number),
            11 => Source::ChildErr(number),
            12 => Source::Helper(number),
            13 => Source::Mounts,
            _ => return None,
        })
    }
}

/// Where descriptors are registered.
pub struct Sources {
    registry: Registry,
}

impl Sources {
    /// Of this poll.
    pub fn new(poll: &mio::Poll) -> io::Result<Sources> {
        Ok(Sources { registry: poll.registry().try_clone()? })
    }

    /// Watches a descriptor for reading.
    pub fn add(&self, fd: BorrowedFd, source: Source) -> io::Result<()> {
        self.register(fd, source, Interest::READABLE)
    }

    /// Watches a descriptor for reading and writing.
    pub fn add_both(&self, fd: BorrowedFd, source: Source) -> io::Result<()> {
        self.register(fd, source, Interest::READABLE | Interest::WRITABLE)
    }

    /// Watches a descriptor for what is urgent: files in /proc say so that they have changed.
    pub fn add_urgent(&self, fd: BorrowedFd, source: Source) -> io::Result<()> {
        self.register(fd, source, Interest::PRIORITY)
    }

    fn register(&self, fd: BorrowedFd, source: Source, interest: Interest) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&fd.as_raw_fd()), source.token(), interest)
    }
}

impl crate::helper::pool::Register for Sources {
    fn watch(&self, socket: BorrowedFd, helper: u64) -> io::Result<()> {
        self.add(socket, Source::Helper(helper))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_go_both_ways() {
        for source in [
            Source::Uevents,
            Source::Links,
            Source::Rtnl(1),
            Source::Inotify,
            Source::Signals,
            Source::Control,
            Source::Client(7),
            Source::Status,
            Source::StatusClient(0),
            Source::Child(1 << 20),
            Source::ChildOut(3),
            Source::ChildErr(3),
            Source::Helper(5),
            Source::Mounts,
        ] {
            assert_eq!(Source::of(source.token()), Some(source));
        }
        assert_eq!(Source::of(Token(15)), None);
    }
}
