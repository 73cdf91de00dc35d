//! Capture requests of the control socket.
//!
//! The command line compiles the filter expression; the gateway checks the program and runs it. After its
//! answer the connection carries a pcapng stream, until the client shuts down its side.

pub mod pcapng;

use polder_datapath::capture::Instruction;
use serde::{Deserialize, Serialize};

/// Port, filter and limits of a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureRequest {
    /// Name of the port or tunnel.
    pub port: String,
    /// True if received packets are captured.
    pub rx: bool,
    /// True if transmitted packets are captured.
    pub tx: bool,
    /// True if packets are captured that were dropped after they arrived at the port, or before they left by
    /// it.
    pub drops: bool,
    /// Maximum number of captured bytes of each packet.
    pub longest: u32,
    /// Number of packets after which the capture ends; unlimited without it.
    pub count: Option<u64>,
    /// Classic BPF filter program as hexadecimal digits: code (4), jumps (2 and 2), operand (8).
    pub program: String,
}

/// Converts a filter program to hexadecimal digits.
pub fn to_digits(program: &[Instruction]) -> String {
    let digits =
        |Instruction { code, yes, no, k }: &Instruction| format!("{code:04x}{yes:02x}{no:02x}{k:08x}");
    program.iter().map(digits).collect()
}

/// Converts hexadecimal digits to a filter program; `None` if they are invalid.
pub fn from_digits(digits: &str) -> Option<Vec<Instruction>> {
    let instruction = |digits: &[u8]| {
        let digits = str::from_utf8(digits).ok()?;
        let number = |from: usize, to: usize| u32::from_str_radix(digits.get(from..to)?, 16).ok();
        Some(Instruction {
            code: u16::try_from(number(0, 4)?).ok()?,
            yes: u8::try_from(number(4, 6)?).ok()?,
            no: u8::try_from(number(6, 8)?).ok()?,
            k: number(8, 16)?,
        })
    };
    digits.as_bytes().chunks(16).map(instruction).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_survives_the_socket() {
        let program = [
            Instruction { code: 0x28, yes: 0, no: 0, k: 12 },
            Instruction { code: 0x15, yes: 0, no: 1, k: 0x800 },
            Instruction { code: 0x06, yes: 0, no: 0, k: u32::MAX },
        ];
        assert_eq!(from_digits(&to_digits(&program)), Some(program.to_vec()));
        assert_eq!(from_digits(""), Some(Vec::new()));
        assert_eq!((from_digits("00"), from_digits("zzzzzzzzzzzzzzzz")), (None, None));
    }
}
