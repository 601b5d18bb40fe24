//! The words that names of interfaces are made of: one function for the sysnames of each bus.

use crate::builtin::value::{parse_decimal, parse_hex, parse_number};
use bstr::{BString, ByteSlice};

/// `r3` for the representor `pf0vf3`, else `n` and the name.
pub(super) fn named_port(name: &[u8], representors: bool) -> BString {
    let representor = || {
        let rest = name.strip_prefix(b"pf")?;
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let rest = rest[digits..].strip_prefix(b"vf").filter(|_| digits > 0)?;
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let number: u32 = parse_decimal(&rest[..digits])?;
        Some(format!("r{number}"))
    };
    match representor().filter(|_| representors) {
        Some(specifier) => specifier.into(),
        None => [b"n", name].concat().into(),
    }
}

/// `u1u4c2i6` of `2-1.4:2.6`.
pub(super) fn usb_specifier(sysname: &[u8]) -> Option<BString> {
    let (_, rest) = sysname.split_once_str("-")?;
    let (ports, rest) = rest.split_once_str(":")?;
    let (configuration, interface) = rest.split_once_str(".")?;
    let mut specifier = BString::from("u");
    specifier.extend(ports.replace(".", "u"));
    if configuration != b"1" {
        specifier.push(b'c');
        specifier.extend_from_slice(configuration);
    }
    if interface != b"0" {
        specifier.push(b'i');
        specifier.extend_from_slice(interface);
    }
    Some(specifier)
}

/// `b1` of `bcma0:1`, nothing for core 0.
pub(super) fn bcma_specifier(sysname: &[u8]) -> Option<BString> {
    let (number, core) = sysname.strip_prefix(b"bcma")?.split_once_str(":")?;
    parse_decimal(number)?;
    Some(match parse_decimal(core)? {
        0 => BString::default(),
        core => format!("b{core}").into(),
    })
}

/// The bus id of a CCW device without leading zeros and dots.
pub(super) fn ccw_id(bus_id: &[u8]) -> Option<BString> {
    if !matches!(bus_id.len(), 8 | 9) {
        return None;
    }
    let start = bus_id.iter().position(|b| !matches!(b, b'0' | b'.')).unwrap_or(bus_id.len() - 1);
    Some(bus_id[start..].into())
}

/// The last four of exactly eight hexadecimal digits.
pub(super) fn vio_slot(component: &[u8]) -> Option<u32> {
    parse_hex(component).filter(|_| component.len() == 8).map(|id| id & 0xffff)
}

/// `hisic2i0` of `HISI00C2:00`: vendor of three letters, or four letters or digits; model; instance.
pub(super) fn platform_id(component: &[u8]) -> Option<BString> {
    let (vendor_len, letters_only) = match component.len() {
        10 => (3, true),
        11 => (4, false),
        _ => return None,
    };
    let (vendor, rest) = component.split_at(vendor_len);
    let (model, instance) = rest.split_once_str(":")?;
    let fits = |b: &u8| b.is_ascii_uppercase() || (!letters_only && b.is_ascii_digit());
    if model.len() != 4 || instance.len() != 2 || !vendor.iter().all(fits) {
        return None;
    }
    let vendor = vendor.to_ascii_lowercase();
    Some([vendor, format!("{:x}i{}", parse_hex(model)?, parse_hex(instance)?).into_bytes()].concat().into())
}

/// The number of `vif-<n>`, without sign and leading zero.
pub(super) fn xen_index(component: &[u8]) -> Option<u32> {
    let digits = component.strip_prefix(b"vif-")?;
    parse_decimal(digits).filter(|_| digits.len() == 1 || digits[0] != b'0')
}

/// The index of an alias; `kind` without number and `kind0` contradict each other.
pub(super) fn alias_index(alias: &[u8], kind: &str, names: &[BString]) -> Option<u64> {
    let text = alias.strip_prefix(kind.as_bytes())?;
    let index = if text.is_empty() { 0 } else { parse_number(text)? };
    let rival = if text.is_empty() { format!("{kind}0") } else { kind.into() };
    if index == 0 && names.iter().any(|name| *name == rival) {
        return None;
    }
    Some(index)
}
