//! Commands that recipes share.

/// Drops all received packets of an interface.
macro_rules! deaf {
    ($at:literal, $interface:literal) => {
        (
            $at,
            concat!(
                "nft add table netdev deaf; nft add chain netdev deaf ",
                $interface,
                " '{ type filter hook ingress device ",
                $interface,
                " priority -500; policy drop; }'"
            ),
            "nft delete table netdev deaf",
        )
    };
}

/// Drops all sent packets of an interface, including frames of packet sockets.
macro_rules! mute {
    ($at:literal, $interface:literal) => {
        (
            $at,
            concat!(
                "nft add table netdev mute; nft add chain netdev mute ",
                $interface,
                " '{ type filter hook egress device ",
                $interface,
                " priority 0; policy drop; }'"
            ),
            "nft delete table netdev mute",
        )
    };
}

/// A daemon of FRR, which starts when zebra answers.
macro_rules! frr {
    ($daemon:literal) => {
        concat!(
            "i=0
             until vtysh --vty_socket {dir} -d zebra -c 'show version' >/dev/null 2>&1; do
               i=$((i+1)); [ $i -lt 400 ]; sleep 0.05
             done
             exec /usr/lib/frr/",
            $daemon,
            " -f {dir}/",
            $daemon,
            ".conf -i {dir}/",
            $daemon,
            ".pid -z {dir}/zserv --vty_socket {dir} -P 0"
        )
    };
}

/// A server that accepts connections and closes them. That of Python's for HTTP asks for a name first.
macro_rules! accepts {
    ($port:literal) => {
        concat!(
            "exec python3 -c 'import socket
server = socket.create_server((\"\", ",
            $port,
            "))
while True:
    server.accept()[0].close()'"
        )
    };
}

pub(super) use {accepts, deaf, frr, mute};
