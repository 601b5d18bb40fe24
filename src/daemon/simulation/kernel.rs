//! The kernel of the simulation: devices, and what it sends of them. Nothing in it is random by itself; who drives it
//! decides when it takes its next step.
//!
//! What it keeps to, as the real one does: each socket keeps its order, unless two uevents were sent by two processors at
//! once; the uevent of a new or renamed interface comes before its link message, the message of a deleted one before its
//! uevent; changes of interfaces and requests come one after the other (RTNL), but a dump lets others in between its
//! parts; a full socket loses the newest message, and says so before the older ones that it holds.

use crate::links::wire::*;
use crate::model::{Now, Uevent};
use crate::world::Roots;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Messages that a socket holds.
const SOCKET: usize = 60;
/// Links in one part of a dump.
const PART: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub subsystem: &'static str,
    pub devpath: String,
    /// Of an interface.
    pub ifindex: u32,
    /// Minor number of a disk or a character device.
    pub minor: Option<u32>,
    /// The attribute that rules ask for: size, mtu, value.
    pub value: u32,
    /// Of an interface: the kernel tells nobody that it changes.
    pub alias: u32,
}

impl Device {
    pub(super) fn name(&self) -> &str {
        self.devpath.rsplit('/').next().unwrap_or_default()
    }

    /// As in `/run/udev/data`.
    pub(super) fn id(&self) -> String {
        match (self.subsystem, self.minor) {
            ("net", _) => format!("n{}", self.ifindex),
            ("block", Some(minor)) => format!("b8:{minor}"),
            (_, Some(minor)) => format!("c10:{minor}"),
            _ => format!("+{}:{}", self.subsystem, self.name()),
        }
    }

    /// The symlink to its folder that sysfs has in a list of devices.
    fn list_entry(&self) -> String {
        match (self.subsystem, self.minor) {
            ("block", Some(minor)) => format!("dev/block/8:{minor}"),
            (_, Some(minor)) => format!("dev/char/10:{minor}"),
            (subsystem, None) => format!("class/{subsystem}/{}", self.name()),
        }
    }

    /// Node and folder are there from now on.
    fn show(&self, roots: &Roots) {
        if self.minor.is_some() {
            fs::write(roots.dev.join(self.name()), "").expect("makes a node");
        }
        let folder = roots.sys.join(&self.devpath[1..]);
        fs::create_dir_all(&folder).expect("makes a device's folder");
        fs::write(folder.join("uevent"), self.lines()[2..].join("\n")).expect("makes its uevent file");
        fs::write(folder.join("ifindex"), self.ifindex.to_string()).expect("makes an attribute");
        let class = format!("{}/class/{}", roots.sys.display(), self.subsystem);
        symlink(Path::new(&class), folder.join("subsystem")).expect("makes its symlink to the subsystem");
        let target = format!("../..{}", self.devpath);
        symlink(Path::new(&target), roots.sys.join(self.list_entry())).expect("makes its entry in a list");
    }

    fn hide(&self, roots: &Roots) {
        if self.minor.is_some() {
            let _ = fs::remove_file(roots.dev.join(self.name()));
        }
        let _ = fs::remove_file(roots.sys.join(self.list_entry()));
        let _ = fs::remove_dir_all(roots.sys.join(&self.devpath[1..]));
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("DEVPATH={}", self.devpath), format!("SUBSYSTEM={}", self.subsystem)];
        if self.subsystem == "net" {
            lines.push(format!("INTERFACE={}", self.name()));
            lines.push(format!("IFINDEX={}", self.ifindex));
        }
        if let Some(minor) = self.minor {
            let major = if self.subsystem == "block" { 8 } else { 10 };
            lines.push(format!("MAJOR={major}"));
            lines.push(format!("MINOR={minor}"));
            lines.push(format!("DEVNAME={}", self.name()));
        }
        lines
    }
}

/// One step of the changes of interfaces, which come one after the other.
#[derive(Clone, Debug)]
enum NetStep {
    Added(Device),
    Renamed(u32, String),
    Changed(u32, u32),
    Tell(u32),
    Trigger(u32),
    Deleted(u32),
    Gone(Device),
    Acknowledge(u32, i32),
}

/// What the helper was asked to ask.
struct Request {
    kind: u16,
    flags: u16,
    seq: u32,
    payload: Vec<u8>,
    /// It is not begun after this time.
    by: Now,
}

/// A dump on its way.
struct Dump {
    seq: u32,
    after: u32,
    interrupted: bool,
}

/// A uevent as it was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub seqnum: u64,
    /// Nobody got it: no daemon ran, or the socket was full.
    pub lost: bool,
}

