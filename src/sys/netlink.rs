//! Netlink sockets: kernel uevents (with credentials), rtnetlink, and the udev group.
//!
//! netlink-sys opens, binds and subscribes them. The parts that the crate does not have work on the descriptor:
//! credentials, truncation, several datagrams in one call, sending to a group, buffers beyond the system's limit.
//!
//! Sources: netlink(7), rtnetlink(7), recvmsg(2), linux/netlink.h; interop.md 2.4, 2.7, 2.8. All sockets
//! are close-on-exec, and non-blocking unless said otherwise. The caller decides by [`Sender`] how far it trusts a
//! sender.

use netlink_sys::protocols::{NETLINK_KOBJECT_UEVENT, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit, size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

/// The sender of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// 0: the kernel.
    pub portid: u32,
    /// Bits of the groups it was sent to; 0 for a unicast.
    pub groups: u32,
    /// SCM_CREDENTIALS; None if the socket does not ask for them.
    pub credentials: Option<Credentials>,
}

/// Process and user of a sender; the kernel itself is (0, 0) outside user namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    pub pid: i32,
    pub uid: u32,
}

/// One datagram, written to the start of the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes in the buffer; of a [`Batch`] the whole length, also of a datagram that was cut.
    pub len: usize,
    pub sender: Sender,
    /// It was longer than the buffer (MSG_TRUNC).
    pub truncated: bool,
}

/// The group of the kernel's uevents, as a number and as a bit.
const KERNEL_GROUP: u32 = 1;

/// A NETLINK_KOBJECT_UEVENT socket bound to the groups of these bits (1 kernel, 2 udev), which delivers
/// credentials. With no bits it is bound to none, and can only send.
pub fn open_uevent(groups: u32) -> io::Result<OwnedFd> {
    let mut socket = open(NETLINK_KOBJECT_UEVENT, false)?;
    pass_credentials(socket.as_fd())?;
    if groups != 0 {
        socket.bind(&SocketAddr::new(0, groups))?;
    }
    Ok(owned(socket))
}

/// Has a socket that someone else opened (socket activation) deliver credentials.
pub fn pass_credentials(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(&socket, libc::SOL_SOCKET, libc::SO_PASSCRED, 1)
}

/// Has a uevent socket that someone else opened receive what the kernel sends, bound or not. The kernel passes over
/// a socket that is in a group but has no address.
pub fn hear_kernel(socket: BorrowedFd<'_>) -> io::Result<()> {
    lent(socket, |socket| {
        socket.bind(&SocketAddr::new(0, KERNEL_GROUP)).or_else(|_| socket.add_membership(KERNEL_GROUP))
    })
}

/// A NETLINK_ROUTE socket with NETLINK_EXT_ACK and NETLINK_GET_STRICT_CHK, as far as the kernel knows
/// them (4.12, 4.20). `blocking` is for the request helper.
pub fn open_route(blocking: bool) -> io::Result<OwnedFd> {
    let mut socket = open(NETLINK_ROUTE, blocking)?;
    for set in [socket.set_ext_ack(true), socket.set_netlink_get_strict_chk(true)] {
        match set {
            Err(error) if error.raw_os_error() != Some(libc::ENOPROTOOPT) => return Err(error),
            _ => {}
        }
    }
    socket.bind(&SocketAddr::new(0, 0))?;
    Ok(owned(socket))
}

/// Subscribes to an rtnetlink group by its number (RTNLGRP_LINK is 1).
pub fn add_membership(socket: BorrowedFd<'_>, group: u32) -> io::Result<()> {
    lent(socket, |socket| socket.add_membership(group))
}

/// Sets the receive buffer to `bytes` (the kernel doubles it): beyond the system's limit if we may
/// (SO_RCVBUFFORCE), up to it otherwise.
pub fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
        .or_else(|_| set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))
}

/// The same of the send buffer (SO_SNDBUFFORCE, SO_SNDBUF), which limits the length of a datagram.
pub fn set_send_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
        .or_else(|_| set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes))
}

