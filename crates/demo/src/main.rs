//! `polder-demo`: the demonstration.

use clap::Parser;
use polder_demo::Forwarder;
use polder_testbed::interrupt;
use std::process::ExitCode;

/// Two gateways and a gretap tunnel between real network stacks, in under a minute.
#[derive(Debug, Parser)]
#[command(name = "polder-demo", version, max_term_width = 100)]
struct Arguments {
    /// Use the kernel's bridge and VXLAN in place of Polder, for comparison.
    #[arg(long)]
    kernel: bool,
}

fn main() -> ExitCode {
    let Arguments { kernel } = Arguments::parse();
    let forwarder = if kernel { Forwarder::Kernel } else { Forwarder::Polder };
    interrupt::exit_code("polder-demo", interrupt::install().and_then(|()| polder_demo::run(forwarder)))
}
