//! The load: veth pairs over rtnetlink, and rules of the shape that Debian's packages have.

use std::fmt::Write;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A blocking rtnetlink socket that makes veth pairs.
pub struct Links {
    socket: OwnedFd,
    sequence: u32,
}

impl Links {
    pub fn open() -> io::Result<Links> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Links { socket: unsafe { OwnedFd::from_raw_fd(fd) }, sequence: 0 })
    }

    /// RTM_NEWLINK of kind veth, with the kernel's own number of queues; waits for the acknowledgement.
    pub fn add_veth(&mut self, name: &str, peer: &str) -> io::Result<()> {
        const IFLA_IFNAME: u16 = 3;
        const IFLA_LINKINFO: u16 = 18;
        const IFLA_INFO_KIND: u16 = 1;
        const IFLA_INFO_DATA: u16 = 2;
        const VETH_INFO_PEER: u16 = 1;
        let mut peer_message = vec![0; 16];
        peer_message.extend(attribute(IFLA_IFNAME, &[peer.as_bytes(), b"\0"].concat()));
        let data = attribute(VETH_INFO_PEER, &peer_message);
        let info = [attribute(IFLA_INFO_KIND, b"veth"), attribute(IFLA_INFO_DATA, &data)].concat();
        let mut body = vec![0; 16];
        body.extend(attribute(IFLA_IFNAME, &[name.as_bytes(), b"\0"].concat()));
        body.extend(attribute(IFLA_LINKINFO, &info));
        self.request(libc::RTM_NEWLINK, (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16, &body)
    }

    /// Takes RTNL and changes nothing: the loopback interface gets the queue length that it has by default.
    pub fn take_rtnl(&mut self) -> io::Result<()> {
        const IFLA_TXQLEN: u16 = 13;
        let mut body = vec![0; 16];
        body[4..8].copy_from_slice(&1u32.to_ne_bytes());
        body.extend(attribute(IFLA_TXQLEN, &1000u32.to_ne_bytes()));
        self.request(libc::RTM_SETLINK, 0, &body)
    }

    fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence += 1;
        let flags = flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut message = Vec::with_capacity(16 + body.len());
        message.extend_from_slice(&(16 + body.len() as u32).to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(&flags.to_ne_bytes());
        message.extend_from_slice(&self.sequence.to_ne_bytes());
        message.extend_from_slice(&[0; 4]);
        message.extend_from_slice(body);
        let fd = self.socket.as_raw_fd();
        let mut reply = [0u8; 4096];
        let got = unsafe {
            libc::send(fd, message.as_ptr().cast(), message.len(), 0);
            libc::recv(fd, reply.as_mut_ptr().cast(), reply.len(), 0)
        };
        if got < 20 {
            return Err(io::Error::last_os_error());
        }
        match i32::from_ne_bytes([reply[16], reply[17], reply[18], reply[19]]) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }
}

