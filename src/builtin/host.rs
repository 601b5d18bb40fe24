//! The machine itself, as conditions and specifiers of .link files ask about it (builtins.md 2.2,
//! systemd.unit(5) for the conditions).

use super::ini::split_quoted;
use super::value::parse_hex;
use crate::links::attr::hex;
use crate::rules::ask::Constant;
use crate::rules::glob::Glob;
use crate::world::config::parse_bool;
use crate::world::constants::Constants;
use crate::world::{Roots, files, temporary_folder};
use bstr::{BString, ByteSlice};
use std::cmp::Ordering;
use std::path::PathBuf;

/// The machine, as far as .link files ask about it. What does not come from the kernel was read before, since that may
/// wait.
#[derive(Debug)]
pub struct Host {
    pub roots: Roots,
    /// /proc/cmdline.
    pub command_line: BString,
    pub constants: Constants,
    pub told: Told,
}

/// What files of the machine say about it. A reload of files reads them too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub machine_id: Option<[u8; 16]>,
    /// The text of os-release(5); empty if it is not there.
    pub os_release: BString,
}

impl Told {
    /// Reads the files. May wait for their file systems, but not for a process that is to write into a FIFO.
    pub fn read(roots: &Roots) -> Told {
        Told { machine_id: machine_id(roots), os_release: os_release(roots) }
    }
}

/// Where os-release(5) is looked for.
pub fn os_release_places(roots: &Roots) -> [PathBuf; 2] {
    [&roots.etc, &roots.lib].map(|root| root.join("os-release"))
}

fn os_release(roots: &Roots) -> BString {
    let mut texts = os_release_places(roots).into_iter().map(|path| files::read_bounded(&path, FILE_MAX));
    texts.find_map(Result::ok).unwrap_or_default()
}

/// Bytes of the longest file that is read.
const FILE_MAX: u64 = 64 * 1024;

/// The machine id, as 16 bytes.
fn machine_id(roots: &Roots) -> Option<[u8; 16]> {
    let text = files::read_bounded(&roots.etc.join("machine-id"), FILE_MAX).ok()?;
    let text = text.trim_ascii();
    let digits = (text.len() == 32).then_some(text)?;
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::try_from(parse_hex(pair)?).ok()?;
    }
    Some(id)
}

