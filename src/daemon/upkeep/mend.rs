//! When `/run/udev` or a part of it was removed or renamed under us, or another is in its place: what is missing is
//! made anew.
//!
//! Must stay true: one message, not one for each write that fails; the write that found a folder gone is done again
//! and does not fail; afterwards clients find sockets, queue file and records where they look for them. The records
//! are gone, so every device is looked at once more.

use super::super::sources::control::{self, Control};
use super::super::sources::status::{self, StatusServer};
use super::super::work::Work;
use std::io;

/// The sockets where clients look for us; None where there is nobody to serve.
type Servers<'a> = (Option<&'a mut Control>, Option<&'a mut StatusServer>);

/// See the module.
#[derive(Debug, Default)]
pub struct Mender {
    /// `/run/udev` was removed and could not be made anew: said once.
    is_stuck: bool,
}

impl Mender {
    /// Whether something is gone that could not be made anew yet.
    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// Makes anew what is not a matter of the stores, if something in `/run/udev` was found gone. Whether it was made
    /// anew: then all devices are to be looked at.
    pub(crate) fn mend(&mut self, work: &mut Work, servers: Servers) -> bool {
        let is_missed = work.queue_file.take_failure() | work.stores.watches.take_missing();
        if is_missed && work.stores.mended.is_none() {
            work.stores.mend_folders();
        }
        let Some(mended) = work.stores.mended.take() else { return false };
        let path = work.roots.run.join("udev");
        match mended.and_then(|()| serve_run_folder(work, servers)) {
            Ok(()) => {
                log::error!(
                    "{} was removed or replaced: what is missing is made anew, all devices are triggered",
                    path.display()
                );
                self.is_stuck = false;
                return true;
            }
            Err(error) if !self.is_stuck => {
                log::error!("{} was removed or replaced and cannot be made anew: {error}", path.display());
                self.is_stuck = true;
            }
            Err(_) => {}
        }
        false
    }
}

/// Queue file and sockets.
fn serve_run_folder(work: &mut Work, (control, status): Servers) -> io::Result<()> {
    work.queue_file.forget();
    work.mark_queue();
    let folder = work.roots.run.join("udev");
    // Where somebody listens it is we, or another daemon. An older socket may have come back to light.
    let listen = |name: &str| match control::listen(&folder.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        listener => listener.map(Some),
    };
    if let Some(server) = control
        && let Some(listener) = listen("control")?
    {
        server.listen_at(listener, &work.sources)?;
    }
    if let Some(server) = status
        && let Some(listener) = listen(status::SOCKET)?
    {
        server.listen_at(listener, &work.sources)?;
    }
    Ok(())
}
