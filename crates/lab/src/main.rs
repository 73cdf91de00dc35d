//! `polder-lab`: the measurements.

mod usbip;

use anyhow::{Context as _, ensure};
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use clap_complete::env::CompleteEnv;
use clap_complete::{ArgValueCandidates, CompletionCandidate};
use polder_judges::e1000;
use polder_judges::hosts;
use polder_judges::lacking;
use polder_judges::selftests;
use polder_lab::publish;
use polder_lab::report::{Report, compare, join, page, table};
use polder_lab::scenarios::{ALL, Scenario, nics, usb};
use polder_testbed::interrupt;
use polder_testbed::peers::{neighbour, polder};
use polder_testbed::screen::Screen;
use polder_testbed::services;
use polder_testbed::topology::is_root;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Shows and measures Polder in network namespaces on this machine.
#[derive(Debug, Parser)]
#[command(name = "polder-lab", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the scenarios.
    List,
    /// Measures a scenario, or all of them.
    Run(RunArguments),
    /// Exports a model of a USB device over USB/IP, until interrupted.
    UsbipDevice(usbip::Arguments),
    /// Answers UDP requests.
    #[command(hide = true)]
    Serve {
        /// Service to run.
        kind: Served,
        /// IPv4 address and UDP port of the service.
        #[arg(long)]
        address: std::net::SocketAddrV4,
        /// The directory that is served.
        #[arg(long, required_if_eq("kind", "nfs"))]
        directory: Option<PathBuf>,
        /// Cost of a request beyond its necessary work, in microseconds.
        #[arg(long, default_value_t = 0)]
        cost_us: u64,
        /// Cost of every second request in its place, in microseconds.
        #[arg(long)]
        every_second_us: Option<u64>,
        /// Speed of the core, as measured before.
        #[arg(long)]
        speed: Option<u64>,
        /// CPU core to run on.
        #[arg(long)]
        core: usize,
        /// MAC address of the service.
        #[arg(long)]
        mac: polder_datapath::wire::MacAddress,
        /// The configuration of the gateway that it is part of; over sockets without one.
        #[arg(long)]
        over: Option<PathBuf>,
    },
    /// Competes with a measured process for a core.
    #[command(hide = true)]
    Neighbour {
        /// Kind of work.
        work: OtherWork,
        /// Core of the neighbour.
        #[arg(long)]
        core: usize,
    },
    /// The first process of a guest.
    #[command(hide = true)]
    GuestAgent {
        /// Port on the machine outside.
        port: u16,
    },
    /// A USB gadget of a guest, exported by USB/IP.
    #[command(hide = true)]
    GuestGadget {
        /// Network function: `ncm` or `ecm`.
        function: String,
    },
    /// USB devices of a guest, exported by USB/IP.
    #[command(hide = true)]
    GuestExport {
        /// The one that is listed.
        device: String,
    },
    /// Runs recipes of the scenario `hosts`, in a guest.
    #[command(hide = true)]
    HostsInside {
        /// The selection as JSON.
        selection: String,
        /// File for the verdict.
        verdict: PathBuf,
        /// Program `polder`, or its name.
        gateway: PathBuf,
    },
    /// Runs one of the selftests, in a guest.
    #[command(hide = true)]
    SelftestInside {
        /// Name of the part.
        part: String,
    },
    /// A gateway whose programs lack a check: for negative controls.
    #[command(hide = true)]
    GatewayLacking {
        /// Name of the check.
        check: String,
        /// The gateway's configuration.
        file: PathBuf,
    },
    /// Runs in place of `polder`, with a fault, in a guest.
    #[command(hide = true)]
    BrokenGateway {
        /// Number of its fault; 0 for none.
        number: usize,
        /// Arguments of `polder`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Keeps another process's files of VFIO, in a guest.
    #[command(hide = true)]
    KeepFiles {
        /// The process.
        process: i32,
    },
    /// Keeps a BPF program at netfilter's hook `forward` until the input ends, in a guest.
    #[command(hide = true)]
    NetfilterProgram,
    /// Tools of the scenario `nics`.
    #[command(subcommand, hide = true)]
    Nics(NicsTool),
    /// Holds a thread again and again.
    #[command(hide = true)]
    Hold {
        /// The thread.
        thread: i32,
        /// Number of times.
        times: u32,
        /// Time of each hold, in milliseconds.
        hold: u64,
        /// Pause between holds, in milliseconds.
        pause: u64,
    },
    /// Receives blocks in a group of processes whose memory is short, and prints their cost.
    #[command(hide = true)]
    ReceiveUnderPressure {
        /// Directory of the group.
        group: PathBuf,
        /// The effect.
        effect: String,
        /// Size of blocks.
        size: String,
        /// True for the technique on.
        #[arg(long)]
        on: bool,
        /// True for a short measurement.
        #[arg(long)]
        quick: bool,
    },
    /// Makes one report of several runs of parts of a scenario.
    Join {
        /// The parts' reports.
        #[arg(required = true)]
        reports: Vec<PathBuf>,
        /// File for the result as JSON.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// File for the result as a page.
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Writes the pages of published reports.
    Publish {
        /// Folder of the reports, each scenario in a folder of its own.
        #[arg(default_value = "docs/measurements")]
        folder: PathBuf,
        /// Write nothing: say what differs, and fail if anything does.
        #[arg(long)]
        check: bool,
    },
    /// Compares two reports row by row.
    Compare {
        /// The earlier report (JSON).
        before: PathBuf,
        /// The later report (JSON).
        after: PathBuf,
    },
}

/// Tools of the scenario about network drivers.
#[derive(Debug, Subcommand)]
enum NicsTool {
    /// Forwards between two interfaces in zero copy, and trusts their drivers.
    Forward {
        /// The one.
        left: String,
        /// The second interface.
        right: String,
        /// Bytes of a slot of packet memory.
        slot_bytes: u32,
    },
    /// Writes the page about network drivers from a report.
    Page {
        /// The report (JSON).
        report: PathBuf,
    },
}

/// Kind of a neighbour's work.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum OtherWork {
    /// Computes without end.
    Compute,
    /// Wakes up every millisecond.
    Wake,
    /// Uses nine tenths of the core, at real-time priority.
    Occupy,
}

