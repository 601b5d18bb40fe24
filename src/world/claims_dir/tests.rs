//! Claims and symlinks on the disk of a temporary tree.

use super::super::Sysfs;
use super::super::database::Records;
use super::*;
use crate::world::database::open_udev_dir;
use crate::world::tree::Tree;

fn id(minor: u32) -> DeviceId {
    DeviceId::Block(DevNum { major: 8, minor })
}

fn node(minor: u32) -> String {
    format!("/dev/sd{minor}")
}

/// A tree with the nodes sd0 to sd5.
fn tree() -> Tree {
    let tree = Tree::new();
    tree.dir("run/udev/data").dir("dev").dir("sys");
    for minor in 0..6 {
        tree.file(&node(minor)[1..], "");
    }
    tree
}

fn open(tree: &Tree) -> ClaimsDir {
    let roots = tree.roots();
    ClaimsDir::open(&roots.dev, &open_udev_dir(&roots.run).expect("/run/udev")).expect("folders")
}

fn load(tree: &Tree) -> ClaimsDir {
    let mut dir = open(tree);
    let records = Records::open(&tree.roots().run).expect("records");
    let errors = dir.load(&records, &Sysfs::new(&tree.roots())).expect("to list claims");
    assert!(errors.is_empty(), "{errors:?}");
    dir
}

fn claim(dir: &mut ClaimsDir, minor: u32, priority: i32, link: &str) -> Vec<String> {
    let errors = dir.apply(&id(minor), node(minor).as_bytes(), priority, &[], &[link.into()]);
    errors.iter().map(|error| error.to_string()).collect()
}

fn release(dir: &mut ClaimsDir, minor: u32, link: &str) -> Vec<String> {
    let errors = dir.apply(&id(minor), node(minor).as_bytes(), 0, &[link.into()], &[]);
    errors.iter().map(|error| error.to_string()).collect()
}

/// Where a symlink of the tree points to.
fn target(tree: &Tree, path: &str) -> Option<String> {
    let target = std::fs::read_link(tree.path(path)).ok()?;
    Some(target.display().to_string())
}

const NONE: [String; 0] = [];

#[test]
fn a_claim_makes_symlink_and_entry_and_a_release_removes_them_with_their_folders() {
    let tree = tree();
    let mut dir = open(&tree);
    assert_eq!(claim(&mut dir, 1, 7, "disk/by-id/x"), NONE);
    assert_eq!(target(&tree, "dev/disk/by-id/x").as_deref(), Some("../../sd1"));
    let entry = "run/udev/links/disk\\x2fby-id\\x2fx/b8:1";
    assert_eq!(target(&tree, entry).as_deref(), Some("7:/dev/sd1"));
    assert_eq!(claim(&mut dir, 1, -3, "disk/by-id/x"), NONE);
    assert_eq!(target(&tree, entry).as_deref(), Some("-3:/dev/sd1"));
    tree.file("dev/disk/other", "");
    assert_eq!(release(&mut dir, 1, "disk/by-id/x"), NONE);
    assert!(!tree.path("dev/disk/by-id").exists() && tree.path("dev/disk").exists());
    assert_eq!(std::fs::read_dir(tree.path("run/udev/links")).unwrap().count(), 0);
    assert_eq!(release(&mut dir, 1, "disk/by-id/x"), NONE);
}

#[test]
fn the_symlink_follows_the_best_claim_whose_node_is_there() {
    let tree = tree();
    let mut dir = open(&tree);
    let now = || target(&tree, "dev/l");
    for (minor, priority, owner) in [(0, 0, "sd0"), (1, 5, "sd1"), (2, 0, "sd1"), (3, 5, "sd3")] {
        assert_eq!(claim(&mut dir, minor, priority, "l"), NONE);
        assert_eq!(now().as_deref(), Some(owner));
    }
    std::fs::remove_file(tree.path("dev/sd1")).unwrap();
    assert_eq!(release(&mut dir, 3, "l"), NONE);
    assert_eq!(now().as_deref(), Some("sd2"));
    std::fs::remove_file(tree.path("dev/sd2")).unwrap();
    std::fs::remove_file(tree.path("dev/sd0")).unwrap();
    assert_eq!(release(&mut dir, 2, "l"), NONE);
    assert_eq!(now(), None);
    assert_eq!(dir.claims().ranked(b"l").count(), 2);
    tree.file("dev/sd0", "");
    assert_eq!(claim(&mut dir, 0, 0, "l"), NONE);
    assert_eq!(now().as_deref(), Some("sd0"));
}

