//! Checks of each adapter.

use super::{Case, Judge, PROBE, VLAN};
use anyhow::{Context as _, bail, ensure};
use polder_devices::lan78xx::LARGEST_MTU;
use polder_devices::lan78xx::model::{AddressSource, FaultyDevice};
use polder_devices::lan78xx::statistics::Statistic;
use polder_devices::usb::Speed;
use polder_testbed::command::Running;
use polder_testbed::guest::agent::{Answer, Request};
use std::time::Duration;

/// Payloads of pings: the shortest, around the padding of short frames, odd ones, the longest, and one
/// that is cut into fragments.
const PING_SIZES: &[u32] = &[0, 1, 17, 18, 19, 63, 64, 333, 501, 1001, 1471, 1472, 4001];
/// Payloads of floods: every remainder by four but none.
const FLOOD_SIZES: &[u32] = &[333, 334, 335];
/// Floods of one size, of which one must come through.
const FLOOD_CHANCES: u32 = 3;
/// Messages that the guest's kernel must never print.
const COMPLAINTS: &[&str] =
    &["hw csum failure", "Call Trace", "BUG:", "WARNING:", "Error rx_cmd_a", "tx timeout", "kernel panic"];
/// Time for which a link may take to come up.
const LINK: Duration = Duration::from_secs(8);

impl Judge {
    pub(super) fn has_address(
        &mut self,
        case: &Case,
        source: AddressSource,
        mac: [u8; 6],
    ) -> anyhow::Result<()> {
        let path = format!("/sys/class/net/{}/address", case.interface);
        let found = self.guest.ask(&Request::Read(path))?.trim().to_owned();
        let expected = mac.map(|byte| format!("{byte:02x}")).join(":");
        let is_right = match source {
            AddressSource::None => found != expected && found.len() == expected.len(),
            AddressSource::Eeprom
            | AddressSource::Otp
            | AddressSource::OtpSecond
            | AddressSource::Registers => found == expected,
        };
        ensure!(is_right, "the guest has {found}, the adapter {expected}");
        Ok(())
    }

    pub(super) fn comes_up(&mut self, case: &mut Case) -> anyhow::Result<()> {
        let Case { interface, guest, .. } = &*case;
        self.guest.run(&format!("ip address add {guest}/24 dev {interface}"))?;
        self.guest.run(&format!("ip link set {interface} up"))?;
        self.wait_for_state(case, case.up)?;
        self.reaches(case)
    }

    pub(super) fn wait_for_state(&mut self, case: &Case, state: &str) -> anyhow::Result<()> {
        let path = format!("/sys/class/net/{}/operstate", case.interface);
        let limit = if case.shown.bench().adapter.options().faulty.no_interrupts { LINK / 2 } else { LINK };
        let up = self.until(limit, |judge| {
            let found = judge.guest.ask(&Request::Read(path.clone()))?;
            Ok((found.trim() == state).then_some(()))
        })?;
        up.with_context(|| format!("{} does not come {state}", case.interface))
    }

    /// Pings until the first answer: a correct adapter may drop the first ones, because the kernel sets
    /// its address filter late.
    pub(super) fn reaches(&mut self, case: &Case) -> anyhow::Result<()> {
        let line = format!("ping -c 1 -W 1 {}", case.host);
        let honest = case.shown.bench().adapter.options().faulty == FaultyDevice::default();
        let limit = Duration::from_secs(if honest { 8 } else { 4 });
        let reached = self.until(limit, |judge| {
            let Answer { ok, .. } = judge.guest.try_ask(&Request::run(&line), Duration::from_secs(10))?;
            Ok(ok.then_some(()))
        })?;
        reached.context("the other end does not answer any ping")
    }

    pub(super) fn ping_sizes(&mut self, case: &mut Case) -> anyhow::Result<()> {
        for size in PING_SIZES {
            self.guest.run(&format!("ping -q -c 1 -W 2 -s {size} {}", case.host))?;
        }
        Ok(())
    }

    pub(super) fn some_pings(&mut self, case: &mut Case) -> anyhow::Result<()> {
        for size in [1, 333, 1001] {
            self.guest.run(&format!("ping -q -c 2 -i 0.01 -W 1 -s {size} {}", case.host))?;
        }
        Ok(())
    }

    /// Bursts of odd-sized packets both ways, so that several frames share a transfer. What finds no
    /// room in the adapter's FIFO, because the guest is slow, is counted there and may be missing. A guest
    /// that stood still for longer than `ping` waits is given another chance; a broken adapter loses
    /// every time.
    pub(super) fn floods(&mut self, case: &mut Case) -> anyhow::Result<()> {
        for &size in FLOOD_SIZES {
            let mut chances = FLOOD_CHANCES;
            while let Err(error) = self.flood(case, size) {
                chances -= 1;
                ensure!(chances > 0, error);
            }
        }
        Ok(())
    }

