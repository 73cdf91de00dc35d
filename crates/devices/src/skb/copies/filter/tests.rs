use super::*;
use crate::bpf::sys::{ProgramKind, load, test_run};
use polder_buffers::BATCH;
use polder_datapath::capture::{Instruction, Runner, View};
use proptest::prelude::*;
use proptest::sample::select;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Command;

/// The translated filter as a program that answers its verdict, on a frame whose tag the kernel has beside it, if there is
/// one. `None` without the right to load programs, and the namespace tests say so.
fn loaded(filter: &Program, tag: Option<[u8; 4]>) -> Option<OwnedFd> {
    let mut program = Assembler::new();
    let no_match = program.label();
    program.copy(R6, R1);
    if let Some([a, b, c, d]) = tag {
        program.set(R2, u16::from_ne_bytes([a, b]).into());
        program.set(R3, u16::from_be_bytes([c, d]).into());
        program.call(Helper::VlanPush);
    }
    translate(&mut program, filter, no_match);
    program.copy(R0, R7);
    program.exit();
    program.place(no_match);
    program.set(R0, 0);
    program.exit();
    match load(ProgramKind::Tcx, "polder_filter", &program.finish()) {
        Err((errno, log)) if !log.is_empty() => panic!("{errno} for {filter:?}: {log}"),
        loaded => loaded.ok(),
    }
}

/// The verdict of the datapath's interpreter.
fn expected(filter: &Program, frame: &[u8]) -> u32 {
    let mut runner = Runner::new();
    let mut views = [View::default(); BATCH];
    views[0] = View { bytes: frame, length: u32::try_from(frame.len()).expect("short") };
    if runner.run(filter, &views, 1) == 0 { 0 } else { runner.verdicts[0] }
}

/// Verdicts in the kernel are those of the datapath, with tags and without.
fn agrees(filter: &[Instruction], frames: &[Vec<u8>]) {
    let Ok(program) = Program::load(filter) else { return };
    for tag in [None, Some([0x81, 0, 0x20, 7]), Some([0x88, 0xa8, 0x6f, 0xff])] {
        let Some(loaded) = loaded(&program, tag) else { return };
        for frame in frames {
            let verdict = test_run(loaded.as_fd(), frame).expect("root runs programs");
            let mut frame = frame.clone();
            drop(frame.splice(12..12, tag.into_iter().flatten()));
            assert_eq!(verdict, expected(&program, &frame), "{filter:?} {tag:x?} {frame:x?}");
        }
    }
}

/// Codes that exist, without ends.
const CODES: [u16; 44] = [
    0x00, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1, 0x02, 0x03, 0x04, 0x0c,
    0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84, 0x94, 0x9c,
    0xa4, 0xac, 0x05, 0x15, 0x1d, 0x25, 0x35, 0x45, 0x07, 0x87,
];

prop_compose! {
    fn instruction()(
        code in prop_oneof![12 => select(&CODES[..]), 1 => select(&[0x06_u16, 0x16][..])],
        yes in 0..4_u8,
        no in 0..4_u8,
        k in prop_oneof![4 => 0..24_u32, 2 => 0..90_u32, 1 => any::<u32>()],
    ) -> Instruction {
        let k = match code {
            0x60 | 0x61 | 0x02 | 0x03 => k % 16,
            0x64 | 0x74 => k % 32,
            0x05 => k % 3,
            _ => k,
        };
        Instruction { code, yes, no, k }
    }
}

fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let byte = prop_oneof![select(&[0_u8, 1, 2, 5, 8, 0x45, 0x81][..]), any::<u8>()];
    let frame = prop::collection::vec(byte, 15..80).prop_map(|mut frame| {
        // The kernel runs programs on no IP packet without its header.
        let is_short = frame.len() < 54;
        frame[12] |= if is_short { 0x10 } else { 0 };
        frame
    });
    prop::collection::vec(frame, 1..12)
}

fn ends() -> [Instruction; 4] {
    [(0x06, 9), (0x16, 0), (0x06, 0), (0x06, u32::MAX)].map(|(code, k)| plain(code, k))
}

fn plain(code: u16, k: u32) -> Instruction {
    Instruction { code, yes: 0, no: 0, k }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn filters_of_any_instructions_answer_as_the_datapath_does(
        mut filter in prop::collection::vec(instruction(), 0..30),
        frames in frames(),
    ) {
        filter.extend(ends());
        agrees(&filter, &frames);
    }

    /// Loads at and around a tag, behind the index and not, with the bytes that they load as the verdict.
    #[test]
    fn loads_are_of_the_frame_on_the_wire(
        code in select(&[0x20_u16, 0x28, 0x30, 0x40, 0x48, 0x50][..]),
        (index, k) in (0..24_u32, 0..24_u32),
        frames in frames(),
    ) {
        agrees(&[plain(0x01, index), plain(code, k), plain(0x16, 0)], &frames);
        agrees(&[plain(0x30, k), plain(0x07, 0), plain(code, index), plain(0x16, 0)], &frames);
    }
}

#[test]
fn filters_of_tcpdump_answer_as_the_datapath_does() {
    let mut frames = vec![vec![0; 15], vec![0xff; 60]];
    for (kind, protocol, port) in [(0x0800_u16, 6, 80), (0x0800, 17, 67), (0x86dd, 17, 68), (0x0806, 1, 9)] {
        let mut frame = [&[2; 12][..], &kind.to_be_bytes()].concat();
        frame.extend(0..90);
        let version = if kind == 0x86dd { 0x60 } else { 0x45 };
        (frame[14], frame[20], frame[23], frame[36], frame[37]) = (version, 0, protocol, 0, port);
        if kind == 0x86dd {
            (frame[20], frame[56], frame[57]) = (protocol, 0, port);
        }
        frames.push(frame.clone());
        frames.push([&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat());
    }
    for expression in [
        "udp port 67 or udp port 68",
        "vlan 7 and udp",
        "vlan and vlan 7 and ip",
        "host 10.0.0.1 or net 18.19.0.0/16",
        "tcp[tcpflags] & tcp-syn != 0",
        "ip6 and udp dst port 68",
        "ether[0] & 1 == 0 and len < 100",
        "arp or greater 95",
        "ip[2:2] - ((ip[0] & 0xf) << 2) > 20",
    ] {
        let Ok(output) = Command::new("tcpdump").args(["-ddd", "-y", "EN10MB", expression]).output() else {
            eprintln!("skipped: there is no tcpdump");
            return;
        };
        let listed = String::from_utf8(output.stdout).expect("numbers");
        let mut numbers = listed.split_whitespace().skip(1).map(|number| number.parse::<u32>().expect("one"));
        let mut filter = Vec::new();
        while let Some(code) = numbers.next() {
            let [yes, no, k] = [(); 3].map(|()| numbers.next().expect("four numbers"));
            let [yes, no] = [yes, no].map(|it| u8::try_from(it).expect("a byte"));
            filter.push(Instruction { code: u16::try_from(code).expect("a code"), yes, no, k });
        }
        assert!(Program::load(&filter).is_ok(), "tcpdump compiles {expression} for frames");
        agrees(&filter, &frames);
    }
}
