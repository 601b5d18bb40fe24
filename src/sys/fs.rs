//! Files: *at() calls relative to an open directory, flock, special attributes.
