//! .link files: how network interfaces are to be set up (builtins.md 2.1 to 2.3).
//!
//! All files are read once, when rules are loaded. What must stay true: one list over four folders,
//! sorted by base name, where the higher folder hides the lower; a bad value costs its key only; and
//! nothing that is written in a file is ignored without a word.

use super::host::{Host, Told};
use super::ini::{self, Assignment, Complaint};
use super::link_facts::NAME_MAX;
use super::link_match::{Matching, Subject, parse_address};
use super::value::parse_number;
use crate::links::attr::hex;
use crate::links::request::Settings;
use crate::model::device::is_interface_name;
use crate::world::Roots;
use crate::world::config::parse_bool;
use crate::world::files;
use bstr::BString;
use std::collections::BTreeMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Longest alternative name.
pub const ALT_NAME_MAX: usize = 127;
/// A .link file beyond this is none.
const FILE_MAX: u64 = 1 << 20;
const QUEUES_MAX: u64 = 16384;

/// A word of NamePolicy= or AlternativeNamesPolicy=.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePolicy {
    /// Keep a name that the kernel says is predictable.
    Kernel,
    /// Keep a name that was given by someone.
    Keep,
    Database,
    Onboard,
    Slot,
    Path,
    Mac,
}

impl NamePolicy {
    const WORDS: [(&'static str, NamePolicy); 7] = [
        ("kernel", NamePolicy::Kernel),
        ("keep", NamePolicy::Keep),
        ("database", NamePolicy::Database),
        ("onboard", NamePolicy::Onboard),
        ("slot", NamePolicy::Slot),
        ("path", NamePolicy::Path),
        ("mac", NamePolicy::Mac),
    ];

    /// The property that holds the name.
    pub fn property(self) -> Option<&'static str> {
        match self {
            NamePolicy::Kernel | NamePolicy::Keep => None,
            NamePolicy::Database => Some("ID_NET_NAME_FROM_DATABASE"),
            NamePolicy::Onboard => Some("ID_NET_NAME_ONBOARD"),
            NamePolicy::Slot => Some("ID_NET_NAME_SLOT"),
            NamePolicy::Path => Some("ID_NET_NAME_PATH"),
            NamePolicy::Mac => Some("ID_NET_NAME_MAC"),
        }
    }
}

/// MACAddressPolicy=.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MacPolicy {
    /// MACAddress= if it is given.
    #[default]
    None,
    /// The same address at every boot, made of the machine id and a name.
    Persistent,
    Random,
}

/// The `[Link]` section: what a file wants of a link. None and empty: leave alone.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Alias, MTU and queues, but for the address.
    pub settings: Settings,
    pub mac_policy: MacPolicy,
    pub mac: Option<Vec<u8>>,
    pub name_policy: Vec<NamePolicy>,
    pub name: Option<String>,
    pub alt_names_policy: Vec<NamePolicy>,
    pub alt_names: Vec<String>,
    pub properties: Vec<(String, String)>,
    pub import_properties: Vec<String>,
    pub unset_properties: Vec<String>,
}

/// One file with its drop-ins.
#[derive(Clone, Debug)]
pub struct LinkFile {
    pub path: BString,
    pub drop_ins: Vec<BString>,
    pub matching: Matching,
    pub wanted: Wanted,
}

/// All files in order, and what they were read from.
#[derive(Debug)]
pub struct LinkFiles {
    files: Vec<LinkFile>,
    state: String,
    /// net.ifnames of the kernel command line.
    pub names_enabled: bool,
    pub machine_id: Option<[u8; 16]>,
    /// A file has PermanentMACAddress=, and the kernel does not tell permanent addresses in its messages.
    pub asks_permanent_address: bool,
}

/// What tells that a file is another one now.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    inode: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

/// One file or drop-in as it was read, or why it could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub path: PathBuf,
    pub content: Result<Vec<u8>, String>,
}

/// What [`LinkFiles::parse`] takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    /// In order, each file with its drop-ins behind it.
    pub files: Vec<Vec<Part>>,
    /// As [`state_of`] tells it.
    pub state: String,
    pub told: Told,
}

