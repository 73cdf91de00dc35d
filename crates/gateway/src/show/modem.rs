//! Rows of a modem in `polder show ports` and `polder modem`.

use super::layout::Layout;
use serde::{Deserialize, Serialize};

/// A modem.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModemRow {
    /// True if all of its sessions are active.
    pub connected: bool,
    /// Step of the connection set-up, as text.
    pub step: String,
    /// Access point name of the first session; empty for the subscription's default.
    pub apn: String,
    /// State of the SIM.
    pub sim: Option<String>,
    /// Number of PIN attempts left, if the modem reports it.
    pub pin_attempts: Option<u32>,
    /// True if the radio is on.
    pub radio: Option<bool>,
    /// State of the network registration.
    pub registration: Option<String>,
    /// Name of the network operator.
    pub provider: Option<String>,
    /// Signal strength in dBm, if known.
    pub signal_dbm: Option<i16>,
    /// Device identity (IMEI).
    pub device: String,
    /// Firmware version.
    pub firmware: String,
    /// Sessions of the modem.
    pub sessions: Vec<SessionRow>,
    /// The last error.
    pub error: Option<String>,
    /// Number of messages received from the modem.
    pub messages: u64,
    /// Number of invalid messages from the modem.
    pub refused: u64,
    /// Number of errors reported by the modem.
    pub function_errors: u64,
    /// Number of requests that the modem did not answer in time.
    pub timeouts: u64,
}

/// A session of a modem.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    /// Number of the session; above 0 also the VLAN of the port.
    pub number: u8,
    /// True if the session carries packets.
    pub active: bool,
    /// Own addresses with prefix lengths.
    pub addresses: Vec<String>,
    /// Gateways of the network.
    pub gateways: Vec<String>,
    /// Name servers of the network.
    pub servers: Vec<String>,
    /// MTU, if the network reports it.
    pub mtu: Option<u16>,
}

impl ModemRow {
    /// Mark for a good or bad state.
    pub(super) fn mark(&self, layout: Layout) -> String {
        if self.connected { layout.good("✓") } else { layout.odd("!") }
    }

    /// Lines about the modem, as short phrases.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let state = if self.connected { "connected" } else { &self.step };
        let network = self.provider.as_deref().filter(|name| !name.is_empty());
        let network = network.map(|name| format!(" to {name}")).unwrap_or_default();
        let registration =
            self.registration.as_deref().map(|state| format!(" ({state})")).unwrap_or_default();
        lines.push(format!("modem {state}{network}{registration}"));
        lines.extend(self.signal_dbm.map(|dbm| format!("signal {dbm} dBm")));
        lines.extend(self.sim.as_deref().filter(|&sim| sim != "initialized").map(|sim| format!("SIM {sim}")));
        lines.extend(
            self.pin_attempts.filter(|_| !self.connected).map(|left| format!("{left} PIN attempts left")),
        );
        for session in self.sessions.iter().filter(|session| session.active) {
            lines.push(session.line());
        }
        lines.extend(self.error.clone());
        lines
    }
}

impl SessionRow {
    fn line(&self) -> String {
        let mut line = match self.number {
            0 => self.addresses.join(" "),
            number => format!("session {number}: {}", self.addresses.join(" ")),
        };
        for (what, all) in [("gateway", &self.gateways), ("DNS", &self.servers)] {
            if !all.is_empty() {
                line += &format!(", {what} {}", all.join(" "));
            }
        }
        line + &self.mtu.map(|mtu| format!(", MTU {mtu}")).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modem_is_told_in_a_few_lines() {
        let session = SessionRow {
            active: true,
            addresses: vec!["100.64.0.2/30".to_owned()],
            gateways: vec!["100.64.0.1".to_owned()],
            servers: vec!["192.0.2.53".to_owned()],
            mtu: Some(1420),
            ..SessionRow::default()
        };
        let row = ModemRow {
            connected: true,
            provider: Some("Example".to_owned()),
            registration: Some("home".to_owned()),
            sim: Some("initialized".to_owned()),
            signal_dbm: Some(-73),
            sessions: vec![session],
            ..ModemRow::default()
        };
        assert_eq!(
            row.lines().join("; "),
            "modem connected to Example (home); signal -73 dBm; 100.64.0.2/30, gateway 100.64.0.1, DNS 192.0.2.53, MTU 1420"
        );
        let locked = ModemRow {
            step: "halted".to_owned(),
            sim: Some("locked".to_owned()),
            pin_attempts: Some(2),
            error: Some("the SIM refuses the PIN".to_owned()),
            ..ModemRow::default()
        };
        assert_eq!(
            locked.lines().join("; "),
            "modem halted; SIM locked; 2 PIN attempts left; the SIM refuses the PIN"
        );
    }
}
