//! The table of cells: each kernel with each network card.

use polder_testbed::guest::{Kernel, Model};

/// A kernel of the table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Name in rows.
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

/// The interface of the guest's kernel that is a port, above a network card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Above {
    /// The card itself.
    Nothing,
    /// A VLAN interface; the far ends tag.
    Vlan,
    /// A bond with the card as its one member.
    Bond,
}

/// A network card of the table.
#[derive(Clone, Copy, Debug)]
pub struct Adapter {
    /// Name in rows.
    pub name: &'static str,
    /// Model of the card in the emulator.
    pub model: Model,
    /// Interface between the card and the gateway.
    pub above: Above,
}

const fn plain(name: &'static str, model: Model) -> Adapter {
    Adapter { name, model, above: Above::Nothing }
}

/// All network cards.
pub const CARDS: [Adapter; 9] = [
    plain("virtio", Model::Virtio { queues: 2, offloads: true, platform: false }),
    plain("virtio_plain", Model::Virtio { queues: 1, offloads: false, platform: true }),
    plain("e1000", Model::E1000),
    Adapter { name: "e1000_vlan", model: Model::E1000, above: Above::Vlan },
    Adapter { name: "e1000_bond", model: Model::E1000, above: Above::Bond },
    plain("e1000e", Model::E1000e),
    plain("vmxnet3", Model::Vmxnet3),
    plain("igb", Model::Igb),
    plain("rtl8139", Model::Rtl8139),
];
