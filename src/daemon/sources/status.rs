//! What `mudevadm status` and `mudevadm links` show: one request, one answer in JSON, on a socket of
//! its own (`/run/udev/mudev.status`, SEQPACKET, root only).
//!
//! A client sends the word `status`, `links` or `findings` (errors in the rules) and reads messages until the
//! end of file; put together they are one JSON text. Asking changes nothing and waits for nothing: what a client has not yet read is
//! kept for it, within bounds, and whoever came first and does not read is let go for those who do.

use super::super::stats::Stats;
use super::super::work::Work;
use super::control::is_root;
use super::listener::Listener;
use super::source::{Source, Sources};
use crate::engine::{Counters, JobStatus};
use crate::helper::hanging::SlowHelper;
use crate::links::attr::{hex, operstate};
use crate::links::{Link, Table};
use crate::model::Now;
use crate::sys::unix;
use crate::world::quota;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Name of the socket in `/run/udev`.
pub const SOCKET: &str = "mudev.status";

/// Bytes of one message of an answer.
const PIECE: usize = 32 * 1024;

/// Clients at one time. One more, and the one that came first is let go.
const MAX_CLIENTS: usize = 64;

/// Bytes that are kept for clients that read slowly. Beyond it those that came first are let go.
const MAX_UNSENT: usize = 32 << 20;

/// The answer to `status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub pid: u32,
    pub version: String,
    pub ready: bool,
    pub exiting: bool,
    pub log_level: String,
    /// Events that wait to be started, and those that run.
    pub waiting: usize,
    pub running: usize,
    pub jobs: Vec<JobStatus>,
    pub counters: Counters,
    /// Time of this answer, seconds of CLOCK_MONOTONIC; [`JobStatus::since`] is on the same clock.
    pub now: f64,
    pub turns: Stats,
    pub children_running: usize,
    pub children_waiting: usize,
    pub children_max: usize,
    pub helpers_working: usize,
    pub helper_requests_waiting: usize,
    /// Those that have been at their work for long, or hang.
    #[serde(default)]
    pub slow_helpers: Vec<SlowHelper>,
    pub links: usize,
    /// The table may lack something: a dump is under way.
    pub links_stale: bool,
    pub link_overruns: u64,
    pub jobs_waiting_for_links: usize,
    pub watches: usize,
    pub clients: usize,
    pub rule_files: usize,
    pub rule_lines: usize,
}

/// One link in the answer to `links`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRow {
    pub ifindex: u32,
    pub name: String,
    pub alt_names: Vec<String>,
    /// `veth`, `bridge`, ...; empty for real hardware.
    pub kind: String,
    pub flags: u32,
    pub up: bool,
    pub operstate: String,
    pub carrier: Option<bool>,
    pub address: String,
    pub mtu: u32,
    /// 0: none.
    pub master: u32,
    pub iflink: u32,
    pub alias: String,
    /// Bus and name of the parent device, as `pci/0000:00:02.0`.
    pub parent: String,
}

impl LinkRow {
    fn new(link: &Link) -> LinkRow {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        LinkRow {
            ifindex: link.ifindex,
            name: text(link.name.as_bstr()),
            alt_names: link.alt_names().iter().map(|n| text(n)).collect(),
            kind: text(link.kind.as_bstr()),
            flags: link.flags,
            up: link.is_up(),
            operstate: operstate(link.operstate).to_owned(),
            carrier: link.carrier,
            address: text(&hex(link.address.as_bstr(), Some(b':'))),
            mtu: link.mtu,
            master: link.master,
            iflink: link.iflink,
            alias: text(link.alias()),
            parent: link.parent().map(|(bus, name)| format!("{bus}/{name}")).unwrap_or_default(),
        }
    }
}

/// All links of the table.
pub fn link_rows(table: &Table) -> Vec<LinkRow> {
    table.iter().map(LinkRow::new).collect()
}

struct Client {
    socket: OwnedFd,
    /// The answer as far as it was not sent; None until it asks.
    unsent: Option<VecDeque<u8>>,
}

impl Client {
    fn unsent(&self) -> usize {
        self.unsent.as_ref().map_or(0, VecDeque::len)
    }

