//! Listing of a server's devices, without attaching any.

use super::attach::{ClientError, Conversation, ServerAddress};
use super::message::{
    DEVICE_BYTES, Described, INTERFACE_BYTES, NAME_AT, NAME_BYTES, REPLY_LIST, REQUEST_LIST, SETUP_BYTES,
    setup_head,
};
use crate::usb::Speed;
use core::time::Duration;
use std::io::{Read, Write};
use std::sync::atomic::AtomicBool;

/// Maximum number of devices; a server that reports more is not believed.
const MOST_DEVICES: u32 = 1024;

/// A device that a server offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its bus id at the server.
    pub busid: String,
    /// Vendor ID.
    pub vendor: u16,
    /// Product ID.
    pub product: u16,
    /// Class, subclass and protocol of each interface.
    pub interfaces: Vec<[u8; 3]>,
    /// Speed of its bus; `None` if it is too slow.
    pub speed: Option<Speed>,
}

/// Returns the devices that a server offers, without those of other clients. Waits for at most `patience`.
///
/// # Errors
/// [`ClientError`], whose text names the remedy.
pub fn list(server: &ServerAddress, patience: Duration) -> Result<Vec<Listed>, ClientError> {
    ask(&mut Conversation::begin(server, patience, &AtomicBool::new(false))?, server)
}

fn ask(stream: &mut (impl Read + Write), server: &ServerAddress) -> Result<Vec<Listed>, ClientError> {
    let reach = |error| ClientError::Reach(server.clone(), error);
    stream.write_all(&setup_head(REQUEST_LIST, 0)).map_err(reach)?;
    let mut head = [0; SETUP_BYTES];
    stream.read_exact(&mut head).map_err(reach)?;
    if head != setup_head(REPLY_LIST, 0) {
        return Err(ClientError::Protocol(server.clone()));
    }
    let mut count = [0; 4];
    stream.read_exact(&mut count).map_err(reach)?;
    let count = u32::from_be_bytes(count);
    if count > MOST_DEVICES {
        return Err(ClientError::Protocol(server.clone()));
    }
    (0..count).map(|_| read(stream).map_err(reach)).collect()
}

fn read(stream: &mut impl Read) -> std::io::Result<Listed> {
    let mut record = [0; DEVICE_BYTES];
    stream.read_exact(&mut record)?;
    let mut interfaces = Vec::new();
    for _ in 0..record[DEVICE_BYTES - 1] {
        let mut interface = [0; INTERFACE_BYTES];
        stream.read_exact(&mut interface)?;
        let [class, subclass, protocol, _] = interface;
        interfaces.push([class, subclass, protocol]);
    }
    let described = Described::read(&record);
    let name = &record[NAME_AT..NAME_AT + NAME_BYTES];
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    let Described { vendor, product, speed, .. } = described;
    Ok(Listed { busid: String::from_utf8_lossy(name).into_owned(), vendor, product, interfaces, speed })
}

#[cfg(test)]
mod tests {
    use super::super::answer::{DEVICE, describe};
    use super::*;
    use crate::usb::model::Identity;
    use std::io::Cursor;

    /// Server with a prepared output, which reads nothing.
    struct Says(Cursor<Vec<u8>>);

    impl Read for Says {
        fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(bytes)
        }
    }

    impl Write for Says {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn listed(bytes: Vec<u8>) -> Result<Vec<Listed>, ClientError> {
        ask(&mut Says(Cursor::new(bytes)), &ServerAddress::Tcp("there".to_owned()))
    }

    #[test]
    fn devices_follow_each_other_with_their_interfaces() {
        let mut other = describe(&DEVICE, "1-2");
        other[302] = 0x99;
        other[DEVICE_BYTES - 1] = 3;
        let ours = describe(&Identity { product: 0x7850, speed: Speed::Super, ..DEVICE }, "2-1.4");
        let interfaces = |count: usize| [2, 13, 0, 0].repeat(count);
        let head = setup_head(REPLY_LIST, 0);
        let whole = [&head[..], &[0, 0, 0, 2], &other, &interfaces(3), &ours, &interfaces(1)].concat();
        let found = listed(whole.clone()).unwrap();
        let other = Listed {
            busid: "1-2".to_owned(),
            vendor: 0x0424,
            product: 0x9901,
            interfaces: vec![[2, 13, 0]; 3],
            speed: Some(Speed::High),
        };
        assert_eq!(found[0], other);
        let ours = (found[1].busid.as_str(), found[1].product, found[1].speed, found[1].interfaces.len());
        assert_eq!(ours, ("2-1.4", 0x7850, Some(Speed::Super), 1));
        for end in 0..whole.len() {
            assert!(listed(whole[..end].to_vec()).is_err(), "{end}");
        }
    }

    #[test]
    fn an_absurd_number_is_not_believed() {
        let head = setup_head(REPLY_LIST, 0);
        let said = listed([&head[..], &u32::MAX.to_be_bytes()].concat());
        assert!(matches!(said, Err(ClientError::Protocol(_))), "{said:?}");
    }
}
