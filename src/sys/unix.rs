//! Unix sockets: SEQPACKET with credentials, datagrams to the service manager, socket pairs.
