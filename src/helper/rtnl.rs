//! The request helper: carries rtnetlink requests, because the kernel works on them *inside the sender's
//! system call*, under the RTNL lock, and the loop must not wait for that lock.
//!
//! Protocol on the SEQPACKET socket of file descriptor 0: each datagram in is one or more raw netlink
//! requests (links/request.rs), each datagram out is one raw datagram of the kernel's reply, up to and
//! including the one that ends it (NLMSG_ERROR, NLMSG_DONE, or the single row of a request for one). Requests
//! are served one after the other, in order; one with a [`GIVE_BY`] in front is not begun past that time, so once
//! that time is over and the request before it has not ended, it is certain never to be begun. [`ASK_DRIVER`] is for
//! the helper itself: ethtool takes the same lock, and a driver that hangs in it holds up all other requests anyway.
//! Whatever goes wrong here is told as an NLMSG_ERROR with the request's sequence number: **every request gets an
//! end**, so the loop needs no second way to learn of failures, but the closing of the socket.

use super::contention::Contention;
use crate::links::wire::{self, *};
use crate::model::Now;
use crate::sys::clock::{monotonic, thread_cpu};
use crate::sys::{self, netlink, process, unix};
use bstr::BString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Fits any request of links/request.rs, and most of what the kernel replies: a piece of a dump has 32 KiB, but it
/// has more where a link takes more. For that the buffer grows, up to [`DATAGRAM_MAX`].
const BUFFER: usize = 64 * 1024;

/// Serves the socket until its other end closes.
pub fn serve_rtnl(client: BorrowedFd<'_>) -> io::Result<()> {
    let route = netlink::open_route(true)?;
    // Where that is not allowed, a request longer than the usual limit is answered with EMSGSIZE.
    let _ = netlink::set_send_buffer(client, DATAGRAM_MAX);
    // Woken by the end of somebody's hold of RTNL, we need not take that one's processor away at once. That it could not be
    // had changes nothing else.
    let _ = process::be_patient();
    let (mut buffer, mut reply) = (vec![0; BUFFER], vec![0; BUFFER]);
    let mut contention = Contention::new();
    loop {
        let received = match unix::receive(client, &mut buffer) {
            Ok(received) => received,
            Err(error) => return if is_gone(&error) { Ok(()) } else { Err(error) },
        };
        if received.len == 0 {
            return Ok(());
        }
        let requests = buffer.get_mut(..received.len).unwrap_or_default();
        if !serve_datagram(client, route.as_fd(), requests, &mut reply, &mut contention)? {
            // Not even a header: there is no sequence number to answer to.
            log::warn!("rtnetlink requests of {} bytes are no messages, ignored", received.len);
        }
    }
}

/// Serves all requests of a datagram; false if it does not end with one. Where the datagram was longer than our
/// buffer, its last request is cut, and answered as too long. `reply` is room for what the kernel answers.
fn serve_datagram(
    client: BorrowedFd,
    route: BorrowedFd,
    mut rest: &mut [u8],
    reply: &mut Vec<u8>,
    contention: &mut Contention,
) -> io::Result<bool> {
    let mut give_by = Now::MAX;
    while !rest.is_empty() {
        let Some(length) = wire::message_len(rest) else {
            let Some(cut) = Request::of_cut(rest) else { return Ok(false) };
            unix::send(client, &cut.failure(&io::Error::from_raw_os_error(libc::EMSGSIZE)))?;
            return Ok(true);
        };
        let (message, after) = rest.split_at_mut(length);
        rest = after.get_mut(wire::align(length) - length..).unwrap_or_default();
        if let Some(limit) = give_by_of(message) {
            give_by = limit;
            continue;
        }
        let Some(request) = Request::prepare(message) else { return Ok(false) };
        let give_by = std::mem::replace(&mut give_by, Now::MAX);
        let began = wire::is_change(message).then(thread_cpu);
        match serve_request(client, route, &request, give_by, message, reply) {
            Err(error) if is_gone(&error) => return Ok(true),
            other => other?,
        }
        let used = began.map(|began| thread_cpu().saturating_sub(began));
        if let Some(rest) = used.and_then(|used| contention.rest_after(used, monotonic())) {
            std::thread::sleep(rest);
        }
    }
    Ok(true)
}

