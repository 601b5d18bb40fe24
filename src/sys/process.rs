//! Starting and ending children: clone with a pidfd, process groups, exit status.
