//! The rows of the five tables.

/// Techniques of the sources, of which there are verdicts. E1 is recorded: there is nothing to switch.
pub(super) const COUNTED: [&str; 27] = [
    "A.A1", "A.A2", "A.A3", "A.A4", "A.A5", "A.A6", "B.B1", "B.B2", "B.B3", "C.C1", "C.C2", "C.C3", "C.C4",
    "C.C5", "D.D1", "D.D2", "D.D3", "D.D4", "D.D5", "D.D6", "E.E2", "E.E3", "E.E4", "E.E5", "E.E6", "E.E7",
    "E.E8",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::contrast;

    #[test]
    fn each_technique_that_counts_has_its_rows() {
        for technique in COUNTED {
            for ending in contrast::ENDINGS {
                let name = contrast::row(technique, ending);
                assert!(
                    crate::scenarios::tables::SCENARIO.promises().iter().any(|promise| promise.name == name),
                    "{name}"
                );
            }
        }
        let letters = COUNTED.map(|technique| technique.chars().next());
        let of = |letter| letters.iter().filter(|found| **found == Some(letter)).count();
        assert_eq!(['A', 'B', 'C', 'D', 'E'].map(of), [6, 3, 5, 6, 7], "and E1");
    }
}
