//! Expressions in tcpdump's syntax, compiled by libpcap.

mod sys;

use polder_datapath::capture::Instruction;

/// Why an expression gives no program.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExpressionError {
    /// The library is not there.
    #[error(
        "expressions are compiled by libpcap, which cannot be loaded ({0}): install it (Debian: `apt install \
         libpcap0.8`; Fedora: `dnf install libpcap`), or leave the expression out to capture everything"
    )]
    NoLibrary(String),
    /// It is none.
    #[error("`{expression}`: {why}; `man pcap-filter` has the syntax")]
    Bad {
        /// The expression.
        expression: String,
        /// What the library says.
        why: String,
    },
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

    /// Which of some packets an expression matches.
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

    #[test]
    fn everything_needs_no_library() {
        let program = compile(" ", 100).expect("no library is asked");
        assert_eq!(Program::load(&program), Ok(Program::everything()));
    }
}
