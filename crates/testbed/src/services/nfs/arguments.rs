//! XDR (RFC 4506) as it comes from strangers: read in place, no length believed.

use super::call::Refusal;
use nfs3_types::nfs3::NFS3_FHSIZE;
use nfs3_types::xdr_codec::Unpack;

/// Bytes of a path in the mount protocol (RFC 1813, 5.1.2).
const MOST_PATH: usize = 1024;

/// Remaining XDR bytes. A field that cannot be read is `Refusal::Arguments`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arguments<'a>(&'a [u8]);

impl<'a> Arguments<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// All that was not read.
    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Four bytes.
    pub(super) fn word(&mut self) -> Result<u32, Refusal> {
        u32::unpack(&mut self.0).map(|(word, _)| word).map_err(|_| Refusal::Arguments)
    }

    /// Eight bytes.
    pub(super) fn long(&mut self) -> Result<u64, Refusal> {
        u64::unpack(&mut self.0).map(|(long, _)| long).map_err(|_| Refusal::Arguments)
    }

    /// Opaque data of at most `most` bytes, in place. Padding to four bytes is not checked.
    pub(super) fn opaque(&mut self, most: usize) -> Result<&'a [u8], Refusal> {
        let length = usize::try_from(self.word()?).map_err(|_| Refusal::Arguments)?;
        if length > most {
            return Err(Refusal::Arguments);
        }
        let (data, rest) = self.0.split_at_checked(length).ok_or(Refusal::Arguments)?;
        let padding = length.next_multiple_of(4) - length;
        self.0 = rest.get(padding..).ok_or(Refusal::Arguments)?;
        Ok(data)
    }

    /// A file handle (RFC 1813, 2.3.3).
    pub(super) fn handle(&mut self) -> Result<&'a [u8], Refusal> {
        self.opaque(NFS3_FHSIZE)
    }

    /// A name, of any length: whether it is too long is the file system's to say.
    pub(super) fn name(&mut self) -> Result<&'a [u8], Refusal> {
        self.opaque(usize::MAX - 4)
    }

    /// A path of the mount protocol.
    pub(super) fn path(&mut self) -> Result<&'a [u8], Refusal> {
        self.opaque(MOST_PATH)
    }

    /// Nothing may be left.
    pub(super) fn end(self) -> Result<(), Refusal> {
        if self.0.is_empty() { Ok(()) } else { Err(Refusal::Arguments) }
    }
}