impl Host {
    /// CONST{arch}.
    pub fn architecture(&self) -> Option<&'static str> {
        self.constants.get(Constant::Arch)
    }

    /// A value of os-release(5); empty if it is not there.
    pub fn os_release(&self, name: &str) -> String {
        let file = self.told.os_release.to_str_lossy();
        let value = file.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).next_back();
        let words = value.and_then(|value| split_quoted(value, false)).unwrap_or_default();
        words.into_iter().next().unwrap_or_default()
    }

    /// The machine with this command line of the kernel. May wait.
    pub fn new(roots: Roots, command_line: BString) -> Host {
        Host { constants: Constants::new(&roots), told: Told::read(&roots), roots, command_line }
    }

    /// A file below /proc/sys/kernel, trimmed; empty if it is not there.
    pub fn kernel_text(&self, name: &str) -> String {
        let text = std::fs::read(self.roots.proc.join("sys/kernel").join(name)).unwrap_or_default();
        String::from_utf8_lossy(text.trim_ascii()).into_owned()
    }

    /// Where temporary files go, or those that survive a boot; None if that is no text.
    pub fn temporary_folder(&self, survives: bool) -> Option<String> {
        temporary_folder(survives, |name| std::env::var_os(name)).into_os_string().into_string().ok()
    }

    /// Whether the kernel is of this version or a later one.
    pub fn kernel_is(&self, version: &str) -> bool {
        compare_versions(self.kernel_text("osrelease").as_bytes(), version.as_bytes()).is_ge()
    }

    /// Whether the condition of this key of `[Match]` holds.
    pub fn condition(&self, key: &str, value: &str) -> bool {
        match key {
            "Host" => self.is_host(value),
            "Virtualization" => self.is_virtualization(value),
            "KernelCommandLine" => self.has_command_line(value),
            "KernelVersion" => is_version(&self.kernel_text("osrelease"), value),
            "Credential" => ["@system", "@encrypted"].iter().any(|folder| {
                let is_name = !value.is_empty() && !value.contains('/') && !value.starts_with('.');
                is_name && self.roots.run.join("credentials").join(folder).join(value).exists()
            }),
            "Architecture" => match value {
                "native" => self.architecture().is_some_and(|arch| native_architecture() == Some(arch)),
                name => self.architecture() == Some(name),
            },
            "Firmware" => self.is_firmware(value),
            _ => false,
        }
    }

    fn is_host(&self, value: &str) -> bool {
        let is_id = value.len() == 32 && value.bytes().all(|b| b.is_ascii_hexdigit());
        if is_id
            && self.told.machine_id.is_some_and(|id| hex(&id, None).eq_ignore_ascii_case(value.as_bytes()))
        {
            return true;
        }
        Glob::new(value.as_bytes(), true).matches(self.kernel_text("hostname").as_bytes())
    }

    fn is_virtualization(&self, value: &str) -> bool {
        let here = self.constants.get(Constant::Virt).unwrap_or("none");
        let is_container = self.constants.in_container();
        let is_some = here != "none";
        match (parse_bool(value.as_bytes()), value) {
            (Some(wanted), _) => wanted == is_some,
            (None, "vm") => is_some && !is_container,
            (None, "container") => is_container,
            (None, id) => is_some && id == here,
        }
    }

    fn has_command_line(&self, value: &str) -> bool {
        let words = crate::model::command::kernel_words(&self.command_line);
        words.iter().any(|word| match value.contains('=') {
            true => word == value,
            // A bare word is found with and without a value.
            false => word.split(|&b| b == b'=').next() == Some(value.as_bytes()),
        })
    }

    fn is_firmware(&self, value: &str) -> bool {
        let inner = |name: &str| value.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
        if let Some(compatible) = inner("device-tree-compatible") {
            let list = std::fs::read(self.roots.proc.join("device-tree/compatible")).unwrap_or_default();
            return list.split(|&b| b == 0).any(|entry| entry == compatible.as_bytes());
        }
        if let Some(test) = inner("smbios-field") {
            return self.is_smbios_field(test);
        }
        match value {
            "uefi" => self.roots.sys.join("firmware/efi").is_dir(),
            "device-tree" => self.roots.sys.join("firmware/devicetree").is_dir(),
            _ => false,
        }
    }

    /// `field operator value`, the field being a file of /sys/class/dmi/id.
    fn is_smbios_field(&self, test: &str) -> bool {
        let Some(end) = test.find(|c: char| "<>=!".contains(c)) else { return false };
        let (field, test) = (test[..end].trim(), test[end..].trim());
        if field.is_empty() || field.contains('/') || field.starts_with('.') {
            return false;
        }
        let Ok(text) = std::fs::read(self.roots.sys.join("class/dmi/id").join(field)) else { return false };
        let text = String::from_utf8_lossy(text.trim_ascii()).into_owned();
        let (operator, value) = split_operator(test);
        let value = value.trim();
        let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
        compare(&text, operator, value)
    }
}

/// What CONST{arch} says where this program was compiled for.
fn native_architecture() -> Option<&'static str> {
    let little = cfg!(target_endian = "little");
    Some(match std::env::consts::ARCH {
        "x86_64" => "x86-64",
        "x86" => "x86",
        "aarch64" if little => "arm64",
        "arm" if little => "arm",
        "riscv64" => "riscv64",
        "riscv32" => "riscv32",
        "powerpc64" if little => "ppc64-le",
        "powerpc64" => "ppc64",
        "s390x" => "s390x",
        "loongarch64" => "loongarch64",
        "mips64" if little => "mips64-le",
        "mips" if little => "mips-le",
        "mips64" => "mips64",
        "mips" => "mips",
        _ => return None,
    })
}

