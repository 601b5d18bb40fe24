//! The floor: the least that a device manager can do for an event, without rules, table or queue. It
//! receives uevents, writes one record per event of a network interface (temporary file and rename) and
//! announces every event on the udev group. With `--spawn` it also starts /usr/bin/true for each added
//! interface, one at a time, as the bare price of RUN.
//!
//! What another daemon costs above this is the price of being a udev.

use crate::cell::{self, Group};
use std::io::Write;

/// Serves until SIGTERM ends it.
pub fn main(spawn: bool) -> ! {
    let mut kernel = cell::Monitor::join(Group::Kernel).expect("joins the kernel group");
    let announce = cell::Monitor::join(Group::Kernel).expect("a second socket, to send from");
    std::fs::create_dir_all("/run/udev/data").expect("makes /run/udev/data");
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET") {
        let socket = std::os::unix::net::UnixDatagram::unbound().expect("a datagram socket");
        let _ = socket.send_to(b"READY=1", path);
    }
    let mut message = Vec::with_capacity(8192);
    loop {
        let Some(datagram) = kernel.datagram() else {
            cell::wait_readable(&[kernel.fd()], std::time::Duration::from_secs(60));
            continue;
        };
        let Some(body) = datagram.iter().position(|&b| b == 0).map(|end| &datagram[end + 1..]) else {
            continue;
        };
        let get = |key: &[u8]| body.split(|&b| b == 0).find_map(|line| line.strip_prefix(key));
        let subsystem = get(b"SUBSYSTEM=").unwrap_or_default();
        let ifindex = get(b"IFINDEX=").and_then(|i| std::str::from_utf8(i).ok()).unwrap_or_default();
        if subsystem == b"net" && !ifindex.is_empty() {
            write_record(ifindex).expect("writes a record");
            if spawn && get(b"ACTION=") == Some(b"add") {
                let name = String::from_utf8_lossy(get(b"INTERFACE=").unwrap_or_default()).into_owned();
                let status = std::process::Command::new("/usr/bin/true").arg(name).status();
                assert!(status.is_ok_and(|s| s.success()));
            }
        }
        message.clear();
        message.extend_from_slice(b"libudev\0\xfe\xed\xca\xfe");
        for word in [40u32, 40, body.len() as u32] {
            message.extend_from_slice(&word.to_ne_bytes());
        }
        // The hashes matter to filters only; the listener of this benchmark has none.
        message.extend_from_slice(&[0; 16]);
        message.extend_from_slice(body);
        send(announce.fd(), &message);
    }
}

fn write_record(ifindex: &str) -> std::io::Result<()> {
    let temporary = format!("/run/udev/data/.#n{ifindex}");
    let mut file = std::fs::File::create(&temporary)?;
    file.write_all(b"I:1234567890\nE:ID_NET_DRIVER=veth\nE:ID_MM_CANDIDATE=1\nG:systemd\nQ:systemd\nV:1\n")?;
    std::fs::rename(&temporary, format!("/run/udev/data/n{ifindex}"))
}

fn send(fd: i32, message: &[u8]) {
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_groups = Group::Udev as u32;
    let length = size_of_val(&address) as libc::socklen_t;
    let to = (&raw const address).cast();
    unsafe { libc::sendto(fd, message.as_ptr().cast(), message.len(), 0, to, length) };
}
