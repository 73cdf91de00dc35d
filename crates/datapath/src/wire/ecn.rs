//! Explicit congestion notification (RFC 3168) and its treatment by tunnels (RFC 6040).

/// The ECN field of an IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable: congestion is signalled by drops.
    #[default]
    NotCapable = 0b00,
    /// ECN-capable, ECT(1) (RFC 9331: L4S).
    Capable1 = 0b01,
    /// ECN-capable, ECT(0).
    Capable0 = 0b10,
    /// Congestion experienced.
    Congestion = 0b11,
}

/// ECN field of the outer header on encapsulation (RFC 6040, 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EcnMode {
    /// The outer field is a copy of the inner field.
    #[default]
    Normal,
    /// The outer field is not ECN-capable, for tunnel endpoints that do not follow RFC 6040.
    Compatibility,
}

/// The outer header signals congestion, but the inner packet is not ECN-capable: the packet must be dropped
/// (RFC 6040, 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("congestion was experienced by a packet that is not ECN-capable")]
pub struct NotEcnCapable;

impl Ecn {
    /// ECN field in the lower two bits of a byte.
    #[inline]
    pub const fn from_bits(byte: u8) -> Self {
        match byte & 0b11 {
            0b00 => Self::NotCapable,
            0b01 => Self::Capable1,
            0b10 => Self::Capable0,
            _ => Self::Congestion,
        }
    }

    /// The field as the lower two bits of a byte.
    #[inline]
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// The outer field for a packet whose own field is `inner` (RFC 6040, figure 3).
    #[inline]
    pub const fn encapsulate(inner: Self, mode: EcnMode) -> Self {
        match mode {
            EcnMode::Normal => inner,
            EcnMode::Compatibility => Self::NotCapable,
        }
    }

    /// ECN field of the decapsulated packet (RFC 6040, figure 4).
    ///
    /// # Errors
    /// [`NotEcnCapable`]: the packet must be dropped.
    #[inline]
    pub const fn decapsulate(outer: Self, inner: Self) -> Result<Self, NotEcnCapable> {
        match (inner, outer) {
            (Self::NotCapable, Self::Congestion) => Err(NotEcnCapable),
            (Self::NotCapable, _) => Ok(Self::NotCapable),
            (Self::Capable0, Self::NotCapable | Self::Capable0) => Ok(Self::Capable0),
            (Self::Capable0, Self::Capable1) | (Self::Capable1, Self::NotCapable) => Ok(Self::Capable1),
            (Self::Capable1, Self::Capable0 | Self::Capable1) => Ok(Self::Capable1),
            (Self::Congestion, _) | (_, Self::Congestion) => Ok(Self::Congestion),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6040, figure 4: a row for each inner field, a column for each outer one in the order
    /// Not-ECT, ECT(0), ECT(1), CE; `x` is "drop".
    const FIGURE_4: [(&str, [&str; 4]); 4] = [
        ("Not-ECT", ["Not-ECT", "Not-ECT", "Not-ECT", "x"]),
        ("ECT(0)", ["ECT(0)", "ECT(0)", "ECT(1)", "CE"]),
        ("ECT(1)", ["ECT(1)", "ECT(1)", "ECT(1)", "CE"]),
        ("CE", ["CE", "CE", "CE", "CE"]),
    ];
    const COLUMNS: [&str; 4] = ["Not-ECT", "ECT(0)", "ECT(1)", "CE"];

    fn named(name: &str) -> Result<Ecn, NotEcnCapable> {
        match name {
            "Not-ECT" => Ok(Ecn::from_bits(0b00)),
            "ECT(1)" => Ok(Ecn::from_bits(0b01)),
            "ECT(0)" => Ok(Ecn::from_bits(0b10)),
            "CE" => Ok(Ecn::from_bits(0b11)),
            _ => Err(NotEcnCapable),
        }
    }

    #[test]
    fn decapsulation_is_figure_4() {
        for (inner, row) in FIGURE_4 {
            for (outer, result) in COLUMNS.into_iter().zip(row) {
                let (outer_ecn, inner_ecn) = (named(outer).expect("a field"), named(inner).expect("a field"));
                assert_eq!(Ecn::decapsulate(outer_ecn, inner_ecn), named(result), "{inner} in {outer}");
            }
        }
    }

    #[test]
    fn encapsulation_is_figure_3() {
        for bits in 0..4 {
            let inner = Ecn::from_bits(bits);
            assert_eq!(inner.bits(), bits);
            assert_eq!(Ecn::encapsulate(inner, EcnMode::Normal), inner);
            assert_eq!(Ecn::encapsulate(inner, EcnMode::Compatibility), Ecn::NotCapable);
        }
    }
}
