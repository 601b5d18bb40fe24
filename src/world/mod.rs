//! Answers asks and applies effects under movable roots. Nothing outside this module and main knows
//! an absolute path.

pub mod sysfs;
#[cfg(test)]
pub mod tree;

pub use sysfs::Sysfs;

use std::path::PathBuf;

/// Where the system stands; tests and people may move each of them (`--sys-dir` and so on).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    pub sys: PathBuf,
    pub dev: PathBuf,
    /// `/run`; ours is `run/udev` below it.
    pub run: PathBuf,
    pub proc: PathBuf,
    pub etc: PathBuf,
    /// `/usr/lib`, for vendor files; not movable by option, but by tests.
    pub lib: PathBuf,
    pub local_lib: PathBuf,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots {
            sys: "/sys".into(),
            dev: "/dev".into(),
            run: "/run".into(),
            proc: "/proc".into(),
            etc: "/etc".into(),
            lib: "/usr/lib".into(),
            local_lib: "/usr/local/lib".into(),
        }
    }
}

impl Roots {
    /// Whether sysfs is the real one, so that link attributes may come from the link table.
    pub fn sys_is_real(&self) -> bool {
        self.sys == std::path::Path::new("/sys")
    }
}
