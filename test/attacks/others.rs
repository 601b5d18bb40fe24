//! Clients, rules, programs and surroundings that misbehave while devices come and go.

use crate::Attack;
use crate::cell;
use crate::ground::Ground;
use crate::storms;
use mudev::sys::unix;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;

pub const ATTACKS: &[Attack] = &[
    Attack { name: "/run is full", run: full },
    Attack { name: "no descriptors are left", run: no_descriptors },
    Attack { name: "clients that flood, stall and close", run: clients },
    Attack { name: "rules that are broken and mended", run: reloads },
    Attack { name: "programs that flood, fork and ignore signals", run: programs },
    Attack { name: "forged messages", run: forged },
    Attack { name: "standard error is a pipe that nobody reads", run: stuck_log },
];

fn storm(ground: &mut Ground) {
    (storms::ATTACKS[0].run)(ground);
}

/// Waits until every interface has its record: what failed is done again when there is room, after a pause.
fn wait_for_records(ground: &mut Ground) {
    ground.eventually("all interfaces have records again", |_| {
        let links = std::fs::read_dir("/sys/class/net").expect("a list").flatten();
        let mut records = links.map(|link| {
            let index = std::fs::read_to_string(link.path().join("ifindex")).unwrap_or_default();
            std::fs::read(format!("/run/udev/data/n{}", index.trim()))
        });
        records.all(|record| record.is_ok_and(|record| !record.is_empty())).then_some(())
    });
}

fn full(ground: &mut Ground) {
    cell::mount("none", "/run", "", libc::MS_REMOUNT, "size=8m").expect("makes /run small");
    let hog = Path::new("/run/hog");
    if let Ok(mut file) = std::fs::File::create(hog) {
        while file.write_all(&[0; 4096]).is_ok() {}
    }
    storm(ground);
    std::fs::remove_file(hog).expect("makes room");
    cell::mount("none", "/run", "", libc::MS_REMOUNT, "size=50%").expect("makes /run large");
    wait_for_records(ground);
}

fn no_descriptors(ground: &mut Ground) {
    let pid = ground.pid();
    let limit = |soft: u64| {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: 4096 };
        let set = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
        cell::check(set).expect("sets the limit");
    };
    let is_open = |n: &u64| Path::new(&format!("/proc/{pid}/fd/{n}")).exists();
    limit((0..).find(|n| !is_open(n)).expect("there is no end"));
    storm(ground);
    limit(4096);
    wait_for_records(ground);
}

fn clients(ground: &mut Ground) {
    let connect = |name: &str| unix::connect_seqpacket(&Path::new("/run/udev").join(name)).ok();
    let mut open: Vec<OwnedFd> = Vec::new();
    for _ in 0..ground.of(200) {
        let name = ["control", "mudev.status"][ground.random.below(2)];
        let Some(client) = connect(name) else { continue };
        let message: &[u8] =
            [&b"links"[..], b"status", b"", &[0x5a; 280], &[0; 5000]][ground.random.below(5)];
        let _ = unix::send(client.as_fd(), message);
        if ground.chance(1, 2) {
            open.push(client);
        }
    }
    storm(ground);
    drop(open);
}

/// A broken file, read whole or while it is written, changes nothing of what the others say.
fn reloads(ground: &mut Ground) {
    let path = ground.folder.join("51-broken.rules");
    let broken = ["FROB==\"x\"\n", "ATTR{=\"\n", "GOTO=\"nowhere\"\n", "\0\0\n"];
    for n in 0..ground.of(40) {
        std::fs::write(&path, broken[n % broken.len()].repeat(n)).expect("writes rules");
        if ground.chance(1, 2) {
            ground.signal(libc::SIGHUP);
        }
    }
    storm(ground);
    std::fs::remove_file(&path).expect("ours");
    ground.signal(libc::SIGHUP);
}

fn programs(ground: &mut Ground) {
    let path = ground.folder.join("60-programs.rules");
    let rules = r#"
SUBSYSTEM=="net", KERNEL=="a*", RUN+="/bin/sh -c 'yes | head -c 3000000; sleep 3 &'"
SUBSYSTEM=="net", KERNEL=="r*", RUN+="/bin/sh -c 'trap : TERM INT; exit 3'", RUN+="/none/such"
"#;
    std::fs::write(&path, rules).expect("writes rules");
    ground.signal(libc::SIGHUP);
    storm(ground);
    std::fs::remove_file(&path).expect("ours");
    ground.signal(libc::SIGHUP);
}

fn forged(ground: &mut Ground) {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    let fd = cell::check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_KOBJECT_UEVENT) });
    let socket = unsafe { OwnedFd::from_raw_fd(fd.expect("a socket")) };
    let mut to: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    to.nl_family = libc::AF_NETLINK as u16;
    to.nl_groups = 1;
    for n in 0..ground.of(300) {
        let body = format!(
            "add@/devices/virtual/net/f{n}\0ACTION=add\0DEVPATH=/devices/virtual/net/f{n}\0SUBSYSTEM=net\0SEQNUM={n}\0IFINDEX={n}\0"
        );
        let (address, length) = ((&raw const to).cast(), size_of_val(&to) as libc::socklen_t);
        unsafe { libc::sendto(socket.as_raw_fd(), body.as_ptr().cast(), body.len(), 0, address, length) };
    }
    storm(ground);
}

fn stuck_log(ground: &mut Ground) {
    let (reader, writer) = mudev::sys::process::pipe().expect("a pipe");
    ground.stop();
    ground.start_with(|command| {
        command.arg("--debug").stderr(Stdio::from(writer)).stdout(Stdio::null());
    });
    storm(ground);
    ground.settle();
    drop(reader);
    ground.stop();
    ground.start();
}
