//! Filter expressions in tcpdump's syntax, compiled by libpcap.
//!
//! For root, the library runs in a child process, as user nobody and without privileges, because it is a
//! large parser. The expression is passed on standard input, and the program comes back as a line of
//! hexadecimal digits.

mod sys;

use crate::capture::{from_digits, to_digits};
use polder_datapath::capture::Instruction;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// Reason why an expression cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExpressionError {
    /// The library cannot be loaded.
    #[error(
        "cannot load libpcap, which compiles expressions ({0}): install it (Debian: `apt install \
         libpcap0.8`; Fedora: `dnf install libpcap`), or omit the expression to capture all packets"
    )]
    NoLibrary(String),
    /// The expression is invalid.
    #[error("`{expression}`: {why}; `man pcap-filter` describes the syntax")]
    Bad {
        /// The expression.
        expression: String,
        /// Message of the library.
        why: String,
    },
    /// The child process cannot be started, or has no valid output.
    #[error("cannot compile the capture expression in a process without privileges, as user {NOBODY}: {0}")]
    Apart(String),
}

/// User and group nobody, by the kernel's `overflowuid`.
const NOBODY: u32 = 65_534;
/// Maximum length of an expression, in bytes.
const LONGEST: u64 = 1 << 20;
/// Prefixes of the child process's result line.
const DONE: &str = "program ";
const BAD: &str = "bad ";
const NO_LIBRARY: &str = "library ";

/// Compiles an expression, for root in an unprivileged child process.
pub(super) fn compile_apart(expression: &str, longest: u32) -> Result<Vec<Instruction>, ExpressionError> {
    if expression.trim().is_empty() || !rustix::process::geteuid().is_root() {
        return compile(expression, longest);
    }
    let text = ask_apart(expression, longest).map_err(|error| ExpressionError::Apart(error.to_string()))?;
    let text = text.trim_end();
    if let Some(why) = text.strip_prefix(BAD) {
        return Err(ExpressionError::Bad { expression: expression.to_owned(), why: why.to_owned() });
    }
    if let Some(why) = text.strip_prefix(NO_LIBRARY) {
        return Err(ExpressionError::NoLibrary(why.to_owned()));
    }
    let program = text.strip_prefix(DONE).and_then(from_digits);
    program.ok_or_else(|| {
        ExpressionError::Apart("the compiler of expressions ended without a result".to_owned())
    })
}

fn ask_apart(expression: &str, longest: u32) -> io::Result<String> {
    // This executable, even if user nobody cannot reach its path. Changing the user drops supplementary
    // groups.
    let mut command = Command::new("/proc/self/exe");
    command.arg("compile-expression").arg(longest.to_string()).uid(NOBODY).gid(NOBODY).current_dir("/");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(expression.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    String::from_utf8(output.stdout).map_err(io::Error::other)
}

/// Compiles the expression on standard input in the child process, and prints the result.
///
/// # Errors
/// When the input cannot be read, or privileges cannot be dropped.
pub(super) fn compile_for_parent(longest: u32) -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    let mut expression = String::new();
    io::stdin().lock().take(LONGEST).read_to_string(&mut expression)?;
    let line = match compile(&expression, longest) {
        Ok(program) => format!("{DONE}{}\n", to_digits(&program)),
        Err(ExpressionError::Bad { why, .. }) => format!("{BAD}{why}\n"),
        Err(ExpressionError::NoLibrary(why) | ExpressionError::Apart(why)) => format!("{NO_LIBRARY}{why}\n"),
    };
    io::stdout().lock().write_all(line.as_bytes())
}

