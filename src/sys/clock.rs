//! The clocks.

use std::time::Duration;

/// CLOCK_MONOTONIC: the time since boot, without the time the machine was suspended. It is what
/// `USEC_INITIALIZED` counts and what [`crate::model::Now`] means.
pub fn monotonic() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec of ours; with this clock it cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    #[test]
    fn time_does_not_go_back() {
        let before = super::monotonic();
        assert!(super::monotonic() >= before && !before.is_zero());
    }
}
