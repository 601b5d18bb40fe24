//! The builtins on the real kernel, in private namespaces: what net_setup_link asks for is accepted and is
//! what the link then has, and links of the table are named and matched as they are.

mod support;

use bstr::BString;
use mudev::builtin::{Builtins, Call};
use mudev::links::{Link, Lookup, Origin, Reply, Table};
use mudev::model::need::{Fact, Need};
use mudev::model::{Action, Errno, Event, IfIndex, Properties, SeqNum, Uevent};
use mudev::rules::ask::{BuiltinName, BuiltinResult};
use mudev::sys::{ioctl, netlink};
use mudev::world::Roots;
use mudev::world::sysfs::Sysfs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use support::{isolated, run};

/// The machine id of the vectors of builtins.md section 7.
const MACHINE_ID: &str = "0123456789abcdef0123456789abcdef\n";

/// Builtins with .link files of our own, and sockets to answer what they need. Unlike the daemon it may
/// wait for the kernel.
struct Bench {
    roots: Roots,
    route: OwnedFd,
    table: Table,
}

impl Bench {
    /// Files are (name, content), below a folder that stands for /etc/systemd/network.
    fn new(files: &[(&str, &str)]) -> Bench {
        let etc = PathBuf::from("/run/etc");
        std::fs::create_dir_all(etc.join("systemd/network")).unwrap();
        std::fs::write(etc.join("machine-id"), MACHINE_ID).unwrap();
        for (name, content) in files {
            std::fs::write(etc.join("systemd/network").join(name), content).unwrap();
        }
        let nowhere = PathBuf::from("/run/nowhere");
        let roots = Roots { etc, lib: nowhere.clone(), local_lib: nowhere, ..Roots::default() };
        Bench { roots, route: netlink::open_route(true).unwrap(), table: Table::new() }
    }

    /// Sends a request and waits for the end of its reply.
    fn ask(&mut self, request: &[u8]) -> Reply {
        netlink::send(self.route.as_fd(), request).unwrap();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let received = netlink::receive(self.route.as_fd(), &mut buffer).unwrap();
            let applied = self.table.apply(&buffer[..received.len], Origin::Reply, &mut Vec::new());
            assert!(!applied.malformed && !received.truncated);
            if let Some(reply) = applied.reply {
                return reply;
            }
        }
    }

    fn fetch(&mut self, ifindex: IfIndex) {
        let (_, request) = self.table.request(ifindex, false);
        assert_eq!(self.ask(&request).result, Ok(()));
    }

    fn event(&self, action: Action, name: &str, properties: &[(&str, &str)]) -> Event {
        let ifindex = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).expect(name);
        let mut all: Properties = properties.iter().copied().collect();
        all.set("INTERFACE", name);
        all.set("IFINDEX", ifindex.trim());
        Event::new(Uevent {
            action,
            seqnum: SeqNum(1),
            devpath: format!("/devices/virtual/net/{name}").into(),
            subsystem: "net".into(),
            properties: all,
        })
    }

    /// Runs a builtin to its end, doing what it asks for; also what the kernel said to its request.
    fn call(&mut self, builtin: BuiltinName, event: &Event) -> (BuiltinResult, Vec<Result<(), Errno>>) {
        let (builtins, log) = Builtins::load(&self.roots, b"", None);
        assert_eq!(log, [""; 0]);
        let (sysfs, argv) = (Sysfs::new(&self.roots), [BString::from(builtin.as_str())]);
        let (mut facts, mut answers) = (Vec::new(), Vec::new());
        loop {
            let call = Call { builtin, argv: &argv, event, facts: &facts, dry: false };
            match builtins.run(&call, &sysfs, &self.table) {
                Ok(result) => return (result, answers),
                Err(Need::Link(ifindex) | Need::FreshLink { ifindex, .. }) => {
                    self.fetch(ifindex);
                    facts.push(Fact::Link);
                }
                Err(Need::Rtnl(request)) => {
                    let result = self.ask(&request).result;
                    answers.push(result);
                    facts.push(Fact::Rtnl(result));
                }
                Err(Need::Driver { ifname, .. }) => {
                    let socket = ioctl::interface_socket().unwrap();
                    let driver = ioctl::driver_of(socket.as_fd(), &ifname);
                    facts.push(Fact::Driver(driver.map_err(|e| Errno::of(&e))));
                }
                Err(need) => panic!("{need:?}"),
            }
        }
    }

    /// Runs net_setup_link, whose one request the kernel must accept; the link afterwards.
    fn set_up(&mut self, action: Action, name: &str, properties: &[(&str, &str)]) -> (BuiltinResult, Link) {
        let event = self.event(action, name, properties);
        let (result, answers) = self.call(BuiltinName::NetSetupLink, &event);
        assert!(answers.len() <= 1 && answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(result.messages, [""; 0]);
        (result, self.link(&event))
    }

    /// The row, asked for anew.
    fn link(&mut self, event: &Event) -> Link {
        let ifindex = event.device.ifindex.unwrap();
        self.fetch(ifindex);
        match self.table.lookup(ifindex) {
            Lookup::Known(link) => link.clone(),
            other => panic!("{other:?}"),
        }
    }
}

