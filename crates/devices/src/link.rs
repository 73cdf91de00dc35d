//! State of an Ethernet link, for drivers that manage a PHY.

/// State of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// True if the link is up.
    pub up: bool,
    /// Speed in Mbit/s.
    pub speed: u16,
    /// True if both ends may send at once.
    pub full_duplex: bool,
    /// True if pause frames are sent.
    pub pause_transmit: bool,
    /// True if received pause frames are obeyed.
    pub pause_receive: bool,
}

impl core::fmt::Display for Link {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if !self.up {
            return formatter.write_str("no link");
        }
        let duplex = if self.full_duplex { "full" } else { "half" };
        write!(formatter, "{} Mbit/s {duplex} duplex", self.speed)
    }
}
