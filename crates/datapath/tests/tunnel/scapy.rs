//! A second opinion on outer packets: Scapy builds the same ones, and they have to agree byte by byte.

use crate::cases::{ends, send};
use crate::frames::{other, v4, v6};
use crate::oracle::ends::{ADDRESSES, ADDRESSES_V6};
use polder_datapath::tunnel::{FlowLabel, TunnelOptions};
use polder_datapath::wire::Dscp;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Debian's Python has Debian's Scapy; another one may stand before it on the path.
const PYTHONS: [&str; 2] = ["/usr/bin/python3", "python3"];
const SCRIPT: &str = include_str!("scapy.py");

/// Says loudly that a test cannot run, and leaves a line for the end of the whole run.
#[expect(clippy::print_stdout, reason = "this is where a person looks")]
fn skip(name: &str, reason: &str) {
    let line = format!("skipped: {name}: {reason}");
    println!("{line}");
    let Some(path) = std::env::var_os("POLDER_SKIP_LOG") else { return };
    let mut log =
        std::fs::OpenOptions::new().create(true).append(true).open(path).expect("a log of what is skipped");
    writeln!(log, "{line}").expect("room for a line");
}

/// One tunnel.
#[derive(Clone, Copy, Debug)]
struct Case {
    is_v6: bool,
    checksum: bool,
    key: Option<u32>,
    sequence: bool,
    limit: Option<u8>,
    class: u8,
}

impl Case {
    fn change(&self, options: &mut TunnelOptions) {
        (options.checksum, options.key, options.sequence) = (self.checksum, self.key, self.sequence);
        options.flow_label = FlowLabel::Fixed(0xa_bcde);
        options.encapsulation_limit = self.limit;
        options.dscp =
            polder_datapath::tunnel::TunnelDscp::Fixed(Dscp::new(self.class >> 2).expect("six bits"));
        if self.is_v6 {
            let is_left = options.ends.local() == ADDRESSES[0];
            let [ours, theirs] = if is_left { [0, 1] } else { [1, 0] };
            options.ends = (ADDRESSES_V6[ours], ADDRESSES_V6[theirs]).into();
        }
    }

    /// Line for the script.
    fn line(&self, class: u8, number: usize, inside: &[u8], outer: &[Vec<u8>]) -> String {
        let hexadecimal = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let option = |value: Option<u32>| value.map_or("-".to_owned(), |value| value.to_string());
        let outer = outer.iter().map(|packet| hexadecimal(packet)).collect::<Vec<_>>().join(",");
        let fields = [
            u8::from(self.is_v6).to_string(),
            u8::from(self.checksum).to_string(),
            option(self.key),
            option(self.sequence.then(|| u32::try_from(number).expect("few packets"))),
            option(self.limit.map(u32::from)),
            class.to_string(),
            hexadecimal(inside),
            outer,
        ];
        fields.join(" ") + "\n"
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for choice in 0..32_u8 {
        let has = |bit: u8| choice >> bit & 1 != 0;
        cases.push(Case {
            is_v6: has(0),
            checksum: has(1),
            key: has(2).then_some(0xfedc_ba98),
            sequence: has(3),
            limit: has(4).then_some(choice),
            class: choice << 3 & 0xfc,
        });
    }
    cases
}

#[test]
fn scapy_builds_the_same_packets() {
    const NAME: &str = "scapy_builds_the_same_packets";
    let has_scapy = |python: &&&str| {
        let asked = Command::new(python).args(["-c", "import scapy.all"]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    let Some(python) = PYTHONS.iter().find(has_scapy) else {
        return skip(NAME, "Scapy is missing (package python3-scapy)");
    };
    let mut input = String::new();
    for case in cases() {
        let (mut left, _right) = ends(|options| case.change(options));
        for (number, frame) in frames().into_iter().enumerate() {
            let outer = send(&mut left, std::slice::from_ref(&frame.1));
            assert!(!outer.is_empty(), "it may be cut");
            input += &case.line(case.class & 0xfc | frame.0, number, &frame.1, &outer);
        }
    }
    let mut child = Command::new(python)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a Python that was there a moment ago");
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("an end");
    writer.join().expect("no panic").expect("a script that reads all");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("192 packets agree"), "{said}");
}

/// ECN and frame: what is not IP, IPv4, IPv6, and what has to be cut.
fn frames() -> Vec<(u8, Vec<u8>)> {
    vec![
        (0, other(&[], 60)),
        (0, other(&[7], 1301)),
        (2, v4(&[], 2, 64, true, 333)),
        (1, v6(&[], 1, 64, 334)),
        (3, v4(&[], 3, 64, false, 28)),
        (0, v4(&[], 0, 64, false, 4001)),
    ]
}
