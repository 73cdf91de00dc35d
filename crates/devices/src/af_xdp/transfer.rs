//! Transfer modes between an interface and its sockets: which are tried, and the reasons against a mode.

use super::bind::Transfer;
use super::error::OpenError;
use super::link::LinkInfo;
use super::netdev::{self, Features};
use super::options::{Hook, Mode};
use super::rx::guard::whole_at_most;
use super::socket::Refused;
use rustix::io::Errno;

/// Binds in the first of `transfers` that all queues accept; refusals of the earlier ones are added to
/// `reasons`.
pub(super) fn first_that_binds<B>(
    transfers: Vec<Transfer>,
    mut bind: impl FnMut(Transfer) -> Result<B, (u32, Refused)>,
    hopeless: impl Fn(u32, Refused) -> Option<OpenError>,
    reasons: &mut Vec<String>,
) -> Result<Option<(B, Transfer)>, OpenError> {
    for transfer in transfers {
        let (queue, refused) = match bind(transfer) {
            Ok(bound) => return Ok(Some((bound, transfer))),
            Err(refused) => refused,
        };
        if let Some(error) = hopeless(queue, refused) {
            return Err(error);
        }
        // A mode that only some queues accept is worth a note.
        let at = if queue > 0 { format!(" at queue {queue}") } else { String::new() };
        reasons.push(format!("{}{at}: {}", name(transfer), explain(refused)));
    }
    Ok(None)
}

/// Returns the XDP features of the driver on this interface; `None` if Linux does not tell (before 6.3).
///
/// `virtio_net` reports zero copy, but binds no socket where the kernel does not map the device's memory.
pub(super) fn features(link: &LinkInfo, driver: &str) -> Option<Features> {
    let mut features = netdev::features(link.index).ok()?;
    features.zero_copy &= driver != VIRTIO || {
        let negotiated = std::fs::read(format!("/sys/class/net/{}/device/features", link.name));
        negotiated.is_ok_and(|bits| has_access_platform(&bits))
    };
    Some(features)
}

/// True if `VIRTIO_F_ACCESS_PLATFORM` is set in sysfs features: one digit per feature, feature 0 first.
fn has_access_platform(bits: &[u8]) -> bool {
    bits.get(33) == Some(&b'1')
}

/// Name of the driver of virtio devices.
pub(super) const VIRTIO: &str = "virtio_net";

/// Returns the reason why zero copy is not tried; `None` if it is. `Mode::Auto` uses it only with drivers
/// with which it was tested.
pub(super) fn no_zero_copy(mode: Mode, features: Option<Features>, driver: &str) -> Option<String> {
    if features.is_some_and(|features| !features.zero_copy) {
        let device = "the driver supports it only with VIRTIO_F_ACCESS_PLATFORM (QEMU: \
                      `iommu_platform=on`), on Linux 6.11 and later";
        return Some(if driver == VIRTIO { device } else { "the driver does not support it" }.to_owned());
    }
    if mode == Mode::Auto && !ZERO_COPY_TESTED.contains(&driver) {
        return Some(format!(
            "not tried, because it was not tested with the driver {driver}; `mode = \"zero-copy\"` requests \
             it"
        ));
    }
    None
}

/// Returns the length of the link's longest packet, with two VLAN tags.
pub(super) fn longest(link: &LinkInfo) -> u32 {
    link.mtu + LINK_OVERHEAD + 4
}

/// True if slots are so large that no driver's buffer granularity cuts the link's packets that have one
/// descriptor.
pub(super) fn zero_copy_is_whole(link: &LinkInfo, slot_bytes: u32) -> bool {
    longest(link) <= whole_at_most(single_frame(slot_bytes))
}

/// Drivers with which zero copy passed the tests in guests or on hardware, by the names of `ethtool -i`
/// (docs/adr/0038-drivers.md). The list is empty.
pub(super) const ZERO_COPY_TESTED: &[&str] = &[];

/// Returns the hooks to try, best first. `Mode::Auto` excludes the native hook of a driver that loses its
/// program.
pub(super) fn hooks(mode: Mode, driver: &str) -> &'static [Hook] {
    if mode == Mode::Auto && DRIVERS_LOSING_PROGRAM.contains(&driver) {
        Mode::Generic.hooks()
    } else {
        mode.hooks()
    }
}

/// Drivers whose native hook passes packets to the kernel despite an attached XDP program once the interface
/// was down, by the names of `ethtool -i` (docs/hardware/drivers.md).
pub(super) const DRIVERS_LOSING_PROGRAM: &[&str] = &["vmxnet3"];

