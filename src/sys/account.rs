//! Names of users and groups.
