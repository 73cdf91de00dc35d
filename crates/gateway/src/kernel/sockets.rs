//! Sockets that receive from one interface: packet sockets with their filters (packet(7)), and sockets bound
//! to a device (`SO_BINDTODEVICE`, socket(7)). Sources: sock_diag(7), linux/packet_diag.h, linux/inet_diag.h.

use polder_datapath::capture::Instruction;
use polder_devices::netlink::{Client, attributes, number, number16};
use rustix::io::Errno;
use rustix::net::netlink::SOCK_DIAG;
use std::collections::{BTreeSet, HashMap};
use std::fs;

/// A packet socket that receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketSocket {
    /// Index of the interface that it is bound to.
    pub interface: u32,
    /// EtherType that it receives, or [`EVERY_PROTOCOL`].
    pub protocol: u16,
    /// True if packets and filter begin at the link header (`SOCK_RAW`).
    pub has_link_header: bool,
    /// Filter of the socket.
    pub filter: Filter,
    /// Inode of the socket.
    pub inode: u32,
}

/// Filter of a packet socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// No filter, as far as the kernel reports.
    None,
    /// A classic BPF program, which may use the kernel's extensions.
    Program(Vec<Instruction>),
    /// A filter that could not be read.
    Unknown,
}

/// A TCP, UDP or raw socket that is bound to a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoundSocket {
    /// `TCP`, `UDP` or `raw`.
    pub kind: &'static str,
    /// Index of the device.
    pub interface: u32,
    /// Local port; the protocol of a raw socket.
    pub port: u16,
    /// Inode of the socket.
    pub inode: u32,
}

/// `ETH_P_ALL`.
pub const EVERY_PROTOCOL: u16 = 3;

/// Packet sockets of the calling thread's network namespace that are bound to an interface.
pub fn packet_sockets() -> Vec<PacketSocket> {
    let mut request = [0; 20];
    request[0] = small(libc::AF_PACKET);
    request[8..12].copy_from_slice(&(PACKET_SHOW_INFO | PACKET_SHOW_FILTER).to_ne_bytes());
    let dump =
        Client::open(Some(SOCK_DIAG)).and_then(|mut client| client.dump(SOCK_DIAG_BY_FAMILY, &request));
    match dump {
        Ok(answers) => answers.iter().filter_map(|(_, body)| packet_socket(body)).collect(),
        // The kernel has no packet_diag.
        Err(_) => {
            let table = fs::read_to_string("/proc/thread-self/net/packet").unwrap_or_default();
            table.lines().skip(1).filter_map(line).collect()
        }
    }
}

/// Sockets that are bound to a device; empty if the kernel has no inet_diag.
pub fn bound_sockets() -> Vec<BoundSocket> {
    let Ok(mut client) = Client::open(Some(SOCK_DIAG)) else { return Vec::new() };
    let mut found = BTreeSet::new();
    for (protocol, kind) in
        [(libc::IPPROTO_TCP, "TCP"), (libc::IPPROTO_UDP, "UDP"), (libc::IPPROTO_RAW, "raw")]
    {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut request = [0; 56];
            request[..2].copy_from_slice(&[small(family), small(protocol)]);
            request[4..8].copy_from_slice(&ALL_STATES.to_ne_bytes());
            let answers = dump(&mut client, &request).unwrap_or_default();
            found.extend(answers.iter().filter_map(|(_, body)| bound_socket(kind, body)));
        }
    }
    found.into_iter().collect()
}

fn dump(client: &mut Client, request: &[u8]) -> Result<Vec<(u16, Vec<u8>)>, Errno> {
    client.dump(SOCK_DIAG_BY_FAMILY, request)
}

/// Parses `packet_diag_msg`: family, type, protocol, inode, cookie; then attributes.
fn packet_socket(body: &[u8]) -> Option<PacketSocket> {
    let kind = *body.get(1)?;
    let (protocol, inode) = (number16(body.get(2..)?)?, number(body.get(4..)?)?);
    let (mut interface, mut filter) = (0, Filter::None);
    for (kind, value) in attributes(body.get(16..)?) {
        match kind {
            PACKET_DIAG_INFO => interface = number(value)?,
            // Without permission, the kernel reports an empty filter.
            PACKET_DIAG_FILTER => filter = program(value).map_or(Filter::Unknown, Filter::Program),
            _ => {}
        }
    }
    let has_link_header = i32::from(kind) == libc::SOCK_RAW;
    let socket = PacketSocket { interface, protocol, has_link_header, filter, inode };
    (protocol != 0 && interface != 0).then_some(socket)
}

/// Parses a filter program: code, two jumps, operand of each instruction.
fn program(bytes: &[u8]) -> Option<Vec<Instruction>> {
    let (instructions, rest) = bytes.as_chunks::<8>();
    let instruction = |&[low, high, yes, no, a, b, c, d]: &[u8; 8]| Instruction {
        code: u16::from_ne_bytes([low, high]),
        yes,
        no,
        k: u32::from_ne_bytes([a, b, c, d]),
    };
    let instructions = instructions.iter().map(instruction).collect::<Vec<_>>();
    (rest.is_empty() && !instructions.is_empty()).then_some(instructions)
}

