//! The file of a port in `conf.d`: written, or removed, together with the port of the gateway.

use super::client::{Client, ClientError};
use super::{Answer, Ask, PortRequest, Reloaded};
use crate::config::directory_of;
use anyhow::{Context as _, Result, anyhow};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The file of port `name`, beside the gateway's own.
pub fn file_of(gateway: &Path, name: &str) -> PathBuf {
    directory_of(gateway).join(format!("{name}.toml"))
}

/// Makes a change that the port's own file has, too: both of them or neither. An empty text removes the file.
///
/// # Errors
/// When the file cannot be written, or the gateway refuses.
pub fn kept(client: &mut Client, request: PortRequest, file: &Path, text: &str) -> Result<Reloaded> {
    let before = match fs::read(file) {
        Ok(before) => Some(before),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
        Err(error) => return Err(anyhow!(error).context(format!("cannot read {}", file.display()))),
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

/// Writes a file whole or not at all, or removes it.
///
/// # Errors
/// When the system refuses; the file is as before then.
pub fn put(file: &Path, content: Option<&[u8]>) -> Result<()> {
    let Some(content) = content else {
        return match fs::remove_file(file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(anyhow!(error).context(format!("cannot remove {}", file.display())))
            }
            _ => Ok(()),
        };
    };
    let directory = file.parent().context("a file is in a directory")?;
    let unfinished = unfinished(file);
    let written = fs::create_dir_all(directory).and_then(|()| {
        // One that another left here is as bad as none.
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
    written.with_context(|| format!("cannot write {}", file.display()))
}

/// Name of a file until it is whole: not one that gateways read.
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
