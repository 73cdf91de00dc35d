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
pub(super) use port::{ModemAction, ModemCommand, PortAction, PortCommand, PortKeys};
use std::ffi::OsString;
use std::path::PathBuf;
pub(super) use which::Which;

/// The station that packets come from which do not say it.
pub(super) const SOURCE: MacAddress = MacAddress([0x02, 0, 0, 0, 0xfe, 0xed]);

/// Forwards packets between Linux interfaces, TAPs and tunnels, in user space.
#[derive(Debug, Parser)]
#[command(name = "polder", version, max_term_width = 100, after_help = CODES)]
pub struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

const CODES: &str = "Exit codes: 0 done, 1 it could not be done, 2 the command line or the configuration is wrong, 3 a \
     gateway has lost one of its threads and ended.";

/// Default path of the configuration.
const FILE: &str = "/etc/polder/gateway.toml";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Runs a gateway until it is told to end (SIGINT, SIGTERM). SIGHUP reloads its file.
    ///
    /// The log goes to standard error; POLDER_LOG=debug shows more of it, POLDER_LOG=warn less.
    Run(Run),
    /// Checks a configuration, and what this machine lacks for it. Touches nothing.
    Check(Check),
    /// Says which settings of this host cost a datapath something. Changes nothing.
    Doctor(Doctor),
    /// Shows what a running gateway does.
    Show(Show),
    /// Captures packets of a running gateway, for tcpdump or wireshark.
    ///
    /// Writes pcapng, with a comment for each packet: where it was seen, by which worker and queue, its ticket, and
    /// why it was dropped. The worker runs the compiled expression itself and copies what matches; when the file
    /// cannot keep up, packets are missing in the file, never in the traffic. Ctrl-C ends it with a summary.
    Capture(Capture),
    /// Compiles the expression on standard input: what `capture` starts without privileges.
    #[command(hide = true)]
    CompileExpression {
        /// Most bytes of a packet that are captured.
        longest: u32,
    },
    /// Says what a running gateway would do with a packet, and does nothing.
    ///
    /// The packet is described in words, layer by layer with `/` between them, as in
    /// `eth dst 02:00:00:00:00:02 / ip src 10.0.0.1 dst 10.0.1.9 / udp dport 53 / payload 64`, or in digits, as in
    /// `hex 0200…`, or taken from a capture (--pcap). The gateway's own stages decide, over its own tables; learned
    /// addresses, counters and numbers stay as they are.
    #[command(after_long_help = trace_words())]
    Trace(Trace),
    /// Adds a port to a running gateway, changes it or takes it away.
    ///
    /// With the same checks as `reload`, all of it or nothing. Such a port outlives reloads and upgrades; a restart needs
    /// `--persist`, which writes a file for it into `conf.d` beside the gateway's.
    Port(PortCommand),
    /// Answers a container runtime as a CNI plugin, as under the name `polder-cni`.
    ///
    /// The call is in the environment (CNI_COMMAND and others), the network configuration on standard input.
    Cni,
    /// Has a running gateway read its file again, and apply all that has changed or nothing.
    Reload(Reload),
    /// Keeps a change that `run --confirm` or `reload --confirm` would take back.
    Confirm(Which),
    /// Shows the difference between the running configuration and the file.
    ///
    /// Exit codes: 0 there is none, 1 there is one, 2 it could not be found out.
    Diff(Diff),
    /// Has packets sent elsewhere, waits until few come in, and ends a running gateway.
    ///
    /// `/readyz` says that it is not ready. A hook can tell routing neighbours (RFC 8326). Ctrl-C takes it back.
    Drain(Drain),
    /// Shows the modem behind a port, connects or disconnects it.
    ///
    /// An order holds until the next one, or until the port is opened again.
    Modem(ModemCommand),
    /// Has another program go on with a running gateway: by default the one that is started so.
    ///
    /// Forwarding pauses for milliseconds, and nothing is lost where a device can be passed on. When the program does
    /// not come up, the gateway goes on as if nothing had been.
    Upgrade(Upgrade),
    /// Follows what happens: carriers, ports, stations, routes, tunnels, drops, reloads.
    ///
    /// The log has the same lines. Ctrl-C ends it; a gateway that goes away is waited for.
    Events(Follow),
    /// Shows ports, stages, queues, flows and drops as rates, live: starts `polder-top`.
    #[command(disable_help_flag = true)]
    Top {
        /// Arguments of `polder-top`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Shows the level of a running gateway's log, or sets it until its end.
    Log(Log),
    /// Opens interfaces that a gateway with on_exit = "drop" has left closed.
    Release(Release),
    /// Shows two gateways and a tunnel at work, in network namespaces of their own.
    #[command(disable_help_flag = true)]
    Demo {
        /// Arguments of `polder-demo`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Measures on this machine: starts `polder-lab`.
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
        /// The folder; it is made if it is missing.
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
    /// End after SECONDS, unless `polder confirm` comes before.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(super) confirm: Option<u32>,
    /// Go on with the running gateway behind SOCKET: `polder upgrade` starts programs so.
    #[arg(long, value_name = "SOCKET", conflicts_with = "confirm")]
    pub(super) take_over: Option<PathBuf>,
    /// Do all of that but the last step, and end.
    #[arg(long, requires = "take_over")]
    pub(super) dry_run: bool,
}

#[derive(Debug, Args)]
pub(super) struct Upgrade {
    /// The program that is to go on.
    #[arg(long, value_name = "PATH")]
    pub(super) program: Option<PathBuf>,
    /// Only see if it could.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Longest time for the program to come up, in seconds.
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
    /// A configuration whose interfaces are meant; all with a device of their own by default.
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
    /// Show the rows of that name, address or number alone: `ports lan`, `routes 10.60.7.1`, `fdb 02:00:5e:10:00:01`.
    #[arg(value_name = "NAME")]
    pub(super) of: Option<String>,
    /// Show all connections, and not the busiest alone.
    #[arg(long)]
    pub(super) all: bool,
    /// Print rows as JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Show again and again, every SECONDS: what has happened in between, per second. With --json a line of
    /// totals each time.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = seconds)]
    pub(super) watch: Option<f64>,
    /// Show what has happened since the totals that were put aside as NAME.
    #[arg(long, value_name = "NAME", conflicts_with = "watch")]
    pub(super) from: Option<String>,
    /// Show what has happened since then: `last` for the last time that the same was asked, or 90s, 10m, 2h, 1d: drops by
    /// the gateway's own history, other views by the totals whose age comes nearest, of those that were put aside.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["watch", "from"], value_parser = Since::parse)]
    pub(super) since: Option<Since>,
    /// Put the totals aside as NAME, for --from.
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
    /// End after those.
    #[arg(long)]
    pub(super) no_follow: bool,
    #[command(flatten)]
    pub(super) gateway: Which,
}

#[derive(Debug, Args)]
pub(super) struct Log {
    /// `error`, `warn`, `info`, `debug`, `trace` or `off`; MODULE=LEVEL as in `info,polder::runtime=debug`; `default`
    /// for the level of the start.
    #[arg(value_name = "LEVEL")]
    pub(super) level: Option<String>,
    #[command(flatten)]
    pub(super) gateway: Which,
}

#[derive(Debug, Args)]
pub(super) struct Drain {
    /// Command for `sh -c` that tells the neighbours, once the gateway is not ready.
    #[arg(long, value_name = "COMMAND")]
    pub(super) hook: Option<String>,
    /// Number of packets a second that are few.
    #[arg(long, value_name = "PACKETS", default_value_t = 10)]
    pub(super) below: u64,
    /// Longest time to wait for that, in seconds; then it ends all the same.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(super) within: u32,
    /// Do not end it: the caller does, such as a service manager.
    #[arg(long)]
    pub(super) keep: bool,
    /// Take it back: the gateway is ready again.
    #[arg(long, conflicts_with_all = ["hook", "keep", "below", "within"])]
    pub(super) undo: bool,
    #[command(flatten)]
    pub(super) gateway: Which,
}

#[derive(Debug, Args)]
pub(super) struct Reload {
    /// Only say what would change.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Apply it even if this host loses its own addresses, its default route or your login.
    #[arg(long)]
    pub(super) yes: bool,
    /// Take it back after SECONDS, unless `polder confirm` comes before.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(super) confirm: Option<u32>,
    #[command(flatten)]
    pub(super) gateway: Which,
}

#[derive(Debug, Args)]
pub(super) struct Diff {
    /// Print it as JSON, with both values of each key.
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) gateway: Which,
}

