//! An unmodified libudev (Debian's, through its C API) listens to mudevd and reads its database: that is what
//! every desktop, network manager and display server does.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/live.rs"]
mod live;

use live::{LIMIT, Live, in_cell, ip};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The functions of libudev that the tests call. All take opaque pointers.
struct Libudev {
    new: unsafe extern "C" fn() -> *mut c_void,
    monitor_new: unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void,
    filter_subsystem: unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> c_int,
    filter_tag: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    enable: unsafe extern "C" fn(*mut c_void) -> c_int,
    fd: unsafe extern "C" fn(*mut c_void) -> c_int,
    receive: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    from_syspath: unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void,
    get_string: std::collections::HashMap<&'static str, unsafe extern "C" fn(*mut c_void) -> *const c_char>,
    property: unsafe extern "C" fn(*mut c_void, *const c_char) -> *const c_char,
    initialized: unsafe extern "C" fn(*mut c_void) -> c_int,
    has_tag: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    has_current_tag: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    usec: unsafe extern "C" fn(*mut c_void) -> u64,
    links_entry: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    next_entry: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    entry_name: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    enumerate_new: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    enumerate_tag: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    enumerate_initialized: unsafe extern "C" fn(*mut c_void) -> c_int,
    enumerate_scan: unsafe extern "C" fn(*mut c_void) -> c_int,
    enumerate_list: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
}

fn c(text: &str) -> CString {
    CString::new(text).expect("no NUL")
}

fn library() -> Option<PathBuf> {
    let peer = cell::peer_root().map(|root| root.join("usr/lib/x86_64-linux-gnu/libudev.so.1"));
    let system =
        ["/usr/lib/x86_64-linux-gnu/libudev.so.1", "/usr/lib/libudev.so.1", "/usr/lib64/libudev.so.1"];
    peer.into_iter().chain(system.map(PathBuf::from)).find(|p| p.exists())
}

impl Libudev {
    // The types stand in the struct.
    #[allow(clippy::missing_transmute_annotations)]
    fn load(path: &Path) -> Libudev {
        let path = c(&path.to_string_lossy());
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        macro_rules! symbol {
            ($name:literal) => {{
                let name = c($name);
                let found = unsafe { libc::dlsym(library, name.as_ptr()) };
                assert!(!found.is_null(), concat!($name, " is not in libudev"));
                // SAFETY: the type stands in libudev.h under this name.
                unsafe { std::mem::transmute(found) }
            }};
        }
        let mut get_string = std::collections::HashMap::new();
        get_string.insert("action", symbol!("udev_device_get_action"));
        get_string.insert("sysname", symbol!("udev_device_get_sysname"));
        get_string.insert("subsystem", symbol!("udev_device_get_subsystem"));
        get_string.insert("devnode", symbol!("udev_device_get_devnode"));
        get_string.insert("devpath", symbol!("udev_device_get_devpath"));
        Libudev {
            new: symbol!("udev_new"),
            monitor_new: symbol!("udev_monitor_new_from_netlink"),
            filter_subsystem: symbol!("udev_monitor_filter_add_match_subsystem_devtype"),
            filter_tag: symbol!("udev_monitor_filter_add_match_tag"),
            enable: symbol!("udev_monitor_enable_receiving"),
            fd: symbol!("udev_monitor_get_fd"),
            receive: symbol!("udev_monitor_receive_device"),
            from_syspath: symbol!("udev_device_new_from_syspath"),
            get_string,
            property: symbol!("udev_device_get_property_value"),
            initialized: symbol!("udev_device_get_is_initialized"),
            has_tag: symbol!("udev_device_has_tag"),
            has_current_tag: symbol!("udev_device_has_current_tag"),
            usec: symbol!("udev_device_get_usec_since_initialized"),
            links_entry: symbol!("udev_device_get_devlinks_list_entry"),
            next_entry: symbol!("udev_list_entry_get_next"),
            entry_name: symbol!("udev_list_entry_get_name"),
            enumerate_new: symbol!("udev_enumerate_new"),
            enumerate_tag: symbol!("udev_enumerate_add_match_tag"),
            enumerate_initialized: symbol!("udev_enumerate_add_match_is_initialized"),
            enumerate_scan: symbol!("udev_enumerate_scan_devices"),
            enumerate_list: symbol!("udev_enumerate_get_list_entry"),
        }
    }

