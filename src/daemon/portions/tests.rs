use super::*;
use crate::daemon::source::Sources;
use crate::daemon::watch::Watches;
use crate::engine::JobId;
use crate::links::Table;
use crate::model::Uevent;
use crate::model::effect::Done;
use crate::model::event::OrderedSet;
use crate::world::tree::Tree;

fn world(tree: &Tree) -> World {
    tree.dir("run").dir("dev").dir("sys");
    let roots = tree.roots();
    let sources = Sources::new(&mio::Poll::new().unwrap()).unwrap();
    let watches = Watches::new(&roots, None, &sources).unwrap();
    let builtins = crate::builtin::Builtins::load(&roots, b"", None).0;
    World::open(&roots, builtins, watches, None).unwrap()
}

fn event() -> Event {
    let text = "ACTION=add\0DEVPATH=/devices/d\0SUBSYSTEM=block\0MAJOR=8\0MINOR=1\0DEVNAME=d\0SEQNUM=1";
    Event::new(Uevent::from_lines(text.as_bytes().split(|&b| b == 0)).unwrap())
}

fn names(names: &[&str]) -> Vec<BString> {
    names.iter().map(|name| BString::from(*name)).collect()
}

/// Performs effects in turns of so many parts: how each went and in how many turns, and what stands then.
fn perform(effects: &[Effect], parts: usize) -> (Vec<Done>, usize, Vec<String>) {
    let tree = Tree::new();
    // One tag cannot be indexed, one symlink not be made.
    tree.file("run/udev/tags/bad", "").dir("dev/taken/in");
    let (mut world, event) = (world(&tree), event());
    let (mut done, mut turns) = (Vec::new(), 0);
    for effect in effects {
        let mut facts = Vec::new();
        loop {
            turns += 1;
            world.turn.begin_short(parts);
            match world.perform(&mut Table::new(), JobId(1), &event, effect, &facts) {
                Ok(how) => break done.push(how),
                Err(Need::Turn(progress)) => facts = vec![Fact::Turn(progress)],
                Err(need) => panic!("needs {need:?}"),
            }
        }
    }
    let mut state = Vec::new();
    list(&tree.root, &tree.root, &mut state);
    state.sort();
    (done, turns, state)
}

fn list(root: &std::path::Path, folder: &std::path::Path, state: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let target = std::fs::read_link(&path).unwrap_or_default();
        state.push(format!("{} {}", path.strip_prefix(root).unwrap().display(), target.display()));
        if path.is_dir() && !path.is_symlink() {
            list(root, &path, state);
        }
    }
}

#[test]
fn wherever_turns_end_the_same_is_done_and_the_same_fails() {
    let id = event().device.id().unwrap();
    let devnode = BString::from("/dev/d");
    let links = |release: &[&str], claim: &[&str]| Effect::Links {
        id: id.clone(),
        devnode: devnode.clone(),
        priority: 0,
        release: names(release),
        claim: names(claim),
    };
    let tags = |names: &[&str]| -> OrderedSet { names.iter().copied().collect() };
    let effects = [
        links(&[], &["a", "taken", "b/c", "m"]),
        links(&["a", "b/c", "none"], &["e", "m"]),
        Effect::AddTags { id: id.clone(), tags: tags(&["x", "bad", "y", "z"]) },
        Effect::RemoveTags { id: id.clone(), tags: tags(&["x", "z", "other"]) },
    ];
    let (done, turns, state) = perform(&effects, 100);
    assert_eq!((turns, &done[..2]), (4, &[Done::Ok, Done::Ok][..]));
    assert_eq!(done[2..], [Done::Failed(Errno(libc::ENOTDIR)), Done::Ok]);
    for wanted in ["dev/m d", "dev/e d", "run/udev/links/m/b8:1 0:/dev/d", "run/udev/tags/y/b8:1 "] {
        assert!(state.iter().any(|line| line == wanted), "{wanted}: {state:?}");
    }
    assert!(!state.iter().any(|line| line.starts_with("dev/a") || line.starts_with("dev/b")), "{state:?}");
    for (parts, expected) in [(1, 16), (2, 8), (3, 7)] {
        assert_eq!(perform(&effects, parts), (done.clone(), expected, state.clone()), "{parts}");
    }
}

#[test]
fn what_an_event_that_ended_half_way_has_left_goes_in_portions_behind_the_record() {
    let tree = Tree::new();
    let (mut world, event) = (world(&tree), event());
    let id = event.device.id().unwrap();
    let mut perform = |effect: &Effect, facts: &[Fact]| {
        world.turn.begin_short(2);
        world.perform(&mut Table::new(), JobId(1), &event, effect, facts)
    };
    let claim = names(&["a", "b", "c", "d"]);
    let effect =
        Effect::Links { id: id.clone(), devnode: "/dev/d".into(), priority: 0, release: vec![], claim };
    let Err(Need::Turn(progress)) = perform(&effect, &[]) else { panic!("it has time for two") };
    assert_eq!(perform(&effect, &[Fact::Turn(progress)]), Ok(Done::Ok));
    world.unfinished.end_half_way(&id);
    let record = crate::model::record::Record { links: ["b"].into_iter().collect(), ..Default::default() };
    let effect = Effect::WriteRecord {
        id: id.clone(),
        record: Arc::new(record),
        sticky: Sticky::No,
        keep_empty: true,
        is_end: false,
    };
    world.turn.begin_short(2);
    let tried = world.perform(&mut Table::new(), JobId(1), &event, &effect, &[]);
    let Err(Need::Turn(progress)) = tried else { panic!("three symlinks are to go: {tried:?}") };
    assert!(world.database.has_record(&id) && world.claims.claims().links_of(&id).len() == 2);
    // It is not written again.
    std::fs::remove_file(tree.path("run/udev/data/b8:1")).unwrap();
    let tried = world.perform(&mut Table::new(), JobId(1), &event, &effect, &[Fact::Turn(progress)]);
    assert_eq!(tried, Ok(Done::Ok));
    assert_eq!(world.claims.claims().links_of(&id), ["b"]);
    assert!(!tree.path("run/udev/data/b8:1").exists());
}

#[test]
fn the_clock_is_looked_at_once_for_each_portion() {
    let mut turn = Turn::default();
    // The time is over, but nobody looks.
    turn.begin(Now::ZERO);
    assert!((1..PORTION).all(|_| turn.goes_on(1)) && !turn.goes_on(1));
    turn.begin(monotonic() + Duration::from_secs(60));
    assert!((0..10 * PORTION).all(|_| turn.goes_on(1)));
}
