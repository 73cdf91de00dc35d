//! Queueing disciplines and filters of tc: `tcmsg`, then attributes (tc(8), linux/pkt_cls.h,
//! linux/pkt_sched.h).

use super::{find, number, put, text};

/// Number of bytes of `tcmsg`.
pub const HEADER: usize = 20;
/// `TCA_KIND`.
pub const KIND: u16 = 1;
/// `TCA_OPTIONS`.
pub const OPTIONS: u16 = 2;
/// `TC_H_CLSACT` with `TC_H_MIN_INGRESS`: parent of filters for received packets.
pub const INGRESS: u32 = 0xffff_fff2;
/// `TC_H_CLSACT` with `TC_H_MIN_EGRESS`: parent of filters for sent packets.
pub const EGRESS: u32 = 0xffff_fff3;
/// `TCA_BPF_FLAGS`.
pub const BPF_FLAGS: u16 = 8;
/// `TCA_BPF_FLAG_ACT_DIRECT`: the program's return value is the verdict.
pub const BPF_DIRECT: u32 = 1;

/// BPF filter of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BpfFilter {
    /// Preference: a filter with a lower preference sees packets earlier.
    pub preference: u16,
    /// Handle, unique within a preference.
    pub handle: u32,
    /// Name.
    pub name: String,
}

/// Returns the `tcmsg` of an interface.
pub fn header(interface: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    let mut body = vec![0; HEADER];
    for (at, value) in [(4, interface), (8, handle), (12, parent), (16, info)] {
        body[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    body
}

/// Returns the body of a request about the clsact queueing discipline.
pub fn clsact(interface: u32) -> Vec<u8> {
    let mut body = header(interface, CLSACT_HANDLE, CLSACT_PARENT, 0);
    put(&mut body, KIND, b"clsact\0");
    body
}

/// Returns the body of a request about a BPF filter for packets of all protocols; with the program's
/// descriptor to create the filter.
pub fn bpf(interface: u32, parent: u32, filter: &BpfFilter, program: Option<i32>) -> Vec<u8> {
    let info = u32::from(filter.preference) << 16 | u32::from(ALL_PROTOCOLS.to_be());
    let mut body = header(interface, filter.handle, parent, info);
    put(&mut body, KIND, b"bpf\0");
    if let Some(program) = program {
        let mut options = Vec::new();
        put(&mut options, BPF_DESCRIPTOR, &program.to_ne_bytes());
        put(&mut options, BPF_NAME, &[filter.name.as_bytes(), b"\0"].concat());
        put(&mut options, BPF_FLAGS, &BPF_DIRECT.to_ne_bytes());
        put(&mut options, BPF_GENERAL_FLAGS, &NOT_IN_HARDWARE.to_ne_bytes());
        put(&mut body, OPTIONS, &options);
    }
    body
}

/// Returns the preference of the filter that a message describes.
pub fn preference(body: &[u8]) -> Option<u16> {
    u16::try_from(number(body.get(16..)?)? >> 16).ok()
}

/// Returns the BPF filter that a message describes; `None` for filters of another kind.
pub fn bpf_filter(body: &[u8]) -> Option<BpfFilter> {
    let handle = number(body.get(8..)?)?;
    let rest = body.get(HEADER..)?;
    let options = find(rest, OPTIONS)?;
    if text(find(rest, KIND)?) != "bpf" {
        return None;
    }
    let name = find(options, BPF_NAME).map(text).unwrap_or_default();
    Some(BpfFilter { preference: preference(body)?, handle, name })
}

/// `TC_H_CLSACT` as a parent, and the clsact handle.
const CLSACT_PARENT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// `ETH_P_ALL`.
const ALL_PROTOCOLS: u16 = 3;
/// `TCA_BPF_FD`, `TCA_BPF_NAME`, `TCA_BPF_FLAGS_GEN`, `TCA_CLS_FLAGS_SKIP_HW`.
const BPF_DESCRIPTOR: u16 = 6;
const BPF_NAME: u16 = 7;
const BPF_GENERAL_FLAGS: u16 = 9;
const NOT_IN_HARDWARE: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_read_as_it_was_written() {
        let filter = BpfFilter { preference: 7, handle: 5, name: "polder".to_owned() };
        let body = bpf(3, INGRESS, &filter, Some(9));
        assert_eq!(bpf_filter(&body), Some(filter.clone()));
        let info = number(&body[16..]).unwrap();
        assert_eq!((info >> 16, info & 0xffff), (7, u32::from(3_u16.to_be())), "protocol in network order");
        assert_eq!(bpf_filter(&bpf(3, INGRESS, &filter, None)), None, "the head of a chain has no options");
        for end in 0..body.len() {
            assert!(bpf_filter(&body[..end]).is_none_or(|read| read != filter) || end + 8 > body.len());
        }
        assert_eq!(bpf_filter(&clsact(3)), None);
    }
}
