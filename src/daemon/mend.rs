//! When `/run/udev` or a part of it was removed or renamed under us, or another is in its place: what is missing is
//! made anew.
//!
//! Must stay true: one message, not one for each write that fails; the write that found a folder gone is done again
//! and does not fail; afterwards clients find sockets, queue file and records where they look for them. The records
//! are gone, so every device is looked at once more.

use super::control;
use super::shell::Shell;
use super::status;
use super::task::World;
use super::watch::FolderChange;
use crate::world::database::{self, Records};
use crate::world::watch_dir::WatchDir;
use std::io;

impl World {
    /// Opens `/run/udev` again, making what is missing. Who claims which symlink is known further; of records and
    /// tags only what is there.
    fn reopen(&mut self) -> io::Result<()> {
        let roots = &self.answers.roots;
        let udev = database::open_udev_dir(&roots.run)?;
        self.database.reopen(&udev)?;
        self.claims.reopen(&udev)?;
        self.watches.set_dir(WatchDir::open(&udev)?);
        self.watches.watch_folders();
        self.answers.set_records(Records::open(&roots.run).ok());
        Ok(())
    }

    /// Makes anew what was found gone. Whether that succeeded; the loop does the rest after its work.
    pub(super) fn mend_folders(&mut self) -> bool {
        let mended = self.reopen();
        let is_mended = mended.is_ok();
        self.mended = Some(mended);
        is_mended
    }

    /// Writes something below `/run/udev`; once more if its folder was gone and could be made anew.
    pub(super) fn write_store(
        &mut self,
        mut write: impl FnMut(&mut World) -> io::Result<()>,
    ) -> io::Result<()> {
        match write(self) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.mend_folders() => write(self),
            result => result,
        }
    }

    /// Takes in what was removed below `/run/udev`, by whomever.
    pub(super) fn take_folder_changes(&mut self) {
        for change in self.watches.take_folder_changes() {
            match change {
                FolderChange::Moved => _ = self.mend_folders(),
                FolderChange::TagFolder(tag) => self.database.forget_tag_folder(tag.as_ref()),
                FolderChange::Tag { tag, id } => self.database.forget_tag(&tag, &id),
                FolderChange::Unknown => {
                    self.database.forget_tags();
                    self.mend_what_is_elsewhere();
                }
                FolderChange::Mounts => self.mend_what_is_elsewhere(),
            }
        }
    }

    fn mend_what_is_elsewhere(&mut self) {
        if !self.watches.are_folders_in_place() {
            self.mend_folders();
        }
    }

    /// Has the folders watched of tags that came up.
    pub(super) fn watch_new_tags(&mut self) {
        for tag in self.database.take_new_tags() {
            if self.watches.watch_tag(&tag) {
                self.database.trust_tag(tag);
            }
        }
    }
}

impl Shell {
    /// Makes anew what is not a matter of the world, if something in `/run/udev` was found gone.
    pub(super) fn mend_run_folder(&mut self) {
        let is_missed = self.queue_file.take_failure() | self.world.watches.take_missing();
        if is_missed && self.world.mended.is_none() {
            self.world.mend_folders();
        }
        let Some(mended) = self.world.mended.take() else { return };
        let path = self.roots.run.join("udev");
        match mended.and_then(|()| self.serve_run_folder()) {
            Ok(()) => {
                log::error!(
                    "{} was removed or replaced: what is missing is made anew, all devices are triggered",
                    path.display()
                );
                self.is_unmendable = false;
                self.look_at_all_devices();
            }
            Err(error) if !self.is_unmendable => {
                log::error!("{} was removed or replaced and cannot be made anew: {error}", path.display());
                self.is_unmendable = true;
            }
            Err(_) => {}
        }
    }

    /// Queue file and sockets.
    fn serve_run_folder(&mut self) -> io::Result<()> {
        self.queue_file.forget();
        self.mark_queue();
        let folder = self.roots.run.join("udev");
        // Where somebody listens it is we, or another daemon. An older socket may have come back to light.
        let listen = |name: &str| match control::listen(&folder.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
            listener => listener.map(Some),
        };
        if let Some(server) = &mut self.control
            && let Some(listener) = listen("control")?
        {
            server.listen_at(listener, &self.sources)?;
        }
        if let Some(server) = &mut self.status
            && let Some(listener) = listen(status::SOCKET)?
        {
            server.listen_at(listener, &self.sources)?;
        }
        Ok(())
    }
}
