//! A virtual machine with a Linux kernel that this machine does not run: for what only such a kernel
//! can judge.
//!
//! The guest is made of Debian's kernel, this program as its first process ([`agent`]), and the
//! programs of this machine that are asked for. It runs in software emulation, starts in a few
//! seconds, and does what it is told over a connection to this process.
//!
//! `scripts/guest-kernel` fetches the kernel; without it, or without QEMU, [`Guest::available`] says
//! what is missing. Other kernels come from Debian's backports ([`Kernel::of_suite`]) or are another processor's
//! ([`Kernel::of_flavour`]), and network cards are of the model whose driver is to be met ([`Card`]).

pub mod agent;
mod architecture;
mod card;
mod devices;
mod emulator;
pub mod files;
mod initramfs;
mod kernel;
mod remote;

pub use architecture::Architecture;
pub use card::colons;
pub use card::{Card, FarEnd, Model};
pub use devices::Attached;
pub use kernel::Kernel;
pub use remote::Remote;

use crate::topology::Namespace;
use crate::{clock, command, interrupt};
use agent::{Answer, Request};
use anyhow::{Context as _, bail, ensure};
use emulator::Emulator;
use initramfs::Initramfs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Address by which the guest reaches this machine.
pub const HOST: &str = "10.0.2.2";
/// Time for which the guest may take to start.
const BOOT: Duration = Duration::from_secs(180);
/// Time for which one request may take unless it says otherwise.
const PATIENCE: Duration = Duration::from_secs(30);

/// The program that takes debugging information out of programs for 64-bit ARM.
const ARM64_STRIP: &str = "aarch64-linux-gnu-strip";

/// The bridge behind which cards share a group of the IOMMU.
const BRIDGE: &str = "conventional";
/// The socket of the emulator's monitor, among the guest's files.
const MONITOR: &str = "monitor";

/// Programs, kernel modules, memory and cards of a guest.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// The program that becomes the guest's first process: `polder-lab` itself.
    pub program: &'a Path,
    /// Kernel modules that are loaded at start, with those that they need.
    pub modules: &'a [&'a str],
    /// Kernel modules that are there to be loaded later.
    pub spare_modules: &'a [&'a str],
    /// Programs of this machine that the guest has: names, or absolute paths.
    pub programs: &'a [&'a str],
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Processors.
    pub processors: u32,
    /// Network cards beside the uplink. Their modules are loaded at start, in this order.
    pub cards: &'a [Card<'a>],
    /// The machine's IOMMU.
    pub iommu: Iommu,
    /// True to let a nanosecond of the guest's time be an instruction, on one processor: its times are counts then.
    pub counts: bool,
}

