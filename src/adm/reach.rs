//! Reaching the daemon: which process listens at its sockets, if any, and the message about one that does not answer
//! (interop.md 3.1, 3.4).

use super::complain;
use crate::daemon::sources::status;
use crate::sys::unix;
use crate::sys::{process, unix::Credentials};
use crate::world::Roots;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// After this time a daemon that does not answer is named: it answers within milliseconds.
pub(super) const SHORT: Duration = Duration::from_secs(2);

/// Name, in `/run/udev`, of the only socket of systemd's udev from 262 on. Earlier ones have the classic socket
/// beside it.
const VARLINK: &str = "io.systemd.Udev";

/// A call that is replied to when all events of the kernel are queued, as the classic PING is.
const VARLINK_PING: &[u8] = b"{\"method\":\"io.systemd.service.Ping\"}\0";

/// The process at the other end of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pid: i32,
    /// What ps(1) calls it; empty if that cannot be read.
    name: String,
    is_stopped: bool,
}

impl Peer {
    /// The process that listens at the place to which this socket is connected.
    pub(super) fn of(socket: BorrowedFd, roots: &Roots) -> Option<Peer> {
        let Credentials { pid, .. } = unix::peer_credentials(socket).ok()?;
        let stat = std::fs::read_to_string(roots.proc.join(format!("{pid}/stat"))).unwrap_or_default();
        Some(Peer::new(pid, &stat))
    }

    /// `stat` is the line of proc_pid_stat(5).
    fn new(pid: i32, stat: &str) -> Peer {
        let name = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')'));
        let (name, rest) = name.unwrap_or_default();
        Peer { pid, name: name.to_owned(), is_stopped: rest.trim_start().starts_with(['T', 't']) }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.name, self.pid) {
            (_, ..=0) => f.write_str("a process outside of this namespace")?,
            ("", pid) => write!(f, "process {pid}")?,
            (name, pid) => write!(f, "{name} (process {pid})")?,
        }
        f.write_str(if self.is_stopped { ", which is stopped," } else { "" })
    }
}

/// What to say when nobody has answered in time.
pub(super) fn no_answer(peer: Option<&Peer>) -> String {
    peer.map_or_else(|| "the daemon does not answer".to_owned(), |peer| format!("{peer} does not answer"))
}

/// Whether a connection failed because nobody listens: no socket, or that of a daemon that has ended.
pub(super) fn nobody_listens(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// A message for people: why `who` was not reached.
pub(super) fn unreached(who: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("no {who} runs here"),
        io::ErrorKind::ConnectionRefused => {
            format!("no {who} runs here: its socket is of one that has ended")
        }
        io::ErrorKind::WouldBlock => format!("{who} does not answer: too many clients wait for it"),
        _ => format!("cannot reach {who}: {error}"),
    }
}

/// Whether the daemon that answers here is mudevd.
pub(super) fn is_mudevd(roots: &Roots) -> bool {
    unix::connect_seqpacket_within(&roots.run.join("udev").join(status::SOCKET), SHORT).is_ok()
}

/// Waits until the other end has something to say or has hung up; names it when that takes long. False: it has
/// not in that time.
pub(super) fn wait_for_answer(socket: BorrowedFd, roots: &Roots, limit: Duration) -> io::Result<bool> {
    if process::wait_readable(socket, limit.min(SHORT))? {
        return Ok(true);
    }
    let Some(left) = limit.checked_sub(SHORT).filter(|left| !left.is_zero()) else { return Ok(false) };
    let peer = Peer::of(socket, roots);
    complain(format_args!("Still waiting: {}", no_answer(peer.as_ref())));
    process::wait_readable(socket, left)
}

/// A daemon that speaks Varlink and not the classic protocol.
pub(super) struct Varlink(OwnedFd);

impl Varlink {
    /// Looks for one in `/run/udev`.
    pub(super) fn find(roots: &Roots) -> Option<Varlink> {
        let connect =
            |name: &str| unix::connect_stream_within(&roots.run.join("udev").join(name), SHORT).ok();
        connect(VARLINK).or_else(|| connect("control")).map(Varlink)
    }

    /// Who it is.
    pub(super) fn peer(&self, roots: &Roots) -> Option<Peer> {
        Peer::of(self.0.as_fd(), roots)
    }

    /// Waits until all events that the kernel has sent are in its queue. False: it did not answer in that
    /// time, or ended.
    pub(super) fn ping(&self, roots: &Roots, limit: Duration) -> io::Result<bool> {
        unix::send(self.0.as_fd(), VARLINK_PING)?;
        let end = Instant::now() + limit;
        let mut buffer = [0; 1024];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if !wait_for_answer(self.0.as_fd(), roots, left)? {
                return Ok(false);
            }
            match unix::receive(self.0.as_fd(), &mut buffer)?.len {
                0 => return Ok(false),
                n if buffer[..n].contains(&0) => return Ok(true),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_and_said_to_be_stopped() {
        for (stat, text) in [
            ("7 (mudevd) S 1 7", "mudevd (process 7)"),
            ("7 (a) b) T 1 7", "a) b (process 7), which is stopped,"),
            ("", "process 7"),
        ] {
            assert_eq!(Peer::new(7, stat).to_string(), text);
        }
        assert_eq!(Peer::new(0, "").to_string(), "a process outside of this namespace");
    }
}
