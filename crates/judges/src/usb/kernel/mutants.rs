//! Broken functions, and the check that has to find each.

use polder_devices::cdc::Subclass;
use polder_devices::cdc::model::FaultyDevice;

/// A broken function.
pub(super) struct Mutant {
    pub(super) name: &'static str,
    pub(super) subclass: Subclass,
    /// The check that has to fail.
    pub(super) check: &'static str,
    pub(super) fault: FaultyDevice,
}

const fn ncm(name: &'static str, check: &'static str, fault: FaultyDevice) -> Mutant {
    Mutant { name, subclass: Subclass::Ncm, check, fault }
}

const fn ecm(name: &'static str, check: &'static str, fault: FaultyDevice) -> Mutant {
    Mutant { name, subclass: Subclass::Ecm, check, fault }
}

/// All of them.
pub(super) const MUTANTS: &[Mutant] = &[
    ncm("signs blocks wrongly", "one echo", FaultyDevice::Signature),
    ncm("puts the table elsewhere", "one echo", FaultyDevice::TablePlace),
    ncm("signs tables wrongly", "one echo", FaultyDevice::TableSignature),
    ncm("gives a wrong length of a frame", "one echo", FaultyDevice::ShortDatagram),
    ncm("gives a wrong place of a frame", "one echo", FaultyDevice::LateDatagram),
    ncm("changes a byte of a frame", "one echo", FaultyDevice::ChangedByte),
    ncm("changes a byte of a frame that was sent", "one echo", FaultyDevice::ChangedFrames),
    ncm("loses blocks", "volume", FaultyDevice::LostTransfers),
    ncm("has another address", "address", FaultyDevice::OtherAddress),
    ncm("says that there is no link", "link", FaultyDevice::NoConnection),
    ncm("says half of the speed", "speed", FaultyDevice::HalfSpeed),
    ecm("cuts frames", "one echo", FaultyDevice::CutTransfers),
    ecm("changes a byte of a frame", "one echo", FaultyDevice::ChangedByte),
    ecm("changes a byte of a frame that was sent", "one echo", FaultyDevice::ChangedFrames),
    ecm("loses frames", "volume", FaultyDevice::LostTransfers),
    ecm("has another address", "address", FaultyDevice::OtherAddress),
    ecm("says that there is no link", "link", FaultyDevice::NoConnection),
    ecm("says half of the speed", "speed", FaultyDevice::HalfSpeed),
];
