//! Programs, and packets for them.

/// `tcpdump -ddd` of expressions that people use, by name, as (code, yes, no, operand).
const PROGRAMS: &[(&str, &[(u16, u8, u8, u32)])] = &[
    ("everything", &[(6, 0, 0, 0x40000)]),
    ("arp", &[(0x28, 0, 0, 12), (0x15, 0, 1, 0x806), (6, 0, 0, 0x40000), (6, 0, 0, 0)]),
    (
        "udp-port-67",
        &[
            (0x28, 0, 0, 12),
            (0x15, 0, 10, 0x800),
            (0x30, 0, 0, 23),
            (0x15, 0, 8, 17),
            (0x28, 0, 0, 20),
            (0x45, 6, 0, 0x1fff),
            (0xb1, 0, 0, 14),
            (0x48, 0, 0, 14),
            (0x15, 2, 0, 67),
            (0x48, 0, 0, 16),
            (0x15, 0, 1, 67),
            (6, 0, 0, 0x40000),
            (6, 0, 0, 0),
        ],
    ),
    ("divides-by-index", &[(0x80, 0, 0, 0), (1, 0, 0, 0), (0x3c, 0, 0, 0), (0x16, 0, 0, 0)]),
    ("memory", &[(0x30, 0, 0, 0), (2, 0, 0, 15), (0x61, 0, 0, 15), (0x87, 0, 0, 0), (0x16, 0, 0, 0)]),
    ("jumps-out", &[(0x05, 0, 0, u32::MAX), (6, 0, 0, 1)]),
    ("beyond-the-packet", &[(0x20, 0, 0, 0x7fff_ffff), (6, 0, 0, 1)]),
    ("index-overflows", &[(1, 0, 0, u32::MAX), (0x40, 0, 0, 0x7fff_ffff), (6, 0, 0, 1)]),
    (
        "tests-every-way",
        &[
            (0x30, 0, 0, 0),
            (1, 0, 0, 2),
            (0x25, 0, 1, 5),
            (0x35, 0, 1, 6),
            (0x45, 0, 1, 1),
            (0x1d, 1, 0, 0),
            (0x05, 0, 0, 1),
            (6, 0, 0, 1),
            (0x87, 0, 0, 0),
            (0x16, 0, 0, 0),
        ],
    ),
    (
        "arithmetic",
        &[
            (0x80, 0, 0, 0),
            (0x04, 0, 0, u32::MAX),
            (0x14, 0, 0, 3),
            (0x24, 0, 0, 7),
            (0x34, 0, 0, 2),
            (0x94, 0, 0, 5),
            (0x64, 0, 0, 31),
            (0x74, 0, 0, 30),
            (0xa4, 0, 0, 1),
            (0x84, 0, 0, 0),
            (0x16, 0, 0, 0),
        ],
    ),
    ("shifts-too-far-at-run-time", &[(1, 0, 0, 40), (0x80, 0, 0, 0), (0x6c, 0, 0, 0), (0x16, 0, 0, 0)]),
    ("no-end", &[(0x20, 0, 0, 0)]),
];

/// Each program with a DHCP request and bytes of rising values.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut packet = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17]].concat();
    packet.extend([0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0, 68, 0, 67, 0, 8, 0, 0]);
    let rising = (0..u8::try_from(packet.len()).expect("a short packet")).collect::<Vec<_>>();
    let seed = |&(name, program): &(&'static str, &[(u16, u8, u8, u32)])| {
        let mut bytes = vec![u8::try_from(program.len()).expect("a short program")];
        for (code, yes, no, k) in program {
            bytes.extend(code.to_be_bytes());
            bytes.extend([*yes, *no]);
            bytes.extend(k.to_be_bytes());
        }
        bytes.push(u8::try_from(packet.len()).expect("a short packet"));
        bytes.extend(&packet);
        bytes.extend(&rising);
        (name, bytes)
    };
    PROGRAMS.iter().map(seed).collect()
}
