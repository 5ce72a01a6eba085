//! Times the parts alone with criterion: `cargo bench -p skep-benches`, optionally followed by the beginning of a name.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use skep_benches::micro::workloads;

fn time_workloads(criterion: &mut Criterion) {
    for mut workload in workloads() {
        let mut group = criterion.benchmark_group(workload.name);
        group.throughput(Throughput::Elements(workload.operations));
        group.bench_function("run", |bencher| bencher.iter(|| (workload.run)()));
        group.finish();
    }
}

criterion_group!(benches, time_workloads);
criterion_main!(benches);
