//! Common rules of all messages to senders: permitted receivers, length, rate.

use crate::units::Nanos;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The longest ICMP error, IP header included (RFC 1812, 4.3.2.3).
pub(crate) const LONGEST_V4: usize = 576;
/// The longest ICMPv6 error, IP header included: the least MTU of IPv6 (RFC 4443, 2.4 (c)).
pub(crate) const LONGEST_V6: usize = 1280;
/// Time to live of the message.
pub(crate) const TIME_TO_LIVE: u8 = 64;

/// True if one host can have the address: no group, not 255.255.255.255, 0.0.0.0 or a loop.
/// The rest of 0/8 and 240/4 counts as any other network (RFC 1812, 4.3.2.7 would have no errors about 240/4), as in Linux.
pub(crate) fn is_station_v4(address: Ipv4Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast() && !address.is_loopback()
}

/// The same of IPv6.
pub(crate) fn is_station_v6(address: Ipv6Addr) -> bool {
    !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
}

/// At most a thousand messages a second, fifty at once (as Linux, `icmp_msgs_per_sec`).
///
/// The generic cell rate algorithm: one number, the time at which the bucket will be full again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TokenBucket {
    full_at: Nanos,
}

/// Time in which one message is earned.
const INTERVAL: Nanos = Nanos::from_millis(1);
/// Messages that can be saved.
const BURST: u64 = 50;

impl TokenBucket {
    /// Takes a token, if there is one.
    pub(crate) fn take(&mut self, now: Nanos) -> bool {
        let full_at = self.full_at.max(now) + INTERVAL;
        let has_token = full_at.since(now) <= Nanos(INTERVAL.0 * BURST);
        if has_token {
            self.full_at = full_at;
        }
        has_token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_fifty_and_earns_one_a_millisecond() {
        let mut bucket = TokenBucket::default();
        let mut taken = |millis: u64, wanted: usize| {
            (0..wanted).filter(|_| bucket.take(Nanos::from_millis(millis))).count()
        };
        assert_eq!([taken(0, 60), taken(0, 1), taken(1, 5), taken(4, 5)], [50, 0, 1, 3]);
        assert_eq!([taken(24, 60), taken(10_000, 60)], [20, 50]);
        assert_eq!(taken(9_000, 1), 0, "time that goes back gives nothing");
    }

    #[test]
    fn stations() {
        let four = |a, b, c, d| is_station_v4(Ipv4Addr::new(a, b, c, d));
        assert!(four(10, 0, 0, 1) && four(223, 255, 255, 254) && four(169, 254, 0, 1));
        assert!(four(240, 0, 0, 1) && four(255, 255, 255, 254) && four(0, 0, 0, 1));
        assert!(
            !four(0, 0, 0, 0)
                && !four(239, 0, 0, 1)
                && !four(224, 0, 0, 1)
                && !four(255, 255, 255, 255)
                && !four(127, 0, 0, 1)
        );
        let six = |text: &str| is_station_v6(text.parse().expect("an address"));
        assert!(six("2001:db8::1") && six("fe80::1"));
        assert!(!six("::") && !six("::1") && !six("ff02::1"));
    }
}
