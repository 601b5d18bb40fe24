//! Helpers as processes: they answer, die, hang and are replaced.

use mudev::helper::pool::{Delivery, Executable, Launcher, Order, Pool, Register};
use mudev::model::Now;
use mudev::model::operation::{AttrPlace, LockState, Operation, OperationReply};
use mudev::sys::clock::monotonic;
use mudev::sys::process::wait_readable;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// Stands in for the loop: keeps the sockets it was told of.
#[derive(Default)]
struct Sockets(RefCell<HashMap<u64, OwnedFd>>);

impl Register for Sockets {
    fn watch(&self, socket: BorrowedFd, helper: u64) -> io::Result<()> {
        self.0.borrow_mut().insert(helper, socket.try_clone_to_owned()?);
        Ok(())
    }
}

struct Bench {
    pool: Pool<&'static str>,
    sockets: Sockets,
}

impl Bench {
    fn new(executable: &str) -> Bench {
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let launcher = Launcher::new(null, Executable::Named(CString::new(executable).unwrap()));
        Bench { pool: Pool::new(launcher), sockets: Sockets::default() }
    }

    fn request(&mut self, caller: &'static str, order: impl Into<Order>, limit: Duration) {
        let now = monotonic();
        self.pool.request(caller, order, now + limit, now, &self.sockets);
    }

    fn polled(&mut self) -> Option<(&'static str, OperationReply)> {
        self.pool.poll_reply().map(|delivery| (delivery.caller, delivery.reply))
    }

    fn reply(&mut self) -> (&'static str, OperationReply) {
        let delivery = self.delivery();
        (delivery.caller, delivery.reply)
    }

    /// Waits for one reply, as the loop would.
    fn delivery(&mut self) -> Delivery<&'static str> {
        let start = monotonic();
        loop {
            if let Some(reply) = self.pool.poll_reply() {
                return reply;
            }
            assert!(monotonic() < start + LIMIT, "no reply");
            let ids: Vec<u64> = self.sockets.0.borrow().keys().copied().collect();
            for id in ids {
                let readable = {
                    let sockets = self.sockets.0.borrow();
                    wait_readable(sockets[&id].as_fd(), Duration::from_millis(2)).unwrap()
                };
                if readable {
                    self.pool.on_readable(id, monotonic(), &self.sockets);
                }
            }
            self.pool.on_time(monotonic(), &self.sockets);
        }
    }
}

fn read_attr(path: &str) -> Operation {
    let (devpath, name) = path.rsplit_once('/').unwrap();
    Operation::ReadAttr { sys: "/".into(), place: AttrPlace { devpath: devpath.into(), name: name.into() } }
}

fn attr(reply: OperationReply) -> Option<String> {
    match reply {
        OperationReply::Attr { value, .. } => Some(value.ok()?.to_string()),
        other => panic!("no attribute: {other:?}"),
    }
}

/// Hangs for ever in the helper: opening a FIFO for writing that nobody reads.
fn hang(folder: &Path) -> Operation {
    std::fs::create_dir_all(folder).unwrap();
    let made = std::process::Command::new("mkfifo").arg(folder.join("uevent")).status().unwrap();
    assert!(made.success());
    Operation::Trigger { text: "change".into(), syspaths: vec![folder.to_str().unwrap().into()] }
}

#[test]
fn an_operation_is_performed_in_another_process() {
    let mut bench = Bench::new(env!("CARGO_BIN_EXE_mudev"));
    bench.request("a", read_attr("/proc/self/comm"), LIMIT);
    assert_eq!(attr(bench.reply().1).as_deref(), Some("mudev-helper"));
    bench.request("b", Operation::PermanentAddress { ifname: "no-such-link".into() }, LIMIT);
    assert_eq!(bench.reply(), ("b", OperationReply::Address(Err(mudev::model::Errno(libc::ENODEV)))));
    bench.request("c", Operation::PermanentAddress { ifname: "lo".into() }, LIMIT);
    assert_eq!(
        bench.reply(),
        ("c", OperationReply::Address(Ok("".into()))),
        "the kernel's, in this namespace"
    );
    assert!(bench.pool.is_idle());
    assert_eq!(bench.sockets.0.borrow().len(), 1, "an idle helper is used again");
}

