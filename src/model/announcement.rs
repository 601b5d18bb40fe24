//! The message to libudev's listeners (interop.md 2.1 to 2.5), both ways.
//!
//! * [`build`] makes the whole datagram of one event: header, `UDEV_DATABASE_VERSION=1`, properties.
//! * [`parse`] makes a message of user space out of a datagram, with the checks of a receiver.
//!
//! What must stay true: a datagram fits the 8 KiB buffer of old receivers whenever leaving out what
//! listeners rarely need makes it fit; else it is sent whole: new receivers take it.

use super::event::{OrderedSet, Tags};
use super::hash::{murmur_hash2, tag_bloom};
use super::uevent::{Uevent, UeventError};
use bstr::{BStr, BString, ByteSlice};

const PREFIX: &[u8; 8] = b"libudev\0";
const MAGIC: u32 = 0xfeed_cafe;
/// Bytes of the header in front of the body.
pub const HEADER_LEN: usize = 40;
const VERSION: &[u8] = b"UDEV_DATABASE_VERSION";
const VERSION_LINE: &[u8] = b"UDEV_DATABASE_VERSION=1\0";

/// Bytes of a datagram that every receiver takes: libudev up to v251 and eudev read into 8192 bytes
/// and drop a datagram that fills them.
pub const OLD_RECEIVER_LIMIT: usize = 8191;

/// The datagram of these properties; `tags` are all tags ever given, for the header's filter word.
///
/// Subsystem and devtype hash come from the properties. When the datagram would exceed [`OLD_RECEIVER_LIMIT`],
/// properties whose names begin with a dot are left out first, then as many symlinks at the end of DEVLINKS as
/// needed. When even that is not enough, nothing is left out. A property that would break the message (no name, a NUL)
/// is always left out.
pub fn build<'a, P>(properties: P, tags: &OrderedSet) -> Vec<u8>
where
    P: Iterator<Item = (&'a BStr, &'a BStr)> + Clone,
{
    let mut body = Body::new();
    properties.clone().for_each(|(name, value)| body.push(name, value));
    if !body.is_sound() {
        // Rare, so it is not looked for in advance.
        let sendable = properties.filter(|(name, value)| can_be_sent(name, value));
        return build(sendable.collect::<Vec<_>>().into_iter(), tags);
    }
    if body.datagram.len() > OLD_RECEIVER_LIMIT
        && let Some(smaller) = smaller_body(properties, body.datagram.len())
    {
        body = smaller;
    }
    write_header(&mut body.datagram, body.subsystem, body.devtype, tag_bloom(tags.iter()));
    body.datagram
}

/// A datagram as it grows.
struct Body<'a> {
    datagram: Vec<u8>,
    lines: usize,
    subsystem: &'a BStr,
    devtype: &'a BStr,
    has_bad_name: bool,
}

impl<'a> Body<'a> {
    fn new() -> Body<'a> {
        let mut datagram = Vec::with_capacity(1024);
        // Filled in when the length of the body is known.
        datagram.extend_from_slice(&[0; HEADER_LEN]);
        datagram.extend_from_slice(VERSION_LINE);
        let none = BStr::new(b"");
        Body { datagram, lines: 1, subsystem: none, devtype: none, has_bad_name: false }
    }

    fn push(&mut self, name: &'a BStr, value: &'a BStr) {
        match name.as_bytes() {
            b"SUBSYSTEM" => self.subsystem = value,
            b"DEVTYPE" => self.devtype = value,
            b"" | VERSION => self.has_bad_name = true,
            _ => {}
        }
        push_line(&mut self.datagram, name, value);
        self.lines += 1;
    }

    /// Whether each line has one NUL, that at its end, and may stand in the message.
    fn is_sound(&self) -> bool {
        let nuls = self.datagram[HEADER_LEN..].iter().filter(|&&b| b == 0).count();
        nuls == self.lines && !self.has_bad_name
    }
}

