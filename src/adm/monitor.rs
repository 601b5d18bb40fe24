//! `monitor`: prints kernel uevents and the daemon's announcements as they come (interop.md 2.5, 2.6,
//! 5.4).

use super::{Out, Outcome, Stop, bytes_value, ignore_word, ignored_in_chroot, other_option};
use crate::model::command_line::{LongNames, next_arg};
use crate::model::event::Tags;
use crate::model::{Uevent, announcement};
use crate::sys::netlink::{self, Received};
use crate::sys::process::wait_any_readable;
use crate::sys::signal::SignalFd;
use crate::sys::{clock, netlink::Sender};
use crate::world::Roots;
use bstr::{BString, ByteSlice};
use lexopt::{Arg, Parser};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;
use std::time::Duration;

/// What `monitor --help` says.
pub(super) const HELP: &str = "monitor [OPTIONS]

Show the kernel's uevents and the daemon's announcements as they come.

  -p --property                            Show the properties too (-e, --environment)
  -k --kernel                              Only the kernel's uevents
  -u --udev                                Only the daemon's announcements
  -s --subsystem-match=SUBSYSTEM[/DEVTYPE] Only events of this subsystem (repeatable)
  -t --tag-match=TAG                       Only events with this tag (repeatable)
  -h --help                                Show this help
  -V --version                             Show the version";

/// Its long options.
const LONG: &[LongNames] = &[&["property|environment", "kernel", "udev", "subsystem-match", "tag-match"]];

/// Bytes asked for as receive buffer, as every receiver of udev does (interop.md 2.7).
const RECEIVE_BUFFER: usize = 128 << 20;
/// The longest message: properties have no limit of their own, netlink has.
const MESSAGE_MAX: usize = 64 << 10;

/// The speaker in a netlink group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaker {
    Kernel,
    Udev,
}

impl Speaker {
    /// Bit of its multicast group.
    fn group(self) -> u32 {
        match self {
            Speaker::Kernel => 1,
            Speaker::Udev => 2,
        }
    }

    /// Whether a message may come from this sender: in the kernel's group only from the kernel itself.
    fn trusts(self, sender: &Sender, users: &Users) -> bool {
        sender.credentials.is_some_and(|c| users.may_speak(c.uid))
            && sender.groups == self.group()
            && match self {
                Speaker::Kernel => sender.portid == 0,
                Speaker::Udev => sender.portid != 0,
            }
    }
}

/// The users whose messages are believed: root, our own user, and the user that stands for all those without a number
/// in our user namespace, since the kernel and root outside of it are among them (interop.md 2.5, check 5).
#[derive(Debug, PartialEq, Eq)]
struct Users {
    own: Option<u32>,
    /// First number and count of the numbers that our user namespace has.
    mapped: Vec<(u32, u32)>,
}

impl Users {
    fn of_this_process(roots: &Roots) -> Users {
        let process = roots.proc.join("self");
        let own = std::fs::metadata(&process).ok().map(|m| m.uid());
        // Where there is nothing to read there are no user namespaces.
        let map =
            std::fs::read_to_string(process.join("uid_map")).unwrap_or_else(|_| "0 0 4294967295".into());
        Users { own, mapped: parse_uid_map(&map) }
    }

    fn may_speak(&self, uid: u32) -> bool {
        let is_mapped =
            self.mapped.iter().any(|&(first, count)| uid.checked_sub(first).is_some_and(|n| n < count));
        uid == 0 || Some(uid) == self.own || !is_mapped
    }
}

/// Lines `INSIDE OUTSIDE COUNT` (user_namespaces(7)).
fn parse_uid_map(text: &str) -> Vec<(u32, u32)> {
    let numbers = |line: &str| {
        let mut words = line.split_whitespace().map(|word| word.parse().ok());
        Some((words.next()??, words.nth(1)??))
    };
    text.lines().filter_map(numbers).collect()
}

/// A socket that hears one speaker.
#[derive(Debug)]
pub(super) struct Receiver {
    speaker: Speaker,
    socket: OwnedFd,
    users: Users,
    buffer: Vec<u8>,
}

impl Receiver {
    /// Begins to listen.
    pub(super) fn open(speaker: Speaker, roots: &Roots) -> Result<Receiver, Stop> {
        let open = || {
            let socket = netlink::open_uevent(speaker.group())?;
            // Without it more can be lost, no more than that.
            let _ = netlink::set_receive_buffer(socket.as_fd(), RECEIVE_BUFFER);
            Ok(socket)
        };
        let socket: io::Result<OwnedFd> = open();
        let socket = socket.map_err(|e| Stop::Failed(format!("cannot listen for events: {e}")))?;
        Ok(Receiver { speaker, socket, users: Users::of_this_process(roots), buffer: vec![0; MESSAGE_MAX] })
    }