#[test]
fn a_symlink_that_somebody_removed_or_bent_is_mended_by_the_next_event() {
    let tree = tree();
    let mut dir = open(&tree);
    claim(&mut dir, 1, 0, "a/l");
    std::fs::remove_dir_all(tree.path("dev/a")).unwrap();
    assert_eq!(claim(&mut dir, 1, 0, "a/l"), NONE);
    assert_eq!(target(&tree, "dev/a/l").as_deref(), Some("../sd1"));
    std::fs::remove_file(tree.path("dev/a/l")).unwrap();
    tree.link("dev/a/l", "nowhere");
    assert_eq!(claim(&mut dir, 1, 0, "a/l"), NONE);
    assert_eq!(target(&tree, "dev/a/l").as_deref(), Some("../sd1"));
}

#[test]
fn a_release_without_a_claim_gives_up_only_what_is_its_own() {
    let tree = tree();
    tree.link("dev/mine", "sd1").link("dev/theirs", "sd2").link("dev/shared", "sd1");
    let mut dir = open(&tree);
    claim(&mut dir, 2, 0, "theirs");
    let links = ["mine", "theirs", "shared", "nothing"].map(BString::from);
    claim(&mut dir, 3, 0, "shared");
    std::fs::remove_file(tree.path("dev/shared")).unwrap();
    tree.link("dev/shared", "sd1");
    assert!(dir.apply(&id(1), b"/dev/sd1", 0, &links, &[]).is_empty());
    assert_eq!(target(&tree, "dev/mine"), None);
    assert_eq!(target(&tree, "dev/theirs").as_deref(), Some("sd2"));
    assert_eq!(target(&tree, "dev/shared").as_deref(), Some("sd3"));
}

#[test]
fn what_is_no_symlink_stays_and_the_other_links_are_made() {
    let tree = tree();
    tree.file("dev/file", "precious").dir("dev/folder/in");
    let mut dir = open(&tree);
    let links = ["file", "folder/in", "ok"].map(BString::from);
    let errors = dir.apply(&id(1), b"/dev/sd1", 0, &[], &links);
    let occupied = |error: &ClaimError| matches!(error.kind, ClaimErrorKind::Occupied);
    assert_eq!((errors.len(), errors.iter().all(occupied)), (2, true), "{errors:?}");
    assert_eq!(tree.read("dev/file"), b"precious");
    assert_eq!(target(&tree, "dev/ok").as_deref(), Some("sd1"));
    let errors = dir.apply(&id(1), b"/dev/sd1", 0, &links, &[]);
    assert_eq!((errors.len(), errors.iter().all(occupied)), (2, true), "{errors:?}");
    assert!(tree.path("dev/folder/in").is_dir() && target(&tree, "dev/ok").is_none());
}

#[test]
fn nothing_is_written_outside_dev() {
    let tree = tree();
    tree.dir("outside").link("dev/way", "../outside");
    let mut dir = open(&tree);
    for link in ["../x", "/x", "a//b", "a/./b", "", "a/", "a\nb", "a\0b", "way/x"] {
        assert_eq!(claim(&mut dir, 1, 0, link).len(), 1, "{link:?}");
    }
    assert_eq!(std::fs::read_dir(tree.path("outside")).unwrap().count(), 0);
    for devnode in ["/etc/passwd", "/dev/../etc/passwd", "sda", "/dev/"] {
        let errors = dir.apply(&id(1), devnode.as_bytes(), 0, &[], &["l".into()]);
        assert!(matches!(errors[..], [ClaimError { kind: ClaimErrorKind::BadNode(_), .. }]), "{devnode}");
    }
    assert_eq!(target(&tree, "dev/l"), None);
}

