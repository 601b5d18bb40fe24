//! The text of a sysfs file of a network device from its row, exactly as the file shows it, or where else to ask.
//! Mapping: builtins.md 3.1; attributes that are in no message: 3.2.
//!
//! Columns that change *silently*, without a notification, are used only from a row that is fresh for the
//! caller's mark ([`Table::mark`], and [`Table::next_mark`] once the caller has changed something). Measured on kernel 6.18:
//!
//! | column | silent because |
//! |---|---|
//! | iflink | the first end of a pair is announced before the second exists; an end that moves to another namespace may get another ifindex |
//! | carrier, dormant, carrier counters | the kernel tells up to one second later, when its link watch runs |
//! | netdev_group, proto_down | a write to the sysfs file tells nobody |
//! | phys_port_id, phys_switch_id, phys_port_name | firmware and devlink change them |
//! | ifalias, link_mode, flags (promiscuity) of a link that is down | the kernel announces only links that are up |
//! | statistics | of course |

use super::decode::STATISTICS;
use super::link::Link;
use super::table::{Lookup, Mark, Table};
use crate::model::IfIndex;
use bstr::BString;

/// What the table says to a request for an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkAttr {
    /// Content of the file without its newline.
    Text(BString),
    /// There is no such file, or reading it fails; the link is gone.
    Missing,
    /// In no message: read the file. It takes no RTNL lock, as far as the file is a known one.
    FromSysfs,
    /// Reading the file takes the RTNL lock and calls the driver: let a helper do it.
    Slow,
    /// The row is too old for this column: send [`Table::request`] and ask again.
    NeedsRefresh(Refresh),
    /// The table does not know the link (yet): send [`Table::request`] and ask again.
    Unknown,
}

/// How much of a row to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refresh {
    Row,
    /// The row, and its statistics are to be kept.
    Statistics,
}

/// Whether a file is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exists {
    /// `st_mode`.
    Mode(u32),
    No,
    /// Ask the file system: stat(2) below a net device takes no RTNL lock.
    FromSysfs,
    /// The row is of before a loss, and the answer may be another now: send [`Table::request`] and ask again.
    NeedsRefresh,
    Unknown,
}

const READ_ONLY: u32 = libc::S_IFREG | 0o444;
const WRITABLE: u32 = libc::S_IFREG | 0o644;
const FOLDER: u32 = libc::S_IFDIR | 0o755;

/// The attribute `name` (path below the device's folder, as rules write it) of a link.
pub fn attr(table: &Table, ifindex: IfIndex, name: &[u8], mark: Mark) -> LinkAttr {
    let column = Column::of(name);
    if matches!(column, Column::Other) {
        return LinkAttr::FromSysfs;
    }
    let link = match table.lookup(ifindex) {
        Lookup::Known(link) => link,
        Lookup::Gone(_) => return LinkAttr::Missing,
        Lookup::Unknown => return LinkAttr::Unknown,
    };
    if let Column::Statistic(n) = column {
        return match table.statistic(ifindex, n, mark) {
            None => LinkAttr::NeedsRefresh(Refresh::Statistics),
            Some(None) => LinkAttr::FromSysfs,
            Some(Some(value)) => decimal(value),
        };
    }
    let fresh = match column.silence(link) {
        // Unless something was lost, any row will do.
        Silence::Never => table.is_fresh(ifindex, Mark::ANY),
        Silence::Iflink => table.is_iflink_fresh(ifindex, mark),
        Silence::Row => table.is_fresh(ifindex, mark),
    };
    if fresh { column.text(link) } else { LinkAttr::NeedsRefresh(Refresh::Row) }
}

/// Whether reading this file below a net device can wait for nothing: the four that are in no message
/// (builtins.md section 3) are plain numbers to the kernel.
pub fn is_free_of_locks(name: &[u8]) -> bool {
    matches!(name, b"addr_assign_type" | b"name_assign_type" | b"dev_id" | b"dev_port")
}

/// Whether `name` is there, for TEST.
pub fn exists(table: &Table, ifindex: IfIndex, name: &[u8]) -> Exists {
    let column = Column::of(name);
    if matches!(column, Column::Other) {
        return Exists::FromSysfs;
    }
    match table.lookup(ifindex) {
        Lookup::Known(_) if column == Column::Master && !table.is_fresh(ifindex, Mark::ANY) => {
            Exists::NeedsRefresh
        }
        Lookup::Known(link) => column.exists(link),
        Lookup::Gone(_) => Exists::No,
        Lookup::Unknown => Exists::Unknown,
    }
}

