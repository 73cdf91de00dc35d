//! Public captures of Ethernet frames: those of tcpdump's own tests, as `scripts/captures` has fetched them.

use anyhow::{Context as _, ensure};
use polder::trace::pcap;
use std::path::PathBuf;

/// The folder, unless it is named.
const FOLDER: &str = "/var/cache/polder/captures";
/// The variable that names it.
const VARIABLE: &str = "POLDER_CAPTURES";
/// Captures that the folder has at least, or it is not the right one.
const LEAST: usize = 200;
/// The largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;
/// Frames of a capture that are replayed at most.
const FRAMES: usize = 600;

/// Link type of Ethernet (`LINKTYPE_ETHERNET`).
const ETHERNET: u32 = 1;

/// A capture.
#[derive(Clone, Debug)]
pub(super) struct Capture {
    /// Name of its file.
    pub(super) name: String,
    /// Ethernet frames in their order, as far as they were captured; without FCS.
    pub(super) frames: Vec<Vec<u8>>,
}

/// The folder of captures.
pub(super) fn folder() -> PathBuf {
    std::env::var_os(VARIABLE).map_or_else(|| FOLDER.into(), PathBuf::from)
}

/// Fails where there are no captures.
///
/// # Errors
/// When they are not there; the message says how to fetch them.
pub(super) fn available() -> anyhow::Result<()> {
    let folder = folder();
    ensure!(
        folder.join("version").is_file(),
        "there are no captures in {}: run scripts/captures, or name their folder in {VARIABLE}",
        folder.display()
    );
    Ok(())
}

/// Reads all captures of Ethernet in the folder, by name. Files of other link layers are left out.
///
/// # Errors
/// When the folder cannot be read, or has too few.
pub(super) fn all() -> anyhow::Result<Vec<Capture>> {
    available()?;
    let folder = folder();
    let mut captures = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if !path.metadata().is_ok_and(|file| file.is_file() && file.len() <= LARGEST) {
            continue;
        }
        let file = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        captures.extend(frames(&file).map(|frames| Capture { name, frames }));
    }
    captures.sort_by(|a, b| a.name.cmp(&b.name));
    ensure!(captures.len() >= LEAST, "{} has {} captures only", folder.display(), captures.len());
    Ok(captures)
}

/// Frames of a file, if it has some.
fn frames(file: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut frames = match file.first_chunk::<4>()? {
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => classic(file, u32::from_le_bytes)?,
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => classic(file, u32::from_be_bytes)?,
        _ => pcap::frames(file).ok()?.into_iter().map(|frame| frame.bytes.to_vec()).collect(),
    };
    frames.truncate(FRAMES);
    (!frames.is_empty()).then_some(frames)
}

/// Frames of a pcap file of Ethernet, up to where it is cut off. Lengths on the network are not looked at: captures of
/// malformed packets have impossible ones.
fn classic(file: &[u8], word: fn([u8; 4]) -> u32) -> Option<Vec<Vec<u8>>> {
    let word = |bytes: &[u8], at: usize| bytes.get(at..)?.first_chunk().map(|field| word(*field));
    // The upper half of the link type says whether there are checksums.
    if word(file, 20)? & 0xffff != ETHERNET {
        return None;
    }
    let (mut rest, mut frames) = (file.get(24..)?, Vec::new());
    while let Some(length) = word(rest, 8) {
        let end = usize::try_from(length).ok()?.checked_add(16)?;
        let Some(frame) = rest.get(16..end) else { break };
        frames.push(frame.to_vec());
        rest = &rest[end..];
    }
    Some(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_ethernet_are_read_and_nothing_else() {
        let header = |link: u32| {
            [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65_535, link].map(u32::to_be_bytes).as_flattened().to_vec()
        };
        let frame = [&[0_u8, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 14, 0, 0, 0, 90][..], &[7; 14]].concat();
        let file = [header(1), frame.clone()].concat();
        assert_eq!(frames(&file), Some(vec![vec![7; 14]]));
        assert_eq!(frames(&[header(127), frame].concat()), None);
        assert_eq!(frames(&header(1)), None, "a capture without frames");
        let cut = [file.as_slice(), &file[24..53]].concat();
        assert_eq!(frames(&cut).map(|frames| frames.len()), Some(1), "a capture that is cut off");
    }
}
