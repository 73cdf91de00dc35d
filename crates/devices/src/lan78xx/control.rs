//! Registers of the adapter and of its PHY, by vendor requests.

use super::regs::{
    MII_ACC, MII_DATA, MII_PHY_SHIFT, MII_REGISTER_SHIFT, PhyRegister, Plain, READ_REGISTER, Register,
    WRITE_REGISTER, mii_acc,
};
use crate::usb::Setup;
use crate::usb::control::{ControlError, Pipe};
use polder_datapath::units::Nanos;

/// Time limit for an operation of the adapter.
const DEADLINE: Nanos = Nanos::from_millis(1000);
/// Polling interval of awaited conditions.
const PAUSE: Nanos = Nanos(200_000);

impl Pipe {
    /// Reads a register.
    pub(super) async fn read<E>(&self, register: Register<E>) -> Result<u32, ControlError> {
        let index = register.address;
        let kind = Setup::VENDOR | Setup::IN;
        let bytes = self.get(Setup { kind, request: READ_REGISTER, value: 0, index, length: 4 }).await?;
        let found = bytes.len();
        let word = bytes.try_into().map_err(|_| ControlError::Length { expected: 4, found })?;
        Ok(u32::from_le_bytes(word))
    }

    /// Writes a register.
    pub(super) async fn write<E>(&self, register: Register<E>, value: u32) -> Result<(), ControlError> {
        let index = register.address;
        let setup = Setup { kind: Setup::VENDOR, request: WRITE_REGISTER, value: 0, index, length: 4 };
        self.put(setup, &value.to_le_bytes()).await
    }

    /// Reads a register, and writes it with some bits cleared and some set.
    pub(super) async fn modify(
        &self,
        register: Register<Plain>,
        clear: u32,
        set: u32,
    ) -> Result<(), ControlError> {
        let value = self.read(register).await?;
        self.write(register, value & !clear | set).await
    }

    /// Reads a register until the bits of `mask` have the values of `wanted`.
    pub(super) async fn until<E: Copy>(
        &self,
        register: Register<E>,
        mask: u32,
        wanted: u32,
    ) -> Result<u32, ControlError> {
        let end = self.now() + DEADLINE;
        loop {
            let value = self.read(register).await?;
            if value & mask == wanted {
                return Ok(value);
            }
            if self.now() > end {
                return Err(ControlError::Busy(register.name));
            }
            self.pause(PAUSE).await;
        }
    }

    /// Reads a register of the PHY at `address`.
    pub(super) async fn read_phy<E>(
        &self,
        address: u8,
        register: PhyRegister<E>,
    ) -> Result<u16, ControlError> {
        self.access_phy(address, register.number, 0).await?;
        let value = self.read(MII_DATA).await?;
        Ok(u16::try_from(value & 0xffff).unwrap_or(u16::MAX))
    }

    /// Writes a register of the PHY at `address`.
    pub(super) async fn write_phy<E>(
        &self,
        address: u8,
        register: PhyRegister<E>,
        value: u16,
    ) -> Result<(), ControlError> {
        self.write(MII_DATA, u32::from(value)).await?;
        self.access_phy(address, register.number, mii_acc::WRITE).await
    }

    async fn access_phy(&self, address: u8, number: u8, bits: u32) -> Result<(), ControlError> {
        self.until(MII_ACC, mii_acc::BUSY, 0).await?;
        let place = u32::from(address) << MII_PHY_SHIFT | u32::from(number) << MII_REGISTER_SHIFT;
        self.write(MII_ACC, place | bits | mii_acc::BUSY).await?;
        self.until(MII_ACC, mii_acc::BUSY, 0).await.map(drop)
    }
}
