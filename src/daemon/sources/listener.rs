//! A socket that clients connect to.
//!
//! Must stay true: the loop is told once that somebody wants to connect (edge-triggered), so who could
//! not be accepted then, for want of descriptors or memory, is accepted later by the clock; meanwhile the
//! loop does not spin, and says so once.

use super::source::{Source, Sources};
use crate::model::Now;
use crate::sys::unix;
use crate::world::quota;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// After this time clients that could not be accepted are tried again.
const RETRY: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    /// When to try again what failed.
    again_at: Option<Now>,
}

impl Listener {
    /// Has the loop watch a listening socket, non-blocking.
    pub fn new(socket: OwnedFd, source: Source, sources: &Sources) -> io::Result<Listener> {
        sources.add(socket.as_fd(), source)?;
        Ok(Listener { socket, again_at: None })
    }

    /// The next connection; None if there is none, or none that can be taken now.
    pub fn accept(&mut self, now: Now) -> Option<OwnedFd> {
        loop {
            match unix::accept(self.socket.as_fd()) {
                Ok(socket) => {
                    self.again_at = None;
                    return Some(socket);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.again_at = None;
                    return None;
                }
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ECONNABORTED)) => {}
                Err(error) => {
                    if self.again_at.replace(now + RETRY).is_none() {
                        log::warn!(target: quota::CLIENTS, "Cannot accept a client, it has to wait: {error}");
                    }
                    return None;
                }
            }
        }
    }

    /// When to accept again although nobody new has come.
    pub fn timeout(&self) -> Option<Now> {
        self.again_at
    }

    /// Whether that time has come.
    pub fn is_due(&self, now: Now) -> bool {
        self.again_at.is_some_and(|at| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_be_accepted_is_tried_again_until_nobody_waits() {
        let path = std::env::temp_dir().join(format!("mudev-listener-{}", std::process::id()));
        let poll = mio::Poll::new().unwrap();
        let sources = Sources::new(&poll).unwrap();
        let socket = unix::listen_seqpacket(&path).unwrap();
        let mut listener = Listener::new(socket, Source::Control, &sources).unwrap();
        let second = Now::from_secs(1);
        let client = unix::connect_seqpacket(&path).unwrap();
        // A socket that does not listen refuses as one does that is out of descriptors: by an error.
        let (deaf, _) = unix::seqpacket_pair().unwrap();
        let listening = std::mem::replace(&mut listener.socket, deaf);
        assert!(listener.accept(second).is_none());
        assert_eq!(listener.timeout(), Some(second + RETRY));
        assert!(!listener.is_due(second) && listener.is_due(second + RETRY));
        listener.socket = listening;
        assert!(listener.accept(second + RETRY).is_some() && listener.timeout().is_none());
        assert!(listener.accept(Now::from_secs(2)).is_none() && listener.timeout().is_none());
        drop(client);
        std::fs::remove_file(&path).unwrap();
    }
}
