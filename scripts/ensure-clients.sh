#!/bin/sh
# Make sure that kcat, Node and npm are there, for the clients of tests/kafka that are not Python's.
#
# Installs what is missing if it may (root, apt-get), else says what to install, and fails.
set -eu

missing() {
    for pair in kcat:kcat node:nodejs npm:npm; do
        command -v "${pair%%:*}" >/dev/null 2>&1 || printf ' %s' "${pair##*:}"
    done
}

packages=$(missing)
[ -z "$packages" ] && exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    echo "clients: apt-get install$packages"
    # Several words on purpose. If it fails, the message below still says what is wanted.
    # shellcheck disable=SC2086
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages >/dev/null; } ||
        echo "clients: apt-get failed" >&2
fi

packages=$(missing)
[ -z "$packages" ] && exit 0

echo "clients: the tests against a real Kafka also run kcat and kafkajs" >&2
echo "On Debian or Ubuntu: sudo apt-get install$packages" >&2
exit 1