#[test]
fn targets_are_the_shortest_way() {
    for (link, node, target) in [
        ("l", "sda", "sda"),
        ("disk/by-id/x", "sda", "../../sda"),
        ("input/by-path/p", "input/event0", "../event0"),
        ("char/189:1", "bus/usb/001/002", "../bus/usb/001/002"),
        ("a/b", "a/c/d", "c/d"),
        ("a/x", "a", "../a"),
        ("ab/x", "a/x", "../a/x"),
    ] {
        assert_eq!(relative_target(link.as_bytes(), node.as_bytes()), target, "{link} {node}");
    }
}

#[test]
fn number_links_come_and_go() {
    let tree = tree();
    let dir = open(&tree);
    let number = DevNum { major: 8, minor: 1 };
    for _ in 0..2 {
        dir.set_number_symlink(true, number, b"/dev/sd1").unwrap();
        assert_eq!(target(&tree, "dev/block/8:1").as_deref(), Some("../sd1"));
    }
    for _ in 0..2 {
        dir.remove_number_symlink(true, number).unwrap();
        assert_eq!(target(&tree, "dev/block/8:1"), None);
    }
}

#[test]
fn a_restart_knows_all_claims_and_who_owned_the_symlink() {
    let tree = tree();
    let long = "x".repeat(250);
    {
        let mut dir = open(&tree);
        for minor in [0, 1, 2] {
            claim(&mut dir, minor, 0, "l");
        }
        claim(&mut dir, 3, -1, "l");
        claim(&mut dir, 4, 0, &long);
    }
    tree.file("run/udev/data/b8:4", format!("S:{long}\nV:1\n"));
    // The entries say that sd2 was last, the symlink says something else.
    std::fs::remove_file(tree.path("dev/l")).unwrap();
    tree.link("dev/l", "sd0");
    let mut dir = load(&tree);
    assert_eq!(dir.claims().owner(b"l").map(|claim| claim.id.clone()), Some(id(0)));
    assert_eq!(dir.claims().owner(long.as_bytes()).map(|claim| claim.id.clone()), Some(id(4)));
    assert_eq!((dir.claims().len(), dir.claims().ranked(b"l").count()), (2, 4));
    assert_eq!(release(&mut dir, 0, "l"), NONE);
    assert_eq!(target(&tree, "dev/l").as_deref(), Some("sd2"));
}

#[test]
fn claims_of_older_writers_are_taken_over() {
    let tree = tree();
    let links = "run/udev/links";
    // eudev: a leading slash and an empty file; v249: no slash, an empty file.
    tree.file(&format!("{links}/\\x2fdisk\\x2fx/b8:1"), "").file(&format!("{links}/disk\\x2fx/b8:2"), "");
    tree.file("run/udev/data/b8:1", "S:disk/x\nL:4\nV:1\n").file("run/udev/data/b8:2", "S:disk/x\nV:1\n");
    tree.file(&format!("{links}/unknown/b8:3"), "").file(&format!("{links}/unknown/.lock"), "");
    tree.file(&format!("{links}/junk\\x41/b8:3"), "").dir(&format!("{links}/empty"));
    for minor in [1, 2] {
        let device = format!("sys/devices/virtual/block/sd{minor}");
        tree.file(&format!("{device}/uevent"), format!("MAJOR=8\nMINOR={minor}\nDEVNAME=sd{minor}\n"));
        tree.link(&format!("{device}/subsystem"), "../../../../class/block");
        tree.link(&format!("sys/dev/block/8:{minor}"), &format!("../../devices/virtual/block/sd{minor}"));
    }
    tree.dir("sys/class/block");
    let dir = load(&tree);
    let order: Vec<_> =
        dir.claims().ranked(b"disk/x").map(|claim| (claim.id.clone(), claim.priority)).collect();
    assert_eq!(order, [(id(1), 4), (id(2), 0)]);
    assert_eq!(target(&tree, &format!("{links}/disk\\x2fx/b8:1")).as_deref(), Some("4:/dev/sd1"));
    assert_eq!(target(&tree, &format!("{links}/disk\\x2fx/b8:2")).as_deref(), Some("0:/dev/sd2"));
    let left: Vec<_> = std::fs::read_dir(tree.path(links)).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["disk\\x2fx"]);
}

