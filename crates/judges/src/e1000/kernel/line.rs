//! The device's interrupt line: its level, as the guest's I/O APIC sees it.
//!
//! QEMU takes the interrupt of a device outside of it by KVM alone. Here its test protocol moves the pin of the
//! emulated I/O APIC, and a change of the level is over before the access that caused it is answered.

use anyhow::{Context as _, ensure};
use polder_datapath::units::Nanos;
use polder_devices::e1000::model::Nic;
use polder_devices::pci::Interrupt as _;
use polder_testbed::clock;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time within which the emulator answers.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interrupts between two lookings at the level, at most.
const CHANGES: u32 = 8;

/// The line.
#[derive(Debug)]
pub(super) struct Line {
    nic: Nic,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    emulator: Option<BufReader<UnixStream>>,
    pin: u32,
    /// True if the configuration space lets the device interrupt.
    is_let: bool,
    level: bool,
    /// Times that the level has risen.
    interrupts: u64,
    /// Time to which the device's clock has been set.
    now: Duration,
}

impl Line {
    pub(super) fn new(nic: Nic) -> Self {
        // The device is told of a change once, until this line asks again.
        nic.unmask();
        let now = clock::now();
        // The throttle counts from the first interrupt on, which is not at time zero.
        nic.advance(Nanos::from_millis(1));
        let state = State { emulator: None, pin: 0, is_let: true, level: false, interrupts: 0, now };
        Self { nic, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leads the line to a pin of the emulator's I/O APIC.
    pub(super) fn connect(&self, emulator: UnixStream, pin: u32) -> anyhow::Result<()> {
        emulator.set_read_timeout(Some(PATIENCE))?;
        emulator.set_write_timeout(Some(PATIENCE))?;
        let mut state = self.lock();
        (state.emulator, state.pin) = (Some(BufReader::new(emulator)), pin);
        let level = state.level;
        state.set(level)
    }

    /// Times that the level has risen.
    pub(super) fn interrupts(&self) -> u64 {
        self.lock().interrupts
    }

    /// True if an interrupt is pending that the throttle delays: time has to go on by [`Line::update`].
    pub(super) fn is_delayed(&self) -> bool {
        let state = self.lock();
        !state.level && self.nic.is_asserted()
    }

    pub(super) fn let_interrupt(&self, is_let: bool) {
        self.lock().is_let = is_let;
    }

    /// Sets the device's clock, and the level that the device wants.
    pub(super) fn update(&self) -> anyhow::Result<()> {
        let mut state = self.lock();
        let now = clock::now();
        let passed = now.saturating_sub(core::mem::replace(&mut state.now, now));
        self.nic.advance(Nanos(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)));
        for _ in 0..CHANGES {
            let has_changed = if state.level { self.falls(&mut state)? } else { self.rises(&mut state)? };
            if !has_changed {
                break;
            }
        }
        Ok(())
    }

    /// Lowers the line if nothing asks for it; says whether the level is to be looked at again.
    fn falls(&self, state: &mut State) -> anyhow::Result<bool> {
        if self.nic.is_asserted() && state.is_let {
            return Ok(false);
        }
        state.set(false)?;
        self.nic.unmask();
        Ok(true)
    }

    /// Raises the line if the device has asked for it; says whether the level is to be looked at again.
    fn rises(&self, state: &mut State) -> anyhow::Result<bool> {
        if !self.nic.acknowledge() {
            return Ok(false);
        }
        if self.nic.is_asserted() && state.is_let {
            state.set(true)?;
            state.interrupts += 1;
        } else {
            // Its cause is gone before the line was told of it.
            self.nic.unmask();
        }
        Ok(true)
    }
}

impl State {
    fn set(&mut self, level: bool) -> anyhow::Result<()> {
        self.level = level;
        let Some(emulator) = &mut self.emulator else { return Ok(()) };
        let request = format!("set_irq_in ioapic unnamed-gpio-in {} {}\n", self.pin, u32::from(level));
        emulator.get_mut().write_all(request.as_bytes()).context("the emulator's test protocol is gone")?;
        let mut answer = String::new();
        emulator.read_line(&mut answer).context("the emulator's test protocol does not answer")?;
        ensure!(answer.starts_with("OK"), "the emulator does not move the interrupt line: {answer}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_devices::e1000::model::Options;
    use polder_devices::e1000::regs::{ICR, ICS, IMS};
    use polder_devices::pci::Registers as _;

    #[test]
    fn the_level_follows_causes_and_their_mask() {
        let nic = Nic::new(Options::default()).unwrap();
        let line = Line::new(nic.clone());
        let levels = |nic: &Nic, register, value| {
            nic.write32(register, value);
            line.update().unwrap();
            let level = line.lock().level;
            (level, line.interrupts())
        };
        assert_eq!(levels(&nic, ICS.offset, 4), (false, 0), "nothing may interrupt");
        assert_eq!(levels(&nic, IMS.offset, 4), (true, 1));
        assert_eq!(levels(&nic, ICS.offset, 4), (true, 1), "a level, not an edge");
        assert_eq!(nic.read32(ICR.offset), 4);
        line.update().unwrap();
        assert!(!line.lock().level);
        assert_eq!(levels(&nic, ICS.offset, 4), (true, 2));
        line.let_interrupt(false);
        line.update().unwrap();
        assert!(!line.lock().level);
    }

    #[test]
    fn the_pin_is_moved_and_the_answer_awaited() {
        let nic = Nic::new(Options::default()).unwrap();
        let line = Line::new(nic.clone());
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"OK\nOK\nFAIL Unknown device\n").unwrap();
        line.connect(ours, 23).unwrap();
        nic.write32(IMS.offset, 4);
        nic.write32(ICS.offset, 4);
        line.update().unwrap();
        nic.read32(ICR.offset);
        assert!(line.update().unwrap_err().to_string().contains("Unknown device"));
        let mut said = BufReader::new(theirs).lines().map_while(Result::ok);
        let wanted = [0, 1, 0].map(|level| format!("set_irq_in ioapic unnamed-gpio-in 23 {level}"));
        assert_eq!(said.by_ref().take(3).collect::<Vec<_>>(), wanted);
    }
}
