//! A guest with a gadget, and a port of our driver on it.

use super::gadget::{BUSID, CONTROLLER, DUMMY, PORT};
use super::mutants::{Fault, Wrapped};
use super::station::{is_echo, is_same, reply, request};
use crate::clock;
use crate::guest::agent::Request;
use crate::guest::{Guest, Iommu, Kernel, Options as GuestOptions};
use anyhow::{Context as _, ensure};
use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions};
use polder_datapath::port::{Armed, Budget};
use polder_devices::cdc::{self, Cdc, NetworkFunction, Options, Subclass, network_function};
use polder_devices::usb::usbip::{Client, ServerAddress};
use polder_devices::usb::{Transport, identify};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Packet memory.
const MEMORY: RegionOptions = RegionOptions { slots: 8192, slot_bytes: 2048 };
/// Modules of the guest.
pub(super) const MODULES: &[&str] = &["dummy_hcd", "usb_f_ncm", "usb_f_ecm", "usbip_host"];
/// File that keeps new interfaces of the guest from sending frames that nobody asked for.
const NO_IPV6: &str = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
/// Echoes that are under way at most. The guest drops replies when more than 57 of the longest wait for the
/// gadget: its socket for ICMP has no more memory.
const WINDOW: usize = 48;
/// Time that a check waits for what is not yet there: the guest is emulated.
const PATIENCE: Duration = Duration::from_secs(8);
/// The same where the driver is broken, and it will not come.
const IMPATIENCE: Duration = Duration::from_millis(1000);
/// Names of the guest's counters.
pub(super) const COUNTERS: [&str; 4] = ["rx_packets", "tx_packets", "rx_errors", "tx_errors"];

/// An attached device: its transport, its network function, vendor and product.
type Attached = (Box<dyn Transport>, NetworkFunction, (u16, u16));

/// A guest with a gadget, and a port of ours.
pub(super) struct Testbed {
    /// First, so that the function is put to rest while it is there.
    port: Option<Cdc>,
    pub(super) guest: Guest,
    server: ServerAddress,
    region: Region,
    pub(super) pool: Pool,
    pub(super) subclass: Subclass,
    pub(super) fault: Option<Fault>,
    number: u32,
}

impl Testbed {
    /// Starts a guest with a gadget of that subclass.
    pub(super) fn boot(kernel: &Kernel, program: &Path, subclass: Subclass) -> anyhow::Result<Self> {
        let options = GuestOptions {
            program,
            modules: MODULES,
            spare_modules: &[],
            programs: &["ip"],
            memory_mib: 512,
            processors: 1,
            cards: &[],
            iommu: Iommu::None,
        };
        let mut guest = Guest::boot(kernel, &options)?;
        // Such frames would be among those that are counted. An interface is listed before its own file is there.
        guest.ask(&Request::Write(NO_IPV6.to_owned(), "1".to_owned()))?;
        let function = match subclass {
            Subclass::Ncm => "ncm",
            Subclass::Ecm => "ecm",
            Subclass::Mbim => anyhow::bail!("Linux has no gadget of MBIM"),
        };
        let words = ["polder-lab", "guest-gadget", function].map(str::to_owned).to_vec();
        guest.ask(&Request::Start(words))?;
        let server = ServerAddress::Tcp(format!("127.0.0.1:{}", guest.forward(PORT)?));
        let region = Region::new(MEMORY)?;
        let pool = region.pool();
        let mut bed = Self { port: None, guest, server, region, pool, subclass, fault: None, number: 0 };
        bed.wait_for_interface()?;
        for line in [
            "ip link set usb0 up",
            "ip address add 10.77.0.1/24 dev usb0",
            "ip neighbour replace 10.77.0.2 lladdr 02:00:00:00:77:02 dev usb0",
            "ip neighbour replace 10.77.0.9 lladdr 02:00:00:00:77:09 dev usb0",
        ] {
            bed.guest.run(line)?;
        }
        let _ = bed.guest.log()?;
        Ok(bed)
    }

