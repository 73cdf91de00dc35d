//! Offsets of fields in kernel structures, from the kernel's type description (BTF).
//!
//! Source: Linux' Documentation/bpf/btf.rst, "BTF Type and String Encoding".

/// Returns the offset in bytes of each wanted field, given as structure and field; `None` if the description
/// is damaged or lacks one.
pub(crate) fn offsets<const N: usize>(description: &[u8], wanted: [(&str, &str); N]) -> Option<[u32; N]> {
    let (types, names) = parts(description)?;
    let mut found = [None; N];
    let mut rest = types;
    while let Some(record) = Record::read(rest) {
        let record = record?;
        let is_wanted = |found: Option<u32>, structure| {
            record.kind == STRUCTURE && found.is_none() && has_name(names, record.name, structure)
        };
        let places = found.iter_mut().zip(wanted);
        for (found, (_, field)) in places.filter(|(found, (structure, _))| is_wanted(**found, structure)) {
            *found = record.offset(names, field);
        }
        rest = record.rest;
    }
    let found = found.map(|found| found.ok_or(()));
    found.iter().all(Result::is_ok).then(|| found.map(Result::unwrap_or_default))
}

/// One type.
struct Record<'a> {
    name: u32,
    kind: u32,
    /// True if offsets of members include bit sizes.
    has_bits: bool,
    /// Bytes after the record's header.
    body: &'a [u8],
    /// Bytes after the record.
    rest: &'a [u8],
}

impl<'a> Record<'a> {
    /// Returns the first type of `types`; `None` at the end, inner `None` if it is damaged or of an unknown
    /// kind.
    fn read(types: &'a [u8]) -> Option<Option<Self>> {
        (!types.is_empty()).then(|| {
            let [name, info] = [word(types, 0)?, word(types, 4)?];
            let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let bytes = match kind {
                // Pointer, forward, typedef, volatile, const, restrict, function, float, type tag.
                2 | 7..=12 | 16 | 18 => 0,
                // Integer, variable, declaration tag.
                1 | 14 | 17 => 4,
                // Array.
                3 => 12,
                // Structure, union, data section, 64-bit enumeration.
                STRUCTURE | 5 | 15 | 19 => count * MEMBER,
                // Enumeration, prototype.
                6 | 13 => count * 8,
                _ => return None,
            };
            let (body, rest) = types.get(HEAD..)?.split_at_checked(bytes)?;
            Some(Self { name, kind, has_bits: info >> 31 == 1, body, rest })
        })
    }

    /// Returns the offset of a structure's member in bytes.
    fn offset(&self, names: &[u8], field: &str) -> Option<u32> {
        let mut members = self.body.chunks_exact(MEMBER);
        let member =
            members.find(|member| word(member, 0).is_some_and(|name| has_name(names, name, field)))?;
        let bits = word(member, 8)?;
        Some(if self.has_bits { bits & 0x00ff_ffff } else { bits } / 8)
    }
}

/// Returns types and names of a description.
fn parts(description: &[u8]) -> Option<(&[u8], &[u8])> {
    if description.first_chunk() != Some(&0xeb9f_u16.to_ne_bytes()) {
        return None;
    }
    let body = description.get(word(description, 4)? as usize..)?;
    let part = |at: usize| {
        let (start, length) = (word(description, at)? as usize, word(description, at + 4)? as usize);
        body.get(start..start.checked_add(length)?)
    };
    Some((part(8)?, part(16)?))
}

fn has_name(names: &[u8], at: u32, name: &str) -> bool {
    let here = names.get(at as usize..).and_then(|names| names.split_at_checked(name.len()));
    here.is_some_and(|(here, behind)| here == name.as_bytes() && behind.first() == Some(&0))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

/// Kind of a structure.
const STRUCTURE: u32 = 4;
/// Bytes of a type's header, and of a member.
const HEAD: usize = 12;
const MEMBER: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    /// A description of `struct a { int x; int b : 8; }` behind an integer and an array.
    fn description() -> Vec<u8> {
        let names = b"\0int\0a\0x\0bx\0b\0";
        let types: &[u32] = &[
            1,
            1 << 24,
            4,
            32, // int
            0,
            3 << 24,
            0,
            1,
            1,
            7, // int[7]
            5,
            4 << 24 | 1 << 31 | 3,
            12,
            7,
            1,
            0,
            9,
            1,
            32,
            12,
            1,
            8 << 24 | 64,
        ];
        let types = types.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
        let head = [24, 0, length(&types), length(&types), length(names)];
        let head = head.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect::<Vec<_>>();
        [&0xeb9f_u16.to_ne_bytes()[..], &[1, 0], &head, &types, names].concat()
    }

    #[test]
    fn fields_are_found_by_their_whole_names() {
        let description = description();
        assert_eq!(offsets(&description, [("a", "b"), ("a", "x"), ("a", "bx")]), Some([8, 0, 4]));
        assert_eq!(offsets(&description, [("a", "b"), ("a", "c")]), None);
        assert_eq!(offsets(&description, [("int", "x")]), None);
    }

    #[test]
    fn a_description_that_is_cut_off_says_nothing() {
        let description = description();
        for length in 0..description.len() - 1 {
            assert_eq!(offsets(&description[..length], [("a", "b")]), None, "{length}");
        }
    }
}
