//! Which device owns which symlink (rules.md 11.2): the table in memory.
//!
//! A *claim* is a device wanting `/dev/<link>` with a priority. The best claim owns the symlink; the
//! order of claims is in [`rank`] and nowhere else. [`Claims::claim`] and [`Claims::release`] change
//! the table in O(log n) and return a [`Decision`]: what must now be true on disk. Performing it, and
//! filling the table when the daemon starts, is `world::claims_dir`.
//!
//! What must stay true: the owner of a symlink is always the best of the table, so a decision never
//! depends on what the disk happens to show. Whoever performs a decision and finds that the node of the
//! owner is gone calls [`Claims::set_absent`] and gets the next decision. Each claim is found absent
//! only once, so thousands of devices that vanish together cost no more than one by one.

use super::DeviceId;
use super::fnv::BuildFnv;
use bstr::{BStr, BString, ByteSlice};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Place of a claim among the claims of one symlink; the greatest owns it.
type Rank = (bool, i32, u64);

/// The tie rule: a claim whose node is gone comes after all others; the higher priority wins; among
/// equals the device that was processed last. `recency` grows with every claim made.
fn rank(present: bool, priority: i32, recency: u64) -> Rank {
    (present, priority, recency)
}

/// A device wanting a symlink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub id: DeviceId,
    pub priority: i32,
    /// Absolute, `/dev/sda`.
    pub devnode: BString,
}

/// What must be true on disk after a claim or a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub entry: EntryChange,
    pub symlink: Symlink,
}

/// What becomes of the entry of the device in the claim directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryChange {
    /// The entry already says what it must, or there is none and none is needed.
    Keep,
    /// The entry is new, or its priority or node changed.
    Write,
    /// The entry is removed.
    Remove,
    /// The entry is removed, and it was the last: the claim directory goes too.
    RemoveLast,
}

/// What becomes of `/dev/<link>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Symlink {
    /// The symlink must point to the node of this claim, and did not before.
    Point(Arc<Claim>),
    /// The symlink must point to the node of this claim, as before.
    Keep(Arc<Claim>),
    /// Nobody wants it any more.
    Remove,
    /// Nobody owned it and nobody does.
    Nothing,
}

/// The claims of one symlink.
#[derive(Clone, Debug)]
struct Stack {
    link: Arc<[u8]>,
    by_rank: BTreeMap<Rank, Arc<Claim>>,
    rank_of_id: HashMap<DeviceId, Rank, BuildFnv>,
}

impl Stack {
    fn of(link: Arc<[u8]>) -> Stack {
        Stack { link, by_rank: BTreeMap::new(), rank_of_id: HashMap::default() }
    }

    fn best(&self) -> Option<&Arc<Claim>> {
        let (&(present, ..), claim) = self.by_rank.last_key_value()?;
        present.then_some(claim)
    }

    fn remove(&mut self, id: &DeviceId) -> Option<Arc<Claim>> {
        let rank = self.rank_of_id.remove(id)?;
        self.by_rank.remove(&rank)
    }

    fn insert(&mut self, rank: Rank, claim: Arc<Claim>) {
        self.rank_of_id.insert(claim.id.clone(), rank);
        self.by_rank.insert(rank, claim);
    }
}

/// All claims, by symlink relative to `/dev/`.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    /// Labels on media choose names, so the hasher has a seed.
    stacks: HashMap<Arc<[u8]>, Stack>,
    /// The same by device: a removal looks at the symlinks of its device alone.
    by_device: HashMap<DeviceId, BTreeSet<Arc<[u8]>>, BuildFnv>,
    /// Number of claims ever made.
    recency: u64,
}

impl Claims {
    /// An empty table.
    pub fn new() -> Claims {
        Claims::default()
    }

    /// `id` wants `/dev/<link>` to point to `devnode`; an earlier claim of it is replaced.
    pub fn claim(&mut self, link: &[u8], id: &DeviceId, priority: i32, devnode: &[u8]) -> Decision {
        self.recency += 1;
        let rank = rank(true, priority, self.recency);
        if !self.stacks.contains_key(link) {
            let name: Arc<[u8]> = link.into();
            self.stacks.insert(name.clone(), Stack::of(name));
        }
        // Just inserted if it was missing.
        let Some(stack) = self.stacks.get_mut(link) else { return Decision::NOTHING };
        let owner = stack.best().cloned();
        let old = stack.remove(id);
        let same = old.as_ref().filter(|old| old.priority == priority && old.devnode == devnode);
        let claim = match same {
            Some(old) => old.clone(),
            None => Arc::new(Claim { id: id.clone(), priority, devnode: devnode.into() }),
        };
        let entry = if same.is_some() { EntryChange::Keep } else { EntryChange::Write };
        if old.is_none() {
            self.by_device.entry(id.clone()).or_default().insert(stack.link.clone());
        }
        stack.insert(rank, claim);
        Decision { entry, symlink: Symlink::between(owner.as_deref(), stack.best()) }
    }

