//! Checks if a history of writes, deletes and scans is linearizable, exactly, after the run.
//!
//! Each key has one writer, so the order of its writes is known, and a value says which write it is of. Then a history
//! is linearizable if and only if these orders together have no cycle:
//!
//! ```text
//! time            ▶ T1 ▶ T2 ▶ T3 ▶ ...        an operation lies between the moments of its begin and its end
//! key             ▶ write 1 ▶ write 2 ▶ ...
//! scan            write that it saw ▶ scan ▶ next write of that key     for each key of its range
//! ```
//!
//! A scan does not say which of several deletes it saw. If more than one can be meant, it only lies between the first
//! and the last of them: the check may then be too kind, never too strict.

use std::ops::Range;

/// A put or delete that was answered.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) key: usize,
    pub(super) is_delete: bool,
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// A scan over the keys of a range, or a get.
#[derive(Clone, Debug)]
pub(super) struct Scan {
    pub(super) keys: Range<usize>,
    /// Of each key of the range, the write that it saw, counted from 1; 0 where it saw nothing.
    pub(super) seen: Vec<usize>,
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// Operations, with the moments of begin and end from one counter.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// Those of one key in their order.
    pub(super) writes: Vec<Write>,
    pub(super) scans: Vec<Scan>,
}

/// The orders, as edges between nodes.
struct Graph {
    edges: Vec<(usize, usize)>,
    node_count: usize,
}

impl Graph {
    fn edge(&mut self, from: usize, to: usize) {
        self.edges.push((from, to));
    }

    /// Returns true if the nodes can be put in an order.
    fn is_acyclic(&self) -> bool {
        let mut before = vec![0_usize; self.node_count];
        let mut behind = vec![Vec::new(); self.node_count];
        for &(from, to) in &self.edges {
            before[to] += 1;
            behind[from].push(to);
        }
        let mut ready: Vec<usize> = (0..self.node_count).filter(|node| before[*node] == 0).collect();
        let mut done = 0;
        while let Some(node) = ready.pop() {
            done += 1;
            for &next in &behind[node] {
                before[next] -= 1;
                if before[next] == 0 {
                    ready.push(next);
                }
            }
        }
        done == self.node_count
    }
}

impl History {
    /// Returns true if all operations can have taken effect one after the other, each between its begin and its end.
    pub(super) fn is_linearizable(&self, key_count: usize) -> bool {
        let ends = self.writes.iter().map(|write| write.end).chain(self.scans.iter().map(|scan| scan.end));
        let moments = ends.max().unwrap_or(0) as usize + 1;
        let node_count = moments + self.writes.len() + self.scans.len();
        let mut graph = Graph { edges: Vec::new(), node_count };
        (1..moments).for_each(|moment| graph.edge(moment - 1, moment));
        let mut of_key: Vec<Vec<usize>> = vec![Vec::new(); key_count];
        for (index, write) in self.writes.iter().enumerate() {
            let node = moments + index;
            graph.edge(write.begin as usize, node);
            graph.edge(node, write.end as usize);
            if let Some(before) = of_key[write.key].last() {
                graph.edge(moments + before, node);
            }
            of_key[write.key].push(index);
        }
        for (index, scan) in self.scans.iter().enumerate() {
            let node = moments + self.writes.len() + index;
            graph.edge(scan.begin as usize, node);
            graph.edge(node, scan.end as usize);
            for (key, &seen) in scan.keys.clone().zip(&scan.seen) {
                let writes = &of_key[key];
                let candidates = if seen > 0 { seen..seen + 1 } else { self.absences(writes, scan) };
                if candidates.is_empty() {
                    return false;
                }
                if let Some(first) = candidates.start.checked_sub(1) {
                    graph.edge(moments + writes[first], node);
                }
                if let Some(next) = writes.get(candidates.end - 1) {
                    graph.edge(node, moments + next);
                }
            }
        }
        graph.is_acyclic()
    }

