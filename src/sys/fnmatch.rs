//! The C library's `fnmatch`, for tests only: the judge of our own patterns.

use std::ffi::CString;

/// `fnmatch(3)` with flags 0, or FNM_CASEFOLD. Panics on a NUL byte, which C strings cannot hold.
pub fn fnmatch(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    /// GNU extension, not in the libc crate for every target (fnmatch.h).
    const FNM_CASEFOLD: libc::c_int = 1 << 4;
    let pattern = CString::new(pattern).expect("no NUL in the pattern");
    let text = CString::new(text).expect("no NUL in the text");
    let flags = if ignore_case { FNM_CASEFOLD } else { 0 };
    // SAFETY: both are NUL-terminated and live until the call returns.
    unsafe { libc::fnmatch(pattern.as_ptr(), text.as_ptr(), flags) == 0 }
}
