//! Compares the frames that left a bridge with the frames sent to it.

use std::collections::{BTreeMap, VecDeque};

/// The frames of one burst that left a bridge, beside the sent frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// For each sent frame, true if it left the bridge unchanged.
    pub(super) carried: Vec<bool>,
    /// Frames that left and were not sent so.
    pub(super) foreign: Vec<Vec<u8>>,
    /// Carried frames that would have to move for the order of the capture.
    pub(super) misplaced: Vec<usize>,
    /// Misplaced frames within each flow.
    pub(super) misplaced_in_flow: Vec<usize>,
}

impl Outcome {
    /// Compares the `sent` frames with the frames that `left`. Equal frames are distinguished only by their order.
    pub(super) fn of(sent: &[Vec<u8>], left: &[Vec<u8>]) -> Self {
        let mut known: BTreeMap<&[u8], VecDeque<usize>> = BTreeMap::new();
        for (index, frame) in sent.iter().enumerate() {
            known.entry(frame).or_default().push_back(index);
        }
        let mut outcome = Self { carried: vec![false; sent.len()], ..Self::default() };
        let mut order = Vec::new();
        for frame in left {
            match known.get_mut(frame.as_slice()).and_then(VecDeque::pop_front) {
                Some(index) => {
                    outcome.carried[index] = true;
                    order.push(index);
                }
                None => outcome.foreign.push(frame.clone()),
            }
        }
        outcome.misplaced = misplaced(&order);
        let mut flows: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
        for index in order {
            flows.entry(flow(&sent[index])).or_default().push(index);
        }
        outcome.misplaced_in_flow = flows.values().flat_map(|order| misplaced(order)).collect();
        outcome
    }
}

/// The flow of a frame: its stations, and of TCP and UDP over IPv4 and IPv6 addresses and ports.
pub(super) fn flow(frame: &[u8]) -> Vec<u8> {
    let part = |from: usize, to: usize| frame.get(from..to).unwrap_or_default();
    let (addresses, protocol, ports) = match part(12, 15) {
        [8, 0, 0x45] => (part(26, 34), part(23, 24), part(34, 38)),
        [0x86, 0xdd, _] => (part(22, 54), part(20, 21), part(54, 58)),
        _ => return part(0, 12.min(frame.len())).to_vec(),
    };
    // Fragments behind the first have no ports, and keep the order of their addresses.
    let has_ports = matches!(protocol, [6 | 17]) && (part(12, 14) != [8, 0] || part(20, 22) == [0x40, 0]);
    [part(0, 12), addresses, if has_ports { ports } else { &[] }].concat()
}

/// Numbers that are not in the longest ascending part of `order`.
fn misplaced(order: &[usize]) -> Vec<usize> {
    // By length, less one: the place of the smallest number that ends an ascending part of that length.
    let mut ends: Vec<usize> = Vec::new();
    let mut before = vec![None; order.len()];
    for (place, number) in order.iter().enumerate() {
        let length = ends.partition_point(|&end| order[end] < *number);
        before[place] = length.checked_sub(1).map(|shorter| ends[shorter]);
        if length == ends.len() { ends.push(place) } else { ends[length] = place }
    }
    let mut kept = vec![false; order.len()];
    let mut next = ends.last().copied();
    while let Some(place) = next {
        kept[place] = true;
        next = before[place];
    }
    order.iter().zip(kept).filter(|(_, kept)| !kept).map(|(&number, _)| number).collect()
}

/// Differences between the frames that left Polder's bridge and the frames that left the kernel's bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// Sent frames that the kernel's bridge carried and Polder's did not, in no form.
    pub(super) lost: Vec<usize>,
    /// Sent frames that left Polder's bridge with other bytes, and these bytes.
    pub(super) changed: Vec<(usize, Vec<u8>)>,
    /// Frames that left Polder's bridge alone, and belong to no sent frame.
    pub(super) added: Vec<Vec<u8>>,
    /// Sent frames that Polder's bridge carried and the kernel's did not.
    pub(super) carried_alone: Vec<usize>,
    /// Frames that left Polder's bridge out of the order of the capture.
    pub(super) reordered: Vec<usize>,
    /// Reordered frames within each flow.
    pub(super) reordered_in_flow: Vec<usize>,
}

