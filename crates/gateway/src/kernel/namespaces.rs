//! Interfaces in other network namespaces that are stacked on an interface of this one, such as a container's
//! macvlan.
//!
//! The kernel has no list of them. Each network namespace that has a name or a process is entered and read;
//! others are read by the ids that this namespace has for them (`RTM_GETNSID`, `IFLA_TARGET_NETNSID`).
//! Nothing is changed, and a namespace that disappears meanwhile is skipped. Sources: network_namespaces(7),
//! linux/net_namespace.h, linux/if_link.h.

use polder_devices::netlink::link::{HEADER, Link};
use polder_devices::netlink::{Client, find, number, put};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Interfaces in other namespaces that could be read.
#[derive(Clone, Debug, Default)]
pub struct Elsewhere {
    /// Interfaces whose `peer` is an interface of this namespace.
    pub links: Vec<(Place, Link)>,
    /// Number of namespaces, and of processes with an unknown namespace, that could not be read.
    pub unread: usize,
}

/// A network namespace, described for the operator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Name for `ip netns`.
    Named(String),
    /// Another file that the namespace is mounted on.
    File(PathBuf),
    /// Id and name of its first process.
    Process(u32, String),
    /// Id in this namespace.
    Number(u32),
}

impl Place {
    /// The namespace, as the end of a sentence about an interface.
    pub fn text(&self) -> String {
        match self {
            Self::Named(name) => format!("in namespace {name}"),
            Self::File(path) => format!("in namespace {}", path.display()),
            Self::Process(id, name) => format!("in the namespace of {name} ({id})"),
            Self::Number(id) => format!("in the namespace with number {id}"),
        }
    }

    /// Command that shows an interface there.
    pub fn probe(&self, interface: &str) -> String {
        match self {
            Self::Named(name) => format!("ip -n {name} -d link show dev {interface}"),
            Self::File(path) => {
                format!("nsenter --net={} ip -d link show dev {interface}", path.display())
            }
            Self::Process(id, _) => format!("nsenter -n -t {id} ip -d link show dev {interface}"),
            Self::Number(_) => "ip netns list-id".to_owned(),
        }
    }
}

/// Finds interfaces in other namespaces that are stacked on interfaces of the calling thread's namespace.
/// Namespaces that cannot be read are counted.
pub fn stacked_elsewhere() -> Elsewhere {
    // Runs on a thread of its own, because it changes the thread's namespace.
    std::thread::spawn(look).join().unwrap_or_default()
}

/// Runs `work` on a thread in the network namespace with an id; `None` if that namespace has no file to enter
/// it by.
pub fn inside<T: Send + 'static>(id: u32, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let enter_and_work = move || {
        let (own, mut client) = (File::open(OWN).ok()?, Client::open(None).ok()?);
        let mut files = places(&own, &mut 0).into_iter().filter_map(|(_, path)| open(&path).ok());
        let other = files.find(|file| number_of(&mut client, file) == Some(id))?;
        move_into_link_name_space(other.as_fd(), Some(LinkNameSpaceType::Network)).ok()?;
        Some(work())
    };
    std::thread::spawn(enter_and_work).join().ok().flatten()
}

/// Opens the file of a namespace, without blocking on a FIFO in its place.
fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

fn look() -> Elsewhere {
    let mut found = Elsewhere::default();
    // A socket stays in the namespace in which it was opened.
    let (Ok(own), Ok(mut client)) = (File::open(OWN), Client::open(None)) else { return found };
    let mut known = BTreeSet::new();
    for (place, path) in places(&own, &mut found.unread) {
        match open(&path) {
            Ok(file) => {
                known.extend(number_of(&mut client, &file));
                found.take(&place, enter(&own, &file));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) => found.unread += 1,
        }
    }
    known.extend(number_of(&mut client, &own));
    for id in numbers(&mut client).into_iter().filter(|id| !known.contains(id)) {
        let links = by_number(&mut client, &own, id);
        found.take(&Place::Number(id), links);
    }
    found
}

impl Elsewhere {
    fn take(&mut self, place: &Place, links: Result<Vec<Link>, Errno>) {
        match links {
            Ok(links) => self.links.extend(links.into_iter().map(|link| (place.clone(), link))),
            // The namespace is gone, or the file is no network namespace.
            Err(Errno::INVAL | Errno::NOENT | Errno::NODEV) => {}
            Err(_) => self.unread += 1,
        }
    }
}

/// Other network namespaces, each once; named ones first.
fn places(own: &File, unread: &mut usize) -> Vec<(Place, PathBuf)> {
    let mut found = BTreeMap::new();
    let own = own.metadata().map(|own| own.ino()).unwrap_or_default();
    for (folder, has_names) in FOLDERS {
        for (name, path) in entries(folder) {
            let Ok(file) = fs::metadata(&path) else { continue };
            let place = if has_names { Place::Named(name) } else { Place::File(path.clone()) };
            found.entry(file.ino()).or_insert((place, path));
        }
    }
    for (name, path) in entries("/proc") {
        let Ok(id) = name.parse() else { continue };
        let file = path.join("ns/net");
        match inode(&file) {
            Ok(Some(inode)) => {
                let name = || fs::read_to_string(path.join("comm")).unwrap_or_default().trim().to_owned();
                found.entry(inode).or_insert_with(|| (Place::Process(id, name()), file));
            }
            // A process that ends has no namespace.
            Ok(None) => {}
            Err(()) => *unread += 1,
        }
    }
    found.remove(&own);
    *unread += found.len().saturating_sub(MOST);
    found.into_values().take(MOST).collect()
}

