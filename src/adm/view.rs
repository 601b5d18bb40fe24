//! Devices as the tool finds them, by what the user wrote (interop.md 5.1).

use super::Stop;
use crate::model::record::Record;
use crate::model::{DevNum, Device, DeviceId};
use crate::world::database::Records;
use crate::world::described::Described;
use crate::world::sysfs::is_syspath;
use crate::world::{Roots, Sysfs};
use bstr::{BString, ByteSlice};
use std::os::unix::ffi::OsStrExt;

/// Everything that devices are looked up in.
#[derive(Debug)]
pub(super) struct Devices<'a> {
    pub roots: &'a Roots,
    pub sysfs: Sysfs,
    /// None while no daemon has ever run.
    records: Option<Records>,
}

/// Where a path that is not absolute begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    WorkingFolder,
    Dev,
    Sys,
}

impl<'a> Devices<'a> {
    /// The devices below these roots.
    pub(super) fn new(roots: &'a Roots) -> Devices<'a> {
        Devices { roots, sysfs: Sysfs::new(roots), records: Records::open(&roots.run).ok() }
    }

    /// The devpath of a word of the command line: a device id, the name of a unit, a path that leads to
    /// `/dev` or `/sys`.
    pub(super) fn find(&self, text: &[u8]) -> Result<BString, Stop> {
        self.find_from(Base::WorkingFolder, text)
    }

    /// The same; a path may also lack the `/sys` in front.
    pub(super) fn find_below_sys(&self, text: &[u8]) -> Result<BString, Stop> {
        self.find_from(Base::Sys, text)
    }

    /// The same; a path may also lack the `/dev/` in front.
    pub(super) fn find_below_dev(&self, text: &[u8]) -> Result<BString, Stop> {
        self.find_from(Base::Dev, text)
    }

    /// The device of a node or symlink by its name, with or without `/dev/`; nothing else.
    pub(super) fn find_node(&self, name: &[u8]) -> Result<BString, Stop> {
        let path = prefixed(b"/dev/", name);
        self.find_path(&path).ok_or_else(|| unknown(name, &[path]))
    }

    /// The device at a path with or without `/sys/` in front; nothing else.
    pub(super) fn find_syspath(&self, path: &[u8]) -> Result<BString, Stop> {
        let path = prefixed(b"/sys/", path);
        self.at_syspath(&path).ok_or_else(|| unknown(&path, &[]))
    }

    fn find_from(&self, base: Base, text: &[u8]) -> Result<BString, Stop> {
        let id = DeviceId::parse(text);
        if let Some(devpath) = id.as_ref().and_then(|id| self.find_id(id)) {
            return Ok(devpath);
        }
        let working_folder = std::env::current_dir().unwrap_or_default();
        let places = places(base, text, working_folder.as_os_str().as_bytes());
        if let Some(devpath) = places.iter().find_map(|place| self.find_path(place)) {
            return Ok(devpath);
        }
        let is_some_form = id.is_some() || text.contains(&b'/') || text.ends_with(b".device");
        if is_some_form { Err(unknown(text, &places)) } else { Err(bad(text, &places)) }
    }

    /// A path that leads to a device in `/dev` or `/sys`; others are none.
    fn find_path(&self, path: &[u8]) -> Option<BString> {
        if is_syspath(path) {
            return self.at_syspath(path);
        }
        if let Some(id) = id_of_numbered_node(path) {
            return self.sysfs.device_of_id(&id);
        }
        let place = self.roots.locate(path);
        if path.starts_with(b"/dev/")
            && let Some(devpath) = self.sysfs.device_of_node(&place)
        {
            return Some(devpath);
        }
        // Perhaps a symlink from elsewhere, or the real place of a movable root.
        let real = std::fs::canonicalize(place).ok()?;
        if self.sysfs.contains(&real) {
            return self.at_syspath(real.as_os_str().as_bytes());
        }
        let dev = std::fs::canonicalize(&self.roots.dev).ok()?;
        real.starts_with(dev).then(|| self.sysfs.device_of_node(&real)).flatten()
    }

    fn at_syspath(&self, path: &[u8]) -> Option<BString> {
        Some(self.sysfs.device(path)?.devpath)
    }

    /// Also a device that is called otherwise in `/run/udev`, since it has a number: `+net:lo`.
    fn find_id(&self, id: &DeviceId) -> Option<BString> {
        match id {
            DeviceId::Named { subsystem, sysname } => self.sysfs.device_of(subsystem, sysname),
            _ => self.sysfs.device_of_id(id),
        }
    }

    /// Whether a device has a record: it is initialized.
    pub(super) fn is_initialized(&self, devpath: &[u8]) -> bool {
        // The folder may be younger than we are.
        let records = Records::open(&self.roots.run).ok();
        Described::new(&self.sysfs, records.as_ref(), devpath).record.is_some()
    }

    /// The record of a device.
    pub(super) fn record(&self, device: &Device) -> Option<Record> {
        self.records.as_ref()?.read(&device.id()?).ok()?
    }

    /// Describes a device.
    pub(super) fn describe(&self, devpath: &[u8]) -> Described {
        Described::new(&self.sysfs, self.records.as_ref(), devpath)
    }
}

/// The paths that a word may stand for, in the order in which they are tried.
fn places(base: Base, text: &[u8], working_folder: &[u8]) -> Vec<BString> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut places = Vec::new();
    if !text.contains(&b'/') {
        places.extend(unit_path(text));
    }
    let is_below_sys = |path: &[u8]| is_syspath(path) || path.starts_with(b"/dev/");
    match base {
        Base::Sys if !is_below_sys(text) => places.push(joined(b"/sys", text)),
        Base::Dev if !text.starts_with(b"/") => places.push(joined(b"/dev", text)),
        Base::WorkingFolder if !text.starts_with(b"/") => places.push(joined(working_folder, text)),
        _ => {}
    }
    if text.starts_with(b"/") {
        // More than one slash at the beginning is one.
        places.push(joined(b"", text));
    }
    places
}

