//! Any text for a packet, and any file of packets: by the functions that the fuzzer runs.

use crate::oracle::{TARGETS, words};
use proptest::prelude::*;
use std::path::Path;

/// Committed inputs of the fuzzer's.
fn inputs(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let entries = std::fs::read_dir(&folder).expect("there are inputs");
    entries.map(|entry| std::fs::read(entry.expect("a file").path()).expect("it can be read")).collect()
}

#[test]
fn committed_inputs() {
    for (name, target) in TARGETS {
        let inputs = inputs(name);
        assert!(inputs.len() > 10, "{name}");
        inputs.iter().for_each(|input| target(input));
    }
}

fn word() -> impl Strategy<Value = String> {
    let words = "eth vlan arp ip ip4 ip6 frag udp tcp icmp gre payload hex src dst type prio request reply sender \
                 target sender-mac target-mac ttl dscp ecn flow id df mf offset proto len checksum sport dport flags \
                 seq ack window mss code key / / / / 0 1 7 64 1500 65535 4294967295 0x86dd 10.0.0.1 2001:db8::1 \
                 02:00:00:00:00:01 SA . 0a1b";
    let words = words.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    prop_oneof![9 => prop::sample::select(words), 1 => "[ -~\u{e0}-\u{ff}]{0,6}"]
}

proptest! {
    /// Words of descriptions in any order.
    #[test]
    fn any_words(all in prop::collection::vec(word(), 0..24)) {
        words(all.join(" ").as_bytes());
    }

    /// Committed inputs with bytes changed and ends cut off.
    #[test]
    fn changed_inputs(
        input in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        for (name, target) in TARGETS {
            let inputs = inputs(name);
            let mut bytes = input.get(&inputs).clone();
            if bytes.is_empty() {
                continue;
            }
            for (place, byte) in &changes {
                let place = place.index(bytes.len());
                bytes[place] = *byte;
            }
            bytes.truncate(cut.index(bytes.len()) + 1);
            target(&bytes);
        }
    }
}
