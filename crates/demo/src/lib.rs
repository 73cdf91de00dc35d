//! `polder demo`: two gateways and a gretap tunnel between real network stacks, in under a minute.

mod cables;
pub mod gateway;
mod measure;
mod memory;
pub mod network;
mod print;

use anyhow::ensure;
use polder_testbed::clock;
use polder_testbed::machine;
use polder_testbed::screen::Screen;
use polder_testbed::topology::{Topology, is_root};
use polder_testbed::traffic::sockets::wait_for_ping;

use gateway::Gateway;
use network::{ACCESS_POINT, Network, SERVER, STATION};
use std::time::Duration;

/// Time for which the first packet may take through a fresh network.
const FIRST_PACKET: Duration = Duration::from_secs(5);

/// Forwarder in the demonstration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarder {
    /// Two `polder` processes, gretap between them.
    #[default]
    Polder,
    /// The kernel's bridge, VXLAN between them, for comparison.
    Kernel,
}

/// Runs the demonstration and prints its results.
///
/// # Errors
/// When something cannot be set up, does not forward, or does not add up; everything is taken down
/// before the error is returned.
pub fn run(forwarder: Forwarder) -> anyhow::Result<()> {
    let screen = Screen::new();
    if !is_root() {
        ensure!(
            forwarder == Forwarder::Polder,
            "the demonstration with the kernel's bridges needs network namespaces: run as root"
        );
        return memory::run(screen);
    }
    let start = clock::now();
    print::title(screen, forwarder);
    let step = screen.step("setting up the network");
    let mut topology = Topology::new()?;
    let network = Network::lay_with_offloads(&mut topology)?;
    drop(step);
    print::done(screen, "four namespaces, three links with all offloads", clock::now() - start);
    match forwarder {
        Forwarder::Polder => with_polder(screen, &topology, &network)?,
        Forwarder::Kernel => with_kernel(screen, &network)?,
    }
    let step = screen.step("removing everything");
    drop(topology);
    drop(step);
    print::end(screen, clock::now() - start);
    Ok(())
}

fn with_polder(screen: Screen, topology: &Topology, network: &Network) -> anyhow::Result<()> {
    let step = screen.step("starting the gateways");
    let begun = clock::now();
    let cores = machine::cores();
    let mut access_point = Gateway::start(ACCESS_POINT, &network.access_point, topology, (0, ""))?;
    let mut station = Gateway::start(STATION, &network.station, topology, (1 % cores, ""))?;
    access_point.wait()?;
    station.wait()?;
    let answered = wait_for_ping(&network.client, SERVER, FIRST_PACKET)?;
    ensure!(
        answered,
        "no packet passes from client to server{}",
        measure::whereabouts(&access_point, &station)
    );
    drop(step);
    print::done(screen, "two gateways; the client reaches the server", clock::now() - begun);

    measure::all(screen, network)?;
    print::gateways(screen, &[&access_point, &station])?;
    let balanced = print::conservation(screen, &[&access_point, &station])?;
    access_point.stop()?;
    station.stop()?;
    ensure!(balanced, "some packets are unaccounted for");
    Ok(())
}

fn with_kernel(screen: Screen, network: &Network) -> anyhow::Result<()> {
    let begun = clock::now();
    ACCESS_POINT.bridge_in_kernel(&network.access_point)?;
    STATION.bridge_in_kernel(&network.station)?;
    let answered = wait_for_ping(&network.client, SERVER, FIRST_PACKET)?;
    ensure!(answered, "no packet passes the kernel's bridges");
    print::done(screen, "two bridges; the client reaches the server", clock::now() - begun);
    measure::all(screen, network)
}
