//! hostapd at a radio that is a router's port, with wpa_supplicant as its station. `mac80211_hwsim` plays both radios.
//!
//! ```text
//! host eth0 ~~~ lan gw wan ── eth0 peer
//! ```

use super::super::networks::ROUTER;
use super::super::recipe::{Ask, Mutant, Network, Probe, Recipe, Script, Service, Wire};
use super::{FORWARDS_NOTHING, NONE};

/// Moves a radio out of the machine's own namespace, by its number in sysfs.
macro_rules! radio {
    ($radio:literal, $interface:literal) => {
        concat!(
            "nsenter -t 1 -n iw phy#",
            $radio,
            " set netns name $(cat {dir}/name)
             for link in /sys/class/net/*; do
               if [ -e $link/phy80211 ]; then
                 ip link set ${link##*/} down; ip link set ${link##*/} name ",
            $interface,
            "; fi
             done
             echo 1 >/proc/sys/net/ipv6/conf/",
            $interface,
            "/keep_addr_on_down; ip link set ",
            $interface,
            " up"
        )
    };
}

const NETWORK: Network = Network {
    wires: &[Wire(("gw", "wan"), ("peer", "eth0"))],
    others: &["host"],
    setup: &[
        Script("gw", radio!("0", "lan")),
        Script("host", radio!("1", "eth0")),
        ROUTER.setup[0],
        ROUTER.setup[1],
        ROUTER.setup[2],
        ROUTER.setup[3],
    ],
    ..ROUTER
};

pub(super) const RECIPE: Recipe = Recipe {
    name: "hostapd_wireless",
    programs: &["hostapd", "hostapd_cli", "wpa_supplicant", "wpa_cli", "iw", "nsenter", "nft"],
    modules: &["mac80211_hwsim", "ccm", "ctr", "aes_generic"],
    needs: "[ -e /sys/class/mac80211_hwsim/hwsim1 ]",
    network: &NETWORK,
    services: &[
        Service::program("gw", "exec hostapd {dir}/hostapd.conf").with(&[("hostapd.conf", ACCESS_POINT)]),
        Service::program("host", "exec wpa_supplicant -D nl80211 -i eth0 -c {dir}/supplicant.conf")
            .with(&[("supplicant.conf", STATION)]),
        Service::state("host", JOINED, ""),
    ],
    probes: &[
        Probe::holds(
            "station_is_authorized",
            "gw",
            "hostapd_cli -p {dir}/ctl -i lan all_sta | grep -q AUTHORIZED",
        ),
        Probe::ping("the_gateway_by_radio", "host", "10.1.1.1"),
        Probe::ping("ipv4_out_by_radio", "host", "203.0.113.9"),
        Probe::ping("ipv6_in_by_radio", "peer", "2001:db8:1::2"),
        Probe::new(
            "large_datagram_by_radio",
            Ask::Ping { from: "host", to: "203.0.113.9", options: "-s 4000" },
        ),
        Probe::holds("reassociation", "host", REJOIN),
    ],
    mutants: &[
        Mutant::new(
            "nothing is forwarded",
            FORWARDS_NOTHING,
            &["ipv4_out_by_radio", "ipv6_in_by_radio", "large_datagram_by_radio"],
        ),
        Mutant::new(
            "the access point is off",
            ("gw", "hostapd_cli -p {dir}/ctl -i lan disable", "hostapd_cli -p {dir}/ctl -i lan enable"),
            &["station_is_authorized", "the_gateway_by_radio", "reassociation"],
        ),
    ],
    ..NONE
};

/// The interface was down meanwhile, which has taken the routes by it.
const JOINED: &str = "
    i=0; until wpa_cli -p {dir}/ctl -i eth0 status 2>/dev/null | grep -q COMPLETED; do i=$((i+1)); [ $i -lt 300 ]; sleep 0.1; done
    ip route replace default via 10.1.1.1; ip -6 route replace default via 2001:db8:1::1";
const REJOIN: &str = "
    wpa_cli -p {dir}/ctl -i eth0 reassociate | grep -q OK || exit 1
    sleep 1; wpa_cli -p {dir}/ctl -i eth0 status | grep -q COMPLETED";
const ACCESS_POINT: &str = "interface=lan
driver=nl80211
ctrl_interface={dir}/ctl
hw_mode=g
channel=1
ssid=polder
wpa=2
wpa_key_mgmt=WPA-PSK
rsn_pairwise=CCMP
wpa_passphrase=a secret of both
";
const STATION: &str = "ctrl_interface={dir}/ctl
network={
    ssid=\"polder\"
    psk=\"a secret of both\"
    scan_freq=2412
}
";
