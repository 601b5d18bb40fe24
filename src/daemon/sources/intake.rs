//! Where events come from: the kernel, or a file.
//!
//! Must stay true: only what the kernel itself has sent is believed (port 0, root's credentials, the
//! kernel's form); a lost message is noticed; a turn takes a bounded number.

use super::super::stats::Stats;
use super::source::{Source, Sources};
use crate::engine::Input;
use crate::model::Uevent;
use crate::sys::netlink::{self, Batch, Received};
use crate::world::quota;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The kernel's largest message: 2 KiB of variables and a header, with room to spare.
const MAX_DATAGRAM: usize = 8 * 1024;

/// Batches in one turn.
const MAX_BATCHES: usize = 16;

/// Receive buffer of the socket, in bytes: what systemd's socket unit gives it.
pub const RECEIVE_BUFFER: usize = 128 << 20;

/// See the module.
pub enum Intake {
    Kernel {
        socket: OwnedFd,
        batch: Batch,
        ready: bool,
    },
    /// All events of a file.
    File {
        events: VecDeque<Uevent>,
    },
}

impl Intake {
    /// From a socket that is bound to the kernel's group.
    pub fn from_kernel(socket: OwnedFd, sources: &Sources) -> io::Result<Intake> {
        sources.add(socket.as_fd(), Source::Uevents)?;
        Ok(Intake::Kernel { socket, batch: Batch::new(MAX_DATAGRAM), ready: true })
    }

    /// From the content of a file.
    pub fn from_file(content: &[u8]) -> Intake {
        Intake::File { events: parse_events(content).into() }
    }

    /// The descriptor has become readable.
    pub fn set_ready(&mut self) {
        if let Intake::Kernel { ready, .. } = self {
            *ready = true;
        }
    }

    /// Whether there may be more to read.
    pub fn is_ready(&self) -> bool {
        match self {
            Intake::Kernel { ready, .. } => *ready,
            Intake::File { events } => !events.is_empty(),
        }
    }

    /// Whether events come from a file, and it has an end.
    pub fn is_finite(&self) -> bool {
        matches!(self, Intake::File { .. })
    }

    /// All events of the file were taken.
    pub fn is_at_end(&self) -> bool {
        matches!(self, Intake::File { events } if events.is_empty())
    }

    /// Takes this turn's share; true if the kernel says that messages were lost.
    pub fn read(&mut self, inbox: &mut VecDeque<Input>, stats: &mut Stats) -> bool {
        match self {
            Intake::File { events } => {
                let share = events.len().min(MAX_BATCHES * Batch::LEN);
                inbox.extend(events.drain(..share).map(Input::Uevent));
                false
            }
            Intake::Kernel { socket, batch, ready } => {
                let mut lost = false;
                for _ in 0..MAX_BATCHES {
                    match batch.receive(socket.as_fd()) {
                        Ok(_) => {
                            for (received, bytes) in batch.iter() {
                                take(received, bytes, inbox, stats);
                            }
                            if batch.is_short() {
                                *ready = false;
                                return lost;
                            }
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            *ready = false;
                            return lost;
                        }
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                            stats.uevents_lost += 1;
                            log::error!("Events were lost: the kernel's buffer was full");
                            lost = true;
                        }
                        Err(error) => {
                            log::error!("Cannot receive events: {error}");
                            *ready = false;
                            return lost;
                        }
                    }
                }
                lost
            }
        }
    }
}

fn take(received: Received, bytes: &[u8], inbox: &mut VecDeque<Input>, stats: &mut Stats) {
    let refused = if received.sender.portid != 0 || received.sender.groups != 1 {
        Some("it is not from the kernel".to_owned())
    } else if received.sender.credentials.is_none_or(|c| c.uid != 0) {
        Some("it is not from root".to_owned())
    } else if received.truncated {
        Some("it is too long".to_owned())
    } else {
        match Uevent::parse_kernel(bytes) {
            Ok(uevent) => {
                inbox.push_back(Input::Uevent(uevent));
                None
            }
            Err(error) => Some(error.to_string()),
        }
    };
    if let Some(why) = refused {
        stats.uevents_refused += 1;
        log::warn!(target: quota::EVENTS, "Event refused: {why}");
    }
}

