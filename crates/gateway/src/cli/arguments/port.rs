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
    /// Connects the sessions of the configuration, and waits for them.
    Connect(ModemPort),
    /// Disconnects the sessions, and waits for their end.
    Disconnect(ModemPort),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ModemPort {
    /// The port.
    #[arg(value_name = "PORT")]
    pub(in crate::cli) port: String,
    /// Print JSON.
    #[arg(long)]
    pub(in crate::cli) json: bool,
    #[command(flatten)]
    pub(in crate::cli) gateway: Which,
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
        /// Write it to conf.d/NAME.toml, too, so that it is there after a restart.
        #[arg(long)]
        persist: bool,
    },
    /// Changes keys of a port that was added so; of one with --persist in its file, too.
    Set {
        #[command(flatten)]
        keys: PortKeys,
    },
    /// Takes away a port that was added so; of one with --persist its file, too.
    Del {
        #[command(flatten)]
        which: PortName,
    },
}

#[derive(Clone, Debug, Default, Args)]
pub(in crate::cli) struct PortName {
    /// Name of the port.
    pub(in crate::cli) name: String,
    /// Only say what would change.
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
    /// Interface that becomes the port.
    #[arg(long)]
    pub(in crate::cli) interface: Option<String>,
    /// Bridge of which it becomes a member.
    #[arg(long)]
    pub(in crate::cli) bridge: Option<String>,
    /// VLAN of an access port.
    #[arg(long, value_name = "VLAN", requires = "bridge", conflicts_with = "trunk")]
    pub(in crate::cli) vlan: Option<u16>,
    /// VLANs of a trunk.
    #[arg(long, value_name = "VLAN,…", requires = "bridge", value_delimiter = ',')]
    pub(in crate::cli) trunk: Vec<u16>,
    /// VLAN of a trunk that has no tag.
    #[arg(long, value_name = "VLAN", requires = "trunk")]
    pub(in crate::cli) native: Option<u16>,
    /// Keep it apart from other isolated members, or no more.
    #[arg(long, value_name = "BOOLEAN", requires = "bridge", num_args = 0..=1, default_missing_value = "true")]
    pub(in crate::cli) isolated: Option<bool>,
    /// Way of attaching the interface.
    #[arg(long)]
    pub(in crate::cli) mode: Option<String>,
    /// Another key of the port, as in a file; may be given several times.
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