    fn flood(&mut self, case: &mut Case, size: u32) -> anyhow::Result<()> {
        let before = overflowed(case);
        let flood = |target: &str| format!("-q -f -c 120 -l 12 -W 2 -s {size} {target}");
        let arguments = flood(&case.guest);
        let mut outside = self.namespace.command("ping");
        let outside = Running::start("ping", outside.args(arguments.split(' ')))?;
        let inside = self.guest.try_ask(&Request::run(&format!("ping {}", flood(&case.host))), PROBE)?;
        let outside = finish(outside)?;
        let lost = lost(&inside.text)? + lost(&outside)?;
        let overflowed = overflowed(case).wrapping_sub(before);
        ensure!(
            lost <= overflowed,
            "{lost} of 240 packets of {size} bytes are lost, {overflowed} in the FIFO"
        );
        Ok(())
    }

    pub(super) fn vlan(&mut self, case: &mut Case) -> anyhow::Result<()> {
        let Case { interface, tap, number, .. } = &*case;
        let (host, guest) = (format!("10.98.{number}.1"), format!("10.98.{number}.2"));
        let tagged = format!("{tap}v");
        self.namespace.ip(&["address", "add", &format!("{host}/24"), "dev", &tagged])?;
        self.namespace.ip(&["link", "set", &tagged, "up"])?;
        self.guest.run(&format!("ip link add link {interface} name tagged type vlan id {VLAN}"))?;
        self.guest.run(&format!("ip address add {guest}/24 dev tagged"))?;
        self.guest.run("ip link set tagged up")?;
        let result = (|| {
            let line = format!("ping -c 1 -W 1 {host}");
            let reached = self.until(Duration::from_secs(5), |judge| {
                let answer = judge.guest.try_ask(&Request::run(&line), Duration::from_secs(10))?;
                Ok(answer.ok.then_some(()))
            })?;
            reached.context("the other end does not answer on the VLAN")?;
            for size in [1, 333, 1472] {
                self.guest.run(&format!("ping -q -c 2 -i 0.01 -W 2 -s {size} {host}"))?;
            }
            Ok(())
        })();
        self.guest.run("ip link delete tagged")?;
        result
    }

    /// Starts the other end of an iperf3 test, for one client.
    fn listen(&self, case: &Case) -> anyhow::Result<Running> {
        let mut server = self.namespace.command("iperf3");
        // Else it keeps what it says until it ends.
        server.args(["--server", "--one-off", "--forceflush", "--bind", &case.host]);
        let mut server = Running::start("iperf3", &mut server)?;
        server.wait_for("listening", 0, PROBE * 3)?;
        Ok(server)
    }

    pub(super) fn tcp(&mut self, case: &mut Case) -> anyhow::Result<()> {
        for (direction, flag) in [("transmit", ""), ("receive", "-R")] {
            let _server = self.listen(case)?;
            let said = self.guest.run(&format!("iperf3 -J -t 1 {flag} -c {}", case.host))?;
            let report: serde_json::Value =
                serde_json::from_str(&said).context("iperf3 said something else")?;
            let received = &report["end"]["sum_received"]["bits_per_second"];
            let mbit = received.as_f64().context("iperf3 gives no rate")? / 1e6;
            // How fast it is depends on what else the machine does.
            ensure!(mbit > 0.0, "{direction}: nothing arrived");
            let speed = match case.shown.bench().adapter.options().speed {
                Speed::High => "high",
                Speed::Super => "super",
            };
            self.mbit.push((format!("{speed} {direction}"), mbit));
        }
        Ok(())
    }

    pub(super) fn udp(&mut self, case: &mut Case) -> anyhow::Result<()> {
        for flag in ["", "-R"] {
            let mut server = self.listen(case)?;
            let before = overflowed(case);
            let line = format!("iperf3 -J -u -b 5M -l 1301 -t 1 {flag} -c {}", case.host);
            let said = self.guest.run(&line)?;
            let report: serde_json::Value =
                serde_json::from_str(&said).context("iperf3 said something else")?;
            let sum = &report["end"]["sum"];
            let (lost, packets) = (sum["lost_packets"].as_f64(), sum["packets"].as_f64());
            // Some find a full socket, and as many as the adapter says find its FIFO full, because the guest is slow.
            let overflowed = overflowed(case).wrapping_sub(before);
            ensure!(
                packets > Some(0.0) && lost < Some(5.0 + f64::from(overflowed)),
                "{lost:?} of {packets:?} datagrams are lost, {overflowed} in the FIFO"
            );
            server.stop()?;
        }
        Ok(())
    }