impl Difference {
    /// Between the outcomes of both bridges for the same frames.
    pub(super) fn between(sent: &[Vec<u8>], kernel: &Outcome, polder: &Outcome) -> Self {
        let fates = || kernel.carried.iter().zip(&polder.carried).enumerate();
        let lost = fates().filter(|(_, (kernel, polder))| **kernel && !**polder).map(|(index, _)| index);
        let alone = fates().filter(|(_, (kernel, polder))| !**kernel && **polder).map(|(index, _)| index);
        let mut difference = Self {
            lost: lost.collect(),
            carried_alone: alone.collect(),
            reordered: polder.misplaced.clone(),
            reordered_in_flow: polder.misplaced_in_flow.clone(),
            ..Self::default()
        };
        let mut kernels = kernel.foreign.clone();
        for frame in &polder.foreign {
            if let Some(place) = kernels.iter().position(|other| other == frame) {
                kernels.swap_remove(place);
                continue;
            }
            // A frame with the same stations and other bytes is the lost one, changed.
            let is_same =
                |&index: &usize| frame.get(..12).is_some_and(|ends| sent[index].get(..12) == Some(ends));
            match difference.lost.iter().position(is_same) {
                Some(place) => difference.changed.push((difference.lost.remove(place), frame.clone())),
                None => difference.added.push(frame.clone()),
            }
        }
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(bytes: &[u8]) -> Vec<Vec<u8>> {
        bytes.iter().map(|&byte| vec![byte / 10; 12].into_iter().chain([byte]).collect()).collect()
    }

    fn difference(sent: &[u8], kernel: &[u8], polder: &[u8]) -> Difference {
        let [sent, kernel, polder] = [sent, kernel, polder].map(frames);
        Difference::between(&sent, &Outcome::of(&sent, &kernel), &Outcome::of(&sent, &polder))
    }

    #[test]
    fn the_least_number_of_frames_is_out_of_place() {
        assert_eq!(misplaced(&[0, 1, 2, 5, 3, 4]), [5]);
        assert_eq!(misplaced(&[0, 1, 2]), [0_usize; 0]);
        assert_eq!(misplaced(&[2, 1, 0]).len(), 2);
        assert_eq!(misplaced(&[]), [0_usize; 0]);
    }

    #[test]
    fn equal_lists_have_no_difference() {
        assert_eq!(difference(&[1, 2, 2, 3], &[1, 2, 2, 3], &[1, 2, 2, 3]), Difference::default());
        assert_eq!(difference(&[1, 2], &[1], &[1]), Difference::default(), "a frame that neither carries");
        assert_eq!(difference(&[1], &[11], &[11]), Difference::default(), "a frame that both change");
    }

    #[test]
    fn each_difference_is_told_by_its_name() {
        assert_eq!(difference(&[1, 2], &[1, 2], &[2]).lost, [0]);
        assert_eq!(difference(&[1, 2], &[1, 2], &[1, 2, 2]).added, frames(&[2]));
        assert_eq!(difference(&[1, 12], &[1, 12], &[1, 13]).changed, [(1, frames(&[13]).remove(0))]);
        assert_eq!(difference(&[1, 2], &[1], &[1, 2]).carried_alone, [1]);
        let reordered = difference(&[1, 2, 3], &[2, 1, 3], &[1, 3, 2]);
        assert_eq!((reordered.reordered, reordered.reordered_in_flow), (vec![2], vec![2]), "by the capture");
        let flows = difference(&[1, 12, 13], &[1, 12, 13], &[12, 13, 1]);
        assert_eq!((flows.reordered, flows.reordered_in_flow), (vec![0], Vec::new()));
    }
}
