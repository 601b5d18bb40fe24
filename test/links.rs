//! The link table against the real kernel: every mapped attribute is what the sysfs file says, through
//! changes, moves between namespaces and lost messages; and the request helper carries requests while its
//! client goes on.

mod decoders;
mod support;

use bstr::BString;
use mudev::helper;
use mudev::links::table::{Change, News};
use mudev::links::{Exists, LinkAttr, Lookup, Mark, Origin, Refresh, Reply, Table, attr, exists, request};
use mudev::model::{Errno, IfIndex};
use mudev::sys::netlink;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{isolated, run, wait_for};

/// Every name of builtins.md 3.1 that the table prints.
const MAPPED: [&str; 27] = [
    "ifindex",
    "type",
    "address",
    "addr_len",
    "broadcast",
    "mtu",
    "iflink",
    "flags",
    "operstate",
    "link_mode",
    "carrier",
    "dormant",
    "testing",
    "carrier_changes",
    "carrier_up_count",
    "carrier_down_count",
    "tx_queue_len",
    "ifalias",
    "netdev_group",
    "proto_down",
    "phys_port_id",
    "phys_switch_id",
    "phys_port_name",
    "speed",
    "duplex",
    "statistics",
    "master",
];

/// What the daemon does with the table, in small: a subscribed socket, a request helper, and the rule that
/// the one is read empty before marks and replies.
struct Bench {
    table: Table,
    notifications: OwnedFd,
    helper: Helper,
    buffer: Vec<u8>,
    changes: Vec<Change>,
    overruns: usize,
}

/// The request helper as a process of its own.
struct Helper {
    socket: OwnedFd,
    child: Child,
}

impl Helper {
    fn start() -> Helper {
        let (ours, theirs) = mudev::sys::unix::seqpacket_pair().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_mudev"))
            .arg0(helper::PROGRAM_NAME)
            .arg(helper::RTNL)
            .stdin(Stdio::from(theirs))
            .spawn()
            .unwrap();
        Helper { socket: ours, child }
    }

    fn send(&self, request: &[u8]) {
        mudev::sys::unix::send(self.socket.as_fd(), request).unwrap();
    }

    /// The next datagram, if there is one.
    fn receive<'a>(&self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        match mudev::sys::unix::receive(self.socket.as_fd(), buffer) {
            Ok(received) if received.len == 0 => panic!("the helper has ended"),
            Ok(received) => Some(&buffer[..received.len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn wait_readable(&self) {
        assert!(mudev::sys::process::wait_readable(self.socket.as_fd(), support::LIMIT).unwrap(), "no reply");
    }

    /// Closing the socket ends it.
    fn end(mut self) {
        drop(self.socket);
        let status = wait_for("the helper's end", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}");
    }
}

impl Bench {
    fn new() -> Bench {
        Bench::with_buffer(8 << 20)
    }

    fn with_buffer(bytes: usize) -> Bench {
        let notifications = netlink::open_route(false).unwrap();
        netlink::set_receive_buffer(notifications.as_fd(), bytes).unwrap();
        netlink::add_membership(notifications.as_fd(), 1).unwrap();
        let mut bench = Bench {
            table: Table::new(),
            notifications,
            helper: Helper::start(),
            buffer: vec![0; 64 * 1024],
            changes: Vec::new(),
            overruns: 0,
        };
        bench.settle();
        bench
    }

    /// Takes every notification that is queued.
    fn drain(&mut self) {
        loop {
            match netlink::receive(self.notifications.as_fd(), &mut self.buffer) {
                Ok(received) if received.sender.portid != 0 => {}
                Ok(received) => {
                    assert!(!received.truncated);
                    let datagram = &self.buffer[..received.len];
                    decoders::agree(datagram);
                    let applied = self.table.apply(datagram, Origin::Notification, &mut self.changes);
                    assert!(!applied.malformed);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.table.caught_up(),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS), "{error}");
                    self.overruns += 1;
                    self.table.lose();
                }
            }
        }
    }