impl From<OtherWork> for neighbour::Work {
    fn from(work: OtherWork) -> Self {
        match work {
            OtherWork::Compute => Self::Compute,
            OtherWork::Wake => Self::Wake,
            OtherWork::Occupy => Self::Occupy,
        }
    }
}

/// Services of the lab.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Served {
    /// UDP echo.
    Echo,
    /// A directory, by NFSv3.
    Nfs,
}

#[derive(Debug, Args)]
struct RunArguments {
    /// Name of the scenario, or `all`; see `polder-lab list`.
    scenario: String,
    /// Take at most 45 seconds per scenario; print the omitted parts.
    #[arg(long)]
    quick: bool,
    /// Measure only rows whose names contain this text; may be given several times.
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// Program `polder` that gateways run, an earlier build for instance; default: the one beside this program.
    #[arg(long, value_name = "PATH")]
    gateway: Option<PathBuf>,
    /// File for the report as JSON; with `all`, the scenario's name is put before the ending.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// File for the report as a page; with `all`, the scenario's name is put before the ending.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn main() -> ExitCode {
    CompleteEnv::with_factory(completed).complete();
    let arguments = Arguments::parse();
    let screen = Screen::new();
    let result = interrupt::install().and_then(|()| match arguments.command {
        Command::List => {
            list(screen);
            Ok(())
        }
        Command::Run(arguments) => run(screen, &arguments),
        Command::UsbipDevice(arguments) => arguments.run(screen),
        Command::Serve { kind, address, directory, cost_us, every_second_us, speed, core, mac, over } => {
            let configuration = over.as_deref().map(std::fs::read_to_string).transpose();
            configuration.context("cannot read the configuration").and_then(|configuration| {
                let cost = Duration::from_micros(cost_us);
                let kind = match (kind, directory) {
                    (Served::Nfs, Some(directory)) => services::Kind::Nfs { directory, cost },
                    (Served::Nfs | Served::Echo, _) => {
                        let every_second = every_second_us.map(Duration::from_micros);
                        services::Kind::Echo { cost, every_second }
                    }
                };
                let speed = speed.map(services::Speed);
                services::serve(&services::Options { kind, address, core, speed, configuration, mac: mac.0 })
            })
        }
        Command::Neighbour { work, core } => neighbour::work(work.into(), core),
        Command::GuestAgent { port } => polder_testbed::guest::agent::main(port),
        Command::GuestGadget { function } => polder_judges::usb::gadget::main(&function),
        Command::GuestExport { device } => polder_judges::usb::export::main(&device),
        Command::HostsInside { selection, verdict, gateway } => {
            hosts::inside::main(&selection, &verdict, &gateway, &|line| screen.line(line))
        }
        Command::SelftestInside { part } => selftests::inside(&part).map(|verdict| screen.line(verdict)),
        Command::GatewayLacking { check, file } => lacking::run(&check, &file),
        Command::BrokenGateway { number, words } => e1000::stand_in(number, &words),
        Command::KeepFiles { process } => e1000::keep_files(process),
        Command::NetfilterProgram => polder_testbed::traffic::raw::netfilter_program().and_then(|_program| {
            screen.line("attached");
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
            Ok(())
        }),
        Command::Nics(tool) => nics_tool(screen, tool),
        Command::Hold { thread, times, hold, pause } => {
            polder_lab::hold::hold(thread, times, Duration::from_millis(hold), Duration::from_millis(pause))
        }
        Command::ReceiveUnderPressure { group, effect, size, on, quick } => {
            usb::receive_under_pressure(&group, (&effect, &size), (on, quick))
                .map(|result| screen.line(result.to_string()))
        }
        Command::Join { reports, json, html } => {
            join_reports(screen, &reports, (json.as_deref(), html.as_deref()))
        }
        Command::Publish { folder, check } => publish_pages(screen, &folder, check),
        Command::Compare { before, after } => compare_reports(screen, &before, &after),
    });
    interrupt::exit_code("polder-lab", result)
}