#[test]
fn a_helper_that_hangs_is_killed_and_others_go_on() {
    let folder = std::env::temp_dir().join(format!("mudev-hang-{}", std::process::id()));
    let mut bench = Bench::new(env!("CARGO_BIN_EXE_mudev"));
    bench.request("stuck", hang(&folder), Duration::from_millis(300));
    bench.request("quick", read_attr("/proc/self/comm"), LIMIT);
    assert_eq!(bench.reply().0, "quick");
    assert_eq!(bench.reply(), ("stuck", OperationReply::TimedOut));
    std::fs::remove_dir_all(&folder).unwrap();
    bench.request("after", read_attr("/proc/self/comm"), LIMIT);
    assert_eq!(bench.reply().0, "after");
}

/// One reader serves both: whatever an attribute turns out to be.
#[test]
fn attributes_of_every_kind_are_the_same_whether_loop_or_helper_reads_them() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    let root = std::env::temp_dir().join(format!("mudev-attrs-{}", std::process::id()));
    let device = root.join("devices/d");
    std::fs::create_dir_all(device.join("power")).unwrap();
    let limit = 256 << 10;
    for (name, content) in [
        ("plain", b"value\n".to_vec()),
        ("empty", Vec::new()),
        ("ends", b"a b \n\r\0\n".to_vec()),
        ("inner", b"a\0b\nc\n".to_vec()),
        ("bytes", vec![0xff, 0xfe, b'\n']),
        ("page", vec![b'x'; 4096]),
        ("pages", vec![b'x'; 20_000]),
        ("inline", vec![b'x'; 32 << 10]),
        ("long", vec![b'x'; (32 << 10) + 1]),
        ("longest", vec![b'x'; limit]),
        ("too long", vec![b'x'; limit + 1]),
        ("secret", b"x".to_vec()),
        ("power/control", b"auto\n".to_vec()),
    ] {
        std::fs::write(device.join(name), content).unwrap();
    }
    std::fs::set_permissions(device.join("secret"), std::fs::Permissions::from_mode(0o200)).unwrap();
    for (name, target) in [
        ("driver", "../../bus/pci/drivers/ahci"),
        ("subsystem", "../../bus/pci"),
        ("module", "/nowhere/mod"),
        ("link", "plain"),
        ("null", "/dev/null"),
        ("loop", "loop"),
    ] {
        symlink(target, device.join(name)).unwrap();
    }
    hang(&device);
    let _socket = UnixListener::bind(device.join("socket")).unwrap();
    let sys = root.to_str().unwrap();
    let sysfs = mudev::world::Sysfs::below(root.clone());
    let mut bench = Bench::new(env!("CARGO_BIN_EXE_mudev"));
    let mut values = Vec::new();
    for name in [
        "plain",
        "empty",
        "ends",
        "inner",
        "bytes",
        "page",
        "pages",
        "inline",
        "long",
        "longest",
        "too long",
        "secret",
        "power/control",
        "driver",
        "subsystem",
        "module",
        "link",
        "null",
        "loop",
        "uevent",
        "socket",
        "power",
        "none",
        "",
        ".",
        "..",
        "plain/x",
        "../d/plain",
        "../../../../../../dev/null",
        "a\0b",
    ] {
        let here = sysfs.read_attr(b"/devices/d", name.as_bytes());
        let operation = Operation::ReadAttr {
            sys: sys.into(),
            place: AttrPlace { devpath: "/devices/d".into(), name: name.into() },
        };
        bench.request("attr", operation, LIMIT);
        let (_, OperationReply::Attr { value: there, waited: false, .. }) = bench.reply() else {
            panic!("{name}")
        };
        assert!(here == there, "{name}: {:?}, {:?}", here.map(|v| v.len()), there.map(|v| v.len()));
        values.push((name, here));
    }
    let of = |name| values.iter().find(|(n, _)| *n == name).unwrap().1.clone();
    assert_eq!(of("longest").unwrap().len(), limit);
    assert_eq!(of("driver"), Ok("ahci".into()));
    for (name, errno) in [
        ("too long", libc::EFBIG),
        ("secret", libc::EPERM),
        ("link", libc::EINVAL),
        ("uevent", libc::EINVAL),
        ("power", libc::EISDIR),
    ] {
        assert_eq!(of(name), Err(mudev::model::Errno(errno)), "{name}");
    }
    std::fs::remove_dir_all(&root).unwrap();
}