/// The body without what listeners rarely need; None where that does not make it fit.
fn smaller_body<'a, P>(properties: P, len: usize) -> Option<Body<'a>>
where
    P: Iterator<Item = (&'a BStr, &'a BStr)> + Clone,
{
    let lines_len = |wanted: fn(&BStr) -> bool| {
        let lines = properties.clone().filter(|(name, _)| wanted(name));
        lines.map(|(name, value)| name.len() + value.len() + 2).sum::<usize>()
    };
    let is_hidden = |name: &BStr| name.starts_with(b".");
    let len = len - lines_len(is_hidden);
    if len - lines_len(|name| name == "DEVLINKS") > OLD_RECEIVER_LIMIT {
        return None;
    }
    let too_much = len.saturating_sub(OLD_RECEIVER_LIMIT);
    let mut body = Body::new();
    for (name, value) in properties.filter(|(name, _)| !is_hidden(name)) {
        match name.as_bytes() {
            b"DEVLINKS" if too_much > 0 => match devlinks_head(value, too_much) {
                b"" => {}
                head => body.push(name, head.as_bstr()),
            },
            _ => body.push(name, value),
        }
    }
    Some(body)
}

/// DEVLINKS without at least `too_much` bytes at its end, cut between two symlinks; all of them when
/// even that is not enough.
fn devlinks_head(value: &[u8], too_much: usize) -> &[u8] {
    let at_most = value.len().saturating_sub(too_much);
    // A separator right behind the limit also ends the head.
    match value[..(at_most + 1).min(value.len())].rfind_byte(b' ') {
        Some(end) => &value[..end],
        None => b"",
    }
}

fn can_be_sent(name: &[u8], value: &[u8]) -> bool {
    !name.is_empty() && name != VERSION && !name.contains(&0) && !value.contains(&0)
}

fn push_line(datagram: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    datagram.extend_from_slice(name);
    datagram.push(b'=');
    datagram.extend_from_slice(value);
    datagram.push(0);
}

/// interop.md 2.1: lengths in native byte order, what filters look at in network order.
fn write_header(datagram: &mut [u8], subsystem: &[u8], devtype: &[u8], bloom: u64) {
    let hash = |text: &[u8]| if text.is_empty() { 0 } else { murmur_hash2(text) };
    let body_len = (datagram.len() - HEADER_LEN) as u32;
    let fields = [
        MAGIC.to_be_bytes(),
        (HEADER_LEN as u32).to_ne_bytes(),
        (HEADER_LEN as u32).to_ne_bytes(),
        body_len.to_ne_bytes(),
        hash(subsystem).to_be_bytes(),
        hash(devtype).to_be_bytes(),
        ((bloom >> 32) as u32).to_be_bytes(),
        (bloom as u32).to_be_bytes(),
    ];
    datagram[..PREFIX.len()].copy_from_slice(PREFIX);
    datagram[PREFIX.len()..HEADER_LEN].copy_from_slice(fields.as_flattened());
}

/// A message of user space, as a listener gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Action, seqnum, devpath, subsystem and all properties but UDEV_DATABASE_VERSION.
    pub uevent: Uevent,
    /// What the header says of subsystem, devtype and tags.
    pub subsystem_hash: u32,
    pub devtype_hash: u32,
    pub tag_bloom: u64,
}

/// Why a datagram is no announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnouncementError {
    /// It is shorter than a header, or does not begin with `libudev`.
    NoHeader,
    /// The magic number is another.
    BadMagic,
    /// The properties begin behind the end of the datagram.
    BadOffset(u32),
    /// The last string has no NUL at its end, or a string is empty or has no `=`.
    BadBody,
    /// A required property is missing or wrong.
    Uevent(UeventError),
    /// TAGS contains what cannot be a tag.
    BadTags(BString),
}

