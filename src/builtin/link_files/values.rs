//! Values of keys in .link files that take more than a word: sizes, names of properties, specifiers.

use crate::builtin::host::Host;
use crate::links::attr::hex;

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
pub(super) fn is_settable(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !FIXED_PROPERTIES.contains(&name)
}

/// A size with base 1024: `1400`, `1400B`, `1.5K`.
pub(super) fn parse_size(text: &str) -> Option<u32> {
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
    // Digits behind the ninth are worth a byte at most.
    let fraction = &fraction[..fraction.len().min(9)];
    let part = match fraction {
        "" => 0,
        digits => digits.parse::<u64>().ok()?.checked_mul(factor)? / 10u64.pow(digits.len() as u32),
    };
    u32::try_from(whole.checked_mul(factor)?.checked_add(part)?).ok()
}

/// Replaces `%` specifiers (systemd.link(5), SPECIFIERS). None for one that does not exist or whose
/// value this machine does not have.
pub(super) fn expand_specifiers(text: &str, host: &Host) -> Option<String> {
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
