//! What an evaluation knows of the world: answers that stay true for the whole event, and the one
//! answer that belongs to the current operation.

use crate::model::Errno;
use crate::model::fnv::Fnv;
use crate::model::need::Exit;
use crate::rules::ask::{
    Answer, Ask, Attr, BuiltinName, BuiltinResult, Constant, ParentDevice, ParentState, Subject,
};
use bstr::{BStr, BString, ByteSlice};
use std::hash::Hasher;
use std::sync::Arc;

/// Why an operation cannot be finished.
#[derive(Clone, Debug)]
pub(super) enum Unfinished {
    /// The answer to this question is missing.
    Asks(Ask),
    /// The event fails (rules.md 9.5), for this reason.
    Fails(Errno, String),
}

/// The result of one try. The error is boxed: most tries succeed, and should not carry the size of an ask.
pub(super) type Try<T> = Result<T, Box<Unfinished>>;

pub(super) fn ask<T>(ask: Ask) -> Try<T> {
    Err(Box::new(Unfinished::Asks(ask)))
}

pub(super) fn fail<T>(errno: Errno, what: String) -> Try<T> {
    Err(Box::new(Unfinished::Fails(errno, what)))
}

/// Attributes by device and name. There are some twenty of the device and a few of each parent; comparing
/// numbers in one array beats a table for each device.
///
/// Must stay true: equal hashes only make two look-ups slower. Two attributes are taken for one only if device and
/// name are equal. Otherwise the answer to one would replace the answer to the other, and both would be asked for ever.
#[derive(Clone, Debug, Default)]
struct AttrTable {
    hashes: Vec<u64>,
    known: Vec<(u16, BString, Attr)>,
}

