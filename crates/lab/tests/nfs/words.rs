//! XDR (RFC 4506) written and read by hand: shares nothing with the service.

/// Four bytes.
pub(crate) fn word(value: u32) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

/// Words one after the other.
pub(crate) fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

/// Opaque data of variable length, or a string.
pub(crate) fn opaque(data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).expect("short");
    [&length.to_be_bytes()[..], data, &[0; 3][..(4 - data.len() % 4) % 4]].concat()
}

/// A call with credentials `(flavor, body)` and a verifier that is none.
pub(crate) fn call(xid: u32, to: (u32, u32, u32), credential: (u32, &[u8]), arguments: &[u8]) -> Vec<u8> {
    let (program, version, procedure) = to;
    let mut bytes = words(&[xid, 0, 2, program, version, procedure, credential.0]);
    bytes.extend(opaque(credential.1));
    bytes.extend(words(&[0, 0]));
    bytes.extend(arguments);
    bytes
}

/// AUTH_SYS credentials of the sender (RFC 5531, appendix A).
pub(crate) fn system(machine: &[u8], groups: &[u32]) -> Vec<u8> {
    let count = u32::try_from(groups.len()).expect("short");
    [word(7), opaque(machine), words(&[1000, 1000, count]), words(groups)].concat()
}

/// Reads words and opaque data from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn word(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*bytes))
    }

    pub(crate) fn long(&mut self) -> Option<u64> {
        Some(u64::from(self.word()?) << 32 | u64::from(self.word()?))
    }

    pub(crate) fn opaque(&mut self, most: usize) -> Option<&'a [u8]> {
        let length = usize::try_from(self.word()?).ok().filter(|length| *length <= most)?;
        let filled = length.checked_next_multiple_of(4)?;
        let data = self.0.get(..filled)?;
        self.0 = &self.0[filled..];
        Some(&data[..length])
    }

    /// `None` if anything is left.
    pub(crate) fn ends(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