/// Size of the receive buffer as the kernel counts it.
#[cfg(test)]
fn receive_buffer(socket: BorrowedFd<'_>) -> io::Result<usize> {
    lent(socket, |socket| socket.get_rx_buf_sz())
}

/// Receives one datagram. WouldBlock when there is none; ENOBUFS once when datagrams were lost, and what
/// is queued can still be read.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let mut address = MaybeUninit::<libc::sockaddr_nl>::zeroed();
    let mut iov = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = Control::new();
    // SAFETY: an all-zero msghdr is valid; every pointer in it outlives the call.
    let (result, header) = unsafe {
        let mut header: libc::msghdr = zeroed();
        header.msg_name = address.as_mut_ptr().cast();
        header.msg_namelen = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        header.msg_iov = &raw mut iov;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = size_of::<Control>() as _;
        (libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC), header)
    };
    let len = check(result)?;
    // SAFETY: zeroed, and then written by the kernel; any bytes are a valid sockaddr_nl.
    let address = unsafe { address.assume_init() };
    Ok(received(len, &header, &address))
}

/// Bytes of the next datagram, which stays. Waits for one on a blocking socket; errors as [`receive`].
pub fn next_len(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let flags = libc::MSG_PEEK | libc::MSG_TRUNC;
    // SAFETY: nothing is written to a buffer of no bytes.
    let result = unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), 0, flags) };
    check(result)
}

/// Receives up to [`Batch::LEN`] datagrams in one call (recvmmsg): a flood of uevents costs a fraction of
/// a system call each.
pub struct Batch {
    /// Bytes for each datagram.
    size: usize,
    buffers: Box<[u8]>,
    received: Vec<Received>,
}

impl Batch {
    pub const LEN: usize = 16;

    /// Room for datagrams of `size` bytes each.
    pub fn new(size: usize) -> Batch {
        Batch {
            size,
            buffers: vec![0; size * Batch::LEN].into_boxed_slice(),
            received: Vec::with_capacity(Batch::LEN),
        }
    }

    /// Makes room for datagrams of `size` bytes each, if there is less; datagrams that were received are dropped.
    pub fn grow(&mut self, size: usize) {
        if size > self.size {
            *self = Batch::new(size);
        }
    }

    /// Takes up to LEN queued datagrams, in place of those of the last call. Returns their number. Errors as
    /// [`receive`]; an error behind the first datagram is reported by the next call.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.received.clear();
        // SAFETY: plain old data, for which all zero is valid.
        let mut addresses: [libc::sockaddr_nl; Batch::LEN] = unsafe { zeroed() };
        let mut iovs: [libc::iovec; Batch::LEN] = unsafe { zeroed() };
        let mut headers: [libc::mmsghdr; Batch::LEN] = unsafe { zeroed() };
        let mut controls = [const { Control::new() }; Batch::LEN];
        let buffers = self.buffers.chunks_exact_mut(self.size.max(1));
        let mut used = 0;
        for (((buffer, address), (iov, header)), control) in
            buffers.zip(&mut addresses).zip(iovs.iter_mut().zip(&mut headers)).zip(&mut controls)
        {
            *iov = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let header = &mut header.msg_hdr;
            header.msg_name = (&raw mut *address).cast();
            header.msg_namelen = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
            header.msg_iov = iov;
            header.msg_iovlen = 1;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = size_of::<Control>() as _;
            used += 1;
        }
        // SAFETY: the first `used` headers point to arrays that outlive the call.
        let result = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                used,
                (libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC | libc::MSG_TRUNC) as _,
                std::ptr::null_mut(),
            )
        };
        let count = check(result as isize)?;
        for (header, address) in headers.iter().zip(&addresses).take(count) {
            self.received.push(received(header.msg_len as usize, &header.msg_hdr, address));
        }
        Ok(count)
    }

    /// Whether the last call found fewer datagrams than it had room for: the socket was empty then, or the next
    /// call reports an overrun, which has made it readable anew.
    pub fn is_short(&self) -> bool {
        self.received.len() < Batch::LEN
    }

    /// The datagrams of the last call, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Received, &[u8])> {
        let buffers = self.buffers.chunks_exact(self.size.max(1));
        self.received.iter().zip(buffers).map(|(r, buffer)| (*r, &buffer[..r.len.min(buffer.len())]))
    }
}