fn entries(folder: &str) -> impl Iterator<Item = (String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
}

/// Inode of a process's namespace, from the text `net:[4026531840]`; an error without permission.
fn inode(file: &Path) -> Result<Option<u64>, ()> {
    match fs::read_link(file) {
        Ok(text) => {
            let text = text.to_string_lossy();
            let number = text.strip_prefix("net:[").and_then(|rest| rest.strip_suffix(']'));
            Ok(number.and_then(|number| number.parse().ok()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(()),
        Err(_) => Ok(None),
    }
}

/// Moves the calling thread into a namespace and returns the interfaces there that are stacked on ones of
/// `own`.
fn enter(own: &File, other: &File) -> Result<Vec<Link>, Errno> {
    move_into_link_name_space(other.as_fd(), Some(LinkNameSpaceType::Network))?;
    let mut client = Client::open(None)?;
    // A namespace without an id for `own` has no such interfaces.
    let Some(id) = number_of(&mut client, own) else { return Ok(Vec::new()) };
    Ok(on(id, &client.dump(libc::RTM_GETLINK, &[0; HEADER])?))
}

/// Returns the interfaces that are stacked on those of `own`, by the id of the other namespace, without entering it.
fn by_number(client: &mut Client, own: &File, other: u32) -> Result<Vec<Link>, Errno> {
    let mut body = vec![0; HEADER];
    put(&mut body, IFLA_TARGET_NETNSID, &other.to_ne_bytes());
    let links = client.dump(libc::RTM_GETLINK, &body)?;
    // Ids are the requester's; the kernel assigns one for the requester itself when a message has to refer to
    // it.
    let Some(id) = number_of(client, own) else { return Ok(Vec::new()) };
    Ok(on(id, &links))
}

/// Interfaces that are stacked on one in the namespace with an id.
fn on(id: u32, answers: &[(u16, Vec<u8>)]) -> Vec<Link> {
    let links = answers.iter().filter_map(|(_, body)| Link::parse(body));
    links.filter(|link| link.peer_namespace == Some(id) && link.peer.is_some()).collect()
}

/// Id that `client`'s namespace has for another; `None` if it has none.
fn number_of(client: &mut Client, other: &File) -> Option<u32> {
    let mut body = RTGENMSG.to_vec();
    put(&mut body, NETNSA_FD, &other.as_raw_fd().to_ne_bytes());
    let answers = client.ask(libc::RTM_GETNSID, &body).ok()?;
    answers.iter().find_map(|(_, body)| told(body))
}

/// Ids that `client`'s namespace has for others.
fn numbers(client: &mut Client) -> Vec<u32> {
    let answers = client.dump(libc::RTM_GETNSID, &RTGENMSG).unwrap_or_default();
    answers.iter().filter_map(|(_, body)| told(body)).take(MOST).collect()
}

/// Id in a message; −1 means none.
fn told(body: &[u8]) -> Option<u32> {
    let id = find(body.get(RTGENMSG.len()..)?, NETNSA_NSID).and_then(number)?;
    i32::try_from(id).is_ok().then_some(id)
}

/// Network namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";
/// Directories of namespace files, and whether `ip netns` uses their names.
const FOLDERS: [(&str, bool); 2] = [("/run/netns", true), ("/run/docker/netns", false)];
/// Maximum number of namespaces that are read.
const MOST: usize = 4096;
/// `struct rtgenmsg`, padded.
const RTGENMSG: [u8; 4] = [0; 4];
/// linux/net_namespace.h.
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;
/// linux/if_link.h.
const IFLA_TARGET_NETNSID: u16 = 46;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_below_zero_and_a_cut_message_are_no_number() {
        let message = |id: i32| {
            let mut body = RTGENMSG.to_vec();
            put(&mut body, NETNSA_NSID, &id.to_ne_bytes());
            body
        };
        assert_eq!((told(&message(7)), told(&message(-1))), (Some(7), None));
        let whole = message(7);
        assert!((0..whole.len()).all(|end| told(&whole[..end]).is_none()));
    }

    #[test]
    fn a_process_without_a_namespace_is_no_error() {
        assert_eq!(inode(Path::new("/proc/self/ns/pd-none")), Ok(None));
        assert_eq!(inode(Path::new("/proc/self/exe")), Ok(None));
        let own = File::open(OWN).expect("it is there").metadata().expect("it is there");
        assert_eq!(inode(Path::new("/proc/thread-self/ns/net")), Ok(Some(own.ino())));
    }
}
