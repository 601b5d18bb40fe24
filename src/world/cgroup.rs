//! The control group that a service manager has put us into, and the other processes in it.
//!
//! Must stay true: only a group that was made for udev alone is looked at (its name is `udev`, as
//! DelegateSubgroup= of the service file says): the other processes of any other group are none of our business.

use super::Roots;
use std::path::PathBuf;

/// Our own group.
#[derive(Debug)]
pub struct OwnGroup {
    /// `cgroup.procs` of the group.
    members: PathBuf,
    proc: PathBuf,
}

impl OwnGroup {
    /// None if we are in no group of our own.
    pub fn find(roots: &Roots) -> Option<OwnGroup> {
        let text = std::fs::read_to_string(roots.proc.join("self/cgroup")).ok()?;
        let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let is_ours = path == "udev" || path.ends_with("/udev");
        let members = roots.sys.join("fs/cgroup").join(path).join("cgroup.procs");
        is_ours.then(|| OwnGroup { members, proc: roots.proc.clone() })
    }

    /// Members that are neither we nor our children: what programs have left in the background.
    pub fn strangers(&self, ourselves: u32) -> Vec<u32> {
        let text = std::fs::read_to_string(&self.members).unwrap_or_default();
        let members = text.lines().filter_map(|line| line.parse().ok());
        members
            .filter(|&pid| pid != ourselves && self.parent(pid).is_some_and(|parent| parent != ourselves))
            .collect()
    }

    /// Parent of a process (proc(5), stat); None if it is gone. 0 for one of another namespace.
    fn parent(&self, pid: u32) -> Option<u32> {
        let stat = std::fs::read(self.proc.join(pid.to_string()).join("stat")).ok()?;
        // The name stands in parentheses and may contain anything.
        let behind = stat.iter().rposition(|&b| b == b')')? + 1;
        let text = std::str::from_utf8(&stat[behind..]).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tree::Tree;

    #[test]
    fn only_a_group_named_udev_is_ours() {
        for (text, is_ours) in [
            ("0::/system.slice/systemd-udevd.service/udev\n", true),
            ("12:pids:/x\n0::/udev\n", true),
            ("0::/system.slice/systemd-udevd.service\n", false),
            ("0::/user.slice/noudev\n", false),
            ("0::/\n", false),
            ("", false),
        ] {
            let tree = Tree::new();
            tree.file("proc/self/cgroup", text);
            assert_eq!(OwnGroup::find(&tree.roots()).is_some(), is_ours, "{text}");
        }
    }

    #[test]
    fn members_that_are_no_children_of_ours_are_strangers() {
        let tree = Tree::new();
        tree.file("proc/self/cgroup", "0::/a/udev\n")
            .file("sys/fs/cgroup/a/udev/cgroup.procs", "10\n11\n12\n13\n14\n")
            .file("proc/10/stat", "10 (mudevd) S 1 10")
            .file("proc/11/stat", "11 (mudev-helper) S 10 10")
            .file("proc/12/stat", "12 (a) b) (c) S 1 12")
            .file("proc/14/stat", "14 (sleep) S 12 12");
        assert_eq!(OwnGroup::find(&tree.roots()).unwrap().strangers(10), [12, 14]);
    }
}
