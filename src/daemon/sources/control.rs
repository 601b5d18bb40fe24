//! Clients of the classic control protocol (`udevadm control`, `settle`, other udevs' tools). The
//! protocol itself is [`crate::model::control`]; here are its sockets.
//!
//! Must stay true: only root is heard, by the credentials of the connection and of every message; a
//! client that waits is let go when all uevents that were readable are in the queue; a client that never
//! stops sending holds up nobody.

use super::listener::Listener;
use super::source::{Source, Sources};
use crate::model::Now;
use crate::model::control::{ClientAction, Connection, DATAGRAM_LEN, Message};
use crate::sys::unix::{self, Credentials};
use crate::world::quota;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Clients at one time; more are turned away.
const MAX_CLIENTS: usize = 256;

/// Messages of one client in one turn.
const MAX_MESSAGES: usize = 64;

/// How long a daemon that is told to start waits for another to be gone, and how often it looks.
const FAREWELL: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(10);

struct Client {
    socket: OwnedFd,
    /// It was accepted without an eye to who sends: a message whose sender the kernel does not know was
    /// sent before that was mended.
    is_early: bool,
    /// It has asked for a reload, and waits for the end of that too.
    wants_reload: bool,
    connection: Connection,
}

/// See the module.
pub struct Control {
    listener: Listener,
    clients: HashMap<u64, Client>,
    next_id: u64,
    /// Clients that have sent more than one turn's share.
    unread: Vec<u64>,
}

impl Control {
    /// Serves a listening socket.
    pub fn new(listener: OwnedFd, sources: &Sources) -> io::Result<Control> {
        unix::set_nonblocking(listener.as_fd())?;
        // Connections inherit this. Set on them alone, it would come too late for a message that is sent
        // between their acceptance and that call: the kernel would then say that nobody sent it.
        // A passed socket (socket activation) may come without.
        unix::pass_credentials(listener.as_fd(), true)?;
        let listener = Listener::new(listener, Source::Control, sources)?;
        Ok(Control { listener, clients: HashMap::new(), next_id: 0, unread: Vec::new() })
    }

    /// Listens at another socket from now on; clients stay.
    pub(crate) fn listen_at(&mut self, listener: OwnedFd, sources: &Sources) -> io::Result<()> {
        self.listener = Listener::new(listener, Source::Control, sources)?;
        Ok(())
    }

    /// Where clients connect.
    pub(crate) fn listener(&self) -> &Listener {
        &self.listener
    }

    /// Number of clients.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Takes all that want to connect.
    pub(crate) fn accept(&mut self, sources: &Sources, now: Now) -> Vec<u64> {
        let mut accepted = Vec::new();
        while let Some(socket) = self.listener.accept(now) {
            if !is_root(&socket) {
                log::warn!(target: quota::CLIENTS, "A client that is not root was turned away");
                continue;
            }
            if self.clients.len() >= MAX_CLIENTS {
                log::warn!(target: quota::CLIENTS, "Too many clients, one was turned away");
                continue;
            }
            match self.admit(socket, sources) {
                Ok(id) => accepted.push(id),
                Err(error) => log::warn!(target: quota::CLIENTS, "Cannot serve a client: {error}"),
            }
        }
        accepted
    }

    /// Takes a connection of root as a client.
    ///
    /// Who connected before the socket was ours may, since Linux 6.16, not have inherited that credentials
    /// are passed. Of what it sends between its acceptance and this call no sender is known; then it is
    /// the one who connected.
    fn admit(&mut self, socket: OwnedFd, sources: &Sources) -> io::Result<u64> {
        let is_early = !unix::passes_credentials(socket.as_fd())?;
        unix::pass_credentials(socket.as_fd(), true)?;
        let id = self.next_id;
        sources.add(socket.as_fd(), Source::Client(id))?;
        self.next_id += 1;
        self.clients
            .insert(id, Client { socket, is_early, wants_reload: false, connection: Connection::new() });
        Ok(id)
    }

