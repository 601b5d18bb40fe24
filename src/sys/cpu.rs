//! What processor and kernel say of themselves.

use bstr::BString;

/// Machine name of the kernel (uname -m), such as `x86_64`; empty if it does not say.
pub fn machine() -> BString {
    // SAFETY: utsname is plain data that the kernel fills; all-zero is valid.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: as above. On failure the zeroes stay.
    unsafe { libc::uname(&mut names) };
    names.machine.iter().map(|&c| c as u8).take_while(|&b| b != 0).collect::<Vec<u8>>().into()
}

/// CPUID: registers eax, ebx, ecx, edx of a leaf (sub-leaf 0); None on other processors.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
pub fn cpuid(number: u32) -> Option<[u32; 4]> {
    #[cfg(target_arch = "x86")]
    use std::arch::x86::__cpuid;
    #[cfg(target_arch = "x86_64")]
    use std::arch::x86_64::__cpuid;
    // SAFETY: every processor that runs Rust's x86 targets has the instruction.
    #[allow(unused_unsafe)]
    let r = unsafe { __cpuid(number) };
    Some([r.eax, r.ebx, r.ecx, r.edx])
}

/// CPUID: registers eax, ebx, ecx, edx of a leaf (sub-leaf 0); None on other processors.
#[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
pub fn cpuid(_number: u32) -> Option<[u32; 4]> {
    None
}
