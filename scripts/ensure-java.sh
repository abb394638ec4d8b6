#!/bin/sh
# Make sure that Java 17 or newer (with javac) and Maven are there.
#
# A real Kafka runs from its published jars: Maven fetches them, java runs them, javac compiles the
# harness that reaches into them. Installs what is missing if it may (root, apt-get), else says what
# to install.
set -eu

needed=17

# "17.0.15" -> 17; "1.8.0_402" -> 1, which is old enough to be refused all the same.
major() {
    sed -n 's/^[^0-9]*\([0-9][0-9]*\).*/\1/p' | head -n 1
}

java_major() {
    # Not the first line: JAVA_TOOL_OPTIONS makes the JVM print a line of its own before it.
    java -version 2>&1 | grep ' version "' | major
}

javac_major() {
    javac -version 2>&1 | grep '^javac ' | major
}

has_jdk() {
    command -v java >/dev/null 2>&1 && command -v javac >/dev/null 2>&1 || return 1
    java=$(java_major || true)
    javac=$(javac_major || true)
    [ "${java:-0}" -ge "$needed" ] && [ "${javac:-0}" -ge "$needed" ]
}

has_maven() {
    command -v mvn >/dev/null 2>&1
}

install_missing() {
    set --
    if ! has_jdk; then
        # Newer releases have dropped 17; their default is newer than that.
        if apt-cache show "openjdk-$needed-jdk-headless" >/dev/null 2>&1; then
            set -- "openjdk-$needed-jdk-headless"
        else
            set -- default-jdk-headless
        fi
    fi
    has_maven || set -- "$@" maven
    echo "java: apt-get install $*"
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

if has_jdk && has_maven; then
    echo "java: Java $java, javac $javac and Maven are there"
    exit 0
fi

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    echo "java: apt-get update"
    # If it fails, the message below still says what is wanted.
    { apt-get update -qq && install_missing; } || echo "java: apt-get failed" >&2
fi

if has_jdk && has_maven; then
    echo "java: Java $java, javac $javac and Maven are there"
    exit 0
fi

{
    echo "java: this needs Java $needed or newer with javac, and Maven:"
    has_jdk || echo "  java or javac is missing from PATH or older than $needed"
    has_maven || echo "  mvn is missing from PATH"
    echo "On Debian or Ubuntu: sudo apt-get install openjdk-$needed-jdk-headless maven"
    echo "(where there is no openjdk-$needed: default-jdk-headless in its place)"
} >&2
exit 1
