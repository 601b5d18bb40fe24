use super::*;
use crate::sys::process::{open_null, pipe, read, wait_readable};
use std::ffi::CStr;
use std::fs::File;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);

fn strings(all: &[&str]) -> ExecStrings {
    let mut strings = ExecStrings::new();
    all.iter().for_each(|s| strings.push(&[s.as_bytes()]));
    strings
}

fn start(program: Program, argv: &[&str], envp: &[&str], memory: Memory) -> io::Result<(Child, OwnedFd)> {
    let null = open_null()?;
    let (reader, writer) = pipe()?;
    let stdio = [null.as_fd(), writer.as_fd(), null.as_fd()];
    let what = Spawn { program, argv: strings(argv), envp: strings(envp), stdio };
    Ok((spawn_in(what, memory)?, reader))
}

fn outcome((mut child, reader): (Child, OwnedFd)) -> io::Result<(Ended, String)> {
    let (mut output, mut buffer) = (Vec::new(), [0; 1000]);
    loop {
        assert!(wait_readable(reader.as_fd(), LIMIT)?);
        match read(reader.as_fd(), &mut buffer)? {
            0 => break,
            n => output.extend_from_slice(&buffer[..n]),
        }
    }
    assert!(wait_readable(child.as_fd(), LIMIT)?);
    let ended = child.try_wait()?.expect("it has ended");
    assert_eq!(child.try_wait()?, Some(ended), "and stays so");
    assert_eq!(child.signal(libc::SIGKILL).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    Ok((ended, String::from_utf8(output).expect("text")))
}

/// In shared and in copied memory: it must make no difference.
fn run(path: &CStr, argv: &[&str], envp: &[&str]) -> (Ended, String) {
    let one = |memory| {
        outcome(start(Program::Path(path.to_owned()), argv, envp, memory).expect("starts")).expect("ends")
    };
    let (shared, copied) = (one(Memory::Shared), one(Memory::Copied));
    assert_eq!(shared, copied);
    shared
}

#[test]
fn a_child_gets_its_arguments_and_only_its_environment() {
    let script = "echo \"$0 $1\"; cat; tr '\\0' ' ' </proc/$$/environ; ulimit -n; umask";
    // The mask of this one thread, which a child would inherit.
    let (ended, output) = std::thread::spawn(move || {
        // SAFETY: no memory involved.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FS) }, 0);
        crate::sys::process::set_umask(0o077);
        run(c"/bin/sh", &["/bin/sh", "-c", script, "a b", "c"], &["A=1", "B=2"])
    })
    .join()
    .unwrap();
    assert_eq!(ended, Ended::Exited(0));
    assert_eq!(output, "a b c\nA=1 B=2 1024\n0022\n");
}

#[test]
fn a_child_leads_its_own_process_group_with_no_signal_blocked_or_ignored() {
    let script = "read -r pid _ _ _ pgrp _ </proc/self/stat; [ $pid = $pgrp ] || echo group $pid $pgrp; \
         exec grep -E 'Sig(Blk|Ign)' /proc/self/status";
    let (_, output) =
        run(c"/bin/sh", &["sh", "-c", &format!("exec 2>&1; {script}")], &["PATH=/bin:/usr/bin"]);
    let mask = |text: &str, name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name)).expect("a line of the mask");
        u64::from_str_radix(line.trim(), 16).expect("a mask")
    };
    assert_eq!(mask(&output, "SigBlk:"), 0, "{output}");
    // What our own parent ignores stays so here: the daemon resets it once at its start.
    let ours = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    assert_eq!(mask(&output, "SigIgn:"), mask(&ours, "SigIgn:") & !(1 << (libc::SIGPIPE - 1)));
    assert!(!output.contains("group"), "{output}");
}

#[test]
fn the_status_tells_exit_from_signal() {
    assert_eq!(run(c"/bin/sh", &["sh", "-c", "exit 7"], &[]).0, Ended::Exited(7));
    assert_eq!(run(c"/bin/sh", &["sh", "-c", "kill -9 $$"], &[]).0, Ended::Killed(9));
}