    fn wait_for_interface(&mut self) -> anyhow::Result<()> {
        let end = clock::now() + PATIENCE;
        loop {
            let names = self.guest.ask(&Request::List("/sys/class/net".to_owned()))?;
            if names.lines().any(|name| name == "usb0") {
                return Ok(());
            }
            ensure!(clock::now() < end, "the gadget has no interface: {}", self.guest.log()?);
            crate::interrupt::sleep(Duration::from_millis(20))?;
        }
    }

    fn patience(&self) -> Duration {
        if self.fault.is_some() { IMPATIENCE } else { PATIENCE }
    }

    /// Attaches the device, and reads what it is.
    fn attach(&self) -> anyhow::Result<Attached> {
        let end = clock::now() + PATIENCE;
        let mut transport: Box<dyn Transport> = loop {
            match Client::attach(&self.server, BUSID) {
                Ok(client) => break Box::new(client),
                Err(error) if clock::now() > end => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        let identified = identify(&mut *transport, &AtomicBool::new(false))?;
        let functions = identified.configurations.iter().map(|one| network_function(one));
        let functions = functions.collect::<Result<Vec<_>, _>>()?;
        let function =
            functions.into_iter().flatten().next().context("the device has no network function")?;
        Ok((transport, function, (identified.vendor, identified.product)))
    }

    /// The function, as its descriptors have it.
    pub(super) fn describe(&mut self) -> anyhow::Result<(NetworkFunction, (u16, u16))> {
        self.close();
        let (_transport, function, identity) = self.attach()?;
        Ok((function, identity))
    }

    /// Opens the port anew, and waits for the link.
    pub(super) fn open(&mut self, options: &Options) -> anyhow::Result<()> {
        self.close();
        let (transport, function, identity) = self.attach()?;
        let transport = match self.fault {
            Some(fault) => Box::new(Wrapped::new(transport, fault)),
            None => transport,
        };
        self.port = Some(cdc::open(transport, function, identity, options)?);
        ensure!(self.until(|bed| Ok(bed.port()?.status.facts().link.up))?, "no link");
        Ok(())
    }

    /// Opens the port as usual, unless it is open.
    pub(super) fn is_open(&mut self) -> anyhow::Result<()> {
        let is_well = self.port.as_ref().is_some_and(|port| !port.status.facts().closed);
        if is_well { Ok(()) } else { self.open(&Options::default()) }
    }

    pub(super) fn close(&mut self) {
        self.port = None;
    }

    pub(super) fn port(&mut self) -> anyhow::Result<&mut Cdc> {
        self.port.as_mut().context("no port is open")
    }

    /// True if all frames are in their memory.
    pub(super) fn is_home(&mut self) -> bool {
        self.pool = self.region.pool();
        self.region.home() == self.region.slots()
    }

    /// One turn; returns the frames of it.
    pub(super) fn turn(&mut self) -> anyhow::Result<Vec<Vec<u8>>> {
        let port = self.port.as_mut().context("no port is open")?;
        let mut batch = Batch::new();
        let _ = port.queue.rx.receive(&mut Budget::new(64), &mut batch, &mut self.pool);
        let frames = batch.iter().map(|packet| packet.segments().flatten().copied().collect()).collect();
        self.pool.release(&mut batch);
        let _ = port.queue.tx.reclaim(&mut self.pool);
        Ok(frames)
    }

    /// Waits for an event as a worker does.
    fn doze(&mut self) -> anyhow::Result<()> {
        let port = self.port.as_mut().context("no port is open")?;
        if port.queue.rx.arm() == Armed::Waiting
            && let Some(event) = port.queue.rx.event()
        {
            let limit = Timespec::try_from(Duration::from_millis(5))?;
            poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&limit))?;
        }
        Ok(())
    }

    /// Works until something holds; `false` when it does not in time.
    pub(super) fn until(
        &mut self,
        mut holds: impl FnMut(&mut Self) -> anyhow::Result<bool>,
    ) -> anyhow::Result<bool> {
        let end = clock::now() + self.patience();
        while !holds(self)? {
            if clock::now() > end {
                return Ok(false);
            }
            self.turn()?;
            self.doze()?;
        }
        Ok(true)
    }

