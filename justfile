# The commands of this repository. Each can also be typed without `just`.

# List the commands.
default:
    @just --list

# Build everything.
build:
    cargo build --workspace --all-targets

# Give a first answer in under a minute if all is built: format, types, the tidy rules, fuzz corpora and unit tests.
# Leaves out lints, integration tests, documentation, the server, the NIC model, benches, and the store's slow unit tests:
# threads and merging.
check:
    cargo fmt --all --check
    cargo check --workspace --all-targets
    cargo test --workspace --exclude skep-server --exclude skep-nic --exclude skep-benches \
        --lib --bins --test tidy --test corpus -- \
        --skip stress --skip without_versions --skip merging --skip beside_a_daemon \
        --skip operations_on_one_bucket --skip everything_comes_up

# Run the tests that need only the toolchain.
test:
    cargo test --workspace

# Run the tests that need Debian's redis-tools; they fail without them.
full:
    SKEP_FULL=1 cargo test --workspace --test 'full_*'

# Run them ten times as long: a million commands compared with Redis, a minute of transfers, five minutes of load.
full-long:
    SKEP_FULL=1 SKEP_LONG=10 cargo test --workspace --test 'full_*' --test transactions --test redis_crate \
        --test datagrams

# Check the lints; warnings are errors.
lint:
    cargo clippy --workspace --all-targets -- -D warnings

# Format the sources.
fmt:
    cargo fmt --all
    cargo fmt --manifest-path fuzz/Cargo.toml

# Check licences, versions and sources of the dependencies (cargo install --locked cargo-deny).
deny:
    cargo deny --locked check bans licenses sources

# Build the documentation as a site, in target/site (cargo install --locked mdbook).
site:
    mdbook build site

# Run all checks that a change must pass.
ci:
    .ci/run

# Start the server with these arguments: just serve --memory 2GiB
serve *arguments:
    cargo run --release -- serve {{arguments}}

# Measure with YCSB: just bench --embedded
bench *arguments:
    cargo run --release -- bench {{arguments}}

# Time the parts of the store and the codecs by themselves; a word selects some of them: just micro bucket
micro *arguments:
    cargo bench -p skep-benches --bench micro -- {{arguments}}

# Count the instructions of one operation of the stores and servers with callgrind (apt-get install valgrind).
instructions *arguments: build-benches
    target/release/skep-benches instructions {{arguments}}

# Record these counts, which a test compares with those of a change.
record-instructions: build-benches
    target/release/skep-benches instructions --csv >benches/instructions.csv

# Build the programs that measure.
build-benches:
    cargo build --release -p skep -p skep-benches

# Compare the store with Rust's maps: just maps --pairs 20000000 --save
maps *arguments: build-benches
    target/release/skep-maps maps {{arguments}}

# Compare the server with redis-server, memcached (both must be installed) and a bare echo: just servers --save
servers *arguments: build-benches
    target/release/skep-benches servers {{arguments}}

# Compare the cache with memcached (which must be installed) over memcached's protocol: just memcached --save
memcached *arguments: build-benches
    target/release/skep-benches memcached {{arguments}}

# Measure what TLS costs, and a scrape of the metrics each second: just operation --seconds 27
operation *arguments: build-benches
    target/release/skep-benches operation {{arguments}}

# Measure one and two shards in one process: just shards --save
shards *arguments: build-benches
    target/release/skep-benches shards {{arguments}}

# Run all attacks against a server at once, by default for ten minutes, and check two well-behaved clients: just soak 30
soak seconds="600": build-benches
    target/release/skep-benches soak --judge --seconds {{seconds}}

# Compare the latencies of 500 connections alone and beside 500 slow or silent ones, by default for five minutes: just connections 30
connections seconds="300": build-benches
    target/release/skep-benches connections --judge --seconds {{seconds}}

# Free the memory of ten million expired keys: just expiry
expiry *arguments: build-benches
    target/release/skep-benches expiry {{arguments}}

# Measure what durability costs and how fast a server is back (redis-server must be installed): just durability always
durability *arguments: build-benches
    target/release/skep-benches durability {{arguments}}

# Compare user functions with built-in ones, Lua in redis-server and compare-and-set: just functions scalar
functions *arguments: build-benches
    target/release/skep-benches functions {{arguments}}

# Measure latency against throughput over shared memory, TCP and UDP: just latency --save
latency *arguments: build-benches
    target/release/skep-benches latency {{arguments}}

# Change vectors in Skep and in redis-server (which must be installed), as in KV-Direct's Table 2: just vectors --save
vectors *arguments: build-benches
    target/release/skep-benches vectors {{arguments}}

# Measure what a log costs a store inside a program: just durable
durable *arguments: build-benches
    target/release/skep-benches durable {{arguments}}

# Compare the ordered store with Rust's ordered maps in three minutes, or with all mixes in longer: just ordered --all --save
ordered *arguments: build-benches
    target/release/skep-maps ordered {{arguments}}

# Measure a figure of Honeycomb's evaluation on the ordered store: just honeycomb fig17 --save
honeycomb *arguments: build-benches
    target/release/skep-maps honeycomb {{arguments}}

# Save the report of `skep bench engine`: just engine --save -- --kv-size 62
engine *arguments: build-benches
    target/release/skep-benches engine {{arguments}}

# Write docs/performance.md and its pictures from the saved results.
plots:
    cargo run -p skep-benches --bin skep-benches plots

# Count the words of text files in a running server: just word-count FILES
word-count +files:
    cargo run --release --example word_count -- {{files}}

# Fuzz each of these targets, or all, for some seconds (needs a C++ compiler): just fuzz 60 session
fuzz seconds="60" *targets:
    fuzz/run {{seconds}} {{targets}}
