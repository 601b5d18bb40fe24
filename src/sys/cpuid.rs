//! The CPUID instruction of x86, for telling hypervisors apart.

/// Registers eax, ebx, ecx, edx of a leaf (sub-leaf 0); None on other processors.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
pub fn leaf(number: u32) -> Option<[u32; 4]> {
    #[cfg(target_arch = "x86")]
    use std::arch::x86::__cpuid;
    #[cfg(target_arch = "x86_64")]
    use std::arch::x86_64::__cpuid;
    // SAFETY: every processor that runs Rust's x86 targets has the instruction.
    #[allow(unused_unsafe)]
    let r = unsafe { __cpuid(number) };
    Some([r.eax, r.ebx, r.ecx, r.edx])
}

/// Registers eax, ebx, ecx, edx of a leaf (sub-leaf 0); None on other processors.
#[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
pub fn leaf(_number: u32) -> Option<[u32; 4]> {
    None
}
