//! Unix sockets: SEQPACKET with credentials, datagrams to the service manager, socket pairs.

use std::ffi::c_int;
use std::io;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The address of a path, or of an abstract name given with `@` in front. The length counts no
/// terminating NUL (interop.md 3.2). ENAMETOOLONG from 108 bytes on.
fn address(path: &[u8], may_be_abstract: bool) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: plain data.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if path.len() >= address.sun_path.len() || path.is_empty() || path.contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = *from as libc::c_char;
    }
    if may_be_abstract && path[0] == b'@' {
        address.sun_path[0] = 0;
    }
    Ok((address, (offset_of!(libc::sockaddr_un, sun_path) + path.len()) as libc::socklen_t))
}

fn socket(kind: c_int, flags: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory involved; the descriptor is ours.
    unsafe {
        let fd = check(libc::socket(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC | flags, 0))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// A listening SEQPACKET socket, non-blocking, whose connections carry credentials from the first
/// moment on: set after listen(2) that would come too late for a client that connects at once. A
/// stale path must have been removed by the caller (EADDRINUSE).
pub fn listen_seqpacket(path: &Path) -> io::Result<OwnedFd> {
    let (address, len) = address(path.as_os_str().as_bytes(), false)?;
    let fd = socket(libc::SOCK_SEQPACKET, libc::SOCK_NONBLOCK)?;
    pass_credentials(fd.as_fd(), true)?;
    // SAFETY: the address is as long as said.
    unsafe {
        check(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len))?;
        check(libc::listen(fd.as_raw_fd(), libc::SOMAXCONN))?;
    }
    Ok(fd)
}

/// A connected SEQPACKET socket, blocking. It may wait for a listener that accepts nobody.
#[cfg(test)]
pub fn connect_seqpacket(path: &Path) -> io::Result<OwnedFd> {
    connect(path, libc::SOCK_SEQPACKET, None)
}

/// A connected SEQPACKET socket, blocking; neither connecting nor any later sending takes longer than
/// `limit`: WouldBlock then. EPROTOTYPE if another kind of socket listens there.
pub fn connect_seqpacket_within(path: &Path, limit: Duration) -> io::Result<OwnedFd> {
    connect(path, libc::SOCK_SEQPACKET, Some(limit))
}

/// The same for a stream.
pub fn connect_stream_within(path: &Path, limit: Duration) -> io::Result<OwnedFd> {
    connect(path, libc::SOCK_STREAM, Some(limit))
}

fn connect(path: &Path, kind: c_int, limit: Option<Duration>) -> io::Result<OwnedFd> {
    let (address, len) = address(path.as_os_str().as_bytes(), false)?;
    let fd = socket(kind, 0)?;
    if let Some(limit) = limit {
        // A time of nothing would mean no limit.
        let limit = limit.max(Duration::from_millis(1));
        let time = libc::timeval {
            tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_usec: limit.subsec_micros() as libc::suseconds_t,
        };
        let size = size_of::<libc::timeval>() as libc::socklen_t;
        let (level, name) = (libc::SOL_SOCKET, libc::SO_SNDTIMEO);
        // SAFETY: a timeval, as socket(7) says.
        unsafe { check(libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const time).cast(), size))? };
    }
    // SAFETY: the address is as long as said.
    unsafe { check(libc::connect(fd.as_raw_fd(), (&raw const address).cast(), len))? };
    Ok(fd)
}

/// Takes a waiting connection, non-blocking; WouldBlock if there is none.
pub fn accept(listener: BorrowedFd) -> io::Result<OwnedFd> {
    // SAFETY: no address wanted; the descriptor is ours.
    unsafe {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let null = std::ptr::null_mut();
        let fd = check(libc::accept4(listener.as_raw_fd(), null, std::ptr::null_mut(), flags))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// A connected pair of SEQPACKET sockets, close-on-exec. The first is non-blocking.
pub fn seqpacket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [-1; 2];
    // SAFETY: the kernel writes two descriptors that are ours then.
    unsafe {
        check(libc::socketpair(
            libc::AF_UNIX,
            libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
            0,
            fds.as_mut_ptr(),
        ))?;
        let pair = (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]));
        check(libc::fcntl(fds[0], libc::F_SETFL, libc::O_NONBLOCK))?;
        Ok(pair)
    }
}

/// What getsockopt(2) may write into: any bytes of its size are one.
///
/// # Safety
/// Only for types for which that holds.
unsafe trait OptionValue: Copy {}
// SAFETY: a number.
unsafe impl OptionValue for c_int {}
// SAFETY: three numbers.
unsafe impl OptionValue for libc::ucred {}

/// An option of a socket. EINVAL if it is not as large as the type says.
fn option<T: OptionValue>(fd: BorrowedFd, level: c_int, name: c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most the size of the type, and any bytes are a value of it.
    unsafe {
        check(libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut len))?;
        match len as usize == size_of::<T>() {
            true => Ok(value.assume_init()),
            false => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }
}

