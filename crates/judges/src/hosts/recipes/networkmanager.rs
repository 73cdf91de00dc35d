//! NetworkManager with the gateway's interfaces, and a message bus of its own: a DHCP client outside, addresses inside.

use super::super::recipe::{Mutant, Probe, Recipe, Service};
use super::networkd::NETWORK;
use super::{FORWARDS_NOTHING, LAN_DEAF, NONE};

pub(super) const RECIPE: Recipe = Recipe {
    name: "networkmanager",
    programs: &["NetworkManager", "nmcli", "dbus-daemon", "dnsmasq", "nft"],
    network: &NETWORK,
    services: &[
        super::networkd::LEASES,
        Service::program("gw", "rm -f {dir}/bus; exec dbus-daemon --config-file={dir}/bus.conf --nofork")
            .with(&[("bus.conf", BUS)]),
        Service::program("gw", DAEMON).with(&[
            ("nm.conf", MANAGER),
            ("lan.keyfile", LAN),
            ("wan.keyfile", WAN),
        ]),
    ],
    probes: &[
        Probe::holds("dhcp_lease_outside", "gw", "ip address show dev wan | grep -q 'inet 10.1.2.50/'"),
        Probe::holds(
            "both_interfaces_are_connected",
            "gw",
            "export DBUS_SYSTEM_BUS_ADDRESS=unix:path={dir}/bus
             [ $(nmcli -t -f DEVICE,STATE device | grep -cE '^(lan|wan):connected$') = 2 ]",
        ),
        Probe::ping("ipv4_out_by_the_lease", "host", "203.0.113.9"),
        Probe::ping("ipv4_in_by_the_lease", "peer", "10.1.1.2"),
        Probe::ping("ipv6_out", "host", "2001:db8:2::2"),
        Probe::ping("the_gateway_inside", "host", "10.1.1.1"),
    ],
    mutants: &[
        Mutant::new(
            "the lease is lost",
            (
                "gw",
                "DBUS_SYSTEM_BUS_ADDRESS=unix:path={dir}/bus nmcli connection down wan",
                "DBUS_SYSTEM_BUS_ADDRESS=unix:path={dir}/bus nmcli connection up wan",
            ),
            &["dhcp_lease_outside", "both_interfaces_are_connected"],
        ),
        Mutant::new(
            "nothing is forwarded",
            FORWARDS_NOTHING,
            &["ipv4_out_by_the_lease", "ipv4_in_by_the_lease", "ipv6_out"],
        ),
        Mutant::new("the LAN is not heard", LAN_DEAF, &["the_gateway_inside"]),
    ],
    ..NONE
};

/// Starts the daemon without udev: interfaces are ready at once if `/sys` is read-only, as in a container. The
/// command has its own mount namespace.
const DAEMON: &str = "
    mkdir -p {dir}/connections {dir}/more {dir}/run {dir}/lib /run/NetworkManager
    for name in lan wan; do install -m 600 {dir}/$name.keyfile {dir}/connections/$name.nmconnection; done
    mount --bind {dir}/run /run/NetworkManager; mount --bind {dir}/lib /var/lib/NetworkManager
    mount -o remount,ro /sys
    i=0; until [ -S {dir}/bus ]; do i=$((i+1)); [ $i -lt 200 ]; sleep 0.05; done
    export DBUS_SYSTEM_BUS_ADDRESS=unix:path={dir}/bus
    exec NetworkManager --debug --config {dir}/nm.conf --config-dir {dir}/more --system-config-dir {dir}/more \
      --pid-file {dir}/nm.pid --state-file {dir}/nm.state --intern-config {dir}/nm.intern";
const MANAGER: &str = "[main]
plugins=keyfile
no-auto-default=*
dhcp=internal
dns=none
rc-manager=unmanaged
[keyfile]
path={dir}/connections
";
const LAN: &str = "[connection]
id=lan
uuid=5b5a2c5e-0e0e-4d8c-9d55-0c1f6a1b0001
type=ethernet
interface-name=lan
[ipv4]
method=manual
address1=10.1.1.1/24
[ipv6]
method=manual
address1=2001:db8:1::1/64
";
const WAN: &str = "[connection]
id=wan
uuid=5b5a2c5e-0e0e-4d8c-9d55-0c1f6a1b0002
type=ethernet
interface-name=wan
[ipv4]
method=auto
[ipv6]
method=manual
address1=2001:db8:2::1/64
";
const BUS: &str = "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\"
  \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">
<busconfig>
  <type>system</type>
  <listen>unix:path={dir}/bus</listen>
  <auth>EXTERNAL</auth>
  <policy context=\"default\">
    <allow user=\"*\"/>
    <allow own=\"*\"/>
    <allow send_type=\"method_call\"/>
    <allow send_type=\"signal\"/>
    <allow send_requested_reply=\"true\" send_type=\"method_return\"/>
    <allow send_requested_reply=\"true\" send_type=\"error\"/>
    <allow receive_type=\"method_call\"/>
    <allow receive_type=\"signal\"/>
    <allow receive_type=\"method_return\"/>
    <allow receive_type=\"error\"/>
  </policy>
</busconfig>
";
