//! Descriptors that whoever started us has handed over: sockets (sd_listen_fds(3)) and the one that is told when
//! we are ready.
//!
//! Must stay true: they are taken before anything is opened that could be taken for them, and before any process
//! is started that would inherit them; none is taken twice.

use crate::sys::process::{self, Standard};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

/// First descriptor of socket activation.
const LISTEN_FDS_START: i32 = 3;

/// Descriptors that a service manager may hand over at most.
const LISTEN_FDS_MAX: i64 = 1024;

/// See the module.
#[derive(Debug, Default)]
pub struct Passed {
    pub ready: Option<OwnedFd>,
    pub sockets: Vec<OwnedFd>,
}

impl Passed {
    /// Takes them. `ready` is what `--ready-fd` says.
    pub fn take(ready: Option<i32>) -> Result<Passed, String> {
        let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<i64>().ok());
        let is_ours = number("LISTEN_PID") == Some(i64::from(std::process::id()));
        let sockets = sockets(number("LISTEN_FDS").filter(|_| is_ours));
        if let Some(fd) = ready.filter(|fd| sockets.contains(fd)) {
            return Err(format!("--ready-fd={fd}: that is one of the sockets that LISTEN_FDS passes"));
        }
        let ready =
            ready.map(|fd| take_ready(fd).map_err(|e| format!("--ready-fd={fd}: {e}"))).transpose()?;
        let take =
            |fd| process::take_inherited(fd).map_err(|e| format!("Socket {fd} was not passed to us: {e}"));
        Ok(Passed { ready, sockets: sockets.map(take).collect::<Result<_, _>>()? })
    }
}

/// Their numbers.
fn sockets(count: Option<i64>) -> Range<i32> {
    let count = count.unwrap_or(0).clamp(0, LISTEN_FDS_MAX) as i32;
    LISTEN_FDS_START..LISTEN_FDS_START + count
}

/// Standard output is a place that supervisors know; it leads nowhere from then on.
fn take_ready(fd: i32) -> std::io::Result<OwnedFd> {
    if fd != Standard::Output as i32 {
        return process::take_inherited(fd);
    }
    let ready = std::io::stdout().as_fd().try_clone_to_owned()?;
    process::redirect(process::open_null()?.as_fd(), Standard::Output)?;
    Ok(ready)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_sockets_is_too_large_or_too_small() {
        for (count, expected) in
            [(None, 3..3), (Some(0), 3..3), (Some(2), 3..5), (Some(-7), 3..3), (Some(i64::MAX), 3..1027)]
        {
            assert_eq!(sockets(count), expected);
        }
    }
}
