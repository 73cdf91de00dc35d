//! The model as a PCI function: what the emulator asks of it is done by a thread of this process.

use super::config::{Config, Place};
use super::line::Line;
use super::message::{BarAccess, Connection, Piece, Request};
use super::wire::Wire;
use anyhow::{Context as _, ensure};
use polder_devices::e1000::model::{Nic, Window};
use polder_devices::e1000::regs::{CTRL, ctrl};
use polder_devices::pci::{Registers as _, SharedMemory};
use rustix::fs::SealFlags;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Answer where nothing answers: ones.
const NOTHING: u64 = u64::MAX;

/// A file of memory, by its number, and this process's mapping of it.
type Mapping = ((u64, u64), Arc<SharedMemory>);

/// The function's thread. Dropping it ends the connection.
#[derive(Debug)]
pub(super) struct Function {
    connection: Connection,
    thread: Option<JoinHandle<()>>,
    error: Arc<Mutex<Option<String>>>,
}

impl Function {
    /// Serves the model on a connection.
    pub(super) fn serve(
        nic: Nic,
        line: Arc<Line>,
        wire: Arc<Wire>,
        socket: Connection,
    ) -> anyhow::Result<Self> {
        let connection = socket.try_clone()?;
        let error = Arc::new(Mutex::new(None));
        let said = Arc::clone(&error);
        let mut server = Server {
            nic,
            line,
            wire,
            config: Config::new(),
            register: 0,
            windows: Vec::new(),
            mappings: Vec::new(),
        };
        let serve = move || {
            let result = server.serve(&socket);
            socket.end();
            if let Err(error) = result {
                *said.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{error:#}"));
            }
        };
        let thread = std::thread::Builder::new().name("pci-function".to_owned()).spawn(serve)?;
        Ok(Self { connection, thread: Some(thread), error })
    }

    /// Fails when the function does.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        error.clone().map_or(Ok(()), |error| Err(anyhow::anyhow!("the model as a PCI function: {error}")))
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        self.connection.end();
        self.thread.take().map(JoinHandle::join);
    }
}

struct Server {
    nic: Nic,
    line: Arc<Line>,
    wire: Arc<Wire>,
    config: Config,
    /// Register that the value's port is.
    register: u32,
    /// The machine's memory.
    windows: Vec<Window>,
    mappings: Vec<Mapping>,
}

impl Server {
    fn serve(&mut self, connection: &Connection) -> anyhow::Result<()> {
        while let Some(request) = connection.receive()? {
            let answer = self.obey(request)?;
            // Frames and the interrupt are where they belong before the driver goes on.
            self.wire.carry()?;
            self.line.update()?;
            if let Some(answer) = answer {
                connection.answer(answer)?;
            }
        }
        Ok(())
    }

    /// Does what the emulator asks; returns the answer, where there is one.
    fn obey(&mut self, request: Request) -> anyhow::Result<Option<u64>> {
        Ok(match request {
            Request::Memory(pieces) => {
                self.map(pieces)?;
                None
            }
            Request::Interrupt => None,
            Request::ConfigRead { offset, bytes } => Some(u64::from(self.config.read(offset, bytes))),
            Request::ConfigWrite { offset, value, bytes } => {
                self.config.write(offset, value, bytes);
                self.line.let_interrupt(self.config.may_interrupt());
                self.attach();
                Some(0)
            }
            Request::BarRead(access) => Some(self.read(access)),
            Request::BarWrite(access, value) => {
                self.write(access, value);
                Some(0)
            }
            Request::Reset => {
                self.config = Config::new();
                self.attach();
                self.nic.write32(CTRL.offset, ctrl::RESET);
                Some(0)
            }
        })
    }

    fn read(&self, access: BarAccess) -> u64 {
        match self.config.place(access.address, access.is_memory) {
            Place::Register(offset) => {
                let word = |offset: u32| u64::from(self.nic.read32(offset));
                let value = word(offset & !3) >> (8 * (offset & 3));
                match access.bytes {
                    8 => value | word((offset & !3) + 4) << 32,
                    bytes => value & ((1 << (8 * bytes)) - 1),
                }
            }
            Place::OffsetPort => u64::from(self.register),
            Place::ValuePort => u64::from(self.nic.read32(self.register)),
            Place::Nowhere => NOTHING,
        }
    }

    /// The device's registers are written whole.
    fn write(&mut self, access: BarAccess, value: u64) {
        let [low, high] = [value, value >> 32].map(|half| u32::try_from(half & 0xffff_ffff).unwrap_or(0));
        match (self.config.place(access.address, access.is_memory), access.bytes) {
            (Place::Register(offset), 4 | 8) if offset.is_multiple_of(4) => {
                self.nic.write32(offset, low);
                if access.bytes == 8 {
                    self.nic.write32(offset + 4, high);
                }
            }
            (Place::OffsetPort, 4) => self.register = low,
            (Place::ValuePort, 4) => self.nic.write32(self.register & !3, low),
            (Place::Register(_) | Place::OffsetPort | Place::ValuePort | Place::Nowhere, _) => {}
        }
    }

    /// Maps the machine's memory from files, whose sizes are checked and sealed.
    fn map(&mut self, pieces: Vec<Piece>) -> anyhow::Result<()> {
        let old = core::mem::take(&mut self.mappings);
        self.windows.clear();
        for piece in pieces {
            let stat = rustix::fs::fstat(&piece.file)?;
            let number = (stat.st_dev, stat.st_ino);
            let known = self.mappings.iter().chain(&old).find(|(known, _)| *known == number);
            let memory = match known {
                Some((_, memory)) => Arc::clone(memory),
                None => {
                    let seals =
                        rustix::fs::fcntl_get_seals(&piece.file).context("memory is no sealed file")?;
                    ensure!(seals.contains(SealFlags::SHRINK), "the file of memory can become shorter");
                    let bytes = usize::try_from(stat.st_size)?;
                    Arc::new(SharedMemory::of_file(piece.file, bytes).context("memory cannot be mapped")?)
                }
            };
            let (first, bytes) = (usize::try_from(piece.offset)?, usize::try_from(piece.bytes)?);
            let is_there = first.checked_add(bytes).is_some_and(|end| end <= memory.bytes().len());
            ensure!(is_there, "a piece of memory lies beyond its file");
            self.windows.push(Window { address: piece.address, memory: Arc::clone(&memory), first, bytes });
            if !self.mappings.iter().any(|(known, _)| *known == number) {
                self.mappings.push((number, memory));
            }
        }
        self.attach();
        Ok(())
    }

    /// A device that is no master reaches nothing.
    fn attach(&self) {
        self.nic.attach(if self.config.is_master() { self.windows.clone() } else { Vec::new() });
    }
}
