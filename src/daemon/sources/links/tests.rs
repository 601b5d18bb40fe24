use super::*;
use crate::helper::pool::Executable;
use crate::links::Mark;
use crate::sys::{netlink, process};

fn no_launcher() -> Launcher {
    let null = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    Launcher::new(null, Executable::Named(c"no such program".to_owned()))
}

/// Turns of the loop, until `done`.
fn turn_until(
    links: &mut Links,
    sources: &Sources,
    answered: &mut Answered,
    done: fn(&Links, &Answered) -> bool,
) {
    let now = Now::from_secs(5);
    for _ in 0..10 {
        links.read(true, now, answered);
        links.send_requests(sources, now, answered);
        if done(links, answered) {
            return;
        }
        if let Some(helper) = &links.helper {
            assert!(process::wait_readable(helper.socket.as_fd(), Duration::from_secs(20)).unwrap());
            let id = helper.id;
            links.set_helper_ready(id);
        }
    }
    panic!("it does not come to an end");
}

#[test]
fn without_a_helper_the_daemon_is_ready_all_the_same_and_the_dump_is_tried_again() {
    let poll = mio::Poll::new().unwrap();
    let sources = Sources::new(&poll).unwrap();
    let mut links = Links::new(Some(netlink::open_route(false).unwrap()), no_launcher());
    let now = Now::from_secs(5);
    assert!(!links.is_settled());
    links.start(&sources, now).unwrap();
    let mut answered = Answered::default();
    turn_until(&mut links, &sources, &mut answered, |links, _| links.is_settled());
    assert!(!links.is_complete());
    // A job that asks for a link is not left waiting.
    links.refresh(JobId(1), IfIndex(1), false, now);
    let rename = crate::links::request::set_name(IfIndex(1), b"x", 0);
    links.request(rename, RtnlFor::Job(JobId(2)), now + Duration::from_secs(5));
    turn_until(&mut links, &sources, &mut answered, |_, answered| !answered.replies.is_empty());
    assert_eq!(answered.heard, [JobId(1)]);
    assert_eq!(answered.replies[0].1.result, Err(Errno(libc::EIO)));
    assert!(links.exchange.wants_dump() && links.timeout().is_some_and(|at| at <= now + DUMP_PAUSE));
    assert!(!links.exchange.table.is_fresh(IfIndex(1), Mark::ANY));
}

#[test]
fn a_job_waits_for_the_reply_to_its_own_request() {
    let mut links = Links::new(None, no_launcher());
    let (now, mut answered) = (Now::from_secs(5), Answered::default());
    links.refresh(JobId(1), IfIndex(1), false, now);
    links.refresh(JobId(2), IfIndex(1), false, now);
    links.park(JobId(3), IfIndex(1), now);
    links.release(IfIndex(1), 1, &mut answered);
    assert_eq!(answered.heard, [JobId(1), JobId(3)]);
    links.release(IfIndex(1), 2, &mut answered);
    assert_eq!((answered.heard.len(), links.parked()), (3, 0));
}

/// The test is the helper.
#[test]
fn who_asks_for_what_cannot_be_sent_is_told_at_once() {
    let poll = mio::Poll::new().unwrap();
    let sources = Sources::new(&poll).unwrap();
    let null = std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
    let launcher = Launcher::new(null, Executable::Named(c"/bin/true".to_owned()));
    let (child, _) = launcher.start("").unwrap();
    let (socket, theirs) = unix::seqpacket_pair().unwrap();
    let mut links = Links::new(Some(netlink::open_route(false).unwrap()), launcher);
    links.helper = Some(Helper { id: 0, child, socket, ready: false });
    let (now, mut answered) = (Now::from_secs(5), Answered::default());
    let longest = [crate::links::request::set_name(IfIndex(1), b"x", 0), vec![0; 1 << 20]].concat();
    links.request(longest, RtnlFor::Job(JobId(1)), now + REQUEST_LIMIT);
    let rename = crate::links::request::set_name(IfIndex(1), b"x", 0);
    links.request(rename, RtnlFor::Job(JobId(2)), now + REQUEST_LIMIT);
    turn_until(&mut links, &sources, &mut answered, |_, answered| !answered.replies.is_empty());
    assert_eq!(answered.replies.len(), 1);
    assert_eq!(answered.replies[0].0, JobId(1));
    assert_eq!(answered.replies[0].1.result, Err(Errno(libc::EMSGSIZE)));
    let received = unix::receive(theirs.as_fd(), &mut [0; 1000]).unwrap();
    assert!(received.len > 0 && links.outgoing.is_none(), "the other one is sent");
}

#[test]
fn what_the_kernel_has_no_memory_for_is_sent_later() {
    let unsent = |errno| Unsent::of(&io::Error::from_raw_os_error(errno));
    assert_eq!(unsent(libc::EAGAIN), Unsent::UntilRoom);
    assert_eq!((unsent(libc::ENOBUFS), unsent(libc::ENOMEM)), (Unsent::Later, Unsent::Later));
    assert_eq!(unsent(libc::EPIPE), Unsent::HelperIsGone);
    assert_eq!(unsent(libc::EMSGSIZE), Unsent::Never(Errno(libc::EMSGSIZE)));
    let mut links = Links::new(None, no_launcher());
    links.send_at = Some(Now::from_secs(6));
    assert_eq!(links.timeout(), Some(Now::from_secs(6)));
}
