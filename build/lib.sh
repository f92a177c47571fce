# Shared by the scripts of this folder: what they say, and how they install what is missing.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

say() { printf '\033[1m%s\033[0m\n' "$*"; }
fail() { printf 'cannot %s\n' "$*" >&2; exit 1; }

# need COMMAND PACKAGE: installs Debian's PACKAGE where COMMAND is missing.
need() {
    command -v "$1" >/dev/null 2>&1 && return
    command -v apt-get >/dev/null 2>&1 || fail "find $1: install it with your package manager"
    local sudo=()
    [ "$(id -u)" = 0 ] || sudo=(sudo)
    say "installing $2 (for $1)"
    if [ -z "${apt_updated:-}" ]; then
        "${sudo[@]}" apt-get update -qq >/dev/null || fail "update the package lists"
        apt_updated=yes
    fi
    DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq "$2" >/dev/null \
        || fail "install $2"
}

# need_rust TARGET [COMPONENT...]: the toolchain itself is not ours to install; a target, the library's source and more are.
need_rust() {
    command -v cargo >/dev/null 2>&1 || fail "find cargo: install Rust with rustup first"
    need cc gcc
    local installed
    installed=$(rustup component list --installed 2>/dev/null) || fail "find rustup: install Rust with rustup first"
    case "$installed" in *"rust-std-$1"*) ;; *) say "installing the Rust target $1"; rustup -q target add "$1" ;; esac
    local component
    for component in rust-src "${@:2}"; do
        case "$installed" in *"$component"*) ;; *) say "installing $component"; rustup -q component add "$component" ;; esac
    done
}

# The machine's own name for an architecture.
host_arch() { uname -m; }

# What build/promises and build/bench measure, and measure with.
bench_tools() {
    need cc gcc
    need openssl openssl
    need python3 python3
    need strace strace
    need unshare util-linux
    need tini-static tini
    build/dist "$(host_arch)" pintle >/dev/null
    build/envoy >/dev/null
    mkdir -p target/bench/scratch
    cc -static -O2 -Wall -Wextra -o target/bench/child build/bench.c
    [ -s target/bench/certificate.pem ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
        -subj "/CN=bench" -keyout /dev/null -out target/bench/certificate.pem 2>/dev/null
}
