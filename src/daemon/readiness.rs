//! Telling others how we are: the service manager, a descriptor that someone reads, the parent that
//! waits for `--daemon` (interop.md 4.2).

use crate::model::Now;
use crate::sys::output::Output;
use crate::sys::{process, unix};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// After this time who could not be told is told again.
const RETRY: Duration = Duration::from_millis(500);

/// Messages that are kept for a service manager that does not read. Beyond it the oldest are dropped: the last
/// ones say how we are.
const MAX_UNTOLD: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub struct Readiness {
    /// $NOTIFY_SOCKET.
    notify: Option<Vec<u8>>,
    /// What the service manager was not told yet, in order.
    untold: VecDeque<String>,
    /// `--ready-fd`: one newline, then closed.
    ready_fd: Option<Output>,
    /// The parent of `--daemon` waits for one byte.
    parent: Option<OwnedFd>,
    /// Half of $WATCHDOG_USEC, and when it is due.
    watchdog: Option<(Duration, Now)>,
    status: String,
    ready: bool,
    /// When to tell again who did not read.
    again_at: Option<Now>,
}

impl Readiness {
    /// `environment` looks up a variable; `status` is the line that `systemctl status` shows.
    pub fn new(
        environment: &dyn Fn(&str) -> Option<String>,
        ready_fd: Option<Output>,
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
            ..Readiness::default()
        }
    }

    /// Whether [`Readiness::set_ready`] was called.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// All is set up; told once.
    pub fn set_ready(&mut self, now: Now) {
        if self.ready {
            return;
        }
        self.ready = true;
        log::debug!("Ready");
        self.send(format!("READY=1\nSTATUS={}", self.status), now);
        // The pipe is ours and empty.
        if let Some(parent) = self.parent.take()
            && let Err(error) = process::write(parent.as_fd(), b"\n")
        {
            log::warn!("Cannot tell our parent that we are ready: {error}");
        }
        self.tell_ready_fd(now);
    }

    /// Rules and configuration are read again.
    pub fn reloading(&mut self, now: Now) {
        self.send(format!("RELOADING=1\nMONOTONIC_USEC={}", now.since_boot().as_micros()), now);
    }

    /// They were.
    pub fn reloaded(&mut self, now: Now) {
        if self.ready {
            self.send("READY=1".to_owned(), now);
        }
    }

    /// We end soon.
    pub fn stopping(&mut self, now: Now) {
        self.send("STOPPING=1".to_owned(), now);
    }

    /// The watchdog wants to hear from us, and others what they did not hear yet.
    pub fn on_time(&mut self, now: Now) {
        if self.again_at.is_some_and(|at| at <= now) {
            self.again_at = None;
            self.send_untold(now);
            if self.ready {
                self.tell_ready_fd(now);
            }
        }
        if let Some((period, due)) = &mut self.watchdog
            && *due <= now
        {
            *due = now + *period;
            // One is enough, whenever it is read.
            if self.untold.back().is_none_or(|last| last != WATCHDOG) {
                self.send(WATCHDOG.to_owned(), now);
            }
        }
    }

    /// When to call [`Readiness::on_time`].
    pub fn timeout(&self) -> Option<Now> {
        let due = self.watchdog.map(|(_, due)| due);
        [due, self.again_at].into_iter().flatten().min()
    }

    fn send(&mut self, text: String, now: Now) {
        if self.notify.is_none() {
            return;
        }
        if self.untold.len() >= MAX_UNTOLD {
            self.untold.pop_front();
        }
        self.untold.push_back(text);
        self.send_untold(now);
    }

    fn send_untold(&mut self, now: Now) {
        let Some(target) = &self.notify else { return };
        while let Some(text) = self.untold.front() {
            match unix::notify(target, text.as_bytes()) {
                Err(error) if is_for_now(&error) => {
                    if self.again_at.replace(now + RETRY).is_none() {
                        log::debug!("The service manager is told later: {error}");
                    }
                    return;
                }
                Err(error) => log::warn!("Cannot tell the service manager: {error}"),
                Ok(()) => {}
            }
            self.untold.pop_front();
        }
    }

    fn tell_ready_fd(&mut self, now: Now) {
        let Some(output) = &self.ready_fd else { return };
        match output.write(b"\n") {
            Err(error) if is_for_now(&error) => {
                self.again_at = Some(now + RETRY);
                return;
            }
            Err(error) => log::warn!("Cannot write to --ready-fd that we are ready: {error}"),
            Ok(_) => {}
        }
        self.ready_fd = None;
    }
}

