//! File of a port in `conf.d`, written or removed together with the running gateway's port.

use super::client::{Client, ClientError};
use super::{Answer, Ask, PortRequest, Reloaded};
use crate::config::directory_of;
use anyhow::{Context as _, Result, anyhow};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// File of port `name`, beside the gateway's file.
pub fn file_of(gateway: &Path, name: &str) -> PathBuf {
    directory_of(gateway).join(format!("{name}.toml"))
}

/// Changes a port in the gateway and in its file, or in neither. An empty `text` removes the file.
///
/// # Errors
/// When the file cannot be written, or the gateway refuses.
pub fn kept(client: &mut Client, request: PortRequest, file: &Path, text: &str) -> Result<Reloaded> {
    let before = match fs::read(file) {
        Ok(before) => Some(before),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
        Err(error) => {
            return Err(anyhow!(error).context(format!("cannot read the port's file {}", file.display())));
        }
    };
    put(file, (!text.is_empty()).then_some(text.as_bytes()))?;
    match client.ask(Ask::Port(request)) {
        Ok(Answer::Reloaded(reloaded)) => Ok(reloaded),
        Ok(answer) => Err(ClientError::Answer(format!("{answer:?}")).into()),
        Err(error) => {
            put(file, before.as_deref())?;
            Err(error.into())
        }
    }
}

/// Replaces a file atomically, or removes it.
///
/// # Errors
/// When a system call fails; the file is unchanged then.
pub fn put(file: &Path, content: Option<&[u8]>) -> Result<()> {
    let Some(content) = content else {
        return match fs::remove_file(file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(anyhow!(error).context(format!("cannot remove the port's file {}", file.display())))
            }
            _ => Ok(()),
        };
    };
    let directory = file.parent().context("the path of the port's file has no directory")?;
    let unfinished = unfinished(file);
    let written = fs::create_dir_all(directory).and_then(|()| {
        // An incomplete file of another process is removed.
        let _ = fs::remove_file(&unfinished);
        let mut new = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&unfinished)?;
        new.write_all(content)?;
        new.sync_all()?;
        fs::rename(&unfinished, file)?;
        File::open(directory)?.sync_all()
    });
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written.with_context(|| format!("cannot write the port's file {}", file.display()))
}

/// Name of a file while it is written, which gateways do not read.
fn unfinished(file: &Path) -> PathBuf {
    file.with_extension("toml.new")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_or_not_there() {
        let directory = std::env::temp_dir().join(format!("polder-port-{}", std::process::id()));
        let file = directory.join("c5.toml");
        put(&file, Some(b"[port.c5]\n")).expect("a directory of our own");
        assert_eq!(fs::read(&file).expect("it is there"), b"[port.c5]\n");
        fs::create_dir(unfinished(&file)).expect("nothing of that name");
        assert!(put(&file, Some(b"other")).is_err());
        assert_eq!(fs::read(&file).expect("as before"), b"[port.c5]\n");
        put(&file, None).expect("it is there");
        assert!(!file.exists());
        put(&file, None).expect("there is nothing to remove");
        fs::remove_dir_all(&directory).expect("our own");
    }
}
