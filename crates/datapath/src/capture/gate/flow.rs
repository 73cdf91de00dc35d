//! Minimum cut of a graph (Ford and Fulkerson, 1956; shortest paths first, as in Edmonds and Karp).

use std::collections::VecDeque;

/// Capacity of an edge that cannot be cut.
pub(super) const UNCUTTABLE: u32 = 1 << 24;

/// Flow network from node 0 to node 1.
#[derive(Debug)]
pub(super) struct Net {
    /// Edges and, at odd indices, their reverse edges: target node and residual capacity.
    edges: Vec<(usize, u32)>,
    /// By node: indices of the edges that leave it.
    leaving: Vec<Vec<usize>>,
}

impl Net {
    pub(super) fn new() -> Self {
        Self { edges: Vec::new(), leaving: Vec::new() }
    }

    /// Adds an edge. Edges are numbered in the order of addition.
    pub(super) fn connect(&mut self, from: usize, to: usize, weight: u32) {
        let nodes = from.max(to) + 1;
        if self.leaving.len() < nodes {
            self.leaving.resize_with(nodes, Vec::new);
        }
        for (from, to, weight) in [(from, to, weight), (to, from, 0)] {
            self.leaving[from].push(self.edges.len());
            self.edges.push((to, weight));
        }
    }

    /// Numbers of the edges of a minimum cut between nodes 0 and 1; `None` if its weight exceeds `most`.
    pub(super) fn cut(&mut self, most: u32) -> Option<Vec<usize>> {
        let mut flow = 0_u32;
        loop {
            let reached_by = self.search();
            if reached_by.get(1).is_none_or(Option::is_none) {
                return Some(self.border(&reached_by));
            }
            flow = flow.saturating_add(self.fill(&reached_by));
            if flow > most {
                return None;
            }
        }
    }

    /// By node: the edge by which a breadth-first search reaches it.
    fn search(&self) -> Vec<Option<usize>> {
        let mut reached_by = vec![None; self.leaving.len()];
        let mut line = VecDeque::from([0]);
        while let Some(node) = line.pop_front() {
            let leaving = self.leaving.get(node).into_iter().flatten();
            let open = leaving.filter(|&&edge| self.edges[edge].1 > 0);
            for (edge, to) in open.map(|&edge| (edge, self.edges[edge].0)).filter(|(_, to)| *to != 0) {
                line.extend(reached_by[to].is_none().then_some(to));
                reached_by[to].get_or_insert(edge);
            }
        }
        reached_by
    }

    /// Augments the flow along the found path; returns its capacity.
    fn fill(&mut self, reached_by: &[Option<usize>]) -> u32 {
        let mut way = Vec::new();
        let mut node = 1;
        while let Some(edge) = reached_by[node] {
            way.push(edge);
            node = self.edges[edge ^ 1].0;
        }
        let least = way.iter().map(|&edge| self.edges[edge].1).min().unwrap_or(UNCUTTABLE);
        for edge in way {
            self.edges[edge].1 -= least;
            self.edges[edge ^ 1].1 += least;
        }
        least
    }

    /// Edges from reached to unreached nodes.
    fn border(&self, reached_by: &[Option<usize>]) -> Vec<usize> {
        let is_reached = |node: usize| node == 0 || reached_by.get(node).is_some_and(Option::is_some);
        let forward = (0..self.edges.len()).step_by(2);
        let crosses = |&edge: &usize| is_reached(self.edges[edge + 1].0) && !is_reached(self.edges[edge].0);
        forward.filter(crosses).map(|edge| edge / 2).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_cut_is_found() {
        let mut net = Net::new();
        // Two ways that share their first edge, which weighs more than one edge on each.
        for (from, to, weight) in [(0, 2, 50), (2, 3, 7), (2, 4, 90), (3, 1, 40), (4, 1, 8), (3, 4, 1)] {
            net.connect(from, to, weight);
        }
        assert_eq!(net.cut(100), Some(vec![1, 4]));
        let mut net = Net::new();
        net.connect(0, 2, UNCUTTABLE);
        net.connect(2, 1, UNCUTTABLE);
        assert_eq!(net.cut(100), None);
        let mut nowhere = Net::new();
        nowhere.connect(0, 2, 1);
        assert_eq!(nowhere.cut(100), Some(vec![]));
    }

    /// Against all subsets of the edges of small nets.
    #[test]
    fn no_other_set_is_cheaper() {
        let mut state = 7_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from((state >> 33) % below).expect("small")
        };
        for _ in 0..300 {
            let edges = (0..9)
                .map(|_| (draw(5), draw(5), u32::try_from(1 + draw(9)).expect("small")))
                .filter(|(from, to, _)| from != to)
                .collect::<Vec<_>>();
            let mut net = Net::new();
            edges.iter().for_each(|&(from, to, weight)| net.connect(from, to, weight));
            let cut = net.cut(1000).expect("below the sum of all");
            let mask = cut.iter().fold(0_u32, |mask, edge| mask | 1 << edge);
            let weight = |mask: u32| {
                let edges = edges.iter().enumerate().filter(|(number, _)| mask >> number & 1 == 1);
                edges.map(|(_, edge)| edge.2).sum::<u32>()
            };
            let parts = |mask: u32| !reaches(&edges, mask);
            assert!(parts(mask), "{edges:?} {cut:?}");
            let best = (0..1 << edges.len()).filter(|&mask| parts(mask)).map(weight).min();
            assert_eq!(Some(weight(mask)), best, "{edges:?} {cut:?}");
        }
    }

    /// True if node 1 is reached from node 0 without these edges.
    fn reaches(edges: &[(usize, usize, u32)], without: u32) -> bool {
        let left = edges.iter().enumerate().filter(|(number, _)| without >> number & 1 == 0);
        let left = left.map(|(_, edge)| edge).collect::<Vec<_>>();
        let step =
            |reached: u32, &&(from, to, _): &&(usize, usize, u32)| reached | (reached >> from & 1) << to;
        (0..5).fold(1_u32, |reached, _| left.iter().fold(reached, step)) & 2 != 0
    }
}
