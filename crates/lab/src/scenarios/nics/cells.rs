//! The table of cells: each kernel with each network card.

use crate::guest::{Kernel, Model};

/// A kernel of the table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name in rows.
    pub name: &'static str,
    /// The suite of Debian that has it; none for the machine's own.
    pub suite: Option<&'static str>,
}

impl Column {
    /// Looks for the kernel.
    ///
    /// # Errors
    /// When it is not there; the message says how to fetch it.
    pub fn find(self) -> anyhow::Result<Kernel> {
        self.suite.map_or_else(Kernel::find, Kernel::of_suite)
    }
}

/// All kernels.
pub const KERNELS: [Column; 3] = [
    Column { name: "stable", suite: None },
    Column { name: "backports", suite: Some("bookworm-backports") },
    Column { name: "newest", suite: Some("trixie-backports") },
];

/// All network cards, by their names in rows.
pub const CARDS: [(&str, Model); 7] = [
    ("virtio", Model::Virtio { queues: 2, offloads: true }),
    ("virtio_plain", Model::Virtio { queues: 1, offloads: false }),
    ("e1000", Model::E1000),
    ("e1000e", Model::E1000e),
    ("vmxnet3", Model::Vmxnet3),
    ("igb", Model::Igb),
    ("rtl8139", Model::Rtl8139),
];