fn hex(address: &[u8]) -> String {
    address.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
}

fn property(result: &BuiltinResult, name: &str) -> Option<String> {
    let found = result.properties.iter().rev().find(|(n, _)| n == name);
    found.and_then(|(_, value)| value.as_ref()).map(ToString::to_string)
}

const ALL: &str = "[Match]\nOriginalName=*\n[Link]\n";

#[test]
fn persistent_addresses_are_those_of_the_spec() {
    isolated("persistent_addresses_are_those_of_the_spec", || {
        let mut bench = Bench::new(&[("a.link", &format!("{ALL}MACAddressPolicy=persistent\n"))]);
        run("ip link add br0 type bridge");
        run("ip link add va type veth peer name vb");
        run("ip tuntap add t0 mode tap");
        run("ip link add m0 link va type macvlan");
        run("ip link add given address 02:00:00:00:00:08 type bridge");
        for (name, address) in [
            ("br0", "2e:51:d4:17:b5:1e"),
            ("va", "b2:06:8c:6c:c5:15"),
            ("vb", "4e:59:dd:b1:02:8c"),
            ("t0", "3a:5b:17:ea:ef:c7"),
            ("m0", "82:4a:c5:12:a1:e3"),
            ("given", "02:00:00:00:00:08"),
        ] {
            let (result, link) = bench.set_up(Action::Add, name, &[]);
            assert_eq!(hex(&link.address), address, "{name}");
            assert_eq!(
                property(&result, "ID_NET_LINK_FILE").as_deref(),
                Some("/run/etc/systemd/network/a.link")
            );
            assert_eq!(property(&result, "ID_NET_NAME").as_deref(), Some(name));
        }
    });
}

#[test]
fn all_settings_go_in_one_request_and_a_second_one_is_not_needed() {
    isolated("all_settings_go_in_one_request_and_a_second_one_is_not_needed", || {
        let section = "Alias=a \"b\"\nMACAddress=02:00:00:00:00:09\nMTUBytes=1400\nTransmitQueueLength=77\n";
        let mut bench = Bench::new(&[("a.link", &format!("{ALL}{section}"))]);
        run("ip link add va type veth peer name vb");
        let (_, link) = bench.set_up(Action::Add, "va", &[]);
        assert_eq!(link.alias(), b"a \"b\"");
        assert_eq!(hex(&link.address), "02:00:00:00:00:09");
        assert_eq!((link.mtu, link.tx_queue_len), (1400, 77));
        let event = bench.event(Action::Move, "va", &[]);
        let (_, answers) = bench.call(BuiltinName::NetSetupLink, &event);
        assert_eq!(answers, []);
    });
}

#[test]
fn a_random_address_replaces_no_random_one() {
    isolated("a_random_address_replaces_no_random_one", || {
        let mut bench = Bench::new(&[("a.link", &format!("{ALL}MACAddressPolicy=random\n"))]);
        run("ip link add br0 type bridge");
        let event = bench.event(Action::Add, "br0", &[]);
        let before = bench.link(&event).address;
        assert_eq!(bench.set_up(Action::Add, "br0", &[]).1.address, before);
    });
}

#[test]
fn what_the_kernel_refuses_is_a_warning_and_the_names_are_there() {
    isolated("what_the_kernel_refuses_is_a_warning_and_the_names_are_there", || {
        let section = "Alias=lost\nMTUBytes=100000\nName=zz0\nAlternativeName=alt0\n";
        let mut bench = Bench::new(&[("a.link", &format!("{ALL}{section}"))]);
        run("ip link add va type veth peer name vb");
        let event = bench.event(Action::Add, "va", &[]);
        let (result, answers) = bench.call(BuiltinName::NetSetupLink, &event);
        assert_eq!(answers, [Err(Errno(libc::EINVAL))]);
        assert_eq!(result.messages.len(), 1);
        assert_eq!(property(&result, "ID_NET_NAME").as_deref(), Some("zz0"));
        assert_eq!(result.alt_names, ["alt0"]);
        assert_eq!(bench.link(&event).mtu, 1500);
    });
}

