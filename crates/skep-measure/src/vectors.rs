//! The report of `skep bench vectors`: the program writes it as JSON, and `benches` reads, saves and shows it.

use crate::Figure;

/// The settings and figures of a run. The order of the fields is their order in the JSON.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct VectorsReport {
    /// Version of the program.
    pub skep: String,
    /// Model of the processor and number of cores.
    pub machine: String,
    /// Bytes of all vectors of one size that are in cache; one vector if it is larger.
    pub cached: u64,
    /// Bytes of all vectors of one size that are out of cache.
    pub memory: u64,
    /// The most vectors in a batch.
    pub batch: u64,
    /// The most bytes of the vectors of a batch; one vector if it is larger.
    pub batch_size: u64,
    /// Rounds for each speed.
    pub rounds: u64,
    /// The largest spread of a figure that is not noisy.
    pub spread_max: f64,
    /// Server and client had a core each. If not, all figures are those of one core.
    pub are_apart: bool,
    /// The speeds on few vectors, which stay in the caches.
    pub in_cache: Vec<VectorLine>,
    /// The speeds on many vectors.
    pub out_of_cache: Vec<VectorLine>,
    /// KV-Direct's Table 2, as it was published.
    pub published: Vec<VectorLine>,
}

/// The speeds of a way to change vectors.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct VectorLine {
    /// Where the vectors are, and how the client reaches them: `TCP`.
    pub over: String,
    /// What the client does: `update`.
    pub way: String,
    /// The speeds, by size.
    pub speeds: Vec<VectorSpeed>,
}

/// A speed.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct VectorSpeed {
    /// Bytes of a vector.
    pub size: u64,
    /// Bytes of vectors that were changed in a second.
    pub bytes_per_s: Figure,
}

impl VectorsReport {
    /// Returns the tables: the name and the lines of each.
    pub fn parts(&self) -> [(&'static str, &[VectorLine]); 3] {
        [("in cache", &self.in_cache), ("out of cache", &self.out_of_cache), ("KV-Direct's Table 2", &self.published)]
    }

    /// Describes the settings in a few sentences.
    pub fn note(&self) -> String {
        let cores = match self.are_apart {
            true => "One shard or one thread of redis-server has a core, and one client has another one",
            false => "Server and client share one core",
        };
        format!(
            "GB/s of vectors of f32 of which each element was incremented; with BITFIELD of u32, because it has no other \
             numbers. {cores}; in process, the client has the store. Batches of {} vectors or {}, whichever is less; the \
             client waits for all replies of a batch. All vectors of a size have {} in cache, or are one, and {} out of \
             cache. Medians of {} rounds with half of their spread. The labels of the first two rows of the published \
             table look exchanged: vectors do not return at 11.52 GB/s through a network of 5 GB/s.",
            self.batch,
            size_text(self.batch_size),
            size_text(self.cached),
            size_text(self.memory),
            self.rounds,
        )
    }
}

impl VectorLine {
    /// Returns the sizes of these lines, in order.
    pub fn sizes(lines: &[VectorLine]) -> Vec<u64> {
        let mut sizes: Vec<u64> = lines.iter().flat_map(|line| &line.speeds).map(|speed| speed.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Returns the header of the table of these lines.
    pub fn header(name: &str, lines: &[VectorLine]) -> Vec<String> {
        let sizes = VectorLine::sizes(lines).into_iter().map(size_text);
        [format!("GB/s, {name}"), String::new()].into_iter().chain(sizes).collect()
    }

    /// Returns the cells of this line in a table with columns for these sizes. A size without a speed has an empty one.
    pub fn cells(&self, sizes: &[u64]) -> Vec<String> {
        let speed = |size: &u64| self.speeds.iter().find(|speed| speed.size == *size);
        let cells = sizes.iter().map(|size| speed(size).map_or_else(String::new, VectorSpeed::text));
        [self.over.clone(), self.way.clone()].into_iter().chain(cells).collect()
    }
}

impl VectorSpeed {
    /// Returns the speed in GB/s, with half of its spread unless that is zero.
    fn text(&self) -> String {
        let spread = 50.0 * self.bytes_per_s.spread();
        self.bytes_per_s.text(|bytes| {
            let (speed, digits) = (bytes / 1e9, if bytes < 1e8 { 3 } else { 2 });
            if spread > 0.0 { format!("{speed:.digits$} ±{spread:.0}%") } else { format!("{speed:.digits$}") }
        })
    }
}

/// Returns a size as text, in the largest unit of which it is a whole number.
pub fn size_text(size: u64) -> String {
    let units = [(20, "MiB"), (10, "KiB")];
    let unit = units.iter().find(|(bits, _)| size >= 1 << bits && size.trailing_zeros() >= *bits);
    unit.map_or_else(|| format!("{size} B"), |(bits, unit)| format!("{} {unit}", size >> bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_text() {
        for (size, text) in [(64, "64 B"), (1024, "1 KiB"), (1500, "1500 B"), (64 << 20, "64 MiB"), (0, "0 B")] {
            assert_eq!(size_text(size), text);
        }
    }

    #[test]
    fn a_size_without_a_speed_has_an_empty_cell() {
        let speed = |size, median, spread| VectorSpeed { size, bytes_per_s: Figure::with_spread(median, spread) };
        let line = |way: &str, speeds| VectorLine { over: "TCP".to_owned(), way: way.to_owned(), speeds };
        let lines = [
            line("update", vec![speed(64, 1.5e9, 0.1), speed(1024, 2.34e10, 0.0)]),
            line("get", vec![speed(1024, 4e7, 0.6)]),
        ];
        let sizes = VectorLine::sizes(&lines);
        assert_eq!(VectorLine::header("in cache", &lines), ["GB/s, in cache", "", "64 B", "1 KiB"]);
        assert_eq!(lines[0].cells(&sizes), ["TCP", "update", "1.50 ±5%", "23.40"]);
        assert_eq!(lines[1].cells(&sizes), ["TCP", "get", "", "0.040 ±30% noisy"]);
    }
}
