//! Orders of arrival: a kernel in small that changes links at any moment, loses notifications as the real
//! one does, dumps in pieces and whose helper may be killed; a loop that reads as little or as much as it
//! likes. All short orders are tried, and long ones by chance.
//!
//! What must hold after every step, and at the end, is in [`Bench::check`] and [`Bench::settle`].

use super::super::table::{Lookup, Mark};
use super::super::wire::*;
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const LINKS: u32 = 3;
const LIMIT: Now = Now::from_secs(1000);

/// A link of the kernel. Both numbers are of the moment of their last change, so none comes twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// IFLA_MTU: changes are announced.
    told: u32,
    /// IFLA_GROUP: changes are not.
    silent: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Makes the link, or changes what is announced.
    Change(u32),
    Silent(u32),
    Delete(u32),
    /// The loop reads up to this many notifications.
    Read(u8),
    /// The loop takes a datagram of the helper.
    Take,
    /// The loop asks for what it needs.
    Issue,
    AskFor(u32),
    /// The uevent `remove` was handled.
    Forget(u32),
    /// The helper does the next piece of its work.
    Serve,
    Kill,
}

/// What a receive call says.
enum Received {
    Message(Vec<u8>),
    Overrun,
    WouldBlock,
}

#[derive(Clone, Debug, Default)]
struct Kernel {
    now: u32,
    links: BTreeMap<u32, State>,
    /// What each link was from which moment on.
    past: BTreeMap<u32, Vec<(u32, Option<State>)>>,
    /// How often a link came or went.
    list_changes: u32,
    queue: VecDeque<Vec<u8>>,
    room: usize,
    /// Overrun, and nothing is queued until all was read.
    congested: bool,
    /// ENOBUFS has to be told.
    error: bool,
    requests: VecDeque<(u32, Option<u32>)>,
    /// Of the dump at work: the next ifindex, and list_changes at its last piece.
    dump: Option<(u32, u32)>,
    replies: VecDeque<Vec<u8>>,
}

impl Kernel {
    fn set(&mut self, ifindex: u32, state: Option<State>) {
        self.past.entry(ifindex).or_default().push((self.now, state));
        match state {
            Some(state) => self.links.insert(ifindex, state),
            None => self.links.remove(&ifindex),
        };
    }

    /// States of the link from `since` on.
    fn states(&self, ifindex: u32, since: u32) -> impl Iterator<Item = Option<State>> {
        let past = self.past.get(&ifindex).map_or(&[][..], Vec::as_slice);
        let before = past.iter().rev().find(|(at, _)| *at <= since).and_then(|(_, state)| *state);
        std::iter::once(before).chain(past.iter().filter(move |(at, _)| *at > since).map(|(_, state)| *state))
    }

    fn message(ifindex: u32, state: State, flags: u16, seq: u32) -> Vec<u8> {
        Builder::new(RTM_NEWLINK, flags, seq)
            .ifinfo(ifindex)
            .text(IFLA_IFNAME, format!("l{ifindex}").as_bytes())
            .u32(IFLA_MTU, state.told)
            .u32(IFLA_GROUP, state.silent)
            .finish()
    }

    fn announce(&mut self, message: Vec<u8>) {
        if self.queue.len() >= self.room && !self.congested {
            self.congested = true;
            self.error = true;
        }
        if !self.congested {
            self.queue.push_back(message);
        }
    }

    fn change(&mut self, ifindex: u32) {
        self.now += 1;
        let silent = self.links.get(&ifindex).map_or(self.now, |link| link.silent);
        self.list_changes += u32::from(!self.links.contains_key(&ifindex));
        let state = State { told: self.now, silent };
        self.set(ifindex, Some(state));
        self.announce(Kernel::message(ifindex, state, 0, 0));
    }

    fn change_silently(&mut self, ifindex: u32) {
        if let Some(state) = self.links.get(&ifindex).copied() {
            self.now += 1;
            self.set(ifindex, Some(State { silent: self.now, ..state }));
        }
    }

    fn delete(&mut self, ifindex: u32) {
        if self.links.contains_key(&ifindex) {
            self.now += 1;
            self.list_changes += 1;
            self.set(ifindex, None);
            self.announce(Builder::new(RTM_DELLINK, 0, 0).ifinfo(ifindex).finish());
        }
    }

    fn receive(&mut self) -> Received {
        if std::mem::take(&mut self.error) {
            return Received::Overrun;
        }
        let Some(message) = self.queue.pop_front() else { return Received::WouldBlock };
        self.congested &= !self.queue.is_empty();
        Received::Message(message)
    }

    fn take_requests(&mut self, datagram: &[u8]) {
        for frame in frames(datagram).map(Result::unwrap).filter(|frame| frame.kind == RTM_GETLINK) {
            let ifindex = read_u32(frame.payload, 4).filter(|_| frame.flags & NLM_F_DUMP == 0);
            self.requests.push_back((frame.seq, ifindex));
        }
    }