pub(super) struct Kernel {
    /// By id.
    pub devices: BTreeMap<String, Device>,
    /// `/dev` and `/sys`, where nodes and folders come and go.
    roots: Roots,
    numbers: u32,
    seqnum: u64,
    net: VecDeque<NetStep>,
    dump: Option<Dump>,
    /// A daemon has its sockets open.
    pub listening: bool,
    pub uevents: VecDeque<Uevent>,
    pub uevents_lost: bool,
    /// Sent, and overtaken by the next.
    held: Option<Uevent>,
    pub notes: VecDeque<Vec<u8>>,
    pub notes_lost: bool,
    /// What the daemon's helper has not yet asked, and what it has got.
    requests: VecDeque<Request>,
    /// The helper has died; who sends to it next starts another.
    pub helper_died: bool,
    /// Somebody else holds RTNL.
    pub is_rtnl_held: bool,
    pub now: Now,
    pub replies: VecDeque<Vec<u8>>,
    pub sent: Vec<Sent>,
    /// So many of the next messages are lost.
    pub lose_uevents: usize,
    pub lose_notes: usize,
    /// The next uevent is overtaken by the one after it.
    pub swap_next: bool,
}

impl Kernel {
    pub(super) fn new(roots: &Roots, now: Now) -> Kernel {
        for folder in ["dev/block", "dev/char", "class/net", "class/plain"] {
            fs::create_dir_all(roots.sys.join(folder)).expect("makes a folder of sysfs");
        }
        Kernel {
            devices: BTreeMap::new(),
            roots: roots.clone(),
            numbers: 0,
            seqnum: 100,
            net: VecDeque::new(),
            dump: None,
            listening: false,
            uevents: VecDeque::new(),
            uevents_lost: false,
            held: None,
            notes: VecDeque::new(),
            notes_lost: false,
            requests: VecDeque::new(),
            helper_died: false,
            is_rtnl_held: false,
            now,
            replies: VecDeque::new(),
            sent: Vec::new(),
            lose_uevents: 0,
            lose_notes: 0,
            swap_next: false,
        }
    }

    /// The sockets of the daemon are closed: what was in them is gone, and so is its helper.
    pub(super) fn hang_up(&mut self) {
        self.listening = false;
        self.uevents.clear();
        self.uevents_lost = false;
        self.held = None;
        self.notes.clear();
        self.notes_lost = false;
        self.drop_helper();
        self.replies.clear();
        self.helper_died = false;
    }

    /// What it has sent can still be read. What the kernel is at, it carries out.
    pub(super) fn drop_helper(&mut self) {
        self.requests.clear();
        self.dump = None;
        self.net.retain(|step| !matches!(step, NetStep::Acknowledge(..)));
        self.helper_died = true;
    }

    /// A datagram to the helper.
    pub(super) fn ask(&mut self, datagram: &[u8]) {
        let mut by = Now::MAX;
        for frame in frames(datagram) {
            let frame = frame.expect("our own requests");
            if frame.kind == GIVE_BY {
                by = Now::from_nanos(read_u64(frame.payload, 0).expect("a time"));
                continue;
            }
            let payload = frame.payload.to_vec();
            let (kind, flags, seq) = (frame.kind, frame.flags, frame.seq);
            self.requests.push_back(Request {
                kind,
                flags,
                seq,
                payload,
                by: std::mem::replace(&mut by, Now::MAX),
            });
        }
    }

    fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    /// A device for which the rules have lines. `under`: a disk that gets a partition.
    pub(super) fn add(&mut self, subsystem: &'static str, under: Option<&str>) {
        let number = self.number();
        let devpath = match (subsystem, under.and_then(|id| self.devices.get(id))) {
            ("net", _) => format!("/devices/virtual/net/e{number}"),
            ("block", Some(disk)) => format!("{}/{}p{number}", disk.devpath, disk.name()),
            _ => format!("/devices/sim/{subsystem}{number}"),
        };
        let minor = matches!(subsystem, "block" | "misc").then_some(number);
        let ifindex = if subsystem == "net" { number } else { 0 };
        let device = Device { subsystem, devpath, ifindex, minor, value: 1000 + number, alias: 0 };
        if subsystem == "net" {
            self.net.extend([NetStep::Added(device), NetStep::Tell(number)]);
            return;
        }
        device.show(&self.roots);
        self.devices.insert(device.id(), device.clone());
        self.send("add", &device, &[]);
    }

    /// The attribute gets a value; interfaces tell of it by a message, and then somebody triggers a `change`.
    pub(super) fn set(&mut self, id: &str, value: u32) {
        let Some(device) = self.devices.get_mut(id) else { return };
        if device.subsystem == "net" {
            let ifindex = device.ifindex;
            let steps = [NetStep::Changed(ifindex, value), NetStep::Tell(ifindex), NetStep::Trigger(ifindex)];
            return self.net.extend(steps);
        }
        device.value = value;
        self.trigger("change", id);
    }

