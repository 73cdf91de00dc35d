//! A QEMU with one controller and no guest, driven by its test protocol (qtest).
//!
//! Source: QEMU, docs/devel/qtest.rst.

use anyhow::{Context as _, bail, ensure};
use polder_buffers::{Class, Region};
use polder_datapath::units::Nanos;
use polder_devices::pci::{self, Coherent, Device, Dma, DmaError, Interrupt, Registers, SharedMemory};
use polder_testbed::command::Running;
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The emulator.
pub(super) const QEMU: &str = "qemu-system-x86_64";
/// Program that ends the emulator when this process dies: QEMU goes on when its sockets are closed.
pub(super) const GUARD: &str = "setpriv";
/// Link-layer address of the controller.
pub(super) const MAC: [u8; 6] = [0x52, 0x54, 0x00, 0x70, 0x6f, 0x01];
/// Bytes of memory for descriptors, at I/O address 0.
const MEMORY: usize = 64 << 20;
/// First of them that descriptors use.
const COHERENT: usize = 1 << 20;
/// I/O address of the packet memory: above 4 GiB, so that the upper halves of addresses count.
const PACKETS: u64 = 0x1_4000_0000;
/// Address of the registers.
const BAR: u32 = 0xe000_0000;
/// The controller's place on the bus, as configuration accesses have it.
const SLOT: u32 = 0x8000_0000 | 3 << 11;
/// Configuration registers: command, first base address.
const COMMAND: u32 = 0x04;
const BAR_0: u32 = 0x10;
/// Command: memory is decoded, and the device may transfer.
const MEMORY_AND_MASTER: u32 = 0x06;
/// First interrupt line of PCI at the I/O APIC.
const PCI_LINES: u32 = 16;
/// Time within which QEMU starts and answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// A controller that QEMU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chip {
    /// 82540EM.
    I82540em,
    /// 82545EM.
    I82545em,
}

impl Chip {
    /// Its name in the manual.
    pub fn name(self) -> &'static str {
        match self {
            Self::I82540em => "82540EM",
            Self::I82545em => "82545EM",
        }
    }

    fn device(self) -> &'static str {
        match self {
            Self::I82540em => "e1000",
            Self::I82545em => "e1000-82545em",
        }
    }
}

/// A running emulator. Dropping it ends it.
pub(super) struct Machine {
    emulator: Running,
    link: Arc<Link>,
    memory: Arc<SharedMemory>,
    wire: UnixDatagram,
    reader: Option<JoinHandle<()>>,
    region: Region,
    directory: PathBuf,
}

impl Machine {
    /// Starts an emulator whose controller reaches `region`.
    pub(super) fn start(chip: Chip, region: &Region) -> anyhow::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the number is of its own alone.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("polder-qtest-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let started = Self::start_in(&directory, chip, region);
        if started.is_err() {
            let _ = std::fs::remove_dir_all(&directory);
        }
        started
    }

    fn start_in(directory: &Path, chip: Chip, region: &Region) -> anyhow::Result<Self> {
        let memory = Arc::new(SharedMemory::new(MEMORY).context("no memory for the emulator")?);
        std::fs::write(directory.join("bios"), bios())?;
        let listener = UnixListener::bind(directory.join("qtest"))?;
        let wire = UnixDatagram::bind(directory.join("ours"))?;
        wire.set_nonblocking(true)?;
        let mut command = Command::new(GUARD);
        command.args(["--pdeathsig", "KILL", QEMU]).current_dir(directory);
        command.args(arguments(chip, &memory, region));
        let mut emulator = Running::start_interactive("QEMU", &mut command)?;
        let stream = accept(&listener, &mut emulator)?;
        let link = Arc::new(Link::new(&stream)?);
        let lines = BufReader::new(stream.try_clone()?);
        let (answers, reader) = channel();
        *link.request.lock().unwrap_or_else(PoisonError::into_inner) = Some((stream, reader));
        let shared = Arc::clone(&link);
        let reader = std::thread::Builder::new()
            .name("qtest".to_owned())
            .spawn(move || read_lines(lines, &shared, &answers))?;
        let (region, directory) = (region.clone(), directory.to_owned());
        let machine = Self { emulator, link, memory, wire, reader: Some(reader), region, directory };
        machine.prepare()?;
        Ok(machine)
    }

