//! The clocks.

use crate::model::Now;
use std::time::Duration;

/// CLOCK_MONOTONIC: the time since boot, without the time the machine was suspended. It is what
/// `USEC_INITIALIZED` counts.
pub fn monotonic() -> Now {
    Now::after_boot(clock(libc::CLOCK_MONOTONIC))
}

/// CLOCK_THREAD_CPUTIME_ID: the time that this thread has had a processor, to the nanosecond; getrusage may count it
/// in ticks.
pub fn thread_cpu() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// One of the two clocks above.
fn clock(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec of ours; with these clocks it cannot fail.
    unsafe { libc::clock_gettime(clock, &mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// What this thread has used of the machine since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUse {
    /// Time on a processor, its own and the kernel's for it.
    pub cpu: Duration,
    /// How often it has given its processor away because it had to wait.
    pub waits: u64,
    /// How often it has waited for a page that had to be read in.
    pub major_faults: u64,
}

/// See [`ThreadUse`]; getrusage(2) with RUSAGE_THREAD.
pub fn thread_use() -> ThreadUse {
    // SAFETY: rusage is plain data, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one rusage of ours; with this argument it cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    let time = |t: libc::timeval| {
        Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_usec).unwrap_or(0) * 1000)
    };
    ThreadUse {
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        waits: u64::try_from(usage.ru_nvcsw).unwrap_or(0),
        major_faults: u64::try_from(usage.ru_majflt).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn time_does_not_go_back() {
        let before = super::monotonic();
        assert!(super::monotonic() >= before && before > super::Now::ZERO);
    }

    #[test]
    fn a_thread_has_a_processor_for_no_longer_than_time_passes() {
        let (began, before) = (super::monotonic(), super::thread_cpu());
        std::thread::sleep(std::time::Duration::from_millis(20));
        let used = super::thread_cpu() - before;
        assert!(!used.is_zero() && used < super::monotonic().since(began));
    }

    #[test]
    fn sleeping_is_waiting() {
        let before = super::thread_use();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(super::thread_use().waits > before.waits);
    }
}