/// All expressions of KernelVersion= hold (systemd.unit(5), ConditionKernelVersion=).
fn is_version(version: &str, value: &str) -> bool {
    let Some(words) = split_quoted(value, false).filter(|words| !words.is_empty()) else { return false };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let (operator, mut operand) = split_operator(&word);
        // `>= 6.1` is one expression.
        let next;
        if operand.is_empty() && operator.is_some() {
            let Some(following) = words.next() else { return false };
            next = following;
            operand = &next;
        }
        if !compare(version, operator, operand) {
            return false;
        }
    }
    true
}

/// An operator in front of a value.
fn split_operator(text: &str) -> (Option<&str>, &str) {
    let operators = ["!=$", "=$", "!=", "==", "<>", "<=", ">=", "=", "<", ">"];
    match operators.into_iter().find(|operator| text.starts_with(operator)) {
        Some(operator) => (Some(operator), text[operator.len()..].trim_start()),
        None => (None, text),
    }
}

/// `=` and `!=` compare text, `=$`, `!=$` and nothing are patterns, the others compare versions.
fn compare(text: &str, operator: Option<&str>, value: &str) -> bool {
    let order = || compare_versions(text.as_bytes(), value.as_bytes());
    let glob = || Glob::new(value.as_bytes(), false).matches(text.as_bytes());
    match operator {
        Some("=") => text == value,
        Some("!=") => text != value,
        None | Some("=$") => glob(),
        Some("!=$") => !glob(),
        Some("==") => order() == Ordering::Equal,
        Some("<>") => order() != Ordering::Equal,
        Some("<") => order() == Ordering::Less,
        Some("<=") => order() != Ordering::Greater,
        Some(">") => order() == Ordering::Greater,
        Some(">=") => order() != Ordering::Less,
        Some(_) => false,
    }
}

/// Order of versions by the UAPI group's version format specification.
pub fn compare_versions(mut a: &[u8], mut b: &[u8]) -> Ordering {
    fn skip<'a>(text: &mut &'a [u8], wanted: impl Fn(&u8) -> bool) -> &'a [u8] {
        let length = text.iter().take_while(|b| wanted(b)).count();
        let (head, tail) = text.split_at(length);
        *text = tail;
        head
    }
    let is_noise = |c: &u8| !c.is_ascii_alphanumeric() && !matches!(c, b'-' | b'.' | b'~' | b'^');
    loop {
        skip(&mut a, is_noise);
        skip(&mut b, is_noise);
        // Each of these is less than what follows it in the list, and `~` less than the end.
        for mark in *b"~\0-^." {
            if mark == 0 {
                match (a.is_empty(), b.is_empty()) {
                    (true, true) => return Ordering::Equal,
                    (true, false) => return Ordering::Less,
                    (false, true) => return Ordering::Greater,
                    (false, false) => continue,
                }
            }
            match (a.first() == Some(&mark), b.first() == Some(&mark)) {
                (true, true) => {
                    a = &a[1..];
                    b = &b[1..];
                }
                (true, false) => return Ordering::Less,
                (false, true) => return Ordering::Greater,
                (false, false) => {}
            }
        }
        let is_digit = |text: &[u8]| text.first().is_some_and(u8::is_ascii_digit);
        if is_digit(a) || is_digit(b) {
            skip(&mut a, |c| *c == b'0');
            skip(&mut b, |c| *c == b'0');
            let x = skip(&mut a, u8::is_ascii_digit);
            let y = skip(&mut b, u8::is_ascii_digit);
            let order = x.len().cmp(&y.len()).then_with(|| x.cmp(y));
            if order.is_ne() {
                return order;
            }
        } else {
            let x = skip(&mut a, u8::is_ascii_alphabetic);
            let y = skip(&mut b, u8::is_ascii_alphabetic);
            if x != y {
                return x.cmp(y);
            }
        }
    }
}

#[cfg(test)]
mod tests;