/// Sends to the members of the groups in `groups` (bits) of this namespace, both parts as one datagram.
/// That nobody listens (ECONNREFUSED, ESRCH) is success.
pub fn multicast(socket: BorrowedFd<'_>, groups: u32, parts: [&[u8]; 2]) -> io::Result<()> {
    match send_parts(socket, groups, parts) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ECONNREFUSED | libc::ESRCH)) => Ok(()),
        other => other,
    }
}

/// Sends one datagram to the kernel.
pub fn send(socket: BorrowedFd<'_>, datagram: &[u8]) -> io::Result<()> {
    send_parts(socket, 0, [datagram, &[]])
}

fn send_parts(socket: BorrowedFd<'_>, groups: u32, parts: [&[u8]; 2]) -> io::Result<()> {
    let mut address = kernel_address(groups);
    let mut iov =
        parts.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: an all-zero msghdr is valid; every pointer in it outlives the call, and sending only reads.
    let result = unsafe {
        let mut header: libc::msghdr = zeroed();
        header.msg_name = (&raw mut address).cast();
        header.msg_namelen = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        header.msg_iov = iov.as_mut_ptr();
        header.msg_iovlen = iov.len() as _;
        libc::sendmsg(socket.as_raw_fd(), &raw const header, 0)
    };
    check(result).map(drop)
}

/// Room for one SCM_CREDENTIALS, aligned as the kernel wants it.
#[repr(align(8))]
struct Control([u8; 64]);

impl Control {
    const fn new() -> Control {
        Control([0; 64])
    }
}

fn received(len: usize, header: &libc::msghdr, address: &libc::sockaddr_nl) -> Received {
    let from_netlink = header.msg_namelen as usize >= size_of::<libc::sockaddr_nl>();
    Received {
        len,
        sender: Sender {
            // Without an address it is surely not the kernel.
            portid: if from_netlink { address.nl_pid } else { u32::MAX },
            groups: if from_netlink { address.nl_groups } else { 0 },
            credentials: credentials(header),
        },
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
    }
}