impl<'a> Options<'a> {
    /// 512 MiB, one processor, no card and no IOMMU.
    pub fn of(program: &'a Path, modules: &'a [&'a str], programs: &'a [&'a str]) -> Self {
        let (spare_modules, cards): (&[&str], &[Card<'_>]) = (&[], &[]);
        Self {
            program,
            modules,
            spare_modules,
            programs,
            memory_mib: 512,
            processors: 1,
            cards,
            iommu: Iommu::None,
            counts: false,
        }
    }
}

/// IOMMU of a guest. Unless it remaps interrupts, the kernel gives no device to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iommu {
    /// No IOMMU.
    None,
    /// The kernel's drivers reach memory through the IOMMU, as processes do.
    Translating,
    /// The same, and interrupts are not remapped.
    WithoutRemapping,
    /// As the first, and all cards stand behind one bridge: the IOMMU cannot tell them apart, so they share a group.
    Shared,
    /// The kernel's drivers reach memory directly (`iommu=pt`), which costs them nothing for a packet.
    PassThrough,
}

impl Iommu {
    /// Parameters on the kernel's command line.
    fn parameters(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Translating | Self::WithoutRemapping | Self::Shared => "intel_iommu=on ",
            Self::PassThrough => "intel_iommu=on iommu=pt ",
        }
    }
}

/// A running guest.
#[derive(Debug)]
pub struct Guest {
    emulator: command::Running,
    lines: BufReader<TcpStream>,
    stream: TcpStream,
    /// Directory of the guest's files; removed with the guest.
    directory: PathBuf,
}

impl Guest {
    /// Fails where no guest can be started.
    ///
    /// # Errors
    /// The missing program or kernel, and how to get it.
    pub fn available() -> anyhow::Result<Kernel> {
        let kernel = Kernel::find()?;
        Emulator::with(kernel.architecture(), &[])?;
        Ok(kernel)
    }

    /// Fails where no guest with cards of these models can be started.
    ///
    /// # Errors
    /// The missing program or kernel, and how to get it.
    pub fn available_with(models: &[Model], kernel: &Kernel) -> anyhow::Result<()> {
        let architecture = kernel.architecture();
        Emulator::with(architecture, &[])?;
        architecture.system()?;
        if models.iter().any(|model| model.needs_newer_emulator()) {
            Emulator::newer(architecture)?;
        }
        let modules = models.iter().flat_map(|model| model.modules()).copied().collect::<Vec<_>>();
        kernel.with_dependencies(&modules).map(drop)
    }

    /// Starts a guest and waits until it answers.
    ///
    /// # Errors
    /// When something is missing or the guest does not start; the message has its last words.
    pub fn boot(kernel: &Kernel, options: &Options<'_>) -> anyhow::Result<Self> {
        Self::start(kernel, options, None, None)
    }

    /// Starts a guest with a device that is not the emulator's, and waits until it answers.
    ///
    /// # Errors
    /// As [`Guest::boot`].
    pub fn boot_with(
        kernel: &Kernel,
        options: &Options<'_>,
        remote: Option<&Remote<'_>>,
    ) -> anyhow::Result<Self> {
        Self::start(kernel, options, remote, None)
    }

    fn start(
        kernel: &Kernel,
        options: &Options<'_>,
        remote: Option<&Remote<'_>>,
        shared: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen for the guest")?;
        let port = listener.local_addr()?.port();
        let directory = std::env::temp_dir().join(format!("polder-guest-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let cleanup = Cleanup(&directory);
        let image = directory.join("initramfs");
        let architecture = kernel.architecture();
        let system = architecture.system()?;
        build(kernel, options)?.write_to(&image, system.as_deref())?;
        let has_iommu = options.iommu != Iommu::None;
        let iommu = options.iommu.parameters();
        let line = format!(
            "{} quiet loglevel=4 panic=-1 mitigations=off random.trust_cpu=on {iommu}\
             rdinit=/polder-lab -- guest-agent {port}",
            architecture.parameters()
        );
        let mut command = Emulator::with(architecture, options.cards)?.command();
        if let Some(remote) = remote {
            command.args(remote.machine(options.memory_mib));
        } else if architecture == Architecture::X86
            && (has_iommu || options.cards.iter().any(|card| card.model.is_express()))
        {
            command.args(["-machine", "q35"]);
        }
        if has_iommu {
            // In front of all devices, whose transfers go through it.
            let remaps = if options.iommu == Iommu::WithoutRemapping { "off" } else { "on" };
            command.args(["-device", &format!("intel-iommu,intremap={remaps}")]);
        }
        let bus = (options.iommu == Iommu::Shared).then_some(BRIDGE);
        if let Some(bus) = bus {
            command.args(["-device", &format!("pcie-pci-bridge,id={bus}")]);
        }
        let cards = options.cards.iter().enumerate();
        command
            .args(architecture.machine(kernel.flavour()))
            .args(["-accel", "tcg", "-nodefaults", "-no-reboot"])
            .args(["-display", "none", "-serial", "stdio", "-monitor"])
            .arg(format!("unix:{},server=on,wait=off", directory.join(MONITOR).display()))
            .args(["-smp", &options.processors.to_string(), "-m", &options.memory_mib.to_string()])
            .args(["-netdev", "user,id=uplink", "-device", "e1000,netdev=uplink,romfile="])
            .args(cards.flat_map(|(index, card)| card.arguments(port, index, bus)))
            .args(remote.map(Remote::device).unwrap_or_default())
            .args(shared.map(files::virtfs).into_iter().flatten())
            .args(options.counts.then_some(["-icount", "shift=0"]).into_iter().flatten())
            .arg("-kernel")
            .arg(kernel.image())
            .arg("-initrd")
            .arg(&image)
            .args(["-append", &line]);
        let mut emulator = command::Running::start("the guest", &mut command)?;
        let stream = accept(&listener, &mut emulator)?;
        for (index, card) in options.cards.iter().enumerate() {
            card.lay(port, index)?;
        }
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let lines = BufReader::new(stream.try_clone()?);
        std::mem::forget(cleanup);
        Ok(Self { emulator, lines, stream, directory })
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// When the guest does not answer, or says that it could not be done.
    pub fn ask(&mut self, request: &Request) -> anyhow::Result<String> {
        match self.try_ask(request, PATIENCE)? {
            Answer { ok: true, text } => Ok(text),
            Answer { ok: false, text } => bail!("the guest could not do {request:?}: {text}"),
        }
    }

    /// Sends a request; a failure in the guest is an answer.
    ///
    /// # Errors
    /// When the guest does not answer within `patience`.
    pub fn try_ask(&mut self, request: &Request, patience: Duration) -> anyhow::Result<Answer> {
        let text = serde_json::to_string(request).context("a request is text")?;
        let silent = |guest: &Self| {
            format!("the guest does not answer: {}", command::last_lines(&guest.console(), 20))
        };
        writeln!(self.stream, "{text}").with_context(|| silent(self))?;
        self.stream.set_read_timeout(Some(patience))?;
        let mut line = String::new();
        let read = self.lines.read_line(&mut line).with_context(|| silent(self))?;
        ensure!(read > 0, "{}", silent(self));
        serde_json::from_str(&line).context("the guest answered with something else")
    }

    /// Runs a program in the guest; returns what it printed.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub fn run(&mut self, line: &str) -> anyhow::Result<String> {
        self.ask(&Request::run(line))
    }

    /// The name that the guest has given to the network card with an address.
    ///
    /// # Errors
    /// When there is none.
    pub fn interface(&mut self, mac: [u8; 6]) -> anyhow::Result<String> {
        let wanted = colons(mac);
        for name in self.ask(&Request::List("/sys/class/net".to_owned()))?.lines() {
            // The file `bonding_masters` stands among the interfaces.
            let address = Request::Read(format!("/sys/class/net/{name}/address"));
            let address = self.try_ask(&address, PATIENCE)?;
            if address.ok && address.text.trim() == wanted {
                return Ok(name.to_owned());
            }
        }
        bail!("the guest has no network card {wanted}: {}", command::last_lines(&self.console(), 20))
    }

    /// Plugs the wire of the card that is number `index` in, or out.
    ///
    /// # Errors
    /// When the emulator does not answer.
    pub fn plug(&self, index: usize, plugged: bool) -> anyhow::Result<()> {
        let state = if plugged { "on" } else { "off" };
        let said = self.command(&format!("set_link card{index} {state}"))?;
        ensure!(!said.contains("Error"), "the emulator cannot plug card {index} {state}: {said}");
        Ok(())
    }

    /// Lets connections to a port of this machine's loopback interface reach a port of the guest; returns the
    /// former.
    ///
    /// # Errors
    /// When the emulator does not answer, or has no such port.
    pub fn forward(&self, guest: u16) -> anyhow::Result<u16> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let said = self.command(&format!("hostfwd_add uplink tcp:127.0.0.1:{port}-:{guest}"))?;
        ensure!(!said.contains("rror") && !said.contains("could not"), "the emulator cannot forward: {said}");
        Ok(port)
    }

    /// Gives the emulator's monitor a command; returns what it said.
    fn command(&self, line: &str) -> anyhow::Result<String> {
        let mut monitor = UnixStream::connect(self.directory.join(MONITOR))
            .context("cannot reach the emulator's monitor")?;
        monitor.set_read_timeout(Some(PATIENCE))?;
        writeln!(monitor, "{line}")?;
        // The second prompt stands behind what came of it.
        let (mut said, mut room) = (String::new(), [0; 1024]);
        while said.matches("(qemu)").count() < 2 {
            let length = monitor.read(&mut room).context("the emulator's monitor does not answer")?;
            ensure!(length > 0, "the emulator has closed its monitor");
            said.push_str(&String::from_utf8_lossy(&room[..length]));
        }
        Ok(said)
    }

    /// Messages that the guest's kernel has printed on its console.
    pub fn console(&self) -> String {
        self.emulator.said()
    }

    /// True if the guest's kernel has printed an oops: what waits in it may wait for ever.
    pub fn has_crashed(&self) -> bool {
        has_oops(&self.console())
    }

    /// The guest's kernel log from message `from` on.
    ///
    /// # Errors
    /// When the guest does not answer.
    pub fn log(&mut self) -> anyhow::Result<String> {
        self.ask(&Request::Log)
    }

    /// Switches the guest off.
    ///
    /// # Errors
    /// When it does not end.
    pub fn power_off(mut self) -> anyhow::Result<()> {
        writeln!(self.stream, "{}", serde_json::to_string(&Request::PowerOff)?)?;
        self.emulator.wait(Duration::from_secs(10)).map(drop)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        drop(Cleanup(&self.directory));
    }
}

struct Cleanup<'a>(&'a Path);

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        // A directory that cannot be removed lies below the system's own for such things.
        let _ = std::fs::remove_dir_all(self.0);
    }
}