    /// Whether there is more to read than one turn's share.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Clients that have sent more than one turn's share.
    pub(crate) fn take_unread(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.unread)
    }

    /// Reads what a client has sent, or this turn's share of it.
    pub(crate) fn read(&mut self, id: u64) -> Vec<ClientAction> {
        let mut actions = Vec::new();
        // One byte more than a datagram, so that a longer one shows.
        let mut buffer = [0; DATAGRAM_LEN + 1];
        for _ in 0..MAX_MESSAGES {
            let Some(client) = self.clients.get_mut(&id) else { return actions };
            match unix::receive(client.socket.as_fd(), &mut buffer) {
                Ok(received) if received.len == 0 => {
                    actions.push(client.connection.on_eof());
                    self.clients.remove(&id);
                }
                Ok(received) => {
                    let sender = received.credentials;
                    let by_connection = client.is_early && sender == Some(Credentials::UNKNOWN);
                    let sender = if by_connection { peer(&client.socket) } else { sender };
                    let uid = sender.map(|sender| sender.uid);
                    let more = client.connection.on_datagram(&buffer[..received.len], uid);
                    client.wants_reload |= more.contains(&ClientAction::Do(Message::Reload));
                    if more.contains(&ClientAction::Close) {
                        self.clients.remove(&id);
                    }
                    actions.extend(more);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return actions,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => drop(self.clients.remove(&id)),
            }
        }
        self.unread.push(id);
        actions
    }

    /// Lets those go that waited for this; those that have asked for a reload not before it is over.
    pub(crate) fn on_idle(&mut self, is_reloading: bool) {
        let waits = |client: &Client| is_reloading && client.wants_reload;
        self.clients.retain(|_, client| waits(client) || !client.connection.on_idle());
    }
}

/// Whether root is at the other end.
pub(crate) fn is_root(socket: &OwnedFd) -> bool {
    peer(socket).is_some_and(|peer| peer.uid == 0)
}

/// Who connected.
fn peer(socket: &OwnedFd) -> Option<Credentials> {
    unix::peer_credentials(socket.as_fd()).ok()
}

/// A listening socket that only root can connect to; one that an earlier daemon left is replaced. If one
/// still listens there, AddrInUse: two daemons would undo each other's work.
pub fn listen(path: &Path) -> io::Result<OwnedFd> {
    use std::os::unix::fs::PermissionsExt;
    let socket = match unix::listen_seqpacket(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            // Who takes nobody, or speaks another protocol (a stream socket), listens too.
            let other = match unix::connect_seqpacket_within(path, Duration::ZERO) {
                Ok(other) => peer(&other).map(|listener| listener.pid),
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                    std::fs::remove_file(path)?;
                    None
                }
                Err(_) => Some(0),
            };
            if let Some(pid) = other {
                let pid = if pid > 0 { pid.to_string() } else { "?".to_owned() };
                let text = format!("another daemon (pid {pid}) listens there");
                return Err(io::Error::new(error.kind(), text));
            }
            unix::listen_seqpacket(path)?
        }
        other => other?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