/// Parses a line of /proc/net/packet: address, references, type, protocol, interface, running, memory, user,
/// inode.
fn line(line: &str) -> Option<PacketSocket> {
    let mut words = line.split_whitespace().skip(2);
    let kind = words.next()?.parse::<i32>().ok()?;
    let protocol = u16::from_str_radix(words.next()?, 16).ok()?;
    let interface = words.next()?.parse().ok()?;
    let inode = words.nth(3)?.parse().ok()?;
    let has_link_header = kind == libc::SOCK_RAW;
    let socket = PacketSocket { interface, protocol, has_link_header, filter: Filter::Unknown, inode };
    (protocol != 0 && interface != 0).then_some(socket)
}

/// Parses `inet_diag_msg`: four bytes, then ports, addresses, device and cookie, then five numbers, the last
/// of which is the inode.
fn bound_socket(kind: &'static str, body: &[u8]) -> Option<BoundSocket> {
    let port = u16::from_be_bytes(*body.get(4..)?.first_chunk()?);
    let (interface, inode) = (number(body.get(40..)?)?, number(body.get(68..)?)?);
    (interface != 0).then_some(BoundSocket { kind, interface, port, inode })
}

/// Process that has each socket open, by inode: name and id. A socket of several processes has the first
/// one's; unreadable processes are left out.
pub fn owners(inodes: &BTreeSet<u32>) -> HashMap<u32, (String, u32)> {
    let mut owners = HashMap::new();
    if inodes.is_empty() {
        return owners;
    }
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let files = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let mut name = None;
        for inode in
            files.filter_map(|file| socket_inode(&file.path())).filter(|inode| inodes.contains(inode))
        {
            let name = name.get_or_insert_with(|| {
                fs::read_to_string(process.path().join("comm")).unwrap_or_default().trim().to_owned()
            });
            owners.entry(inode).or_insert_with(|| (name.clone(), id));
        }
        if owners.len() == inodes.len() {
            break;
        }
    }
    owners
}

/// Inode of a socket from a descriptor's text `socket:[4711]`.
fn socket_inode(descriptor: &std::path::Path) -> Option<u32> {
    let text = fs::read_link(descriptor).ok()?;
    text.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

fn small(number: i32) -> u8 {
    u8::try_from(number).unwrap_or_default()
}

/// linux/sock_diag.h, linux/packet_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const PACKET_SHOW_INFO: u32 = 0x01;
const PACKET_SHOW_FILTER: u32 = 0x20;
const PACKET_DIAG_INFO: u16 = 0;
const PACKET_DIAG_FILTER: u16 = 7;
/// Bit mask of all socket states.
const ALL_STATES: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use polder_devices::netlink::put;

    fn message(protocol: u16, interface: u32, filter: Option<&[u8]>) -> Vec<u8> {
        let mut body = vec![17, 3, 0, 0, 0x39, 0x30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        body[2..4].copy_from_slice(&protocol.to_ne_bytes());
        let information = [interface.to_ne_bytes(), [0; 4], [0; 4], [0; 4], [0; 4]].concat();
        put(&mut body, PACKET_DIAG_INFO, &information);
        filter.iter().for_each(|filter| put(&mut body, PACKET_DIAG_FILTER, filter));
        body
    }

    #[test]
    fn a_packet_socket_has_interface_protocol_and_filter() {
        let socket = packet_socket(&message(0x8863, 7, None)).expect("it receives");
        let expected = PacketSocket {
            interface: 7,
            protocol: 0x8863,
            has_link_header: true,
            filter: Filter::None,
            inode: u32::from_ne_bytes([0x39, 0x30, 0, 0]),
        };
        assert_eq!(socket, expected);
        assert_eq!(packet_socket(&message(0, 7, None)), None, "it only sends");
        assert_eq!(packet_socket(&message(3, 0, None)), None, "it is bound to none");
        let drop_all = Instruction { code: 6, ..Instruction::default() };
        let bytes = [6, 0, 0, 0, 0, 0, 0, 0];
        let filtered = packet_socket(&message(3, 7, Some(&bytes))).expect("it receives");
        assert_eq!(filtered.filter, Filter::Program(vec![drop_all]));
        for hidden in [&bytes[..0], &bytes[..7]] {
            let socket = packet_socket(&message(3, 7, Some(hidden))).expect("it receives");
            assert_eq!(socket.filter, Filter::Unknown);
        }
        let whole = message(3, 7, Some(&bytes));
        (0..whole.len()).for_each(|end| drop(packet_socket(&whole[..end])));
    }

    #[test]
    fn the_table_of_proc_is_read_as_the_kernel_writes_it() {
        let text = "00000000615ec8de 3      3    88cc   3     1 0      108    29276 ";
        let socket = line(text).expect("a socket");
        assert_eq!((socket.interface, socket.protocol, socket.inode), (3, 0x88cc, 29276));
        assert_eq!(socket.filter, Filter::Unknown);
        for cut in ["", "sk RefCnt Type Proto  Iface R Rmem   User   Inode", &text[..40], &text[..50]] {
            assert_eq!(line(cut), None, "{cut}");
        }
    }

    #[test]
    fn a_socket_that_is_bound_to_a_device_has_its_port() {
        let mut body = [0; 72];
        body[4..6].copy_from_slice(&67_u16.to_be_bytes());
        body[68..72].copy_from_slice(&9_u32.to_ne_bytes());
        assert_eq!(bound_socket("UDP", &body), None);
        body[40..44].copy_from_slice(&7_u32.to_ne_bytes());
        assert_eq!(
            bound_socket("UDP", &body),
            Some(BoundSocket { kind: "UDP", interface: 7, port: 67, inode: 9 })
        );
        assert!((0..72).all(|end| bound_socket("UDP", &body[..end]).is_none()));
    }
}
