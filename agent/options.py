"""Every setting as a flag."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Option:
    """One setting as a flag."""

    flag: str
    metavar: str
    help: str
    key: str = ""
    constant: str = ""
    """What a flag without a value sets its key to."""


OPTIONS: tuple[Option, ...] = (
    Option("--listen", "HOST", "address to listen on (127.0.0.1)"),
    Option("--otlp-port", "PORT", "OTLP/HTTP intake for spans, 0: any free one (4318)"),
    Option("--otlp-grpc-port", "PORT", "OTLP/gRPC intake (4317, or any free one); off: none"),
    Option("--tls-cert", "FILE", "certificate of the intakes, PEM; with --tls-key"),
    Option("--tls-key", "FILE", "its key, PEM"),
    Option("--tls-client-ca", "FILE", "clients need a certificate of this authority"),
    Option("--bearer-token-file", "FILE", "clients need one of these tokens, one a line"),
    Option("--no-redact", "", "forward prompts, SQL literals, log values as they are", "redact", "false"),
    Option("--sample-rest", "SHARE", "of traces neither slow nor failed to keep (1: all)"),
    Option("--sample-wait", "TIME", "how long a trace is held to be judged (5s)"),
    Option("--metrics-port", "PORT", "Prometheus endpoint, 0: any free one (9464)"),
    Option("--forward", "URL", "where enriched spans go: http(s):// or grpc(s)://"),
    Option("--export", "URL", "where metrics go (as --forward); off: nowhere"),
    Option("--compression", "KIND", "gzip or none (gzip, but not to this host)"),
    Option("--headers", "PAIRS", "NAME=VALUE,… for --forward; better in the file or environment"),
    Option("--forward-ca", "FILE", "authority of the back end's certificate (the system's)"),
    Option("--forward-cert", "FILE", "certificate to show to the back end; with --forward-key"),
    Option("--forward-key", "FILE", "its key, PEM"),
    Option("--forward-token-file", "FILE", "bearer token for the back end"),
    Option("--spool-dir", "DIR", "where what cannot be sent waits (the state folder)"),
    Option("--spool-bytes", "BYTES", "of disk for it (256 MB); 0: none"),
    Option("--max-series", "N", "of one metric, the others are one overflow series (2000)"),
    Option("--no-kernel-log", "", "do not forward what the kernel's log says", "kernel_log", "false"),
    Option("--interval", "TIME", "how often signals are read (1s)"),
    Option("--export-interval", "TIME", "how often metrics are pushed (15s)"),
    Option("--deadline", "TIME", "after which a signal counts as hung (5s)"),
    Option("--disable", "NAMES", "signals to leave out, separated by commas"),
    Option("--host-name", "NAME", "name of this node in spans and metrics (the host's)"),
    Option("--path.procfs", "DIR", "where the host's procfs is mounted (/proc)"),
    Option("--path.cgroup", "DIR", "where the host's cgroups are mounted (/sys/fs/cgroup)"),
    Option("--cgroup-depth", "N", "levels of cgroups to read (16)"),
    Option("--cgroup-count", "N", "cgroups to read at most (1000)"),
    Option("--cgroup-match", "GLOBS", "paths of cgroups to read, !GLOB: not those (*)"),
    Option("--disk-exclude", "GLOBS", "disks to leave out (loop*, dm-*, partitions and others)"),
    Option("--network-exclude", "GLOBS", "interfaces to leave out (veth*, docker* and others)"),
    Option("--process-names", "NAMES", "processes to look at beside those that send spans"),
    Option("--log-level", "LEVEL", "debug, info, warning or error (info)"),
    Option("--unprivileged", "", "no probes, and give up every capability", "", "true"),
    Option("--gpu-library", "FILE", "the driver's libnvidia-ml.so.1 (where drivers put it)"),
    Option("--gpu-dcgm", "URL", "dcgm-exporter to read instead of NVML; off: none (port 9400 here)"),
    Option("--no-ebpf", "", "no probes in the kernel", "ebpf_enabled", "false"),
    Option("--ebpf-probes", "NAMES", "probes to run (all)"),
    Option("--ebpf-cuda", "", "let cuda and nccl put uprobes into other processes", "", "true"),
    Option("--ebpf-watch", "PIDS", "processes to watch beside those that send spans"),
    Option("--ebpf-serving", "NAMES", "processes that do the work of others' requests"),
    Option("--ebpf-own-budget", "SHARE", "of a core for the agent, before a probe goes (0.03)"),
    Option("--ebpf-imposed-budget", "SHARE", "of CPU in use, taken by probes (0.01)"),
    Option("--ebpf-memory-budget", "MB", "of agent and probes, and 1 MB more a CPU (96)"),
    Option("--kubelet", "URL", "the kubelet to ask for pods, such as https://NODE:10250 (none)"),
    Option("--kube-token-file", "FILE", "token for the kubelet (the service account's)"),
    Option("--kube-ca-file", "FILE", "CA of the kubelet's certificate (the service account's)"),
    Option("--kube-insecure", "", "trust any certificate of the kubelet", "", "true"),
    Option("--kube-labels", "NAMES", "labels of pods that their spans get (none)"),
    Option("--kube-pod-resources", "SOCKET", "the kubelet's, for GPUs; off: none (its usual place)"),
    Option("--servers", "URLS", "metrics pages of inference servers, [KIND@]URL (none)"),
    Option("--servers-discover", "", "look for servers on loopback and in annotated pods", "", "true"),
    Option("--servers-interval", "TIME", "how often their pages are read (5s)"),
    Option("--servers-slow", "SECONDS", "above which requests are slow (some for each latency)"),
)  # fmt: skip


def given_flags(args: argparse.Namespace) -> dict[str, object]:
    """Return the settings that were given on the command line, by key."""
    keys = (key_of(option) for option in OPTIONS)
    return {key: getattr(args, key) for key in keys if hasattr(args, key)}


def key_of(option: Option) -> str:
    """Return the key that a flag sets."""
    return option.key or option.flag.removeprefix("--").replace("-", "_").replace(".", "_")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add `--config` and a flag for every setting."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings as TOML")
    for option in OPTIONS:
        given: dict[str, Any] = {"metavar": option.metavar}
        if option.constant:
            given = {"action": "store_const", "const": option.constant}
        parser.add_argument(
            option.flag, dest=key_of(option), help=option.help, default=argparse.SUPPRESS, **given
        )