fn accept(listener: &TcpListener, emulator: &mut command::Running) -> anyhow::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let end = clock::now() + BOOT;
    loop {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false)?;
            return Ok(stream);
        }
        emulator.check()?;
        if clock::now() > end {
            bail!("the guest does not start: {}", command::last_lines(&emulator.said(), 20));
        }
        interrupt::sleep(Duration::from_millis(10))?;
    }
}

/// The guest's files.
fn build(kernel: &Kernel, options: &Options<'_>) -> anyhow::Result<Initramfs> {
    let mut files = Initramfs::new();
    for directory in ["dev", "proc", "sys", "tmp", "run", "var/run", "modules", "usr/bin"] {
        files.directory(directory)?;
    }
    files.console()?;
    add_programs(&mut files, kernel.architecture(), options)?;
    // The uplink is an e1000: of all cards it needs the fewest modules.
    let cards = options.cards.iter().flat_map(|card| card.model.modules());
    let wanted: Vec<&str> = std::iter::once(&"e1000").chain(options.modules).chain(cards).copied().collect();
    let at_start = kernel.with_dependencies(&wanted)?;
    let all: Vec<&str> = wanted.iter().chain(options.spare_modules).copied().collect();
    let all = kernel.with_dependencies(&all)?;
    for (name, path) in &all {
        files.copy(path, &format!("modules/{name}.ko"), 0o644)?;
    }
    let list = |modules: &[(String, PathBuf)]| {
        modules.iter().map(|(name, _)| format!("{name}\n")).collect::<String>()
    };
    files.file("modules/at-start", list(&at_start).as_bytes(), 0o644)?;
    files.file("modules/order", list(&all).as_bytes(), 0o644)?;
    Ok(files)
}

