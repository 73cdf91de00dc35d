//! Tables in /proc/net of kernel services without sockets: IPVS (ipvsadm(8)) and PPPoE (pppoe(8)).

use std::net::Ipv4Addr;

/// Services in /proc/net/ip_vs that rewrite addresses (`-m`, masquerading), as `TCP 192.0.2.1:80`.
pub(super) fn rewriting(table: &str) -> Vec<String> {
    let (mut service, mut found) = (None, Vec::new());
    // Three header lines; then each service, followed by its servers, whose lines begin with an arrow.
    for line in table.lines().skip(3) {
        let words = line.split_whitespace().collect::<Vec<_>>();
        match words.as_slice() {
            ["->", _, "Masq", ..] => found.extend(service.take()),
            ["->", ..] => {}
            [protocol, name, ..] => service = Some(format!("{protocol} {}", end(name))),
            _ => {}
        }
    }
    found
}

/// Sessions in /proc/net/pppoe: device, and the session as `1 with 02:00:00:00:00:01`.
pub(super) fn sessions(table: &str) -> Vec<(String, String)> {
    let session = |line: &str| {
        let mut words = line.split_whitespace();
        // The kernel prints the number in network byte order.
        let id = u16::from_be(u16::from_str_radix(words.next()?, 16).ok()?);
        let address = words.next()?;
        Some((words.next()?.to_owned(), format!("{id} with {address}")))
    };
    table.lines().skip(1).filter_map(session).collect()
}

/// Address and port, parsed from hexadecimal digits; other text, such as a firewall mark, is unchanged.
fn end(name: &str) -> String {
    let numbers = || {
        let (address, port) = name.split_once(':')?;
        let address = Ipv4Addr::from(u32::from_str_radix(address, 16).ok()?);
        Some(format!("{address}:{}", u16::from_str_radix(port, 16).ok()?))
    };
    // IPv6 addresses are in brackets, followed by the port.
    let v6 = || {
        let (address, port) = name.rsplit_once(':').filter(|(address, _)| address.starts_with('['))?;
        Some(format!("{address}:{}", u16::from_str_radix(port, 16).ok()?))
    };
    numbers().or_else(v6).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_have_their_device() {
        let id = format!("{:08X}", 7_u16.to_be());
        let table = format!("Id       Address              Device\n{id} 02:00:00:00:00:01     eth0\n");
        assert_eq!(sessions(&table), [("eth0".to_owned(), "7 with 02:00:00:00:00:01".to_owned())]);
        assert_eq!(sessions("Id\n7\n0001 02:00\nx y z\n"), []);
    }

    #[test]
    fn services_that_rewrite_addresses_are_found_once() {
        let table = "IP Virtual Server version 1.2.1 (size=4096)\n\
                     Prot LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n\
                     TCP  C0000201:0050 rr \n  -> 0A000002:0050      Masq    1      0          0\n\
                     \x20 -> 0A000003:0050      Masq    1      0          0\n\
                     UDP  C0000201:0035 rr \n  -> 0A000002:0035      Route   1      0          0\n\
                     TCP  [2001:0db8:0000:0000:0000:0000:0000:0001]:01BB wlc \n\
                     \x20 -> [fd00:0000:0000:0000:0000:0000:0000:0002]:01BB      Masq    1      0          0\n\
                     FWM  00000007 rr \n  -> 0A000002:0000      Masq    1      0          0\n";
        let found = rewriting(table);
        let v6 = "TCP [2001:0db8:0000:0000:0000:0000:0000:0001]:443";
        assert_eq!(found, ["TCP 192.0.2.1:80", v6, "FWM 00000007"]);
        (0..table.len()).for_each(|end| drop(rewriting(&table[..end])));
        assert_eq!(rewriting("a\nb\nc\n->\n-> x Masq\nTCP\n"), [] as [&str; 0]);
    }
}