    /// The next good message; None when nothing is there. Skips datagrams that are no messages of the speaker.
    pub(super) fn receive(&mut self) -> Result<Option<Uevent>, Stop> {
        loop {
            match netlink::receive(self.socket.as_fd(), &mut self.buffer) {
                Ok(received) => match self.parse(received) {
                    Ok(uevent) => return Ok(Some(uevent)),
                    Err(reason) => log::debug!("Skipping a message: {reason}"),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    log::warn!("Messages were lost: they came faster than they could be shown");
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Stop::Failed(format!("cannot receive events: {error}"))),
            }
        }
    }

    fn parse(&self, received: Received) -> Result<Uevent, String> {
        if !self.speaker.trusts(&received.sender, &self.users) {
            return Err(format!("its sender is not trusted: {:?}", received.sender));
        }
        let datagram =
            self.buffer.get(..received.len).filter(|_| !received.truncated).ok_or("it is too long")?;
        match self.speaker {
            Speaker::Kernel => Uevent::parse_kernel(datagram).map_err(|e| e.to_string()),
            Speaker::Udev => announcement::parse(datagram).map(|a| a.uevent).map_err(|e| e.to_string()),
        }
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    properties: bool,
    kernel: bool,
    udev: bool,
    /// Subsystem, and devtype if one was given.
    subsystems: Vec<(BString, Option<BString>)>,
    tags: Vec<BString>,
}

fn parse(parser: &mut Parser) -> Result<Options, Stop> {
    let mut options = Options::default();
    while let Some(arg) = next_arg(parser, LONG)? {
        match arg {
            Arg::Short('p' | 'e') | Arg::Long("property") => options.properties = true,
            Arg::Short('k') | Arg::Long("kernel") => options.kernel = true,
            Arg::Short('u') | Arg::Long("udev") => options.udev = true,
            Arg::Short('s') | Arg::Long("subsystem-match") => {
                let text = bytes_value(parser)?;
                options.subsystems.push(match text.split_once_str("/") {
                    Some((subsystem, devtype)) => (subsystem.into(), Some(devtype.into())),
                    None => (text, None),
                });
            }
            Arg::Short('t') | Arg::Long("tag-match") => {
                let tag = bytes_value(parser)?;
                if !Tags::is_valid(&tag) {
                    return Err(Stop::Failed(format!("{tag:?} is no tag")));
                }
                options.tags.push(tag);
            }
            Arg::Value(word) => ignore_word(&word),
            other => return Err(other_option(other)),
        }
    }
    if !options.kernel && !options.udev {
        (options.kernel, options.udev) = (true, true);
    }
    Ok(options)
}

impl Options {
    /// Whether an event is to be shown: one of the subsystems, and one of the tags.
    fn wants(&self, uevent: &Uevent) -> bool {
        let devtype = uevent.properties.get("DEVTYPE");
        let subsystem = |(subsystem, wanted): &(BString, Option<BString>)| {
            *subsystem == uevent.subsystem && wanted.as_ref().is_none_or(|w| devtype == Some(w.as_bstr()))
        };
        let tags = uevent.properties.get("TAGS").unwrap_or_default();
        let tag = |tag: &BString| tags.split(|&b| b == b':').any(|t| t == tag.as_slice());
        (self.subsystems.is_empty() || self.subsystems.iter().any(subsystem))
            && (self.tags.is_empty() || self.tags.iter().any(tag))
    }
}

/// Runs the subcommand.
pub(super) fn run(parser: &mut Parser, roots: &Roots, out: Out) -> Outcome {
    let options = parse(parser)?;
    if ignored_in_chroot("monitor", roots) {
        return Ok(ExitCode::SUCCESS);
    }
    let signals = SignalFd::new(&[libc::SIGINT, libc::SIGTERM]).map_err(Stop::failed)?;
    let open = |wanted: bool, speaker| wanted.then(|| Receiver::open(speaker, roots)).transpose();
    let mut receivers = [open(options.kernel, Speaker::Kernel)?, open(options.udev, Speaker::Udev)?];
    print_heading(&options, out)?;
    loop {
        out.flush()?;
        // A receiver that is not wanted is stood in for by the signals.
        let fds = [0, 1].map(|i| receivers[i].as_ref().map_or(signals.as_fd(), |r| r.as_fd()));
        match wait_any_readable([signals.as_fd(), fds[0], fds[1]], None) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Stop::failed(error)),
            Ok([true, ..]) => return Ok(ExitCode::SUCCESS),
            Ok(_) => {}
        }
        for receiver in receivers.iter_mut().flatten() {
            // One at a time, so that a flood in one group does not hide the other.
            if let Some(uevent) = receiver.receive()?.filter(|uevent| options.wants(uevent)) {
                print_event(
                    receiver.speaker,
                    clock::monotonic().since_boot(),
                    &uevent,
                    options.properties,
                    out,
                )?;
            }
        }
    }
}

fn print_heading(options: &Options, out: Out) -> Result<(), Stop> {
    writeln!(out, "monitor will print the received events for:")?;
    if options.udev {
        writeln!(out, "UDEV - the event which udev sends out after rule processing")?;
    }
    if options.kernel {
        writeln!(out, "KERNEL - the kernel uevent")?;
    }
    Ok(writeln!(out)?)
}