    pub(super) fn set_alias(&mut self, id: &str, alias: u32) {
        if let Some(device) = self.devices.get_mut(id).filter(|device| device.subsystem == "net") {
            device.alias = alias;
        }
    }

    pub(super) fn rename(&mut self, id: &str, name: String) {
        if let Some(device) = self.devices.get(id).filter(|device| device.subsystem == "net") {
            let ifindex = device.ifindex;
            self.net.extend([NetStep::Renamed(ifindex, name), NetStep::Tell(ifindex)]);
        }
    }

    /// With all that stands below it, from the bottom.
    pub(super) fn remove(&mut self, id: &str) {
        let Some(device) = self.devices.get(id).cloned() else { return };
        if device.subsystem == "net" {
            return self.net.push_back(NetStep::Deleted(device.ifindex));
        }
        let below = format!("{}/", device.devpath);
        let inner: Vec<String> =
            self.devices.values().filter(|d| d.devpath.starts_with(&below)).map(Device::id).collect();
        for id in inner {
            self.remove(&id);
        }
        device.hide(&self.roots);
        self.devices.remove(id);
        self.send("remove", &device, &[]);
    }

    /// The same for all devices.
    pub(super) fn trigger_all(&mut self) {
        let ids: Vec<String> = self.devices.keys().cloned().collect();
        ids.iter().for_each(|id| self.trigger("change", id));
    }

    /// Id of the device in this folder.
    pub(super) fn id_at(&self, devpath: &[u8]) -> Option<String> {
        self.devices.values().find(|device| device.devpath.as_bytes() == devpath).map(Device::id)
    }

    /// What writing to a uevent file does.
    pub(super) fn trigger(&mut self, action: &str, id: &str) {
        if let Some(device) = self.devices.get(id).cloned() {
            self.send(action, &device, &["SYNTH_UUID=0".to_owned()]);
        }
    }

    fn send(&mut self, action: &str, device: &Device, more: &[String]) {
        self.seqnum += 1;
        let own = [format!("ACTION={action}"), format!("SEQNUM={}", self.seqnum)];
        let lines = [&own[..], &device.lines(), more].concat();
        let uevent = Uevent::from_lines(lines.iter().map(|line| line.as_bytes())).expect("a uevent");
        let is_full = self.uevents.len() >= SOCKET || self.lose_uevents > 0;
        let lost = !self.listening || is_full;
        self.sent.push(Sent { seqnum: self.seqnum, lost });
        self.lose_uevents = self.lose_uevents.saturating_sub(1);
        if lost {
            self.uevents_lost |= self.listening;
        } else if std::mem::take(&mut self.swap_next) && self.held.is_none() {
            self.held = Some(uevent);
        } else {
            self.uevents.push_back(uevent);
            self.uevents.extend(self.held.take());
        }
    }

    /// The next uevent in the socket. All that was sent is there when it is read.
    pub(super) fn receive_uevent(&mut self) -> Option<Uevent> {
        self.uevents.extend(self.held.take());
        self.uevents.pop_front()
    }

    /// Whether all uevents that were sent are read.
    pub(super) fn is_read(&self) -> bool {
        self.uevents.is_empty() && self.held.is_none()
    }

    fn note(&mut self, message: Vec<u8>) {
        if self.notes.len() >= SOCKET || self.lose_notes > 0 {
            self.lose_notes = self.lose_notes.saturating_sub(1);
            self.notes_lost |= self.listening;
        } else if self.listening {
            self.notes.push_back(message);
        }
    }

    /// Whether there is a step to take.
    pub(super) fn has_steps(&self) -> bool {
        !self.is_rtnl_held && (!self.net.is_empty() || !self.requests.is_empty() || self.dump.is_some())
    }

    /// One step of what is under way. RTNL is held from the first step of a change to its last.
    pub(super) fn step(&mut self) {
        if self.is_rtnl_held {
            return;
        }
        if let Some(step) = self.net.pop_front() {
            self.net_step(step);
        } else if self.dump.is_some() {
            self.dump_step();
        } else if let Some(request) = self.requests.pop_front() {
            self.serve(request);
        }
    }

