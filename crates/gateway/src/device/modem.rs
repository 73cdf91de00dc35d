//! Modems: opening, link state and addresses from the network, and rows.

use super::contract::{Handle, Link, OpenPort, PointToPoint, PortProperties};
use super::function::{TAKES, blocks, numbers, options};
use super::lan78xx::{bus, common_row, transfers};
use crate::config::model::Port;
use crate::config::modem::Modem;
use crate::config::router::InterfaceAddress;
use crate::show::adapter::AdapterRow;
use crate::show::buffers::TransferRow;
use crate::show::modem::{ModemRow, SessionRow};
use anyhow::{Result, bail};
use polder_datapath::counters::QueueCounters;
use polder_datapath::wire::MacAddress;
use polder_devices::Receiving;
use polder_devices::cdc::mbim::service::Access;
use polder_devices::cdc::mbim::{self, PortStatus, SessionState, Wanted};
use polder_devices::cdc::{NetworkFunction, Subclass};
use polder_devices::usb::Transport;
use rustix::io::Errno;
use std::sync::Arc;

/// Maximum length of a file with a password or a PIN, in bytes.
const LONGEST_SECRET: u64 = 512;
/// Minimum MTU that is accepted from a network (RFC 791).
const SMALLEST_MTU: u32 = 576;

/// Opens the modem behind `transport`.
pub(super) fn open(
    transport: Box<dyn Transport>,
    function: NetworkFunction,
    identity: (u16, u16),
    (place, port, receiving): (String, &Port, Receiving),
) -> Result<OpenPort> {
    let Some(modem) = &port.modem else {
        bail!(
            "the USB device {} is a modem: add `[port.{}.modem]` with its `apn`, and `role = \"router\"`",
            transport.place(),
            port.name
        );
    };
    let speed = transport.speed();
    let opened = mbim::open(transport, function, identity, &options(port, receiving), wanted(modem)?)?;
    let neighbour = MacAddress(opened.neighbour);
    let mode = format!("{}, {}", Subclass::Mbim.name(), bus(speed));
    let facts = PortProperties {
        takes: TAKES,
        link_addresses: Some(PointToPoint { neighbour, sessions: Vec::new() }),
        ..PortProperties::new(place, MacAddress(opened.mac), opened.mtu.into(), mode)
    };
    let sent = Arc::clone(opened.queue.tx.counters());
    let handle = Open { status: opened.status, sent, apn: modem.apn.clone(), most_mtu: facts.mtu };
    Ok(OpenPort::held(port.id, facts, vec![opened.queue], handle))
}

/// Sessions and secrets of a modem; secrets are read from files.
fn wanted(modem: &Modem) -> Result<Wanted> {
    let first = Access {
        apn: modem.apn.clone(),
        authentication: modem.authentication.driver(),
        user: modem.user.clone().unwrap_or_default(),
        password: secret(modem.password_file.as_deref())?.unwrap_or_default(),
    };
    let others = modem
        .sessions
        .iter()
        .map(|session| (session.number, Access { apn: session.apn.clone(), ..Access::default() }));
    let sessions = std::iter::once((0, first)).chain(others).collect();
    Ok(Wanted { sessions, pin: secret(modem.pin_file.as_deref())? })
}

/// First line of a file.
fn secret(path: Option<&str>) -> Result<Option<String>> {
    let Some(path) = path else { return Ok(None) };
    let text = crate::secret::read(path, LONGEST_SECRET, "a password or a PIN")?;
    Ok(Some(text.lines().next().unwrap_or_default().to_owned()))
}

/// An open modem.
struct Open {
    status: Arc<PortStatus>,
    sent: Arc<QueueCounters>,
    apn: String,
    /// Configured MTU.
    most_mtu: u32,
}

fn addresses(session: &SessionState) -> Vec<InterfaceAddress> {
    let addresses = session.configuration.addresses.iter();
    addresses.map(|&(address, bits)| InterfaceAddress { address, bits }).collect()
}

impl Handle for Open {
    fn refresh(&self, facts: &mut PortProperties, _: Option<u32>) -> Result<Option<Link>, Errno> {
        let modem = self.status.function.modem();
        let active = || modem.state.sessions.iter().filter(|session| session.active);
        let told = active().filter_map(|session| session.configuration.mtu).map(u32::from);
        let told = told.filter(|&mtu| mtu >= SMALLEST_MTU).min();
        facts.mtu = told.map_or(self.most_mtu, |mtu| mtu.min(self.most_mtu));
        if let Some(link) = &mut facts.link_addresses {
            link.sessions = active().map(|session| (session.number, addresses(session))).collect();
        }
        Ok(Some(Link::new(true, self.carries())))
    }

    fn carries(&self) -> bool {
        self.status.connection().link.up
    }

    fn why_closed(&self) -> &'static str {
        "the modem was unplugged, or the connection to it was lost"
    }

    fn adapter_row(&self) -> Option<AdapterRow> {
        let modem = self.status.function.modem();
        let blocks = modem.ntb.map(|ntb| blocks(&ntb, &self.status.function.blocks, &self.sent));
        Some(AdapterRow {
            chip: Some(numbers(modem.identity)),
            class: Some(Subclass::Mbim.name().to_owned()),
            blocks,
            ..common_row(&self.status)
        })
    }

    fn transfers(&self, port: &str) -> Vec<TransferRow> {
        transfers(&self.status, port)
    }

    fn modem_row(&self) -> Option<ModemRow> {
        Some(row(&self.status, &self.apn))
    }

    fn order_modem(&self, connects: bool) -> bool {
        self.status.function.order(connects);
        true
    }
}

fn row(status: &PortStatus, apn: &str) -> ModemRow {
    let state = status.function.modem().state;
    let caps = state.caps.clone().unwrap_or_default();
    let sessions = state.sessions.iter().map(|session| SessionRow {
        number: session.number,
        active: session.active,
        addresses: addresses(session).iter().map(ToString::to_string).collect(),
        gateways: session.configuration.gateways.iter().map(ToString::to_string).collect(),
        servers: session.configuration.servers.iter().map(ToString::to_string).collect(),
        mtu: session.configuration.mtu,
    });
    ModemRow {
        connected: state.is_connected(),
        step: state.step.name().to_owned(),
        apn: apn.to_owned(),
        sim: state.ready.map(|ready| ready.name().to_owned()),
        pin_attempts: state.pin_attempts,
        radio: state.radio.map(|radio| radio.hardware && radio.software),
        registration: state.registration.as_ref().map(|registration| registration.state.name().to_owned()),
        provider: state.registration.as_ref().map(|registration| registration.provider.clone()),
        signal_dbm: state.signal,
        device: caps.device,
        firmware: caps.firmware,
        sessions: sessions.collect(),
        error: state.error,
        messages: state.messages,
        refused: state.refused,
        function_errors: state.function_errors,
        timeouts: state.timeouts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_the_first_line_of_its_file() {
        let path = std::env::temp_dir().join(format!("polder-secret-{}", std::process::id()));
        let name = path.to_string_lossy().into_owned();
        std::fs::write(&path, "1234\nnot this\n").expect("a file for a test");
        assert_eq!(secret(Some(&name)).expect("it is there").as_deref(), Some("1234"));
        std::fs::write(&path, "x".repeat(600)).expect("a file for a test");
        assert!(secret(Some(&name)).is_err());
        std::fs::remove_file(&path).expect("it is there");
        let missing = secret(Some(&name)).expect_err("it is gone").to_string();
        assert!(missing.contains("directory of the configuration"), "{missing}");
        assert_eq!(secret(None).expect("nothing is wanted"), None);
    }
}
