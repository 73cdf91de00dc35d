//! Addresses that the configuration binds to a port.

use crate::bench::Bench;
use crate::cable::configuration;
use polder_datapath::drops::DropReason;

const FREE: &str = r#"
version = 1
[gateway]
name = "bench"
[port.a]
tap = "a"
[port.b]
tap = "b"
[bridge.lan]
members = ["a", "b"]
"#;

/// Configuration that binds the destination of the bench's packets to a port.
fn bound_to(port: &str) -> String {
    format!("{FREE}\n[[bridge.lan.static]]\nmac = \"02:00:00:00:00:02\"\nport = \"{port}\"\n")
}

#[test]
fn a_static_address_is_where_the_configuration_says() {
    let mut bench = Bench::new(&bound_to("a"), [1, 1]);
    bench.send(17, 1, 100);
    bench.settle();
    assert_eq!((bench.seen, bench.dropped(DropReason::SamePort)), (0, 17));
    // Bound to the other port, they pass.
    bench.gateway.reload(configuration(&bound_to("b"))).expect("a reload");
    bench.send(17, 1, 100);
    bench.settle();
    assert_eq!((bench.seen, bench.dropped(DropReason::SamePort)), (17, 17));
    bench.finish();
}