    fn net_step(&mut self, step: NetStep) {
        match step {
            NetStep::Added(device) => {
                self.change_list();
                device.show(&self.roots);
                self.devices.insert(device.id(), device.clone());
                self.send("add", &device, &[]);
            }
            NetStep::Renamed(ifindex, name) => {
                let Some(device) = self.devices.get_mut(&format!("n{ifindex}")) else { return };
                device.hide(&self.roots);
                let old = std::mem::replace(&mut device.devpath, format!("/devices/virtual/net/{name}"));
                device.show(&self.roots);
                let device = device.clone();
                self.send("move", &device, &[format!("DEVPATH_OLD={old}")]);
            }
            NetStep::Changed(ifindex, value) => {
                if let Some(device) = self.devices.get_mut(&format!("n{ifindex}")) {
                    device.value = value;
                }
            }
            NetStep::Tell(ifindex) => {
                if let Some(device) = self.devices.get(&format!("n{ifindex}")).cloned() {
                    self.note(row(&device, 0, 0));
                }
            }
            NetStep::Trigger(ifindex) => self.trigger("change", &format!("n{ifindex}")),
            NetStep::Deleted(ifindex) => {
                if let Some(device) = self.devices.remove(&format!("n{ifindex}")) {
                    self.change_list();
                    self.note(Builder::new(RTM_DELLINK, 0, 0).ifinfo(ifindex).finish());
                    self.net.push_front(NetStep::Gone(device));
                }
            }
            NetStep::Gone(device) => {
                device.hide(&self.roots);
                self.send("remove", &device, &[]);
            }
            NetStep::Acknowledge(seq, errno) => self.replies.push_back(acknowledgement(seq, errno)),
        }
    }

    fn change_list(&mut self) {
        if let Some(dump) = &mut self.dump {
            dump.interrupted = true;
        }
    }

    fn dump_step(&mut self) {
        let Some(mut dump) = self.dump.take() else { return };
        let flags = NLM_F_MULTIPART | if std::mem::take(&mut dump.interrupted) { NLM_F_DUMP_INTR } else { 0 };
        let mut indices: Vec<u32> = self.devices.values().map(|device| device.ifindex).collect();
        indices.sort_unstable();
        indices.retain(|index| *index > dump.after);
        indices.truncate(PART);
        let rows = indices.iter().filter_map(|index| self.devices.get(&format!("n{index}")));
        let mut part: Vec<u8> = rows.flat_map(|device| row(device, flags, dump.seq)).collect();
        match indices.last() {
            Some(last) => {
                dump.after = *last;
                self.dump = Some(dump);
            }
            None => part = Builder::new(NLMSG_DONE, flags, dump.seq).payload(&[0; 4]).finish(),
        }
        self.replies.push_back(part);
    }

    fn serve(&mut self, request: Request) {
        let Request { kind, flags, seq, payload, by } = request;
        if by < self.now {
            return self.replies.push_back(acknowledgement(seq, libc::ETIMEDOUT));
        }
        let ifindex = read_u32(&payload, 4).expect("an index");
        let device = self.devices.get(&format!("n{ifindex}")).cloned();
        match (kind, device) {
            (RTM_GETLINK, _) if flags & NLM_F_DUMP == NLM_F_DUMP => {
                self.dump = Some(Dump { seq, after: 0, interrupted: false });
            }
            (RTM_GETLINK, Some(device)) => self.replies.push_back(row(&device, 0, seq)),
            (RTM_SETLINK, Some(device)) => {
                let mut names = attributes(&payload[IFINFO..]).flatten().filter(|(k, _)| *k == IFLA_IFNAME);
                let (_, name) = names.next().expect("only renames are asked for");
                let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
                let taken = self.devices.values().any(|d| d.subsystem == "net" && d.name() == name);
                if taken {
                    return self.replies.push_back(acknowledgement(seq, libc::EEXIST));
                }
                self.rename(&device.id(), name);
                self.net.push_back(NetStep::Acknowledge(seq, 0));
            }
            (RTM_GETLINK | RTM_SETLINK, None) => self.replies.push_back(acknowledgement(seq, libc::ENODEV)),
            other => panic!("nobody asks for {other:?}"),
        }
    }
}

/// RTM_NEWLINK.
fn row(device: &Device, flags: u16, seq: u32) -> Vec<u8> {
    Builder::new(RTM_NEWLINK, flags, seq)
        .ifinfo(device.ifindex)
        .text(IFLA_IFNAME, device.name().as_bytes())
        .u32(IFLA_MTU, device.value)
        .text(IFLA_IFALIAS, device.alias.to_string().as_bytes())
        .finish()
}

/// NLMSG_ERROR with the header of the request.
fn acknowledgement(seq: u32, errno: i32) -> Vec<u8> {
    let mut payload = (-errno).to_ne_bytes().to_vec();
    payload.extend_from_slice(&[0; 16]);
    Builder::new(NLMSG_ERROR, NLM_F_CAPPED, seq).payload(&payload).finish()
}