    /// Sends frames; those that found no room are an error.
    pub(super) fn send(&mut self, frames: &[Vec<u8>]) -> anyhow::Result<()> {
        for frames in frames.chunks(64) {
            let mut batch = Batch::new();
            for frame in frames {
                let packet = Packet::copy_from(frame, &mut self.pool).context("no packet memory is left")?;
                ensure!(batch.push(packet).is_ok(), "more packets than a batch has");
            }
            let port = self.port.as_mut().context("no port is open")?;
            port.queue.tx.transmit(&mut batch, &mut self.pool);
            let _ = port.queue.tx.reclaim(&mut self.pool);
            let left = batch.len();
            self.pool.release(&mut batch);
            ensure!(left == 0, "{left} packets found no room");
        }
        Ok(())
    }

    /// Sends a frame and waits for one that is wanted.
    pub(super) fn ask(&mut self, frame: &[u8], is_wanted: impl Fn(&[u8]) -> bool) -> anyhow::Result<()> {
        self.send(&[frame.to_vec()])?;
        let end = clock::now() + self.patience();
        loop {
            if self.turn()?.iter().any(|frame| is_wanted(frame)) {
                return Ok(());
            }
            ensure!(clock::now() < end, "no answer");
            self.doze()?;
        }
    }

    /// Sends an echo request of each of these sizes, some at a time, and compares all answers, in order.
    pub(super) fn echoes(&mut self, sizes: &[usize]) -> anyhow::Result<()> {
        let first = self.number;
        let numbered = || (first..).zip(sizes.iter().copied());
        self.number = numbered().last().map_or(first, |(number, _)| number + 1);
        let (mut sent, mut answered) = (0, 0);
        let mut wanted = numbered();
        let mut end = clock::now() + self.patience();
        while answered < sizes.len() {
            // Half of the window at a time, so that there is something to pack.
            if sent < sizes.len() && sent - answered <= WINDOW / 2 {
                let some: Vec<_> = numbered().skip(sent).take(WINDOW / 2).collect();
                let frames: Vec<_> = some.iter().map(|&(number, size)| request(number, size)).collect();
                self.send(&frames)?;
                sent += some.len();
            }
            for frame in self.turn()?.iter().filter(|frame| is_echo(frame)) {
                let (number, size) = wanted.next().context("an answer to nothing")?;
                ensure!(
                    is_same(frame, &reply(number, size)),
                    "echo {number} of {size} bytes came back changed, or another one did"
                );
                answered += 1;
                end = clock::now() + self.patience();
            }
            ensure!(clock::now() < end, "{answered} of {} echoes came back", sizes.len());
            self.doze()?;
        }
        Ok(())
    }

    /// Sent frames, and what the guest counts as sent: frames of ECM, and blocks of NCM.
    pub(super) fn counted(&mut self) -> anyhow::Result<[u64; 2]> {
        let subclass = self.subclass;
        let port = self.port()?;
        let received = match subclass {
            Subclass::Ncm => port.status.received_transfers.get(),
            Subclass::Ecm | Subclass::Mbim => port.queue.rx.counters().received.get(),
        };
        Ok([port.queue.tx.counters().transmitted.get(), received])
    }

    /// Counters of the guest's interface.
    pub(super) fn counters(&mut self) -> anyhow::Result<[u64; 4]> {
        let mut counters = [0; 4];
        for (count, name) in counters.iter_mut().zip(COUNTERS) {
            let path = format!("/sys/class/net/usb0/statistics/{name}");
            *count = self.guest.ask(&Request::Read(path))?.trim().parse()?;
        }
        Ok(counters)
    }

    /// Connects the gadget to its controller, or disconnects it.
    pub(super) fn plug(&mut self, plugged: bool) -> anyhow::Result<()> {
        let name = if plugged { DUMMY } else { "\n" };
        self.guest.ask(&Request::Write(CONTROLLER.to_owned(), name.to_owned())).map(drop)
    }

    pub(super) fn power_off(self) -> anyhow::Result<()> {
        let Self { port, guest, .. } = self;
        drop(port);
        guest.power_off()
    }
}