/// The time is the test's: as long as it stands still, the first helper has them all.
#[test]
fn a_burst_is_served_by_one_helper_and_a_request_that_has_waited_gets_another() {
    let mut bench = Bench::new(env!("CARGO_BIN_EXE_mudev"));
    let now = monotonic();
    for n in 0..20 {
        bench.pool.request("x", read_attr(&format!("/proc/{n}/comm")), now + LIMIT, now, &bench.sockets);
    }
    assert_eq!((bench.pool.load(), bench.sockets.0.borrow().len()), ((1, 19), 1));
    let soon = bench.pool.timeout().expect("there is work");
    assert!(now < soon && soon < now + Duration::from_millis(10));
    bench.pool.on_time(soon, &bench.sockets);
    assert_eq!(bench.sockets.0.borrow().len(), 2, "the first is still at its first");
    for _ in 0..20 {
        assert_eq!(bench.reply().0, "x");
    }
}

#[test]
fn more_requests_than_helpers_all_get_their_reply() {
    let mut bench = Bench::new(env!("CARGO_BIN_EXE_mudev"));
    for _ in 0..50 {
        bench.request("x", read_attr("/proc/self/comm"), LIMIT);
    }
    for _ in 0..50 {
        assert!(attr(bench.reply().1).is_some());
    }
    assert!(bench.sockets.0.borrow().len() <= 8);
}

#[test]
fn what_cannot_be_started_or_dies_gives_a_reply_too() {
    let mut bench = Bench::new("/no/such/program");
    bench.request("none", read_attr("/x"), LIMIT);
    assert_eq!(bench.reply(), ("none", OperationReply::Died));
    let mut bench = Bench::new("/bin/false");
    bench.request("dies", read_attr("/x"), LIMIT);
    assert_eq!(bench.reply(), ("dies", OperationReply::Died));
    bench.request("late", read_attr("/x"), Duration::ZERO);
    assert_eq!(bench.reply(), ("late", OperationReply::TimedOut));
}

#[test]
fn a_helper_that_has_died_while_it_was_idle_costs_nobody_anything() {
    let mut bench = Bench::new(env!("CARGO_BIN_EXE_mudev"));
    bench.request("before", read_attr("/proc/self/stat"), LIMIT);
    let stat = attr(bench.reply().1).expect("a helper has a status");
    let pid: i32 = stat.split(' ').next().expect("a number").parse().expect("a number");
    unsafe { libc::kill(pid, libc::SIGKILL) };
    // The pool is not told yet.
    let socket = bench.sockets.0.borrow()[&0].try_clone().expect("a copy");
    assert!(wait_readable(socket.as_fd(), LIMIT).expect("waits"), "it does not die");
    bench.request("after", read_attr("/proc/self/comm"), LIMIT);
    assert_eq!(attr(bench.reply().1).as_deref(), Some("mudev-helper"));
}

#[test]
fn a_lock_taken_by_a_helper_is_ours_until_it_is_closed() {
    use mudev::sys::fs::{Lock, try_lock};
    let path = std::env::temp_dir().join(format!("mudev-locked-{}", std::process::id()));
    let tool = File::create(&path).unwrap();
    let is_free = || {
        let free = try_lock(&tool, Lock::Exclusive).unwrap();
        mudev::sys::fs::unlock(&tool).unwrap();
        free
    };
    let mut bench = Bench::new(env!("CARGO_BIN_EXE_mudev"));
    let lock = || Operation::LockDisk { path: path.to_str().unwrap().into() };
    for _ in 0..2 {
        bench.request("lock", lock(), LIMIT);
        let Delivery { reply, file, .. } = bench.delivery();
        assert!(reply == OperationReply::Lock(Ok(LockState::Held)) && file.is_some(), "{reply:?}");
        assert!(!is_free());
        let close = Operation::CloseDisk { disk: "/dev/locked".into() };
        bench.request("close", Order { operation: close, file }, LIMIT);
        assert_eq!(bench.reply(), ("close", OperationReply::Done(Ok(()))));
        assert!(is_free());
    }
    assert!(try_lock(&tool, Lock::Exclusive).unwrap());
    bench.request("lock", lock(), LIMIT);
    assert_eq!(bench.reply(), ("lock", OperationReply::Lock(Ok(LockState::Busy))));
    std::fs::remove_file(&path).unwrap();
    bench.request("lock", lock(), LIMIT);
    assert_eq!(bench.reply(), ("lock", OperationReply::Lock(Ok(LockState::NotNeeded))));
}

