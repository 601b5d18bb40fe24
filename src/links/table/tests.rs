use super::super::wire::*;
use super::*;

const FIVE: IfIndex = IfIndex(5);

/// A complete RTM_NEWLINK.
struct Row5 {
    name: &'static str,
    mtu: u32,
    iflink: u32,
}

const PLAIN: Row5 = Row5 { name: "x0", mtu: 1500, iflink: 5 };

impl Row5 {
    fn message(&self, ifindex: u32, flags: u16, seq: u32) -> Vec<u8> {
        Builder::new(RTM_NEWLINK, flags, seq)
            .ifinfo(ifindex)
            .text(IFLA_IFNAME, self.name.as_bytes())
            .u32(IFLA_MTU, self.mtu)
            .u32(IFLA_LINK, self.iflink)
            .attribute(IFLA_STATS64, &[1; 192])
            .finish()
    }

    fn notification(&self) -> Vec<u8> {
        self.message(5, 0, 0)
    }

    fn reply(&self, seq: u32) -> Vec<u8> {
        self.message(5, 0, seq)
    }

    fn of_dump(&self, seq: u32) -> Vec<u8> {
        self.message(5, NLM_F_MULTIPART, seq)
    }
}

fn dellink(ifindex: u32) -> Vec<u8> {
    Builder::new(RTM_DELLINK, 0, 0).ifinfo(ifindex).finish()
}

fn done(seq: u32, flags: u16) -> Vec<u8> {
    Builder::new(NLMSG_DONE, NLM_F_MULTIPART | flags, seq).payload(&[0; 4]).finish()
}

/// A table and what it told.
struct Bench {
    table: Table,
    changes: Vec<Change>,
}

impl Bench {
    /// With a first, empty dump behind it.
    fn new() -> Bench {
        let mut bench = Bench { table: Table::new(), changes: Vec::new() };
        assert!(bench.table.wants_dump());
        let seq = bench.begin();
        assert!(bench.end(seq, 0));
        bench
    }

    /// The socket is empty behind it.
    fn notify(&mut self, datagram: &[u8]) -> &[Change] {
        self.read(datagram);
        self.table.caught_up();
        &self.changes
    }

    /// More may wait behind it.
    fn read(&mut self, datagram: &[u8]) {
        self.changes.clear();
        assert_eq!(self.table.apply(datagram, Origin::Notification, &mut self.changes), Applied::default());
    }

    fn reply(&mut self, datagram: &[u8]) -> Option<Reply> {
        self.changes.clear();
        let applied = self.table.apply(datagram, Origin::Reply, &mut self.changes);
        assert!(!applied.malformed);
        applied.reply
    }

    fn begin(&mut self) -> u32 {
        self.table.caught_up();
        self.table.begin_dump().0
    }

    fn end(&mut self, seq: u32, flags: u16) -> bool {
        let reply = self.reply(&done(seq, flags)).expect("DONE ends a reply");
        self.table.end_dump(&reply, &mut self.changes)
    }

