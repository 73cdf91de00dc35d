//! Any Linux interface, through rings shared with the kernel.
