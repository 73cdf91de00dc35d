//! BFD keys in files: a line for each key, with its number and its secret.

use crate::bfd::{AuthenticationType, Key};
use crate::config::model::{Configuration, Tunnel};
use crate::secret;
use anyhow::{Context as _, Result, anyhow, ensure};
use std::collections::HashSet;

/// Maximum length of a key file, in bytes.
const LONGEST: u64 = 16 << 10;

/// Authentication that the configuration asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WantedKeys {
    /// Type of authentication.
    pub(super) form: AuthenticationType,
    /// Keys, the sending key first; or the reason why they could not be read.
    pub(super) keys: Result<Vec<Key>, String>,
}

impl WantedKeys {
    /// Authentication that a tunnel's configuration asks for, if any.
    pub(super) fn of(tunnel: &Tunnel) -> Option<Self> {
        let bfd = tunnel.bfd.as_ref()?;
        let keys = read(bfd.key_file.as_deref()?).map_err(|error| format!("{error:#}"));
        Some(Self { form: bfd.authentication, keys })
    }
}

/// Number of keys and path of a tunnel's key file, for checks before the start, or an error; `None` without a
/// key file.
pub(in crate::runtime) fn look_at_keys(tunnel: &Tunnel) -> Option<Result<(usize, &str), String>> {
    let path = tunnel.bfd.as_ref()?.key_file.as_deref()?;
    let keys = WantedKeys::of(tunnel)?.keys;
    Some(keys.map(|keys| (keys.len(), path)))
}

/// Checks that the keys of all tunnels can be read.
///
/// # Errors
/// When a file is missing, or has no keys.
pub fn check_keys(configuration: &Configuration) -> Result<()> {
    for tunnel in &configuration.tunnels {
        if let Some(WantedKeys { keys: Err(why), .. }) = WantedKeys::of(tunnel) {
            return Err(anyhow!("tunnel {}: {why}", tunnel.name));
        }
    }
    Ok(())
}

fn read(path: &str) -> Result<Vec<Key>> {
    let text = secret::read(path, LONGEST, "BFD keys")?;
    let keys = parse(&text).with_context(|| format!("{path} has no BFD keys"))?;
    ensure!(!keys.is_empty(), "{path} has no BFD keys: write a line such as `1 secret` into it");
    Ok(keys)
}

/// Parses keys. Empty lines and lines that begin with `#` are ignored.
fn parse(text: &str) -> Result<Vec<Key>> {
    let (mut keys, mut numbers) = (Vec::new(), HashSet::new());
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // Messages never contain the secret.
        let place = index + 1;
        let parts = line.split_once(char::is_whitespace);
        let parts = parts.and_then(|(number, secret)| Some((number.parse().ok()?, secret.trim_start())));
        let (number, secret) = parts.with_context(|| {
            format!("line {place} is not a number from 0 to 255 and a secret, as `1 secret`")
        })?;
        let key = Key::new(number, secret.as_bytes());
        keys.push(key.with_context(|| {
            format!(
                "the secret in line {place} has {} octets; at most {} are possible",
                secret.len(),
                Key::LONGEST
            )
        })?);
        ensure!(
            numbers.insert(number),
            "line {place} repeats key number {number}; give each key a number of its own"
        );
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_key() {
        let keys = parse("# of the radio link\n\n 7 geheim\n255\tand a longer one\n").expect("keys");
        let expected = [(7, "geheim"), (255, "and a longer one")];
        assert_eq!(keys, expected.map(|(id, secret)| Key::new(id, secret.as_bytes()).expect("fits")));
    }

    #[test]
    fn mistakes_are_told_without_secrets() {
        let why = |text: &str| format!("{:#}", parse(text).expect_err("a mistake"));
        assert!(why("1 a\n256 geheim").starts_with("line 2 is not a number"));
        assert!(why("geheim").starts_with("line 1 is not a number"));
        assert!(why("1").starts_with("line 1 is not a number"));
        assert_eq!(
            why("1 geheimgeheimgeheimgeh"),
            "the secret in line 1 has 21 octets; at most 20 are possible"
        );
        assert_eq!(why("1 a\n1 b"), "line 2 repeats key number 1; give each key a number of its own");
        for text in ["1 a\n256 geheim", "geheim", "1 geheimgeheimgeheimgeh"] {
            assert!(!why(text).contains("geheim"));
        }
    }

    #[test]
    fn a_file_without_keys_is_an_error() {
        let path = std::env::temp_dir().join(format!("polder-keys-{}", std::process::id()));
        let name = path.display().to_string();
        std::fs::write(&path, "# none\n").expect("a file");
        let why = format!("{:#}", read(&name).expect_err("no keys"));
        assert!(why.ends_with("has no BFD keys: write a line such as `1 secret` into it"), "{why}");
        std::fs::write(&path, "3 c\n").expect("a file");
        assert_eq!(read(&name).expect("a key").len(), 1);
        std::fs::remove_file(&path).expect("it is there");
        let why = format!("{:#}", read(&name).expect_err("gone"));
        assert!(why.contains("in or below the directory of the configuration"), "{why}");
    }
}