/// Compiles an expression; an empty one matches everything, and needs no library.
pub(super) fn compile(expression: &str, longest: u32) -> Result<Vec<Instruction>, ExpressionError> {
    const RETURN: u16 = 6;
    if expression.trim().is_empty() {
        return Ok(vec![Instruction { code: RETURN, yes: 0, no: 0, k: u32::MAX }]);
    }
    let library = sys::Library::load().map_err(ExpressionError::NoLibrary)?;
    let longest = i32::try_from(longest).unwrap_or(i32::MAX);
    let bad = |why| ExpressionError::Bad { expression: expression.to_owned(), why };
    library.compile(expression, longest).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_datapath::capture::{Program, Runner, View};

    /// Match of an expression for each packet.
    fn matching(expression: &str, packets: &[&[u8]]) -> Option<Vec<bool>> {
        let program = match compile(expression, 65_535) {
            Err(ExpressionError::NoLibrary(why)) => {
                println!("skipped: no libpcap: {why}");
                return None;
            }
            compiled => Program::load(&compiled.expect(expression)).expect("libpcap makes programs"),
        };
        let mut views = [View::default(); 64];
        for (view, bytes) in views.iter_mut().zip(packets) {
            *view = View { bytes, length: u32::try_from(bytes.len()).expect("short") };
        }
        let matching = Runner::new().run(&program, &views, (1 << packets.len()) - 1);
        Some((0..packets.len()).map(|packet| matching >> packet & 1 == 1).collect())
    }

    fn udp(source: u16, destination: u16) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
        bytes.extend([0x45, 0, 0, 36, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([source.to_be_bytes(), destination.to_be_bytes(), [0, 16], [0, 0]].concat());
        bytes.resize(60, 0);
        bytes
    }

    #[test]
    fn expressions_mean_what_tcpdump_means() {
        let (discover, offer, dns) = (udp(68, 67), udp(67, 68), udp(5000, 53));
        let arp = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x08, 0x06], &[0; 46]].concat();
        let packets: [&[u8]; 4] = [&discover, &offer, &dns, &arp];
        let cases = [
            ("udp port 67 or udp port 68", [true, true, false, false]),
            ("arp", [false, false, false, true]),
            ("host 10.0.0.2 and udp dst portrange 50-60", [false, false, true, false]),
            ("ether[0] & 1 != 0", [false, false, false, true]),
            ("len <= 60 and not ip6", [true; 4]),
            ("host 203.0.113.9", [false; 4]),
            ("udp[4:2] = 16 and ip[8] > 63", [true, true, true, false]),
        ];
        for (expression, expected) in cases {
            let Some(found) = matching(expression, &packets) else { return };
            assert_eq!(found, expected, "{expression}");
        }
        let error = compile("prot udp", 100).expect_err("no expression").to_string();
        assert!(error.contains("prot udp") && error.contains("pcap-filter"), "{error}");
    }

    /// Packets that differ from `discover` in fields that expressions test, and cut to some lengths.
    fn variants(discover: &[u8]) -> Vec<Vec<u8>> {
        let changes: [&[(usize, u8)]; 14] = [
            &[],
            &[(12, 0x86), (13, 0xdd), (14, 0x60), (20, 17), (54, 0), (55, 67), (56, 0), (57, 68)],
            &[(12, 0x86), (13, 0xdd), (14, 0x60), (20, 6)],
            &[(13, 6), (31, 203)],
            &[(12, 0x81), (13, 0), (15, 7), (16, 8), (17, 0), (18, 0x45)],
            // A header with options, and one that is too short to be one.
            &[(14, 0x46), (39, 68)],
            &[(14, 0x43), (27, 68), (29, 67)],
            &[(20, 0x20), (21, 9)],
            &[(23, 6), (35, 80), (47, 2)],
            &[(23, 6), (37, 22), (47, 0x12)],
            &[(23, 1), (34, 8)],
            &[(35, 53), (37, 99)],
            &[(29, 2), (33, 1)],
            &[(0, 1), (11, 9)],
        ];
        let changed = |changes: &&[(usize, u8)]| {
            let mut bytes = discover.to_vec();
            changes.iter().for_each(|&(at, byte)| bytes[at] = byte);
            bytes
        };
        let whole = changes.iter().map(changed);
        whole.flat_map(|bytes| [60, 42, 37, 34, 14].map(|length| bytes[..length].to_vec())).take(64).collect()
    }

    /// The cheap pre-check lets pass all packets that match, and few others.
    #[test]
    fn little_is_asked_of_what_cannot_match() {
        let packets = variants(&udp(68, 67));
        let parts = [
            "host 10.0.0.2",
            "src host 10.0.0.1",
            "net 10.0.0.0/24",
            "port 67",
            "udp dst port 67",
            "tcp port 22",
            "portrange 60-70",
            "ip6",
            "arp",
            "icmp",
            "tcp[tcpflags] & tcp-syn != 0",
            "ether host 02:00:00:00:00:02",
            "ether multicast",
            "ip[6:2] & 0x1fff != 0",
            "vlan",
            "greater 50",
            "ip proto 17",
            "udp[4:2] = 16",
            "ip6 host fe80::1",
            "ip[0] & 0xf > 5",
        ];
        let (mut asked, mut matched) = (0, 0);
        for (first, second) in parts.iter().flat_map(|first| parts.iter().map(move |second| (first, second)))
        {
            for expression in [
                format!("{first} and {second}"),
                format!("{first} or {second}"),
                format!("{first} and not {second}"),
            ] {
                let program = match compile(&expression, 65_535) {
                    Err(ExpressionError::NoLibrary(why)) => return println!("skipped: no libpcap: {why}"),
                    // Some of these contradict themselves, which libpcap says.
                    Err(_) => continue,
                    Ok(compiled) => Program::load(&compiled).expect("libpcap makes programs"),
                };
                let views = std::array::from_fn(|packet| View { bytes: &packets[packet], length: 60 });
                let matching = Runner::new().run(&program, &views, u64::MAX);
                let may_match = program
                    .may_match(|length| packets.iter().map(move |bytes| bytes.get(..usize::from(length))));
                assert_eq!(matching & !may_match, 0, "{expression}");
                asked += may_match.count_ones();
                matched += matching.count_ones();
            }
        }
        assert!(matched > 1000, "{matched}");
        println!("{matched} match, {asked} were asked");
        // What captures on a busy port look for is not among its packets, and nobody is asked.
        let busy = [udp(5000, 53), udp(443, 40_000)];
        for expression in ["host 203.0.113.9", "udp port 67 or udp port 68", "arp", "tcp port 22"] {
            let program = Program::load(&compile(expression, 65_535).expect(expression)).expect("a program");
            assert_eq!(
                program.may_match(|length| busy.iter().map(move |bytes| bytes.get(..usize::from(length)))),
                0,
                "{expression}"
            );
        }
    }

    #[test]
    fn everything_needs_no_library() {
        let program = compile(" ", 100).expect("no library is asked");
        assert_eq!(Program::load(&program), Ok(Program::everything()));
    }
}
