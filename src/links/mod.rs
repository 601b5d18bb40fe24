//! The link table, without I/O (design.md section 3, builtins.md section 3): what the kernel's
//! RTM_NEWLINK messages say of network interfaces, and the text that sysfs would show for it.