/// Adds the programs of the guest. Those of another processor are built for it, or are in its system.
fn add_programs(
    files: &mut Initramfs,
    architecture: Architecture,
    options: &Options<'_>,
) -> anyhow::Result<()> {
    let mut add = |path: &Path, name: &str| match architecture {
        Architecture::X86 => files.program(path, name),
        Architecture::Arm64 => files.bare_program(path, name, ARM64_STRIP),
    };
    add(options.program, "polder-lab")?;
    for program in options.programs {
        if architecture == Architecture::Arm64 && !program.starts_with('/') {
            continue;
        }
        let path = find_program(program)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        add(&path, &format!("usr/bin/{name}"))?;
    }
    Ok(())
}

fn find_program(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let administrators = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(administrators).map(|place| place.join(name));
    places.find(|path| path.is_file()).with_context(|| command::remedy(name))
}

/// True if a kernel's messages have an oops; the first has this number.
fn has_oops(console: &str) -> bool {
    console.contains("[#1]")
}

#[test]
fn an_oops_is_no_warning() {
    assert!(has_oops("general protection fault: 0000 [#1] PREEMPT SMP NOPTI"));
    assert!(!has_oops("WARNING: CPU: 0 PID: 7\n---[ end trace 0000000000000000 ]---"));
}
