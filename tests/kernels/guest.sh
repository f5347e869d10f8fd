#!/bin/bash
# Runs as root inside the emulated kernel, started by run.py:  guest.sh SHARE
# SHARE/settings holds arrays: repo, python, modules (a root for modprobe -d), tests, tests_without_btf, pytest_arguments.
# Writes SHARE/log and SHARE/exit: 0, 1 when a test failed, 3 when there was no testing.
#
# The machine's root arrives read-only over 9p, uncached. It is mounted a second time with a cache and put under an
# overlay on a scratch disk, so that Python starts in seconds, tests may write, and block I/O is real.
set -u
share=$1
exec >>"$share/log" 2>&1
finish() { echo "$1" >"$share/exit"; exit 0; }
step() { "$@" || { echo "guest: failed: $*"; finish 3; }; }
# shellcheck disable=SC1091
. "$share/settings"

for module in virtio_blk ext4 overlay 9pnet_virtio loop nf_tables veth; do
    modprobe -q -d "$modules" "$module" || true # built in, or not needed by these tests
done
disk=/run/scratch root=/run/root host=/run/host
step mkdir -p $disk $root $host
step mkfs.ext4 -q -F /dev/vda
step mount /dev/vda $disk
step mount -t 9p -o trans=virtio,version=9p2000.L,cache=loose,ro,msize=512000 tailcause $host
step mkdir -p $disk/upper $disk/work $disk/tmp
step chmod 1777 $disk/tmp
step mount -t overlay -o "lowerdir=$host,upperdir=$disk/upper,workdir=$disk/work,xino=off" root $root
for tree in proc sys dev; do step mount --rbind /$tree $root/$tree; done
step mount -t tmpfs run $root/run
step mkdir -p $root/run/tmp $root/lib/modules # /tmp stays the host's: the checkout may lie there
step mount --bind $disk/tmp $root/run/tmp
step mount -t tmpfs modules $root/lib/modules
ln -s "$modules/lib/modules/$(uname -r)" "$root/lib/modules/$(uname -r)"
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control || true
done

run() { # run NAME TEST…: pytest inside the overlay; the root's own path and interpreter are those of the host
    local name=$1
    shift
    echo "== $name: Linux $(uname -r)"
    chroot $root /usr/bin/env -C "$repo" HOME=/run/tmp TMPDIR=/run/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 TAILCAUSE_TIMING=loose TAILCAUSE_NO_APT=1 PIP_NO_INDEX=1 COLUMNS=120 \
        "$python" -m pytest -v -m privileged -p no:cacheprovider -o timeout=200 "${pytest_arguments[@]}" "$@" || status=1
}

status=0
run "with BTF" "${tests[@]}"
if ((${#tests_without_btf[@]})); then
    step mkdir -p /run/empty
    step mount --bind /run/empty $root/sys/kernel/btf
    run "without BTF: the bcc loader" "${tests_without_btf[@]}"
fi
finish $status
