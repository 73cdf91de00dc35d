use super::calls::{Call, When, calls};
use super::*;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::Command;

/// Runs `act` in a thread that is confined, and ends with it.
fn confined<T: Send + 'static>(
    role: Role,
    own: Own,
    act: impl FnOnce(Confinement) -> T + Send + 'static,
) -> T {
    let thread = std::thread::spawn(move || act(confine(role, &own, None)));
    thread.join().expect("it does not panic")
}

fn skip(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}\n");
    eprint!("{line}");
    let Some(path) = std::env::var_os("POLDER_SKIP_LOG") else { return };
    let log = std::fs::OpenOptions::new().create(true).append(true).open(path);
    log.and_then(|mut log| std::io::Write::write_all(&mut log, line.as_bytes()))
        .expect("the log of skipped tests");
}

/// A directory with a file, as a configuration is in one.
fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("polder-sandbox-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("gw.toml"), "version = 1\n").unwrap();
    path
}

fn own(directory: &Path) -> Own {
    Own { configuration: vec![directory.to_owned()], ..Own::default() }
}

#[test]
fn a_worker_executes_nothing_opens_nothing_and_reaches_nobody() {
    let (confinement, execute, open, inet, listen) = confined(Role::Worker, Own::default(), |confinement| {
        let execute = Command::new("/bin/true").status().map(drop).unwrap_err().kind();
        let open = std::fs::read("/proc/self/status").unwrap_err().kind();
        let inet = UdpSocket::bind("127.0.0.1:0").unwrap_err().kind();
        let listen = TcpListener::bind("127.0.0.1:0").unwrap_err().kind();
        (confinement, execute, open, inet, listen)
    });
    assert_eq!(confinement.seccomp, Ok(()), "filters are needed for this test");
    assert_eq!([execute, open, inet, listen], [ErrorKind::PermissionDenied; 4]);
    // Nothing of it has happened to this thread.
    assert!(std::fs::read("/proc/self/status").is_ok());
}

#[test]
fn a_worker_still_takes_memory_and_speaks_netlink_and_makes_no_threads() {
    let found = confined(Role::Worker, Own::default(), |_| {
        let thread = std::thread::Builder::new().spawn(|| ()).map(drop).map_err(|error| error.kind());
        let memory = vec![1_u8; 8 << 20].len();
        let (kind, family) = (rustix::net::SocketType::RAW, rustix::net::AddressFamily::NETLINK);
        let netlink = rustix::net::socket(family, kind, None).map(drop);
        (thread, memory, netlink, rustix::thread::gettid() != rustix::process::getpid())
    });
    assert_eq!(found, (Err(ErrorKind::PermissionDenied), 8 << 20, Ok(()), true));
}

#[test]
fn code_cannot_be_written_by_any_role() {
    for role in Role::ALL {
        assert_eq!(confined(role, Own::default(), |_| sys::map_code()), Err(Errno::PERM), "{role:?}");
    }
    assert_eq!(sys::map_code(), Ok(()), "who is not confined may");
}

#[test]
fn control_reads_its_directory_and_no_other() {
    let (here, elsewhere) = (directory("here"), directory("elsewhere"));
    let bounds = own(&here);
    let (read, listed) = (here.join("gw.toml"), elsewhere.join("gw.toml"));
    let (confinement, mine, other, written, proc) = confined(Role::Control, bounds, move |confinement| {
        let mine = std::fs::read_to_string(&read).is_ok();
        let other = std::fs::read_to_string(&listed).map(drop).map_err(|error| error.kind());
        let written = std::fs::write(&read, "x").map_err(|error| error.kind());
        (confinement, mine, other, written, std::fs::read_to_string("/proc/thread-self/net/dev").is_ok())
    });
    assert!(mine && proc, "a reload reads its file, and tables of the network");
    if confinement.landlock.is_ok() {
        assert_eq!((other, written), (Err(ErrorKind::PermissionDenied), Err(ErrorKind::PermissionDenied)));
    } else {
        skip("control_reads_its_directory_and_no_other", "the kernel has no landlock");
    }
    let _: std::io::Result<()> = std::fs::remove_dir_all(here);
    let _: std::io::Result<()> = std::fs::remove_dir_all(elsewhere);
}

#[test]
fn control_follows_the_state_of_threads_where_their_end_is_not_reported() {
    use std::os::unix::fs::FileExt as _;
    let read = confined(Role::Control, Own::default(), |_| {
        let state = std::fs::File::open("/proc/thread-self/stat").unwrap();
        state.read_at(&mut [0; 128], 0).map_err(|error| error.kind())
    });
    assert!(read.is_ok_and(|bytes| bytes > 8), "{read:?}");
}

#[test]
fn control_traces_mounts_and_unshares_nothing() {
    for role in Role::ALL {
        assert_eq!(confined(role, Own::default(), |_| sys::forbidden()), [Err(Errno::PERM); 4], "{role:?}");
    }
    let wrong = [Err(Errno::SRCH), Err(Errno::FAULT), Ok(()), Err(Errno::BADF)];
    assert_eq!(sys::forbidden(), wrong, "the calls themselves are refused for what is wrong with them");
}

#[test]
fn what_is_given_up_does_not_come_back() {
    let (kept, again) = confined(Role::Capture, Own::default(), |confinement| {
        let again = caps::raise(None, caps::CapSet::Effective, caps::Capability::CAP_NET_ADMIN);
        (confinement.capabilities, again.is_err())
    });
    assert_eq!((kept, again), (Ok(Vec::new()), true));
}

#[test]
fn a_thread_of_a_narrower_role_may_no_more_than_control() {
    let control = by_number(Role::Control);
    for role in Role::ALL {
        for call in calls(role) {
            let wide = control.get(&call.number).map(Vec::as_slice).unwrap_or_default();
            let covered = wide
                .iter()
                .any(|known| known.when == When::Always || known.when == call.when || narrower(call, known));
            assert!(covered, "{role:?} may call {}, which it cannot have from control", call.name());
        }
    }
    for right in rights::RIGHTS {
        assert!(right.roles.contains(&Role::Control), "{} is not control's to keep", right.capability);
    }
}

fn narrower(call: &Call, known: &Call) -> bool {
    match (call.when, known.when) {
        (When::OneOf(at, few), When::OneOf(where_, many)) => {
            at == where_ && few.iter().all(|one| many.contains(one))
        }
        _ => false,
    }
}

fn by_number(role: Role) -> BTreeMap<i64, Vec<&'static Call>> {
    calls(role).fold(BTreeMap::new(), |mut known, call| {
        known.entry(call.number).or_default().push(call);
        known
    })
}

#[test]
fn each_call_has_one_row_with_a_reason() {
    for role in Role::ALL {
        let mut seen = BTreeSet::new();
        for call in calls(role) {
            assert!(!call.reason.is_empty());
            let again = !seen.insert(call.name());
            assert!(!again || matches!(call.when, When::OneOf(..)), "{role:?}: {} has two rows", call.name());
        }
        assert!(filter::program(role).unwrap().len() < 1000, "a filter has at most 4096 instructions");
    }
}

#[test]
fn calls_of_the_packet_path_have_no_condition() {
    // The kernel remembers of such calls that they are allowed, and does not run the filter.
    let path = [
        "read",
        "write",
        "readv",
        "writev",
        "sendto",
        "recvfrom",
        "ppoll",
        "futex",
        "nanosleep",
        "epoll_pwait",
        "epoll_pwait2",
    ];
    for name in path {
        let call = calls(Role::Worker).find(|call| call.name() == name).expect(name);
        assert_eq!(call.when, When::Always, "{name}");
    }
}
