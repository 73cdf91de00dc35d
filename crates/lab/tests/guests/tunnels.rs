//! A kernel's own tunnels examine Polder's: an honest one passes, broken ones do not. GRE and IP in IP are judged in a guest,
//! VXLAN by this machine's kernel.

use crate::{judged, program};
use polder_judges::tunnels::Kind;

#[test]
fn the_kernel_judges_tunnels() {
    let examine = |says: &dyn Fn(&str)| Kind::Gre.examine(program(), says);
    judged("the_kernel_judges_tunnels", Kind::Gre.available(), examine);
}

#[test]
fn the_kernel_judges_vxlan() {
    let examine = |says: &dyn Fn(&str)| Kind::Vxlan.examine(program(), says);
    judged("the_kernel_judges_vxlan", Kind::Vxlan.available(), examine);
}

#[test]
fn the_kernel_judges_ipip() {
    let examine = |says: &dyn Fn(&str)| Kind::Ipip.examine(program(), says);
    judged("the_kernel_judges_ipip", Kind::Ipip.available(), examine);
}

#[test]
fn the_kernel_judges_sit() {
    let examine = |says: &dyn Fn(&str)| Kind::Sit.examine(program(), says);
    judged("the_kernel_judges_sit", Kind::Sit.available(), examine);
}
