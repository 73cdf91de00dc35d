//! The rows of source C's table on blocks.

use crate::report::Better;
use crate::scenarios::{Goal, Promise};

const fn row(name: &'static str, unit: &'static str, better: Better) -> Promise {
    Promise { name, unit, better, goal: Goal::None }
}

/// Rows of an effect on blocks of one size.
macro_rules! sized {
    ($name:literal, $size:literal, $unit:literal, $better:ident) => {
        [
            row(concat!("usb.c.", $name, ".", $size, ".on"), $unit, Better::$better),
            row(concat!("usb.c.", $name, ".", $size, ".off"), $unit, Better::$better),
            row(concat!("usb.c.", $name, ".", $size, ".gain"), "%", Better::Higher),
            row(concat!("usb.c.", $name, ".", $size, ".planted"), "%", Better::Higher),
        ]
    };
}

/// Rows of effects, by name, unit and direction.
macro_rules! effects {
    ($(($name:literal, $unit:literal, $better:ident)),* $(,)?) => {
        [$(
            sized!($name, "16k", $unit, $better),
            sized!($name, "32k", $unit, $better),
        )*]
    };
}

/// All rows.
pub(in crate::scenarios::usb) const ROWS: [[Promise; 4]; 36] = effects![
    ("pools", "ns", Lower),
    ("frames", "ns", Lower),
    ("fragments", "ns", Lower),
    ("burst", "ns", Lower),
    ("cold_pages", "ns", Lower),
    ("reuse", "ns", Lower),
    ("reload", "ns", Lower),
    ("reloaders", "%", Higher),
    ("give_back", "%", Lower),
    ("contention_one_pool", "ns", Lower),
    ("contention_no_pool", "ns", Lower),
    ("ring", "ns", Lower),
    ("ring_no_pool", "ns", Lower),
    ("urb_pool", "ns", Lower),
    ("pressure_burst", "ns", Lower),
    ("pressure_reload", "ns", Lower),
    ("pressure_give_back", "%", Lower),
    ("pressure_ring_no_pool", "ns", Lower),
];