    fn serve(&mut self) {
        let Some(&(seq, ifindex)) = self.requests.front() else { return };
        let Some(ifindex) = ifindex else { return self.serve_dump(seq) };
        self.requests.pop_front();
        self.replies.push_back(match self.links.get(&ifindex) {
            Some(state) => Kernel::message(ifindex, *state, 0, seq),
            None => Builder::new(NLMSG_ERROR, NLM_F_CAPPED, seq)
                .payload(&(-libc::ENODEV).to_ne_bytes())
                .payload(&[0; HEADER])
                .finish(),
        });
    }

    fn serve_dump(&mut self, seq: u32) {
        let (next, list_changes) = self.dump.unwrap_or((1, self.list_changes));
        let interrupted = if list_changes == self.list_changes { 0 } else { NLM_F_DUMP_INTR };
        let flags = NLM_F_MULTIPART | interrupted;
        // A list that changes meanwhile may be walked with gaps.
        match self.links.range(next..).nth(usize::from(interrupted != 0)) {
            Some((&ifindex, state)) => {
                self.replies.push_back(Kernel::message(ifindex, *state, flags, seq));
                // Only the first part after a change says so.
                self.dump = Some((ifindex + 1, self.list_changes));
            }
            None => {
                self.replies.push_back(Builder::new(NLMSG_DONE, flags, seq).payload(&[0; 4]).finish());
                self.dump = None;
                self.requests.pop_front();
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Bench {
    kernel: Kernel,
    exchange: Exchange<()>,
    /// The kernel's time when the socket was last found empty.
    empty_at: u32,
    /// And when an overrun was last reported.
    lost_at: u32,
    /// No row may be older than this.
    floor: BTreeMap<u32, u32>,
    alive: BTreeSet<u32>,
    asked: usize,
    ended: usize,
}

impl Bench {
    fn new(room: usize) -> Bench {
        Bench {
            kernel: Kernel { room, ..Kernel::default() },
            exchange: Exchange::default(),
            empty_at: 0,
            lost_at: 0,
            floor: BTreeMap::new(),
            alive: BTreeSet::new(),
            asked: 0,
            ended: 0,
        }
    }

    /// False if there is nothing to do for this action.
    fn act(&mut self, action: Action) -> bool {
        match action {
            Action::Change(ifindex) => self.kernel.change(ifindex),
            Action::Silent(ifindex) if !self.kernel.links.contains_key(&ifindex) => return false,
            Action::Silent(ifindex) => self.kernel.change_silently(ifindex),
            Action::Delete(ifindex) if !self.kernel.links.contains_key(&ifindex) => return false,
            Action::Delete(ifindex) => self.kernel.delete(ifindex),
            Action::Read(count) => self.read(count),
            Action::Take if self.kernel.replies.is_empty() || self.exchange.holds() => return false,
            Action::Take => {
                let datagram = self.kernel.replies.pop_front().unwrap();
                self.exchange.hold(&datagram);
            }
            Action::Issue => {
                self.exchange.want_dump(LIMIT);
                let Some(datagram) = self.exchange.issue(4096, Now::ZERO) else { return false };
                self.kernel.take_requests(&datagram);
            }
            Action::AskFor(ifindex) => {
                self.asked += 1;
                let errand = Errand::Link { ifindex: IfIndex(ifindex), statistics: false, ticket: 0 };
                self.exchange.ask(errand, LIMIT);
            }
            Action::Forget(ifindex) => {
                if !matches!(self.exchange.table.lookup(IfIndex(ifindex)), Lookup::Gone(_)) {
                    return false;
                }
                self.exchange.table.forget(IfIndex(ifindex));
            }
            Action::Serve if self.kernel.requests.is_empty() => return false,
            Action::Serve => self.kernel.serve(),
            Action::Kill => {
                for datagram in std::mem::take(&mut self.kernel.replies) {
                    self.exchange.hold(&datagram);
                }
                self.exchange.hold_death();
                self.kernel.requests.clear();
                self.kernel.dump = None;
            }
        }
        let ended = self.exchange.take_ended();
        self.ended += ended.iter().filter(|ended| matches!(ended, Ended::Link { .. })).count();
        true
    }

    fn read(&mut self, count: u8) {
        for _ in 0..count {
            match self.kernel.receive() {
                Received::Message(message) => assert!(self.exchange.notification(&message)),
                Received::Overrun => {
                    self.lost_at = self.kernel.now;
                    self.exchange.table.lose();
                }
                Received::WouldBlock => {
                    self.empty_at = self.kernel.now;
                    assert!(self.exchange.caught_up(Now::ZERO));
                    return;
                }
            }
        }
    }

    fn row(&self, ifindex: u32) -> Option<State> {
        match self.exchange.table.lookup(IfIndex(ifindex)) {
            Lookup::Known(link) => Some(State { told: link.mtu, silent: link.group.unwrap() }),
            _ => None,
        }
    }

    fn check(&mut self) -> Result<(), String> {
        for ifindex in 1..=LINKS {
            let row = self.row(ifindex);
            // No row goes back in time, and what is gone does not come back.
            let floor = self.floor.entry(ifindex).or_default();
            match row {
                Some(state) if state.told < *floor => {
                    return Err(format!("{ifindex} went back to {state:?} from {floor}"));
                }
                Some(state) => {
                    *floor = state.told;
                    self.alive.insert(ifindex);
                }
                None => *floor += u32::from(self.alive.remove(&ifindex)),
            }
            // What is said to be right was right when the socket was empty, or later.
            if !self.exchange.table.is_stale() {
                let told = |state: Option<State>| state.map(|state| state.told);
                if !self.kernel.states(ifindex, self.empty_at).any(|state| told(state) == told(row)) {
                    return Err(format!("{ifindex} is not stale and wrong: {row:?}"));
                }
            }
            // And what is fresh, in all columns; after a loss at no moment before it.
            let table = &self.exchange.table;
            let since = if table.is_stale() { self.lost_at.max(self.empty_at) } else { self.empty_at };
            if table.mark() > Mark::ANY
                && row.is_some()
                && table.is_fresh(IfIndex(ifindex), table.mark())
                && !self.kernel.states(ifindex, since).any(|state| state == row)
            {
                return Err(format!("{ifindex} is fresh and wrong: {row:?}"));
            }
        }
        Ok(())
    }

    fn step(&mut self, action: Action) -> Result<bool, String> {
        Ok(self.act(action) && self.check().map(|()| true)?)
    }

    /// Goes on until all is read and answered: then the table is right.
    fn settle(&mut self) -> Result<(), String> {
        for ifindex in 1..=LINKS {
            self.act(Action::AskFor(ifindex));
        }
        for _ in 0..1000 {
            let mut done = false;
            for action in [Action::Read(100), Action::Issue, Action::Serve, Action::Take] {
                done |= self.step(action)? && action != Action::Read(100);
            }
            if !done {
                break;
            }
        }
        if self.exchange.table.is_stale() || self.asked != self.ended {
            return Err(format!("does not come to rest: {} of {} ended", self.ended, self.asked));
        }
        for ifindex in 1..=LINKS {
            let (row, kernel) = (self.row(ifindex), self.kernel.links.get(&ifindex).copied());
            if row != kernel {
                return Err(format!("at rest {ifindex} is {row:?}, for the kernel {kernel:?}"));
            }
        }
        Ok(())
    }
}

/// Tries all orders of so many steps.
fn try_all(bench: &Bench, depth: usize, so_far: &mut Vec<Action>, actions: &[Action], tried: &mut usize) {
    if depth == 0 {
        *tried += 1;
        if let Err(why) = bench.clone().settle() {
            panic!("{why}, after {so_far:?}");
        }
        return;
    }
    for &action in actions {
        let mut next = bench.clone();
        so_far.push(action);
        match next.step(action) {
            Ok(true) => try_all(&next, depth - 1, so_far, actions, tried),
            Ok(false) => {}
            Err(why) => panic!("{why}, after {so_far:?}"),
        }
        so_far.pop();
    }
}

#[test]
fn all_short_orders_with_a_buffer_of_one_message() {
    let mut bench = Bench::new(1);
    for action in [Action::Change(1), Action::Read(9), Action::Change(2), Action::Read(9)] {
        bench.step(action).unwrap();
    }
    let actions = [
        Action::Change(1),
        Action::Delete(1),
        Action::Read(1),
        Action::Read(9),
        Action::Take,
        Action::Issue,
        Action::Serve,
        Action::Forget(1),
        Action::Silent(1),
    ];
    let mut tried = 0;
    let mut go = |bench: &Bench| try_all(bench, 5, &mut Vec::new(), &actions, &mut tried);
    // The first dump has yet to come.
    go(&bench);
    bench.settle().unwrap();
    go(&bench);
    // Something waits, and the next was lost.
    for action in [Action::Change(1), Action::Change(1), Action::Delete(2)] {
        bench.step(action).unwrap();
    }
    go(&bench);
    // A dump, or a request, is under way.
    bench.step(Action::Read(9)).unwrap();
    bench.step(Action::Issue).unwrap();
    go(&bench);
    bench.settle().unwrap();
    bench.step(Action::AskFor(1)).unwrap();
    bench.step(Action::Issue).unwrap();
    go(&bench);
    assert!(tried > 20_000, "{tried}");
}

fn action() -> impl Strategy<Value = Action> {
    let link = || 1..=LINKS;
    prop_oneof![
        8 => link().prop_map(Action::Change),
        3 => link().prop_map(Action::Silent),
        3 => link().prop_map(Action::Delete),
        6 => (1u8..4).prop_map(Action::Read),
        2 => Just(Action::Read(99)),
        6 => Just(Action::Take),
        4 => Just(Action::Issue),
        2 => link().prop_map(Action::AskFor),
        2 => link().prop_map(Action::Forget),
        8 => Just(Action::Serve),
        1 => Just(Action::Kill),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_order_no_row_is_wrong_and_all_is_right_at_rest(
        room in 1usize..8,
        actions in proptest::collection::vec(action(), 0..150),
    ) {
        let mut bench = Bench::new(room);
        for action in actions {
            bench.step(action).map_err(TestCaseError::fail)?;
        }
        bench.settle().map_err(TestCaseError::fail)?;
    }
}
