//! A temporary tree for tests: roots of its own, removed when it is dropped.

use super::Roots;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub struct Tree {
    pub root: PathBuf,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::new()
    }
}

impl Tree {
    /// An empty tree.
    pub fn new() -> Tree {
        Tree::below(&std::env::temp_dir())
    }

    /// An empty tree in memory, where there is a usual place for it.
    pub fn in_memory() -> Tree {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Tree::below(memory) } else { Tree::new() }
    }

    fn below(folder: &Path) -> Tree {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = folder.join(format!("mudev-tree-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&root).expect("temporary folder");
        Tree { root: std::fs::canonicalize(root).expect("temporary folder") }
    }

    /// Roots that lie in it: `sys`, `dev`, `run`, `proc`, `etc`, `usr/lib`, `usr/local/lib`.
    pub fn roots(&self) -> Roots {
        let at = |name: &str| self.root.join(name);
        Roots {
            sys: at("sys"),
            dev: at("dev"),
            run: at("run"),
            proc: at("proc"),
            etc: at("etc"),
            lib: at("usr/lib"),
            local_lib: at("usr/local/lib"),
        }
    }

    /// Full path of something in the tree.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Creates a folder and those above it.
    pub fn dir(&self, path: &str) -> &Tree {
        std::fs::create_dir_all(self.path(path)).expect(path);
        self
    }

    /// Creates or overwrites a file and the folders above it.
    pub fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &Tree {
        self.above(path);
        std::fs::write(self.path(path), content).expect(path);
        self
    }

    /// Creates a symlink and the folders above it.
    pub fn link(&self, path: &str, target: &str) -> &Tree {
        self.above(path);
        symlink(target, self.path(path)).expect(path);
        self
    }

    /// Creates a FIFO and the folders above it.
    pub fn fifo(&self, path: &str) -> &Tree {
        self.above(path);
        let dir = crate::sys::fs::Dir::open(&self.root).expect("the tree");
        dir.make_node(path.as_bytes(), libc::S_IFIFO | 0o600, 0, 0).expect(path);
        self
    }

    /// Sets the mode of a file.
    pub fn mode(&self, path: &str, mode: u32) -> &Tree {
        std::fs::set_permissions(self.path(path), std::fs::Permissions::from_mode(mode)).expect(path);
        self
    }

    /// Content of a file.
    pub fn read(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.path(path)).expect(path)
    }

    fn above(&self, path: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("folders above");
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}
