//! Network functions of a device, as its configuration descriptors list them (CDC 1.2, section 5; NCM 1.0,
//! section 5).

use crate::usb::descriptor::{
    CLASS_INTERFACE, DescriptorError, Descriptors, ENDPOINT, Endpoints, FoundEndpoints, INTERFACE,
};

/// Class of a control interface (CDC 1.2, table 1).
pub const COMMUNICATIONS: u8 = 2;
/// Class of a data interface.
pub const DATA: u8 = 10;
/// Subclass of Ethernet Control Model.
pub const ECM: u8 = 6;
/// Subclass of Network Control Model.
pub const NCM: u8 = 13;
/// Subclass of Mobile Broadband Interface Model.
pub const MBIM: u8 = 14;
/// Protocol of a data interface of MBIM (MBIM 1.0, 6.6).
pub(super) const MBIM_PROTOCOL: u8 = 2;

/// Functional descriptors (CDC 1.2, table 13).
pub(super) const UNION_FUNCTIONAL: u8 = 6;
pub(super) const ETHERNET_FUNCTIONAL: u8 = 15;
pub(super) const NCM_FUNCTIONAL: u8 = 26;
pub(super) const MBIM_FUNCTIONAL: u8 = 27;
pub(super) const MBIM_EXTENDED_FUNCTIONAL: u8 = 28;
/// Smallest control message size that an MBIM function accepts, in bytes (MBIM 1.0, 6.4).
pub(super) const SMALLEST_MESSAGE: u16 = 64;

/// Bits of `bmNetworkCapabilities` of an NCM function (NCM 1.0, table 5-2).
pub mod capability {
    /// SET_ETHERNET_PACKET_FILTER.
    pub const PACKET_FILTER: u8 = 1;
    /// GET_NET_ADDRESS and SET_NET_ADDRESS.
    pub const NET_ADDRESS: u8 = 1 << 1;
    /// GET_MAX_DATAGRAM_SIZE and SET_MAX_DATAGRAM_SIZE.
    pub const MAX_DATAGRAM_SIZE: u8 = 1 << 3;
    /// GET_CRC_MODE and SET_CRC_MODE.
    pub const CRC_MODE: u8 = 1 << 4;
    /// SET_NTB_INPUT_SIZE with eight bytes.
    pub const NTB_INPUT_SIZE_8: u8 = 1 << 5;
}

/// Subclass of a network function that the driver supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subclass {
    /// Mobile Broadband Interface Model: many IP packets per transfer, and a modem.
    Mbim,
    /// Network Control Model: many frames per transfer.
    Ncm,
    /// Ethernet Control Model: one frame per transfer.
    Ecm,
}

impl Subclass {
    /// Returns the subclass of an interface with that class, subclass and protocol; `None` if unsupported.
    pub const fn of([class, subclass, _]: [u8; 3]) -> Option<Self> {
        match (class, subclass) {
            (COMMUNICATIONS, MBIM) => Some(Self::Mbim),
            (COMMUNICATIONS, NCM) => Some(Self::Ncm),
            (COMMUNICATIONS, ECM) => Some(Self::Ecm),
            _ => None,
        }
    }

    /// Returns the name for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mbim => "MBIM",
            Self::Ncm => "CDC-NCM",
            Self::Ecm => "CDC-ECM",
        }
    }
}

/// A network function of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkFunction {
    /// Subclass.
    pub subclass: Subclass,
    /// Value of its configuration.
    pub configuration: u8,
    /// Number of the control interface.
    pub control: u8,
    /// Alternate setting of the control interface; other than 0 for the MBIM half of a function that also
    /// supports NCM.
    pub control_setting: u8,
    /// Number of the data interface.
    pub data: u8,
    /// Alternate setting of the data interface that has endpoints.
    pub setting: u8,
    /// Its endpoints.
    pub endpoints: Endpoints,
    /// Index of the string with its MAC address; 0 for MBIM.
    pub mac_string: u8,
    /// Maximum frame length in bytes, Ethernet header included, FCS excluded; for MBIM the maximum IP packet
    /// length.
    pub longest: u16,
    /// Optional requests of an NCM or MBIM function: bits of [`capability`].
    pub capabilities: u8,
    /// Maximum control message length of an MBIM function, in bytes; 0 for other functions.
    pub message_bytes: u16,
}

/// Control interface as far as its descriptors have been read.
#[derive(Clone, Copy, Debug)]
struct Gathered {
    subclass: Subclass,
    control: u8,
    setting: u8,
    data: Option<u8>,
    ethernet: Option<(u8, u16)>,
    capabilities: u8,
    message_bytes: u16,
    endpoints: FoundEndpoints,
}

