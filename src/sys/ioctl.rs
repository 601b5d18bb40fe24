//! ioctls on block devices and network interfaces.

use bstr::BString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// linux/fs.h, `_IO(0x12, 93)`.
const BLKROSET: libc::c_ulong = 0x125d;
/// linux/fs.h, `_IO(0x12, 95)`.
const BLKRRPART: libc::c_ulong = 0x125f;
/// linux/sockios.h.
const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// linux/ethtool.h.
const ETHTOOL_GDRVINFO: u32 = 0x03;
/// linux/ethtool.h.
const ETHTOOL_GPERMADDR: u32 = 0x20;
/// linux/netdevice.h, MAX_ADDR_LEN.
const ADDRESS_MAX: usize = 32;

/// `struct ethtool_drvinfo` of linux/ethtool.h; only the first two fields matter here.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// `struct ethtool_perm_addr` of linux/ethtool.h with room for any address.
#[repr(C)]
struct PermanentAddress {
    command: u32,
    size: u32,
    data: [u8; ADDRESS_MAX],
}

/// `struct ifreq` of linux/if.h with the pointer of its union.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    data: *mut libc::c_void,
    rest: [u8; 16],
}

/// BLKROSET: makes a block device read-only or writable again.
pub fn set_read_only(disk: BorrowedFd, read_only: bool) -> io::Result<()> {
    let value = libc::c_int::from(read_only);
    // SAFETY: the kernel reads one int through the pointer.
    let result = unsafe { libc::ioctl(disk.as_raw_fd(), BLKROSET as _, &raw const value) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// BLKRRPART: has the kernel read the partition table again. It waits for the disk.
pub fn reread_partitions(disk: BorrowedFd) -> io::Result<()> {
    // SAFETY: no memory is involved.
    let result = unsafe { libc::ioctl(disk.as_raw_fd(), BLKRRPART as _, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A socket for [`driver_of`] and [`permanent_address_of`]: any kind will do, this one is in every kernel.
pub fn interface_socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved; the new descriptor is ours.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// SIOCETHTOOL with ETHTOOL_GDRVINFO: name of the driver of an interface. It takes RTNL and calls the
/// driver, so it may wait. EOPNOTSUPP if the driver does not tell, ENODEV if there is no such
/// interface, EINVAL if the text cannot be the name of one.
pub fn driver_of(socket: BorrowedFd, interface: &[u8]) -> io::Result<BString> {
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    // SAFETY: DriverInfo is as large as the kernel's struct.
    unsafe { ethtool(socket, interface, (&raw mut info).cast()) }?;
    let end = info.driver.iter().position(|&b| b == 0).unwrap_or(info.driver.len());
    Ok(info.driver[..end].into())
}

/// SIOCETHTOOL with ETHTOOL_GPERMADDR: the address that the hardware came with; empty if there is none.
/// It takes RTNL, so it may wait. Errors are those of [`driver_of`].
pub fn permanent_address_of(socket: BorrowedFd, interface: &[u8]) -> io::Result<BString> {
    let size = ADDRESS_MAX as u32;
    let mut answer = PermanentAddress { command: ETHTOOL_GPERMADDR, size, data: [0; ADDRESS_MAX] };
    // SAFETY: the kernel writes `size` bytes of data at most.
    unsafe { ethtool(socket, interface, (&raw mut answer).cast()) }?;
    let address = &answer.data[..ADDRESS_MAX.min(answer.size as usize)];
    Ok(if address.iter().all(|&b| b == 0) { BString::default() } else { address.into() })
}

/// SIOCETHTOOL on an interface by its name.
///
/// # Safety
///
/// `data` points to the whole struct of the command that it begins with.
unsafe fn ethtool(socket: BorrowedFd, interface: &[u8], data: *mut libc::c_void) -> io::Result<()> {
    let mut request = InterfaceRequest { name: [0; libc::IFNAMSIZ], data, rest: [0; 16] };
    if interface.is_empty() || interface.len() >= request.name.len() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    request.name[..interface.len()].copy_from_slice(interface);
    // SAFETY: the request lives until the call returns and is at least as large as the kernel's struct; so
    // is the caller's.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_structs_are_as_large_as_the_kernels() {
        assert_eq!(size_of::<DriverInfo>(), 196);
        assert_eq!(size_of::<PermanentAddress>(), 8 + 32);
        assert!(size_of::<InterfaceRequest>() >= size_of::<libc::ifreq>());
    }

    #[test]
    fn an_interface_without_driver_and_one_that_is_not_there_are_told_apart() {
        let socket = interface_socket().unwrap();
        let errno = |name: &[u8]| driver_of(socket.as_fd(), name).unwrap_err().raw_os_error().unwrap();
        assert_eq!(errno(b"mudev-none"), libc::ENODEV);
        assert_eq!(errno(b"a-name-that-is-too-long"), libc::EINVAL);
        assert_eq!(errno(b""), libc::EINVAL);
        assert_eq!(errno(b"lo"), libc::EOPNOTSUPP);
    }

    #[test]
    fn an_interface_without_hardware_has_no_permanent_address() {
        let socket = interface_socket().unwrap();
        assert_eq!(permanent_address_of(socket.as_fd(), b"lo").unwrap(), "");
        let error = permanent_address_of(socket.as_fd(), b"mudev-none").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn what_is_no_disk_refuses_the_ioctls_of_disks() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(reread_partitions(file.as_fd()).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        assert_eq!(set_read_only(file.as_fd(), true).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    }
}
