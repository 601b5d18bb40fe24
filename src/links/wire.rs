//! Netlink framing and the numbers of rtnetlink that mudev uses: walking messages and attributes of
//! a datagram, and building what the crates have nothing for: our own messages to the request helper, and in tests those
//! of the kernel.
//!
//! Everything that is walked comes from outside: lengths are checked here once, in two iterators, and
//! nowhere else. Sources: linux/netlink.h, linux/rtnetlink.h, linux/if_link.h; netlink(7), rtnetlink(7).

pub use netlink_packet_core::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_MULTIPART, NLMSG_DONE,
    NLMSG_ERROR,
};

/// Length of `struct nlmsghdr`.
pub const HEADER: usize = 16;
/// Length of `struct ifinfomsg`.
pub const IFINFO: usize = 16;

pub const RTM_NEWLINK: u16 = 16;
pub const RTM_DELLINK: u16 = 17;
pub const RTM_GETLINK: u16 = 18;
pub const RTM_SETLINK: u16 = 19;
pub const RTM_NEWLINKPROP: u16 = 108;
pub const RTM_DELLINKPROP: u16 = 109;

/// Our own, far above the kernel's types: the request helper asks ethtool for the driver of the link that
/// IFLA_IFNAME names, and answers with an NLMSG_ERROR whose text is that name.
pub const ASK_DRIVER: u16 = 0x7f00;

pub const NLMSGERR_ATTR_MSG: u16 = 1;

/// Our own: the request behind it in a datagram to the request helper may be given to the kernel until this time,
/// nanoseconds of CLOCK_MONOTONIC as a native u64. Later it is answered with ETIMEDOUT.
pub const GIVE_BY: u16 = 0x7f01;

/// Bytes of the longest datagram that is read. The longest attribute has 64 KiB, and a link has few that come
/// near to that: alternative names, virtual functions.
pub const DATAGRAM_MAX: usize = 1 << 20;

pub const IFLA_ADDRESS: u16 = 1;
pub const IFLA_BROADCAST: u16 = 2;
pub const IFLA_IFNAME: u16 = 3;
pub const IFLA_MTU: u16 = 4;
pub const IFLA_LINK: u16 = 5;
pub const IFLA_MASTER: u16 = 10;
pub const IFLA_TXQLEN: u16 = 13;
pub const IFLA_OPERSTATE: u16 = 16;
pub const IFLA_LINKMODE: u16 = 17;
pub const IFLA_LINKINFO: u16 = 18;
pub const IFLA_IFALIAS: u16 = 20;
pub const IFLA_STATS64: u16 = 23;
pub const IFLA_GROUP: u16 = 27;
pub const IFLA_PROMISCUITY: u16 = 30;
pub const IFLA_NUM_TX_QUEUES: u16 = 31;
pub const IFLA_NUM_RX_QUEUES: u16 = 32;
pub const IFLA_CARRIER: u16 = 33;
pub const IFLA_PHYS_PORT_ID: u16 = 34;
pub const IFLA_CARRIER_CHANGES: u16 = 35;
pub const IFLA_PHYS_SWITCH_ID: u16 = 36;
pub const IFLA_LINK_NETNSID: u16 = 37;
pub const IFLA_PHYS_PORT_NAME: u16 = 38;
pub const IFLA_PROTO_DOWN: u16 = 39;
pub const IFLA_CARRIER_UP_COUNT: u16 = 47;
pub const IFLA_CARRIER_DOWN_COUNT: u16 = 48;
pub const IFLA_PROP_LIST: u16 = 52;
pub const IFLA_ALT_IFNAME: u16 = 53;
pub const IFLA_PERM_ADDRESS: u16 = 54;
pub const IFLA_PARENT_DEV_NAME: u16 = 56;
pub const IFLA_PARENT_DEV_BUS_NAME: u16 = 57;
pub const IFLA_ALLMULTI: u16 = 61;

/// In IFLA_LINKINFO.
pub const IFLA_INFO_KIND: u16 = 1;
pub const IFLA_INFO_SLAVE_KIND: u16 = 4;

/// A length in a datagram does not fit what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// One message of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    pub flags: u16,
    pub seq: u32,
    pub portid: u32,
    /// What follows the header.
    pub payload: &'a [u8],
}

/// The messages of a datagram, in order; the first malformed one ends the walk.
pub fn frames(datagram: &[u8]) -> Frames<'_> {
    Frames { rest: datagram }
}

/// See [`frames`].
pub struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let whole = std::mem::take(&mut self.rest);
        let Some(length) = message_len(whole) else { return Some(Err(Malformed)) };
        let (Some(kind), Some(flags), Some(seq), Some(portid)) =
            (read_u16(whole, 4), read_u16(whole, 6), read_u32(whole, 8), read_u32(whole, 12))
        else {
            return Some(Err(Malformed));
        };
        self.rest = whole.get(align(length)..).unwrap_or_default();
        Some(Ok(Frame { kind, flags, seq, portid, payload: &whole[HEADER..length] }))
    }
}