/// As [`listen`], for the start, where waiting does no harm. The socket of a daemon that was killed stays as
/// long as the last process that it had just begun to start, which is a moment after its own end.
pub(crate) fn listen_when_free(path: &Path) -> io::Result<OwnedFd> {
    let end = Instant::now() + FAREWELL;
    loop {
        match listen(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                std::thread::sleep(LOOK);
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::control::{Datagram, VERSION_B};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn clients_are_served_in_parallel_and_closed_when_idle() {
        if !crate::sys::process::is_root() {
            println!("only root is served, and we are not root: nothing to test");
            return;
        }
        let path = std::env::temp_dir().join(format!("mudev-control-{}", std::process::id()));
        std::fs::write(&path, "stale").unwrap();
        let poll = mio::Poll::new().unwrap();
        let sources = Sources::new(&poll).unwrap();
        let mut control = Control::new(listen(&path).unwrap(), &sources).unwrap();
        let connect = || unix::connect_seqpacket(&path).unwrap();
        let (first, second, silent) = (connect(), connect(), connect());
        let send = |socket: &OwnedFd, message| {
            let datagram = Datagram { version: VERSION_B.into(), message };
            unix::send(socket.as_fd(), &datagram.render().unwrap()).unwrap();
        };
        send(&second, Message::Ping);
        send(&second, Message::End);
        send(&first, Message::Reload);
        let ids = control.accept(&sources, Now::ZERO);
        let actions: Vec<_> = ids.iter().map(|&id| control.read(id)).collect();
        assert_eq!(actions[0], [ClientAction::Do(Message::Reload)]);
        assert_eq!(actions[1], [ClientAction::WaitForIdle]);
        control.on_idle(false);
        assert_eq!(control.clients(), 2, "the one that waited is let go");
        let mut buffer = [0; 8];
        assert_eq!(unix::receive(second.as_fd(), &mut buffer).unwrap().len, 0);
        drop(silent);
        assert_eq!(control.read(ids[2]), [ClientAction::Close]);
        unix::send(first.as_fd(), b"short").unwrap();
        assert!(control.read(ids[0]).contains(&ClientAction::Close));
        assert_eq!(control.clients(), 0);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_socket_is_replaced_unless_somebody_listens() {
        let path = std::env::temp_dir().join(format!("mudev-twice-{}", std::process::id()));
        let first = listen(&path).unwrap();
        let error = listen(&path).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (io::ErrorKind::AddrInUse, format!("another daemon (pid {}) listens there", std::process::id()))
        );
        let last = std::thread::spawn(move || {
            std::thread::sleep(5 * LOOK);
            drop(first);
        });
        assert!(listen_when_free(&path).is_ok(), "it is gone in a moment");
        last.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn who_sent_a_message_is_known_however_close_to_the_acceptance_it_was_sent() {
        if !crate::sys::process::is_root() {
            println!("only root is served, and we are not root: nothing to test");
            return;
        }
        let path = std::env::temp_dir().join(format!("mudev-early-{}", std::process::id()));
        let poll = mio::Poll::new().unwrap();
        let sources = Sources::new(&poll).unwrap();
        let mut control = Control::new(listen(&path).unwrap(), &sources).unwrap();
        const CLIENTS: usize = 200;
        let heard = AtomicUsize::new(0);
        let mut refused = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let datagram = Datagram { version: VERSION_B.into(), message: Message::Reload };
                for n in 0..CLIENTS {
                    let client = unix::connect_seqpacket(&path).unwrap();
                    unix::send(client.as_fd(), &datagram.render().unwrap()).unwrap();
                    // One after another: too many at once are turned away.
                    while heard.load(Ordering::Acquire) <= n {
                        std::thread::yield_now();
                    }
                }
            });
            while heard.load(Ordering::Acquire) < CLIENTS {
                control.accept(&sources, Now::ZERO);
                let ids: Vec<u64> = control.clients.keys().copied().collect();
                for action in ids.into_iter().flat_map(|id| control.read(id)) {
                    if !matches!(action, ClientAction::Close) {
                        heard.fetch_add(1, Ordering::AcqRel);
                    }
                    refused += usize::from(matches!(action, ClientAction::Report(_)));
                }
                control.on_idle(false);
            }
        });
        assert_eq!(refused, 0, "messages whose sender was not known");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn who_connected_before_credentials_were_asked_for_is_heard() {
        if !crate::sys::process::is_root() {
            println!("only root is served, and we are not root: nothing to test");
            return;
        }
        let path = std::env::temp_dir().join(format!("mudev-passed-{}", std::process::id()));
        let listener = unix::listen_seqpacket(&path).unwrap();
        unix::pass_credentials(listener.as_fd(), false).unwrap();
        let client = unix::connect_seqpacket(&path).unwrap();
        let poll = mio::Poll::new().unwrap();
        let sources = Sources::new(&poll).unwrap();
        let mut control = Control::new(listener, &sources).unwrap();
        let reload = Datagram { version: VERSION_B.into(), message: Message::Reload }.render().unwrap();
        let send = || unix::send(client.as_fd(), &reload).unwrap();
        send();
        let socket = control.listener.accept(Now::ZERO).unwrap();
        // The moment that matters: accepted, and nobody has asked for credentials yet.
        send();
        let id = control.admit(socket, &sources).unwrap();
        send();
        assert_eq!(control.read(id), vec![ClientAction::Do(Message::Reload); 3]);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_client_that_floods_gets_its_share_of_a_turn() {
        if !crate::sys::process::is_root() {
            println!("only root is served, and we are not root: nothing to test");
            return;
        }
        let path = std::env::temp_dir().join(format!("mudev-flood-{}", std::process::id()));
        let poll = mio::Poll::new().unwrap();
        let sources = Sources::new(&poll).unwrap();
        let mut control = Control::new(listen(&path).unwrap(), &sources).unwrap();
        let client = unix::connect_seqpacket(&path).unwrap();
        let ping = Datagram { version: VERSION_B.into(), message: Message::Ping }.render().unwrap();
        (0..MAX_MESSAGES + 3).for_each(|_| unix::send(client.as_fd(), &ping).unwrap());
        let ids = control.accept(&sources, Now::ZERO);
        let read = |control: &mut Control| {
            control.unread.clear();
            control.read(ids[0]);
            control.has_unread()
        };
        assert!(read(&mut control));
        assert!(!read(&mut control), "the rest is less than a share");
        std::fs::remove_file(&path).unwrap();
    }
}
