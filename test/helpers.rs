//! Helpers as processes: they answer, die, hang and are replaced.

use mudev::helper::operations::{Operation, Reply};
use mudev::helper::pool::{Launcher, Pool, Register};
use mudev::sys::clock::monotonic;
use mudev::sys::process::wait_readable;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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
        let launcher = Launcher::new(null, CString::new(executable).unwrap());
        Bench { pool: Pool::new(launcher), sockets: Sockets::default() }
    }

    fn request(&mut self, caller: &'static str, operation: Operation, limit: Duration) {
        let now = monotonic();
        self.pool.request(caller, operation, now + limit, now, &self.sockets);
    }

    /// Waits for one reply, as the loop would.
    fn reply(&mut self) -> (&'static str, Reply) {
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
    Operation::ReadAttr { path: path.into() }
}

#[test]
fn an_operation_is_performed_in_another_process() {
    let mut bench = Bench::new(env!("CARGO_BIN_EXE_mudev"));
    bench.request("a", read_attr("/proc/self/comm"), LIMIT);
    assert_eq!(bench.reply(), ("a", Reply::Text(Ok(Some("mudev-helper".into())))));
    bench.request("b", Operation::PermanentAddress { ifname: "no-such-link".into() }, LIMIT);
    assert_eq!(bench.reply(), ("b", Reply::Address(Err(mudev::model::Errno(libc::ENODEV)))));
    bench.request("c", Operation::PermanentAddress { ifname: "lo".into() }, LIMIT);
    assert_eq!(bench.reply(), ("c", Reply::Address(Ok("".into()))), "the kernel's, in this namespace");
    assert!(bench.pool.is_idle());
    assert_eq!(bench.sockets.0.borrow().len(), 1, "an idle helper is used again");
}

#[test]
fn a_helper_that_hangs_is_killed_and_others_go_on() {
    let fifo = std::env::temp_dir().join(format!("mudev-fifo-{}", std::process::id()));
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let mut bench = Bench::new(env!("CARGO_BIN_EXE_mudev"));
    // Opening a FIFO that nobody writes to waits for ever.
    bench.request("stuck", read_attr(fifo.to_str().unwrap()), Duration::from_millis(300));
    bench.request("quick", read_attr("/proc/self/comm"), LIMIT);
    assert_eq!(bench.reply().0, "quick");
    assert_eq!(bench.reply(), ("stuck", Reply::TimedOut));
    std::fs::remove_file(&fifo).unwrap();
    bench.request("after", read_attr("/proc/self/comm"), LIMIT);
    assert_eq!(bench.reply().0, "after");
}

/// The time is the test's: as long as it stands still, the first helper has them all.
#[test]
fn a_burst_is_served_by_one_helper_and_a_request_that_has_waited_gets_another() {
    let mut bench = Bench::new(env!("CARGO_BIN_EXE_mudev"));
    let now = monotonic();
    for _ in 0..20 {
        bench.pool.request("x", read_attr("/proc/self/comm"), now + LIMIT, now, &bench.sockets);
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
        assert!(matches!(bench.reply(), ("x", Reply::Text(Ok(Some(_))))));
    }
    assert!(bench.sockets.0.borrow().len() <= 8);
}

#[test]
fn what_cannot_be_started_or_dies_gives_a_reply_too() {
    let mut bench = Bench::new("/no/such/program");
    bench.request("none", read_attr("/x"), LIMIT);
    assert_eq!(bench.reply(), ("none", Reply::Died));
    let mut bench = Bench::new("/bin/false");
    bench.request("dies", read_attr("/x"), LIMIT);
    assert_eq!(bench.reply(), ("dies", Reply::Died));
    bench.request("late", read_attr("/x"), Duration::ZERO);
    assert_eq!(bench.reply(), ("late", Reply::TimedOut));
}

#[test]
fn a_helper_that_has_died_while_it_was_idle_costs_nobody_anything() {
    let mut bench = Bench::new(env!("CARGO_BIN_EXE_mudev"));
    bench.request("before", read_attr("/proc/self/stat"), LIMIT);
    let (_, Reply::Text(Ok(Some(stat)))) = bench.reply() else { panic!("no reply") };
    let pid: i32 = stat.to_string().split(' ').next().expect("a number").parse().expect("a number");
    unsafe { libc::kill(pid, libc::SIGKILL) };
    // The pool is not told yet.
    let socket = bench.sockets.0.borrow()[&0].try_clone().expect("a copy");
    assert!(wait_readable(socket.as_fd(), LIMIT).expect("waits"), "it does not die");
    bench.request("after", read_attr("/proc/self/comm"), LIMIT);
    assert_eq!(bench.reply(), ("after", Reply::Text(Ok(Some("mudev-helper".into())))));
}

#[test]
fn a_lock_taken_by_a_helper_is_ours_until_it_is_closed() {
    use mudev::sys::fs::{Lock, try_lock};
    use mudev::world::nodes::DiskLock;
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
        let (_, Reply::Lock(Ok(DiskLock::Held(lock)))) = bench.reply() else { panic!("no lock") };
        assert!(!is_free());
        bench.request("close", Operation::CloseDisk(lock), LIMIT);
        assert_eq!(bench.reply(), ("close", Reply::Done(Ok(()))));
        assert!(is_free());
    }
    assert!(try_lock(&tool, Lock::Exclusive).unwrap());
    bench.request("lock", lock(), LIMIT);
    assert_eq!(bench.reply(), ("lock", Reply::Lock(Ok(DiskLock::Busy))));
    std::fs::remove_file(&path).unwrap();
    bench.request("lock", lock(), LIMIT);
    assert_eq!(bench.reply(), ("lock", Reply::Lock(Ok(DiskLock::NotNeeded))));
}

#[test]
fn disks_that_hang_leave_helpers_for_other_work() {
    use std::os::unix::fs::PermissionsExt;
    // A helper that never answers.
    let script = std::env::temp_dir().join(format!("mudev-silent-{}", std::process::id()));
    std::fs::write(&script, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut bench = Bench::new(script.to_str().unwrap());
    for _ in 0..20 {
        bench.request("disk", Operation::LockDisk { path: "/dev/none".into() }, LIMIT);
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
        bench.request("other", read_attr("/proc/self/comm"), LIMIT);
        go_on(&mut bench);
        assert_eq!(bench.pool.load(), (working, 15), "it does not wait behind the disks");
    }
    drop(bench);
    std::fs::remove_file(&script).unwrap();
}
