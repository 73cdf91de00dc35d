//! The host's own network stack and applications, with virtio-net headers.
