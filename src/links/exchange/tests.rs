use super::*;
use crate::links::request::{ask_driver, get_link, set_name};
use crate::links::wire::*;

const ROOM: usize = 16 * 1024;

fn at(seconds: u64) -> Now {
    Now::from_secs(seconds)
}

/// An exchange that has read all there is.
fn exchange() -> Exchange<&'static str> {
    let mut exchange = Exchange::default();
    exchange.caught_up(at(0));
    exchange
}

fn rename(who: &'static str) -> Errand<&'static str> {
    Errand::Message { message: set_name(IfIndex(5), b"lan0", 0), who }
}

fn driver(who: &'static str) -> Errand<&'static str> {
    Errand::Message { message: ask_driver(b"eth0", 0), who }
}

fn link() -> Errand<&'static str> {
    Errand::Link { ifindex: IfIndex(5), statistics: false, ticket: 0 }
}

/// Kinds and sequence numbers of the requests in a datagram, each with its time in front.
fn requests(datagram: &[u8]) -> Vec<(u16, u32)> {
    let frames: Vec<_> = frames(datagram).map(Result::unwrap).collect();
    assert!(frames.chunks(2).all(|pair| pair[0].kind == GIVE_BY && pair[0].seq == pair[1].seq));
    frames.iter().filter(|frame| frame.kind != GIVE_BY).map(|frame| (frame.kind, frame.seq)).collect()
}

fn answer(seq: u32, errno: i32) -> Vec<u8> {
    Builder::new(NLMSG_ERROR, NLM_F_CAPPED, seq)
        .payload(&(-errno).to_ne_bytes())
        .payload(&[0; HEADER])
        .finish()
}

/// Who has an end, and which.
fn ends(exchange: &mut Exchange<&'static str>) -> Vec<(&'static str, Result<(), Errno>)> {
    let ended = exchange.take_ended().into_iter().map(|ended| match ended {
        Ended::Message(who, reply) => (who, reply.result),
        Ended::Link { .. } => ("link", Ok(())),
        Ended::Dump { result, .. } => ("dump", result),
    });
    ended.collect()
}

#[test]
fn nothing_leaves_before_the_socket_is_empty_and_no_reply_counts_before() {
    let mut exchange = exchange();
    exchange.ask(link(), at(9));
    assert!(exchange.notification(&Builder::new(RTM_NEWLINK, 0, 0).ifinfo(5).u32(IFLA_MTU, 1500).finish()));
    assert_eq!(exchange.issue(ROOM, at(1)), None);
    exchange.caught_up(at(1));
    let sent = requests(&exchange.issue(ROOM, at(1)).unwrap());
    assert_eq!(sent[0].0, RTM_GETLINK);
    exchange.hold(&answer(sent[0].1, libc::ENODEV));
    assert!(exchange.holds() && ends(&mut exchange).is_empty());
    exchange.ask(link(), at(9));
    assert_eq!(exchange.issue(ROOM, at(1)), None, "what is held comes first");
    exchange.caught_up(at(1));
    assert_eq!(ends(&mut exchange), [("link", Ok(()))]);
    assert!(matches!(exchange.table.lookup(IfIndex(5)), crate::links::Lookup::Gone(_)));
}

#[test]
fn a_datagram_is_as_long_as_said_or_has_one_request() {
    let mut exchange = exchange();
    for _ in 0..3 {
        exchange.ask(rename("a"), at(9));
    }
    assert_eq!(requests(&exchange.issue(200, at(1)).unwrap()).len(), 2);
    assert_eq!(requests(&exchange.issue(1, at(1)).unwrap()).len(), 1);
    assert_eq!(exchange.issue(1, at(1)), None);
    let long = Errand::Message { message: get_link(IfIndex(1), 0).repeat(100), who: "b" };
    exchange.ask(long.clone(), at(9));
    assert!(exchange.issue(1, at(1)).unwrap().len() <= long.size());
}

#[test]
fn changes_that_were_not_begun_are_withdrawn_and_the_one_at_work_is_waited_for() {
    let mut exchange = exchange();
    for who in ["first", "second"] {
        exchange.ask(rename(who), at(5));
    }
    exchange.ask(driver("driver"), at(6));
    let sent = requests(&exchange.issue(ROOM, at(1)).unwrap());
    exchange.ask(rename("unsent"), at(5));
    assert_eq!(exchange.timeout(), Some(at(5)));
    assert_eq!(exchange.expire(at(4)), 0);
    assert_eq!(exchange.expire(at(5)), 1, "said once");
    let late = Err(Errno(libc::ETIMEDOUT));
    assert_eq!(ends(&mut exchange), [("unsent", late), ("second", late)]);
    assert_eq!((exchange.timeout(), exchange.expire(at(5))), (Some(at(6)), 0));
    // The helper hangs: it gets nothing more, and what waits for it has its time all the same.
    exchange.ask(link(), at(7));
    assert_eq!(exchange.issue(ROOM, at(6)), None);
    assert_eq!(exchange.expire(at(7)), 0);
    assert_eq!(ends(&mut exchange), [("link", Ok(())), ("driver", late)]);
    assert_eq!(exchange.timeout(), None);
    // In the end it is told what happened; the answers to what was withdrawn tell nobody.
    exchange.ask(link(), at(20));
    for (n, (_, seq)) in sent.iter().enumerate() {
        exchange.hold(&answer(*seq, if n == 0 { 0 } else { libc::ETIMEDOUT }));
    }
    exchange.caught_up(at(10));
    assert_eq!(ends(&mut exchange), [("first", Ok(()))]);
    assert!(exchange.issue(ROOM, at(10)).is_some());
}

#[test]
fn what_is_withdrawn_in_front_of_a_change_does_not_make_it_the_oldest() {
    let mut exchange = exchange();
    exchange.ask(link(), at(3));
    exchange.ask(rename("rename"), at(5));
    exchange.issue(ROOM, at(1)).unwrap();
    exchange.expire(at(3));
    assert_eq!(ends(&mut exchange), [("link", Ok(()))]);
    // The helper is at the request for the link still.
    assert_eq!(exchange.expire(at(5)), 0);
    assert_eq!(ends(&mut exchange), [("rename", Err(Errno(libc::ETIMEDOUT)))]);
}

#[test]
fn what_a_dead_helper_leaves_is_asked_again_once() {
    let mut exchange = exchange();
    exchange.want_dump(at(9));
    exchange.ask(rename("rename"), at(9));
    exchange.ask(driver("driver"), at(9));
    let first = requests(&exchange.issue(ROOM, at(1)).unwrap());
    assert!(!exchange.wants_dump());
    exchange.ask(link(), at(9));
    exchange.hold_death();
    exchange.caught_up(at(2));
    assert!(ends(&mut exchange).is_empty());
    let second = requests(&exchange.issue(ROOM, at(2)).unwrap());
    let kinds = [RTM_GETLINK, RTM_SETLINK, ASK_DRIVER, RTM_GETLINK];
    assert_eq!(second.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), kinds, "in order");
    assert!(second[0].1 > first[2].1, "with numbers of their own");
    exchange.hold(&answer(second[1].1, 0));
    exchange.hold_death();
    exchange.caught_up(at(3));
    let died = Err(Errno(libc::EIO));
    assert_eq!(ends(&mut exchange), [("rename", Ok(())), ("dump", died), ("driver", died)]);
    assert_eq!(requests(&exchange.issue(ROOM, at(3)).unwrap()).len(), 1, "the link was asked for once");
    assert!(exchange.wants_dump());
}

