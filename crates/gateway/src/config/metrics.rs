//! `[metrics]`: where counters and health are read by monitoring.

use super::keys::Reload::Restart;
use super::notation::{Given, Text};
use super::section::{Refusal, printable};
use super::{gateway, values};
use serde::{Serialize, Serializer};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use toml::de::DeValue;

const BOUND: &str = "the process binds the socket at the start and then gives up the right to bind others";

section! {
    /// Metrics and health, for monitoring.
    pub struct Metrics("the metrics", "[metrics]") {
        keys:
        /// Address and port, or absolute path of a UNIX socket, of the HTTP server ([metrics](metrics.md)).
        listen: Option<Listen> = None, Given(LISTEN) => Restart(BOUND), usual("none: no server");
    }
}

/// Address of the HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Address and port of a TCP socket.
    Tcp(SocketAddr),
    /// Path of a UNIX socket.
    Unix(PathBuf),
}

impl fmt::Display for Listen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(formatter),
            Self::Unix(path) => path.display().fmt(formatter),
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

const LISTEN: Text<Listen> = Text {
    what: "address and port, or path",
    range: "IPv4 or IPv6, as in `\"127.0.0.1:9100\"`; absolute, at most 107 bytes",
    read: listen,
    write: Listen::to_string,
};

fn listen(value: &DeValue<'_>) -> Result<Listen, Refusal> {
    let text = values::text(value)?;
    if text.starts_with('/') {
        return gateway::socket_path(value).map(Listen::Unix);
    }
    text.parse().map(Listen::Tcp).map_err(|_| {
        let remedy = "write an address and a port, as in \"127.0.0.1:9100\" or \"[::1]:9100\", or the absolute path of \
                      a UNIX socket";
        Refusal::new(format!("is `{}`, which is not an address with a port", printable(&text))).remedy(remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::super::{difference, parse};
    use super::*;
    use std::path::Path;

    fn read(line: &str) -> Result<Option<Listen>, String> {
        let text =
            format!("version = 1\n[metrics]\n{line}\n[port.a]\ninterface = \"eth0\"\nrole = \"underlay\"\n");
        let parsed = parse(&text, Path::new("a.toml")).map_err(|report| report.to_string());
        parsed.map(|loaded| loaded.configuration.metrics.listen)
    }

    #[test]
    fn an_address_or_a_path_is_read() {
        assert_eq!(read(""), Ok(None));
        let tcp = |address: &str| Ok(Some(Listen::Tcp(address.parse().unwrap())));
        assert_eq!(read("listen = \"127.0.0.1:9100\""), tcp("127.0.0.1:9100"));
        assert_eq!(read("listen = \"[::1]:9100\""), tcp("[::1]:9100"));
        let path = Listen::Unix(PathBuf::from("/run/polder/metrics.sock"));
        assert_eq!(read("listen = \"/run/polder/metrics.sock\""), Ok(Some(path)));
    }

    #[test]
    fn another_value_is_refused_with_a_remedy() {
        for wrong in ["9100", "localhost:9100", "127.0.0.1", "::1:x", "metrics.sock", "", "/run/"] {
            let report = read(&format!("listen = \"{wrong}\"")).unwrap_err();
            assert!(report.contains("help"), "{wrong}: {report}");
        }
        assert!(read("listen = 9100").unwrap_err().contains("a string"));
    }

    #[test]
    fn another_socket_takes_a_restart() {
        let configuration = |listen: &str| {
            let text =
                format!("version = 1\n{listen}\n[port.a]\ninterface = \"eth0\"\nrole = \"underlay\"\n");
            parse(&text, Path::new("a.toml")).unwrap().configuration
        };
        let (off, on) = (configuration(""), configuration("[metrics]\nlisten = \"127.0.0.1:9100\""));
        let told = difference(&off, &on).to_string();
        assert!(told.contains("! metrics listen: – → \"127.0.0.1:9100\" needs a restart"), "{told}");
        assert!(difference(&on, &on).is_empty());
    }
}
