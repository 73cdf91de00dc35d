//! Driver information and feature switches of an interface: ethtool(8).

use super::sys::{self, ETHTOOL_BYTES};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsFd, OwnedFd};

/// A way to ask drivers in the network namespace of the thread that made it.
#[derive(Debug)]
pub(crate) struct Ethtool {
    socket: OwnedFd,
    answer: Box<[u8; ETHTOOL_BYTES]>,
}

/// A feature of an interface, by the name of `ethtool -k`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Feature {
    pub(crate) name: String,
    pub(crate) active: bool,
    /// True if it can be switched; else it is `[fixed]`.
    pub(crate) changeable: bool,
}

/// Queues that are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Channels {
    pub(crate) receive: u32,
    pub(crate) transmit: u32,
}

/// Settings of an interface's controller; what a driver does not tell is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The name of the driver.
    pub driver: Option<String>,
    /// Sizes of the receive rings.
    pub rings: Option<Rings>,
    /// Maximum time for which a received packet waits for its interrupt, in microseconds.
    pub receive_delay_us: Option<u32>,
    /// Features that are on, by the names of `ethtool -k`.
    pub features: Vec<String>,
}

/// Sizes of a controller's receive rings, in descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rings {
    /// As they are.
    pub receive: u32,
    /// Most that the driver takes.
    pub max_receive: u32,
}

/// Settings of the controller of an interface, in the network namespace of this thread.
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

    /// The name of the driver.
    pub(crate) fn driver(&mut self, interface: &str) -> Result<String, Errno> {
        self.ask(interface, GET_DRIVER, &[])?;
        let name = &self.answer[4..36];
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// Number of queues that are in use in each direction.
    pub(crate) fn channels(&mut self, interface: &str) -> Result<Channels, Errno> {
        self.ask(interface, GET_CHANNELS, &[])?;
        let combined = self.word(8);
        Ok(Channels { receive: self.word(5) + combined, transmit: self.word(6) + combined })
    }

    /// Settings of the controller.
    pub(crate) fn settings(&mut self, interface: &str) -> Settings {
        // Each answer is read before the next question.
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

    /// The features, by the names of `ethtool -k`, that are switched on.
    pub(crate) fn active_features(&mut self, interface: &str) -> Result<Vec<String>, Errno> {
        let features = self.features(interface)?.into_iter();
        Ok(features.filter(|feature| feature.active).map(|feature| feature.name).collect())
    }

    /// All features.
    pub(crate) fn features(&mut self, interface: &str) -> Result<Vec<Feature>, Errno> {
        let names = self.feature_names(interface)?;
        self.ask(interface, GET_FEATURES, &[blocks(names.len())])?;
        // A block of four words for each 32 features: available, requested, active, unchangeable.
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
    /// `OPNOTSUPP` when it is as it was afterwards, else what the kernel says.
    pub(crate) fn set_feature(&mut self, interface: &str, name: &str, on: bool) -> Result<(), Errno> {
        let names = self.feature_names(interface)?;
        let at = names.iter().position(|known| known == name).ok_or(Errno::OPNOTSUPP)?;
        // For each 32 features which of them are meant, and which of these are to be on.
        let mut words = vec![0; 1 + 2 * names.len().div_ceil(32)];
        words[0] = blocks(names.len());
        let block = 1 + 2 * (at / 32);
        words[block] = 1 << (at % 32);
        words[block + 1] = u32::from(on) << (at % 32);
        // A positive answer says that not all was done, and looks like an error: what counts is what is then.
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

/// Words of 32 features each.
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
/// More than any kernel has, and within the answer's size.
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
