//! Random bytes from the kernel.

use std::io;

/// Sixteen random bytes; waits only in the first moments of a boot, until the kernel has enough.
pub fn sixteen() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    // SAFETY: the buffer is as long as said; up to 256 bytes are always delivered whole (getrandom(2)).
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if n == bytes.len() as isize { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}