/// Returns the first supported network function of a configuration; MBIM before NCM, NCM before ECM.
///
/// # Errors
/// [`DescriptorError`] if the configuration is malformed, or its function lacks an endpoint.
pub fn network_function(configuration: &[u8]) -> Result<Option<NetworkFunction>, DescriptorError> {
    let mut gathered = Vec::new();
    for descriptor in Descriptors::of(configuration)? {
        let descriptor = descriptor?;
        match *descriptor {
            [_, INTERFACE, number, setting, _, class, subclass, protocol, ..] => {
                // A function of two subclasses has MBIM as another alternate setting of its control interface
                // (MBIM 1.0, 3.2).
                let subclass = Subclass::of([class, subclass, protocol]);
                let subclass = subclass.filter(|&subclass| setting == 0 || subclass == Subclass::Mbim);
                gathered.push(subclass.map(|subclass| Gathered::new(subclass, number, setting)));
            }
            [_, INTERFACE, ..] => gathered.push(None),
            [_, CLASS_INTERFACE, ..] => {
                if let Some(Some(function)) = gathered.last_mut() {
                    function.add(descriptor);
                }
            }
            [_, ENDPOINT, ..] => {
                if let Some(Some(function)) = gathered.last_mut() {
                    function.endpoints.add(descriptor)?;
                }
            }
            _ => {}
        }
    }
    let value = *configuration.get(5).ok_or(DescriptorError::Malformed)?;
    let first = gathered.into_iter().flatten().min_by_key(|function| function.subclass);
    first.map(|function| function.complete(configuration, value)).transpose()
}

impl Gathered {
    fn new(subclass: Subclass, control: u8, setting: u8) -> Self {
        let endpoints = FoundEndpoints::default();
        let (data, ethernet) = (None, None);
        Self { subclass, control, setting, data, ethernet, capabilities: 0, message_bytes: 0, endpoints }
    }

    /// Adds a functional descriptor.
    fn add(&mut self, descriptor: &[u8]) {
        match *descriptor {
            [_, _, UNION_FUNCTIONAL, _, data, ..] => self.data = Some(data),
            [_, _, ETHERNET_FUNCTIONAL, mac, _, _, _, _, low, high, ..] => {
                self.ethernet = Some((mac, u16::from_le_bytes([low, high])));
            }
            [_, _, NCM_FUNCTIONAL, _, _, capabilities, ..] => self.capabilities = capabilities,
            [_, _, MBIM_FUNCTIONAL, _, _, a, b, _, _, low, high, capabilities, ..] => {
                self.message_bytes = u16::from_le_bytes([a, b]);
                self.ethernet = Some((0, u16::from_le_bytes([low, high])));
                self.capabilities = capabilities & !capability::CRC_MODE;
            }
            [_, _, MBIM_EXTENDED_FUNCTIONAL, _, _, _, low, high, ..] => {
                let mtu = u16::from_le_bytes([low, high]);
                if let Some((_, longest)) = &mut self.ethernet
                    && mtu > 0
                {
                    *longest = mtu.min(*longest);
                }
            }
            _ => {}
        }
    }

    fn complete(self, configuration: &[u8], value: u8) -> Result<NetworkFunction, DescriptorError> {
        // Without a union descriptor the data interface is the next one.
        let data = self.data.unwrap_or(self.control.wrapping_add(1));
        let (mac_string, longest) = self.ethernet.ok_or(DescriptorError::Malformed)?;
        let is_mbim = self.subclass == Subclass::Mbim;
        if is_mbim && self.message_bytes < SMALLEST_MESSAGE {
            return Err(DescriptorError::Malformed);
        }
        // With an NCM half, the data interface has alternate settings of both.
        let protocol = (is_mbim && self.setting != 0).then_some(MBIM_PROTOCOL);
        let (setting, endpoints) = data_endpoints(configuration, (data, protocol), self.endpoints)?;
        Ok(NetworkFunction {
            subclass: self.subclass,
            configuration: value,
            control: self.control,
            control_setting: self.setting,
            data,
            setting,
            endpoints: endpoints.complete()?,
            mac_string,
            longest,
            capabilities: self.capabilities,
            message_bytes: self.message_bytes,
        })
    }
}

/// Returns the first alternate setting of an interface with endpoints (of protocol `wanted`, if given), and
/// its endpoints added to `known`.
fn data_endpoints(
    configuration: &[u8],
    (data, wanted): (u8, Option<u8>),
    known: FoundEndpoints,
) -> Result<(u8, FoundEndpoints), DescriptorError> {
    let mut found = known;
    let mut chosen = None;
    let mut current = None;
    for descriptor in Descriptors::of(configuration)? {
        let descriptor = descriptor?;
        match *descriptor {
            [_, INTERFACE, number, setting, _, _, _, protocol, ..] => {
                let is_it = number == data && wanted.is_none_or(|wanted| wanted == protocol);
                current = is_it.then_some(setting);
            }
            [_, ENDPOINT, ..] if current.is_some() && (chosen.is_none() || chosen == current) => {
                chosen = current;
                found.add(descriptor)?;
            }
            _ => {}
        }
    }
    Ok((chosen.ok_or(DescriptorError::Endpoint("bulk-in"))?, found))
}