/// All entries of the claims on disk, `link/id>target`.
fn entries(tree: &Tree) -> Vec<String> {
    let list = |path: &str| Dir::open(&tree.path(path)).unwrap().names().unwrap();
    let mut entries = Vec::new();
    for dir in list("run/udev/links") {
        for name in list(&format!("run/udev/links/{dir}")) {
            let entry = format!("run/udev/links/{dir}/{name}");
            entries.push(format!("{dir}/{name}>{}", target(tree, &entry).unwrap_or_default()));
        }
    }
    entries.sort();
    entries
}

#[test]
fn claims_that_others_removed_are_back_after_the_next_event_of_each_device() {
    for removed in ["links", "links/l", "links/l/b8:1"] {
        let tree = tree();
        let mut dir = open(&tree);
        claim(&mut dir, 1, 0, "l");
        claim(&mut dir, 2, 5, "l");
        let before = entries(&tree);
        assert_eq!(before, ["l/b8:1>0:/dev/sd1", "l/b8:2>5:/dev/sd2"]);
        let path = tree.path("run/udev").join(removed);
        std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path)).unwrap();
        if removed == "links" {
            let errors = dir.apply(&id(1), b"/dev/sd1", 0, &[], &["l".into()]);
            assert!(errors.len() == 1 && errors[0].is_of_missing_folder(), "{errors:?}");
            dir.reopen(&open_udev_dir(&tree.roots().run).unwrap()).unwrap();
        }
        for (minor, priority) in [(1, 0), (2, 5)] {
            assert_eq!(claim(&mut dir, minor, priority, "l"), NONE, "{removed}");
        }
        assert_eq!(entries(&tree), before, "{removed}");
        assert_eq!(target(&tree, "dev/l").as_deref(), Some("sd2"));
    }
}

#[test]
fn what_a_crash_left_is_swept_and_brought_in_line_with_the_records() {
    let tree = tree();
    let record = |links: &[&str], priority| Record {
        symlinks: links.iter().copied().collect(),
        priority,
        ..Record::default()
    };
    {
        let mut dir = open(&tree);
        claim(&mut dir, 1, 0, "a/kept");
        // Its record was not written any more.
        claim(&mut dir, 1, 0, "a/new");
        claim(&mut dir, 2, 7, "a/kept");
        claim(&mut dir, 3, 0, "b/c/gone");
    }
    for left in
        ["dev/a/.#mudev-kept", "run/udev/links/a\\x2fkept/.#b8:1", "dev/.#mudev-x", "dev/block/.#mudev-8:1"]
    {
        tree.link(left, "half");
    }
    tree.file("run/udev/links/.#umask", "").dir("run/udev/links/empty");
    let mut dir = load(&tree);
    dir.sweep_dev().unwrap();
    let node = |minor: u32| BString::from(super::tests::node(minor));
    let mut agree = |minor: u32, record: &Record, is_there: bool| {
        let node = node(minor);
        let devnode = is_there.then(|| node.as_bstr());
        let (release, claim) = dir.differences(&id(minor), record, devnode);
        let node = devnode.map_or(&b""[..], |node| node);
        let errors = dir.apply(&id(minor), node, record.priority, &release, &claim);
        assert!(errors.is_empty(), "{errors:?}");
    };
    agree(1, &record(&["a/kept", "a/lost"], 0), true);
    // The event that raised the priority did not come to its end.
    agree(2, &record(&["a/kept"], -1), true);
    agree(3, &Record::default(), false);
    assert_eq!(
        entries(&tree),
        ["a\\x2fkept/b8:1>0:/dev/sd1", "a\\x2fkept/b8:2>-1:/dev/sd2", "a\\x2flost/b8:1>0:/dev/sd1"]
    );
    assert_eq!(target(&tree, "dev/a/kept").as_deref(), Some("../sd1"));
    assert_eq!(target(&tree, "dev/a/lost").as_deref(), Some("../sd1"));
    assert!(!tree.path("dev/b").exists() && target(&tree, "dev/a/new").is_none());
    let mut left = Dir::open(&tree.path("dev/a")).unwrap().names().unwrap();
    left.sort();
    assert_eq!(left, ["kept", "lost"]);
    assert!(target(&tree, "dev/.#mudev-x").is_none() && target(&tree, "dev/block/.#mudev-8:1").is_none());
}