/// Returns the longest frame that one slot holds on receive, in bytes.
pub(super) fn single_frame(slot_bytes: u32) -> u32 {
    slot_bytes - u32::from(polder_buffers::HEADROOM)
}

/// Returns the name of a transfer mode.
pub(super) fn name(transfer: Transfer) -> &'static str {
    match (transfer.zero_copy, transfer.multi_buffer) {
        (true, true) => "zero copy, multi-buffer",
        (true, false) => "zero copy",
        (false, true) => "copy, multi-buffer",
        (false, false) => "copy",
    }
}

fn explain(refused: Refused) -> String {
    match refused.errno {
        Errno::OPNOTSUPP => "the driver does not support it".to_owned(),
        Errno::INVAL => format!("cannot {}: the kernel or the driver does not support it", refused.step),
        Errno::NETDOWN => format!("cannot {}: the interface is down, `ip link set … up`", refused.step),
        errno => format!("cannot {}: {errno}", refused.step),
    }
}

/// Bytes of an Ethernet header and one VLAN tag.
pub(super) const LINK_OVERHEAD: u32 = 14 + 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(zero_copy: bool) -> Option<Features> {
        Some(Features { native: true, takes_frames: Some(true), zero_copy, segments: 1 })
    }

    #[test]
    fn virtio_features_are_read_from_the_first_on() {
        let mut bits = [b'0'; 64];
        bits[32] = b'1';
        assert!(!has_access_platform(&bits));
        bits[33] = b'1';
        assert!(has_access_platform(&bits));
        assert!(!has_access_platform(b"1\n"));
        let why = no_zero_copy(Mode::ZeroCopy, offers(false), VIRTIO).expect("it is not offered");
        assert!(why.contains("iommu_platform=on"), "{why}");
    }

    #[test]
    fn zero_copy_is_not_the_default_of_a_driver_that_no_test_has_passed() {
        let auto = no_zero_copy(Mode::Auto, offers(true), "igb").expect("igb cuts packets");
        assert!(auto.contains("igb") && auto.contains("zero-copy"), "{auto}");
        assert!(no_zero_copy(Mode::Auto, None, "").is_some());
        assert_eq!(no_zero_copy(Mode::ZeroCopy, offers(true), "igb"), None);
        assert!(no_zero_copy(Mode::ZeroCopy, offers(false), "igb").is_some());
    }

    #[test]
    fn the_hook_of_a_driver_that_forgets_its_program_is_not_the_default() {
        assert_eq!(hooks(Mode::Auto, "vmxnet3"), [Hook::Generic]);
        assert_eq!(hooks(Mode::Native, "vmxnet3"), [Hook::Native]);
        assert_eq!(hooks(Mode::Auto, "igb"), [Hook::Native, Hook::Generic]);
    }

    #[test]
    fn slots_that_a_driver_would_shorten_are_not_whole() {
        let link = |mtu| LinkInfo { mtu, ..LinkInfo::default() };
        assert!(!zero_copy_is_whole(&link(1500), 2048));
        assert!(zero_copy_is_whole(&link(1500), 4096) && zero_copy_is_whole(&link(3049), 4096));
        assert!(!zero_copy_is_whole(&link(3050), 4096));
    }

    /// A driver that takes zero copy in half of its queues gets none, and the queue is named.
    #[test]
    fn a_mode_that_half_of_the_queues_refuse_is_given_up() {
        let transfers = [true, false].map(|zero_copy| Transfer { zero_copy, multi_buffer: false }).to_vec();
        let refused = Refused { step: "bind to the queue", errno: Errno::OPNOTSUPP };
        let mut tried = Vec::new();
        let mut bind_queue = |zero_copy: bool, queue: u32| {
            tried.push((zero_copy, queue));
            if zero_copy && queue >= 2 { Err((queue, refused)) } else { Ok(queue) }
        };
        let bind = |transfer: Transfer| {
            (0..4).map(|queue| bind_queue(transfer.zero_copy, queue)).collect::<Result<Vec<_>, _>>()
        };
        let mut reasons = Vec::new();
        let found =
            first_that_binds(transfers, bind, |_, _| None, &mut reasons).expect("nothing is hopeless");
        let (bound, transfer) = found.expect("a copy");
        assert_eq!((bound.len(), transfer.zero_copy, tried.len()), (4, false, 7));
        assert!(reasons.len() == 1 && reasons[0].starts_with("zero copy at queue 2: "), "{reasons:?}");
    }
}
