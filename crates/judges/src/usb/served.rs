//! A model behind a USB/IP server, on a thread of its own.

use anyhow::Context as _;
use polder_devices::usb::model::{Bench, Model};
use polder_devices::usb::usbip::{Server, Stopper};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Entry for USB/IP clients.
#[derive(Debug)]
pub enum Door {
    /// TCP.
    Tcp(TcpListener),
    /// A local socket.
    Unix(UnixListener),
}

impl Door {
    /// A free TCP port of the loopback interface.
    ///
    /// # Errors
    /// When there is none.
    pub fn loopback() -> anyhow::Result<Self> {
        TcpListener::bind(("127.0.0.1", 0)).map(Self::Tcp).context("cannot listen for USB/IP")
    }
}

/// A model that clients can attach. It goes with this guard.
pub struct Served<M> {
    bench: Arc<Mutex<Bench<M>>>,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
    port: u16,
}

impl<M> core::fmt::Debug for Served<M> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Served").field("port", &self.port).finish_non_exhaustive()
    }
}

impl<M: Model + 'static> Served<M> {
    /// Shows a model behind `door` as the device `name`.
    ///
    /// # Errors
    /// When the process may open no more files or start no more threads.
    pub fn start(bench: Bench<M>, door: Door, name: &str) -> anyhow::Result<Self> {
        let bench = Arc::new(Mutex::new(bench));
        let (server, port) = match door {
            Door::Tcp(listener) => {
                let port = listener.local_addr()?.port();
                (Server::tcp(listener, name, Arc::clone(&bench))?, port)
            }
            Door::Unix(listener) => (Server::unix(listener, name, Arc::clone(&bench))?, 0),
        };
        let stopper = server.stopper();
        let thread = std::thread::Builder::new()
            .name("usbip-device".to_owned())
            .spawn(move || {
                if let Err(error) = server.run() {
                    eprintln!("polder-lab: {error}");
                }
            })
            .context("cannot start a thread for the USB/IP server")?;
        Ok(Self { bench, stopper, thread: Some(thread), port })
    }
}

impl<M> Served<M> {
    /// The server's TCP port; 0 behind a local socket.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The model, held still while it is looked at or changed.
    pub fn bench(&self) -> MutexGuard<'_, Bench<M>> {
        self.bench.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M> Drop for Served<M> {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            // A panic in the server has been printed where it happened.
            let _ = thread.join();
        }
    }
}
