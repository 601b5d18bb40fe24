//! The message to listeners of the udev netlink group (interop.md section 2).