/// The process at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    pub pid: i32,
    pub uid: u32,
}

impl Credentials {
    /// What the kernel says of a sender that it does not know: no process, and the user that stands for
    /// those without a number (/proc/sys/kernel/overflowuid, as it is by default).
    pub const UNKNOWN: Credentials = Credentials { pid: 0, uid: 65534 };
}

/// The process that connected: its credentials at the time of connect(2).
pub fn peer_credentials(fd: BorrowedFd) -> io::Result<Credentials> {
    let cred: libc::ucred = option(fd, libc::SOL_SOCKET, libc::SO_PEERCRED)?;
    Ok(Credentials { pid: cred.pid, uid: cred.uid })
}

/// Has every received message carry the credentials of its sender, or no longer. Those of a message that
/// was sent before are not known, unless it was sent to a connection that nobody had accepted yet.
pub fn pass_credentials(fd: BorrowedFd, on: bool) -> io::Result<()> {
    let on = c_int::from(on);
    // SAFETY: an int, as socket(7) says.
    unsafe {
        let size = size_of::<c_int>() as libc::socklen_t;
        check(libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            (&raw const on).cast(),
            size,
        ))?;
    }
    Ok(())
}

/// Whether [`pass_credentials`] is on.
pub fn passes_credentials(fd: BorrowedFd) -> io::Result<bool> {
    option::<c_int>(fd, libc::SOL_SOCKET, libc::SO_PASSCRED).map(|on| on != 0)
}

/// One received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes in the buffer; 0 means that the other end has closed (or sent an empty message).
    pub len: usize,
    /// The message was longer than the buffer.
    pub truncated: bool,
    /// Of the sender, where [`pass_credentials`] was asked for.
    pub credentials: Option<Credentials>,
}

/// Receives one message with its credentials; descriptors that came along are closed.
pub fn receive(fd: BorrowedFd, buffer: &mut [u8]) -> io::Result<Received> {
    receive_passed(fd, buffer).map(|(received, _)| received)
}

/// Receives one message with its credentials and the descriptor that came along, if one did; more than one
/// are closed.
pub fn receive_passed(fd: BorrowedFd, buffer: &mut [u8]) -> io::Result<(Received, Option<OwnedFd>)> {
    #[repr(C, align(8))]
    struct Control([u8; 64]);
    let mut control = Control([0; 64]);
    let mut iov = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all pointers are to our own buffers with their right lengths; the walk over the control
    // messages stays inside what the kernel says it filled.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut iov;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = size_of::<Control>() as _;
        let n = libc::recvmsg(fd.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC);
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        let (mut credentials, mut passed) = (None, None);
        let mut message = libc::CMSG_FIRSTHDR(&header);
        while !message.is_null() {
            let m = &*message;
            if m.cmsg_level == libc::SOL_SOCKET && m.cmsg_type == libc::SCM_CREDENTIALS {
                let cred = std::ptr::read_unaligned(libc::CMSG_DATA(message).cast::<libc::ucred>());
                credentials = Some(Credentials { pid: cred.pid, uid: cred.uid });
            } else if m.cmsg_level == libc::SOL_SOCKET && m.cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(message);
                let bytes = m.cmsg_len as usize - (data as usize - message as usize);
                for i in 0..bytes / size_of::<c_int>() {
                    let fd = std::ptr::read_unaligned(data.cast::<c_int>().add(i));
                    passed = Some(OwnedFd::from_raw_fd(fd));
                }
            }
            message = libc::CMSG_NXTHDR(&header, message);
        }
        let truncated = header.msg_flags & libc::MSG_TRUNC != 0;
        Ok((Received { len: n as usize, truncated, credentials }, passed))
    }
}

/// Sends one message; no SIGPIPE. On a non-blocking socket WouldBlock when the other end is slow.
pub fn send(fd: BorrowedFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the bytes are ours and as many as we say.
    let n = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends one message and, with it, a descriptor; the receiver gets one of its own. As [`send`] otherwise.
pub fn send_passing(fd: BorrowedFd, bytes: &[u8], passed: Option<BorrowedFd>) -> io::Result<()> {
    let Some(passed) = passed else { return send(fd, bytes) };
    #[repr(C, align(8))]
    struct Control([u8; 64]);
    let mut control = Control([0; 64]);
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all pointers are to buffers that live until the call returns; the control buffer has room
    // for one descriptor, and the kernel only reads.
    let n = unsafe {
        let size = size_of::<c_int>() as libc::c_uint;
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut iov;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = libc::CMSG_SPACE(size) as _;
        let message = libc::CMSG_FIRSTHDR(&header);
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = libc::SCM_RIGHTS;
        (*message).cmsg_len = libc::CMSG_LEN(size) as _;
        std::ptr::write_unaligned(libc::CMSG_DATA(message).cast::<c_int>(), passed.as_raw_fd());
        libc::sendmsg(fd.as_raw_fd(), &header, libc::MSG_NOSIGNAL)
    };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Says that nothing more will be sent: the other end reads what there is, then the end of file.
pub fn end_sending(fd: BorrowedFd) -> io::Result<()> {
    // SAFETY: no memory involved.
    check(unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_WR) }).map(drop)
}