fn serve_request(
    client: BorrowedFd,
    route: BorrowedFd,
    request: &Request,
    give_by: Now,
    message: &[u8],
    buffer: &mut Vec<u8>,
) -> io::Result<()> {
    let served = match request.driver_of(message) {
        _ if give_by <= monotonic() => Err(Failed::Kernel(io::Error::from_raw_os_error(libc::ETIMEDOUT))),
        Some(ifname) => {
            driver(ifname).map_err(Failed::Kernel).and_then(|driver| deliver(client, &request.text(&driver)))
        }
        None => netlink::send(route, message)
            .map_err(Failed::Kernel)
            .and_then(|()| forward(client, route, request, buffer)),
    };
    match served {
        Err(Failed::Kernel(error)) => unix::send(client, &request.failure(&error)),
        Err(Failed::Client(error)) => Err(error),
        Ok(()) => Ok(()),
    }
}

/// The driver of an interface, as ethtool says it. Waits for the lock of all configuration of links.
/// EOPNOTSUPP: the driver does not tell; ENODEV: there is no such interface.
pub fn driver(ifname: &[u8]) -> io::Result<BString> {
    sys::ioctl::interface_socket().and_then(|socket| sys::ioctl::driver_of(socket.as_fd(), ifname))
}

/// On which side a request failed.
enum Failed {
    Kernel(io::Error),
    Client(io::Error),
}

/// The other end of the socket pair is closed.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET))
}

/// Hands a datagram to the client. That it is too long for its socket is the reply's fault.
fn deliver(client: BorrowedFd, datagram: &[u8]) -> Result<(), Failed> {
    unix::send(client, datagram).map_err(|error| match error.raw_os_error() {
        Some(libc::EMSGSIZE) => Failed::Kernel(error),
        _ => Failed::Client(error),
    })
}

/// Copies the reply, to its end.
fn forward(
    client: BorrowedFd<'_>,
    route: BorrowedFd<'_>,
    request: &Request,
    buffer: &mut Vec<u8>,
) -> Result<(), Failed> {
    loop {
        // An error is reported below.
        let length = netlink::next_len(route).unwrap_or(0).min(DATAGRAM_MAX);
        if length > buffer.len() {
            buffer.resize(length.next_power_of_two(), 0);
        }
        let received = match netlink::receive(route, buffer) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Failed::Kernel(error)),
        };
        if received.sender.portid != 0 {
            continue;
        }
        if received.truncated {
            return Err(Failed::Kernel(io::Error::from_raw_os_error(libc::EMSGSIZE)));
        }
        let datagram = buffer.get(..received.len).unwrap_or_default();
        // Replies that are left of an earlier request that failed half-way.
        let mut frames = wire::frames(datagram).map_while(Result::ok).peekable();
        if frames.peek().is_some_and(|frame| frame.seq != request.seq) {
            continue;
        }
        let end = frames.any(|frame| request.is_end(&frame));
        deliver(client, datagram)?;
        if end {
            return Ok(());
        }
    }
}

/// The time that a [`GIVE_BY`] says.
fn give_by_of(message: &[u8]) -> Option<Now> {
    let frame = wire::frames(message).next()?.ok().filter(|frame| frame.kind == GIVE_BY)?;
    wire::read_u64(frame.payload, 0).map(Now::from_nanos)
}

/// What must be remembered of a request.
struct Request {
    /// Its header, which an error quotes.
    header: [u8; HEADER],
    seq: u32,
    /// Neither dump nor acknowledgement: the first row is the whole reply.
    single: bool,
}

impl Request {
    /// Reads the header; sees to it that the kernel will answer: what is no question for rows gets
    /// NLM_F_ACK.
    fn prepare(message: &mut [u8]) -> Option<Request> {
        let frame = wire::frames(message).next()?.ok()?;
        let (mut flags, seq) = (frame.flags, frame.seq);
        let dump = flags & NLM_F_DUMP == NLM_F_DUMP;
        if is_change(message) {
            flags |= NLM_F_ACK;
        }
        message.get_mut(6..8)?.copy_from_slice(&flags.to_ne_bytes());
        let header = *message.first_chunk()?;
        Some(Request { header, seq, single: !dump && flags & NLM_F_ACK == 0 })
    }

