//! The guest's side of the gadgets: one made by configfs on `dummy_hcd`.
//!
//! Source: Linux, Documentation/usb/gadget_configfs.rst.

use super::export::{self, write};
use anyhow::Context as _;
use rustix::mount::{MountFlags, mount};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// File system in which the gadget is made.
const CONFIGFS: &str = "/sys/kernel/config";
const GADGET: &str = "/sys/kernel/config/usb_gadget/judge";
/// File that connects the gadget to the device controller, and disconnects it.
pub const CONTROLLER: &str = "/sys/kernel/config/usb_gadget/judge/UDC";
/// The device controller of `dummy_hcd`.
pub const DUMMY: &str = "dummy_udc.0";
/// The gadget as a USB device of the same machine.
pub const BUSID: &str = "1-1";
/// Address of the gadget's own interface.
pub const OWN_MAC: &str = "02:00:00:00:77:01";
/// Address that the gadget gives the host.
pub const HOST_MAC: &str = "02:00:00:00:77:02";
/// Vendor and product.
pub const IDENTITY: (u16, u16) = (0x0525, 0xa4a1);

/// Makes a gadget with that function (`ncm` or `ecm`) and exports it until the process ends.
///
/// # Errors
/// When a step fails.
pub fn main(function: &str) -> anyhow::Result<()> {
    make(function)?;
    export::main(BUSID)
}

fn make(function: &str) -> anyhow::Result<()> {
    mount("configfs", CONFIGFS, "configfs", MountFlags::empty(), None).context("cannot mount configfs")?;
    let gadget = Path::new(GADGET);
    let instance = format!("functions/{function}.usb0");
    for directory in ["", "strings/0x409", "configs/c.1", &instance] {
        let path = gadget.join(directory);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    write(gadget.join("idVendor"), &format!("{:#06x}", IDENTITY.0))?;
    write(gadget.join("idProduct"), &format!("{:#06x}", IDENTITY.1))?;
    write(gadget.join("strings/0x409/serialnumber"), "1")?;
    write(gadget.join(&instance).join("dev_addr"), OWN_MAC)?;
    write(gadget.join(&instance).join("host_addr"), HOST_MAC)?;
    symlink(gadget.join(&instance), gadget.join("configs/c.1/function"))
        .context("cannot add the function")?;
    write(CONTROLLER, DUMMY)
}