impl Texts {
    /// Reads all files; may wait.
    pub fn read(roots: &Roots) -> Texts {
        let folders = folders(roots);
        // First, so that a change while we read is seen as one.
        let state = state_of(&folders);
        let part = |path: PathBuf| Part { content: read_text(&path), path };
        let with_drop_ins = |path: PathBuf| {
            let mut name = path.file_name()?.to_owned();
            name.push(".d");
            let drop_in_folders: Vec<PathBuf> = folders.iter().map(|folder| folder.join(&name)).collect();
            let drop_ins = visible(&drop_in_folders, ".conf");
            Some([path].into_iter().chain(drop_ins).map(part).collect())
        };
        let files = visible(&folders, ".link").into_iter().filter_map(with_drop_ins).collect();
        Texts { files, state, told: Told::read(roots) }
    }
}

impl LinkFiles {
    /// Reads all files, and makes sense of them. May wait.
    pub fn load(host: &Host) -> (LinkFiles, Vec<String>) {
        LinkFiles::parse(&Texts::read(&host.roots), host)
    }

    /// Makes sense of what was read, on this host. The messages are for the log.
    pub fn parse(texts: &Texts, host: &Host) -> (LinkFiles, Vec<String>) {
        let mut log = Vec::new();
        let files: Vec<LinkFile> =
            texts.files.iter().filter_map(|parts| parse_file(parts, host, &mut log)).collect();
        let option = crate::model::command::kernel_value(&host.command_line, b"net.ifnames", false);
        let names_enabled = match option {
            Some(Some(value)) => parse_bool(&value).unwrap_or(true),
            Some(None) | None => true,
        };
        let asks_permanent_address =
            files.iter().any(|file| file.matching.wants_permanent_address()) && !host.kernel_is("5.6");
        let (state, machine_id) = (texts.state.clone(), host.told.machine_id);
        (LinkFiles { files, state, names_enabled, machine_id, asks_permanent_address }, log)
    }

    /// The state that they were read in, as [`state_of`] tells it.
    pub fn state(&self) -> &str {
        &self.state
    }

    /// The first file for this link.
    pub fn find(&self, subject: &Subject) -> Option<&LinkFile> {
        self.files.iter().find(|file| file.matching.matches(subject))
    }

    /// All files in order.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &LinkFile> {
        self.files.iter()
    }
}

/// A text that is the same for the same files and drop-ins in the same state only. May wait.
pub fn state_of(folders: &[PathBuf]) -> String {
    format!("{:?}", stamps(folders))
}

/// High priority first.
pub fn folders(roots: &Roots) -> [PathBuf; 4] {
    [&roots.etc, &roots.run, &roots.local_lib, &roots.lib].map(|root| root.join("systemd/network"))
}

/// Names of entries in a folder with this ending; nothing if it is not there.
fn entries(folder: &Path, suffix: &str) -> Vec<std::ffi::OsString> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .filter(|name| name.as_bytes().ends_with(suffix.as_bytes()))
        .collect()
}

/// The files of this ending that are not hidden by one of the same name in a higher folder, sorted by
/// name. An empty file and a symlink to /dev/null hide and are themselves left out.
fn visible(folders: &[PathBuf], suffix: &str) -> Vec<PathBuf> {
    let mut by_name = BTreeMap::new();
    for folder in folders {
        for name in entries(folder, suffix) {
            by_name.entry(name.into_vec()).or_insert_with_key(|name| {
                let path = folder.join(std::ffi::OsStr::from_bytes(name));
                match std::fs::metadata(&path) {
                    Ok(meta) if meta.file_type().is_char_device() || meta.len() == 0 => None,
                    _ => Some(path),
                }
            });
        }
    }
    by_name.into_values().flatten().collect()
}