/// The names that the table answers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Ifindex,
    Type,
    Address,
    AddrLen,
    Broadcast,
    Mtu,
    Iflink,
    Flags,
    Operstate,
    LinkMode,
    Carrier,
    Dormant,
    Testing,
    CarrierChanges,
    CarrierUpCount,
    CarrierDownCount,
    TxQueueLen,
    Ifalias,
    Group,
    ProtoDown,
    PhysPortId,
    PhysSwitchId,
    PhysPortName,
    Speed,
    Duplex,
    Subsystem,
    Master,
    StatisticsFolder,
    /// Index in [`STATISTICS`].
    Statistic(usize),
    /// Not the table's.
    Other,
}

/// When a column may have changed without a notification.
enum Silence {
    Never,
    Iflink,
    Row,
}

impl Column {
    fn of(name: &[u8]) -> Column {
        match name {
            b"ifindex" => Column::Ifindex,
            b"type" => Column::Type,
            b"address" => Column::Address,
            b"addr_len" => Column::AddrLen,
            b"broadcast" => Column::Broadcast,
            b"mtu" => Column::Mtu,
            b"iflink" => Column::Iflink,
            b"flags" => Column::Flags,
            b"operstate" => Column::Operstate,
            b"link_mode" => Column::LinkMode,
            b"carrier" => Column::Carrier,
            b"dormant" => Column::Dormant,
            b"testing" => Column::Testing,
            b"carrier_changes" => Column::CarrierChanges,
            b"carrier_up_count" => Column::CarrierUpCount,
            b"carrier_down_count" => Column::CarrierDownCount,
            b"tx_queue_len" => Column::TxQueueLen,
            b"ifalias" => Column::Ifalias,
            b"netdev_group" => Column::Group,
            b"proto_down" => Column::ProtoDown,
            b"phys_port_id" => Column::PhysPortId,
            b"phys_switch_id" => Column::PhysSwitchId,
            b"phys_port_name" => Column::PhysPortName,
            b"speed" => Column::Speed,
            b"duplex" => Column::Duplex,
            b"subsystem" => Column::Subsystem,
            b"master" => Column::Master,
            b"statistics" => Column::StatisticsFolder,
            _ => match name.strip_prefix(b"statistics/") {
                Some(rest) => STATISTICS
                    .iter()
                    .position(|known| known.as_bytes() == rest)
                    .map_or(Column::Other, Column::Statistic),
                None => Column::Other,
            },
        }
    }

    fn silence(self, link: &Link) -> Silence {
        use Column::*;
        match self {
            Iflink => Silence::Iflink,
            // Reading these fails while the link is down, whatever the columns say.
            Carrier | Dormant if link.is_up() => Silence::Row,
            CarrierChanges | CarrierUpCount | CarrierDownCount => Silence::Row,
            Group | ProtoDown | PhysPortId | PhysSwitchId | PhysPortName => Silence::Row,
            Ifalias | LinkMode | Flags if !link.is_up() => Silence::Row,
            _ => Silence::Never,
        }
    }

