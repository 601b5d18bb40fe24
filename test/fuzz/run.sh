#!/bin/sh
# Runs the targets of test/fuzz/targets.rs, or those named, for FUZZ_SECONDS (60) each: on libFuzzer, guided by coverage, with
# the stable compiler; where there is no C++ compiler to build libFuzzer with, on mutations of the stored inputs.
# What is found goes to test/fuzz/TARGET/, where it stays as a test. FUZZ_JOBS (1) targets run at one time.
set -eu
cd "$(dirname "$0")/../.."
seconds=${FUZZ_SECONDS:-60}
if ! command -v c++ >/dev/null; then
    echo "There is no C++ compiler for libFuzzer: mutations only."
    FUZZ_SECONDS=$seconds exec cargo test --locked --test fuzz -- --nocapture --test-threads=1
fi
host=$(rustc -vV | sed -n 's/^host: //p')
# What instruments for libFuzzer, as `cargo fuzz --sanitizer none` has it; with --target build scripts are left out.
flags="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
RUSTFLAGS=$flags cargo build --release --locked --target "$host" --target-dir target/fuzz \
    --manifest-path test/fuzz/libfuzzer/Cargo.toml
fuzzer=$PWD/target/fuzz/$host/release/mudev-fuzz
[ $# -gt 0 ] || set -- $(sed -n 's/^    ("\([a-z]*\)", [a-z_]*),$/\1/p' test/fuzz/targets.rs)

one() {
    mkdir -p "target/fuzz/corpus/$1"
    log=target/fuzz/$1.log
    if FUZZ_TARGET=$1 "$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=4096 \
        -use_value_profile=1 -artifact_prefix="test/fuzz/$1/found-" "target/fuzz/corpus/$1" "test/fuzz/$1" >"$log" 2>&1; then
        echo "$1: $(grep -aE '^Done ' "$log"), $(grep -ao 'cov: [0-9]*' "$log" | tail -1)"
    else
        tail -30 "$log"
        echo "$1: found something, see above and $log"
        touch target/fuzz/found
    fi
}

rm -f target/fuzz/found
running=0
for target in "$@"; do
    one "$target" &
    running=$((running + 1))
    [ $((running % ${FUZZ_JOBS:-1})) -ne 0 ] || wait
done
wait
[ ! -e target/fuzz/found ]
