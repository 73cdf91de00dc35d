//! Client of the control socket: finds a gateway and sends it requests.

use super::end_reason;
use super::socket::is_alive;
use super::{Answer, Ask, Fault, PROTOCOL, Request, Response};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default directory of control sockets.
pub const DIRECTORY: &str = "/run/polder";
/// Time limit for an answer; a reload has to open devices.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a gateway.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

/// Reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No gateway was named, and none runs.
    #[error(
        "no gateway is running: there is no control socket in {DIRECTORY}. Start a gateway with `polder run \
         FILE`, or name its socket with --socket"
    )]
    NoneRunning,
    /// No gateway was named, and several run.
    #[error("several gateways are running; name one: {}", options(.0))]
    Several(Vec<PathBuf>),
    /// There is no file at the path.
    #[error("no gateway has the control socket {}: is the gateway running, and is this path the `control` in its configuration?", .0.display())]
    Absent(PathBuf),
    /// The path is a socket that no process listens on.
    #[error(
        "no gateway listens on {}: the process that created it has ended. The next `polder run` replaces \
         the socket", .0.display()
    )]
    Gone(PathBuf),
    /// No gateway runs any more; the last one has left its reason.
    #[error("no gateway is running: {0}. Start one with `polder run FILE`; see the log for the reason")]
    Lost(String),
    /// The socket belongs to another user.
    #[error("not allowed to use {}: run as the user that the gateway runs as (root: `sudo polder …`)", .0.display())]
    Permission(PathBuf),
    /// The gateway does not answer in time.
    #[error("the gateway has not answered for {} s: it may be suspended or very busy", PATIENCE.as_secs())]
    Silent,
    /// The connection was closed.
    #[error("the gateway has closed the connection")]
    Closed,
    /// The answer does not follow this protocol.
    #[error(
        "the gateway does not answer in version {PROTOCOL} of the protocol ({0}): use the `polder` program \
         that the gateway was started with, or restart the gateway"
    )]
    Answer(String),
    /// The gateway refuses the request.
    #[error("{message}")]
    Refused {
        /// Cause of the refusal.
        kind: Fault,
        /// Message of the gateway.
        message: String,
    },
    /// A system call failed.
    #[error("cannot talk to the gateway: {0}")]
    System(#[from] io::Error),
}

fn options(sockets: &[PathBuf]) -> String {
    let names = sockets.iter().filter_map(|path| Some(format!("--gateway {}", path.file_stem()?.to_str()?)));
    names.collect::<Vec<_>>().join(", ")
}

/// Control socket of the only running gateway.
///
/// # Errors
/// When none runs, or several do.
pub fn only_gateway() -> Result<PathBuf, ClientError> {
    only_in(Path::new(DIRECTORY))
}

/// Control sockets of running gateways in a directory.
pub fn gateways(directory: &Path) -> Vec<PathBuf> {
    let mut sockets = sockets(directory);
    sockets.retain(|path| is_alive(path));
    sockets
}

fn sockets(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut sockets =
        entries.filter(|path| path.extension().is_some_and(|it| it == "sock")).collect::<Vec<_>>();
    sockets.sort();
    sockets
}

fn only_in(directory: &Path) -> Result<PathBuf, ClientError> {
    let (alive, sockets) = (gateways(directory), sockets(directory));
    match (alive.as_slice(), sockets.as_slice()) {
        ([only], _) => Ok(only.clone()),
        ([], sockets) => Err(match (words_in(directory), sockets) {
            (Some(words), _) => ClientError::Lost(words),
            (None, [gone, ..]) => ClientError::Gone(gone.clone()),
            (None, []) => ClientError::NoneRunning,
        }),
        ([_, _, ..], _) => Err(ClientError::Several(alive)),
    }
}

/// Reason that a gateway has left in a file when it lost a thread.
fn words_in(directory: &Path) -> Option<String> {
    let entries = std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path());
    let mut words = entries.filter(|path| path.extension().is_some_and(|it| it == "ended"));
    words.find_map(|path| end_reason::before(&path))
}

impl Client {
    /// Connects to the control socket at `path`.
    ///
    /// # Errors
    /// When it cannot be reached; the error has a remedy.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path).map_err(|error| {
            let is_gone = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused].contains(&error.kind());
            if let Some(words) = end_reason::before(path).filter(|_| is_gone) {
                return ClientError::Lost(words);
            }
            let reason = [
                (io::ErrorKind::NotFound, ClientError::Absent as fn(PathBuf) -> ClientError),
                (io::ErrorKind::ConnectionRefused, ClientError::Gone),
                (io::ErrorKind::PermissionDenied, ClientError::Permission),
            ]
            .into_iter()
            .find_map(|(kind, reason)| (kind == error.kind()).then_some(reason));
            reason.map_or(ClientError::System(error), |reason| reason(path.to_owned()))
        })?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Process id of the gateway.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn process(&self) -> io::Result<u32> {
        let credentials = rustix::net::sockopt::socket_peercred(self.stream.get_ref())?;
        Ok(credentials.pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// Stream of the bytes that follow the last answer.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn into_stream(self) -> io::Result<BufReader<UnixStream>> {
        self.stream.get_ref().set_read_timeout(None)?;
        Ok(self.stream)
    }

    /// Sends a request and waits for the answer, which is never [`Answer::Error`].
    ///
    /// # Errors
    /// When the gateway refuses, or its answer is invalid.
    pub fn ask(&mut self, ask: Ask) -> Result<Answer, ClientError> {
        let mut line = serde_json::to_vec(&Request::new(ask)).map_err(io::Error::from)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).map_err(broken)?;
        let mut answer = Vec::new();
        self.stream.read_until(b'\n', &mut answer).map_err(broken)?;
        if answer.last() != Some(&b'\n') {
            return Err(ClientError::Closed);
        }
        let response: Response =
            serde_json::from_slice(&answer).map_err(|error| ClientError::Answer(error.to_string()))?;
        if response.polder != PROTOCOL {
            return Err(ClientError::Answer(format!("version {}", response.polder)));
        }
        if let Answer::Error(refusal) = response.answer {
            return Err(ClientError::Refused { kind: refusal.kind, message: refusal.message });
        }
        Ok(response.answer)
    }
}

fn broken(error: io::Error) -> ClientError {
    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
        return ClientError::Silent;
    }
    if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) {
        return ClientError::Closed;
    }
    ClientError::System(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_only_gateway_that_runs_is_found() {
        let directory = std::env::temp_dir().join(format!("polder-client-{}", std::process::id()));
        let _: io::Result<()> = std::fs::remove_dir_all(&directory);
        assert!(matches!(only_in(&directory), Err(ClientError::NoneRunning)));
        std::fs::create_dir_all(&directory).unwrap();
        drop(UnixListener::bind(directory.join("gone.sock")).unwrap());
        assert!(matches!(only_in(&directory), Err(ClientError::Gone(_))));
        let first = UnixListener::bind(directory.join("b.sock")).unwrap();
        assert_eq!(only_in(&directory).unwrap(), directory.join("b.sock"));
        let second = UnixListener::bind(directory.join("a.sock")).unwrap();
        let error = only_in(&directory).unwrap_err().to_string();
        assert!(error.contains("--gateway a, --gateway b") && !error.contains("gone"), "{error}");
        drop((first, second));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