/// Two parts of a path with one slash between them.
fn joined(folder: &[u8], path: &[u8]) -> BString {
    let (folder, path) = (folder.trim_end_with(|c| c == '/'), path.trim_start_with(|c| c == '/'));
    [folder, b"/", path].concat().into()
}

/// The path, with `prefix` in front unless it is there.
fn prefixed(prefix: &[u8], path: &[u8]) -> BString {
    if path.starts_with(prefix) { path.into() } else { joined(prefix, path) }
}

/// The device that `/dev/block/8:0` or `/dev/char/1:3` means, whether there is such a symlink or not.
fn id_of_numbered_node(path: &[u8]) -> Option<DeviceId> {
    if let Some(number) = path.strip_prefix(b"/dev/block/") {
        return DevNum::parse(number).map(DeviceId::Block);
    }
    DevNum::parse(path.strip_prefix(b"/dev/char/")?).map(DeviceId::Char)
}

fn unknown(text: &[u8], tried: &[BString]) -> Stop {
    Stop::Failed(format!("Unknown device \"{}\": No such device{}", text.as_bstr(), tried_text(text, tried)))
}

fn bad(text: &[u8], tried: &[BString]) -> Stop {
    Stop::Failed(format!(
        "Bad argument \"{}\", expected an absolute path in /dev/ or /sys/, a device id or a unit name{}",
        text.as_bstr(),
        tried_text(text, tried)
    ))
}

/// The path at which the device was looked for, if the user wrote another one.
fn tried_text(text: &[u8], tried: &[BString]) -> String {
    match tried {
        [] => String::new(),
        [only] if only == text => String::new(),
        _ => format!(" (tried {})", bstr::join(", ", tried).as_bstr()),
    }
}