    /// Sends what the socket takes; false when there is nothing more to send, or nobody to send it to.
    fn send(&mut self) -> bool {
        let Some(unsent) = &mut self.unsent else { return true };
        while !unsent.is_empty() {
            let piece = unsent.len().min(PIECE);
            match unix::send(self.socket.as_fd(), &unsent.make_contiguous()[..piece]) {
                Ok(()) => drop(unsent.drain(..piece)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        false
    }
}

/// See the module.
pub struct StatusServer {
    listener: Listener,
    /// In the order they came.
    clients: BTreeMap<u64, Client>,
    next_id: u64,
}

impl StatusServer {
    /// Serves a listening socket.
    pub fn new(listener: OwnedFd, sources: &Sources) -> io::Result<StatusServer> {
        let listener = Listener::new(listener, Source::Status, sources)?;
        Ok(StatusServer { listener, clients: BTreeMap::new(), next_id: 0 })
    }

    /// Listens at another socket from now on; clients stay.
    pub(crate) fn listen_at(&mut self, listener: OwnedFd, sources: &Sources) -> io::Result<()> {
        self.listener = Listener::new(listener, Source::Status, sources)?;
        Ok(())
    }

    /// Where clients connect.
    pub(crate) fn listener(&self) -> &Listener {
        &self.listener
    }

    pub(crate) fn accept(&mut self, sources: &Sources, now: Now) -> Vec<u64> {
        let mut accepted = Vec::new();
        while let Some(socket) = self.listener.accept(now) {
            let id = self.next_id;
            self.next_id += 1;
            if is_root(&socket) && sources.add_both(socket.as_fd(), Source::StatusClient(id)).is_ok() {
                self.clients.insert(id, Client { socket, unsent: None });
                accepted.push(id);
            }
            if self.clients.len() > MAX_CLIENTS {
                self.let_go_of_first();
            }
        }
        accepted
    }

    fn let_go_of_first(&mut self) {
        if self.clients.pop_first().is_some() {
            log::warn!(target: quota::CLIENTS, "A client of the status was let go: it kept others waiting");
        }
    }

    /// What a client asks for; None if it has not said it yet, has been answered, or has gone.
    pub(crate) fn request(&mut self, id: u64) -> Option<String> {
        let client = self.clients.get(&id).filter(|client| client.unsent.is_none())?;
        let mut buffer = [0; 64];
        match unix::receive(client.socket.as_fd(), &mut buffer) {
            Ok(received) if received.len > 0 => {
                Some(String::from_utf8_lossy(&buffer[..received.len]).trim().to_owned())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            _ => {
                self.clients.remove(&id);
                None
            }
        }
    }

    /// Answers; the client is hung up on when it has all of it.
    pub(crate) fn answer(&mut self, id: u64, json: String) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.unsent = Some(json.into_bytes().into());
            self.go_on(id);
        }
        while self.clients.values().map(Client::unsent).sum::<usize>() > MAX_UNSENT {
            self.let_go_of_first();
        }
    }

    /// The client may take more of its answer.
    pub(crate) fn go_on(&mut self, id: u64) {
        if self.clients.get_mut(&id).is_some_and(|client| !client.send()) {
            self.clients.remove(&id);
        }
    }
}

impl Status {
    /// What the work on events shows; of the rest nothing is known here.
    pub(crate) fn of(work: &Work) -> Status {
        let (waiting, running) = work.engine.queue_len();
        let (children_running, children_waiting) = work.children.load();
        let (helpers_working, helper_requests_waiting) = work.helpers.load();
        let table = &work.links.exchange.table;
        Status {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ready: false,
            exiting: false,
            log_level: log::max_level().as_str().to_ascii_lowercase(),
            waiting,
            running,
            jobs: work.engine.status(),
            counters: work.engine.counters(),
            now: work.now.since_boot().as_secs_f64(),
            turns: work.stats,
            children_running,
            children_waiting,
            children_max: work.children.max(),
            helpers_working,
            helper_requests_waiting,
            slow_helpers: work.helpers.slow().into_iter().chain(work.links.slow()).collect(),
            links: table.count(),
            links_stale: work.links.is_live() && table.is_stale(),
            link_overruns: work.links.overruns,
            jobs_waiting_for_links: work.links.parked(),
            watches: work.stores.watches.count(),
            clients: 0,
            rule_files: 0,
            rule_lines: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    struct Setting {
        path: PathBuf,
        server: StatusServer,
        sources: Sources,
    }

    fn setting(name: &str) -> Setting {
        let path = std::env::temp_dir().join(format!("mudev-{name}-{}", std::process::id()));
        let poll = mio::Poll::new().unwrap();
        let sources = Sources::new(&poll).unwrap();
        let server =
            StatusServer::new(crate::daemon::sources::control::listen(&path).unwrap(), &sources).unwrap();
        Setting { path, server, sources }
    }

    impl Setting {
        fn client(&mut self) -> (OwnedFd, u64) {
            let client = unix::connect_seqpacket(&self.path).unwrap();
            unix::send(client.as_fd(), b"status").unwrap();
            let id = self.server.accept(&self.sources, Now::ZERO)[0];
            assert_eq!(self.server.request(id).as_deref(), Some("status"));
            (client, id)
        }
    }

    #[test]
    fn a_long_answer_comes_whole_to_a_client_that_reads_slowly() {
        if !crate::sys::process::is_root() {
            println!("only root is served, and we are not root: nothing to test");
            return;
        }
        let mut setting = setting("status-slow");
        let (client, id) = setting.client();
        let answer: String = (0..200_000).map(|n| format!("{n} ")).collect();
        setting.server.answer(id, answer.clone());
        assert!(setting.server.clients[&id].unsent() > 0, "it does not fit into the socket");
        let (mut got, mut buffer) = (Vec::new(), vec![0; PIECE]);
        loop {
            setting.server.go_on(id);
            match unix::receive(client.as_fd(), &mut buffer).unwrap().len {
                0 => break,
                len => got.extend_from_slice(&buffer[..len]),
            }
        }
        assert!(got == answer.as_bytes() && setting.server.clients.is_empty());
        std::fs::remove_file(&setting.path).unwrap();
    }

    #[test]
    fn clients_that_never_read_are_bounded_in_number_and_bytes() {
        if !crate::sys::process::is_root() {
            println!("only root is served, and we are not root: nothing to test");
            return;
        }
        let mut setting = setting("status-deaf");
        let deaf: Vec<_> = (0..MAX_CLIENTS + 3).map(|_| setting.client()).collect();
        assert_eq!(setting.server.clients.len(), MAX_CLIENTS);
        assert!(!setting.server.clients.contains_key(&deaf[0].1), "who came first is let go");
        for (_, id) in &deaf {
            setting.server.answer(*id, "x".repeat(MAX_UNSENT / 4));
            let unsent: usize = setting.server.clients.values().map(Client::unsent).sum();
            assert!(unsent <= MAX_UNSENT);
        }
        let (_, last) = deaf.last().unwrap();
        assert!(setting.server.clients.contains_key(last), "the last one is served");
        std::fs::remove_file(&setting.path).unwrap();
    }
}