    fn text(pointer: *const c_char) -> String {
        if pointer.is_null() {
            return String::new();
        }
        // SAFETY: libudev hands out strings that live as long as the device.
        unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
    }

    fn get(&self, device: *mut c_void, what: &str) -> String {
        Libudev::text(unsafe { self.get_string[what](device) })
    }

    fn property(&self, device: *mut c_void, key: &str) -> String {
        let key = c(key);
        Libudev::text(unsafe { (self.property)(device, key.as_ptr()) })
    }

    fn tagged(&self, device: *mut c_void, tag: &str) -> bool {
        let tag = c(tag);
        unsafe { (self.has_tag)(device, tag.as_ptr()) > 0 }
    }

    fn list(&self, mut entry: *mut c_void) -> Vec<String> {
        let mut names = Vec::new();
        while !entry.is_null() {
            names.push(Libudev::text(unsafe { (self.entry_name)(entry) }));
            entry = unsafe { (self.next_entry)(entry) };
        }
        names
    }

    /// A monitor of the group that udev announces on.
    fn monitor(&self, subsystem: Option<(&str, Option<&str>)>, tag: Option<&str>) -> *mut c_void {
        unsafe {
            let group = c("udev");
            let monitor = (self.monitor_new)((self.new)(), group.as_ptr());
            assert!(!monitor.is_null());
            if let Some((subsystem, devtype)) = subsystem {
                let subsystem = c(subsystem);
                let devtype = devtype.map(c);
                let devtype = devtype.as_ref().map_or(std::ptr::null(), |d| d.as_ptr());
                assert!((self.filter_subsystem)(monitor, subsystem.as_ptr(), devtype) >= 0);
            }
            if let Some(tag) = tag {
                let tag = c(tag);
                assert!((self.filter_tag)(monitor, tag.as_ptr()) >= 0);
            }
            assert!((self.enable)(monitor) >= 0);
            monitor
        }
    }

    /// Receives until `wanted` accepts a device; the sysnames of what came before go to `passed`.
    fn receive(&self, monitor: *mut c_void, passed: &mut Vec<String>, wanted: &str) -> *mut c_void {
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            let device = unsafe { (self.receive)(monitor) };
            if device.is_null() {
                cell::wait_readable(&[unsafe { (self.fd)(monitor) }], std::time::Duration::from_millis(100));
                continue;
            }
            let name = format!("{} {}", self.get(device, "action"), self.get(device, "sysname"));
            if name == wanted {
                return device;
            }
            passed.push(name);
        }
        panic!("libudev received no {wanted}; but {passed:?}\n{}", live::log());
    }
}

/// The library, or None with a reason where there is none to test with.
fn libudev() -> Option<Libudev> {
    let path = library();
    if path.is_none() {
        println!("skipped: no libudev.so.1 on this machine (make test fetches it on Debian)");
    }
    path.map(|p| Libudev::load(&p))
}

#[test]
fn a_monitor_without_filter_receives_properties_tags_and_state() {
    let Some(udev) = libudev() else { return };
    in_cell(|| {
        let live = Live::start("SUBSYSTEM==\"net\", ENV{ID_TEST}=\"a b\", TAG+=\"systemd\", TAG+=\"seat\"\n");
        let monitor = udev.monitor(None, None);
        ip("link add u0 type veth peer name u1");
        let device = udev.receive(monitor, &mut Vec::new(), "add u0");
        assert_eq!(udev.get(device, "subsystem"), "net");
        assert_eq!(udev.get(device, "devpath"), "/devices/virtual/net/u0");
        assert_eq!(udev.property(device, "ID_TEST"), "a b");
        assert_eq!(udev.property(device, "INTERFACE"), "u0");
        assert!(
            udev.tagged(device, "systemd") && udev.tagged(device, "seat") && !udev.tagged(device, "other")
        );
        let tag = c("systemd");
        assert!(unsafe { (udev.has_current_tag)(device, tag.as_ptr()) } > 0);
        assert!(unsafe { (udev.initialized)(device) } > 0);
        assert!(unsafe { (udev.usec)(device) } > 0);
        live.stop();
    });
}