#[test]
fn files_match_by_what_the_kernel_says_of_a_link() {
    isolated("files_match_by_what_the_kernel_says_of_a_link", || {
        let mut bench = Bench::new(&[
            ("10.link", "[Match]\nKind=bridge\n[Link]\nName=bridge\n"),
            ("20.link", "[Match]\nMACAddress=02:00:00:00:00:07\n[Link]\nName=address\n"),
            ("30.link", "[Match]\nDriver=veth\n[Link]\nName=driver\n"),
            ("40.link", "[Match]\nType=ether\nKind=!veth\n[Link]\nName=other\n"),
            ("50.link", "[Match]\nType=loopback\n[Link]\nName=never\n"),
        ]);
        run("ip link add br0 type bridge");
        run("ip link add va address 02:00:00:00:00:07 type veth peer name vb");
        run("ip tuntap add t0 mode tap");
        for (name, driver, wanted) in [
            ("br0", "", Some("bridge")),
            ("va", "", Some("address")),
            ("vb", "veth", Some("driver")),
            ("vb", "other", None),
            ("vb", "", Some("driver")),
            ("t0", "", Some("other")),
            ("lo", "", None),
        ] {
            let properties: &[(&str, &str)] =
                if driver.is_empty() { &[] } else { &[("ID_NET_DRIVER", driver)] };
            let (result, _) = bench.set_up(Action::Add, name, properties);
            assert_eq!(property(&result, "ID_NET_NAME").as_deref(), wanted, "{name}");
        }
    });
}

#[test]
fn links_that_were_named_keep_their_names() {
    isolated("links_that_were_named_keep_their_names", || {
        let mut bench = Bench::new(&[("a.link", &format!("{ALL}NamePolicy=keep path\nName=zz0\n"))]);
        let path = [("ID_NET_NAME_PATH", "pat0")];
        run("ip link add named type bridge");
        run("ip link add type bridge");
        assert_eq!(
            property(&bench.set_up(Action::Add, "named", &path).0, "ID_NET_NAME").as_deref(),
            Some("named")
        );
        assert_eq!(
            property(&bench.set_up(Action::Add, "bridge0", &path).0, "ID_NET_NAME").as_deref(),
            Some("pat0")
        );
        assert_eq!(
            property(&bench.set_up(Action::Add, "bridge0", &[]).0, "ID_NET_NAME").as_deref(),
            Some("zz0")
        );
        // The kernel does not say how lo came to its name, but lo is for no file anyhow.
        assert_eq!(property(&bench.set_up(Action::Add, "lo", &path).0, "ID_NET_NAME"), None);
    });
}

#[test]
fn drivers_are_what_ethtool_says() {
    isolated("drivers_are_what_ethtool_says", || {
        let mut bench = Bench::new(&[]);
        run("ip link add br0 type bridge");
        run("ip link add va type veth peer name vb");
        run("ip tuntap add t0 mode tap");
        for (name, driver) in [("br0", "bridge"), ("va", "veth"), ("t0", "tun")] {
            let event = bench.event(Action::Add, name, &[]);
            let (result, _) = bench.call(BuiltinName::NetDriver, &event);
            assert!(result.success);
            assert_eq!(property(&result, "ID_NET_DRIVER").as_deref(), Some(driver));
        }
    });
}

#[test]
fn virtual_links_have_no_names_but_may_have_an_address() {
    isolated("virtual_links_have_no_names_but_may_have_an_address", || {
        let mut bench = Bench::new(&[]);
        run("ip link add va type veth peer name vb");
        run("ip link add br0 type bridge");
        for (name, scheme) in [("va", None), ("vb", None), ("br0", Some("v261")), ("lo", None)] {
            let event = bench.event(Action::Add, name, &[]);
            let (result, _) = bench.call(BuiltinName::NetId, &event);
            assert!(result.success, "{name}");
            assert_eq!(property(&result, "ID_NET_NAMING_SCHEME").as_deref(), scheme, "{name}");
            assert_eq!(result.properties.len(), usize::from(scheme.is_some()), "{name} {result:?}");
            assert!(!bench.call(BuiltinName::PathId, &event).0.success, "{name}");
        }
    });
}
