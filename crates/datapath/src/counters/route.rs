//! Counters of the routing stage.

use crate::counter::Counter;

macro_rules! route_counters {
    ($($field:ident, $description:literal;)+) => {
        /// Counters of one worker's routing stage.
        #[derive(Debug, Default)]
        pub struct RouteCounters {
            $(#[doc = $description] pub $field: Counter,)+
        }

        impl RouteCounters {
            /// Name, description and value of every counter, in the order of the tables.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
                [$((stringify!($field), $description, self.$field.get()),)+].into_iter()
            }
        }

        $crate::counters::totals! {
            RouteCounters { $($field),+ } [];
        }
    };
}

route_counters! {
    forwarded, "Packets sent on to a neighbour.";
    to_host, "Packets delivered to the host itself.";
    to_kernel, "Packets returned to the kernel, which forwards them.";
    answered, "Pings, ARP requests and solicitations that Polder answered.";
    fragmented, "Packets that were fragmented.";
    fragments, "Fragments created.";
    told, "ICMP errors sent.";
    silenced, "ICMP errors that were not sent: the rate limit, or no memory.";
    asked, "ARP requests and solicitations sent.";
    waited, "Packets that had to wait for a neighbour's link-layer address.";
}