    /// Finds the controller, gives it its place, and lets it transfer.
    fn prepare(&self) -> anyhow::Result<()> {
        self.link.ask("irq_intercept_in ioapic").context("QEMU does not answer")?;
        let id = self.configuration(0)?;
        ensure!(id & 0xffff == 0x8086, "QEMU has no controller in slot 3, but {id:#x}");
        self.configure(BAR_0, BAR)?;
        self.configure(COMMAND, MEMORY_AND_MASTER)?;
        self.wire.connect(self.directory.join("theirs")).context("QEMU has no end of the wire")
    }

    fn configuration(&self, register: u32) -> anyhow::Result<u32> {
        self.link.ask(&format!("outl 0xcf8 {:#x}", SLOT | register))?;
        self.link.ask_value("inl 0xcfc")
    }

    fn configure(&self, register: u32, value: u32) -> anyhow::Result<()> {
        self.link.ask(&format!("outl 0xcf8 {:#x}", SLOT | register))?;
        self.link.ask(&format!("outl 0xcfc {value:#x}")).map(drop)
    }

    /// The way to the controller.
    pub(super) fn device(&self) -> Device {
        let next = AtomicUsize::new(COHERENT);
        let dma = Memory { memory: Arc::clone(&self.memory), next, region: self.region.clone() };
        Device {
            registers: Arc::clone(&self.link) as Arc<dyn Registers>,
            dma: Arc::new(dma),
            interrupt: Arc::clone(&self.link) as Arc<dyn Interrupt>,
        }
    }

    /// Puts a frame on the wire; false if QEMU has not read the previous ones.
    pub(super) fn inject(&self, frame: &[u8]) -> anyhow::Result<bool> {
        match self.wire.send(frame) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error).context("the wire is broken"),
        }
    }

    /// Removes a frame sent by the controller from the wire.
    pub(super) fn extract(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 1 << 16];
        let length = self.wire.recv(&mut frame).ok()?;
        frame.truncate(length);
        Some(frame)
    }

    /// Plugs the wire in, or out.
    pub(super) fn plug(&mut self, plugged: bool) -> anyhow::Result<()> {
        self.emulator.tell(&format!("set_link n0 {}", if plugged { "on" } else { "off" }))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Its end closes the connection, at which the reader ends.
        let _ = self.emulator.stop();
        self.reader.take().map(JoinHandle::join);
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Firmware that switches interrupts off and halts.
fn bios() -> Vec<u8> {
    let mut image = vec![0xf4; 1 << 16];
    image[0xfff0..0xfff4].copy_from_slice(&[0xfa, 0xf4, 0xeb, 0xfd]);
    image
}

fn arguments(chip: Chip, memory: &SharedMemory, region: &Region) -> Vec<String> {
    let file = |id: &str, bytes: usize, file: BorrowedFd<'_>| {
        // Through this process, so that nothing has to be inherited.
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        format!("memory-backend-file,id={id},size={bytes},mem-path={path},share=on")
    };
    let [a, b, c, d, e, f] = MAC.map(|byte| format!("{byte:02x}"));
    let words = [
        "-machine q35,accel=tcg,memory-backend=ram,hpet=off,pit=off -m 64M,slots=1,maxmem=8G".to_owned(),
        format!("-object {}", file("ram", MEMORY, memory.file())),
        format!("-object {}", file("packets", region.mapped_bytes(), region.file(Class::Data))),
        format!("-device pc-dimm,id=dimm,memdev=packets,addr={PACKETS:#x}"),
        "-bios bios -nodefaults -no-user-config -display none -monitor stdio".to_owned(),
        // Time of the emulated machine passes at once where it waits, which it does after each write of RCTL.
        "-icount shift=0,sleep=off -rtc clock=vm".to_owned(),
        "-chardev socket,id=qt,path=qtest -object qtest,id=qt0,chardev=qt,log=/dev/null".to_owned(),
        "-netdev dgram,id=n0,local.type=unix,local.path=theirs,remote.type=unix,remote.path=ours".to_owned(),
        format!("-device {},netdev=n0,addr=3,romfile=,mac={a}:{b}:{c}:{d}:{e}:{f}", chip.device()),
    ];
    words.iter().flat_map(|words| words.split(' ').map(str::to_owned)).collect()
}