const WATCHDOG: &str = "WATCHDOG=1";

/// Nobody reads, or something is short: it may be otherwise later.
fn is_for_now(error: &io::Error) -> bool {
    let short = [libc::ENOBUFS, libc::ENOMEM, libc::EMFILE, libc::ENFILE];
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        || error.raw_os_error().is_some_and(|errno| short.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;

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
        let second = Now::from_secs(1);
        let writer = Output::new(writer, Path::new("/nowhere")).unwrap();
        let mut readiness = Readiness::new(&environment, Some(writer), None, "Processing".into(), second);
        readiness.set_ready(second);
        readiness.set_ready(second);
        readiness.reloading(Now::from_nanos(7000));
        readiness.on_time(second);
        assert_eq!(readiness.timeout(), Some(Now::from_secs(2)));
        readiness.on_time(second + Duration::from_millis(500));
        readiness.stopping(second);
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

    #[test]
    fn who_does_not_read_is_told_later_and_in_order() {
        let path = std::env::temp_dir().join(format!("mudev-notify-full-{}", std::process::id()));
        let manager = UnixDatagram::bind(&path).unwrap();
        let filler = UnixDatagram::unbound().unwrap();
        filler.set_nonblocking(true).unwrap();
        while filler.send_to(b"full", &path).is_ok() {}
        let (reader, writer) = process::pipe().unwrap();
        let output = Output::new(writer, Path::new("/nowhere")).unwrap();
        while output.write(&[0; 4096]).is_ok() {}
        let environment = |name: &str| match name {
            "NOTIFY_SOCKET" => path.to_str().map(str::to_owned),
            "WATCHDOG_USEC" => Some("2000000".to_owned()),
            _ => None,
        };
        let second = Now::from_secs(1);
        let mut readiness =
            Readiness::new(&environment, Some(output), None, "Processing".into(), Now::from_secs(9));
        readiness.set_ready(second);
        for _ in 0..2 * MAX_UNTOLD {
            readiness.reloading(second);
            readiness.reloaded(second);
        }
        readiness.on_time(Now::from_secs(9));
        readiness.on_time(Now::from_secs(10));
        assert_eq!(readiness.untold.len(), MAX_UNTOLD, "what is kept is bounded");
        assert_eq!(readiness.timeout(), Some(Now::from_secs(10) + RETRY));
        let mut buffer = vec![0; 1 << 20];
        manager.set_nonblocking(true).unwrap();
        while manager.recv(&mut buffer).is_ok() {}
        process::read(reader.as_fd(), &mut buffer).unwrap();
        readiness.on_time(Now::from_secs(20));
        let mut told = Vec::new();
        loop {
            while let Ok(n) = manager.recv(&mut buffer) {
                told.push(String::from_utf8(buffer[..n].to_vec()).unwrap());
            }
            let Some(at) = readiness.again_at else { break };
            readiness.on_time(at);
        }
        assert_eq!(&told[told.len() - 2..], ["READY=1", WATCHDOG], "the last ones are told");
        assert!(readiness.untold.is_empty() && readiness.ready_fd.is_none());
        assert_eq!(process::read(reader.as_fd(), &mut buffer).unwrap(), 1, "the newline");
        assert_eq!(process::read(reader.as_fd(), &mut buffer).unwrap(), 0, "and it is closed");
        std::fs::remove_file(&path).unwrap();
    }
}