#[test]
fn disks_that_hang_leave_helpers_for_other_work() {
    let script = silent("disks");
    let mut bench = Bench::new(script.to_str().unwrap());
    for n in 0..20 {
        bench.request("disk", Operation::LockDisk { path: format!("/dev/none{n}").into() }, LIMIT);
    }
    // One helper more at a time, as long as some have waited long enough.
    let mut now = monotonic();
    let mut go_on = |bench: &mut Bench| {
        now += Duration::from_millis(10);
        bench.pool.on_time(now, &bench.sockets);
    };
    (0..10).for_each(|_| go_on(&mut bench));
    assert_eq!(bench.pool.load(), (5, 15));
    for working in 6..=8 {
        bench.request("other", read_attr(&format!("/proc/{working}/comm")), LIMIT);
        go_on(&mut bench);
        assert_eq!(bench.pool.load(), (working, 15), "it does not wait behind the disks");
    }
    drop(bench);
    std::fs::remove_file(&script).unwrap();
}

/// A helper that never answers.
fn silent(name: &str) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let script = std::env::temp_dir().join(format!("mudev-silent-{name}-{}", std::process::id()));
    std::fs::write(&script, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script
}

#[test]
fn a_device_has_one_helper_at_a_time_and_slow_ones_leave_their_place_to_others() {
    let script = silent("slow");
    let mut bench = Bench::new(script.to_str().unwrap());
    let mut now = monotonic();
    let lock = |disk: usize| Operation::LockDisk { path: format!("/dev/none{disk}").into() };
    for disk in (0..12).chain(0..12) {
        bench.pool.request("disk", lock(disk), now + 10 * LIMIT, now, &bench.sockets);
    }
    let go_on = |bench: &mut Bench, now: &mut Now, step| {
        *now += step;
        bench.pool.on_time(*now, &bench.sockets);
    };
    (0..10).for_each(|_| go_on(&mut bench, &mut now, Duration::from_millis(10)));
    assert_eq!((bench.pool.load(), bench.pool.slow().len()), ((5, 19), 0));
    let soon = bench.pool.timeout().expect("the first becomes slow");
    assert!(soon <= now + Duration::from_secs(3), "{soon:?} {now:?}");
    for expected in [10, 12, 12] {
        go_on(&mut bench, &mut now, Duration::from_secs(4));
        (0..10).for_each(|_| go_on(&mut bench, &mut now, Duration::from_millis(10)));
        assert_eq!(bench.pool.load().0, expected, "each disk gets one");
    }
    assert!(
        bench.pool.slow().iter().all(|helper| !helper.hangs && helper.work.starts_with("open /dev/none"))
    );
    bench.pool.request("alive", lock(99), now + LIMIT, now, &bench.sockets);
    go_on(&mut bench, &mut now, Duration::from_millis(10));
    assert_eq!(bench.pool.load().0, 13, "another disk does not wait for them");
    drop(bench);
    std::fs::remove_file(&script).unwrap();
}

