//! ioctls on block devices and network interfaces.
