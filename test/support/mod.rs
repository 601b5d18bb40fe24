//! What real-kernel tests share: a private place to run in, commands, waiting.
//!
//! ```no_run
//! mod support;
//!
//! #[test]
//! fn a_bridge_can_be_made() {
//!     support::isolated("a_bridge_can_be_made", || {
//!         support::run("ip link add br0 type bridge");
//!         support::wait_for("br0 in sysfs", || std::fs::metadata("/sys/class/net/br0").ok());
//!     });
//! }
//! ```
//!
//! [`isolated`] starts the test's own executable again, for this one test, in fresh network and mount
//! namespaces, and runs the closure there: the whole process is inside, so threads, children and
//! `/proc/self` agree, tests run side by side, and everything vanishes with the process. Inside there is
//! an own /sys (that of the new network namespace), a tmpfs on /run and on /tmp, a copy of the nodes of /dev,
//! and `lo`, down.
//!
//! There are no sleeps in tests: [`wait_for`] waits for a condition, with a limit.
#![allow(dead_code)]

pub mod cell;
pub mod rtnl;

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a condition may take, on a loaded machine.
pub const LIMIT: Duration = Duration::from_secs(20);
/// How long a whole test may take before it is killed.
const TEST_LIMIT: Duration = Duration::from_secs(120);
/// Set, in the process inside, to the name of its test.
const INSIDE: &str = "MUDEV_TEST_INSIDE";
/// What the process inside says when the closure has run, so that a misspelt name cannot pass.
const THROUGH: &str = "isolated: the test is through";

/// Runs `body` in namespaces of its own (see the module). `name` is the name of the test function as the
/// harness knows it, with its modules. Without root, which namespaces take, says so and does nothing.
pub fn isolated(name: &str, body: impl FnOnce()) {
    if std::env::var(INSIDE).as_deref() == Ok(name) {
        make_private();
        body();
        println!("{THROUGH}");
        return;
    }
    if unsafe { libc::geteuid() } != 0 {
        println!("{name}: skipped, namespaces take root");
        return;
    }
    let mut command = Command::new(std::env::current_exe().expect("our own executable"));
    command
        .args(["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(INSIDE, name)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0);
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(|| {
            cell::check(libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWNET))?;
            // The processes of the test end when the caller of the test is killed.
            cell::check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            Ok(())
        });
    }
    let mut child = command.spawn().expect("new namespaces");
    let mut stdout = child.stdout.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stdout.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("our child") {
            break Some(status);
        }
        if started.elapsed() > TEST_LIMIT {
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // Whatever the test started and left, it ends with it.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
    if status.is_none() {
        let _ = child.wait();
    }
    let text = reader.join().expect("the reader only reads");
    print!("{text}");
    let status = status.unwrap_or_else(|| panic!("{name}: not through after {TEST_LIMIT:?}"));
    assert!(status.success(), "{name}: {status} inside its namespaces, see above");
    assert!(text.contains(THROUGH), "{name}: did not run; is the name right?");
}

/// Own /sys, /run, /dev and /tmp. The mount namespace is new, but starts as a copy that still shares.
fn make_private() {
    let set_up = || -> std::io::Result<()> {
        cell::mount("none", "/", "", libc::MS_REC | libc::MS_PRIVATE, "")?;
        cell::mount("none", "/sys", "sysfs", 0, "")?;
        cell::mount("none", "/run", "tmpfs", 0, "mode=755")?;
        cell::copy_dev()?;
        // The executable under test and the folder that Cargo gives us may lie below /tmp: cover it only if they do
        // not.
        let used = [std::env::current_exe()?, std::env::current_dir()?];
        if !used.iter().any(|path| path.starts_with("/tmp")) {
            cell::mount("none", "/tmp", "tmpfs", 0, "mode=1777")?;
        }
        Ok(())
    };
    set_up().expect("private mounts");
}

/// Runs a command, its words split at blanks; it must succeed. Returns its output.
#[track_caller]
pub fn run(line: &str) -> String {
    match try_run(line) {
        Ok(output) => output,
        Err(error) => panic!("{line}: {error}"),
    }
}

/// Runs a command, its words split at blanks. Returns its output, or its complaint.
pub fn try_run(line: &str) -> Result<String, String> {
    let mut words = line.split_whitespace();
    let program = words.next().ok_or("no command")?;
    let output = Command::new(program).args(words).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}

/// Waits until `condition` gives something, at most [`LIMIT`].
#[track_caller]
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(started.elapsed() < LIMIT, "waited {LIMIT:?} in vain for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