/// Sends one datagram to the socket of a service manager: a path, or `@name` for an abstract one.
/// Never waits.
pub fn notify(target: &[u8], text: &[u8]) -> io::Result<()> {
    let (address, len) = address(target, true)?;
    let fd = socket(libc::SOCK_DGRAM, 0)?;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: text and address are as long as said.
    let n = unsafe {
        libc::sendto(
            fd.as_raw_fd(),
            text.as_ptr().cast(),
            text.len(),
            flags,
            (&raw const address).cast(),
            len,
        )
    };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What kind of socket a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketKind {
    /// AF_.
    pub domain: c_int,
    /// SOCK_.
    pub kind: c_int,
    pub protocol: c_int,
    pub listens: bool,
}

/// See [`SocketKind`]. ENOTSOCK for anything else.
pub fn socket_kind(fd: BorrowedFd) -> io::Result<SocketKind> {
    let number = |name| option::<c_int>(fd, libc::SOL_SOCKET, name);
    Ok(SocketKind {
        domain: number(libc::SO_DOMAIN)?,
        kind: number(libc::SO_TYPE)?,
        protocol: number(libc::SO_PROTOCOL)?,
        listens: number(libc::SO_ACCEPTCONN)? != 0,
    })
}

/// Makes a descriptor non-blocking.
pub fn set_nonblocking(fd: BorrowedFd) -> io::Result<()> {
    // SAFETY: no memory involved.
    unsafe {
        let flags = check(libc::fcntl(fd.as_raw_fd(), libc::F_GETFL))?;
        check(libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_bounds_and_carry_credentials() {
        let (a, b) = seqpacket_pair().unwrap();
        pass_credentials(a.as_fd(), true).unwrap();
        send(b.as_fd(), b"one").unwrap();
        send(b.as_fd(), b"a long one").unwrap();
        let mut buffer = [0; 5];
        let first = receive(a.as_fd(), &mut buffer).unwrap();
        assert_eq!((first.len, first.truncated), (3, false));
        assert_eq!(first.credentials.unwrap().pid, std::process::id() as i32);
        assert!(receive(a.as_fd(), &mut buffer).unwrap().truncated);
        assert_eq!(receive(a.as_fd(), &mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(b);
        assert_eq!(receive(a.as_fd(), &mut buffer).unwrap().len, 0);
    }

    #[test]
    fn a_descriptor_comes_with_its_message_or_is_closed() {
        let (a, b) = seqpacket_pair().unwrap();
        let (reader, writer) = crate::sys::process::pipe().unwrap();
        for _ in 0..2 {
            send_passing(b.as_fd(), b"one", Some(writer.as_fd())).unwrap();
        }
        drop(writer);
        send_passing(b.as_fd(), b"two", None).unwrap();
        let mut buffer = [0; 8];
        let (received, passed) = receive_passed(a.as_fd(), &mut buffer).unwrap();
        assert_eq!(&buffer[..received.len], b"one");
        crate::sys::process::write(passed.unwrap().as_fd(), b"x").unwrap();
        receive(a.as_fd(), &mut buffer).unwrap();
        let (_, passed) = receive_passed(a.as_fd(), &mut buffer).unwrap();
        assert!(passed.is_none());
        assert_eq!(crate::sys::process::read(reader.as_fd(), &mut buffer).unwrap(), 1);
        assert_eq!(crate::sys::process::read(reader.as_fd(), &mut buffer).unwrap(), 0, "none is left");
    }

    #[test]
    fn listening_connecting_and_kinds() {
        let path = std::env::temp_dir().join(format!("mudev-unix-{}", std::process::id()));
        let listener = listen_seqpacket(&path).unwrap();
        assert_eq!(listen_seqpacket(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let kind = socket_kind(listener.as_fd()).unwrap();
        assert_eq!((kind.domain, kind.kind, kind.listens), (libc::AF_UNIX, libc::SOCK_SEQPACKET, true));
        assert!(accept(listener.as_fd()).is_err());
        let _client = connect_seqpacket(&path).unwrap();
        let server = accept(listener.as_fd()).unwrap();
        assert_eq!(peer_credentials(server.as_fd()).unwrap().pid, std::process::id() as i32);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn addresses_that_do_not_fit_are_refused() {
        assert!(notify(b"", b"x").is_err());
        assert!(notify(&[b'/'; 108], b"x").is_err());
        let (_, len) = address(b"@abc", true).unwrap();
        assert_eq!(len, 6);
    }
}