#[test]
fn what_cannot_be_executed_ends_with_the_reason() {
    assert_eq!(run(c"/no/such/file", &["x"], &[]).0, Ended::NotExecuted(libc::ENOENT));
    assert_eq!(run(c"/etc/passwd", &["x"], &[]).0, Ended::NotExecuted(libc::EACCES));
    let long = "x".repeat(1 << 20);
    assert_eq!(run(c"/bin/true", &["true", &long], &[]).0, Ended::NotExecuted(libc::E2BIG));
}

#[test]
fn arguments_and_environment_may_be_long() {
    let long = "x".repeat(100 << 10);
    let (ended, output) = run(
        c"/bin/sh",
        &["sh", "-c", "echo ${#A} ${#B} ${#1}", "", &long],
        &[&format!("A={long}"), &format!("B={long}")],
    );
    assert_eq!((ended, output.as_str()), (Ended::Exited(0), "102400 102400 102400\n"));
}

#[test]
fn an_open_file_is_executed_whatever_became_of_its_name() {
    let path = std::env::temp_dir().join(format!("mudev-program-{}", std::process::id()));
    std::fs::copy("/bin/echo", &path).unwrap();
    let file = File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for memory in [Memory::Shared, Memory::Copied] {
        let ended = outcome(start(Program::File(file.as_fd()), &["echo", "hi"], &[], memory).unwrap());
        assert_eq!(ended.unwrap(), (Ended::Exited(0), "hi\n".to_owned()));
    }
}

#[test]
fn a_descriptor_that_would_be_replaced_is_refused() {
    let null = open_null().unwrap();
    let stdin = std::io::stdin();
    let stdio = [null.as_fd(), stdin.as_fd(), null.as_fd()];
    let (argv, envp) = (strings(&["true"]), strings(&[]));
    let what = Spawn { program: Program::Path(c"/bin/true".into()), argv, envp, stdio };
    assert_eq!(spawn(what).unwrap_err().raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn a_whole_group_is_signalled() {
    let argv = ["sh", "-c", "sleep 100 & echo started; wait"];
    for memory in [Memory::Shared, Memory::Copied] {
        let (mut child, reader) =
            start(Program::Path(c"/bin/sh".into()), &argv, &["PATH=/bin:/usr/bin"], memory).unwrap();
        assert!(wait_readable(reader.as_fd(), LIMIT).unwrap());
        assert!(!child.is_starting());
        let mut buffer = [0; 100];
        assert_eq!(read(reader.as_fd(), &mut buffer).unwrap(), 8);
        assert_eq!(child.try_wait().unwrap(), None);
        child.signal(libc::SIGTERM).unwrap();
        assert_eq!(child.wait().unwrap(), Ended::Killed(libc::SIGTERM));
        // End of file only when the grandchild is gone too.
        assert!(wait_readable(reader.as_fd(), LIMIT).unwrap());
        assert_eq!(read(reader.as_fd(), &mut buffer).unwrap(), 0);
    }
}

#[test]
fn a_child_that_was_just_started_can_be_killed_and_forgotten() {
    for n in 0..200 {
        let memory = if n % 2 == 0 { Memory::Shared } else { Memory::Copied };
        let (mut child, _reader) =
            start(Program::Path(c"/bin/sleep".into()), &["sleep", "100"], &[], memory).unwrap();
        child.signal(libc::SIGKILL).unwrap();
        if n % 3 == 0 {
            // Nobody is left to say when its memory is free.
            wait_readable(child.as_fd(), LIMIT).unwrap();
            continue;
        }
        assert_eq!(child.wait().unwrap(), Ended::Killed(libc::SIGKILL));
        assert!(!child.is_starting());
    }
}

/// An `errno` of the child must never be taken for ours.
#[test]
fn what_fails_in_a_child_leaves_our_errno_alone() {
    let (reader, _writer) = pipe().unwrap();
    let mut children = Vec::new();
    for _ in 0..300 {
        children.push(start(Program::Path(c"/no/such/file".into()), &["x"], &[], Memory::Shared).unwrap());
        for _ in 0..50 {
            assert_eq!(read(reader.as_fd(), &mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }
    for child in children {
        assert_eq!(outcome(child).unwrap().0, Ended::NotExecuted(libc::ENOENT));
    }
}