/// The present state of all that [`Texts::read`] reads.
fn stamps(folders: &[PathBuf]) -> Vec<Stamp> {
    let mut stamps = Vec::new();
    let mut stamp = |path: PathBuf| {
        if let Ok(meta) = std::fs::metadata(&path) {
            let inode = (meta.dev(), meta.ino());
            stamps.push(Stamp { path, inode, size: meta.len(), changed: (meta.mtime(), meta.mtime_nsec()) });
        }
    };
    for folder in folders {
        for name in entries(folder, ".link") {
            stamp(folder.join(name));
        }
        for name in entries(folder, ".link.d") {
            let drop_ins = folder.join(name);
            for name in entries(&drop_ins, ".conf") {
                stamp(drop_ins.join(name));
            }
        }
    }
    stamps.sort_by(|a, b| a.path.cmp(&b.path));
    stamps
}

/// Makes sense of one file with its drop-ins. None: it is for no link of this machine.
fn parse_file(parts: &[Part], host: &Host, log: &mut Vec<String>) -> Option<LinkFile> {
    let (Part { path, .. }, drop_ins) = parts.split_first()?;
    let mut parser = Parser { host, matching: Matching::default(), wanted: Wanted::default(), later: vec![] };
    for Part { path: part, content } in parts {
        let unread = |text: &String| Complaint { line: 0, text: text.clone() };
        let complaints = content.as_ref().map_err(unread).and_then(|text| {
            let (assignments, mut complaints) = ini::parse(text)?;
            complaints.extend(assignments.iter().filter_map(|assignment| parser.assign(assignment)));
            Ok(complaints)
        });
        let say = |c: &Complaint| match c.line {
            0 => format!("{}: {}", part.display(), c.text),
            line => format!("{}:{line}: {}", part.display(), c.text),
        };
        match complaints {
            Ok(complaints) => log.extend(complaints.iter().map(say)),
            Err(fault) => {
                log.push(say(&fault));
                return None;
            }
        }
    }
    let Parser { matching, wanted, later, .. } = parser;
    if matching.is_empty() {
        log.push(format!("{}: no valid setting in [Match], the file is ignored", path.display()));
        return None;
    }
    if !matching.conditions_hold() {
        return None;
    }
    if wanted.mac.is_some() && wanted.mac_policy != MacPolicy::None {
        log.push(format!("{}: MACAddress= has no effect with this MACAddressPolicy=", path.display()));
    }
    if !later.is_empty() {
        let keys = later.join(", ");
        log.push(format!("{}: not carried out by this version, it comes later: {keys}", path.display()));
    }
    let bytes = |path: &Path| BString::from(path.as_os_str().as_bytes());
    let drop_ins = drop_ins.iter().map(|part| bytes(&part.path)).collect();
    Some(LinkFile { path: bytes(path), drop_ins, matching, wanted })
}

fn read_text(path: &Path) -> Result<Vec<u8>, String> {
    let meta = std::fs::metadata(path).map_err(|e| format!("cannot be read: {e}"))?;
    if !meta.is_file() || meta.len() > FILE_MAX {
        return Err("no regular file of at most 1 MiB, ignored".into());
    }
    files::read_bounded(path, FILE_MAX).map(Vec::from).map_err(|e| format!("cannot be read: {e}"))
}

/// A file in the making.
struct Parser<'a> {
    host: &'a Host,
    matching: Matching,
    wanted: Wanted,
    /// Keys that are known and not carried out yet.
    later: Vec<String>,
}

/// How an assignment went.
#[derive(Debug, PartialEq, Eq)]
enum Taken {
    Yes,
    /// Known, and not carried out yet.
    Later,
    UnknownKey,
    /// The value, or a part of it, does not count.
    Bad(String),
}

impl From<Result<(), String>> for Taken {
    fn from(result: Result<(), String>) -> Taken {
        match result {
            Ok(()) => Taken::Yes,
            Err(why) => Taken::Bad(why),
        }
    }
}

