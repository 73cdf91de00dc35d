//! `polder-lab`: the demonstration and the measurements.

use clap::{Parser, Subcommand};
use polder_lab::demo::{self, Forwarder};
use polder_lab::interrupt;
use std::process::ExitCode;

/// Shows and measures Polder in network namespaces on this machine.
#[derive(Debug, Parser)]
#[command(name = "polder-lab", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Two gateways and a gretap tunnel between real network stacks, in under a minute.
    Demo {
        /// Let the kernel's bridge and VXLAN forward in Polder's place, for comparison.
        #[arg(long)]
        kernel: bool,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = interrupt::install().and_then(|()| match arguments.command {
        Command::Demo { kernel } => demo::run(if kernel { Forwarder::Kernel } else { Forwarder::Polder }),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<interrupt::Interrupted>() => {
            eprintln!("polder-lab: interrupted; everything is taken down");
            ExitCode::from(interrupt::EXIT_CODE)
        }
        Err(error) => {
            eprintln!("polder-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
