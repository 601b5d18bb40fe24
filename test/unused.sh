#!/bin/sh
# What nobody uses. The modules of the library are `pub` for the tests in test/, so the compiler takes all that is `pub` in
# them for used. Here it sees the same modules as private ones of the executable: whatever only tests need, or nobody,
# is an error. What tests outside of src/ need says so: `#[allow(dead_code, reason = "...")]`.
set -e
cd "$(dirname "$0")/.."
root=target/unused
mkdir -p $root/src
awk '/^\[/ { kept = $0 !~ /^\[+(lib|bin|test|bench)\]/ } kept' Cargo.toml >$root/Cargo.toml
cp Cargo.lock $root/
for layer in src/*/; do ln -sfn "../../../$layer" "$root/$(echo "$layer" | sed 's,/$,,')"; done
{
    sed 's/^pub mod /mod /; s/^#!\[warn(unreachable_pub)\]/#![deny(warnings)]/' src/lib.rs
    echo 'fn main() -> ExitCode { dispatch(std::env::args_os().collect()) }'
} >$root/src/main.rs
CARGO_TARGET_DIR=target ${CARGO:-cargo} check --quiet --locked --manifest-path $root/Cargo.toml
