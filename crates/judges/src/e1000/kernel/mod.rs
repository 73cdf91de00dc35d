//! The kernel's e1000 driver as judge of our model: another driver meets the device that our driver is tested on.
//!
//! ```text
//!  this process                                          the guest
//!  a namespace ══ wire ══ model ── PCI function ──────── Linux, e1000
//!  the station ══╝          ╰───── memory, a file ──────╯
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `message` | the protocol between QEMU and a PCI device outside of it |
//! | `config` `line` `function` | configuration space, interrupt line, and the model behind them |
//! | `wire` `station` | the model's wire, and a station on it |
//! | `testbed` | guest, model and wire together |
//! | `checks` `judge` | what the driver has to find, also on a model that deviates |
//! | `damaged` | a gateway in the kernel's place, on a model that is damaged |

mod checks;
mod config;
mod damaged;
mod function;
mod judge;
mod line;
mod message;
mod station;
mod testbed;
mod wire;

pub(super) use damaged::eeprom;
pub use judge::examine_model;
pub use testbed::kernel_available;