#[test]
fn a_change_that_a_dead_helper_may_have_made_has_time_to_become_known() {
    let mut exchange = exchange();
    exchange.ask(rename("rename"), at(5));
    exchange.issue(ROOM, at(1)).unwrap();
    assert_eq!(exchange.expire(at(5)), 1);
    exchange.hold_death();
    exchange.caught_up(at(6));
    assert_eq!(exchange.expire(at(6)), 0);
    assert!(exchange.issue(ROOM, at(6)).is_some());
}

#[test]
fn without_a_helper_all_that_waits_fails_at_once() {
    let mut exchange = exchange();
    exchange.want_dump(at(9));
    exchange.ask(rename("rename"), at(9));
    exchange.fail_waiting(Errno(libc::ENOENT));
    let failed = Err(Errno(libc::ENOENT));
    assert_eq!(ends(&mut exchange), [("dump", failed), ("rename", failed)]);
    assert!(exchange.wants_dump() && exchange.timeout().is_none());
}

#[test]
fn what_cannot_be_sent_fails_at_once_and_what_was_sent_before_goes_on() {
    let mut exchange = exchange();
    exchange.ask(driver("before"), at(60));
    let before = requests(&exchange.issue(1000, at(1)).unwrap())[0].1;
    for errand in [driver("long"), link(), rename("rename")] {
        exchange.ask(errand, at(60));
    }
    exchange.issue(1000, at(1)).unwrap();
    exchange.was_not_sent(Errno(libc::EMSGSIZE));
    let failed = Err(Errno(libc::EMSGSIZE));
    let ended = exchange.take_ended();
    assert!(matches!(&ended[1], Ended::Link { ticket: _, .. }), "{ended:?}");
    let messages: Vec<_> = ended
        .into_iter()
        .filter_map(
            |ended| if let Ended::Message(who, reply) = ended { Some((who, reply.result)) } else { None },
        )
        .collect();
    assert_eq!(messages, [("long", failed), ("rename", failed)]);
    exchange.was_not_sent(Errno(libc::EMSGSIZE));
    assert_eq!(ends(&mut exchange), [], "each once");
    exchange.hold(&answer(before, 0));
    exchange.caught_up(at(2));
    assert_eq!(ends(&mut exchange), [("before", Ok(()))]);
}
