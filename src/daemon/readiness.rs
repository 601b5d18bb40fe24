//! Telling others how we are: the service manager, a descriptor that someone reads, the parent that
//! waits for `--daemon` (interop.md 4.2).

use crate::model::Now;
use crate::sys::{process, unix};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// See the module.
#[derive(Debug, Default)]
pub struct Readiness {
    /// $NOTIFY_SOCKET.
    notify: Option<Vec<u8>>,
    /// `--ready-fd`: one newline, then closed.
    ready_fd: Option<OwnedFd>,
    /// The parent of `--daemon` waits for one byte.
    parent: Option<OwnedFd>,
    /// Half of $WATCHDOG_USEC, and when it is due.
    watchdog: Option<(Duration, Now)>,
    status: String,
    ready: bool,
}

impl Readiness {
    /// `environment` looks up a variable; `status` is the line that `systemctl status` shows.
    pub fn new(
        environment: &dyn Fn(&str) -> Option<String>,
        ready_fd: Option<OwnedFd>,
        parent: Option<OwnedFd>,
        status: String,
        now: Now,
    ) -> Readiness {
        let ours = environment("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let usec = environment("WATCHDOG_USEC").and_then(|t| t.parse().ok()).filter(|&usec| usec > 0 && ours);
        Readiness {
            notify: environment("NOTIFY_SOCKET").map(String::into_bytes),
            ready_fd,
            parent,
            watchdog: usec.map(|usec| (Duration::from_micros(usec) / 2, now)),
            status,
            ready: false,
        }
    }

    /// Whether [`Readiness::set_ready`] was called.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// All is set up; told once.
    pub fn set_ready(&mut self) {
        if self.ready {
            return;
        }
        self.ready = true;
        log::debug!("Ready");
        self.send(&format!("READY=1\nSTATUS={}", self.status));
        for fd in [self.ready_fd.take(), self.parent.take()].into_iter().flatten() {
            if let Err(error) = process::write(fd.as_fd(), b"\n") {
                log::warn!("Cannot tell that we are ready: {error}");
            }
        }
    }

    /// Rules and configuration are read again.
    pub fn reloading(&self, now: Now) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros()));
    }

    /// They were.
    pub fn reloaded(&self) {
        if self.ready {
            self.send("READY=1");
        }
    }

    /// We end soon.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// The watchdog wants to hear from us.
    pub fn on_time(&mut self, now: Now) {
        if let Some((period, due)) = &mut self.watchdog
            && *due <= now
        {
            *due = now + *period;
            self.send("WATCHDOG=1");
        }
    }

    /// When to call [`Readiness::on_time`].
    pub fn timeout(&self) -> Option<Now> {
        self.watchdog.map(|(_, due)| due)
    }

    fn send(&self, text: &str) {
        if let Some(target) = &self.notify
            && let Err(error) = unix::notify(target, text.as_bytes())
        {
            log::warn!("Cannot tell the service manager: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn readiness_is_told_once_to_everyone() {
        let path = std::env::temp_dir().join(format!("mudev-notify-{}", std::process::id()));
        let manager = UnixDatagram::bind(&path).unwrap();
        let (reader, writer) = process::pipe().unwrap();
        let environment = |name: &str| match name {
            "NOTIFY_SOCKET" => path.to_str().map(str::to_owned),
            "WATCHDOG_USEC" => Some("2000000".to_owned()),
            _ => None,
        };
        let second = Duration::from_secs(1);
        let mut readiness = Readiness::new(&environment, Some(writer), None, "Processing".into(), second);
        readiness.set_ready();
        readiness.set_ready();
        readiness.reloading(Duration::from_micros(7));
        readiness.on_time(second);
        assert_eq!(readiness.timeout(), Some(2 * second));
        readiness.on_time(second * 3 / 2);
        readiness.stopping();
        let mut buffer = [0; 200];
        for expected in
            ["READY=1\nSTATUS=Processing", "RELOADING=1\nMONOTONIC_USEC=7", "WATCHDOG=1", "STOPPING=1"]
        {
            let n = manager.recv(&mut buffer).unwrap();
            assert_eq!(std::str::from_utf8(&buffer[..n]).unwrap(), expected);
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(process::read(reader.as_fd(), &mut buffer).unwrap(), 1);
        assert_eq!(process::read(reader.as_fd(), &mut buffer).unwrap(), 0, "and the descriptor is closed");
    }
}