/// The path that a unit name stands for (systemd-escape(1)): `-` is `/`, `\xNN` is a byte. None for a name
/// that no path is escaped to: a part of it is empty, `.` or `..`.
fn unit_path(unit: &[u8]) -> Option<BString> {
    let mut path = BString::default();
    for part in unit.strip_suffix(b".device")?.split(|&byte| byte == b'-') {
        let part = unescape(part);
        if matches!(part.as_slice(), b"" | b"." | b"..") {
            return None;
        }
        path.extend_from_slice(b"/");
        path.extend_from_slice(&part);
    }
    Some(path)
}

fn unescape(text: &[u8]) -> Vec<u8> {
    let mut rest = text;
    let mut plain = Vec::with_capacity(text.len());
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.strip_prefix(b"x").and_then(|t| t.get(..2)).and_then(|digits| digits.to_str().ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(decoded) if byte == b'\\' => {
                plain.push(decoded);
                rest = &tail[3..];
            }
            _ => {
                plain.push(byte);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_units_are_paths() {
        for (unit, path) in [
            ("dev-sda.device", Some("/dev/sda")),
            ("dev-disk-by\\x2did-x\\x2e.device", Some("/dev/disk/by-id/x.")),
            ("sys-a\\xZZ-b.device", Some("/sys/a\\xZZ/b")),
            ("a\\x2.device", Some("/a\\x2")),
            ("a\\.device", Some("/a\\")),
            ("a.device", Some("/a")),
            (".device", None),
            ("-.device", None),
            ("-dev-null.device", None),
            ("dev--null.device", None),
            ("dev-null-.device", None),
            ("dev-x-..-null.device", None),
            ("dev-null.mount", None),
        ] {
            assert_eq!(unit_path(unit.as_bytes()), path.map(BString::from), "{unit}");
        }
    }

    #[test]
    fn a_word_stands_for_some_paths_and_no_others() {
        for (base, text, expected) in [
            (Base::WorkingFolder, "null", &["/cwd/null"][..]),
            (Base::WorkingFolder, "./net/lo", &["/cwd/./net/lo"]),
            (Base::WorkingFolder, "/dev/null", &["/dev/null"]),
            (Base::WorkingFolder, "//dev/null", &["/dev/null"]),
            (Base::WorkingFolder, "dev-null.device", &["/dev/null", "/cwd/dev-null.device"]),
            (Base::WorkingFolder, "x/dev-null.device", &["/cwd/x/dev-null.device"]),
            (Base::Sys, "class/net/lo", &["/sys/class/net/lo"]),
            (Base::Sys, "/class/net/lo", &["/sys/class/net/lo", "/class/net/lo"]),
            (Base::Sys, "/sys/class/net/lo", &["/sys/class/net/lo"]),
            (Base::Sys, "/dev/null", &["/dev/null"]),
            (Base::Sys, "dev-null.device", &["/dev/null", "/sys/dev-null.device"]),
            (Base::Dev, "null", &["/dev/null"]),
            (Base::Dev, "block/7:0", &["/dev/block/7:0"]),
            (Base::Dev, "/run/x", &["/run/x"]),
            (Base::Dev, "", &[]),
        ] {
            assert_eq!(places(base, text.as_bytes(), b"/cwd"), expected, "{base:?} {text}");
        }
        assert_eq!(places(Base::WorkingFolder, b"sys/block", b"/"), ["/sys/block"]);
    }

    #[test]
    fn folders_of_numbers_are_known_without_their_symlinks() {
        for (path, id) in [
            ("/dev/block/7:0", Some("b7:0")),
            ("/dev/char/1:3", Some("c1:3")),
            ("/dev/char/1:3/", None),
            ("/dev/block/7:", None),
            ("/dev/block/", None),
            ("/dev/blocks/7:0", None),
        ] {
            let found = id_of_numbered_node(path.as_bytes()).map(|id| id.render().to_string());
            assert_eq!(found.as_deref(), id, "{path}");
        }
    }
}
