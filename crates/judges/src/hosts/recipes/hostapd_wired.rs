//! hostapd as authenticator of 802.1X on a bridge port, with wpa_supplicant behind it.

use super::super::bed::Bed;
use super::super::networks::BRIDGE;
use super::super::recipe::{Mutant, Probe, Recipe, Service};
use super::super::watch;
use super::{HOST_DEAF, LAN_DEAF, NONE};

pub(super) const RECIPE: Recipe = Recipe {
    name: "hostapd_wired",
    programs: &["hostapd", "hostapd_cli", "wpa_supplicant", "wpa_cli", "nft"],
    network: &BRIDGE,
    services: &[
        Service::program("gw", "exec hostapd {dir}/hostapd.conf")
            .with(&[("hostapd.conf", AUTHENTICATOR), ("users", "\"station\" MD5 \"secret\"\n")]),
        Service::program("host", "exec wpa_supplicant -D wired -i eth0 -c {dir}/supplicant.conf")
            .with(&[("supplicant.conf", SUPPLICANT)]),
    ],
    probes: &[
        Probe::own("eapol_start_is_heard", is_asked),
        Probe::holds(
            "station_is_authorized",
            "gw",
            "hostapd_cli -p {dir}/ctl -i lan all_sta | grep -q AUTHORIZED",
        ),
        Probe::own("eapol_stays_in_its_segment", stays),
        Probe::ping("bridged_beside_eapol", "host", "10.5.0.3"),
    ],
    mutants: &[
        Mutant::new("the gateway hears nothing", LAN_DEAF, &["eapol_start_is_heard", "eapol_stays_in_its_segment"]),
        Mutant::new("the host hears nothing", HOST_DEAF, &["bridged_beside_eapol"]),
        Mutant::new(
            "the station is thrown out",
            (
                "gw",
                "hostapd_cli -p {dir}/ctl -i lan deauthenticate $(hostapd_cli -p {dir}/ctl -i lan list_sta | head -1)
                 nft add table netdev deaf; nft add chain netdev deaf lan '{ type filter hook ingress device lan priority -500; policy drop; }'",
                "nft delete table netdev deaf; wpa_cli -p {dir}/../host/ctl -i eth0 reassociate",
            ),
            &["station_is_authorized"],
        ),
    ],
    ..NONE
};

/// True if an EAPOL-Start is answered by a request of EAP.
fn is_asked(bed: &Bed<'_>) -> anyhow::Result<bool> {
    let source = bed.mac(("host", "eth0"))?;
    let socket = bed.socket(("host", "eth0"), Some(0x888e))?;
    socket.send(&watch::frame([1, 0x80, 0xc2, 0, 0, 3], source, 0x888e, &[2, 1, 0, 0]))?;
    // Type 0 of EAPOL is EAP, code 1 of EAP a request.
    let is_request = |seen: &[u8]| seen.get(15) == Some(&0) && seen.get(18) == Some(&1);
    Ok(watch::count_of(&socket, 1, is_request)? > 0)
}

/// True if a frame of EAPOL to the group is not forwarded, where a broadcast behind it is.
fn stays(bed: &Bed<'_>) -> anyhow::Result<bool> {
    let source = bed.mac(("host", "eth0"))?;
    let start = watch::frame([1, 0x80, 0xc2, 0, 0, 3], source, 0x888e, &[2, 1, 0, 0, 0x5a]);
    let after = watch::frame([0xff; 6], source, 0x88b5, b"after");
    watch::is_kept(bed, &start, &after, ("host", "eth0"), ("peer", "eth0"))
}

const AUTHENTICATOR: &str = "interface=lan
driver=wired
logger_stdout=-1
logger_stdout_level=0
ctrl_interface={dir}/ctl
ieee8021x=1
eap_server=1
eap_user_file={dir}/users
eapol_version=2
use_pae_group_addr=1
";
const SUPPLICANT: &str = "ctrl_interface={dir}/ctl
ap_scan=0
eapol_version=2
network={
    key_mgmt=IEEE8021X
    eap=MD5
    identity=\"station\"
    password=\"secret\"
    eapol_flags=0
}
";
