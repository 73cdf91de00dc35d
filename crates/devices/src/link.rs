//! State of an Ethernet link, as drivers that look after a PHY know it.

/// State of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// True if there is one.
    pub up: bool,
    /// Its speed in Mbit/s.
    pub speed: u16,
    /// True if both sides may send at once.
    pub full_duplex: bool,
    /// True if we send pause frames.
    pub pause_transmit: bool,
    /// True if we obey them.
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