    /// `id` no longer wants `/dev/<link>`.
    pub fn release(&mut self, link: &[u8], id: &DeviceId) -> Decision {
        let Some(stack) = self.stacks.get_mut(link) else { return Decision::NOTHING };
        let owner = stack.best().cloned();
        if stack.remove(id).is_none() {
            return Decision::NOTHING;
        }
        if let Some(links) = self.by_device.get_mut(id) {
            links.remove(link);
            if links.is_empty() {
                self.by_device.remove(id);
            }
        }
        let symlink = Symlink::between(owner.as_deref(), stack.best());
        if stack.by_rank.is_empty() {
            self.stacks.remove(link);
            return Decision { entry: EntryChange::RemoveLast, symlink };
        }
        Decision { entry: EntryChange::Remove, symlink }
    }

    /// The node of this claim is not there: the claim stays, but owns nothing until it is made anew.
    /// Returns the owner that follows.
    pub fn set_absent(&mut self, link: &[u8], id: &DeviceId) -> Option<&Arc<Claim>> {
        let stack = self.stacks.get_mut(link)?;
        if let Some((_, priority, recency)) = stack.rank_of_id.get(id).copied()
            && let Some(claim) = stack.remove(id)
        {
            stack.insert(rank(false, priority, recency), claim);
        }
        stack.best()
    }

    /// The claim that owns a symlink; None if nobody claims it, or only devices whose nodes are gone.
    pub fn owner(&self, link: &[u8]) -> Option<&Arc<Claim>> {
        self.stacks.get(link)?.best()
    }

    /// The claim of a device on a symlink.
    pub fn get(&self, link: &[u8], id: &DeviceId) -> Option<&Arc<Claim>> {
        let stack = self.stacks.get(link)?;
        stack.by_rank.get(stack.rank_of_id.get(id)?)
    }

    /// The claims of a symlink, the owner first, those whose nodes are gone last.
    pub fn ranked(&self, link: &[u8]) -> impl Iterator<Item = &Arc<Claim>> {
        self.stacks.get(link).into_iter().flat_map(|stack| stack.by_rank.values().rev())
    }

    /// All symlinks that someone wants, in no order.
    pub fn symlinks(&self) -> impl Iterator<Item = &BStr> {
        self.stacks.keys().map(|link| link.as_bstr())
    }

    /// The symlinks that a device wants, in the order of their names.
    pub fn symlinks_of(&self, id: &DeviceId) -> Vec<BString> {
        self.by_device.get(id).into_iter().flatten().map(|link| link.as_bstr().to_owned()).collect()
    }

    /// Whether a device wants any.
    pub fn has_symlinks(&self, id: &DeviceId) -> bool {
        self.by_device.contains_key(id)
    }

    /// The devices that want some, in no order.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceId> {
        self.by_device.keys()
    }

    /// The symlinks that each device wants.
    #[cfg(test)]
    fn by_device(&self) -> HashMap<DeviceId, Vec<BString>> {
        self.devices().map(|id| (id.clone(), self.symlinks_of(id))).collect()
    }

    /// Number of symlinks that someone wants.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Whether nobody wants any.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }
}

impl Decision {
    /// The device had no claim.
    pub const NOTHING: Decision = Decision { entry: EntryChange::Keep, symlink: Symlink::Nothing };
}