impl AttrTable {
    fn hash(device: u16, name: &[u8]) -> u64 {
        let mut hasher = Fnv::default();
        hasher.write(name);
        hasher.finish() ^ u64::from(device).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn position(&self, hash: u64, device: u16, name: &[u8]) -> Option<usize> {
        let is_it = |(known_device, known_name, _): &(u16, BString, Attr)| {
            *known_device == device && known_name == name
        };
        let mut all = self.hashes.iter().zip(&self.known);
        all.position(|(known_hash, known)| *known_hash == hash && is_it(known))
    }

    fn get(&self, device: u16, name: &[u8]) -> Option<&Attr> {
        let at = self.position(AttrTable::hash(device, name), device, name)?;
        Some(&self.known[at].2)
    }

    fn insert(&mut self, device: u16, name: BString, attr: Attr) {
        let hash = AttrTable::hash(device, &name);
        match self.position(hash, device, &name) {
            Some(at) => self.known[at].2 = attr,
            None => {
                if self.hashes.is_empty() {
                    self.hashes.reserve(16);
                    self.known.reserve(16);
                }
                self.hashes.push(hash);
                self.known.push((device, name, attr));
            }
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownAnswers {
    parents: Option<Arc<[ParentDevice]>>,
    states: Vec<Option<Arc<ParentState>>>,
    /// Empty if none is bound.
    driver: Option<BString>,
    /// Absence included; 0 is the event's device, n its parent n - 1.
    attrs: AttrTable,
    /// Of `[subsystem/sysname]` devices: few.
    named: Vec<(BString, BString, BString, Attr)>,
    constants: [Option<BString>; 3],
    /// Verdicts of builtins that run once.
    once: [Option<bool>; BuiltinName::ALL.len()],
    /// The answer to the question of the current operation, if it is none of the above.
    operation: Option<Answer>,
}

impl KnownAnswers {
    /// Keeps an answer. One of the wrong kind counts as "not there", so that no ask is repeated for
    /// ever.
    pub(super) fn learn(&mut self, ask: Ask, answer: Answer) {
        match ask {
            Ask::Parents => {
                self.parents = Some(match answer {
                    Answer::Parents(parents) => parents,
                    _ => Arc::new([]),
                });
            }
            Ask::Driver => self.driver = Some(into_text(answer)),
            Ask::ParentState(n) => {
                let state = match answer {
                    Answer::Parent(state) => state,
                    _ => Arc::default(),
                };
                put(&mut self.states, usize::from(n), Some(state));
            }
            Ask::Attr { subject, name } => {
                let attr = match answer {
                    Answer::Attr(attr) => attr,
                    _ => Attr::Missing,
                };
                self.learn_attr(subject, name, attr);
            }
            Ask::Constant(constant) => self.constants[constant as usize] = Some(into_text(answer)),
            _ => self.operation = Some(answer),
        }
    }

    fn learn_attr(&mut self, subject: Subject, name: BString, attr: Attr) {
        let at = match subject {
            Subject::Event => 0,
            Subject::Parent(n) => n.saturating_add(1),
            Subject::Named { subsystem, sysname } => {
                return self.named.push((subsystem, sysname, name, attr));
            }
        };
        self.attrs.insert(at, name, attr);
    }

    /// The operation is over, and with it what only it had asked for.
    pub(super) fn forget_operation(&mut self) {
        self.operation = None;
    }

    /// Takes the answer of the current operation, which saves a copy. Afterwards the operation has asked for nothing.
    pub(super) fn take_operation(&mut self) -> Option<Answer> {
        self.operation.take()
    }

    /// An attribute was written: any name may lead to it (`..`, `*`, `[sub/dev]`), and the kernel may
    /// have stored something else than was written, so all are read again when asked for.
    pub(super) fn forget_attrs(&mut self) {
        self.attrs = AttrTable::default();
        self.named.clear();
    }

    pub(super) fn parents(&self) -> Try<&[ParentDevice]> {
        match &self.parents {
            Some(parents) => Ok(parents),
            None => ask(Ask::Parents),
        }
    }

    /// The parents, if they were asked for.
    pub(super) fn known_parents(&self) -> Option<&Arc<[ParentDevice]>> {
        self.parents.as_ref()
    }

    pub(super) fn parent_state(&self, n: u16) -> Try<&ParentState> {
        match self.states.get(usize::from(n)) {
            Some(Some(state)) => Ok(state),
            _ => ask(Ask::ParentState(n)),
        }
    }

    /// The same, to keep.
    pub(super) fn shared_parent_state(&self, n: u16) -> Try<Arc<ParentState>> {
        match self.states.get(usize::from(n)) {
            Some(Some(state)) => Ok(state.clone()),
            _ => ask(Ask::ParentState(n)),
        }
    }

    pub(super) fn driver(&self) -> Try<&BStr> {
        match &self.driver {
            Some(driver) => Ok(driver.as_bstr()),
            None => ask(Ask::Driver),
        }
    }

    /// Of the event's device (0) or its parent n - 1; None if it is missing.
    pub(super) fn attr(&self, device: u16, name: &BStr) -> Try<Option<&BStr>> {
        match self.attrs.get(device, name) {
            Some(Attr::Value(value)) => Ok(Some(until_nul(value))),
            Some(_) => Ok(None),
            None => {
                let subject = match device {
                    0 => Subject::Event,
                    n => Subject::Parent(n - 1),
                };
                ask(Ask::Attr { subject, name: name.into() })
            }
        }
    }

    /// Of a `[subsystem/sysname]` device: None if there is no such device, empty if the attribute is
    /// missing (rules.md 3.4).
    pub(super) fn named_attr(&self, subsystem: &BStr, sysname: &BStr, name: &BStr) -> Try<Option<&BStr>> {
        let known = self.named.iter().find(|k| k.0 == subsystem && k.1 == sysname && k.2 == name);
        match known.map(|k| &k.3) {
            Some(Attr::Value(value)) => Ok(Some(until_nul(value))),
            Some(Attr::Missing) => Ok(Some(b"".as_bstr())),
            Some(Attr::NoDevice) => Ok(None),
            None => ask(Ask::Attr {
                subject: Subject::Named { subsystem: subsystem.into(), sysname: sysname.into() },
                name: name.into(),
            }),
        }
    }

    pub(super) fn constant(&self, constant: Constant) -> Try<&BStr> {
        match &self.constants[constant as usize] {
            Some(text) => Ok(text.as_bstr()),
            None => ask(Ask::Constant(constant)),
        }
    }

    pub(super) fn verdict(&self, builtin: BuiltinName) -> Option<bool> {
        self.once[builtin as usize]
    }

    pub(super) fn set_verdict(&mut self, builtin: BuiltinName, verdict: bool) {
        self.once[builtin as usize] = Some(verdict);
    }

    fn operation(&self, question: impl FnOnce() -> Ask) -> Try<&Answer> {
        match &self.operation {
            Some(answer) => Ok(answer),
            None => ask(question()),
        }
    }

    /// Of [`Ask::Sysctl`], [`Ask::File`], [`Ask::CommandLine`]: an error fails the event.
    pub(super) fn text(&self, what: &str, question: impl FnOnce() -> Ask) -> Try<Option<&BStr>> {
        match self.operation(question)? {
            Answer::Text(Ok(text)) => Ok(text.as_ref().map(|t| t.as_bstr())),
            Answer::Text(Err(errno)) => fail(*errno, format!("cannot read {what}: {errno}")),
            _ => Ok(None),
        }
    }

    pub(super) fn mode(&self, path: &BStr) -> Try<Option<u32>> {
        match self.operation(|| Ask::Mode { path: path.into() })? {
            Answer::Mode(Ok(mode)) => Ok(*mode),
            Answer::Mode(Err(errno)) => fail(*errno, format!("cannot look for {path}: {errno}")),
            _ => Ok(None),
        }
    }

    pub(super) fn id(&self, question: impl FnOnce() -> Ask) -> Try<Option<u32>> {
        Ok(match self.operation(question)? {
            Answer::Id(id) => *id,
            _ => None,
        })
    }

    pub(super) fn exit(&self, command: &BStr) -> Try<Option<&Exit>> {
        Ok(match self.operation(|| Ask::Run { command: command.into() })? {
            Answer::Exit(exit) => Some(exit),
            _ => None,
        })
    }

    pub(super) fn builtin(&self, builtin: BuiltinName, command: &BStr) -> Try<Option<&BuiltinResult>> {
        Ok(match self.operation(|| Ask::Builtin { builtin, command: command.into() })? {
            Answer::Builtin(result) => Some(result),
            _ => None,
        })
    }

    pub(super) fn written(&self, question: impl FnOnce() -> Ask) -> Try<()> {
        self.operation(question).map(|_| ())
    }
}

fn into_text(answer: Answer) -> BString {
    match answer {
        Answer::Text(Ok(Some(text))) => text,
        _ => BString::default(),
    }
}

/// An embedded NUL ends a value.
fn until_nul(value: &BString) -> &BStr {
    value.find_byte(0).map_or(value.as_bstr(), |end| value[..end].as_bstr())
}

fn put<T: Clone + Default>(list: &mut Vec<T>, at: usize, item: T) {
    if list.len() <= at {
        list.resize(at + 1, T::default());
    }
    list[at] = item;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two names of the same 64-bit FNV-1a hash.
    const COLLIDING: [&str; 2] = ["8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"];

    #[test]
    fn attributes_whose_hashes_collide_are_known_side_by_side() {
        let [a, b] = COLLIDING.map(|name| name.as_bytes());
        for device in [0, 3] {
            assert_eq!(AttrTable::hash(device, a), AttrTable::hash(device, b), "or this test shows nothing");
        }
        let mut attrs = AttrTable::default();
        let value = |text: &str| Attr::Value(text.into());
        for (device, name, attr) in
            [(0, a, value("1")), (0, b, Attr::Missing), (3, b, value("3")), (0, b, value("2"))]
        {
            attrs.insert(device, name.into(), attr);
        }
        assert_eq!(attrs.get(0, a), Some(&value("1")));
        assert_eq!(attrs.get(0, b), Some(&value("2")));
        assert_eq!(attrs.get(3, b), Some(&value("3")));
        assert_eq!(attrs.get(3, a), None);
    }

    #[test]
    fn equal_hashes_of_all_attributes_change_no_look_up() {
        let names: Vec<BString> = (0..200).map(|n: u32| format!("a{n}").into()).collect();
        let mut attrs = AttrTable::default();
        for (n, name) in names.iter().enumerate() {
            attrs.insert((n % 3) as u16, name.clone(), Attr::Value(name.clone()));
        }
        attrs.hashes.fill(7);
        for (n, name) in names.iter().enumerate() {
            let at = attrs.position(7, (n % 3) as u16, name);
            assert_eq!(at, Some(n));
            assert_eq!(attrs.position(7, 3, name), None);
        }
    }
}