fn accept(listener: &UnixListener, emulator: &mut Running) -> anyhow::Result<UnixStream> {
    listener.set_nonblocking(true)?;
    let end = polder_testbed::clock::now() + PATIENCE;
    loop {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false)?;
            return Ok(stream);
        }
        emulator.check()?;
        if polder_testbed::clock::now() > end {
            bail!("QEMU does not start: {}", emulator.said());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The connection to the emulator, and the interrupt.
struct Link {
    request: Mutex<Option<(UnixStream, Receiver<String>)>>,
    line: Mutex<InterruptLine>,
    event: OwnedFd,
}

/// The state of the interrupt.
#[derive(Default)]
struct InterruptLine {
    asserted: bool,
    masked: bool,
}

impl Link {
    fn new(stream: &UnixStream) -> anyhow::Result<Self> {
        stream.set_write_timeout(Some(PATIENCE))?;
        let event = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let line = InterruptLine { asserted: false, masked: true };
        Ok(Self { request: Mutex::new(None), line: Mutex::new(line), event })
    }

    fn line(&self) -> MutexGuard<'_, InterruptLine> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a command; returns what stands behind `OK`.
    fn ask(&self, command: &str) -> anyhow::Result<String> {
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        let (stream, answers) = request.as_mut().context("there is no connection")?;
        stream.write_all(format!("{command}\n").as_bytes())?;
        let answer = answers.recv_timeout(PATIENCE).with_context(|| format!("no answer to `{command}`"))?;
        let rest = answer.strip_prefix("OK").with_context(|| format!("`{command}`: {answer}"))?;
        Ok(rest.trim().to_owned())
    }

    fn ask_value(&self, command: &str) -> anyhow::Result<u32> {
        let answer = self.ask(command)?;
        let value = u64::from_str_radix(answer.trim_start_matches("0x"), 16)?;
        u32::try_from(value).with_context(|| format!("`{command}`: {answer}"))
    }

    fn fire(&self, line: &mut InterruptLine) {
        if line.asserted && !line.masked {
            line.masked = true;
            // A full counter is readable as it is.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Notes that an interrupt line of PCI has risen or fallen.
    fn note(&self, words: &str) {
        let mut words = words.split_whitespace();
        let (what, number) = (words.next(), words.next().and_then(|number| number.parse::<u32>().ok()));
        if number.is_some_and(|number| number >= PCI_LINES) {
            let mut line = self.line();
            line.asserted = what == Some("raise");
            self.fire(&mut line);
        }
    }
}

fn read_lines(mut lines: BufReader<UnixStream>, link: &Link, answers: &Sender<String>) {
    let mut text = String::new();
    while lines.read_line(&mut text).is_ok_and(|length| length > 0) {
        let line = text.trim_end();
        match line.strip_prefix("IRQ ") {
            Some(words) => link.note(words),
            None if answers.send(line.to_owned()).is_err() => return,
            None => {}
        }
        text.clear();
    }
}

impl Registers for Link {
    /// A controller whose emulator has ended is gone.
    fn read32(&self, offset: u32) -> u32 {
        self.ask_value(&format!("readl {:#x}", BAR + offset)).unwrap_or(pci::ALL_ONES)
    }

    fn write32(&self, offset: u32, value: u32) {
        // The next reading says that it is gone.
        let _ = self.ask(&format!("writel {:#x} {value:#x}", BAR + offset));
    }

    /// The emulated device needs no time.
    fn pause(&self, _: Nanos) {}
}

impl Interrupt for Link {
    fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn acknowledge(&self) -> bool {
        rustix::io::read(&self.event, &mut [0; 8]).is_ok()
    }

    fn unmask(&self) {
        let mut line = self.line();
        line.masked = false;
        self.fire(&mut line);
    }
}

/// Memory that the controller reaches.
struct Memory {
    memory: Arc<SharedMemory>,
    next: AtomicUsize,
    region: Region,
}

impl Dma for Memory {
    fn coherent(&self, bytes: usize) -> Result<Coherent, DmaError> {
        let bytes = bytes.next_multiple_of(4096);
        // Relaxed: one thread opens a port.
        let start = self.next.fetch_add(bytes, Ordering::Relaxed);
        let piece = Coherent::new(Arc::clone(&self.memory), start, bytes, start as u64);
        let piece = piece.ok_or(DmaError::Memory { bytes, errno: Errno::NOMEM })?;
        (0..piece.words()).for_each(|word| piece.store(word, 0));
        Ok(piece)
    }

    fn map(&self, region: &Region) -> Result<u64, DmaError> {
        let bytes = region.mapped_bytes();
        let is_known = region.id() == self.region.id();
        is_known.then_some(PACKETS).ok_or(DmaError::Map { bytes, errno: Errno::INVAL })
    }

    /// A machine without an IOMMU refuses nothing.
    fn was_refused(&self) -> bool {
        false
    }
}
