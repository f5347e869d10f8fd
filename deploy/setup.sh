#!/usr/bin/env bash
# Sets up .venv for the extras given as first argument ("agent,detector,workload").
#
#   bash deploy/setup.sh EXTRAS
#
# PYTHON=...            the interpreter to use (default: python3, else python3.14 … python3.11, whichever is 3.11 or newer)
# TAILCAUSE_NO_APT=1    install no system package, even as root
#
# Nothing is done twice: a stamp in .venv holds the extras and the hash of pyproject.toml, and the compiled probes
# carry the hash of their sources.
set -euo pipefail
cd "$(dirname "$0")/.."

extras=${1:?usage: setup.sh EXTRAS}
log() { printf '%s\n' "setup: $*" >&2; }
die() { printf '%s\n' "setup: $*" >&2; exit 2; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s' "$candidate"
            return
        fi
    done
    die "no Python 3.11 or newer found; install it (Debian 12+, Ubuntu 24.04+: apt-get install python3) or set PYTHON"
}

missing_of() { # print those of the given Debian packages that are not installed
    local package
    for package; do
        [[ $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) == *" installed" ]] || printf '%s ' "$package"
    done
}

apt_install() ( # what this distribution has of the given packages; exit 1, with the log kept, when it does not work
    policy=/usr/sbin/policy-rc.d
    if [[ ! -e $policy ]]; then # Debian asks it whether a package may start its service: none of these may
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
    fi
    {
        apt-get update
        mapfile -t known < <(apt-cache policy "$@" | awk '/^[^ ]/ {name = $1} /Candidate: [^(]/ {sub(":$", "", name); print name}')
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${known[@]}"
    } >.setup-apt.log 2>&1 && rm -f .setup-apt.log
)

# What cannot be done without: named, and installed by root.
install_needed_packages() {
    "$python" -c 'import ensurepip, venv' 2>/dev/null && return
    local how="apt-get install -y --no-install-recommends python3-venv"
    if [[ -n ${TAILCAUSE_NO_APT:-} ]]; then die "python3-venv is missing (TAILCAUSE_NO_APT is set): run  $how"; fi
    if ((EUID != 0)); then die "python3-venv is missing: run  sudo $how"; fi
    command -v apt-get >/dev/null || die "Python's venv module is missing (no apt-get here; install its counterpart)"
    log "installing system packages: python3-venv"
    apt_install python3-venv || die "apt-get failed; its output is in .setup-apt.log"
}

# What compiles and proves the eBPF probes: without it the product works, and says what it lost.
install_optional_packages() {
    command -v dpkg-query >/dev/null || return 0
    local packages=(clang libbpf-dev) missing
    if [[ ,$extras, == *,dev,* ]]; then # the tests' peers, tools and second kernel
        packages+=(bpftool busybox-static clang-format e2fsprogs gcc iproute2 kmod libbpf-tools libcap2-bin
            linux-headers-amd64 linux-perf nftables openssl postgresql prometheus python3-bpfcc qemu-system-x86
            redis-server systemd)
    fi
    read -ra missing <<<"$(missing_of "${packages[@]}")"
    ((${#missing[@]})) || return 0
    if ((EUID != 0)) || [[ -n ${TAILCAUSE_NO_APT:-} ]]; then
        log "no eBPF probes without: ${missing[*]}  (sudo apt-get install ${missing[*]})"
        return 0
    fi
    log "installing system packages: ${missing[*]}"
    apt_install "${missing[@]}" || log "apt-get failed (see .setup-apt.log): going on without eBPF probes"
}

wanted() { # exit 0 when the stamp covers every extra for this pyproject.toml
    local extra
    [[ -x .venv/bin/python && -f $stamp ]] || return 1
    for extra in ${extras//,/ }; do grep -qx "$extra $hash" "$stamp" || return 1; done
}

install_packages() { # one line of progress from pip's own output
    local out=.venv/pip.log
    if ! .venv/bin/python -m pip install --no-input --disable-pip-version-check -e ".[$extras]" 2>&1 |
        tee "$out" | show_progress; then
        tail -n 5 "$out" >&2
        die "pip failed; all of its output is in $out"
    fi
}

show_progress() {
    local line count=0 shown
    while IFS= read -r line; do
        case $line in
            Collecting\ *) count=$((count + 1)); shown="fetching ${line#Collecting }" ;;
            Installing\ collected*) shown="installing $count packages (about a minute)" ;;
            *) continue ;;
        esac
        if [[ -t 2 ]]; then printf '\r\033[Ksetup: [%d] %s' "$count" "${shown:0:60}" >&2
        elif [[ $shown == inst* ]] || ((count % 10 == 1)); then log "[$count] $shown"; fi
    done
    if [[ -t 2 ]]; then printf '\r\033[K' >&2; fi
}

stamp=.venv/tailcause-extras
hash=$(sha256sum pyproject.toml | cut -c1-16)
if wanted; then
    .venv/bin/python -m ebpf.build --quiet # a hash of the sources when nothing has changed
    exit 0
fi

python=$(find_python)
install_needed_packages
install_optional_packages
began=$SECONDS
[[ -x .venv/bin/python ]] || { log "creating .venv with $("$python" --version)"; "$python" -m venv .venv; }
log "installing the extras $extras (a few minutes on a fresh machine, no torch)"
install_packages
.venv/bin/python -m ebpf.build --quiet
for extra in ${extras//,/ }; do printf '%s %s\n' "$extra" "$hash"; done >>"$stamp"
log "ready after $((SECONDS - began)) s"