    /// The same history with a get of each key instead of every scan.
    #[allow(dead_code, reason = "this file is shared, and not all use it")]
    pub(super) fn key_by_key(&self) -> History {
        let gets = |scan: &Scan| {
            let (begin, end) = (scan.begin, scan.end);
            let get = move |(key, seen): (usize, &usize)| Scan { keys: key..key + 1, seen: vec![*seen], begin, end };
            scan.keys.clone().zip(&scan.seen).map(get).collect::<Vec<_>>()
        };
        History { writes: self.writes.clone(), scans: self.scans.iter().flat_map(gets).collect() }
    }

    /// The writes, from the first to the last, after which the key was absent and which a scan can have seen. 0 is before the
    /// first write.
    fn absences(&self, writes: &[usize], scan: &Scan) -> Range<usize> {
        let is_absent = |number: usize| number == 0 || self.writes[writes[number - 1]].is_delete;
        let has_begun = |number: usize| number == 0 || self.writes[writes[number - 1]].begin < scan.end;
        let may_last = |number: usize| writes.get(number).is_none_or(|next| self.writes[*next].end > scan.begin);
        let mut fitting =
            (0..=writes.len()).filter(|number| is_absent(*number) && has_begun(*number) && may_last(*number));
        let Some(first) = fitting.next() else { return 0..0 };
        first..fitting.next_back().unwrap_or(first) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: usize, begin: u64, end: u64) -> Write {
        Write { key, is_delete: false, begin, end }
    }

    fn delete(key: usize, begin: u64, end: u64) -> Write {
        Write { key, is_delete: true, begin, end }
    }

    fn scan(seen: &[usize], begin: u64, end: u64) -> Scan {
        Scan { keys: 0..seen.len(), seen: seen.to_vec(), begin, end }
    }

    fn verdict(writes: &[Write], scans: &[Scan]) -> bool {
        History { writes: writes.to_vec(), scans: scans.to_vec() }.is_linearizable(2)
    }

    #[test]
    fn a_scan_sees_what_was_done_before_and_may_see_what_is_under_way() {
        let writes = [put(0, 0, 1), put(1, 2, 5)];
        assert!(verdict(&writes, &[scan(&[1, 0], 3, 4)]));
        assert!(verdict(&writes, &[scan(&[1, 1], 3, 4)]));
        assert!(!verdict(&writes, &[scan(&[0, 0], 3, 4)]), "a write that was answered is missing");
        assert!(!verdict(&writes, &[scan(&[1, 0], 6, 7)]));
    }

    #[test]
    fn a_scan_does_not_see_a_later_write_without_an_earlier_one() {
        let writes = [put(0, 1, 2), put(1, 3, 4)];
        assert!(!verdict(&writes, &[scan(&[0, 1], 0, 5)]));
        assert!(verdict(&writes, &[scan(&[1, 0], 0, 5)]));
    }

    #[test]
    fn two_scans_see_two_writes_in_one_order() {
        let writes = [put(0, 0, 9), put(1, 1, 8)];
        assert!(!verdict(&writes, &[scan(&[1, 0], 2, 5), scan(&[0, 1], 3, 6)]));
        assert!(verdict(&writes, &[scan(&[1, 0], 2, 5), scan(&[1, 1], 3, 6)]));
    }

    #[test]
    fn what_was_seen_is_not_unseen() {
        let writes = [put(0, 0, 9)];
        assert!(!verdict(&writes, &[scan(&[1], 1, 2), scan(&[0], 3, 4)]));
    }

    #[test]
    fn a_missing_key_was_deleted() {
        let writes = [put(0, 0, 1), delete(0, 4, 5), put(0, 6, 7)];
        assert!(!verdict(&writes, &[scan(&[0], 2, 3)]));
        assert!(verdict(&writes, &[scan(&[0], 3, 8)]));
        assert!(!verdict(&writes, &[scan(&[0], 8, 9)]));
    }
}
