//! strongSwan: a tunnel of IPsec between the LAN and the network behind the peer, by policies of the kernel.

use super::super::recipe::{Ask, Mutant, Probe, Recipe, Script, Service};
use super::{NONE, PEER_DEAF};

pub(super) const RECIPE: Recipe = Recipe {
    name: "strongswan",
    programs: &["charon-systemd", "swanctl", "nft"],
    modules: &[
        "xfrm_user",
        "esp4",
        "authenc",
        "sha3_generic",
        "jitterentropy_rng",
        "drbg",
        "echainiv",
        "cbc",
        "hmac",
        "sha256_generic",
        "aes_generic",
    ],
    needs: NEEDS,
    setup: &[
        // The peer drops what comes in the clear, and answers by the tunnel alone.
        Script("peer", "ip route delete default; ip route add 10.1.1.0/24 via 10.1.2.1"),
    ],
    services: &[
        Service::program("peer", CHARON).with(&[("strongswan.conf", DAEMON), ("swanctl.conf", FAR)]),
        Service::program("gw", CHARON).with(&[("strongswan.conf", DAEMON), ("swanctl.conf", NEAR)]),
        Service::state("peer", LOAD, ""),
        Service::state("gw", LOAD, ""),
    ],
    probes: &[
        Probe::holds(
            "ike_is_established",
            "gw",
            "swanctl --list-sas --uri unix://{dir}/vici | grep -q 'site.*INSTALLED'",
        ),
        Probe::ping("lan_to_the_far_net", "host", "203.0.113.9"),
        Probe::new(
            "far_net_to_the_lan",
            Ask::Ping { from: "peer", to: "10.1.1.2", options: "-I 203.0.113.9" },
        ),
        Probe::new(
            "large_datagram_by_ipsec",
            Ask::Ping { from: "host", to: "203.0.113.9", options: "-s 3000" },
        ),
        Probe::ping("beside_the_policies", "host", "10.1.2.2"),
        Probe::holds("rekeying", "gw", "swanctl --rekey --child site --uri unix://{dir}/vici"),
    ],
    mutants: &[
        Mutant::new(
            "the peer hears nothing",
            PEER_DEAF,
            &["lan_to_the_far_net", "far_net_to_the_lan", "large_datagram_by_ipsec", "beside_the_policies"],
        ),
        Mutant::new(
            "the tunnel is taken down",
            (
                "gw",
                "swanctl --terminate --ike peer --force --uri unix://{dir}/vici",
                "swanctl --initiate --child site --uri unix://{dir}/vici",
            ),
            &["ike_is_established", "rekeying"],
        ),
    ],
    refused: &["xfrm"],
    ..NONE
};

const NEEDS: &str = "
    ip xfrm state add src 10.0.0.1 dst 10.0.0.2 proto esp spi 1 mode tunnel enc 'cbc(aes)' 0x00112233445566778899aabbccddeeff \
     auth 'hmac(sha256)' 0x00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const CHARON: &str = "rm -f {dir}/vici; export STRONGSWAN_CONF={dir}/strongswan.conf; exec charon-systemd";
const LOAD: &str = "
    i=0; until [ -S {dir}/vici ]; do i=$((i+1)); [ $i -lt 400 ]; sleep 0.05; done
    swanctl --load-all --uri unix://{dir}/vici --file {dir}/swanctl.conf";
const DAEMON: &str = "charon-systemd {
    install_routes = no
    load = random nonce openssl gmp aes sha1 sha2 hmac gcm kdf pem pkcs1 x509 pubkey kernel-netlink socket-default vici
    plugins { vici { socket = unix://{dir}/vici } }
    filelog { stderr { default = 1 } }
}
";
const NEAR: &str = "connections { peer {
    version = 2
    local_addrs = 10.1.2.1
    remote_addrs = 10.1.2.2
    proposals = aes128-sha256-modp2048
    local { auth = psk
            id = near }
    remote { auth = psk
             id = far }
    children { site {
        local_ts = 10.1.1.0/24
        remote_ts = 203.0.113.0/24
        esp_proposals = aes128-sha256
        start_action = start
        close_action = start
        dpd_action = restart
    } }
} }
secrets { ike-both { secret = \"a secret of both\" } }
";
const FAR: &str = "connections { peer {
    version = 2
    local_addrs = 10.1.2.2
    remote_addrs = 10.1.2.1
    proposals = aes128-sha256-modp2048
    local { auth = psk
            id = far }
    remote { auth = psk
             id = near }
    children { site {
        local_ts = 203.0.113.0/24
        remote_ts = 10.1.1.0/24
        esp_proposals = aes128-sha256
    } }
} }
secrets { ike-both { secret = \"a secret of both\" } }
";
