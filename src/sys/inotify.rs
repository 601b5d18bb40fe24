//! inotify.