#[test]
fn filters_by_subsystem_and_by_tag_let_through_what_they_should() {
    let Some(udev) = libudev() else { return };
    in_cell(|| {
        let rules = "SUBSYSTEM==\"net\", KERNEL==\"f1\", TAG+=\"wanted\"\n";
        let live = Live::start(rules);
        let by_subsystem = udev.monitor(Some(("net", None)), None);
        let by_tag = udev.monitor(None, Some("wanted"));
        let by_devtype = udev.monitor(Some(("net", Some("bridge"))), None);
        ip("link add f1 type veth peer name f2");
        ip("link add f3 type bridge");
        let mut passed = Vec::new();
        udev.receive(by_subsystem, &mut passed, "add f3");
        assert!(passed.contains(&"add f1".to_owned()) && passed.contains(&"add f2".to_owned()), "{passed:?}");
        assert!(
            !passed.iter().any(|p| p.contains("rx-") || p.contains("tx-")),
            "queues are no net: {passed:?}"
        );
        passed.clear();
        udev.receive(by_tag, &mut passed, "add f1");
        assert!(passed.is_empty(), "{passed:?}");
        udev.receive(by_devtype, &mut passed, "add f3");
        assert!(passed.is_empty(), "{passed:?}");
        live.stop();
    });
}

#[test]
fn the_database_answers_for_devices_and_enumerations() {
    let Some(udev) = libudev() else { return };
    in_cell(|| {
        let rules = "SUBSYSTEM==\"net\", ENV{STORED}=\"1\", TAG+=\"listed\"\n\
            KERNEL==\"null\", SUBSYSTEM==\"mem\", SYMLINK+=\"zilch deep/er\", TAG+=\"listed\"\n";
        let mut live = Live::start(rules);
        ip("link add g0 type veth peer name g1");
        live.announced("add", "/devices/virtual/net/g0");
        let uuid = live::fresh_uuid();
        live::write_uevent("/sys/devices/virtual/mem/null", &format!("change {uuid}"));
        live.announced_that("change of null", |m| m.get("SYNTH_UUID") == uuid);
        live.settled();
        unsafe {
            let context = (udev.new)();
            let path = c("/sys/devices/virtual/net/g0");
            let device = (udev.from_syspath)(context, path.as_ptr());
            assert!((udev.initialized)(device) > 0);
            assert_eq!(udev.property(device, "STORED"), "1");
            let path = c("/sys/devices/virtual/mem/null");
            let device = (udev.from_syspath)(context, path.as_ptr());
            assert_eq!(udev.get(device, "devnode"), "/dev/null");
            let mut links = udev.list((udev.links_entry)(device));
            links.sort();
            assert_eq!(links, ["/dev/deep/er", "/dev/zilch"]);
            let list = (udev.enumerate_new)(context);
            let tag = c("listed");
            assert!((udev.enumerate_tag)(list, tag.as_ptr()) >= 0);
            assert!((udev.enumerate_initialized)(list) >= 0);
            assert!((udev.enumerate_scan)(list) >= 0);
            let mut found = udev.list((udev.enumerate_list)(list));
            found.retain(|p| !p.ends_with("/lo"));
            found.sort();
            let wanted = [
                "/sys/devices/virtual/mem/null",
                "/sys/devices/virtual/net/g0",
                "/sys/devices/virtual/net/g1",
            ];
            assert_eq!(found, wanted);
        }
        live.stop();
    });
}
