//! Arguments of commands for one port.

use super::which::Which;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(in crate::cli) struct ModemCommand {
    #[command(subcommand)]
    pub(in crate::cli) action: ModemAction,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ModemAction {
    /// Shows SIM, network, signal, sessions and addresses.
    Status(ModemPort),
    /// Connects the configured sessions, and waits until they are connected.
    Connect(ModemPort),
    /// Disconnects the sessions, and waits until they have ended.
    Disconnect(ModemPort),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ModemPort {
    /// Name of the modem's port.
    #[arg(value_name = "PORT")]
    pub(in crate::cli) port: String,
    /// Print the state as JSON.
    #[arg(long)]
    pub(in crate::cli) json: bool,
    #[command(flatten)]
    pub(in crate::cli) gateway: Which,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct QueueCommand {
    /// Name of the port.
    #[arg(value_name = "PORT")]
    pub(in crate::cli) port: String,
    /// Packets that leave by the port (`up`) or come in by it (`down`).
    #[arg(value_enum)]
    pub(in crate::cli) way: QueueWay,
    /// The rate, such as `40Mbit/s` or "1.5 Gbit/s".
    #[arg(value_name = "RATE")]
    pub(in crate::cli) rate: String,
    /// Print both rates as JSON.
    #[arg(long)]
    pub(in crate::cli) json: bool,
    #[command(flatten)]
    pub(in crate::cli) gateway: Which,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(in crate::cli) enum QueueWay {
    Up,
    Down,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct PortCommand {
    #[command(subcommand)]
    pub(in crate::cli) action: PortAction,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum PortAction {
    /// Adds a port.
    Add {
        #[command(flatten)]
        keys: PortKeys,
        /// Also write the port to conf.d/NAME.toml, so that it exists after a restart.
        #[arg(long)]
        persist: bool,
    },
    /// Changes keys of a port that `polder port add` has added, and its file if it has one.
    Set {
        #[command(flatten)]
        keys: PortKeys,
    },
    /// Removes a port that `polder port add` has added, and its file if it has one.
    Del {
        #[command(flatten)]
        which: PortName,
    },
}

#[derive(Clone, Debug, Default, Args)]
pub(in crate::cli) struct PortName {
    /// Name of the port.
    pub(in crate::cli) name: String,
    /// Only print what would change.
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
    /// Apply it even if this host loses its own addresses, its default route or your login.
    #[arg(long)]
    pub(in crate::cli) yes: bool,
    #[command(flatten)]
    pub(in crate::cli) gateway: Which,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct PortKeys {
    #[command(flatten)]
    pub(in crate::cli) which: PortName,
    /// Interface that the port uses.
    #[arg(long)]
    pub(in crate::cli) interface: Option<String>,
    /// Bridge that the port joins.
    #[arg(long)]
    pub(in crate::cli) bridge: Option<String>,
    /// VLAN of an access port.
    #[arg(long, value_name = "VLAN", requires = "bridge", conflicts_with = "trunk")]
    pub(in crate::cli) vlan: Option<u16>,
    /// VLANs of a trunk.
    #[arg(long, value_name = "VLAN,…", requires = "bridge", value_delimiter = ',')]
    pub(in crate::cli) trunk: Vec<u16>,
    /// VLAN of the trunk whose frames are untagged.
    #[arg(long, value_name = "VLAN", requires = "trunk")]
    pub(in crate::cli) native: Option<u16>,
    /// True to forward nothing between this port and other isolated members.
    #[arg(long, value_name = "BOOLEAN", requires = "bridge", num_args = 0..=1, default_missing_value = "true")]
    pub(in crate::cli) isolated: Option<bool>,
    /// Mode in which the interface is attached, as `auto`, `skb` or `native`.
    #[arg(long)]
    pub(in crate::cli) mode: Option<String>,
    /// Another key of the port, as in the configuration file; may be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(in crate::cli) key: Vec<String>,
}

impl PortKeys {
    /// A port and none of its keys.
    pub(in crate::cli) fn none(which: PortName) -> Self {
        Self {
            which,
            interface: None,
            bridge: None,
            vlan: None,
            trunk: Vec::new(),
            native: None,
            isolated: None,
            mode: None,
            key: Vec::new(),
        }
    }
}
