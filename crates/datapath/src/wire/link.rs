//! Ethernet II with up to two VLAN tags.

use super::{EtherType, Ethernet, Vlan};
use crate::drops::DropReason;

/// A parsed Ethernet frame with up to two VLAN tags.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// The Ethernet header.
    pub ethernet: Ethernet<'a>,
    /// The outer tag; a customer or a service tag by [`Ethernet::ether_type`].
    pub tag: Option<Vlan<'a>>,
    /// The inner tag.
    pub inner_tag: Option<Vlan<'a>>,
}

impl<'a> Link<'a> {
    /// Checks the frame's length and parses at most two tags.
    ///
    /// # Errors
    /// [`DropReason::EthernetTruncated`], [`DropReason::VlanTruncated`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let ethernet = Ethernet::parse(bytes)?;
        if !ethernet.ether_type().is_tag() {
            return Ok(Self { ethernet, tag: None, inner_tag: None });
        }
        let tag = Vlan::parse(ethernet.payload())?;
        let inner_tag = if tag.ether_type().is_tag() { Some(Vlan::parse(tag.payload())?) } else { None };
        Ok(Self { ethernet, tag: Some(tag), inner_tag })
    }

    /// Bytes from the start of the frame to the network header.
    #[inline]
    pub fn header_bytes(&self) -> usize {
        let tags = usize::from(self.tag.is_some()) + usize::from(self.inner_tag.is_some());
        Ethernet::HEADER_BYTES + tags * Vlan::HEADER_BYTES
    }

    /// EtherType after the tags; itself a tag type if there are more than two tags.
    #[inline]
    pub fn ether_type(&self) -> EtherType {
        match self.inner_tag.or(self.tag) {
            Some(tag) => tag.ether_type(),
            None => self.ethernet.ether_type(),
        }
    }

    /// The bytes after the tags, padding included.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        match self.inner_tag.or(self.tag) {
            Some(tag) => tag.payload(),
            None => self.ethernet.payload(),
        }
    }
}
