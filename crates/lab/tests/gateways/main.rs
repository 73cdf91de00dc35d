//! `polder` processes between real network stacks: what an operator does to them, and what the world does.

#![expect(clippy::unwrap_used, reason = "a failed set-up is a failed test")]

mod machines;
mod support;

mod bfd;
mod bridge;
mod capture;
mod completions;
mod daemons;
mod death;
mod drain;
mod events;
mod failed_redirects;
mod fallback;
mod fast_path;
mod fast_path_routes;
mod fast_path_tunnels;
mod filter;
mod hooks;
mod host;
mod host_end;
mod keepalive;
mod kernel_tunnels;
mod land;
mod left_to_kernel;
mod liveness;
mod macvlan;
mod memory;
mod metadata;
mod mirror;
mod mtu;
mod open_vswitch;
mod open_vswitch_routed;
mod order;
mod overload;
mod parity;
mod port_frames;
mod reload;
mod rename;
mod routed_tunnel;
mod router;
mod routing;
mod second;
mod segments;
mod several_routes;
mod silent;
mod supervise;
mod top;
mod tunnel;
mod upgrade;
mod usb;
mod vxlan;
mod walk;
mod workers;
mod yields;
