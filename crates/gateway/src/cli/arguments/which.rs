//! Choice of a gateway.

use crate::control::client::{ClientError, DIRECTORY, gateways, only_gateway};
use clap::Args;
use std::path::{Path, PathBuf};

/// Gateway to ask; the one that runs if none is named.
#[derive(Clone, Debug, Default, Args)]
pub(in crate::cli) struct Which {
    /// Name of the gateway; required if several run.
    #[arg(long, short, value_name = "NAME", conflicts_with = "socket")]
    pub(super) gateway: Option<String>,
    /// Path of the gateway's control socket, if it is not the default one.
    #[arg(long, short, value_name = "PATH")]
    pub(super) socket: Option<PathBuf>,
}

impl Which {
    /// The control socket of the gateway that is meant.
    pub(in crate::cli) fn socket(&self) -> Result<PathBuf, ClientError> {
        match (&self.socket, &self.gateway) {
            (Some(path), _) => Ok(path.clone()),
            (None, Some(name)) => Ok(PathBuf::from(DIRECTORY).join(format!("{name}.sock"))),
            (None, None) => only_gateway(),
        }
    }

    /// Control sockets of the gateways that are meant: of all that run if none is named.
    pub(in crate::cli) fn sockets(&self) -> Vec<PathBuf> {
        if self.socket.is_none() && self.gateway.is_none() {
            return gateways(Path::new(DIRECTORY));
        }
        self.socket().into_iter().collect()
    }
}