#[derive(Debug, Args)]
pub(super) struct Capture {
    /// The port or tunnel.
    pub(super) port: String,
    /// Stage of the journey; may be given several times. Without it, and without --drops: rx and tx.
    #[arg(long, value_enum, value_name = "STAGE")]
    pub(super) stage: Vec<Stage>,
    /// Packets that were dropped, with the reason: the same as --stage drops.
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
    /// Packets to capture, in tcpdump's syntax; everything when it is left out.
    #[arg(value_name = "EXPRESSION")]
    pub(super) expression: Vec<String>,
    /// The gateway's name; needed when several run.
    #[arg(long, short, value_name = "NAME", conflicts_with = "socket")]
    gateway: Option<String>,
    /// The gateway's control socket, when it is at another place than usual.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Trace {
    /// The port by which the packet comes.
    pub(super) port: String,
    /// The packet in words.
    #[arg(value_name = "PACKET", required_unless_present = "pcap")]
    pub(super) packet: Vec<String>,
    /// Packets of a capture, pcap or pcapng; `-` for standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "packet")]
    pub(super) pcap: Option<PathBuf>,
    /// The capture's packet of that number, from 1, and no other.
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
        "Layers:\n{}\nWithout `eth` in front, a packet is for the port itself where that is an underlay's or a router's, \
         and comes from {}. Types, protocols, lengths and checksums that are not said are worked out. \
         Others: ttl 64, udp from port 40000 to 9, tcp SYN from 40000 to 80, icmp an echo request, \
         ip from 198.51.100.1 or 2001:db8::1.",
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
    /// As the port received them; of a tunnel, as they came out.
    Rx,
    /// As they leave by the port; of a tunnel, as they go in.
    Tx,
    /// As they were dropped.
    Drops,
}

#[derive(Debug, Args)]
pub(super) struct Release {
    /// The interfaces, or addresses of PCI devices.
    #[arg(value_name = "INTERFACE", required_unless_present = "all")]
    pub(super) interfaces: Vec<String>,
    /// All interfaces that are left closed.
    #[arg(long, conflicts_with = "interfaces")]
    pub(super) all: bool,
    /// Also when a running gateway uses them: it receives nothing there until it is restarted.
    #[arg(long)]
    pub(super) force: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.1..=86_400.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("take 0.1 to 86400 seconds".to_owned())
    }
}
