//! QEMU's e1000 as judge of our driver: without a guest, and in a gateway in one ([`examine_in_guest`]); and the
//! kernel's driver as judge of our model ([`examine_model`]).
//!
//! Without a guest, QEMU emulates the controller and a processor that halts at once. The driver in this process reaches the controller
//! by QEMU's test protocol: registers by messages, memory as files that both map, the interrupt as a message
//! (`machine`). Frames go by a datagram socket. One fault of the driver at a time, imitated at its seams
//! (`mutants`), shows that a check finds what it is for; in the guest it is a gateway with such a fault (`broken`).

mod bench;
mod binding;
mod broken;
mod checks;
mod guest;
mod judge;
mod kernel;
mod machine;
mod mutants;
mod offloads;
mod pair;
mod refused;
mod served;
mod volume;
mod wire;

pub use broken::{keep_files, stand_in};
pub use guest::examine_in_guest;
pub use judge::{available, examine};
pub use kernel::{examine_model, kernel_available};
pub use machine::Chip;
pub use pair::guest_available;
pub use pair::{FAR, MACS, Pair};
pub use served::{CLIENT, Driver, SERVER, Served};
pub use volume::{Volume, carry, time_each};
pub use wire::Wire;
