//! When `/run/udev` or a part of it was removed or renamed under us, or another is in its place: what is missing is
//! made anew.
//!
//! Must stay true: one message, not one for each write that fails; the write that found a folder gone is done again
//! and does not fail; afterwards clients find sockets, queue file and records where they look for them. The records
//! are gone, so every device is looked at once more.

use super::super::shell::Shell;
use super::super::sources::control;
use super::super::sources::status;
use std::io;

impl Shell {
    /// Makes anew what is not a matter of the stores, if something in `/run/udev` was found gone.
    pub(crate) fn mend_run_folder(&mut self) {
        let is_missed = self.queue_file.take_failure() | self.stores.watches.take_missing();
        if is_missed && self.stores.mended.is_none() {
            self.stores.mend_folders();
        }
        let Some(mended) = self.stores.mended.take() else { return };
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