impl Symlink {
    fn between(before: Option<&Claim>, after: Option<&Arc<Claim>>) -> Symlink {
        match (before, after) {
            (None, None) => Symlink::Nothing,
            (Some(_), None) => Symlink::Remove,
            (Some(before), Some(after)) if before.devnode == after.devnode => Symlink::Keep(after.clone()),
            (_, Some(after)) => Symlink::Point(after.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DevNum;
    use proptest::prelude::*;

    fn id(minor: u32) -> DeviceId {
        DeviceId::Block(DevNum { major: 8, minor })
    }

    fn node(minor: u32) -> BString {
        format!("/dev/sd{minor}").into()
    }

    /// `+1:0` claim of device 1 with priority 0, `-1` release: who owns the link afterwards and
    /// whether it moved, `=1` kept, `>1` moved, `x` removed, `.` nothing.
    fn play(claims: &mut Claims, step: &str) -> (EntryChange, String) {
        let number = |text: &str| text.parse::<u32>().expect("a device");
        let decision = match step.strip_prefix('-') {
            Some(device) => claims.release(b"l", &id(number(device))),
            None => {
                let (device, priority) = step[1..].split_once(':').expect("a claim");
                let priority = priority.parse().expect("a priority");
                claims.claim(b"l", &id(number(device)), priority, &node(number(device)))
            }
        };
        let minor = |claim: &Claim| claim.devnode.to_string()["/dev/sd".len()..].to_owned();
        let symlink = match &decision.symlink {
            Symlink::Keep(claim) => format!("={}", minor(claim)),
            Symlink::Point(claim) => format!(">{}", minor(claim)),
            Symlink::Remove => "x".into(),
            Symlink::Nothing => ".".into(),
        };
        (decision.entry, symlink)
    }

    #[test]
    fn every_row_of_the_table_of_owners() {
        for (name, steps, expected) in [
            ("nobody owns it", "+1:0", ">1"),
            ("own, same priority", "+1:0 +1:0", "=1"),
            ("own, raised", "+2:5 +1:6 +1:7", "=1"),
            ("own, lowered, still best", "+2:1 +1:7 +1:2", "=1"),
            ("own, lowered to the other's", "+2:1 +1:7 +1:1", "=1"),
            ("own, lowered below another", "+2:1 +1:7 +1:0", ">2"),
            ("other is higher", "+2:1 +1:0", "=2"),
            ("other is equal", "+2:1 +1:1", ">1"),
            ("other is lower", "+2:-2 +1:-1", ">1"),
            ("release of one that does not own it", "+2:1 +1:0 -1", "=2"),
            ("release by the owner", "+1:0 +2:1 +3:2 -3", ">2"),
            ("release by the last", "+1:0 -1", "x"),
            ("release of nothing", "+1:0 -2", "."),
            ("release twice", "+1:0 -1 -1", "."),
            ("the newest of equals follows", "+1:0 +2:0 +3:0 -3", ">2"),
        ] {
            let mut claims = Claims::new();
            let last = steps.split(' ').map(|step| play(&mut claims, step).1).last();
            assert_eq!(last.as_deref(), Some(expected), "{name}: {steps}");
        }
    }

    #[test]
    fn the_entry_is_written_only_when_it_changes() {
        let mut claims = Claims::new();
        for (step, entry) in [
            ("+1:0", EntryChange::Write),
            ("+1:0", EntryChange::Keep),
            ("+1:1", EntryChange::Write),
            ("+2:0", EntryChange::Write),
            ("-2", EntryChange::Remove),
            ("-2", EntryChange::Keep),
            ("-1", EntryChange::RemoveLast),
        ] {
            assert_eq!(play(&mut claims, step).0, entry, "{step}");
        }
        assert!(claims.is_empty());
        claims.claim(b"l", &id(1), 0, b"/dev/a");
        let moved = claims.claim(b"l", &id(1), 0, b"/dev/b");
        assert_eq!(moved.entry, EntryChange::Write);
        assert!(matches!(moved.symlink, Symlink::Point(claim) if claim.devnode == "/dev/b"));
    }

    #[test]
    fn claims_are_listed_with_the_owner_first() {
        let mut claims = Claims::new();
        for step in ["+1:0", "+2:5", "+3:0"] {
            play(&mut claims, step);
        }
        let order: Vec<_> = claims.ranked(b"l").map(|claim| claim.id.clone()).collect();
        assert_eq!(order, [id(2), id(3), id(1)]);
        assert_eq!(claims.owner(b"l").map(|claim| &claim.id), Some(&id(2)));
        assert_eq!(claims.get(b"l", &id(3)).map(|claim| claim.priority), Some(0));
        assert_eq!((claims.get(b"l", &id(4)), claims.ranked(b"other").count()), (None, 0));
    }

    #[test]
    fn a_claim_without_a_node_waits_until_it_is_made_anew() {
        let mut claims = Claims::new();
        for step in ["+1:0", "+2:5", "+3:1"] {
            play(&mut claims, step);
        }
        let owner = |claim: Option<&Arc<Claim>>| claim.map(|claim| claim.id.clone());
        assert_eq!(owner(claims.set_absent(b"l", &id(2))), Some(id(3)));
        assert_eq!(play(&mut claims, "+1:0").1, "=3");
        assert_eq!(play(&mut claims, "+2:5").1, ">2");
        for minor in [1, 2, 3] {
            claims.set_absent(b"l", &id(minor));
        }
        assert_eq!((owner(claims.owner(b"l")), claims.ranked(b"l").count()), (None, 3));
        assert_eq!(play(&mut claims, "-2"), (EntryChange::Remove, ".".into()));
        assert_eq!(play(&mut claims, "+1:-1"), (EntryChange::Write, ">1".into()));
        assert_eq!(play(&mut claims, "-1"), (EntryChange::Remove, "x".into()));
        assert_eq!(play(&mut claims, "-3"), (EntryChange::RemoveLast, ".".into()));
        assert_eq!(claims.set_absent(b"l", &id(3)), None);
    }

    #[test]
    fn links_do_not_disturb_each_other() {
        let mut claims = Claims::new();
        claims.claim(b"a", &id(1), 0, b"/dev/1");
        claims.claim(b"b", &id(2), 0, b"/dev/2");
        claims.release(b"a", &id(1));
        assert_eq!(claims.symlinks().collect::<Vec<_>>(), ["b"]);
        claims.claim(b"c", &id(2), 0, b"/dev/2");
        let mut links = claims.symlinks_of(&id(2));
        links.sort();
        assert_eq!((links, claims.symlinks_of(&id(1))), (vec!["b".into(), "c".into()], vec![]));
        assert_eq!(
            claims.by_device().into_iter().map(|(i, l)| (i, l.len())).collect::<Vec<_>>(),
            [(id(2), 2)]
        );
        claims.release(b"c", &id(2));
        assert_eq!(claims.len(), 1);
    }

    /// The table of rules.md 11.2, step by step over a plain list.
    #[derive(Default)]
    struct Slow {
        /// In the order of claiming.
        claims: Vec<(u32, i32)>,
        owner: Option<u32>,
    }

    impl Slow {
        fn priority(&self, device: u32) -> Option<i32> {
            self.claims.iter().find(|c| c.0 == device).map(|c| c.1)
        }

        /// Highest priority; `own` wins ties, among others the newest.
        fn best(&self, own: Option<u32>) -> Option<u32> {
            let top = self.claims.iter().map(|c| c.1).max()?;
            let mut tops = self.claims.iter().filter(|c| c.1 == top).map(|c| c.0);
            tops.clone().find(|&device| Some(device) == own).or_else(|| tops.next_back())
        }

        fn claim(&mut self, device: u32, priority: i32) {
            let old = self.priority(device);
            self.claims.retain(|c| c.0 != device);
            self.claims.push((device, priority));
            self.owner = match self.owner {
                None => self.best(Some(device)),
                Some(own) if own == device && old.is_some_and(|old| old > priority) => {
                    self.best(Some(device))
                }
                Some(own) if own == device => Some(own),
                Some(other) if self.priority(other).is_some_and(|other| other > priority) => Some(other),
                Some(_) => Some(device),
            };
        }

        fn release(&mut self, device: u32) {
            self.claims.retain(|c| c.0 != device);
            if self.owner == Some(device) {
                self.owner = self.best(None);
            }
        }
    }

    proptest! {
        #[test]
        fn the_table_agrees_with_the_slow_reference(
            steps in prop::collection::vec((0u32..6, proptest::option::of(-2i32..3)), 0..60),
        ) {
            let mut slow = Slow::default();
            let mut claims = Claims::new();
            for (device, step) in steps {
                let before = slow.owner;
                let had = slow.priority(device).is_some();
                let symlink = match step {
                    Some(priority) => {
                        slow.claim(device, priority);
                        claims.claim(b"l", &id(device), priority, &node(device)).symlink
                    }
                    None => {
                        slow.release(device);
                        claims.release(b"l", &id(device)).symlink
                    }
                };
                prop_assert_eq!(claims.owner(b"l").map(|c| c.id.clone()), slow.owner.map(id));
                let fits = match (&symlink, slow.owner) {
                    (Symlink::Nothing, _) => step.is_none() && !had,
                    (Symlink::Remove, None) => true,
                    (Symlink::Keep(claim), Some(owner)) => before == Some(owner) && claim.id == id(owner),
                    (Symlink::Point(claim), Some(owner)) => before != Some(owner) && claim.id == id(owner),
                    _ => false,
                };
                prop_assert!(fits, "{:?}", symlink);
            }
        }
    }

    #[test]
    fn thousands_of_claims_of_one_link_are_no_burden() {
        let mut claims = Claims::new();
        for round in 0..2 {
            for minor in 0..5000 {
                claims.claim(b"l", &id(minor), round, &node(minor));
            }
        }
        for minor in (1..5000).rev() {
            let decision = claims.release(b"l", &id(minor));
            assert!(matches!(decision.symlink, Symlink::Point(claim) if claim.id == id(minor - 1)));
        }
        assert_eq!(claims.ranked(b"l").count(), 1);
    }
}