impl Parser<'_> {
    /// Takes one assignment; what is wrong with it.
    fn assign(&mut self, assignment: &Assignment) -> Option<Complaint> {
        let Assignment { line, section, key, value, .. } = assignment;
        let taken = match section.as_str() {
            "Match" => match self.matching.assign(key, value, self.host) {
                Some(result) => result.into(),
                None => Taken::UnknownKey,
            },
            "Link" => self.assign_link(key, value),
            "SR-IOV" if LATER_SR_IOV.contains(&key.as_str()) => Taken::Later,
            "SR-IOV" => Taken::UnknownKey,
            "EnergyEfficientEthernet" => Taken::Later,
            section if section.starts_with("X-") => Taken::Yes,
            _ => {
                return Some(Complaint {
                    line: *line,
                    text: format!("unknown section [{section}], ignored"),
                });
            }
        };
        let text = match taken {
            Taken::Yes => return None,
            Taken::Later => {
                let name = format!("{key}= in [{section}]");
                if !self.later.contains(&name) {
                    self.later.push(name);
                }
                return None;
            }
            Taken::UnknownKey => format!("unknown key {key}= in [{section}], ignored"),
            Taken::Bad(why) => format!("{key}={value}: {why}, ignored"),
        };
        Some(Complaint { line: *line, text })
    }

    fn assign_link(&mut self, key: &str, value: &str) -> Taken {
        let wanted = &mut self.wanted;
        let settings = &mut wanted.settings;
        let queues = |number: u64| (1..=QUEUES_MAX).contains(&number);
        let result = match key {
            "Description" => Ok(()),
            "Alias" => set(&mut settings.alias, value, "no ASCII text below 256 bytes", |text| {
                (text.is_ascii() && text.len() < 256).then(|| text.into())
            }),
            "MACAddressPolicy" => set_plain(
                &mut wanted.mac_policy,
                match value {
                    "" | "none" => Some(MacPolicy::None),
                    "persistent" => Some(MacPolicy::Persistent),
                    "random" => Some(MacPolicy::Random),
                    _ => None,
                },
                "no policy",
            ),
            "MACAddress" => set(&mut wanted.mac, value, "no hardware address", parse_address),
            "NamePolicy" => policies(&mut wanted.name_policy, value, &NamePolicy::WORDS),
            "Name" => set(&mut wanted.name, value, "no interface name", |name| {
                is_interface_name(name.as_bytes(), NAME_MAX).then(|| name.into())
            }),
            // An alternative name cannot be kept.
            "AlternativeNamesPolicy" => {
                policies(&mut wanted.alt_names_policy, value, &NamePolicy::WORDS[2..])
            }
            "AlternativeName" => alt_names(&mut wanted.alt_names, value),
            "TransmitQueues" => set_number(&mut settings.tx_queues, value, queues),
            "ReceiveQueues" => set_number(&mut settings.rx_queues, value, queues),
            "TransmitQueueLength" => {
                set_number(&mut settings.tx_queue_len, value, |n| n < u64::from(u32::MAX))
            }
            "MTUBytes" => set(&mut settings.mtu, value, "no size", parse_size),
            "GenericSegmentOffloadMaxBytes" => set(&mut settings.gso_max_size, value, "no size", parse_size),
            "GenericSegmentOffloadMaxSegments" => {
                set_number(&mut settings.gso_max_segments, value, |n| n <= u64::from(u32::MAX))
            }
            "Property" => self.assign_properties(value),
            "ImportProperty" => property_names(&mut wanted.import_properties, value),
            "UnsetProperty" => property_names(&mut wanted.unset_properties, value),
            "UDPSegmentationOffload" => Err("was taken out of the kernel".into()),
            key if LATER_LINK.contains(&key) => return Taken::Later,
            _ => return Taken::UnknownKey,
        };
        result.into()
    }

    /// `KEY=VALUE` words; bad ones are left out.
    fn assign_properties(&mut self, value: &str) -> Result<(), String> {
        if value.is_empty() {
            self.wanted.properties.clear();
            return Ok(());
        }
        let words = ini::split_quoted(value, true).ok_or("bad quoting")?;
        let mut bad = Vec::new();
        for word in words {
            let pair = word.split_once('=').filter(|(name, _)| is_settable(name));
            match pair.and_then(|(name, text)| Some((name.to_owned(), expand_specifiers(text, self.host)?))) {
                Some(pair) => self.wanted.properties.push(pair),
                None => bad.push(word),
            }
        }
        all_good(bad, "cannot be set")
    }
}

