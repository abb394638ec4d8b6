#!/bin/sh
# Make sure that Java 17 or newer is there; with "build" as argument, javac and Maven too.
#
# Spark needs Java to run. A real Kafka, for tests/kafka, also needs Maven to fetch its published jars
# and javac to compile the harness that reaches into them. Installs what is missing if it may (root,
# apt-get), else says what to install.
set -eu

needed=17
purpose=${1:-run}

# "17.0.15" -> 17; "1.8.0_402" -> 1, which is old enough to be refused all the same.
major() {
    sed -n 's/^[^0-9]*\([0-9][0-9]*\).*/\1/p' | head -n 1
}

has_java() {
    command -v java >/dev/null 2>&1 || return 1
    # Not the first line: JAVA_TOOL_OPTIONS makes the JVM print a line of its own before it.
    java=$(java -version 2>&1 | grep ' version "' | major || true)
    [ "${java:-0}" -ge "$needed" ] || return 1
    [ "$purpose" != build ] && return 0
    command -v javac >/dev/null 2>&1 || return 1
    javac=$(javac -version 2>&1 | grep '^javac ' | major || true)
    [ "${javac:-0}" -ge "$needed" ]
}

has_maven() {
    [ "$purpose" != build ] || command -v mvn >/dev/null 2>&1
}

kind=jre
[ "$purpose" = build ] && kind=jdk

install_missing() {
    set --
    if ! has_java; then
        # Newer releases have dropped 17; their default is newer than that.
        if apt-cache show "openjdk-$needed-$kind-headless" >/dev/null 2>&1; then
            set -- "openjdk-$needed-$kind-headless"
        else
            set -- "default-$kind-headless"
        fi
    fi
    has_maven || set -- "$@" maven
    echo "java: apt-get install $*"
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

if has_java && has_maven; then
    exit 0
fi

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    echo "java: apt-get update"
    # If it fails, the message below still says what is wanted.
    { apt-get update -qq && install_missing; } || echo "java: apt-get failed" >&2
fi

if has_java && has_maven; then
    exit 0
fi

{
    echo "java: Java $needed or newer is needed$([ "$purpose" = build ] && echo ", with javac, and Maven")"
    packages="openjdk-$needed-$kind-headless"
    has_maven || packages="$packages maven"
    echo "On Debian or Ubuntu: sudo apt-get install $packages"
    echo "(where there is no openjdk-$needed: default-$kind-headless in its place)"
} >&2
exit 1