#[test]
fn a_symlink_that_is_called_like_a_leftover_is_kept_over_a_restart() {
    const LINKS: [&str; 4] = [".#x", ".#mudev-z", "a/.#mudev-y", "x"];
    let tree = tree();
    {
        let mut dir = open(&tree);
        for link in LINKS {
            assert_eq!(claim(&mut dir, 1, 0, link), NONE);
            assert_eq!(claim(&mut dir, 2, 1, link), NONE);
        }
    }
    let before = entries(&tree);
    let dir = load(&tree);
    dir.sweep_dev().unwrap();
    assert_eq!(entries(&tree), before);
    for link in LINKS {
        assert!(target(&tree, &format!("dev/{link}")).is_some(), "{link}");
        assert_eq!(dir.claims().ranked(link.as_bytes()).count(), 2, "{link}");
    }
}

#[test]
fn after_an_event_that_ended_half_way_nothing_of_it_is_kept() {
    let tree = tree();
    let mut dir = open(&tree);
    for link in ["a", "b/c"] {
        claim(&mut dir, 1, 0, link);
    }
    claim(&mut dir, 2, 0, "a");
    let beside = dir.symlinks_beside(&id(1), &["a"].into_iter().collect());
    assert!(dir.apply(&id(1), b"/dev/sd1", 0, &beside, &[]).is_empty());
    assert_eq!(entries(&tree), ["a/b8:1>0:/dev/sd1", "a/b8:2>0:/dev/sd2"]);
    let beside = dir.symlinks_beside(&id(2), &SymlinkSet::default());
    assert!(dir.apply(&id(2), b"", 0, &beside, &[]).is_empty());
    assert_eq!(target(&tree, "dev/a").as_deref(), Some("sd1"));
    assert!(!tree.path("dev/b").exists());
}

#[test]
fn number_links_are_listed_and_other_names_are_not() {
    let tree = tree();
    tree.link("dev/block/8:1", "../sd1").link("dev/char/x", "../y").link("dev/char/1:3", "../null");
    let dir = open(&tree);
    assert_eq!(dir.number_symlinks(), [id(1), DeviceId::Char(DevNum { major: 1, minor: 3 })]);
}

#[test]
fn many_claims_of_one_symlink_end_with_the_last() {
    let tree = tree();
    let mut dir = open(&tree);
    for minor in 0..300 {
        let devnode = format!("/dev/n{minor}");
        assert!(dir.apply(&id(minor), devnode.as_bytes(), 0, &[], &["l".into()]).is_empty());
    }
    assert_eq!(target(&tree, "dev/l").as_deref(), Some("n299"));
    for minor in 0..300 {
        assert_eq!(release(&mut dir, minor, "l"), NONE);
    }
    assert!(target(&tree, "dev/l").is_none() && dir.claims().is_empty());
    assert_eq!(std::fs::read_dir(tree.path("run/udev/links")).unwrap().count(), 0);
}