    /// A request of which nothing but the header can be trusted.
    fn of_cut(bytes: &[u8]) -> Option<Request> {
        let header = *bytes.first_chunk::<HEADER>()?;
        let is_longer = wire::read_u32(bytes, 0)? as usize > bytes.len();
        is_longer.then_some(Request { header, seq: wire::read_u32(bytes, 8)?, single: true })
    }

    fn is_end(&self, frame: &Frame<'_>) -> bool {
        self.single || matches!(frame.kind, NLMSG_ERROR | NLMSG_DONE)
    }

    /// The interface whose driver is asked for.
    fn driver_of<'m>(&self, message: &'m [u8]) -> Option<&'m [u8]> {
        let frame = wire::frames(message).next()?.ok().filter(|frame| frame.kind == ASK_DRIVER)?;
        let (_, name) = wire::attributes(frame.payload).flatten().find(|(kind, _)| *kind == IFLA_IFNAME)?;
        name.strip_suffix(b"\0")
    }

    /// An NLMSG_ERROR as the kernel would send it.
    fn failure(&self, error: &io::Error) -> Vec<u8> {
        self.end(NLM_F_CAPPED, -error.raw_os_error().unwrap_or(libc::EIO)).finish()
    }

    /// Success with a text.
    fn text(&self, text: &[u8]) -> Vec<u8> {
        self.end(NLM_F_CAPPED | NLM_F_ACK_TLVS, 0).text(NLMSGERR_ATTR_MSG, text).finish()
    }

    fn end(&self, flags: u16, error: i32) -> Builder {
        Builder::new(NLMSG_ERROR, flags, self.seq).payload(&error.to_ne_bytes()).payload(&self.header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::NLM_F_REQUEST;

    fn prepared(mut message: Vec<u8>) -> (Request, Vec<u8>) {
        (Request::prepare(&mut message).unwrap(), message)
    }

    #[test]
    fn every_request_has_an_end() {
        // (request, the kernel's answer is one row, flags as sent)
        for (kind, flags, single, sent) in [
            (RTM_GETLINK, NLM_F_REQUEST, true, NLM_F_REQUEST),
            (RTM_GETLINK, NLM_F_REQUEST | NLM_F_ACK, false, NLM_F_REQUEST | NLM_F_ACK),
            (RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, false, NLM_F_REQUEST | NLM_F_DUMP),
            (RTM_SETLINK, NLM_F_REQUEST, false, NLM_F_REQUEST | NLM_F_ACK),
            (RTM_NEWLINKPROP, NLM_F_REQUEST | NLM_F_ACK, false, NLM_F_REQUEST | NLM_F_ACK),
        ] {
            let (request, message) = prepared(Builder::new(kind, flags, 4).ifinfo(1).finish());
            assert_eq!(request.single, single, "{kind} {flags:#x}");
            assert_eq!(wire::read_u16(&message, 6), Some(sent), "{kind} {flags:#x}");
        }
    }

    #[test]
    fn a_failure_here_looks_like_one_of_the_kernel() {
        let (request, _) = prepared(Builder::new(RTM_GETLINK, NLM_F_REQUEST, 9).ifinfo(1).finish());
        let failure = request.failure(&io::Error::from_raw_os_error(libc::ENOBUFS));
        let frame = wire::frames(&failure).next().unwrap().unwrap();
        let reply = crate::links::decode::reply(&frame).unwrap().unwrap();
        assert_eq!((reply.seq, reply.result), (9, Err(crate::model::Errno(libc::ENOBUFS))));
    }

    #[test]
    fn a_driver_is_asked_for_by_name_and_told_as_the_text_of_a_success() {
        let (request, message) = prepared(crate::links::request::ask_driver(b"eth0", 7));
        assert_eq!(request.driver_of(&message), Some(&b"eth0"[..]));
        let told = request.text(b"e1000");
        let frame = wire::frames(&told).next().unwrap().unwrap();
        let reply = crate::links::decode::reply(&frame).unwrap().unwrap();
        assert_eq!((reply.seq, reply.result, reply.text), (7, Ok(()), "e1000".into()));
        let (request, message) = prepared(Builder::new(RTM_SETLINK, NLM_F_REQUEST, 4).ifinfo(1).finish());
        assert_eq!(request.driver_of(&message), None);
    }

    #[test]
    fn what_comes_too_late_is_not_begun() {
        let (ours, theirs) = unix::seqpacket_pair().unwrap();
        let give_by = |at: Now, seq| {
            let nanos = u64::try_from(at.since_boot().as_nanos()).unwrap();
            Builder::new(GIVE_BY, 0, seq).payload(&nanos.to_ne_bytes()).finish()
        };
        let (before, later) = (monotonic(), monotonic() + std::time::Duration::from_secs(60));
        let get = |seq| Builder::new(RTM_GETLINK, NLM_F_REQUEST, seq).ifinfo(u32::MAX >> 1).finish();
        // The time counts for the next one only.
        let mut datagram =
            [give_by(before, 5), get(5), give_by(later, 6), get(6), give_by(before, 7), get(7), get(8)]
                .concat();
        let route = netlink::open_route(true).unwrap();
        let mut buffer = vec![0; BUFFER];
        assert!(
            serve_datagram(theirs.as_fd(), route.as_fd(), &mut datagram, &mut buffer, &mut Contention::new())
                .unwrap()
        );
        for (seq, errno) in [(5, libc::ETIMEDOUT), (6, libc::ENODEV), (7, libc::ETIMEDOUT), (8, libc::ENODEV)]
        {
            let received = unix::receive(ours.as_fd(), &mut buffer).unwrap();
            let frame = wire::frames(&buffer[..received.len]).next().unwrap().unwrap();
            let reply = crate::links::decode::reply(&frame).unwrap().unwrap();
            assert_eq!((reply.seq, reply.result), (seq, Err(crate::model::Errno(errno))));
        }
    }

    /// The kernel answers ENODEV to each: there is no such link.
    #[test]
    fn each_request_of_a_datagram_is_answered_in_order() {
        let (ours, theirs) = unix::seqpacket_pair().unwrap();
        let mut datagram = [
            crate::links::request::ask_driver(b"mudev-none", 5),
            Builder::new(RTM_GETLINK, NLM_F_REQUEST, 6).ifinfo(u32::MAX >> 1).finish(),
            vec![1, 2, 3],
        ]
        .concat();
        let route = netlink::open_route(true).unwrap();
        let mut buffer = vec![0; BUFFER];
        let served =
            serve_datagram(theirs.as_fd(), route.as_fd(), &mut datagram, &mut buffer, &mut Contention::new());
        assert!(!served.unwrap(), "the last is none");
        for seq in [5, 6] {
            let received = unix::receive(ours.as_fd(), &mut buffer).unwrap();
            let frame = wire::frames(&buffer[..received.len]).next().unwrap().unwrap();
            let reply = crate::links::decode::reply(&frame).unwrap().unwrap();
            assert_eq!((reply.seq, reply.result), (seq, Err(crate::model::Errno(libc::ENODEV))));
        }
    }

    #[test]
    fn what_is_no_message_is_none() {
        for bytes in [&[][..], &[1, 2, 3], &[255; 16]] {
            assert!(Request::prepare(&mut bytes.to_vec()).is_none());
        }
    }

    /// As the process serves it, with its own end of a socket.
    #[test]
    fn a_request_that_is_longer_than_the_buffer_is_answered_too() {
        let (ours, theirs) = unix::seqpacket_pair().unwrap();
        let get = |seq| Builder::new(RTM_GETLINK, NLM_F_REQUEST, seq).ifinfo(u32::MAX >> 1).finish();
        let mut long = Builder::new(RTM_SETLINK, NLM_F_REQUEST, 6).ifinfo(u32::MAX >> 1);
        for _ in 0..3 {
            long = long.attribute(IFLA_IFNAME, &[b'x'; 30_000]);
        }
        unix::send(ours.as_fd(), &[get(5), long.finish()].concat()).unwrap();
        unix::send(ours.as_fd(), &get(7)).unwrap();
        unix::end_sending(ours.as_fd()).unwrap();
        serve_rtnl(theirs.as_fd()).unwrap();
        let mut buffer = vec![0; BUFFER];
        for (seq, errno) in [(5, libc::ENODEV), (6, libc::EMSGSIZE), (7, libc::ENODEV)] {
            let received = unix::receive(ours.as_fd(), &mut buffer).unwrap();
            let frame = wire::frames(&buffer[..received.len]).next().unwrap().unwrap();
            let reply = crate::links::decode::reply(&frame).unwrap().unwrap();
            assert_eq!((reply.seq, reply.result), (seq, Err(crate::model::Errno(errno))));
        }
    }
}
