//! /run/udev on real file systems: full, read-only, and as Debian's tools read it.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/live.rs"]
mod live;

use live::in_cell;
use mudev::model::DeviceId;
use mudev::model::effect::Sticky;
use mudev::model::event::OrderedSet;
use mudev::model::record::Record;
use mudev::sys::fs::Dir;
use mudev::world::claims_dir::ClaimsDir;
use mudev::world::database::{Database, open_udev_dir};
use mudev::world::watch_dir::WatchDir;
use std::io;
use std::path::Path;
use std::process::Command;

fn id(text: &str) -> DeviceId {
    DeviceId::parse(text.as_bytes()).expect("an id")
}

fn record(value: impl Into<String>) -> Record {
    Record { properties: [("A", value.into())].into_iter().collect(), ..Record::default() }
}

fn set(elements: &[&str]) -> OrderedSet {
    elements.iter().copied().collect()
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

struct RunDir {
    database: Database,
    claims: ClaimsDir,
    watch: WatchDir,
}

fn open(run: &Path) -> RunDir {
    let udev: Dir = open_udev_dir(run).expect("/run/udev");
    RunDir {
        database: Database::open(&udev).expect("a database"),
        claims: ClaimsDir::open(Path::new("/dev"), &udev).expect("claims"),
        watch: WatchDir::open(&udev).expect("watches"),
    }
}

fn mount_tmpfs(onto: &str, options: &str) {
    std::fs::create_dir_all(onto).expect("a mount point");
    cell::mount("none", onto, "tmpfs", 0, options).expect("a tmpfs");
}

#[test]
fn a_record_that_a_full_run_has_no_room_for_is_kept_and_written_later() {
    in_cell(|| {
        mount_tmpfs("/run/full", "size=64k,mode=755");
        let RunDir { mut database, .. } = open(Path::new("/run/full"));
        let n1 = id("n1");
        database.write_record(&n1, &record("old"), Sticky::No, true).expect("there is room");
        let large = record("x".repeat(100_000));
        let error = errno(database.write_record(&n1, &large, Sticky::No, true));
        assert_eq!(error, Some(libc::ENOSPC));
        // Nobody is told of the former one any more, and the next event of the device knows the new one.
        assert_eq!(std::fs::read_dir("/run/full/udev/data").expect("a folder").count(), 0);
        assert_eq!(database.read_record(&n1).expect("to read"), Some(large));
        assert!(database.is_unfinished() && database.finish(&n1).is_err() && database.try_room().is_ok());
        assert_eq!(database.unfinished().collect::<Vec<_>>(), [&n1]);
        database.write_record(&n1, &record("new"), Sticky::No, true).expect("there is room again");
        assert_eq!(database.read_record(&n1).expect("to read"), Some(record("new")));
        assert!(!database.is_unfinished());
    });
}

#[test]
fn what_there_was_no_room_for_is_done_when_there_is() {
    in_cell(|| {
        mount_tmpfs("/run/full", "size=64k,nr_inodes=40,mode=755");
        let RunDir { mut database, mut claims, .. } = open(Path::new("/run/full"));
        let null = id("c1:3");
        let (old, new) = (["old".into()], ["a/new".into()]);
        assert!(claims.apply(&null, b"/dev/null", 0, &[], &old).is_empty());
        database.write_record(&null, &record("rewritten"), Sticky::No, true).expect("there is room");
        std::fs::write("/run/full/page", vec![0; 64 << 10]).expect_err("fills it");
        // The file that is there stays: it says that the device is being processed, which is true for others.
        let errors = [
            database.write_record(&null, &record("x".repeat(8000)), Sticky::AsBefore, true),
            database.end_record(&null, &record("end"), Sticky::Yes, true),
            database.try_room(),
        ];
        assert_eq!(errors.map(errno), [Some(libc::ENOSPC); 3]);
        assert!(std::fs::read_to_string("/run/full/udev/data/c1:3").expect("a record").contains("rewritten"));
        std::fs::remove_file("/run/full/page").expect("was written");
        database.finish(&null).expect("there is room");
        let text = std::fs::read_to_string("/run/full/udev/data/c1:3").expect("a record");
        assert_eq!((text.as_str(), database.is_unfinished()), ("E:A=end\nV:1\n", false));

        for n in 0.. {
            if std::fs::write(format!("/run/full/fill{n}"), "").is_err() {
                break;
            }
        }
        let errors = claims.apply(&null, b"/dev/null", 0, &[], &new);
        assert!(errors.len() == 1 && errors[0].is_shortage() && claims.is_unfinished(), "{errors:?}");
        let mut finish = || {
            let again = claims.take_unfinished();
            let errors = again.iter().filter_map(|link| claims.finish(link)).count();
            (errors, claims.is_unfinished())
        };
        assert_eq!(finish(), (1, true));
        std::fs::remove_file("/run/full/fill0").expect("was made");
        std::fs::remove_file("/run/full/fill1").expect("was made");
        assert_eq!(finish(), (0, false));
        assert!(claims.try_room().is_ok());
        let entry = std::fs::read_link("/run/full/udev/links/a\\x2fnew/c1:3").expect("a claim");
        assert_eq!(entry, Path::new("0:/dev/null"));
        assert!(Path::new("/dev/a/new").exists() && Path::new("/dev/old").exists());
    });
}

#[test]
fn a_run_without_room_for_names_refuses_each_with_one_error() {
    in_cell(|| {
        mount_tmpfs("/run/full", "nr_inodes=9,mode=755");
        let RunDir { mut database, mut claims, watch } = open(Path::new("/run/full"));
        for n in 0.. {
            if std::fs::write(format!("/run/full/fill{n}"), "").is_err() {
                break;
            }
        }
        assert_eq!(
            errno(database.write_record(&id("n1"), &record("1"), Sticky::No, true)),
            Some(libc::ENOSPC)
        );
        assert_eq!(errno(database.add_tags(&id("n1"), set(&["a", "b"]).as_slice())), Some(libc::ENOSPC));
        assert_eq!(errno(watch.add(&id("b8:0"), 1)), Some(libc::ENOSPC));
        assert!(std::fs::read_dir("/run/full/udev/watch").expect("a folder").next().is_none());
        // The symlink in /dev is there all the same.
        let errors = claims.apply(&id("c1:3"), b"/dev/null", 0, &[], &["some/link".into()]);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(std::fs::read_link("/dev/some/link").expect("a symlink"), Path::new("../null"));
    });
}

#[test]
fn a_read_only_run_can_be_opened_and_read() {
    in_cell(|| {
        mount_tmpfs("/run/ro", "mode=755");
        let n1 = id("n1");
        open(Path::new("/run/ro"))
            .database
            .write_record(&n1, &record("1"), Sticky::No, true)
            .expect("to write");
        cell::mount("none", "/run/ro", "tmpfs", libc::MS_REMOUNT | libc::MS_RDONLY, "").expect("to remount");
        let RunDir { mut database, mut claims, watch } = open(Path::new("/run/ro"));
        assert_eq!(database.read_record(&n1).expect("to read"), Some(record("1")));
        assert_eq!(errno(database.write_record(&n1, &record("2"), Sticky::No, true)), Some(libc::EROFS));
        assert_eq!(errno(database.add_tags(&n1, set(&["a"]).as_slice())), Some(libc::EROFS));
        assert_eq!(errno(watch.add(&n1, 1)), Some(libc::EROFS));
        assert_eq!(claims.apply(&id("c1:3"), b"/dev/null", 0, &[], &["l".into()]).len(), 1);
    });
}

#[test]
fn modes_do_not_depend_on_the_umask() {
    in_cell(|| {
        use std::os::unix::fs::MetadataExt;
        // The umask of a thread is that of the process, unless the thread has a file system state of
        // its own, which a mount namespace gives it.
        // SAFETY: no memory is passed.
        unsafe { libc::umask(0o077) };
        std::fs::create_dir("/run/strict").expect("a folder");
        let RunDir { mut database, mut claims, .. } = open(Path::new("/run/strict"));
        database.write_record(&id("n1"), &record("1"), Sticky::Yes, true).expect("to write");
        database.write_record(&id("n2"), &Record::default(), Sticky::No, true).expect("to write");
        database.add_tags(&id("n1"), set(&["a"]).as_slice()).expect("to tag");
        assert!(claims.apply(&id("c1:3"), b"/dev/null", 0, &[], &["new/l".into()]).is_empty());
        for (path, mode) in [
            ("/run/strict/udev", 0o755),
            ("/run/strict/udev/data", 0o755),
            ("/run/strict/udev/data/n1", 0o1644),
            ("/run/strict/udev/data/n2", 0o644),
            ("/run/strict/udev/tags/a", 0o755),
            ("/run/strict/udev/tags/a/n1", 0o444),
            ("/run/strict/udev/links/new\\x2fl", 0o755),
            ("/dev/new", 0o755),
        ] {
            assert_eq!(std::fs::metadata(path).expect(path).mode() & 0o7777, mode, "{path}");
        }
    });
}

#[test]
fn debians_tool_reads_what_was_written() {
    let Some(peer) = cell::peer_root() else {
        eprintln!("skipped: Debian's udev is not unpacked (test/need.sh peer)");
        return;
    };
    in_cell(move || {
        let RunDir { mut database, .. } = open(Path::new("/run"));
        let null = Record {
            symlinks: set(&["foo/bar", "baz"]),
            priority: 7,
            usec_initialized: Some(725464701),
            properties: [("FOO", "b ar")].into_iter().collect(),
            tags: set(&["t-one", "t-two"]),
            current_tags: set(&["t-one"]),
        };
        database.write_record(&id("c1:3"), &null, Sticky::No, true).expect("to write");
        let output = Command::new(peer.join("bin/udevadm"))
            .env("LD_LIBRARY_PATH", peer.join("usr/lib/x86_64-linux-gnu"))
            .args(["info", "--query=all", "--name=/dev/null"])
            .output()
            .expect("udevadm runs");
        let text = String::from_utf8_lossy(&output.stdout);
        for line in [
            "S: foo/bar",
            "S: baz",
            "L: 7",
            "E: FOO=b ar",
            "E: USEC_INITIALIZED=725464701",
            "E: CURRENT_TAGS=:t-one:",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
        let tags = text.lines().find_map(|line| line.strip_prefix("E: TAGS=")).unwrap_or_default();
        assert!(tags.contains(":t-one:") && tags.contains(":t-two:"), "{text}");
    });
}
