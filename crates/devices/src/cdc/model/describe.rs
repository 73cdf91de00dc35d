//! Descriptors of the model.

use super::{BULK_IN, BULK_OUT, FaultyDevice, NOTIFY, Options};
use crate::cdc::descriptor::{
    ETHERNET_FUNCTIONAL, MBIM_EXTENDED_FUNCTIONAL, MBIM_FUNCTIONAL, NCM_FUNCTIONAL, Subclass,
    UNION_FUNCTIONAL,
};
use crate::usb::Speed;
use crate::usb::descriptor::{
    ASSOCIATION, CLASS_INTERFACE, CONFIGURATION, DEVICE, DEVICE_BYTES, INTERFACE, endpoint, string,
};

/// The functional descriptor that precedes the others (CDC 1.2, table 13).
const HEADER_FUNCTIONAL: u8 = 0;
/// Index of the string with the MAC address.
const MAC_STRING: u8 = 4;

/// Returns the device descriptor.
pub(super) fn device(options: &Options) -> [u8; DEVICE_BYTES] {
    let (vendor, product) = options.identity;
    let ([a, b], [c, d]) = (vendor.to_le_bytes(), product.to_le_bytes());
    let (version, packet) = match options.speed {
        Speed::High => (2, 64),
        Speed::Super => (3, 9),
    };
    [18, DEVICE, 0, version, 2, 0, 0, packet, a, b, c, d, 0, 1, 1, 2, 3, 1]
}

/// Returns the configuration descriptor, with all its descriptors.
pub(super) fn configuration(options: &Options) -> Vec<u8> {
    let (subclass, protocol) = match options.subclass {
        Subclass::Mbim => (14, 2),
        Subclass::Ncm => (13, 1),
        Subclass::Ecm => (6, 0),
    };
    let is_mbim = options.subclass == Subclass::Mbim;
    let is_dual = is_mbim && options.modem.is_dual;
    let [low, high] = options.longest.to_le_bytes();
    let first = if is_dual { 13 } else { subclass };
    let mut body = vec![8, ASSOCIATION, 0, 2, 2, first, 0, 0];
    body.extend([9, INTERFACE, 0, 0, 1, 2, first, 0, 0]);
    body.extend([5, CLASS_INTERFACE, HEADER_FUNCTIONAL, 0x10, 1]);
    body.extend([5, CLASS_INTERFACE, UNION_FUNCTIONAL, 0, 1]);
    let ethernet = [13, CLASS_INTERFACE, ETHERNET_FUNCTIONAL, MAC_STRING, 0, 0, 0, 0, low, high, 0, 0, 0];
    if !is_mbim || is_dual {
        body.extend(ethernet);
    }
    if options.subclass == Subclass::Ncm || is_dual {
        body.extend([6, CLASS_INTERFACE, NCM_FUNCTIONAL, 0, 1, options.capabilities]);
    }
    if is_dual {
        body.extend(endpoint(options.speed, NOTIFY, 3, 16, 9));
        body.extend([9, INTERFACE, 0, 1, 1, 2, subclass, 0, 0]);
        body.extend([5, CLASS_INTERFACE, HEADER_FUNCTIONAL, 0x10, 1]);
        body.extend([5, CLASS_INTERFACE, UNION_FUNCTIONAL, 0, 1]);
    }
    if is_mbim {
        let [message_0, message_1] = options.modem.message_bytes.to_le_bytes();
        body.extend([
            12,
            CLASS_INTERFACE,
            MBIM_FUNCTIONAL,
            0,
            1,
            message_0,
            message_1,
            16,
            128,
            low,
            high,
            0,
        ]);
        body.extend([8, CLASS_INTERFACE, MBIM_EXTENDED_FUNCTIONAL, 0, 1, 16, low, high]);
    }
    body.extend(endpoint(options.speed, NOTIFY, 3, 16, 9));
    body.extend([9, INTERFACE, 1, 0, 0, 10, 0, if is_dual { 1 } else { protocol }, 0]);
    let packet = u16::try_from(options.speed.bulk_packet()).unwrap_or(u16::MAX);
    let settings: &[(u8, u8)] = if is_dual { &[(1, 1), (2, 2)] } else { &[(1, protocol)] };
    for &(setting, protocol) in settings {
        body.extend([9, INTERFACE, 1, setting, 2, 10, 0, protocol, 0]);
        body.extend(endpoint(options.speed, BULK_IN, 2, packet, 0));
        body.extend(endpoint(options.speed, BULK_OUT, 2, packet, 0));
    }
    let [total_0, total_1] = u16::try_from(9 + body.len()).unwrap_or(u16::MAX).to_le_bytes();
    let mut bytes = vec![9, CONFIGURATION, total_0, total_1, 2, 1, 0, 0xc0, 1];
    bytes.extend(body);
    bytes
}

/// Returns a string descriptor, if it exists.
pub(super) fn text(options: &Options, index: u8) -> Option<Vec<u8>> {
    match index {
        0 => Some(string(None)),
        1 => Some(string(Some("Polder"))),
        2 => Some(string(Some(options.subclass.name()))),
        3 => Some(string(Some("model"))),
        MAC_STRING => {
            let mut mac = options.mac;
            mac[5] ^= u8::from(options.faulty == Some(FaultyDevice::OtherAddress));
            let digits: String = mac.iter().map(|byte| format!("{byte:02X}")).collect();
            Some(string(Some(&digits)))
        }
        _ => None,
    }
}
