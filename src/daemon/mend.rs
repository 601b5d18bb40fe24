//! When `/run/udev` was removed under us: it is made anew.
//!
//! Must stay true: one message, not one for each write that fails; afterwards clients find sockets,
//! queue file and records where they look for them. The records are gone, so every device is looked at
//! once more.

use super::control;
use super::shell::Shell;
use super::status;
use super::task::World;
use crate::world::claims_dir::ClaimsDir;
use crate::world::database::{self, Database, Records};
use crate::world::watch_dir::WatchDir;
use std::io;

impl World {
    /// Opens `/run/udev` again, making what is missing. Of what was there nothing is known any more.
    fn reopen(&mut self) -> io::Result<()> {
        let roots = &self.answers.roots;
        let udev = database::open_udev_dir(&roots.run)?;
        self.database = Database::open(&udev)?;
        let mut claims = ClaimsDir::open(&roots.dev, &udev)?;
        for error in claims.load(self.database.records(), &self.answers.sysfs)? {
            log::warn!("{error}");
        }
        self.claims = claims;
        self.answers.set_records(Records::open(&roots.run).ok());
        Ok(())
    }
}

impl Shell {
    /// Makes `/run/udev` anew if something in it could not be written because it is gone.
    pub(super) fn mend_run_folder(&mut self) {
        if !std::mem::take(&mut self.world.folder_is_gone) && !self.queue_file.take_failure() {
            return;
        }
        let path = self.roots.run.join("udev");
        match self.reopen_run_folder() {
            Ok(()) => {
                log::error!("{} was removed: it is made anew, all devices are triggered", path.display());
                self.is_unmendable = false;
                self.look_at_all_devices();
            }
            Err(error) if !self.is_unmendable => {
                log::error!("{} was removed and cannot be made anew: {error}", path.display());
                self.is_unmendable = true;
            }
            Err(_) => {}
        }
    }

    fn reopen_run_folder(&mut self) -> io::Result<()> {
        self.world.reopen()?;
        let udev = database::open_udev_dir(&self.roots.run)?;
        self.world.watches.set_dir(WatchDir::open(&udev)?);
        self.queue_file.forget();
        self.mark_queue();
        let folder = self.roots.run.join("udev");
        let listen = |name: &str| {
            let path = folder.join(name);
            if path.exists() { Ok(None) } else { control::listen(&path).map(Some) }
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