    /// The largest frames that both drivers take.
    pub(super) fn large_frames(&mut self, case: &mut Case) -> anyhow::Result<()> {
        self.guest.run(&format!("ip link set {} mtu {LARGEST_MTU}", case.interface))?;
        self.wait_for_state(case, case.up)?;
        // A ping as large as the MTU: IPv4 and ICMP headers take 28 bytes.
        let largest = u32::from(LARGEST_MTU) - 28;
        for size in [1473, 4001, 8192, largest] {
            self.guest.run(&format!("ping -q -M do -c 2 -i 0.01 -W 2 -s {size} {}", case.host))?;
        }
        Ok(())
    }

    /// Checks that the driver reads the adapter's counters correctly.
    pub(super) fn statistics(&mut self, case: &mut Case) -> anyhow::Result<()> {
        let pairs = [
            ("RX Unicast Frames", Statistic::RxUnicast),
            ("TX Unicast Frames", Statistic::TxUnicast),
            ("RX Dropped Frames", Statistic::RxDropped),
        ];
        let line = format!("ethtool -S {}", case.interface);
        let same = self.until(Duration::from_secs(3), |judge| {
            let said = judge.guest.run(&line)?;
            let bench = case.shown.bench();
            let agree = pairs.iter().all(|(name, statistic)| {
                counter(&said, name) == Some(u64::from(bench.adapter.statistics().get(*statistic)))
            });
            Ok(agree.then_some(()))
        })?;
        if same.is_none() {
            let said = self.guest.run(&line)?;
            let bench = case.shown.bench();
            let shown = pairs.map(|(name, statistic)| {
                format!(
                    "{name}: {:?}, counted {}",
                    counter(&said, name),
                    bench.adapter.statistics().get(statistic)
                )
            });
            bail!("{}", shown.join("; "));
        }
        Ok(())
    }

    pub(super) fn flap(&mut self, case: &mut Case) -> anyhow::Result<()> {
        case.shown.bench().adapter.set_link(false);
        self.wait_for_state(case, "down")?;
        case.shown.bench().adapter.set_link(true);
        self.wait_for_state(case, case.up)?;
        self.reaches(case)
    }

    /// The kernel's name of the adapter's interface (`2-1:1.0`).
    pub(super) fn usb_device(&mut self, case: &Case) -> anyhow::Result<String> {
        let link = self.guest.ask(&Request::Link(format!("/sys/class/net/{}/device", case.interface)))?;
        Ok(link.rsplit('/').next().unwrap_or_default().to_owned())
    }

    pub(super) fn rebind(&mut self, case: &mut Case) -> anyhow::Result<()> {
        let device = self.usb_device(case)?;
        let driver = "/sys/bus/usb/drivers/lan78xx";
        self.guest.ask(&Request::Write(format!("{driver}/unbind"), device.clone()))?;
        self.guest.until_gone(&case.interface, PROBE).context("after unbind")?;
        let before = self.guest.interfaces()?;
        self.guest.ask(&Request::Write(format!("{driver}/bind"), device))?;
        case.interface = self.guest.new_interface(&before, PROBE)?;
        self.comes_up(case)
    }

    pub(super) fn no_complaints(&mut self, case: &mut Case) -> anyhow::Result<()> {
        let log = self.guest.log()?;
        let complaint = log.lines().find(|line| COMPLAINTS.iter().any(|words| line.contains(words)));
        if let Some(complaint) = complaint {
            bail!("the kernel says: {complaint}");
        }
        for counter in ["rx_errors", "tx_errors", "rx_length_errors"] {
            let path = format!("/sys/class/net/{}/statistics/{counter}", case.interface);
            let value = self.guest.ask(&Request::Read(path))?;
            ensure!(value.trim() == "0", "{counter} {}", value.trim());
        }
        Ok(())
    }

    pub(super) fn detach(&mut self, case: &mut Case) -> anyhow::Result<()> {
        self.guest.detach(case.port)?;
        self.guest.until_gone(&case.interface, PROBE).context("after it was detached")
    }
}

/// Waits for a program and returns its output.
fn finish(mut running: Running) -> anyhow::Result<String> {
    running.wait(Duration::from_secs(20))?;
    Ok(running.said())
}

/// Packets that found no room in the adapter's FIFO.
fn overflowed(case: &Case) -> u32 {
    case.shown.bench().adapter.statistics().get(Statistic::RxDropped)
}

/// Echo requests that ping sent and that were not answered.
fn lost(said: &str) -> anyhow::Result<u32> {
    let line = said.lines().find(|line| line.contains("packets transmitted"));
    let line = line.context("ping said nothing of losses")?;
    let numbers = line.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
    let numbers: Vec<u32> = numbers.take(2).filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [sent, received] => Ok(sent.saturating_sub(received)),
        _ => bail!("ping said something else: {line}"),
    }
}

/// A counter as `ethtool -S` prints it.
fn counter(said: &str, name: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().parse().ok()
}
