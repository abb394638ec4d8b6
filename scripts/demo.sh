#!/usr/bin/env bash
# Shows topics, produce, consume, dump and offsets on a log directory of its own, and cleans up.
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

cat >changes.txt <<'CHANGES'
alice:{"city":"Oslo","plan":"free"}
bob:{"city":"Lima","plan":"free"}
carol:{"city":"Kyoto","plan":"team"}
alice:{"city":"Oslo","plan":"team"}
dave:{"city":"Accra","plan":"free"}
bob:{"city":"Quito","plan":"free"}
CHANGES

say "A topic that is to keep the last value of every key."
run "silt topics create customers --partitions 2 --config cleanup.policy=compact"

say "A changelog of customers: the key stands before the first colon, a header says where it is from."
run "silt produce customers -K : -H source=crm changes.txt -l"

say "Two customers leave: an empty value becomes null (-Z), a tombstone."
run "printf 'dave:\\nalice:\\n' | silt produce customers -K : -Z -H source=crm -H reason=gdpr -z zstd"

say "What there is now."
run "silt topics list"
run "silt topics describe customers"
run "silt offsets customers"

say "Every record, in the order of its partition: deletions show as null."
run "silt consume customers -e -K ' = '"

say "The same for programs, as kcat prints it; here the last record of each partition."
run "silt consume customers -e -o -1 -J"

say "A format of one's own, and only what comes after an offset."
run "silt consume customers -e -p 0 -o 1 -f '%t[%p]@%o %k: %S bytes (%h)\\n'"

say "The bytes on disk, which are Kafka's: batches and the records in them, then the indexes."
run "ls silt-data/customers-0"
run "silt dump --files silt-data/customers-0/00000000000000000000.log --print-data-log"
run "silt dump customers --verify-index-only"

say "A mistake is one line that says what to do."
run "silt topics alter customers --config cleanup.polcy=delete || echo \"exit code \$?\""

say "Done: a topic was created, written, read and looked into; its files are removed again."