/// A socket for uevents of the kernel with a large buffer; without the right to that it has what the
/// system allows.
pub fn open_socket() -> io::Result<OwnedFd> {
    let socket = netlink::open_uevent(1)?;
    if let Err(error) = netlink::set_receive_buffer(socket.as_fd(), RECEIVE_BUFFER) {
        log::warn!("Cannot enlarge the buffer for events: {error}");
    }
    Ok(socket)
}

/// Events of a text: blocks of `KEY=VALUE` lines with blank lines between. Lines without `=` in front
/// of a block and `#` lines are skipped, so that the output of `udevadm monitor --kernel --property`
/// of any machine will do. A block that is no event is logged and left out.
pub fn parse_events(text: &[u8]) -> Vec<Uevent> {
    let mut events = Vec::new();
    let mut block: Vec<&[u8]> = Vec::new();
    for (number, line) in text.split(|&b| b == b'\n').chain([&b""[..]]).enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.starts_with(b"#") {
            continue;
        }
        if !line.trim_ascii().is_empty() {
            if !block.is_empty() || line.contains(&b'=') {
                block.push(line);
            }
            continue;
        }
        if block.is_empty() {
            continue;
        }
        match Uevent::from_lines(block.drain(..)) {
            Ok(event) => events.push(event),
            Err(error) => log::error!("Line {}: the block that ends here is no event: {error}", number + 1),
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_monitor_is_a_file_of_events() {
        let text = b"monitor will print the received events for:\nKERNEL - the kernel uevent\n\n\
            KERNEL[123.4] add      /devices/x (y)\nACTION=add\nDEVPATH=/devices/x\nSUBSYSTEM=y\nSEQNUM=1\n\n\n\
            # a remark\nACTION=change\nDEVPATH=/devices/z\r\n# another\nSUBSYSTEM=y\nSEQNUM=2\nA=b=c\n\n\
            ACTION=frob\nDEVPATH=/devices/z\nSUBSYSTEM=y\nSEQNUM=3\n\n\
            ACTION=remove\nDEVPATH=/devices/x\nSUBSYSTEM=y\nSEQNUM=4";
        let events = parse_events(text);
        let short: Vec<_> =
            events.iter().map(|e| (e.action.as_str(), e.devpath.to_string(), e.seqnum.0)).collect();
        assert_eq!(
            short,
            [
                ("add", "/devices/x".to_owned(), 1),
                ("change", "/devices/z".to_owned(), 2),
                ("remove", "/devices/x".to_owned(), 4)
            ]
        );
        assert_eq!(events[1].properties.get("A").unwrap(), "b=c");
        assert!(parse_events(b"").is_empty());
    }

    #[test]
    fn what_the_kernel_has_not_sent_is_refused() {
        let good = b"add@/devices/x\0ACTION=add\0DEVPATH=/devices/x\0SUBSYSTEM=y\0SEQNUM=1\0";
        let root = Some(netlink::Credentials { pid: 0, uid: 0 });
        let received = |portid, groups, credentials, truncated| Received {
            len: good.len(),
            sender: netlink::Sender { portid, groups, credentials },
            truncated,
        };
        let user = Some(netlink::Credentials { pid: 9, uid: 1000 });
        let (mut inbox, mut stats) = (VecDeque::new(), Stats::default());
        for bad in [
            received(7, 1, root, false),
            received(0, 2, root, false),
            received(0, 1, user, false),
            received(0, 1, None, false),
            received(0, 1, root, true),
        ] {
            take(bad, good, &mut inbox, &mut stats);
        }
        take(received(0, 1, root, false), b"libudev\0x", &mut inbox, &mut stats);
        assert_eq!((inbox.len(), stats.uevents_refused), (0, 6));
        take(received(0, 1, root, false), good, &mut inbox, &mut stats);
        assert_eq!(inbox.len(), 1);
    }
}