    #[track_caller]
    fn link(&self) -> &Link {
        match self.table.lookup(FIVE) {
            Lookup::Known(link) => link,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_link_lives_is_renamed_and_leaves_a_tombstone() {
    let mut b = Bench::new();
    assert_eq!(b.table.lookup(FIVE), Lookup::Unknown);
    assert_eq!(b.notify(&PLAIN.notification()), [Change { ifindex: FIVE, news: News::New }]);
    assert_eq!(b.notify(&PLAIN.notification())[0].news, News::Same);
    assert_eq!(b.notify(&Row5 { mtu: 9000, ..PLAIN }.notification())[0].news, News::Changed);
    assert_eq!(b.notify(&Row5 { name: "lan0", ..PLAIN }.notification())[0].news, News::Renamed);
    assert_eq!(b.table.by_name(b"x0"), None);
    assert_eq!(b.table.by_name(b"lan0").map(|l| l.ifindex), Some(5));
    assert_eq!(b.table.count(), 1);

    assert_eq!(b.notify(&dellink(5)), [Change { ifindex: FIVE, news: News::Gone }]);
    assert!(matches!(b.table.lookup(FIVE), Lookup::Gone(Some(link)) if link.name.as_bstr() == "lan0"));
    assert_eq!((b.table.by_name(b"lan0"), b.table.count()), (None, 0));
    b.table.forget(FIVE);
    assert_eq!(b.table.lookup(FIVE), Lookup::Unknown);
}

#[test]
fn an_index_used_again_is_a_new_link_and_survives_the_old_remove() {
    let mut b = Bench::new();
    b.notify(&PLAIN.notification());
    b.notify(&dellink(5));
    assert!(matches!(b.table.lookup(FIVE), Lookup::Gone(Some(_))));
    assert_eq!(b.notify(&Row5 { name: "y0", ..PLAIN }.notification())[0].news, News::New);
    b.table.forget(FIVE);
    assert_eq!(b.link().name.as_bstr(), "y0");
}

#[test]
fn two_links_that_swap_names() {
    let mut b = Bench::new();
    let named = |name, ifindex| Row5 { name, ..PLAIN }.message(ifindex, 0, 0);
    for (name, ifindex) in [("a", 5), ("b", 6), ("tmp", 5), ("a", 6), ("b", 5)] {
        b.notify(&named(name, ifindex));
    }
    assert_eq!(b.table.by_name(b"a").map(|l| l.ifindex), Some(6));
    assert_eq!(b.table.by_name(b"b").map(|l| l.ifindex), Some(5));
    assert_eq!(b.table.by_name(b"tmp"), None);
}

#[test]
fn a_reply_that_a_notification_overtook_does_not_turn_a_row_back() {
    let mut b = Bench::new();
    b.notify(&PLAIN.notification());
    let (seq, _) = b.table.request(FIVE, false);
    b.notify(&Row5 { mtu: 9000, ..PLAIN }.notification());
    assert_eq!(b.reply(&PLAIN.reply(seq)).unwrap().seq, seq);
    assert_eq!(b.link().mtu, 9000);
    // Without one it counts.
    let (seq, _) = b.table.request(FIVE, false);
    b.reply(&PLAIN.reply(seq));
    assert_eq!(b.link().mtu, 1500);
}

#[test]
fn the_first_end_of_a_pair_learns_its_other_end_from_the_reply() {
    // Uevent, request, then the notification that was sent before the other end existed, then the reply.
    let mut b = Bench::new();
    let (seq, _) = b.table.request(FIVE, false);
    b.notify(&Row5 { iflink: 0, ..PLAIN }.notification());
    assert!(!b.table.is_iflink_fresh(FIVE, Mark::ANY));
    b.reply(&Row5 { iflink: 6, ..PLAIN }.reply(seq));
    assert_eq!(b.link().iflink, 6);
    assert!(b.table.is_iflink_fresh(FIVE, Mark::ANY));
}

#[test]
fn the_first_end_of_a_pair_learns_its_other_end_from_the_message_of_that_end() {
    // Captured: veth1 (2) with IFLA_LINK 0, then veth0 (3) with IFLA_LINK 2.
    let mut b = Bench::new();
    let first = IfIndex(2);
    b.notify(include_bytes!("../captures/veth-first-end.bin"));
    assert!(!b.table.is_iflink_fresh(first, Mark::ANY));
    b.notify(include_bytes!("../captures/veth-second-end.bin"));
    assert!(b.table.is_iflink_fresh(first, Mark::ANY));
    let iflink = |table: &Table, ifindex| match table.lookup(ifindex) {
        Lookup::Known(link) => link.iflink,
        other => panic!("{other:?}"),
    };
    assert_eq!((iflink(&b.table, first), iflink(&b.table, IfIndex(3))), (3, 2));
}

#[test]
fn a_reply_does_not_revive_a_link() {
    let mut b = Bench::new();
    b.notify(&PLAIN.notification());
    let (seq, _) = b.table.request(FIVE, false);
    b.notify(&dellink(5));
    b.reply(&PLAIN.reply(seq));
    assert!(matches!(b.table.lookup(FIVE), Lookup::Gone(_)));
    // Nor does it speak for the next link of that index.
    b.notify(&Row5 { iflink: 0, ..PLAIN }.notification());
    b.reply(&Row5 { iflink: 9, ..PLAIN }.reply(seq));
    assert_eq!(b.link().iflink, 0);
}

#[test]
fn a_link_never_seen_can_be_gone() {
    let mut b = Bench::new();
    assert_eq!(b.notify(&dellink(5))[0].news, News::Gone);
    assert_eq!(b.table.lookup(FIVE), Lookup::Gone(None));
    b.table.forget(FIVE);
    let (seq, _) = b.table.request(FIVE, false);
    b.table.note_absent(FIVE, seq);
    assert_eq!(b.table.lookup(FIVE), Lookup::Gone(None));
    // The index came into use between the answer and now.
    b.table.forget(FIVE);
    let (seq, _) = b.table.request(FIVE, false);
    b.notify(&PLAIN.notification());
    b.table.note_absent(FIVE, seq);
    assert!(matches!(b.table.lookup(FIVE), Lookup::Known(_)));
}

#[test]
fn marks_and_freshness() {
    let mut b = Bench::new();
    b.notify(&PLAIN.notification());
    assert!(b.table.is_fresh(FIVE, Mark::ANY));
    let mark = b.table.mark();
    assert!(!b.table.is_fresh(FIVE, mark));
    // A request of before the mark does not help.
    let (early, _) = b.table.request(FIVE, false);
    b.table.caught_up();
    let later = b.table.mark();
    b.reply(&PLAIN.reply(early));
    assert!(b.table.is_fresh(FIVE, mark) && !b.table.is_fresh(FIVE, later));
    // A notification after it does.
    b.notify(&PLAIN.notification());
    assert!(b.table.is_fresh(FIVE, later));
}

#[test]
fn a_message_without_the_columns_does_not_keep_a_reply_from_telling_them() {
    let mut b = Bench::new();
    b.notify(&PLAIN.notification());
    let mark = b.table.mark();
    let (seq, _) = b.table.request(FIVE, false);
    b.notify(&Builder::new(RTM_NEWLINK, 0, 0).ifinfo(5).text(IFLA_IFNAME, b"wlan0").finish());
    b.reply(&Row5 { mtu: 9000, ..PLAIN }.reply(seq));
    assert_eq!((b.link().mtu, b.link().name.as_bstr()), (9000, "wlan0".into()));
    assert!(b.table.is_fresh(FIVE, mark));
}

#[test]
fn a_reply_does_not_revive_a_link_that_was_forgotten() {
    let mut b = Bench::new();
    b.notify(&PLAIN.notification());
    let (seq, _) = b.table.request(FIVE, false);
    b.notify(&dellink(5));
    b.table.forget(FIVE);
    b.reply(&PLAIN.reply(seq));
    assert_eq!(b.table.lookup(FIVE), Lookup::Unknown);
    assert!(b.table.rows.is_empty() && b.table.tombstones == 0, "nothing stays");
    // Nor when so many are gone that all tombstones are dropped.
    b.notify(&PLAIN.notification());
    let (seq, _) = b.table.request(FIVE, false);
    for ifindex in (10..=10 + TOMBSTONES_MAX as u32).chain([5]) {
        b.read(&dellink(ifindex));
    }
    b.table.rows.retain(|_, row| row.alive);
    b.reply(&PLAIN.reply(seq));
    assert_eq!(b.table.lookup(FIVE), Lookup::Unknown);
}

#[test]
fn a_reply_that_nobody_waits_for_any_more_says_nothing() {
    let mut b = Bench::new();
    let (seq, _) = b.table.request(FIVE, false);
    b.table.close(seq);
    b.reply(&PLAIN.reply(seq));
    assert_eq!(b.table.lookup(FIVE), Lookup::Unknown);
}

#[test]
fn a_dump_that_was_not_understood_sweeps_nothing() {
    let mut b = Bench::new();
    b.notify(&PLAIN.notification());
    b.table.lose();
    let seq = b.begin();
    let mut bad = Row5 { name: "y", ..PLAIN }.message(6, NLM_F_MULTIPART, seq);
    bad[HEADER + IFINFO] = 3;
    let good = Row5 { name: "z", ..PLAIN }.message(7, NLM_F_MULTIPART, seq);
    assert!(b.table.apply(&[bad, good].concat(), Origin::Reply, &mut b.changes).malformed);
    assert!(!b.end(seq, 0));
    b.link();
    assert!(matches!(b.table.lookup(IfIndex(7)), Lookup::Known(_)), "what comes behind it is read");
}

#[test]
fn statistics_are_kept_when_asked_for() {
    let mut b = Bench::new();
    b.notify(&PLAIN.notification());
    let mark = b.table.mark();
    let (seq, _) = b.table.request(FIVE, false);
    b.reply(&PLAIN.reply(seq));
    assert_eq!(b.table.statistic(FIVE, 0, mark), None);
    let (seq, _) = b.table.request(FIVE, true);
    b.reply(&PLAIN.reply(seq));
    assert_eq!(b.table.statistic(FIVE, 23, mark), Some(Some(0x0101_0101_0101_0101)));
    b.table.caught_up();
    assert_eq!(b.table.statistic(FIVE, 23, b.table.mark()), None);
}

#[test]
fn a_dump_sweeps_what_it_does_not_mention() {
    let mut b = Bench::new();
    b.notify(&PLAIN.notification());
    b.notify(&Row5 { name: "lost", ..PLAIN }.message(6, 0, 0));
    b.table.lose();
    assert!(b.table.is_stale() && b.table.wants_dump());
    let seq = b.begin();
    assert!(!b.table.wants_dump());
    b.reply(&Row5 { mtu: 9000, ..PLAIN }.of_dump(seq));
    b.reply(&Row5 { name: "new", ..PLAIN }.message(7, NLM_F_MULTIPART, seq));
    assert!(b.end(seq, 0));
    assert_eq!(b.changes, [Change { ifindex: IfIndex(6), news: News::Gone }]);
    assert_eq!(b.link().mtu, 9000);
    assert!(matches!(b.table.lookup(IfIndex(7)), Lookup::Known(_)));
    assert!(!b.table.is_stale());
}

#[test]
fn notifications_during_a_dump_win_over_its_rows() {
    let mut b = Bench::new();
    b.notify(&PLAIN.notification());
    b.table.lose();
    let seq = b.begin();
    // Changed, made and deleted while the dump is on its way.
    b.notify(&Row5 { mtu: 9000, ..PLAIN }.notification());
    b.notify(&Row5 { name: "new", ..PLAIN }.message(6, 0, 0));
    b.notify(&dellink(7));
    b.table.forget(IfIndex(7));
    b.reply(&PLAIN.of_dump(seq));
    b.reply(&Row5 { name: "late", ..PLAIN }.message(7, NLM_F_MULTIPART, seq));
    // A targeted reply of after the dump's beginning: its link need not be in the dump.
    let (asked, _) = b.table.request(IfIndex(8), false);
    b.reply(&Row5 { name: "asked", ..PLAIN }.message(8, 0, asked));
    assert!(b.end(seq, 0));
    assert_eq!(b.link().mtu, 9000);
    assert!(matches!(b.table.lookup(IfIndex(6)), Lookup::Known(_)));
    assert_eq!(b.table.lookup(IfIndex(7)), Lookup::Unknown);
    assert!(matches!(b.table.lookup(IfIndex(8)), Lookup::Known(_)));
}

#[test]
fn a_spoilt_dump_is_asked_for_again() {
    for how in ["interrupted at the end", "interrupted in the middle", "lost meanwhile", "helper died"] {
        let mut b = Bench::new();
        b.notify(&PLAIN.notification());
        b.table.lose();
        let seq = b.begin();
        let good = match how {
            "interrupted at the end" => b.end(seq, NLM_F_DUMP_INTR),
            "interrupted in the middle" => {
                b.reply(&Row5 { name: "y", ..PLAIN }.message(6, NLM_F_MULTIPART | NLM_F_DUMP_INTR, seq));
                b.end(seq, 0)
            }
            "lost meanwhile" => {
                b.table.lose();
                b.end(seq, 0)
            }
            _ => {
                b.table.abandon_dump();
                false
            }
        };
        assert!(!good && b.table.wants_dump(), "{how}");
        // Nothing was swept.
        assert!(matches!(b.table.lookup(FIVE), Lookup::Known(_)), "{how}");
        let seq = b.begin();
        b.reply(&PLAIN.of_dump(seq));
        assert!(b.end(seq, 0) && !b.table.wants_dump(), "{how}");
    }
}

#[test]
fn another_reply_does_not_end_a_dump() {
    let mut b = Bench::new();
    b.table.lose();
    let dump = b.begin();
    let (seq, _) = b.table.request(FIVE, false);
    let reply = b.reply(&PLAIN.reply(seq)).unwrap();
    assert!(!b.table.end_dump(&reply, &mut Vec::new()));
    assert!(!b.table.wants_dump(), "it is still under way");
    assert!(b.end(dump, 0));
}

#[test]
fn partial_and_foreign_messages() {
    let mut b = Bench::new();
    let wireless = Builder::new(RTM_NEWLINK, 0, 0).ifinfo(5).text(IFLA_IFNAME, b"x0").finish();
    assert_eq!(b.notify(&wireless)[0].news, News::Same);
    assert_eq!(b.table.lookup(FIVE), Lookup::Unknown);
    b.notify(&Row5 { mtu: 9000, ..PLAIN }.notification());
    b.notify(&wireless);
    assert_eq!(b.link().mtu, 9000);
    // A bridge port leaves its bridge: AF_BRIDGE.
    let mut bridge = dellink(5);
    bridge[HEADER] = libc::AF_BRIDGE as u8;
    assert_eq!(b.notify(&bridge), []);
    b.link();
}

#[test]
fn the_rest_of_a_malformed_datagram_is_dropped_and_told() {
    let mut b = Bench::new();
    let mut datagram = PLAIN.notification();
    let second = Row5 { name: "y", ..PLAIN }.message(6, 0, 0);
    datagram.extend_from_slice(&second[..second.len() - 1]);
    let applied = b.table.apply(&datagram, Origin::Notification, &mut b.changes);
    assert!(applied.malformed);
    b.link();
    assert_eq!(b.table.lookup(IfIndex(6)), Lookup::Unknown);
}

#[test]
fn sequence_numbers_wrap_without_being_mistaken() {
    let mut b = Bench::new();
    b.table.stamp = u64::from(u32::MAX) * 3 + 1;
    for _ in 0..4 {
        b.table.caught_up();
        let mark = b.table.mark();
        let (seq, _) = b.table.request(FIVE, false);
        assert_ne!(seq, 0);
        b.reply(&PLAIN.reply(seq));
        assert!(b.table.is_fresh(FIVE, mark));
    }
}

#[test]
fn tombstones_are_bounded() {
    let mut b = Bench::new();
    b.notify(&PLAIN.notification());
    for ifindex in 10..10 + 3 * TOMBSTONES_MAX as u32 {
        b.notify(&dellink(ifindex));
    }
    assert!(b.table.rows.len() <= TOMBSTONES_MAX + 1);
    b.link();
    let last = IfIndex(9 + 3 * TOMBSTONES_MAX as u32);
    assert_eq!(b.table.lookup(last), Lookup::Gone(None));
    for ifindex in 10..10 + 3 * TOMBSTONES_MAX as u32 {
        b.table.forget(IfIndex(ifindex));
    }
    assert_eq!((b.table.rows.len(), b.table.tombstones), (1, 0));
}

#[test]
fn after_a_loss_only_what_was_heard_since_counts() {
    let mut b = Bench::new();
    b.notify(&PLAIN.notification());
    b.table.lose();
    assert!(!b.table.is_fresh(FIVE, Mark::ANY));
    // Still queued from before the loss: nothing may be asked yet, and it does not count.
    assert!(!b.table.may_ask());
    b.read(&PLAIN.notification());
    assert!(!b.table.is_fresh(FIVE, Mark::ANY) && !b.table.may_ask());
    b.table.caught_up();
    let (seq, _) = b.table.request(FIVE, false);
    b.reply(&Row5 { mtu: 9000, ..PLAIN }.reply(seq));
    assert!(b.table.is_fresh(FIVE, Mark::ANY));
    assert_eq!(b.link().mtu, 9000);
    // What is sent since the socket was empty counts again, the dump or not.
    b.notify(&PLAIN.notification());
    assert!(b.table.is_fresh(FIVE, Mark::ANY));
    let dump = b.begin();
    b.table.lose();
    assert!(!b.table.is_fresh(FIVE, Mark::ANY));
    assert!(!b.end(dump, 0));
    let dump = b.begin();
    b.reply(&PLAIN.of_dump(dump));
    assert!(b.end(dump, 0));
    assert!(b.table.is_fresh(FIVE, Mark::ANY));
}

#[test]
fn a_forgotten_tombstone_can_be_found_again() {
    let mut b = Bench::new();
    b.notify(&PLAIN.notification());
    b.table.lose();
    let dump = b.begin();
    b.notify(&dellink(5));
    b.table.forget(FIVE);
    assert_eq!(b.table.lookup(FIVE), Lookup::Unknown);
    let (seq, _) = b.table.request(FIVE, false);
    b.table.note_absent(FIVE, seq);
    assert!(matches!(b.table.lookup(FIVE), Lookup::Gone(_)));
    assert!(b.end(dump, 0));
    assert!(matches!(b.table.lookup(FIVE), Lookup::Gone(_)));
}