fn attribute(kind: u16, payload: &[u8]) -> Vec<u8> {
    let length = 4 + payload.len();
    let mut bytes = Vec::with_capacity(length.next_multiple_of(4));
    bytes.extend_from_slice(&(length as u16).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(payload);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

/// Takes RTNL again and again, as whoever sets up a network does; one millisecond lies between two holds.
pub fn keep_rtnl_busy(running: &AtomicBool) {
    let mut links = Links::open().expect("a socket of rtnetlink");
    while running.load(Ordering::Acquire) {
        links.take_rtnl().expect("a request that changes nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Reads the files that the rules of variant A ask for, of all interfaces, as a monitor of the network does.
pub fn read_attributes(running: &AtomicBool) {
    while running.load(Ordering::Acquire) {
        let folders = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        for folder in folders.take_while(|_| running.load(Ordering::Acquire)) {
            for name in STORED.iter().chain(&["dormant"]) {
                let _ = std::fs::read(folder.path().join(name));
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The attributes that the rules of variant A store.
const STORED: [&str; 14] = [
    "mtu",
    "address",
    "broadcast",
    "ifindex",
    "iflink",
    "type",
    "flags",
    "operstate",
    "carrier",
    "tx_queue_len",
    "addr_len",
    "link_mode",
    "group",
    "ifalias",
];

/// Variant A adds this to Debian's rules: one guard, then fifteen attributes matched or stored.
pub fn link_attribute_rules() -> String {
    let mut rules = String::from(
        "SUBSYSTEM!=\"net\", GOTO=\"end\"\nACTION==\"remove\", GOTO=\"end\"\nATTR{dormant}==\"0|\", ENV{B_DORMANT}=\"no\"\n",
    );
    for name in STORED {
        let _ = writeln!(rules, "ENV{{B_{}}}=\"$attr{{{name}}}\"", name.to_uppercase());
    }
    rules + "LABEL=\"end\"\n"
}

/// Variant B adds this: one program for every added interface.
pub fn run_rules() -> &'static str {
    "SUBSYSTEM==\"net\", ACTION==\"add\", RUN+=\"/usr/bin/true $name\"\n"
}

/// Variant S adds this to A: rules of the shape of those that come with a login manager. What counts is the last file:
/// each device without a seat asks for its parent's, so each queue of an interface asks for the record of that.
pub fn seat_rules() -> [(&'static str, &'static str); 3] {
    [
        ("70-uaccess.rules", UACCESS_RULES),
        ("71-seat.rules", SEAT_RULES),
        ("73-seat-late.rules", SEAT_LATE_RULES),
    ]
}

const UACCESS_RULES: &str = r#"ACTION=="remove", GOTO="uaccess_end"
ENV{MAJOR}=="", GOTO="uaccess_end"
SUBSYSTEM=="sound", TAG+="uaccess"
SUBSYSTEM=="video4linux|dvb|media", TAG+="uaccess"
SUBSYSTEM=="drm", KERNEL=="card*|renderD*", TAG+="uaccess"
SUBSYSTEM=="block", ENV{ID_CDROM}=="1", TAG+="uaccess"
SUBSYSTEM=="input", ENV{ID_INPUT_JOYSTICK}=="?*", TAG+="uaccess"
SUBSYSTEM=="usb", ENV{ID_USB_INTERFACES}=="*:060101:*", TAG+="uaccess"
SUBSYSTEM=="hidraw", ENV{ID_SECURITY_TOKEN}=="1", TAG+="uaccess"
KERNEL=="kvm|rfkill", TAG+="uaccess"
LABEL="uaccess_end"
"#;

const SEAT_RULES: &str = r#"ACTION=="remove", GOTO="seat_end"
TAG=="uaccess", SUBSYSTEM!="sound", TAG+="seat"
SUBSYSTEM=="sound", KERNEL=="card*", TAG+="seat"
SUBSYSTEM=="input", KERNEL=="input*", TAG+="seat"
SUBSYSTEM=="input", KERNEL=="input*", ENV{ID_INPUT_KEYBOARD}=="1", TAG+="power-switch"
SUBSYSTEM=="graphics", KERNEL=="fb[0-9]*", TAG+="seat", TAG+="master-of-seat"
SUBSYSTEM=="drm", KERNEL=="card[0-9]*", TAG+="seat", TAG+="master-of-seat"
SUBSYSTEM=="usb", ATTR{bDeviceClass}=="09", TAG+="seat"
TAG=="seat", ENV{ID_PATH}=="", IMPORT{builtin}="path_id"
TAG=="seat", ENV{ID_FOR_SEAT}=="", ENV{ID_PATH_TAG}!="", ENV{ID_FOR_SEAT}="$env{SUBSYSTEM}-$env{ID_PATH_TAG}"
LABEL="seat_end"
"#;

const SEAT_LATE_RULES: &str = r#"ACTION=="remove", GOTO="seat_late_end"
ENV{ID_SEAT}=="", ENV{ID_AUTOSEAT}=="1", ENV{ID_FOR_SEAT}!="", ENV{ID_SEAT}="seat-$env{ID_FOR_SEAT}"
ENV{ID_SEAT}=="", IMPORT{parent}="ID_SEAT"
ENV{ID_SEAT}!="", TAG+="$env{ID_SEAT}"
LABEL="seat_late_end"
"#;

/// Files of the shape that the rules of 90 packages have: names and texts of (file name, rules). In all
/// about 4,700 rules, a third of them in long runs that compare one vendor id with a literal, most files
/// behind a guard, parent matches on USB devices that a virtual interface does not have.
pub fn field_rules() -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut numbers = 0x1234_5678_u32;
    let mut id = move || {
        numbers = numbers.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        format!("{:04x}", numbers >> 16)
    };
    // One package of 414 devices whose guard lets every `add` through.
    let mut modeswitch = String::from(
        "SUBSYSTEM!=\"usb\", ACTION!=\"add\", GOTO=\"modeswitch_end\"\nATTRS{idVendor}==\"0408\", ATTRS{idProduct}==\"1000\", RUN+=\"usb_modeswitch '/%k'\"\n",
    );
    for _ in 0..414 {
        let _ = writeln!(
            modeswitch,
            "ATTR{{idVendor}}==\"{}\", ATTR{{idProduct}}==\"{}\", RUN+=\"usb_modeswitch '/%k'\"",
            id(),
            id()
        );
    }
    files.push(("40-field-modeswitch.rules".to_owned(), modeswitch + "LABEL=\"modeswitch_end\"\n"));
    // Vendor lists behind a guard: scanners, uninterruptible supplies, debug probes, tablets.
    for (number, (subsystem, count)) in
        [("usb", 620), ("usb", 120), ("usb|tty", 115), ("hidraw", 100), ("input", 88), ("tty", 240)]
            .iter()
            .enumerate()
    {
        let mut text =
            format!("SUBSYSTEM!=\"{subsystem}\", GOTO=\"end\"\nACTION==\"remove\", GOTO=\"end\"\n");
        for _ in 0..*count {
            let _ = writeln!(
                text,
                "ATTRS{{idVendor}}==\"{}\", ATTRS{{idProduct}}==\"{}\", MODE=\"0664\", GROUP=\"plugdev\", TAG+=\"uaccess\"",
                id(),
                id()
            );
        }
        files.push((format!("60-field-{number}.rules"), text + "LABEL=\"end\"\n"));
    }
    // Lists that name the subsystem in every rule.
    for (number, (subsystem, count)) in
        [("usb", 280), ("tty", 460), ("drm", 130), ("input", 100), ("block", 80)].iter().enumerate()
    {
        let mut text = String::new();
        for _ in 0..*count {
            let _ = writeln!(
                text,
                "SUBSYSTEM==\"{subsystem}\", ATTRS{{idVendor}}==\"{}\", ENV{{ID_FIELD_{number}}}=\"1\"",
                id()
            );
        }
        files.push((format!("65-field-{number}.rules"), text));
    }
    // Small packages: a guard or none, a few rules of mixed keys.
    for number in 0..160 {
        let mut text = String::new();
        if number % 3 != 0 {
            let _ = writeln!(text, "ACTION!=\"add|change\", GOTO=\"small_end\"");
        }
        for line in 0..9 {
            let _ = match (number + line) % 6 {
                0 => writeln!(text, "KERNEL==\"field{line}*\", SUBSYSTEM==\"misc\", TAG+=\"uaccess\""),
                1 => {
                    writeln!(text, "SUBSYSTEMS==\"usb\", ATTRS{{idVendor}}==\"{}\", ENV{{ID_X}}=\"1\"", id())
                }
                2 => writeln!(text, "ENV{{ID_FIELD_TYPE}}==\"?*\", SYMLINK+=\"field/$env{{ID_FIELD_TYPE}}\""),
                3 => writeln!(
                    text,
                    "SUBSYSTEM==\"net\", ENV{{ID_NET_DRIVER}}==\"drv{number}\", ENV{{NM_X}}=\"1\""
                ),
                4 => writeln!(text, "KERNEL==\"sd*[!0-9]|sr*\", ENV{{ID_SERIAL}}!=\"?*\", ENV{{ID_Y}}=\"1\""),
                _ => writeln!(
                    text,
                    "DRIVERS==\"field_{number}\", ATTRS{{bInterfaceNumber}}==\"0{line}\", ENV{{ID_Z}}=\"1\""
                ),
            };
        }
        text += "LABEL=\"small_end\"\n";
        files.push((format!("70-field-{number:03}.rules"), text));
    }
    files
}
