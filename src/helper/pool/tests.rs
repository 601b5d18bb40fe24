use super::*;
use crate::model::operation::LockState;
use crate::sys::fs::{Lock, try_lock};
use crate::world::nodes::{DiskLock, lock_disk};
use crate::world::tree::Tree;

struct NoLoop;

impl Register for NoLoop {
    fn watch(&self, _: BorrowedFd, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// The test is the helper; its process has ended.
fn pool_with_a_helper(work: Option<Work<()>>) -> (Pool<()>, OwnedFd) {
    let null = File::options().read(true).write(true).open("/dev/null").unwrap();
    let launcher = Launcher::new(null, Executable::Named(c"/bin/true".to_owned()));
    let (child, _) = launcher.start("").unwrap();
    let (socket, theirs) = unix::seqpacket_pair().unwrap();
    let mut pool = Pool::new(launcher);
    pool.next_id = 1;
    pool.helpers.insert(0, Helper { child, socket, work, idle_since: Now::ZERO });
    (pool, theirs)
}

fn work(caller: Option<((), Now)>) -> Option<Work<()>> {
    let subject = Subject::of(&Operation::LockDisk { path: "/dev/x".into() });
    Some(Work { caller, subject, since: Now::ZERO })
}

fn held() -> Vec<u8> {
    messages::pack(&OperationReply::Lock(Ok(LockState::Held))).0
}

fn send_lock(tree: &Tree, socket: &OwnedFd) {
    let Ok(DiskLock::Held(lock)) = lock_disk(&tree.path("disk")) else { panic!("no lock") };
    let lock = OwnedFd::from(lock);
    unix::send_passing(socket.as_fd(), &held(), Some(lock.as_fd())).unwrap();
}

#[test]
fn a_disk_that_comes_after_its_helper_was_killed_is_closed_by_another() {
    let (tree, limit) = (Tree::new(), Now::from_secs(10));
    tree.file("disk", "");
    let (mut pool, theirs) = pool_with_a_helper(work(Some(((), limit))));
    pool.start_not_before = Now::MAX;
    pool.on_time(limit, &NoLoop);
    assert_eq!(pool.poll_reply().unwrap().reply, OperationReply::TimedOut);
    send_lock(&tree, &theirs);
    for turn in 1.. {
        pool.on_time(limit + turn * Duration::from_millis(100), &NoLoop);
        if !pool.waiting.is_empty() {
            break;
        }
        assert!(turn < 10_000, "it is not closed, or closed here");
        std::thread::sleep(Duration::from_millis(1));
    }
    let close = &pool.waiting[0];
    assert!(close.caller.is_none() && close.order.file.is_some());
    assert_eq!(close.subject.to_string(), "close /dev/x");
    let tool = File::open(tree.path("disk")).unwrap();
    assert!(try_lock(&tool, Lock::Exclusive).unwrap(), "others do not wait for that");
}

#[test]
fn a_disk_that_nobody_waits_for_goes_back_to_a_helper() {
    let tree = Tree::new();
    tree.file("disk", "");
    let (mut pool, theirs) = pool_with_a_helper(work(None));
    send_lock(&tree, &theirs);
    pool.on_readable(0, Now::from_secs(1), &NoLoop);
    let mut buffer = [0; 100];
    let (go, none) = unix::receive_passed(theirs.as_fd(), &mut buffer).unwrap();
    assert!(&buffer[..go.len] == crate::helper::GO && none.is_none());
    let (close, disk) = unix::receive_passed(theirs.as_fd(), &mut buffer).unwrap();
    let close = messages::decode(&buffer[..close.len]).unwrap();
    assert!(disk.is_some());
    assert_eq!(Subject::of(&close).to_string(), "close /dev/x");
}

#[test]
fn a_disk_that_comes_at_the_deadline_comes_in_time() {
    let (tree, limit) = (Tree::new(), Now::from_secs(10));
    tree.file("disk", "");
    let (mut pool, theirs) = pool_with_a_helper(work(Some(((), limit))));
    send_lock(&tree, &theirs);
    pool.on_time(limit, &NoLoop);
    let Delivery { reply, file, .. } = pool.poll_reply().unwrap();
    assert!(reply == OperationReply::Lock(Ok(LockState::Held)) && file.is_some(), "{reply:?}");
    assert!(pool.poll_reply().is_none() && pool.waiting.is_empty());
    let mut buffer = [0; 8];
    let received = unix::receive(theirs.as_fd(), &mut buffer).unwrap();
    assert_eq!(&buffer[..received.len], crate::helper::GO, "the helper may close its own");
}

/// It waits to be told that its own may be closed, and would take the next operation for that.
#[test]
fn a_helper_whose_disk_did_not_come_through_is_ended_with_it() {
    let (mut pool, theirs) = pool_with_a_helper(work(Some(((), Now::from_secs(10)))));
    unix::send(theirs.as_fd(), &held()).unwrap();
    pool.on_readable(0, Now::from_secs(1), &NoLoop);
    assert_eq!(pool.poll_reply().unwrap().reply, OperationReply::Died);
    assert!(pool.helpers.is_empty());
}