/// Ok if there are no bad words.
fn all_good(bad: Vec<String>, what: &str) -> Result<(), String> {
    match bad.is_empty() {
        true => Ok(()),
        false => Err(format!("{what}: {}", bad.join(" "))),
    }
}

/// Sets an optional value; the empty text unsets it.
fn set<T>(
    field: &mut Option<T>,
    value: &str,
    complaint: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<(), String> {
    match value {
        "" => *field = None,
        _ => *field = Some(parse(value).ok_or(complaint)?),
    }
    Ok(())
}

fn set_plain<T>(field: &mut T, value: Option<T>, complaint: &str) -> Result<(), String> {
    *field = value.ok_or(complaint)?;
    Ok(())
}

fn set_number(field: &mut Option<u32>, value: &str, fits: impl Fn(u64) -> bool) -> Result<(), String> {
    set(field, value, "no number in the range", |text| {
        parse_number(text.as_bytes()).filter(|&n| fits(n)).and_then(|n| n.try_into().ok())
    })
}

/// Replaces a list of policies; unknown words are skipped.
fn policies(
    list: &mut Vec<NamePolicy>,
    value: &str,
    words: &[(&'static str, NamePolicy)],
) -> Result<(), String> {
    list.clear();
    let mut bad = Vec::new();
    for word in value.split_ascii_whitespace() {
        match words.iter().find(|(name, _)| *name == word) {
            Some((_, policy)) if !list.contains(policy) => list.push(*policy),
            Some(_) => {}
            None => bad.push(word.to_owned()),
        }
    }
    all_good(bad, "no policies")
}

/// Appends alternative names.
fn alt_names(list: &mut Vec<String>, value: &str) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
    }
    let (good, bad): (Vec<String>, Vec<String>) = value
        .split_ascii_whitespace()
        .map(str::to_owned)
        .partition(|word| is_interface_name(word.as_bytes(), ALT_NAME_MAX));
    list.extend(good);
    all_good(bad, "no alternative names")
}

/// Appends names of properties.
fn property_names(list: &mut Vec<String>, value: &str) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
    }
    let (good, bad): (Vec<String>, Vec<String>) =
        value.split_ascii_whitespace().map(str::to_owned).partition(|word| is_settable(word));
    list.extend(good);
    all_good(bad, "no names of properties that can be changed")
}

/// Properties that are the kernel's or udev's own.
const FIXED_PROPERTIES: [&str; 23] = [
    "ACTION",
    "CURRENT_TAGS",
    "DEVLINKS",
    "DEVNAME",
    "DEVNUM",
    "DEVPATH",
    "DEVPATH_OLD",
    "DEVTYPE",
    "DISKSEQ",
    "DRIVER",
    "ID_RENAMING",
    "IFINDEX",
    "INTERFACE",
    "INTERFACE_OLD",
    "MAJOR",
    "MINOR",
    "MODALIAS",
    "SEQNUM",
    "SUBSYSTEM",
    "SYNTH_UUID",
    "TAGS",
    "UDEV_DATABASE_VERSION",
    "USEC_INITIALIZED",
];

/// Whether a file may change the property of this name.
fn is_settable(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !FIXED_PROPERTIES.contains(&name)
}

/// A size with base 1024: `1400`, `1400B`, `1.5K`.
fn parse_size(text: &str) -> Option<u32> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (whole, rest) = text.split_at(digits);
    let (fraction, unit) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len()),
        None => ("", rest),
    };
    let factor: u64 = match unit.trim_start() {
        "" | "B" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        // Larger units only make zero.
        "T" | "P" | "E" => 1 << 40,
        _ => return None,
    };
    let whole: u64 = whole.parse().ok()?;
    // What is behind the ninth digit is worth a byte at most.
    let fraction = &fraction[..fraction.len().min(9)];
    let part = match fraction {
        "" => 0,
        digits => digits.parse::<u64>().ok()?.checked_mul(factor)? / 10u64.pow(digits.len() as u32),
    };
    u32::try_from(whole.checked_mul(factor)?.checked_add(part)?).ok()
}

