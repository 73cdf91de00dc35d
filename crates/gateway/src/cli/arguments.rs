//! Command-line arguments.

mod port;
mod which;

use super::baseline::Since;
use crate::control::client::ClientError;
use crate::show::What;
use crate::trace::spec::LAYERS;
use clap::{Args, Parser, Subcommand};
use polder_datapath::wire::MacAddress;
#[cfg(test)]
pub(super) use port::PortName;
pub(super) use port::{ModemAction, ModemCommand, PortAction, PortCommand, PortKeys, QueueCommand, QueueWay};
use std::ffi::OsString;
use std::path::PathBuf;
pub(super) use which::Which;

/// Source MAC address of traced packets that specify none.
pub(super) const SOURCE: MacAddress = MacAddress([0x02, 0, 0, 0, 0xfe, 0xed]);

/// Forwards packets between Linux interfaces, TAPs and tunnels, in user space.
#[derive(Debug, Parser)]
#[command(name = "polder", version, max_term_width = 100, after_help = CODES)]
pub struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

const CODES: &str = "Exit codes: 0 success, 1 the command failed, 2 an invalid command line or \
     configuration, 3 the gateway ended because it lost one of its threads.";

/// Default path of the configuration.
const FILE: &str = "/etc/polder/gateway.toml";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Runs a gateway until SIGINT or SIGTERM; SIGHUP reloads its configuration file.
    ///
    /// The log goes to standard error; POLDER_LOG=debug shows more of it, POLDER_LOG=warn less.
    Run(Run),
    /// Checks a configuration file, and whether this host can run it. Changes nothing.
    Check(Check),
    /// Reports host settings that reduce packet rate or add latency. Changes nothing.
    Doctor(Doctor),
    /// Shows the state and the counters of a running gateway.
    Show(Show),
    /// Captures packets of a running gateway, for tcpdump or wireshark.
    ///
    /// Writes pcapng, with a comment for each packet: where it was seen, by which worker and queue, its ticket, and
    /// why it was dropped. The worker runs the compiled expression and copies the packets that match; when the file
    /// cannot keep up, packets are missing from the file, and the traffic loses none. Ctrl-C ends the capture and
    /// prints a summary.
    Capture(Capture),
    /// Compiles a capture expression from standard input; `capture` starts this command without privileges.
    #[command(hide = true)]
    CompileExpression {
        /// Maximum number of bytes captured of a packet.
        longest: u32,
    },
    /// Prints what a running gateway would do with a packet, without forwarding it.
    ///
    /// The packet is described in words, layer by layer with `/` between them, as in `eth dst 02:00:00:00:00:02 / ip
    /// src 10.0.0.1 dst 10.0.1.9 / udp dport 53 / payload 64`, or in hexadecimal digits, as in `hex 0200…`, or read
    /// from a capture file (--pcap). The gateway's own stages and tables decide; learned addresses, counters and
    /// sequence numbers do not change.
    #[command(after_long_help = trace_words())]
    Trace(Trace),
    /// Adds a port to a running gateway, changes it or removes it.
    ///
    /// The change is checked as by `reload`, and applied completely or not at all. The port survives reloads and
    /// upgrades; with `--persist` it survives a restart, too: its keys are written to a file in `conf.d` beside the
    /// gateway's file.
    Port(PortCommand),
    /// Runs as a CNI plugin for a container runtime, as the program `polder-cni` does.
    ///
    /// The runtime passes the command in the environment (CNI_COMMAND and others) and the network configuration on
    /// standard input.
    Cni,
    /// Makes a running gateway read its file again and apply all changes, or none of them.
    Reload(Reload),
    /// Keeps a change made with `--confirm`, which is reverted otherwise.
    Confirm(Which),
    /// Shows the difference between the running configuration and the file.
    ///
    /// Exit codes: 0 no difference, 1 a difference, 2 the comparison failed.
    Diff(Diff),
    /// Marks a running gateway not ready, waits until traffic falls below a rate, and stops it.
    ///
    /// `/readyz` reports that the gateway is not ready. A hook can tell routing neighbours (RFC 8326). Ctrl-C cancels
    /// the drain and marks the gateway ready again.
    Drain(Drain),
    /// Shows the modem behind a port, connects or disconnects it.
    ///
    /// `connect` and `disconnect` hold until the next such command, or until the port is opened again.
    Modem(ModemCommand),
    /// Changes the rate of a port's queue while packets wait in it.
    ///
    /// The rate holds until the next reload, which applies the one of the file again.
    Queue(QueueCommand),
    /// Replaces the program of a running gateway, by default with the program of this command.
    ///
    /// Forwarding pauses for milliseconds, and a device that can be passed to the new program loses no packet. If the
    /// new program does not start, the running one continues.
    Upgrade(Upgrade),
    /// Prints events as they happen: carriers, ports, learned addresses, routes, tunnels, drops, reloads.
    ///
    /// The log has the same lines. Ctrl-C ends the output; if the gateway stops, the command waits until it runs
    /// again.
    Events(Follow),
    /// Shows ports, stages, queues, flows and drops as rates, live: starts `polder-top`.
    #[command(disable_help_flag = true)]
    Top {
        /// Arguments of `polder-top`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Shows the log level of a running gateway, or sets it until the gateway stops.
    Log(Log),
    /// Releases interfaces that a stopped gateway with on_exit = "drop" keeps closed.
    Release(Release),
    /// Demonstrates two gateways and a tunnel, in network namespaces of their own.
    #[command(disable_help_flag = true)]
    Demo {
        /// Arguments of `polder-demo`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Measures Polder on this machine: starts `polder-lab`.
    #[command(disable_help_flag = true)]
    Lab {
        /// Arguments of `polder-lab`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Prints completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Writes the manual pages into a folder, as `make install` does.
    #[command(hide = true)]
    ManualPages {
        /// The folder; it is created if it is missing.
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(super) struct Run {
    /// The configuration.
    #[arg(default_value = FILE)]
    pub(super) file: PathBuf,
    /// Start even if this host loses its own addresses, its default route or your login.
    #[arg(long)]
    pub(super) yes: bool,
    /// Stop after SECONDS unless `polder confirm` is run before.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(super) confirm: Option<u32>,
    /// Take over the running gateway at SOCKET; `polder upgrade` starts the new program with this option.
    #[arg(long, value_name = "SOCKET", conflicts_with = "confirm")]
    pub(super) take_over: Option<PathBuf>,
    /// Prepare the take-over and end before its last step.
    #[arg(long, requires = "take_over")]
    pub(super) dry_run: bool,
}

#[derive(Debug, Args)]
pub(super) struct Upgrade {
    /// New program, in place of the running one.
    #[arg(long, value_name = "PATH")]
    pub(super) program: Option<PathBuf>,
    /// Only test whether the new program could take over.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Maximum time for the new program to start, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(super) within: u32,
    /// Print the result as JSON.
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) gateway: Which,
}

#[derive(Debug, Args)]
pub(super) struct Check {
    /// The configuration.
    #[arg(default_value = FILE)]
    pub(super) file: PathBuf,
    /// Check the file alone, not this machine.
    #[arg(long)]
    pub(super) no_preflight: bool,
    /// Print findings as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Configuration file whose interfaces are examined; by default all interfaces of real devices.
    pub(super) file: Option<PathBuf>,
    /// Print findings as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Show {
    /// View to show.
    #[arg(value_enum)]
    pub(super) what: What,
    /// Show only rows with this name, address or number: `ports lan`, `routes 10.60.7.1`, `fdb 02:00:5e:10:00:01`.
    #[arg(value_name = "NAME")]
    pub(super) of: Option<String>,
    /// Show all connections, not only the busiest.
    #[arg(long)]
    pub(super) all: bool,
    /// Print rows as JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Repeat every SECONDS, with rates per second since the last output. With --json, print a line of totals each
    /// time.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = seconds)]
    pub(super) watch: Option<f64>,
    /// Show changes since the baseline that was saved as NAME.
    #[arg(long, value_name = "NAME", conflicts_with = "watch")]
    pub(super) from: Option<String>,
    /// Show changes since `last`, the last call with the same arguments, or since a time ago, as 90s, 10m, 2h or 1d.
    /// For drops the gateway's own history is used, for other views the saved baseline whose age is nearest.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["watch", "from"], value_parser = Since::parse)]
    pub(super) since: Option<Since>,
    /// Save the present totals as baseline NAME, for --from.
    #[arg(long, value_name = "NAME", conflicts_with = "watch")]
    pub(super) save: Option<String>,
    #[command(flatten)]
    pub(super) gateway: Which,
}

#[derive(Debug, Args)]
pub(super) struct Follow {
    /// Print events as JSON, a line for each.
    #[arg(long)]
    pub(super) json: bool,
    /// Print the last N events first.
    #[arg(long, short = 'n', value_name = "N", default_value = "10")]
    pub(super) last: usize,
    /// End after printing those.
    #[arg(long)]
    pub(super) no_follow: bool,
    #[command(flatten)]
    pub(super) gateway: Which,
}

#[derive(Debug, Args)]
pub(super) struct Log {
    /// `error`, `warn`, `info`, `debug`, `trace` or `off`; MODULE=LEVEL as in `info,polder::runtime=debug`; `default`
    /// for the level at the start.
    #[arg(value_name = "LEVEL")]
    pub(super) level: Option<String>,
    #[command(flatten)]
    pub(super) gateway: Which,
}

#[derive(Debug, Args)]
pub(super) struct Drain {
    /// Command for `sh -c` that tells routing neighbours; it runs once the gateway is marked not ready.
    #[arg(long, value_name = "COMMAND")]
    pub(super) hook: Option<String>,
    /// Rate below which the gateway is stopped, in packets per second.
    #[arg(long, value_name = "PACKETS", default_value_t = 10)]
    pub(super) below: u64,
    /// Maximum time to wait for that rate, in seconds; then the gateway is stopped anyway.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(super) within: u32,
    /// Do not stop the gateway: the caller does, such as a service manager.
    #[arg(long)]
    pub(super) keep: bool,
    /// Cancel a drain: mark the gateway ready again.
    #[arg(long, conflicts_with_all = ["hook", "keep", "below", "within"])]
    pub(super) undo: bool,
    #[command(flatten)]
    pub(super) gateway: Which,
}

#[derive(Debug, Args)]
pub(super) struct Reload {
    /// Only print what would change.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Apply it even if this host loses its own addresses, its default route or your login.
    #[arg(long)]
    pub(super) yes: bool,
    /// Revert the change after SECONDS unless `polder confirm` is run before.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(super) confirm: Option<u32>,
    #[command(flatten)]
    pub(super) gateway: Which,
}

#[derive(Debug, Args)]
pub(super) struct Diff {
    /// Print the difference as JSON, with both values of each key.
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) gateway: Which,
}

#[derive(Debug, Args)]
pub(super) struct Capture {
    /// Name of the port or tunnel.
    pub(super) port: String,
    /// Stage at which packets are captured; may be given several times. The default is rx and tx.
    #[arg(long, value_enum, value_name = "STAGE")]
    pub(super) stage: Vec<Stage>,
    /// Capture dropped packets, with the reason; the same as --stage drops.
    #[arg(long)]
    pub(super) drops: bool,
    /// Write to FILE, not to standard output.
    #[arg(short = 'w', long, value_name = "FILE")]
    pub(super) write: Option<PathBuf>,
    /// End after N packets.
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: Option<u64>,
    /// Capture at most LEN bytes of each packet.
    #[arg(short = 's', long = "snaplen", value_name = "LEN", default_value = "65535", value_parser = clap::value_parser!(u32).range(1..=65_553))]
    pub(super) longest: u32,
    /// Filter in tcpdump's syntax; without one, all packets are captured.
    #[arg(value_name = "EXPRESSION")]
    pub(super) expression: Vec<String>,
    /// Name of the gateway; required if several run.
    #[arg(long, short, value_name = "NAME", conflicts_with = "socket")]
    gateway: Option<String>,
    /// Path of the gateway's control socket, if it is not the default one.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Trace {
    /// Port that receives the packet.
    pub(super) port: String,
    /// Description of the packet.
    #[arg(value_name = "PACKET", required_unless_present = "pcap")]
    pub(super) packet: Vec<String>,
    /// Capture file with the packets, pcap or pcapng; `-` for standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "packet")]
    pub(super) pcap: Option<PathBuf>,
    /// Trace only the packet with this number in the capture, counted from 1.
    #[arg(short = 'n', long, value_name = "N", requires = "pcap", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) number: Option<u64>,
    /// Print rows as JSON, a line for each packet.
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) gateway: Which,
}

/// The words of packets, for the help.
fn trace_words() -> String {
    let layers = LAYERS.iter().map(|(name, fields)| format!("  {name:<8} {}\n", fields.join(", ")));
    format!(
        "Layers:\n{}\nWithout a leading `eth` layer, a packet on an underlay or router port is addressed to \
         the port's own MAC address and comes from {}. Omitted types, protocols, lengths and checksums are \
         computed. Other defaults: ttl 64, udp from port 40000 to 9, tcp SYN from 40000 to 80, icmp echo \
         request, ip from 198.51.100.1 or 2001:db8::1.",
        layers.collect::<String>(),
        SOURCE
    )
}

impl Capture {
    /// The control socket of the gateway that is meant.
    pub(super) fn socket(&self) -> Result<PathBuf, ClientError> {
        // Here -s has tcpdump's meaning.
        Which { gateway: self.gateway.clone(), socket: self.socket.clone() }.socket()
    }
}

/// Stage at which packets are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Stage {
    /// Packets received by the port; for a tunnel, after decapsulation.
    Rx,
    /// Packets sent by the port; for a tunnel, before encapsulation.
    Tx,
    /// Dropped packets.
    Drops,
}

#[derive(Debug, Args)]
pub(super) struct Release {
    /// Interfaces, or addresses of PCI devices, to release.
    #[arg(value_name = "INTERFACE", required_unless_present = "all")]
    pub(super) interfaces: Vec<String>,
    /// Release all interfaces that are kept closed.
    #[arg(long, conflicts_with = "interfaces")]
    pub(super) all: bool,
    /// Release interfaces of a running gateway, too; it receives nothing there until it is restarted.
    #[arg(long)]
    pub(super) force: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.1..=86_400.0).contains(&seconds) { Ok(seconds) } else { Err("use 0.1 to 86400 seconds".to_owned()) }
}
