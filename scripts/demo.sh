#!/usr/bin/env bash
# Produces a changelog, plans a compaction, runs it on local Spark, verifies it and reads the result.
set -euo pipefail

PATH=$(cd "$(dirname "$0")/.." && pwd)/.venv/bin:$PATH
command -v silt >/dev/null || { echo "demo: silt is not installed: make install" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
exec 2>&1  # messages in their place, also where somebody keeps the output
unset SILT_LOG_DIR  # so that the directory is ./silt-data, in $work

say() { printf '\n# %s\n' "$*"; }
run() {
    printf '$ %s\n' "$1"
    eval "$1"
}

# 30,000 changes of 500 customers: a city each time, the number of the change in it.
awk 'BEGIN {
    srand(7); split("Oslo Lima Kyoto Accra Quito Bern", city, " ")
    for (n = 1; n <= 30000; n++)
        printf "customer-%03d:{\"city\":\"%s\",\"change\":%d}\n", rand() * 500, city[int(rand() * 6) + 1], n
}' >changes.txt
# One in ten leaves.
awk 'BEGIN { for (n = 0; n < 500; n += 10) printf "customer-%03d:\n", n }' >leavers.txt

say "A topic that keeps the last value of every key."
run "silt topics create customers --partitions 2 --config cleanup.policy=compact --config segment.bytes=65536"

say "A changelog of customers: the key stands before the first colon."
run "silt produce customers -K : -H source=crm -z lz4 -l changes.txt"

say "Some of them leave: an empty value becomes null (-Z), a tombstone."
run "silt produce customers -K : -Z -H reason=gdpr -l leavers.txt"
run "silt topics describe customers"

say "What compaction would do, and why."
run "silt plan"

say "Compact on local Spark, the active segment too (--force)."
cp -r silt-data before
run "silt compact customers --force"
run "silt topics describe customers"

say "Prove it: every invariant, against a copy of the directory from before."
run "silt verify customers --deep --against before"

say "Nothing is left to do; what waits are tombstones, until their delete horizon."
run "silt plan"
run "silt history customers"

say "The table: one record per customer, deletions as null. A few, how many, and how many twice."
run "silt consume customers -e -p 0 -o beginning -c 3 -K ' = '"
run "silt consume customers -e -f '%k\\n' | wc -l"
run "silt consume customers -e -f '%k\\n' | sort | uniq -d | wc -l"

say "The bytes on disk are Kafka's: batches with gaps, horizons on those that hold tombstones."
run "silt dump --files \$(ls -S silt-data/customers-0/*.log | head -1) | head -4 | cut -c1-170"

say "Done: 30,050 changes settled to the last value of 500 customers. The files are removed again."