impl std::fmt::Display for AnnouncementError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AnnouncementError::NoHeader => f.write_str("no libudev header"),
            AnnouncementError::BadMagic => f.write_str("wrong magic number"),
            AnnouncementError::BadOffset(at) => write!(f, "properties at byte {at}, behind the end"),
            AnnouncementError::BadBody => f.write_str("the body is no list of KEY=VALUE strings"),
            AnnouncementError::Uevent(error) => error.fmt(f),
            AnnouncementError::BadTags(tags) => write!(f, "TAGS cannot be {tags:?}"),
        }
    }
}

impl std::error::Error for AnnouncementError {}

/// Reads a datagram with the checks of interop.md 2.5, lines 6 to 11. Sender and credentials are the
/// caller's to check.
pub fn parse(datagram: &[u8]) -> Result<Announcement, AnnouncementError> {
    if datagram.len() < HEADER_LEN || !datagram.starts_with(PREFIX) {
        return Err(AnnouncementError::NoHeader);
    }
    let field = |at: usize| [datagram[at], datagram[at + 1], datagram[at + 2], datagram[at + 3]];
    let number = |at: usize| u32::from_be_bytes(field(at));
    if number(8) != MAGIC {
        return Err(AnnouncementError::BadMagic);
    }
    // Honoured, so that a later version may have a longer header; the two lengths are not checked.
    let offset = u32::from_ne_bytes(field(16));
    let body = usize::try_from(offset).ok().and_then(|at| datagram.get(at..));
    let body = body.filter(|body| body.len() >= 32).ok_or(AnnouncementError::BadOffset(offset))?;
    let lines = body.strip_suffix(b"\0").ok_or(AnnouncementError::BadBody)?.split(|&b| b == 0);
    if !lines.clone().all(|line| line.contains(&b'=')) {
        return Err(AnnouncementError::BadBody);
    }
    let mut uevent = Uevent::from_lines(lines).map_err(AnnouncementError::Uevent)?;
    uevent.properties.remove(VERSION);
    let is_tag = |tag: &[u8]| tag.is_empty() || Tags::is_valid(tag);
    if let Some(tags) = uevent.properties.get("TAGS").filter(|tags| !tags.split(|&b| b == b':').all(is_tag)) {
        return Err(AnnouncementError::BadTags(tags.to_owned()));
    }
    Ok(Announcement {
        uevent,
        subsystem_hash: number(24),
        devtype_hash: number(28),
        tag_bloom: u64::from(number(32)) << 32 | u64::from(number(36)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn properties(lines: &[&str]) -> Vec<(BString, BString)> {
        let pair = |line: &&str| line.split_once('=').map(|(n, v)| (n.into(), v.into())).expect("a property");
        lines.iter().map(pair).collect()
    }

    fn datagram_of(properties: &[(BString, BString)], tags: &OrderedSet) -> Vec<u8> {
        let borrowed: Vec<_> = properties.iter().map(|(n, v)| (n.as_bstr(), v.as_bstr())).collect();
        build(borrowed.into_iter(), tags)
    }

    fn tags(tags: &[&str]) -> OrderedSet {
        tags.iter().copied().collect()
    }

    const NULL: [&str; 10] = [
        "ACTION=add",
        "DEVPATH=/devices/virtual/mem/null",
        "SUBSYSTEM=mem",
        "DEVNAME=/dev/null",
        "SEQNUM=4711",
        "MAJOR=1",
        "MINOR=3",
        "USEC_INITIALIZED=1000",
        "TAGS=:systemd:",
        "CURRENT_TAGS=:systemd:",
    ];

    /// interop.md 2.3.
    #[cfg(target_endian = "little")]
    const NULL_HEADER: &[u8; 40] = b"libudev\0\xfe\xed\xca\xfe\x28\0\0\0\x28\0\0\0\xbd\0\0\0\
        \xc3\x65\xcd\x83\0\0\0\0\x02\0\x04\0\x10\x80\0\0";

    #[cfg(target_endian = "little")]
    #[test]
    fn a_message_has_exactly_these_bytes() {
        let datagram = datagram_of(&properties(&NULL), &tags(&["systemd"]));
        let body = format!("UDEV_DATABASE_VERSION=1\0{}\0", NULL.join("\0"));
        assert_eq!(datagram.as_bstr(), [&NULL_HEADER[..], body.as_bytes()].concat().as_bstr());
        assert_eq!(datagram.len(), 229);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn headers_of_other_devices() {
        let head = |subsystem: &str, devtype: &str, given: &[&str]| {
            let lines = [&format!("SUBSYSTEM={subsystem}")[..], &format!("DEVTYPE={devtype}")];
            let mut header = datagram_of(&properties(&lines), &tags(given));
            header.drain(..24);
            header.truncate(16);
            header
        };
        let disk = b"\xf0\x03\x1d\xb7\x7b\xcb\xc5\xee\0\0\0\0\0\0\0\0";
        assert_eq!(head("block", "disk", &[]), disk);
        let usb = b"\x05\x77\xc5\xe5\x27\xf8\xf5\x0c\x02\x08\x20\x08\x00\x40\x10\x09";
        assert_eq!(head("usb", "usb_device", &["seat", "uaccess"]), usb);
    }

    #[test]
    fn what_was_built_is_read() {
        let datagram = datagram_of(&properties(&NULL), &tags(&["systemd"]));
        let read = parse(&datagram).unwrap();
        let lines = NULL.join("\0");
        assert_eq!(read.uevent, Uevent::from_lines(lines.as_bytes().split(|&b| b == 0)).unwrap());
        assert_eq!(read.tag_bloom, tag_bloom(["systemd"]));
        assert_eq!((read.subsystem_hash, read.devtype_hash), (murmur_hash2(b"mem"), 0));
    }

    #[test]
    fn odd_properties_are_left_out() {
        let mut odd = properties(&NULL);
        let plain = datagram_of(&odd, &tags(&[]));
        odd.push(("UDEV_DATABASE_VERSION".into(), "7".into()));
        odd.push(("".into(), "x".into()));
        odd.push(("A".into(), "x\0B=y".into()));
        assert_eq!(datagram_of(&odd, &tags(&[])), plain);
    }

    /// Names of DEVLINKS and of hidden properties in a datagram, and whether it suits old receivers.
    fn shape(datagram: &[u8]) -> (usize, usize, bool) {
        let read = parse(datagram).unwrap().uevent.properties;
        let links = read.get("DEVLINKS").map_or(0, |links| links.split_str(" ").count());
        let hidden = read.iter().filter(|p| p.name.starts_with(b".")).count();
        (links, hidden, datagram.len() <= OLD_RECEIVER_LIMIT)
    }

    #[test]
    fn a_long_message_loses_hidden_properties_first_and_then_the_last_symlinks() {
        let long = |hidden: usize, links: usize, other: usize| {
            let mut all = properties(&NULL);
            for i in 0..hidden {
                all.push((format!(".H{i:04}").into(), "x".repeat(92).into()));
            }
            let paths: Vec<_> = (0..links).map(|i| format!("/dev/{i:094}")).collect();
            all.push(("DEVLINKS".into(), paths.join(" ").into()));
            all.push(("OTHER".into(), "y".repeat(other).into()));
            datagram_of(&all, &tags(&["systemd"]))
        };
        assert_eq!(shape(&long(70, 5, 0)), (5, 70, true));
        assert_eq!(shape(&long(80, 5, 0)), (5, 0, true));
        let (links, hidden, fits) = shape(&long(10, 100, 0));
        assert!((78..80).contains(&links) && hidden == 0 && fits, "{links}");
        assert_eq!(shape(&long(10, 10, 9000)), (10, 10, false));
    }

    #[test]
    fn as_few_symlinks_as_needed_are_cut() {
        assert_eq!(devlinks_head(b"/dev/a /dev/b", 1), b"/dev/a");
        assert_eq!(devlinks_head(b"/dev/a /dev/b", 7), b"/dev/a");
        assert_eq!(devlinks_head(b"/dev/a /dev/b", 8), b"");
        assert_eq!(devlinks_head(b"/dev/a", 100), b"");
    }

    #[test]
    fn a_receiver_checks_in_order() {
        let good = datagram_of(&properties(&NULL), &tags(&[]));
        let with = |at: usize, bytes: &[u8]| {
            let mut datagram = good.clone();
            datagram[at..at + bytes.len()].copy_from_slice(bytes);
            parse(&datagram)
        };
        assert_eq!(parse(&good[..39]), Err(AnnouncementError::NoHeader));
        assert_eq!(with(0, b"L"), Err(AnnouncementError::NoHeader));
        assert_eq!(with(8, &[0]), Err(AnnouncementError::BadMagic));
        assert_eq!(with(16, &u32::MAX.to_ne_bytes()), Err(AnnouncementError::BadOffset(u32::MAX)));
        assert_eq!(with(good.len() - 1, b"x"), Err(AnnouncementError::BadBody));
        let first_equals = 40 + VERSION.len();
        assert_eq!(with(first_equals, b":"), Err(AnnouncementError::BadBody));
        assert_eq!(parse(&[&good[..], b"\0"].concat()), Err(AnnouncementError::BadBody));
        let action = good.find("ACTION=add").expect("an action") + 7;
        let bad_action = AnnouncementError::Uevent(UeventError::Bad("ACTION", "xdd".into()));
        assert_eq!(with(action, b"x"), Err(bad_action));
        assert!(matches!(
            parse(&datagram_of(&properties(&NULL[..4]), &tags(&[]))),
            Err(AnnouncementError::Uevent(UeventError::Missing("SEQNUM")))
        ));
        let odd_tags = properties(&[&NULL[..8], &["TAGS=:a b:"]].concat());
        assert_eq!(
            parse(&datagram_of(&odd_tags, &tags(&[]))),
            Err(AnnouncementError::BadTags(":a b:".into()))
        );
    }

    #[test]
    fn a_longer_header_is_honoured() {
        let good = datagram_of(&properties(&NULL), &tags(&[]));
        let mut longer = [&good[..40], &[0xff; 8], &good[40..]].concat();
        longer[16..20].copy_from_slice(&48u32.to_ne_bytes());
        assert_eq!(parse(&longer), parse(&good));
    }

    proptest! {
        #[test]
        fn garbage_behind_a_header_is_read_without_harm(mut body in prop::collection::vec(any::<u8>(), 0..200), offset in 0u32..300) {
            let mut datagram = datagram_of(&[], &tags(&[]));
            datagram.append(&mut body);
            datagram[16..20].copy_from_slice(&offset.to_ne_bytes());
            let _ = parse(&datagram);
            let _ = parse(&datagram[..datagram.len() / 2]);
        }

        #[test]
        fn a_message_is_never_longer_than_needed(sizes in prop::collection::vec((any::<bool>(), 0usize..2000), 0..12), links in 0usize..200) {
            let mut all = properties(&NULL);
            for (i, (hidden, size)) in sizes.iter().enumerate() {
                all.push((format!("{}N{i}", if *hidden { "." } else { "" }).into(), "v".repeat(*size).into()));
            }
            let line_len = |(n, v): &(BString, BString)| n.len() + v.len() + 2;
            let shown = all.iter().filter(|(name, _)| !name.starts_with(b".")).map(line_len).sum::<usize>();
            all.push(("DEVLINKS".into(), vec!["/dev/disk/by-id/some-name"; links].join(" ").into()));
            let datagram = datagram_of(&all, &tags(&[]));
            let fits = HEADER_LEN + VERSION_LINE.len() + shown <= OLD_RECEIVER_LIMIT;
            prop_assert_eq!(datagram.len() <= OLD_RECEIVER_LIMIT, fits);
            prop_assert!(parse(&datagram).is_ok());
        }
    }
}