    /// Sends a request and takes its reply.
    fn ask(&mut self, seq: u32, request: &[u8]) -> Reply {
        self.helper.send(request);
        loop {
            self.helper.wait_readable();
            let mut buffer = vec![0; 64 * 1024];
            while let Some(datagram) = self.helper.receive(&mut buffer) {
                self.drain();
                decoders::agree(datagram);
                let applied = self.table.apply(datagram, Origin::Reply, &mut self.changes);
                assert!(!applied.malformed);
                if let Some(reply) = applied.reply {
                    assert_eq!(reply.seq, seq);
                    return reply;
                }
            }
        }
    }

    /// Takes what is queued; dumps as long as the table wants it.
    fn settle(&mut self) {
        self.drain();
        while self.table.wants_dump() {
            self.drain();
            let (seq, request) = self.table.begin_dump();
            let reply = self.ask(seq, &request);
            assert_eq!(reply.result, Ok(()));
            self.table.end_dump(&reply, &mut self.changes);
        }
    }

    fn mark(&mut self) -> Mark {
        self.settle();
        self.table.mark()
    }

    /// The attribute as an event of this mark gets it, with the requests that it takes.
    fn attr(&mut self, ifindex: IfIndex, name: &str, mark: Mark) -> LinkAttr {
        for _ in 0..3 {
            let statistics = match attr(&self.table, ifindex, name.as_bytes(), mark) {
                LinkAttr::NeedsRefresh(refresh) => refresh == Refresh::Statistics,
                LinkAttr::Unknown => false,
                answer => return answer,
            };
            self.drain();
            let (seq, request) = self.table.request(ifindex, statistics);
            if self.ask(seq, &request).result == Err(Errno(libc::ENODEV)) {
                self.table.note_absent(ifindex, seq);
            }
        }
        panic!("{name} of {ifindex:?} is not answered by asking the kernel");
    }

    /// The living link of this name.
    fn ifindex(&mut self, name: &str) -> IfIndex {
        self.settle();
        self.table.by_name(name.as_bytes()).unwrap_or_else(|| panic!("no link {name}")).ifindex()
    }

    /// Compares all links of the table with all of sysfs, and every mapped attribute with its file.
    ///
    /// Counters move and the link watch of the kernel works by itself, so what differs is compared again;
    /// it must agree within the limit.
    #[track_caller]
    fn compare(&mut self, when: &str) {
        wait_for_equal(when, || {
            let mark = self.mark();
            let mut names: Vec<_> = self.table.iter().map(|l| l.name.as_bstr().to_string()).collect();
            names.sort();
            let mut files: Vec<_> = std::fs::read_dir("/sys/class/net")
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            files.sort();
            if names != files {
                return Err(format!("links {names:?}, sysfs {files:?}"));
            }
            for name in names {
                self.compare_link(&name, mark)?;
            }
            Ok(())
        });
    }

    fn compare_link(&mut self, link: &str, mark: Mark) -> Result<(), String> {
        let folder = PathBuf::from("/sys/class/net").join(link);
        let ifindex = self.table.by_name(link.as_bytes()).unwrap().ifindex();
        let counters = mudev::links::decode::STATISTICS.map(|name| format!("statistics/{name}"));
        for name in MAPPED.iter().copied().chain(counters.iter().map(String::as_str)) {
            let path = folder.join(name);
            let file = read_attribute(&path);
            match (self.attr(ifindex, name, mark), file) {
                (LinkAttr::Missing, None) => {}
                (LinkAttr::Text(ours), Some(theirs)) if ours == theirs => {}
                // A helper reads the file: nothing to compare, but it has to be one of the two.
                (LinkAttr::Slow, _) if matches!(name, "speed" | "duplex") => {}
                (ours, theirs) => return Err(format!("{link} {name}: table {ours:?}, sysfs {theirs:?}")),
            }
            let mode = std::fs::metadata(&path).ok().map(|m| m.mode());
            match (exists(&self.table, ifindex, name.as_bytes()), mode) {
                (Exists::FromSysfs, _) | (Exists::No, None) => {}
                (Exists::Mode(ours), Some(theirs)) if ours == theirs => {}
                (ours, theirs) => {
                    return Err(format!("{link} TEST {name}: table {ours:?}, sysfs {theirs:?}"));
                }
            }
        }
        Ok(())
    }

