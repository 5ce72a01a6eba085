//! The pulse of shards: a shard that makes no turn has none.

use super::Bench;
use crate::pulse::Pulse;
use crate::settings::ServerSettings;

#[test]
fn there_is_a_pulse_if_each_shard_has_begun_a_turn_since_the_last_one() {
    let mut bench = Bench::new(3, &ServerSettings::default());
    let mut pulse = Pulse::new(bench.shared.clone(), Vec::new());
    assert!(pulse.take(), "none was asked for before");
    for (turning, expected) in [(&[][..], false), (&[0, 1], false), (&[2, 0], false), (&[1, 2, 0], true), (&[], false)]
    {
        for &shard in turning {
            bench.shards[shard].tick(bench.now);
        }
        assert_eq!(pulse.take(), expected, "after ticks of shards {turning:?}");
    }
}
