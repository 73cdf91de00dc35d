//! Driver information and feature switches of an interface: ethtool(8).

use super::sys::{self, ETHTOOL_BYTES};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsFd, OwnedFd};

/// Socket to ask drivers in the network namespace of the thread that created it.
#[derive(Debug)]
pub(crate) struct Ethtool {
    socket: OwnedFd,
    answer: Box<[u8; ETHTOOL_BYTES]>,
}

/// A feature of an interface, by its name in `ethtool -k`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Feature {
    pub(crate) name: String,
    pub(crate) active: bool,
    /// True if the feature can be switched; false if it is `[fixed]`.
    pub(crate) changeable: bool,
}

/// Number of queues in use, per direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Channels {
    pub(crate) receive: u32,
    pub(crate) transmit: u32,
}

/// Settings of an interface's controller; a value is `None` if the driver does not report it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The name of the driver.
    pub driver: Option<String>,
    /// Sizes of the receive rings.
    pub rings: Option<Rings>,
    /// Maximum delay between a received packet and its interrupt, in microseconds.
    pub receive_delay_us: Option<u32>,
    /// Features that are on, by the names of `ethtool -k`.
    pub features: Vec<String>,
}

/// Sizes of a controller's receive rings, in descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rings {
    /// Current size.
    pub receive: u32,
    /// Maximum size that the driver accepts.
    pub max_receive: u32,
}

/// Returns the settings of the interface's controller, in the network namespace of this thread.
///
/// # Errors
/// An error of socket(2).
pub fn settings(interface: &str) -> Result<Settings, Errno> {
    Ok(Ethtool::new()?.settings(interface))
}

impl Ethtool {
    pub(crate) fn new() -> Result<Self, Errno> {
        let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        let answer = vec![0; ETHTOOL_BYTES].into_boxed_slice().try_into().map_err(|_| Errno::NOMEM)?;
        Ok(Self { socket, answer })
    }