    /// The text of the file; the row is fresh enough.
    fn text(self, link: &Link) -> LinkAttr {
        use Column::*;
        let rare = link.rare.as_deref();
        let if_up = |value: LinkAttr| if link.is_up() { value } else { LinkAttr::Missing };
        match self {
            Ifindex => decimal(link.ifindex),
            Type => decimal(link.kind_of_hardware),
            Address => LinkAttr::Text(hex(&link.address, Some(b':'))),
            AddrLen => decimal(link.address.len() as u32),
            Broadcast => LinkAttr::Text(hex(&link.broadcast, Some(b':'))),
            Mtu => decimal(link.mtu),
            Iflink => decimal(link.iflink),
            Flags => LinkAttr::Text(format!("{:#x}", sysfs_flags(link)).into()),
            Operstate => LinkAttr::Text(operstate(link.operstate).into()),
            LinkMode => decimal(link.link_mode),
            Carrier => if_up(link.carrier.map_or(LinkAttr::FromSysfs, bit)),
            Dormant => if_up(bit(link.flags & libc::IFF_DORMANT as u32 != 0)),
            // The flag itself is in no message.
            Testing => if_up(bit(link.operstate == OPERSTATE_TESTING)),
            CarrierChanges => link.carrier_changes.map_or(LinkAttr::FromSysfs, decimal),
            CarrierUpCount => link.carrier_up_count.map_or(LinkAttr::FromSysfs, decimal),
            CarrierDownCount => link.carrier_down_count.map_or(LinkAttr::FromSysfs, decimal),
            TxQueueLen => decimal(link.tx_queue_len),
            Ifalias => LinkAttr::Text(link.alias().into()),
            Group => link.group.map_or(LinkAttr::FromSysfs, decimal),
            ProtoDown => link.proto_down.map_or(LinkAttr::FromSysfs, bit),
            PhysPortId => rare
                .and_then(|r| r.phys_port_id)
                .map_or(LinkAttr::Missing, |id| LinkAttr::Text(hex(&id, None))),
            PhysSwitchId => rare
                .and_then(|r| r.phys_switch_id)
                .map_or(LinkAttr::Missing, |id| LinkAttr::Text(hex(&id, None))),
            PhysPortName => {
                rare.and_then(|r| r.phys_port_name.clone()).map_or(LinkAttr::Missing, LinkAttr::Text)
            }
            // The kernel refuses before it takes the lock.
            Speed | Duplex => if_up(LinkAttr::Slow),
            Subsystem => LinkAttr::Text("net".into()),
            // A symlink other than driver, subsystem and module is no attribute, nor is a folder.
            Master | StatisticsFolder => LinkAttr::Missing,
            Statistic(_) | Other => LinkAttr::FromSysfs,
        }
    }

    fn exists(self, link: &Link) -> Exists {
        use Column::*;
        match self {
            Carrier | Flags | Ifalias | Mtu | Group | ProtoDown | TxQueueLen => Exists::Mode(WRITABLE),
            Ifindex | Type | Address | AddrLen | Broadcast | Iflink | Operstate | LinkMode | Dormant
            | CarrierChanges | Speed | Duplex | Statistic(_) => Exists::Mode(READ_ONLY),
            StatisticsFolder => Exists::Mode(FOLDER),
            Master if link.master == 0 => Exists::No,
            Master => Exists::Mode(FOLDER),
            // Only on newer kernels, or only with a driver that has them.
            CarrierUpCount | CarrierDownCount | Testing | PhysPortId | PhysSwitchId | PhysPortName
            | Subsystem | Other => Exists::FromSysfs,
        }
    }
}

const OPERSTATE_TESTING: u8 = 4;

/// Bits that sysfs does not show, because the kernel computes them for user space (dev_get_flags).
const COMPUTED_FLAGS: u32 = libc::IFF_RUNNING as u32 | IFF_LOWER_UP | libc::IFF_DORMANT as u32;
const IFF_LOWER_UP: u32 = 0x1_0000;

/// The kernel's own flags: ifi_flags carries promiscuity and allmulti only as far as user space asked.
fn sysfs_flags(link: &Link) -> u32 {
    let mut flags = link.flags & !COMPUTED_FLAGS;
    if link.promiscuity > 0 {
        flags |= libc::IFF_PROMISC as u32;
    }
    if link.allmulti > 0 {
        flags |= libc::IFF_ALLMULTI as u32;
    }
    flags
}

/// The word for an operational state (RFC 2863).
pub fn operstate(state: u8) -> &'static str {
    const WORDS: [&str; 7] = ["unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up"];
    WORDS.get(usize::from(state)).copied().unwrap_or("unknown")
}

/// Lower-case hexadecimal, with a separator between bytes if one is given.
pub fn hex(bytes: &[u8], separator: Option<u8>) -> BString {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = Vec::with_capacity(bytes.len() * 3);
    for (i, &byte) in bytes.iter().enumerate() {
        if let Some(separator) = separator.filter(|_| i > 0) {
            text.push(separator);
        }
        text.push(DIGITS[usize::from(byte >> 4)]);
        text.push(DIGITS[usize::from(byte & 15)]);
    }
    text.into()
}

fn decimal(number: impl Into<u64>) -> LinkAttr {
    LinkAttr::Text(number.into().to_string().into())
}

fn bit(set: bool) -> LinkAttr {
    decimal(u8::from(set))
}

#[cfg(test)]
mod tests;