#[test]
fn a_disk_that_nobody_closes_in_time_stays_open_until_a_helper_closes_it() {
    use mudev::sys::fs::{Lock, try_lock};
    use mudev::world::nodes::{DiskLock, lock_disk};
    let script = silent("close");
    let path = std::env::temp_dir().join(format!("mudev-unclosed-{}", std::process::id()));
    let tool = File::create(&path).unwrap();
    let DiskLock::Held(lock) = lock_disk(&path).unwrap() else { panic!("no lock") };
    let mut bench = Bench::new(script.to_str().unwrap());
    let now = monotonic();
    let disk = |name: &str| name.into();
    bench.pool.request(
        "first",
        Operation::LockDisk { path: disk("/dev/x") },
        now + 2 * LIMIT,
        now,
        &bench.sockets,
    );
    let close = Operation::CloseDisk { disk: disk("/dev/x") };
    let close = Order { operation: close, file: Some(lock.into()) };
    bench.pool.request("close", close, now + LIMIT, now, &bench.sockets);
    bench.pool.on_time(now + LIMIT, &bench.sockets);
    assert_eq!(bench.polled(), Some(("close", OperationReply::TimedOut)));
    assert!(!try_lock(&tool, Lock::Exclusive).unwrap(), "it is still open");
    assert_eq!(bench.pool.load(), (1, 0), "but nobody waits for that");
    // The first one is killed, and another helper, which gets the disk, is too at the end.
    bench.pool.on_time(now + 2 * LIMIT, &bench.sockets);
    assert_eq!(bench.polled(), Some(("first", OperationReply::TimedOut)));
    for seconds in 1..10 {
        bench.pool.on_time(now + 2 * LIMIT + Duration::from_secs(seconds), &bench.sockets);
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(bench);
    let start = monotonic();
    while !try_lock(&tool, Lock::Exclusive).unwrap() {
        assert!(monotonic() < start + LIMIT, "it is never closed");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(&script).unwrap();
}

#[test]
fn who_asks_while_others_are_being_killed_is_not_refused() {
    let script = silent("killed");
    let mut bench = Bench::new(script.to_str().unwrap());
    let mut now = monotonic();
    let deadline = now + Duration::from_secs(10);
    for n in 0..8 {
        bench.pool.request("late", read_attr(&format!("/proc/{n}/comm")), deadline, now, &bench.sockets);
    }
    while bench.pool.load().0 < 8 {
        now += Duration::from_millis(100);
        bench.pool.on_time(now, &bench.sockets);
    }
    bench.pool.on_time(deadline, &bench.sockets);
    bench.pool.request("innocent", read_attr("/proc/9/comm"), deadline + LIMIT, deadline, &bench.sockets);
    for _ in 0..8 {
        assert_eq!(bench.polled(), Some(("late", OperationReply::TimedOut)));
    }
    assert_eq!(bench.polled(), None);
    now = deadline;
    let start = monotonic();
    while bench.pool.load() != (1, 0) {
        assert!(monotonic() < start + LIMIT, "it gets no helper");
        now += Duration::from_millis(10);
        bench.pool.on_time(now, &bench.sockets);
        assert_eq!(bench.polled(), None);
        std::thread::yield_now();
    }
    drop(bench);
    std::fs::remove_file(&script).unwrap();
}

#[test]
fn slow_helpers_leave_their_places_as_long_as_there_are_others_and_then_requests_wait_in_order() {
    let script = silent("many");
    let mut bench = Bench::new(script.to_str().unwrap());
    let mut now = monotonic();
    let deadline = now + Duration::from_secs(60);
    let read = |n: usize| read_attr(&format!("/proc/{n}/comm"));
    let go_on = |bench: &mut Bench, now: &mut Now, step| {
        *now += step;
        (0..10).for_each(|_| {
            *now += Duration::from_millis(10);
            bench.pool.on_time(*now, &bench.sockets);
        });
    };
    for n in 0..14 {
        bench.pool.request("slow", read(n), deadline, now, &bench.sockets);
    }
    for expected in [6, 12, 14] {
        go_on(&mut bench, &mut now, Duration::ZERO);
        assert_eq!(bench.pool.load().0, expected, "those before them are slow");
        go_on(&mut bench, &mut now, Duration::from_secs(4));
    }
    for (n, caller) in ["first", "second"].into_iter().enumerate() {
        bench.pool.request(caller, read(100 + n), deadline + LIMIT, now, &bench.sockets);
        go_on(&mut bench, &mut now, Duration::from_secs(1));
    }
    assert_eq!((bench.pool.load(), bench.polled()), ((14, 2), None), "nobody is refused");
    bench.pool.request("disk", Operation::LockDisk { path: "/dev/x".into() }, deadline, now, &bench.sockets);
    go_on(&mut bench, &mut now, Duration::ZERO);
    assert_eq!(bench.pool.load(), (15, 2), "a disk does not wait for them");

    now = deadline;
    bench.pool.on_time(now, &bench.sockets);
    let replies: Vec<_> = std::iter::from_fn(|| bench.polled()).collect();
    assert!(
        replies.iter().all(|(_, reply)| *reply == OperationReply::TimedOut) && replies.len() == 15,
        "{replies:?}"
    );
    let start = monotonic();
    while bench.pool.load() != (2, 0) {
        assert!(monotonic() < start + LIMIT, "they get no helper");
        go_on(&mut bench, &mut now, Duration::ZERO);
        assert_eq!(bench.polled(), None);
        std::thread::yield_now();
    }
    drop(bench);
    std::fs::remove_file(&script).unwrap();
}