    fn end(self) {
        self.helper.end();
    }
}

/// What a rule gets from the file: its content without the newline; None if it is no file or unreadable.
fn read_attribute(path: &std::path::Path) -> Option<String> {
    let kind = std::fs::symlink_metadata(path).ok()?.file_type();
    if kind.is_symlink() || kind.is_dir() {
        return None;
    }
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

/// As sysfs says.
fn if_index(name: &str) -> u32 {
    let path = PathBuf::from("/sys/class/net").join(name).join("ifindex");
    read_attribute(&path).and_then(|text| text.parse().ok()).unwrap()
}

#[track_caller]
fn wait_for_equal(when: &str, mut compare: impl FnMut() -> Result<(), String>) {
    let started = Instant::now();
    loop {
        let Err(difference) = compare() else { return };
        // The kernel's link watch takes up to a second.
        assert!(started.elapsed() < Duration::from_secs(5), "{when}: {difference}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Without IPv6 no link sends anything by itself.
fn quiet() {
    for which in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        let _ = std::fs::write(path, "1");
    }
}

/// One link of each kind this kernel has; kinds it lacks are named.
fn make_links() {
    quiet();
    for line in [
        "ip link add veth0 type veth peer name veth1",
        "ip link add veth2 type veth peer name port0",
        "ip link add br0 type bridge",
        "ip link set port0 master br0",
        "ip link add macvlan0 link veth0 type macvlan",
        "ip link add vxlan0 type vxlan id 42 remote 192.0.2.1 dstport 4789 dev veth0",
        "ip tuntap add tun0 mode tun",
        "ip tuntap add tap0 mode tap",
        "ip link add ifb9 type ifb",
        "ip link add dummy0 type dummy",
        "ip link add vlan0 link veth0 type vlan id 5",
    ] {
        if let Err(error) = support::try_run(line) {
            assert!(line.contains("dummy") || line.contains("vlan id 5"), "{line}: {error}");
            println!("not on this kernel: {line}: {error}");
        }
    }
}

#[test]
fn attributes_are_what_sysfs_says() {
    isolated("attributes_are_what_sysfs_says", || {
        let mut bench = Bench::new();
        bench.compare("lo alone");
        make_links();
        bench.compare("made, down");
        for name in
            ["lo", "veth0", "veth1", "veth2", "port0", "br0", "macvlan0", "vxlan0", "tun0", "tap0", "ifb9"]
        {
            run(&format!("ip link set {name} up"));
            bench.compare(&format!("{name} up"));
        }
        for line in [
            "ip link set veth1 down",
            "ip link set veth0 name lan0",
            "ip link set lan0 mtu 1400",
            "ip link set lan0 address 02:00:00:00:00:07",
            "ip link set lan0 alias an_alias",
            "ip link set lan0 group 77",
            "ip link set lan0 txqueuelen 123",
            "ip link set lan0 promisc on",
            "ip link set lan0 allmulticast on",
            "ip link set lan0 promisc off",
            "ip link set port0 nomaster",
            "ip link set tap0 master br0",
            "ip link set tap0 nomaster",
            "ip link set port0 master br0",
            "ip link set br0 down",
            "ip link set port0 mode dormant",
            "ip link set port0 mode default",
            "ip link set macvlan0 protodown on",
            "ip link set macvlan0 protodown off",
            // Now what the kernel tells nobody.
            "ip link set veth1 alias of_a_down_link",
            "ip link set veth1 group 78",
            "ip link set veth1 mode dormant",
            "ip link set veth1 promisc on",
            "ip link property add dev veth1 altname another_name",
        ] {
            run(line);
            bench.compare(line);
        }
        std::fs::write("/sys/class/net/lan0/netdev_group", "79").unwrap();
        bench.compare("a group written to the file");
        std::fs::write("/sys/class/net/lan0/ifalias", "written\n").unwrap();
        bench.compare("an alias written to the file");
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[0; 100], socket.local_addr().unwrap()).unwrap();
        let lo = PathBuf::from("/sys/class/net/lo/statistics/rx_packets");
        assert_ne!(read_attribute(&lo), Some("0".to_owned()));
        bench.compare("counters that moved");

        let veth1 = bench.ifindex("veth1");
        let mark = bench.mark();
        assert_eq!(bench.attr(veth1, "ifalias", mark), LinkAttr::Text("of_a_down_link".into()));
        let Lookup::Known(link) = bench.table.lookup(veth1) else { panic!() };
        assert_eq!(link.alt_names(), ["another_name"]);
        assert_eq!((link.kind.as_bstr(), link.port_kind.as_bstr()), ("veth".into(), "".into()));
        let port = bench.table.by_name(b"port0").unwrap();
        assert_eq!(port.port_kind.as_bstr(), "bridge");
        assert_eq!(port.master, bench.table.by_name(b"br0").unwrap().ifindex);
        bench.end();
    });
}

#[test]
fn a_link_that_moves_to_another_namespace_and_back() {
    isolated("a_link_that_moves_to_another_namespace_and_back", || {
        quiet();
        run("ip link add veth0 type veth peer name veth1");
        run("ip link set veth0 up");
        run("ip netns add other");
        let mut bench = Bench::new();
        let moved = bench.ifindex("veth1");
        run("ip link set veth1 netns other");
        bench.compare("one end in another namespace");
        assert!(matches!(bench.table.lookup(moved), Lookup::Gone(Some(_))));
        let mark = bench.mark();
        assert_eq!(bench.attr(moved, "mtu", mark), LinkAttr::Missing);
        bench.table.forget(moved);
        // Nobody knows it now; the kernel says that it is not here.
        assert_eq!(bench.attr(moved, "mtu", mark), LinkAttr::Missing);

        run("ip -n other link set veth1 mtu 1300 up");
        bench.compare("the other end came up there");
        bench.changes.clear();
        run(&format!("ip -n other link set veth1 netns {}", std::process::id()));
        bench.compare("back again");
        let back = bench.ifindex("veth1");
        assert!(bench.changes.contains(&Change { ifindex: back, news: News::New }));
        let mark = bench.mark();
        assert_eq!(bench.attr(back, "mtu", mark), LinkAttr::Text("1300".into()));
        bench.end();
    });
}

#[test]
fn a_new_pair_is_right_without_a_fresh_mark() {
    isolated("a_new_pair_is_right_without_a_fresh_mark", || {
        quiet();
        let mut bench = Bench::new();
        run("ip link add veth0 type veth peer name veth1");
        bench.drain();
        let mut requests = 0;
        for name in ["veth0", "veth1"] {
            let ifindex = bench.ifindex(name);
            for attribute in MAPPED.iter().filter(|a| !a.starts_with("statistics")) {
                // As for a real `add`, whose uevent is older than the row.
                let asks = matches!(
                    attr(&bench.table, ifindex, attribute.as_bytes(), Mark::ANY),
                    LinkAttr::NeedsRefresh(_)
                );
                requests += usize::from(asks);
                let file = read_attribute(&PathBuf::from("/sys/class/net").join(name).join(attribute));
                match (bench.attr(ifindex, attribute, Mark::ANY), file) {
                    (LinkAttr::Missing, None) => {}
                    (LinkAttr::Text(ours), Some(theirs)) if ours == theirs => {}
                    (ours, theirs) => panic!("{name} {attribute}: table {ours:?}, sysfs {theirs:?}"),
                }
            }
        }
        // The message of the second end tells of the first as well.
        assert_eq!(requests, 0);
        bench.end();
    });
}

#[test]
fn lost_messages_are_mended_by_a_dump() {
    isolated("lost_messages_are_mended_by_a_dump", || {
        quiet();
        run("ip link add gone0 type veth peer name gone1");
        let mut bench = Bench::with_buffer(1);
        bench.compare("before");
        let gone = bench.ifindex("gone0");
        // Too many for the buffer, unread; the deletion comes last, so it is lost for sure.
        for i in 0..20 {
            run(&format!("ip link add a{i} type veth peer name b{i}"));
        }
        run("ip link set a3 name renamed3");
        run("ip link set b0 mtu 1234");
        run("ip link del gone0");
        // Between the loss and the dump nothing stale is told.
        bench.drain();
        assert!(bench.table.is_stale());
        let b0 = IfIndex(if_index("b0"));
        assert_eq!(bench.attr(b0, "mtu", Mark::ANY), LinkAttr::Text("1234".into()));
        bench.changes.clear();
        bench.compare("after an overrun");
        assert!(bench.overruns > 0, "no overrun was forced");
        assert!(bench.changes.contains(&Change { ifindex: gone, news: News::Gone }));
        assert!(matches!(bench.table.lookup(gone), Lookup::Gone(Some(_))));
        assert!(!bench.table.is_stale());
        bench.end();
    });
}

#[test]
fn settings_names_and_alternative_names_are_set() {
    isolated("settings_names_and_alternative_names_are_set", || {
        quiet();
        run("ip link add veth0 type veth peer name veth1");
        let mut bench = Bench::new();
        let veth0 = bench.ifindex("veth0");
        let settings = request::Settings {
            alias: Some("set by request".into()),
            address: Some(vec![2, 0, 0, 0, 0, 9]),
            mtu: Some(1280),
            tx_queue_len: Some(55),
            gso_max_size: Some(32768),
            gso_max_segments: Some(100),
            ..Default::default()
        };
        let seq = bench.table.next_seq();
        assert_eq!(bench.ask(seq, &request::set_link(veth0, &settings, seq)).result, Ok(()));
        let seq = bench.table.next_seq();
        assert_eq!(bench.ask(seq, &request::set_name(veth0, b"lan0", seq)).result, Ok(()));
        let names = ["first_alternative".into(), "second".into()];
        let seq = bench.table.next_seq();
        assert_eq!(bench.ask(seq, &request::add_alt_names(veth0, &names, seq)).result, Ok(()));
        let seq = bench.table.next_seq();
        assert_eq!(bench.ask(seq, &request::remove_alt_names(veth0, &names[1..], seq)).result, Ok(()));

        bench.compare("after requests");
        let mark = bench.mark();
        for (name, value) in [
            ("ifalias", "set by request"),
            ("address", "02:00:00:00:00:09"),
            ("mtu", "1280"),
            ("tx_queue_len", "55"),
        ] {
            assert_eq!(bench.attr(veth0, name, mark), LinkAttr::Text(value.into()), "{name}");
        }
        let link = bench.table.by_name(b"lan0").unwrap();
        assert_eq!(link.alt_names(), ["first_alternative"]);
        let shown = run("ip -d link show lan0");
        assert!(shown.contains("gso_max_size 32768 gso_max_segs 100"), "{shown}");

        // Refusals tell why.
        let seq = bench.table.next_seq();
        assert_eq!(bench.ask(seq, &request::set_name(veth0, b"veth1", seq)).result, Err(Errno(libc::EEXIST)));
        let seq = bench.table.next_seq();
        let wrong = request::Settings { mtu: Some(10), ..Default::default() };
        let reply = bench.ask(seq, &request::set_link(veth0, &wrong, seq));
        assert_eq!(reply.result, Err(Errno(libc::EINVAL)));
        assert!(!reply.text.is_empty());
        bench.end();
    });
}

#[test]
fn requests_wait_for_a_busy_lock_but_their_sender_does_not() {
    isolated("requests_wait_for_a_busy_lock_but_their_sender_does_not", || {
        let mut bench = Bench::new();
        let held = match support::rtnl::hold() {
            Ok(held) => held,
            Err(error) => {
                println!("skipped, RTNL cannot be held here: {error}");
                bench.end();
                return;
            }
        };
        let lo = IfIndex(1);
        // Were one of these to wait for the lock, it would wait for ever: it is held to the end.
        let mut sent = Vec::new();
        for _ in 0..10 {
            let (seq, request) = bench.table.request(lo, false);
            bench.helper.send(&request);
            sent.push(seq);
        }
        // The table answers meanwhile.
        assert_eq!(attr(&bench.table, lo, b"mtu", Mark::ANY), LinkAttr::Text("65536".into()));
        let poll = mudev::sys::process::wait_readable(bench.helper.socket.as_fd(), Duration::from_millis(30));
        assert!(!poll.unwrap(), "a reply came while RTNL was held");
        drop(held);
        for seq in sent {
            let mut buffer = vec![0; 64 * 1024];
            bench.helper.wait_readable();
            let datagram = bench.helper.receive(&mut buffer).unwrap();
            let applied = bench.table.apply(datagram, Origin::Reply, &mut bench.changes);
            assert_eq!(applied.reply.map(|r| r.seq), Some(seq), "in order, each answered");
        }
        bench.end();
    });
}

#[test]
fn a_helper_whose_client_dies_ends() {
    isolated("a_helper_whose_client_dies_ends", || {
        let helper = Helper::start();
        // Not a message, then a request whose answer nobody takes.
        helper.send(&[1, 2, 3]);
        helper.send(&request::dump_links(1));
        helper.end();
    });
}

/// What mudev asks of the kernel, as another reads it: type, flags, link and each attribute.
#[test]
fn requests_say_what_they_mean() {
    use netlink_packet_route::link::LinkAttribute as Attribute;
    use netlink_packet_route::link::{LinkExtentMask, Prop};
    let link = IfIndex(7);
    let settings = request::Settings {
        alias: Some("uplink".into()),
        address: Some(vec![2, 0, 0, 0, 0, 1]),
        mtu: Some(1400),
        tx_queues: Some(2),
        rx_queues: Some(3),
        tx_queue_len: Some(500),
        gso_max_size: Some(60_000),
        gso_max_segments: Some(17),
    };
    let alt_names = [BString::from("first"), BString::from("second")];
    let list = || vec![Prop::AltIfName("first".into()), Prop::AltIfName("second".into())];
    let mask = || Attribute::ExtMask(vec![LinkExtentMask::SkipStats]);
    // (request, its type and flags, link, attributes)
    let cases = [
        (request::dump_links(9), 18, 0x301, 0, vec![mask()]),
        (request::get_link(link, 9), 18, 0x1, 7, vec![mask()]),
        (request::set_name(link, b"lan0", 9), 19, 0x5, 7, vec![Attribute::IfName("lan0".into())]),
        (request::add_alt_names(link, &alt_names, 9), 108, 0xe05, 7, vec![Attribute::PropList(list())]),
        (request::remove_alt_names(link, &alt_names, 9), 109, 0x5, 7, vec![Attribute::PropList(list())]),
        (
            request::set_link(link, &settings, 9),
            19,
            0x5,
            7,
            vec![
                Attribute::Address(vec![2, 0, 0, 0, 0, 1]),
                Attribute::IfAlias("uplink".into()),
                Attribute::Mtu(1400),
                Attribute::TxQueueLen(500),
                Attribute::NumTxQueues(2),
                Attribute::NumRxQueues(3),
                Attribute::GsoMaxSize(60_000),
                Attribute::GsoMaxSegs(17),
            ],
        ),
    ];
    for (request, kind, flags, index, attributes) in cases {
        let (header, message) = decoders::read_request(&request);
        assert_eq!((header.message_type, header.flags, header.sequence_number), (kind, flags, 9));
        assert_eq!((message.header.index, message.attributes), (index, attributes), "{header:?}");
    }
}
