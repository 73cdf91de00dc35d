"""Builds the outer packets of each line from standard input, and compares them with those that stand there.

A line: IPv6 or not, checksum or not, key, sequence number, encapsulation limit ("-" for none), traffic class,
the frame inside, and the packets, in hexadecimal, in order.
"""

import sys

from scapy.all import GRE, IP, IPv6, Ether, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, Raw
from scapy.layers.inet import fragment
from scapy.layers.inet6 import HBHOptUnknown

MACS = ("02:00:00:00:00:02", "02:00:00:00:00:01")
V4 = ("192.168.10.1", "192.168.20.1")
V6 = ("fd00:1:2:3:4:5:6:7", "fd00:8:9:a:b:c:d:e")
MTU = 1500


def gre_of(checksum, key, sequence, inside):
    fields = {"proto": 0x6558, "chksum_present": checksum}
    if key is not None:
        fields.update(key_present=1, key=key)
    if sequence is not None:
        fields.update(seqnum_present=1, seqence_number=sequence)
    return bytes(GRE(**fields) / Raw(inside))


def outer_v4(gre, traffic_class, first):
    header = IP(src=V4[0], dst=V4[1], tos=traffic_class, ttl=64, id=IP(first[14:]).id, proto=47)
    packets = fragment(header / Raw(gre), fragsize=(MTU - 20) // 8 * 8)
    return [bytes(Ether(dst=MACS[0], src=MACS[1], type=0x0800) / packet) for packet in packets]


def outer_v6(gre, traffic_class, limit, first):
    link = Ether(dst=MACS[0], src=MACS[1], type=0x86DD)
    header = IPv6(src=V6[0], dst=V6[1], tc=traffic_class, fl=0xABCDE, hlim=64)
    before = 40
    if limit is not None:
        header = header / IPv6ExtHdrDestOpt(options=[HBHOptUnknown(otype=4, optdata=bytes([limit]))])
        before += 8

    def following(packet, number):
        packet.lastlayer().nh = number
        return packet

    if before + len(gre) <= MTU:
        return [bytes(link / following(header, 47) / Raw(gre))]
    # Behind the options, where Linux has it, so the packet is cut here and not by fragment6.
    identification = int.from_bytes(first[14 + before + 4 : 14 + before + 8], "big")
    room = (MTU - before - 8) // 8 * 8
    packets = []
    for start in range(0, len(gre), room):
        part = gre[start : start + room]
        more = int(start + room < len(gre))
        head = IPv6ExtHdrFragment(nh=47, offset=start // 8, m=more, id=identification)
        packets.append(bytes(link / following(header.copy(), 44) / head / Raw(part)))
    return packets


def main():
    agreed = 0
    for line in sys.stdin:
        is_v6, checksum, key, sequence, limit, traffic_class, inside, outer = line.split()
        number = lambda text: None if text == "-" else int(text)
        found = [bytes.fromhex(packet) for packet in outer.split(",")]
        gre = gre_of(int(checksum), number(key), number(sequence), bytes.fromhex(inside))
        if int(is_v6):
            expected = outer_v6(gre, int(traffic_class), number(limit), found[0])
        else:
            expected = outer_v4(gre, int(traffic_class), found[0])
        if expected != found:
            print("differs:", line[:80])
            for ours, theirs in zip(found, expected):
                print("ours ", ours[:100].hex())
                print("scapy", theirs[:100].hex())
            print(len(found), "packets instead of", len(expected))
            sys.exit(1)
        agreed += 1
    print(agreed, "packets agree")


main()