fn credentials(header: &libc::msghdr) -> Option<Credentials> {
    // SAFETY: the kernel filled msg_control up to msg_controllen; the macros stay within it, and the data
    // of a SCM_CREDENTIALS is a struct ucred, copied out because it need not be aligned.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET
                && (*message).cmsg_type == libc::SCM_CREDENTIALS
                && (*message).cmsg_len as usize >= libc::CMSG_LEN(size_of::<libc::ucred>() as u32) as usize
            {
                let ucred = libc::CMSG_DATA(message).cast::<libc::ucred>().read_unaligned();
                return Some(Credentials { pid: ucred.pid, uid: ucred.uid });
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
}

fn open(protocol: isize, blocking: bool) -> io::Result<Socket> {
    let socket = Socket::new(protocol)?;
    if !blocking {
        socket.set_non_blocking(true)?;
    }
    Ok(socket)
}

fn owned(socket: Socket) -> OwnedFd {
    // SAFETY: the descriptor was the socket's own and is nobody's now.
    unsafe { OwnedFd::from_raw_fd(socket.into_raw_fd()) }
}

/// Lends a descriptor to a function that takes the crate's own type.
fn lent<R>(socket: BorrowedFd<'_>, work: impl FnOnce(&mut Socket) -> R) -> R {
    // SAFETY: the descriptor stays open while it is borrowed, and what would close it is never dropped.
    let mut socket = ManuallyDrop::new(unsafe { Socket::from_raw_fd(socket.as_raw_fd()) });
    work(&mut socket)
}

/// Port 0: the kernel as a destination, a port of the kernel's choice as our own.
fn kernel_address(groups: u32) -> libc::sockaddr_nl {
    // SAFETY: plain old data.
    let mut address: libc::sockaddr_nl = unsafe { zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = groups;
    address
}

fn set_option(socket: &impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the value is valid for the size given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    check(result as isize).map(drop)
}

/// The errno of a call that returned a negative number.
fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// A group that nobody uses: these tests run on the machine's own namespace.
    const GROUP: u32 = 1 << 20;

    #[test]
    fn a_multicast_arrives_whole_with_its_sender() {
        // Sending to a group takes CAP_NET_ADMIN, as every daemon of ours has.
        let receiver = open_uevent(GROUP).unwrap();
        let sender = open_uevent(0).unwrap();
        multicast(sender.as_fd(), GROUP, [b"libudev", b" and more"]).unwrap();
        let mut buffer = [0; 64];
        let received = receive(receiver.as_fd(), &mut buffer).unwrap();
        assert_eq!(&buffer[..received.len], b"libudev and more");
        assert!(!received.truncated);
        assert_ne!(received.sender.portid, 0);
        assert_eq!(received.sender.groups, GROUP);
        let credentials = received.sender.credentials.unwrap();
        assert_eq!(credentials.pid, std::process::id() as i32);
        assert_eq!(receive(receiver.as_fd(), &mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_datagram_longer_than_the_buffer_says_so() {
        let receiver = open_uevent(GROUP << 1).unwrap();
        let sender = open_uevent(0).unwrap();
        multicast(sender.as_fd(), GROUP << 1, [&[7; 100], &[]]).unwrap();
        let mut buffer = [0; 10];
        assert!(receive(receiver.as_fd(), &mut buffer).unwrap().truncated);
    }

    #[test]
    fn nobody_listening_is_no_error() {
        let sender = open_uevent(0).unwrap();
        multicast(sender.as_fd(), GROUP << 2, [b"x", b""]).unwrap();
    }

    #[test]
    fn a_batch_keeps_order_and_boundaries() {
        let receiver = open_uevent(GROUP << 3).unwrap();
        let sender = open_uevent(0).unwrap();
        let mut batch = Batch::new(32);
        assert_eq!(batch.receive(receiver.as_fd()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        for i in 0..Batch::LEN as u8 + 2 {
            multicast(sender.as_fd(), GROUP << 3, [&[i], &vec![b'x'; usize::from(i)]]).unwrap();
        }
        let mut seen = 0u8;
        for expected in [Batch::LEN, 2] {
            assert_eq!(batch.receive(receiver.as_fd()).unwrap(), expected);
            for (received, bytes) in batch.iter() {
                assert_eq!((bytes[0], bytes.len()), (seen, usize::from(seen) + 1));
                assert!(received.sender.credentials.is_some() && !received.truncated);
                seen += 1;
            }
        }
    }

    #[test]
    fn the_receive_buffer_can_be_tiny_and_overruns_once() {
        let receiver = open_uevent(GROUP << 4).unwrap();
        set_receive_buffer(receiver.as_fd(), 1).unwrap();
        let floor = receive_buffer(receiver.as_fd()).unwrap();
        assert!(floor < 16_384, "{floor}");
        let sender = open_uevent(0).unwrap();
        for _ in 0..100 {
            multicast(sender.as_fd(), GROUP << 4, [&[1; 500], &[]]).unwrap();
        }
        let mut buffer = [0; 512];
        let error = receive(receiver.as_fd(), &mut buffer).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS));
        assert_eq!(receive(receiver.as_fd(), &mut buffer).unwrap().len, 500);
    }

    #[test]
    fn rtnetlink_answers() {
        let socket = open_route(true).unwrap();
        add_membership(socket.as_fd(), 1).unwrap();
        send(socket.as_fd(), &crate::links::request::get_link(crate::model::IfIndex(1), 5)).unwrap();
        let mut buffer = vec![0; 32 * 1024];
        let received = receive(socket.as_fd(), &mut buffer).unwrap();
        assert_eq!(received.sender, Sender { portid: 0, groups: 0, credentials: None });
        let frame = crate::links::wire::frames(&buffer[..received.len]).next().unwrap().unwrap();
        assert_eq!((frame.kind, frame.seq), (crate::links::wire::RTM_NEWLINK, 5));
    }
}