    /// Returns the name of the driver.
    pub(crate) fn driver(&mut self, interface: &str) -> Result<String, Errno> {
        self.ask(interface, GET_DRIVER, &[])?;
        let name = &self.answer[4..36];
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// Returns the number of queues in use in each direction.
    pub(crate) fn channels(&mut self, interface: &str) -> Result<Channels, Errno> {
        self.ask(interface, GET_CHANNELS, &[])?;
        let combined = self.word(8);
        Ok(Channels { receive: self.word(5) + combined, transmit: self.word(6) + combined })
    }

    /// Returns the settings of the controller.
    pub(crate) fn settings(&mut self, interface: &str) -> Settings {
        // Each answer is read before the next request.
        let rings = self.ask(interface, GET_RINGS, &[]).ok();
        let rings = rings.map(|()| Rings { receive: self.word(5), max_receive: self.word(1) });
        let delay = self.ask(interface, GET_COALESCING, &[]).ok();
        let receive_delay_us = delay.map(|()| self.word(1));
        Settings {
            driver: self.driver(interface).ok(),
            rings,
            receive_delay_us,
            features: self.active_features(interface).unwrap_or_default(),
        }
    }

    /// Returns the names of the active features, as in `ethtool -k`.
    pub(crate) fn active_features(&mut self, interface: &str) -> Result<Vec<String>, Errno> {
        let features = self.features(interface)?.into_iter();
        Ok(features.filter(|feature| feature.active).map(|feature| feature.name).collect())
    }

    /// Returns all features.
    pub(crate) fn features(&mut self, interface: &str) -> Result<Vec<Feature>, Errno> {
        let names = self.feature_names(interface)?;
        self.ask(interface, GET_FEATURES, &[blocks(names.len())])?;
        // One block of four words for 32 features: available, requested, active, unchangeable.
        let bit = |index: usize, word: usize| self.word(2 + 4 * (index / 32) + word) >> (index % 32) & 1 == 1;
        let feature = |(index, name)| Feature {
            name,
            active: bit(index, 2),
            changeable: bit(index, 0) && !bit(index, 3),
        };
        Ok(names.into_iter().enumerate().map(feature).collect())
    }

    fn feature_names(&mut self, interface: &str) -> Result<Vec<String>, Errno> {
        self.ask(interface, GET_STRING_COUNT, &FEATURE_NAMES_QUESTION)?;
        let count = self.word(4).min(MAX_FEATURES);
        self.ask(interface, GET_STRINGS, &[FEATURE_NAMES, count])?;
        Ok((0..count as usize).map(|index| self.string(12 + 32 * index)).collect())
    }

    /// Switches one feature.
    ///
    /// # Errors
    /// `OPNOTSUPP` if the feature has the old state afterwards; else an error of the kernel.
    pub(crate) fn set_feature(&mut self, interface: &str, name: &str, on: bool) -> Result<(), Errno> {
        let names = self.feature_names(interface)?;
        let at = names.iter().position(|known| known == name).ok_or(Errno::OPNOTSUPP)?;
        // For each 32 features: a mask of those to change, and their new states.
        let mut words = vec![0; 1 + 2 * names.len().div_ceil(32)];
        words[0] = blocks(names.len());
        let block = 1 + 2 * (at / 32);
        words[block] = 1 << (at % 32);
        words[block + 1] = u32::from(on) << (at % 32);
        // A positive answer means "not all done" and looks like an error; the state afterwards decides.
        let asked = self.ask(interface, SET_FEATURES, &words);
        let features = self.features(interface)?;
        match features.get(at) {
            Some(feature) if feature.active == on => Ok(()),
            _ => asked.and(Err(Errno::OPNOTSUPP)),
        }
    }

    fn ask(&mut self, interface: &str, command: u32, arguments: &[u32]) -> Result<(), Errno> {
        self.answer.fill(0);
        for (index, word) in core::iter::once(&command).chain(arguments).enumerate() {
            self.answer[4 * index..4 * index + 4].copy_from_slice(&word.to_ne_bytes());
        }
        sys::ethtool(self.socket.as_fd(), interface, &mut self.answer)
    }

    fn word(&self, index: usize) -> u32 {
        let at = 4 * index;
        u32::from_ne_bytes([self.answer[at], self.answer[at + 1], self.answer[at + 2], self.answer[at + 3]])
    }

    fn string(&self, at: usize) -> String {
        let bytes = &self.answer[at..at + 32];
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

/// Returns the number of 32-feature blocks.
fn blocks(features: usize) -> u32 {
    u32::try_from(features.div_ceil(32)).unwrap_or(u32::MAX)
}

/// Commands of linux/ethtool.h.
const GET_DRIVER: u32 = 0x03;
const GET_STRINGS: u32 = 0x1b;
const GET_STRING_COUNT: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;
const GET_CHANNELS: u32 = 0x3c;
const GET_COALESCING: u32 = 0x0e;
const GET_RINGS: u32 = 0x10;
/// `ETH_SS_FEATURES`.
const FEATURE_NAMES: u32 = 4;
/// A reserved word, then a mask of 64 bits with the bit of `FEATURE_NAMES`.
const FEATURE_NAMES_QUESTION: [u32; 3] =
    if cfg!(target_endian = "little") { [0, 1 << FEATURE_NAMES, 0] } else { [0, 0, 1 << FEATURE_NAMES] };
/// Upper bound for the number of features; more than any kernel has, and within the answer's size.
const MAX_FEATURES: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_features() {
        let mut ethtool = Ethtool::new().expect("a socket");
        let features = ethtool.active_features("lo").expect("lo has features");
        assert!(features.iter().any(|name| name == "tx-scatter-gather"), "{features:?}");
        assert_eq!(ethtool.channels("lo"), Err(Errno::OPNOTSUPP));
        let settings = settings("lo").expect("a socket");
        assert_eq!((settings.rings, settings.receive_delay_us), (None, None));
        assert_eq!(settings.features, features);
    }

    #[test]
    fn what_a_controller_says_is_possible() {
        for entry in std::fs::read_dir("/sys/class/net").expect("a list of interfaces") {
            let name = entry.expect("an interface").file_name();
            let settings = settings(&name.to_string_lossy()).expect("a socket");
            assert!(settings.receive_delay_us.is_none_or(|delay| delay < 10_000_000), "{settings:?}");
            assert!(settings.rings.is_none_or(|rings| rings.receive <= rings.max_receive), "{settings:?}");
        }
    }
}
