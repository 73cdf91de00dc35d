//! Faults of the driver and its transport, and the check that has to find each.

use super::super::mutants::Fault;

/// A broken driver: what it does, the check that has to fail, and its fault.
pub(super) type Mutant = (&'static str, &'static str, Fault);

/// All of them.
pub(super) const MUTANTS: &[Mutant] = &[
    ("asks for no interval", "opens", Fault::Interval(0)),
    ("asks for another interval", "interval", Fault::Interval(1)),
    ("sends in the wrong direction", "one frame", Fault::WrongWay),
    ("ends no transfer of whole packets", "whole packets", Fault::NoEnd),
    ("cuts transfers", "one frame", Fault::CutOut(1)),
    ("cuts received transfers", "one frame", Fault::CutIn(1)),
    ("asks for short transfers", "longest frames", Fault::ShortIn(512)),
    ("leaves transfers with the host", "at rest", Fault::KeepUrbs),
    ("gives a wrong length of a frame", "one frame", Fault::Out(0, 0x01)),
    ("changes a byte of a frame", "one frame", Fault::Out(60, 0x10)),
    ("loses transfers", "volume", Fault::LoseOut(5)),
    ("writes no register", "registers", Fault::Forget(0xa0)),
    ("reads no statistics", "statistics", Fault::Forget(0xa2)),
];
