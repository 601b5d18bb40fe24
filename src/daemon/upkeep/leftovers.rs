//! Processes that programs of rules have left in the background (rules.md 10.3): ended when it has been
//! idle for a while, if the service manager has given us a control group of our own.

use crate::model::Now;
use crate::sys::process;
use crate::world::Roots;
use crate::world::cgroup::OwnGroup;
use std::time::Duration;

/// As long as udevd keeps its idle workers.
const PATIENCE: Duration = Duration::from_secs(3);

/// See the module.
pub struct Leftovers {
    group: Option<OwnGroup>,
    due: Option<Now>,
}

impl Leftovers {
    /// Looks for the group.
    pub fn new(roots: &Roots) -> Leftovers {
        Leftovers { group: OwnGroup::find(roots), due: None }
    }

    /// The queue became busy or idle.
    pub fn set_busy(&mut self, busy: bool, now: Now) {
        self.due = Some(now + PATIENCE).filter(|_| !busy && self.group.is_some());
    }

    /// When to call [`Leftovers::on_time`].
    pub fn timeout(&self) -> Option<Now> {
        self.due
    }

    /// Ends them, if it is time to.
    pub fn on_time(&mut self, now: Now) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = None;
        let Some(group) = &self.group else { return };
        for pid in group.strangers(std::process::id()) {
            log::info!("Ending process {pid}, which a program has left in the background");
            if let Err(error) = process::kill(pid, libc::SIGKILL) {
                log::debug!("Cannot end process {pid}: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tree::Tree;
    use std::process::Command;

    #[test]
    fn what_was_left_in_the_background_ends_after_a_while_and_children_do_not() {
        let mut child = Command::new("/bin/sleep").arg("1000").spawn().unwrap();
        let script = "sleep 1000 >/dev/null 2>&1 & echo $!";
        let output = Command::new("/bin/sh").args(["-c", script]).output().unwrap();
        let left: u32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        let tree = Tree::new();
        tree.file("self/cgroup", "0::/udev\n")
            .file("sys/fs/cgroup/udev/cgroup.procs", format!("{}\n{left}\n", child.id()));
        for pid in [left, child.id()] {
            tree.link(&format!("proc/{pid}"), &format!("/proc/{pid}"));
        }
        tree.link("proc/self", tree.path("self").to_str().unwrap());
        let is_alive = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        let second = Now::from_secs(1);
        let mut leftovers = Leftovers::new(&tree.roots());
        leftovers.set_busy(false, second);
        leftovers.set_busy(true, Now::from_secs(2));
        assert_eq!(leftovers.timeout(), None, "while it works nothing ends");
        leftovers.set_busy(false, Now::from_secs(3));
        leftovers.on_time(Now::from_secs(4));
        assert!(is_alive(left));
        leftovers.on_time(Now::from_secs(6));
        while is_alive(left) {
            std::thread::yield_now();
        }
        assert!(is_alive(child.id()) && leftovers.timeout().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
