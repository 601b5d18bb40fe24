//! Files that answer late: the file server of the tests itself, and what mudevd does while it waits for one.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/fuse.rs"]
mod fuse;
#[path = "support/live.rs"]
mod live;

use fuse::{File, Fuse, Gate, Step};
use live::{eventually, in_cell};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn the_file_server_of_the_tests_serves_files_and_programs_late_or_at_a_gate() {
    in_cell(|| {
        let gate = Gate::closed();
        let long: Vec<u8> = (0..100_000u32).flat_map(|n| n.to_le_bytes()).collect();
        let files = vec![
            File::text("at once", "x\n"),
            File::text("long", long.clone()),
            File::text("late", "y\n").takes(Step::Read, Duration::from_millis(300)),
            File::program("tool", "#!/bin/sh\necho told\n").waits(Step::Open, gate.clone()),
        ];
        let slow = Fuse::mount(Path::new("/run/slow"), files).expect("mounts");
        assert_eq!(std::fs::read("/run/slow/at once").unwrap(), b"x\n");
        assert_eq!(std::fs::read(slow.file("long")).unwrap(), long);
        assert!(!slow.file("none").exists());
        let mut names: Vec<_> =
            std::fs::read_dir("/run/slow").unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["at once", "late", "long", "tool"]);
        let start = Instant::now();
        assert_eq!(std::fs::read(slow.file("late")).unwrap(), b"y\n");
        assert!(start.elapsed() >= Duration::from_millis(300));
        // Two that wait and one that does not.
        std::thread::scope(|scope| {
            let output = scope.spawn(|| Command::new("/run/slow/tool").output().expect("runs"));
            eventually("the program is opened", || gate.waiting() == 1);
            assert_eq!(std::fs::read("/run/slow/at once").unwrap(), b"x\n", "others are served");
            assert!(!output.is_finished());
            gate.open();
            assert_eq!(output.join().unwrap().stdout, b"told\n");
            assert_eq!(gate.waiting(), 0);
        });
    });
}

#[test]
fn who_waits_for_a_file_server_that_never_answers_is_freed_when_it_ends() {
    in_cell(|| {
        let never = Gate::closed();
        let files = vec![File::text("stuck", "x").waits(Step::Lookup, never.clone())];
        let slow = Fuse::mount(Path::new("/run/slow"), files).expect("mounts");
        let mut reader = Command::new("cat").arg("/run/slow/stuck").spawn().expect("starts");
        eventually("the reader waits", || never.waiting() == 1);
        reader.kill().expect("sends a signal");
        let status = format!("/proc/{}/status", reader.id());
        eventually("it waits though it was killed", || {
            std::fs::read_to_string(&status).is_ok_and(|status| status.contains("State:\tD"))
        });
        drop(slow);
        reader.wait().expect("ends");
    });
}