fn print_event(
    speaker: Speaker,
    at: Duration,
    uevent: &Uevent,
    properties: bool,
    out: Out,
) -> Result<(), Stop> {
    let source = match speaker {
        Speaker::Kernel => "KERNEL",
        Speaker::Udev => "UDEV",
    };
    write!(out, "{source:<6}[{}.{:06}] ", at.as_secs(), at.subsec_micros())?;
    writeln!(out, "{:<8} {} ({})", uevent.action.as_str(), uevent.devpath, uevent.subsystem)?;
    if properties {
        for property in uevent.properties.iter() {
            out.write_all(&[property.name.as_bytes(), b"=", property.value, b"\n"].concat())?;
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::netlink::Credentials;

    fn parse_words(words: &[&str]) -> Result<Options, Stop> {
        parse(&mut Parser::from_args(words))
    }

    fn uevent(lines: &str) -> Uevent {
        Uevent::from_lines(lines.split(' ').map(str::as_bytes)).unwrap()
    }

    #[test]
    fn both_speakers_are_heard_unless_one_is_chosen() {
        for (words, kernel, udev) in [
            (&[][..], true, true),
            (&["-k"], true, false),
            (&["--udev", "-p"], false, true),
            (&["-ku"], true, true),
            (&["word", "-k"], true, false),
        ] {
            let options = parse_words(words).unwrap();
            assert_eq!((options.kernel, options.udev), (kernel, udev), "{words:?}");
        }
        for words in [&["-t", "a b"][..], &["--tag-match="], &["-x"]] {
            assert!(matches!(parse_words(words), Err(Stop::Failed(_))), "{words:?}");
        }
    }

    #[test]
    fn one_of_the_subsystems_and_one_of_the_tags_must_fit() {
        let disk = uevent("ACTION=add DEVPATH=/d SUBSYSTEM=block SEQNUM=1 DEVTYPE=disk TAGS=:a:bc:");
        let null = uevent("ACTION=add DEVPATH=/d SUBSYSTEM=mem SEQNUM=1");
        for (words, wants_disk, wants_null) in [
            (&[][..], true, true),
            (&["-s", "block"], true, false),
            (&["-s", "block/partition"], false, false),
            (&["-s", "block/disk", "-s", "mem"], true, true),
            (&["-t", "b"], false, false),
            (&["-t", "b", "-t", "bc"], true, false),
            (&["-s", "mem", "-t", "a"], false, false),
        ] {
            let options = parse_words(words).unwrap();
            assert_eq!((options.wants(&disk), options.wants(&null)), (wants_disk, wants_null), "{words:?}");
        }
    }

    #[test]
    fn events_are_shown_as_scripts_expect_them() {
        let change = uevent("ACTION=change DEVPATH=/devices/virtual/mem/null SUBSYSTEM=mem SEQNUM=7");
        let mut out = Vec::new();
        print_event(Speaker::Udev, Duration::from_micros(775_869_113), &change, false, &mut out).unwrap();
        print_event(Speaker::Kernel, Duration::from_micros(5_000_042), &change, true, &mut out).unwrap();
        assert_eq!(
            out.as_bstr(),
            "UDEV  [775.869113] change   /devices/virtual/mem/null (mem)\n\
             KERNEL[5.000042] change   /devices/virtual/mem/null (mem)\n\
             ACTION=change\nDEVPATH=/devices/virtual/mem/null\nSUBSYSTEM=mem\nSEQNUM=7\n\n"
        );
    }

    #[test]
    fn only_root_and_the_kernel_itself_are_believed() {
        let sender =
            |portid, groups, uid| Sender { portid, groups, credentials: Some(Credentials { pid: 1, uid }) };
        let users = Users { own: Some(5), mapped: parse_uid_map("0 0 4294967295\nnonsense\n") };
        for uid in [0, 5] {
            assert!(Speaker::Kernel.trusts(&sender(0, 1, uid), &users), "{uid}");
            assert!(Speaker::Udev.trusts(&sender(7, 2, uid), &users), "{uid}");
        }
        for (speaker, sender) in [
            (Speaker::Kernel, sender(7, 1, 0)),
            (Speaker::Kernel, sender(0, 0, 0)),
            (Speaker::Udev, sender(7, 2, 1000)),
            (Speaker::Udev, sender(7, 0, 0)),
            (Speaker::Udev, Sender { credentials: None, ..sender(7, 2, 0) }),
        ] {
            assert!(!speaker.trusts(&sender, &users), "{speaker:?} {sender:?}");
        }
    }

    #[test]
    fn in_a_user_namespace_the_kernel_has_no_number_of_its_own() {
        let users =
            Users { own: Some(0), mapped: parse_uid_map("         0       1000          1\n100 5 2") };
        assert_eq!(users.mapped, [(0, 1), (100, 2)]);
        for (uid, may_speak) in
            [(0, true), (65534, true), (99, true), (100, false), (101, false), (102, true)]
        {
            assert_eq!(users.may_speak(uid), may_speak, "{uid}");
        }
    }
}
