//! One row of the link table: the columns of builtins.md 3.1, compact, because there may be thousands.

use crate::model::IfIndex;
use bstr::{BStr, BString};

/// A short run of bytes, stored in place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Short<const N: usize> {
    len: u8,
    bytes: [u8; N],
}

impl<const N: usize> Short<N> {
    /// None if `bytes` is longer than N.
    pub fn new(bytes: &[u8]) -> Option<Short<N>> {
        let mut short = Short { len: u8::try_from(bytes.len()).ok()?, bytes: [0; N] };
        short.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(short)
    }

    /// The bytes as text.
    pub fn as_bstr(&self) -> &BStr {
        BStr::new(&**self)
    }
}

impl<const N: usize> Default for Short<N> {
    fn default() -> Self {
        Short { len: 0, bytes: [0; N] }
    }
}

impl<const N: usize> std::ops::Deref for Short<N> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl<const N: usize> std::fmt::Debug for Short<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.as_bstr(), f)
    }
}

/// The name of an interface, at most 15 bytes (IFNAMSIZ).
pub type Name = Short<15>;
/// A hardware address, at most 32 bytes (MAX_ADDR_LEN).
pub type HardwareAddress = Short<32>;

/// A network interface as the kernel last described it. A column that the kernel's messages may lack
/// (older kernels) is an Option.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Link {
    /// Never 0 in a table.
    pub ifindex: u32,
    pub name: Name,
    /// ARPHRD_*, `ifi_type`.
    pub kind_of_hardware: u16,
    /// `ifi_flags`, with the bits that user space sees (IFF_RUNNING, ...).
    pub flags: u32,
    pub address: HardwareAddress,
    pub broadcast: HardwareAddress,
    pub mtu: u32,
    /// IFLA_LINK, the ifindex itself when the message had none. May be 0.
    pub iflink: u32,
    /// Id of the namespace where `iflink` lives, if that is another one.
    pub link_netnsid: Option<i32>,
    /// 0: none.
    pub master: u32,
    /// RFC 2863, 0 unknown to 6 up.
    pub operstate: u8,
    pub link_mode: u8,
    pub carrier: Option<bool>,
    pub proto_down: Option<bool>,
    pub tx_queue_len: u32,
    pub group: Option<u32>,
    pub promiscuity: u32,
    pub allmulti: u32,
    pub carrier_changes: Option<u32>,
    pub carrier_up_count: Option<u32>,
    pub carrier_down_count: Option<u32>,
    pub num_tx_queues: u32,
    pub num_rx_queues: u32,
    /// IFLA_INFO_KIND (`bridge`, `veth`, ...); empty if there is none. Not DEVTYPE (builtins.md 3.3).
    pub kind: Short<23>,
    /// IFLA_INFO_SLAVE_KIND: the kind of the master.
    pub port_kind: Short<23>,
    /// Columns that few links have.
    pub rare: Option<Box<Rare>>,
}

/// See [`Link::rare`].
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Rare {
    pub alias: BString,
    pub alt_names: Vec<BString>,
    /// Empty when absent or all zero.
    pub perm_address: HardwareAddress,
    pub phys_port_id: Option<HardwareAddress>,
    pub phys_switch_id: Option<HardwareAddress>,
    pub phys_port_name: Option<BString>,
    /// Name of the parent device on its bus, such as `0000:00:02.0`.
    pub parent_name: BString,
    /// `pci`, `virtio`, ...
    pub parent_bus: BString,
}

impl Link {
    /// Its index.
    pub fn ifindex(&self) -> IfIndex {
        IfIndex(self.ifindex)
    }

    /// IFF_UP.
    pub fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    /// Alternative names; a link that is down may have got others since (ask for a fresh row).
    pub fn alt_names(&self) -> &[BString] {
        self.rare.as_deref().map_or(&[], |r| &r.alt_names)
    }

    /// IFLA_IFALIAS, empty if there is none.
    pub fn alias(&self) -> &[u8] {
        self.rare.as_deref().map_or(&[], |r| &r.alias)
    }

    /// IFLA_PERM_ADDRESS, empty if there is none.
    pub fn perm_address(&self) -> &[u8] {
        self.rare.as_deref().map_or(&[], |r| &r.perm_address)
    }

    /// Bus and name of the parent device, if it has one.
    pub fn parent(&self) -> Option<(&BStr, &BStr)> {
        let rare = self.rare.as_deref().filter(|r| !r.parent_name.is_empty())?;
        Some((BStr::new(&rare.parent_bus), BStr::new(&rare.parent_name)))
    }
}
