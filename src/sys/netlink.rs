//! Netlink sockets: kernel uevents (with credentials), rtnetlink, and the udev group.