fn nics_tool(screen: Screen, tool: NicsTool) -> anyhow::Result<()> {
    match tool {
        NicsTool::Forward { left, right, slot_bytes } => nics::forward(&[left, right], slot_bytes),
        NicsTool::Page { report } => {
            read(&report).map(|report| screen.line(nics::page::render(&report).trim_end()))
        }
    }
}

/// Prints two reports row by row.
fn compare_reports(screen: Screen, before: &Path, after: &Path) -> anyhow::Result<()> {
    compare::print(screen, &read(before)?, &read(after)?);
    Ok(())
}

/// Writes the pages of published reports, or says what differs.
fn publish_pages(screen: Screen, folder: &Path, check: bool) -> anyhow::Result<()> {
    let said = if check { publish::differences(folder)? } else { publish::write(folder)? };
    said.iter().for_each(|line| screen.line(line));
    ensure!(!check || said.is_empty(), "{} differ; `polder lab publish` writes the pages", said.len());
    Ok(())
}

/// Makes one report of several, judged as a whole.
fn join_reports(
    screen: Screen,
    reports: &[PathBuf],
    files: (Option<&Path>, Option<&Path>),
) -> anyhow::Result<()> {
    let reports = reports.iter().map(|path| read(path)).collect::<anyhow::Result<_>>();
    let mut report = join::join(reports?, &nics::SUMS)?;
    if let Some(scenario) = Scenario::named(&report.scenario) {
        scenario.judge(&mut report);
    }
    table::print(screen, &report);
    save(screen, &report, files)
}

/// The command line, with what completes its arguments: `source <(COMPLETE=bash polder-lab)`.
fn completed() -> clap::Command {
    let scenarios = || ALL.iter().map(|scenario| CompletionCandidate::new(scenario.name)).collect::<Vec<_>>();
    Arguments::command().mut_subcommand("run", |run| {
        run.mut_args(|argument| {
            let is_scenario = argument.get_id() == "scenario";
            if is_scenario { argument.add(ArgValueCandidates::new(scenarios)) } else { argument }
        })
    })
}

fn list(screen: Screen) {
    for scenario in ALL {
        let root = if scenario.needs_root { " (root)" } else { "" };
        screen.line(format!("{} {}{root}", screen.bold(&format!("{:<8}", scenario.name)), scenario.about));
        for promise in scenario.promises() {
            screen.line(format!("         {:<58} {}", promise.name, screen.dim(promise.unit)));
        }
    }
}

fn run(screen: Screen, arguments: &RunArguments) -> anyhow::Result<()> {
    if let Some(path) = &arguments.gateway {
        polder::use_program(path);
    }
    let all = arguments.scenario == "all";
    let named = Scenario::named(&arguments.scenario);
    if let Some(scenario) = named.filter(|scenario| scenario.name != arguments.scenario) {
        screen.line(format!("  the scenario {} is called {}", arguments.scenario, scenario.name));
    }
    let chosen = if all { ALL.iter().collect::<Vec<_>>() } else { named.into_iter().collect() };
    ensure!(!chosen.is_empty(), "no scenario is called `{}`; see `polder-lab list`", arguments.scenario);
    for scenario in chosen {
        if scenario.needs_root && !is_root() {
            ensure!(all, "the scenario {} needs root: it makes network namespaces", scenario.name);
            screen.line(format!("\n  {} {}: it needs root", screen.bad("skipped:"), scenario.name));
            continue;
        }
        let (report, error) = scenario.run(screen, arguments.quick, &arguments.only)?;
        table::print(screen, &report);
        let name = all.then_some(scenario);
        let [json, html] =
            [&arguments.json, &arguments.html].map(|path| path.as_ref().map(|path| file_for(path, name)));
        save(screen, &report, (json.as_deref(), html.as_deref()))?;
        error.map_or(Ok(()), Err)?;
    }
    Ok(())
}

/// Writes a report as JSON and as a page, where that is wanted.
fn save(screen: Screen, report: &Report, (json, html): (Option<&Path>, Option<&Path>)) -> anyhow::Result<()> {
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(report).context("a report cannot be written as JSON")?;
        write(screen, path, &(text + "\n"))?;
    }
    html.map_or(Ok(()), |path| write(screen, path, &page::render(report)?))
}

/// `report.json` becomes `report-engine.json` when each scenario has a file of its own.
fn file_for(path: &Path, scenario: Option<&Scenario>) -> PathBuf {
    let Some(scenario) = scenario else { return path.to_owned() };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let ending = path.extension().map_or_else(String::new, |ending| format!(".{}", ending.to_string_lossy()));
    path.with_file_name(format!("{stem}-{}{ending}", scenario.name))
}

fn write(screen: Screen, path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    screen.line(format!("  {} {}", screen.dim("written to"), path.display()));
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Report> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a report of the lab", path.display()))
}
