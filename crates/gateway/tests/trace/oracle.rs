//! Invariants for any text as a packet's description, and for any bytes as a capture file; the
//! fuzzer runs the same.

use crate::trace::pcap;
use crate::trace::spec::{Defaults, LONGEST, Spec, describe};
use polder_datapath::wire::MacAddress;

/// A target and its name.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// All targets.
pub(crate) const TARGETS: [Target; 2] = [("trace_words", words), ("trace_file", file)];

const DEFAULTS: Defaults =
    Defaults { src: MacAddress([2, 0, 0, 0, 0, 1]), dst: Some(MacAddress([2, 0, 0, 0, 0, 2])) };

/// A mistake is shown where it stands. What is none is written out and read again as the same, and the packet that is built of it is
/// described in words of which the same packet is built.
pub(crate) fn words(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let spec = match Spec::parse(&text) {
        Ok(spec) => spec,
        Err(error) => {
            assert!(text.get(error.span.clone()).is_some(), "{text:?}: {error:?}");
            assert!(!error.message.is_empty() && !error.expected.is_empty(), "{text:?}: {error:?}");
            let shown = error.render(&text);
            // The words stand in one line, and the mark below them.
            let lines = shown.lines().collect::<Vec<_>>();
            let marks = lines.iter().rev().nth(1).expect("a line of marks");
            assert!(marks.contains('^') && marks.trim().chars().all(|mark| mark == '^'), "{text:?}\n{shown}");
            return;
        }
    };
    let written = spec.to_string();
    assert_eq!(Spec::parse(&written).as_ref(), Ok(&spec), "{text:?} is written {written:?}");
    let Ok(frame) = spec.build(DEFAULTS) else { return };
    assert!(frame.len() <= LONGEST, "{text:?} has {} bytes", frame.len());
    // Another build would differ if there were anything left to chance.
    assert_eq!(spec.build(DEFAULTS).as_ref(), Ok(&frame), "{text:?}");
    described(&frame);
}

/// A frame in words is that frame, whatever the reader's defaults.
fn described(frame: &[u8]) {
    let said = describe(frame).to_string();
    let again = Spec::parse(&said).expect(&said);
    let nobody = Defaults { src: MacAddress::ZERO, dst: None };
    let built = again.build(nobody).expect(&said);
    assert!(built == frame, "{said:?}\n{built:02x?}\nwanted\n{frame:02x?}");
}

/// Packets of a file lie in it, in order and apart, and each can be described.
pub(crate) fn file(bytes: &[u8]) {
    let frames = match pcap::frames(bytes) {
        Ok(frames) => frames,
        Err(error) => return assert!(error.at <= bytes.len() + 64 && !error.message.is_empty(), "{error:?}"),
    };
    let mut end = bytes.as_ptr().addr();
    for frame in frames {
        let start = frame.bytes.as_ptr().addr();
        assert!(
            start >= end && frame.bytes.len() <= LONGEST,
            "a packet at {start}, after one that ends at {end}"
        );
        end = start + frame.bytes.len();
        if !frame.bytes.is_empty() {
            described(frame.bytes);
        }
    }
    assert!(end <= bytes.as_ptr().addr() + bytes.len());
}