#[test]
fn whichever_call_fails_for_want_of_room_the_same_stands_in_the_end() {
    use crate::sys::faults::{self, Plan};
    // A claim anew, one with another priority, one that is dropped, and one whose owner changes.
    let run = |errno: i32, at: u64| {
        let tree = tree();
        let mut dir = open(&tree);
        for (minor, links) in [(1, vec!["kept", "old/deep", "both"]), (2, vec!["both"])] {
            let links: Vec<BString> = links.into_iter().map(BString::from).collect();
            assert!(dir.apply(&id(minor), node(minor).as_bytes(), 3, &[], &links).is_empty());
        }
        faults::set(Plan { fail_at: Some((at, errno)), ..Plan::default() });
        let (release, claim) = (["old/deep".into(), "both".into()], ["kept".into(), "new/deep".into()]);
        let mut errors = dir.apply(&id(1), node(1).as_bytes(), 5, &release, &claim);
        errors.extend(dir.apply(&id(2), node(2).as_bytes(), 3, &["both".into()], &[]));
        let calls = faults::calls();
        faults::set(Plan::default());
        assert_eq!(dir.is_unfinished(), !errors.is_empty(), "{errors:?}");
        let again = dir.take_unfinished();
        assert!(again.iter().all(|link| dir.finish(link).is_none()) && !dir.is_unfinished());
        let mut state = entries(&tree);
        for link in ["kept", "old", "new/deep", "both"] {
            state.push(format!("{link}: {:?}", target(&tree, &format!("dev/{link}"))));
        }
        // A folder may stay that only could not be removed for being in use; symlinks in it may not.
        state.push(format!("{:?}", target(&tree, "dev/old/deep")));
        (state, calls, errors.len())
    };
    let (expected, calls, _) = run(0, u64::MAX);
    assert!(calls > 20, "{calls}");
    for errno in [libc::ENOSPC, libc::EMFILE, libc::EIO, libc::EROFS] {
        let mut errors = 0;
        for at in 1..=calls {
            let (state, _, count) = run(errno, at);
            assert_eq!(state, expected, "call {at} failed with {errno}");
            errors += count;
        }
        assert!(errors > 0, "nothing failed with {errno}");
    }
}

#[test]
fn symlinks_that_only_the_record_of_a_vanished_device_names_are_removed_if_nobody_else_has_them() {
    let tree = tree();
    let mut dir = open(&tree);
    for link in ["gone", "disk/by-id/gone", "shared", "sd0x/own"] {
        assert_eq!(claim(&mut dir, 0, 0, link), NONE);
    }
    std::fs::remove_dir_all(tree.path("run/udev/links")).unwrap();
    std::fs::remove_file(tree.path("dev/sd0")).unwrap();
    // Those of others: one that leads to a node that is there, and some that we do not write.
    tree.link("dev/other", "sd1").link("dev/absolute", "/nowhere").link("dev/outside", "../nowhere");
    tree.link("dev/detour", "disk/../nowhere");
    let mut dir = load(&tree);
    assert_eq!(claim(&mut dir, 2, 0, "shared"), NONE);
    std::fs::remove_file(tree.path("dev/shared")).unwrap();
    tree.link("dev/shared", "sd0");
    let names =
        ["gone", "disk/by-id/gone", "shared", "sd0x/own", "none", "other", "absolute", "outside", "detour"];
    let errors = dir.apply(&id(0), b"", 0, &names.map(BString::from), &[]);
    assert!(errors.is_empty(), "{errors:?}");
    for name in ["dev/gone", "dev/disk", "dev/sd0x"] {
        assert!(tree.path(name).symlink_metadata().is_err(), "{name}");
    }
    assert_eq!(target(&tree, "dev/shared").as_deref(), Some("sd2"), "who claims it gets it");
    for (name, to) in
        [("other", "sd1"), ("absolute", "/nowhere"), ("outside", "../nowhere"), ("detour", "disk/../nowhere")]
    {
        assert_eq!(target(&tree, &format!("dev/{name}")).as_deref(), Some(to));
    }
}

#[test]
fn the_node_of_a_symlink_is_found_from_what_is_written_in_it() {
    let links = ["x", "disk/x", "disk/by-id/x", "bus/usb/x", "bus/x"];
    let nodes = ["sda", "disk/a", "bus/usb/001/002", "x/y", "bus/a"];
    for (link, node) in links.iter().flat_map(|link| nodes.iter().map(move |node| (link, node))) {
        let target = relative_target(link.as_bytes(), node.as_bytes());
        assert_eq!(node_of_target(link.as_bytes(), &target).as_ref(), Some(&BString::from(*node)), "{link}");
    }
    for (link, target) in [
        ("x", "../sda"),
        ("x", "/dev/sda"),
        ("x", ""),
        ("x", "./sda"),
        ("a/x", "../a/y"),
        ("x", "a//b"),
        ("a/x", ".."),
    ] {
        assert_eq!(node_of_target(link.as_bytes(), target.as_bytes()), None, "{link} -> {target}");
    }
}
