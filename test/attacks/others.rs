//! Clients, rules, programs and surroundings that misbehave while devices come and go.

use crate::Attack;
use crate::cell;
use crate::ground::{Ground, status};
use crate::storms;
use bstr::BString;
use mudev::model::control::{Datagram, Message};
use mudev::sys::unix;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[
    Attack { name: "/run is full", run: full },
    Attack { name: "no descriptors are left", run: no_descriptors },
    Attack { name: "clients that flood, stall and close", run: clients },
    Attack { name: "rules that are broken and mended", run: reloads },
    Attack { name: "programs that flood, fork and ignore signals", run: programs },
    Attack { name: "forged messages", run: forged },
    Attack { name: "forgeries of somebody who may nothing", run: forged_by_nobody },
    Attack { name: "standard error is a pipe that nobody reads", run: stuck_log },
    Attack { name: "a service manager that does not read", run: stuck_manager },
];

fn storm(ground: &mut Ground) {
    (storms::ATTACKS[0].run)(ground);
}

/// Waits until every interface has its record: what failed is done again when there is room, after a pause.
pub fn wait_for_records(ground: &mut Ground) {
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
    ground.others_are_served("/run is full");
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
    let connect = |name: &str| crate::cell::connect(Path::new("/run/udev").join(name)).ok();
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
    ground.others_are_served("clients stall");
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
    forge_uevents(ground.of(300));
    storm(ground);
    ground.others_are_served("messages are forged");
}

/// Uevents that do not come from the kernel, of interfaces that are not there.
fn forge_uevents(count: usize) {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    let fd = cell::check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_KOBJECT_UEVENT) });
    let socket = unsafe { OwnedFd::from_raw_fd(fd.expect("a socket")) };
    let mut to: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    to.nl_family = libc::AF_NETLINK as u16;
    to.nl_groups = 1;
    for n in 0..count {
        let body = format!(
            "add@/devices/virtual/net/f{n}\0ACTION=add\0DEVPATH=/devices/virtual/net/f{n}\0SUBSYSTEM=net\0SEQNUM={n}\0IFINDEX={n}\0"
        );
        let (address, length) = ((&raw const to).cast(), size_of_val(&to) as libc::socklen_t);
        unsafe { libc::sendto(socket.as_raw_fd(), body.as_ptr().cast(), body.len(), 0, address, length) };
    }
}

/// Of the calling thread; the process stays who it is.
fn become_nobody() {
    const NOBODY: libc::c_long = 65_534;
    unsafe {
        cell::check(libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY) as i32).expect("a group");
        cell::check(libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) as i32).expect("a user");
    }
}

/// Somebody without any rights, whom root's mistakes help: the control socket is open to all, and one connection of
/// root has come into the wrong hands.
fn forged_by_nobody(ground: &mut Ground) {
    let path = Path::new("/run/udev/control");
    let open_to = |mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
    open_to(0o666);
    let inherited = crate::cell::connect(path).expect("connects");
    let name = BString::from("A_FORGED");
    let wanted = [
        Message::SetEnv { name, value: BString::from("1") },
        Message::StopExecQueue,
        Message::SetLogLevel(7),
        Message::Exit,
    ];
    let wanted =
        wanted.map(|message| Datagram { version: "udev-252".into(), message }.render().expect("short"));
    let count = ground.of(100);
    let forger = std::thread::spawn(move || {
        become_nobody();
        for n in 0..count {
            let message = &wanted[n % wanted.len()];
            let _ = unix::send(inherited.as_fd(), message);
            if let Ok(client) = crate::cell::connect(path) {
                let _ = unix::send(client.as_fd(), message);
            }
            forge_uevents(3);
        }
    });
    storm(ground);
    forger.join().expect("the forger does not fail");
    ground.others_are_served("nobody forges messages");
    open_to(0o600);
}

fn stuck_log(ground: &mut Ground) {
    let (reader, writer) = mudev::sys::process::pipe().expect("a pipe");
    ground.stop();
    ground.start_with(|command| {
        command.arg("--debug").stderr(Stdio::from(writer)).stdout(Stdio::null());
    });
    storm(ground);
    ground.others_are_served("nobody reads its log");
    ground.settle();
    drop(reader);
    ground.stop();
    ground.start();
}

fn stuck_manager(ground: &mut Ground) {
    let path = ground.folder.join("notify.full");
    let _ = std::fs::remove_file(&path);
    let manager = UnixDatagram::bind(&path).expect("a socket");
    let others = UnixDatagram::unbound().expect("a socket");
    others.set_nonblocking(true).expect("a flag");
    while others.send_to(b"STATUS=well", &path).is_ok() {}
    ground.stop();
    ground.start_unheard(|command| {
        command.env("NOTIFY_SOCKET", &path);
    });
    ground.eventually("it answers", |_| status());
    for _ in 0..ground.of(40) {
        ground.signal(libc::SIGHUP);
        storms::moment(ground, Duration::from_millis(5));
    }
    storm(ground);
    ground.others_are_served("its manager does not read");
    manager.set_nonblocking(true).expect("a flag");
    ground.eventually("its manager hears that it is ready", |_| {
        let mut buffer = [0; 4096];
        let said = manager.recv(&mut buffer).ok()?;
        buffer[..said].starts_with(b"READY=1").then_some(())
    });
    ground.stop();
    ground.start();
}