/// Length of the message at the front, without padding; None if there is no whole one.
pub fn message_len(bytes: &[u8]) -> Option<usize> {
    let length = read_u32(bytes, 0)? as usize;
    (HEADER..=bytes.len()).contains(&length).then_some(length)
}

/// The attributes in `bytes` as (type without its two flag bits, value); the first malformed one ends
/// the walk.
pub fn attributes(bytes: &[u8]) -> Attributes<'_> {
    Attributes { rest: bytes }
}

/// See [`attributes`].
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(u16, &'a [u8]), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let whole = std::mem::take(&mut self.rest);
        let (Some(length), Some(kind)) = (read_u16(whole, 0), read_u16(whole, 2)) else {
            return Some(Err(Malformed));
        };
        let length = usize::from(length);
        if length < 4 || length > whole.len() {
            return Some(Err(Malformed));
        }
        self.rest = whole.get(align(length)..).unwrap_or_default();
        Some(Ok((kind & 0x3fff, &whole[4..length])))
    }
}

/// Rounded up to the 4 bytes that everything in netlink is aligned to.
pub fn align(length: usize) -> usize {
    (length + 3) & !3
}

/// Whether the kernel changes something by a request: its kind is in the two low bits of the type of all
/// messages of rtnetlink (new, delete, get, set).
pub fn is_change(message: &[u8]) -> bool {
    read_u16(message, 4).is_some_and(|kind| kind < ASK_DRIVER && kind & 3 != RTM_GETLINK & 3)
}

/// The native-endian number at `at`, if it is there.
#[inline]
pub fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// The native-endian number at `at`, if it is there.
#[inline]
pub fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// The native-endian number at `at`, if it is there.
#[inline]
pub fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// One message being written. Values longer than an attribute can hold (65531 bytes) are the caller's mistake.
pub struct Builder {
    bytes: Vec<u8>,
}

impl Builder {
    /// A message of this type from user space; sequence number and length are filled in.
    pub fn new(kind: u16, flags: u16, seq: u32) -> Builder {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend_from_slice(&0u32.to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&seq.to_ne_bytes());
        bytes.extend_from_slice(&0u32.to_ne_bytes());
        Builder { bytes }
    }

    /// Raw payload, padded to 4 bytes.
    pub fn payload(mut self, payload: &[u8]) -> Builder {
        self.bytes.extend_from_slice(payload);
        self.pad();
        self
    }

    /// `struct ifinfomsg` of family AF_UNSPEC with all zero but the index.
    #[cfg(test)]
    pub fn ifinfo(self, ifindex: u32) -> Builder {
        let mut info = [0u8; IFINFO];
        info[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        self.payload(&info)
    }

    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Builder {
        debug_assert!(value.len() <= usize::from(u16::MAX) - 4);
        self.bytes.extend_from_slice(&(value.len() as u16 + 4).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.pad();
        self
    }

    #[cfg(test)]
    pub fn u32(self, kind: u16, value: u32) -> Builder {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Text with the NUL that the kernel wants at its end.
    pub fn text(self, kind: u16, value: &[u8]) -> Builder {
        let mut value = value.to_vec();
        value.push(0);
        self.attribute(kind, &value)
    }

    /// The finished message.
    pub fn finish(mut self) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes
    }

    fn pad(&mut self) {
        self.bytes.resize(align(self.bytes.len()), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_walked_again() {
        let mut datagram =
            Builder::new(RTM_NEWLINK, NLM_F_MULTIPART, 7).ifinfo(3).text(IFLA_IFNAME, b"veth0").finish();
        datagram.extend(Builder::new(NLMSG_DONE, NLM_F_MULTIPART, 7).payload(&[0; 4]).finish());
        let frames: Vec<Frame> = frames(&datagram).collect::<Result<_, _>>().unwrap();
        assert_eq!(frames.len(), 2);
        assert_eq!((frames[0].kind, frames[0].flags, frames[0].seq), (RTM_NEWLINK, NLM_F_MULTIPART, 7));
        assert_eq!(read_u32(frames[0].payload, 4), Some(3));
        let attributes: Vec<_> = attributes(&frames[0].payload[IFINFO..]).collect();
        assert_eq!(attributes, [Ok((IFLA_IFNAME, b"veth0\0".as_slice()))]);
        assert_eq!((frames[1].kind, frames[1].payload), (NLMSG_DONE, [0u8; 4].as_slice()));
    }

    #[test]
    fn lengths_that_do_not_fit_end_the_walk() {
        let good = Builder::new(RTM_NEWLINK, 0, 1).ifinfo(3).text(IFLA_IFNAME, b"a").finish();
        for length in [0u32, 15, good.len() as u32 + 1, u32::MAX] {
            let mut bad = good.clone();
            bad[..4].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(frames(&bad).collect::<Vec<_>>(), [Err(Malformed)], "{length}");
        }
        for length in [0u16, 3, 9, u16::MAX] {
            let mut bad = good[HEADER + IFINFO..].to_vec();
            bad[..2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(attributes(&bad).collect::<Vec<_>>(), [Err(Malformed)], "{length}");
        }
        assert_eq!(frames(&[1, 2, 3]).collect::<Vec<_>>(), [Err(Malformed)]);
    }
}