/// Replaces `%` specifiers (systemd.link(5), SPECIFIERS). None for one that does not exist or whose
/// value this machine does not have.
fn expand_specifiers(text: &str, host: &Host) -> Option<String> {
    let mut expanded = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            expanded.push(letter);
            continue;
        }
        let os_release = |name: &str| Some(host.os_release(name));
        expanded.push_str(&match letters.next()? {
            '%' => "%".to_owned(),
            'a' => host.architecture()?.to_owned(),
            'A' => os_release("IMAGE_VERSION")?,
            'b' => host.kernel_text("random/boot_id").replace('-', ""),
            'B' => os_release("BUILD_ID")?,
            'H' => host.kernel_text("hostname"),
            'l' => host.kernel_text("hostname").split('.').next().unwrap_or_default().to_owned(),
            'm' => hex(&host.told.machine_id?, None).to_string(),
            'M' => os_release("IMAGE_ID")?,
            'o' => os_release("ID")?,
            'T' => host.temporary_folder(false)?,
            'v' => host.kernel_text("osrelease"),
            'V' => host.temporary_folder(true)?,
            'w' => os_release("VERSION_ID")?,
            'W' => os_release("VARIANT_ID")?,
            _ => return None,
        });
    }
    Some(expanded)
}

/// Keys of `[Link]` that ethtool, sysfs and the like carry out.
const LATER_LINK: [&str; 62] = [
    "BitsPerSecond",
    "Duplex",
    "AutoNegotiation",
    "Port",
    "Advertise",
    "MDI",
    "WakeOnLan",
    "WakeOnLanPassword",
    "ReceiveChecksumOffload",
    "TransmitChecksumOffload",
    "GenericSegmentationOffload",
    "TCPSegmentationOffload",
    "TCP6SegmentationOffload",
    "GenericReceiveOffload",
    "GenericReceiveOffloadHardware",
    "LargeReceiveOffload",
    "ReceiveVLANCTAGHardwareAcceleration",
    "TransmitVLANCTAGHardwareAcceleration",
    "ReceiveVLANCTAGFilter",
    "TransmitVLANSTAGHardwareAcceleration",
    "NTupleFilter",
    "ScatterGather",
    "ScatterGatherFragmentList",
    "TCPECNSegmentationOffload",
    "TCPMangleIdSegmentationOffload",
    "GenericReceiveOffloadList",
    "GenericReceiveOffloadUDPForwarding",
    "RxChannels",
    "TxChannels",
    "OtherChannels",
    "CombinedChannels",
    "RxBufferSize",
    "RxMiniBufferSize",
    "RxJumboBufferSize",
    "TxBufferSize",
    "RxFlowControl",
    "TxFlowControl",
    "AutoNegotiationFlowControl",
    "UseAdaptiveRxCoalesce",
    "UseAdaptiveTxCoalesce",
    "RxCoalesceSec",
    "RxMaxCoalescedFrames",
    "RxCoalesceIrqSec",
    "RxMaxCoalescedIrqFrames",
    "RxCoalesceLowSec",
    "RxMaxCoalescedLowFrames",
    "RxCoalesceHighSec",
    "RxMaxCoalescedHighFrames",
    "TxCoalesceSec",
    "TxMaxCoalescedFrames",
    "TxCoalesceIrqSec",
    "TxMaxCoalescedIrqFrames",
    "TxCoalesceLowSec",
    "TxMaxCoalescedLowFrames",
    "TxCoalesceHighSec",
    "TxMaxCoalescedHighFrames",
    "CoalescePacketRateLow",
    "CoalescePacketRateHigh",
    "CoalescePacketRateSampleIntervalSec",
    "StatisticsBlockCoalesceSec",
    "SR-IOVVirtualFunctions",
    "ReceivePacketSteeringCPUMask",
];

const LATER_SR_IOV: [&str; 9] = [
    "VirtualFunction",
    "VLANId",
    "QualityOfService",
    "VLANProtocol",
    "MACSpoofCheck",
    "QueryReceiveSideScaling",
    "Trust",
    "LinkState",
    "MACAddress",
];

#[cfg(test)]
#[path = "link_file_tests.rs"]
mod tests;
