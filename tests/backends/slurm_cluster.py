"""A real Slurm on this machine for tests: slurmctld and slurmd of the distribution's packages.

They are taken from the PATH, or from the folder $GSOLVE_SLURM_ROOT into which the packages were
unpacked:

    apt-get download slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libmunge2 \\
        libhwloc15 libjson-c5 libhttp-parser2.9 libjwt0 libyaml-0-2 liblua5.3-0 libjansson4
    for deb in *.deb; do dpkg -x "$deb" root; done
    GSOLVE_SLURM_ROOT=$PWD/root make test-services
"""

import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")
# cred_expire is also how long Slurm keeps a requeued job back; by default two minutes.
CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
{plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,sched_min_interval=0
KillWait=20
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=8000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@dataclass
class Cluster:
    folder: Path
    env: dict[str, str]
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def command(self, *words: str) -> str:
        done = subprocess.run(
            words, env=self.env, capture_output=True, text=True, timeout=30, check=True
        )
        return done.stdout

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def why_missing() -> str | None:
    """Why no Slurm can be started here; None if it can."""
    if _program("slurmctld") is None or _program("slurmd") is None:
        return "slurmctld and slurmd are not installed (or unpacked in $GSOLVE_SLURM_ROOT)"
    return None


def _root() -> Path | None:
    root = os.environ.get("GSOLVE_SLURM_ROOT")
    return Path(root) if root else None


def _program(name: str) -> str | None:
    root = _root()
    if root is not None:
        for path in (root / f"usr/sbin/{name}-wlm", root / f"usr/sbin/{name}"):
            if path.exists():
                return str(path)
    return shutil.which(name) or shutil.which(f"{name}-wlm")


def start(folder: Path) -> Cluster:
    """Start a controller and one node."""
    env, plugins, root = dict(os.environ), "", _root()
    if root is not None:
        libraries = next((root / "usr/lib").glob("*-linux-gnu"))
        plugins = f"PluginDir={libraries}/slurm-wlm"
        found = f"{libraries}:{libraries}/slurm-wlm"
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        for name in COMMANDS:  # with the libraries for these programs only
            script = bin_folder / name
            script.write_text(
                f'#!/bin/sh\nLD_LIBRARY_PATH={found} exec {root}/usr/bin/{name} "$@"\n'
            )
            script.chmod(0o755)
        env["PATH"] = f"{bin_folder}:{env['PATH']}"
    daemon_env = {**env, "LD_LIBRARY_PATH": found} if root is not None else env
    for name in ("state", "spool"):
        (folder / name).mkdir()
    conf = folder / "slurm.conf"
    host = socket.gethostname().partition(".")[0]
    text = CONF.format(
        host=host, user=_user(), plugins=plugins, folder=folder, ports=_ports(),
        cpus=os.cpu_count(),
    )  # fmt: skip
    conf.write_text(text)
    env["SLURM_CONF"] = daemon_env["SLURM_CONF"] = str(conf)
    cluster = Cluster(folder, env)
    log = (folder / "daemons.log").open("wb")
    stepd = _program("slurmstepd")
    words = [str(_program("slurmd")), "-D", "-N", host, *(["-d", stepd] if stepd else [])]
    for argv in ([str(_program("slurmctld")), "-D", "-c"], words):
        cluster.processes.append(
            subprocess.Popen(argv, env=daemon_env, stdout=log, stderr=subprocess.STDOUT)
        )
        time.sleep(1.0)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if "idle" in cluster.command("sinfo", "-h", "-o", "%T"):
                return cluster
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            pass
        time.sleep(0.5)
    cluster.stop()
    raise RuntimeError((folder / "daemons.log").read_text()[-2000:])


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def _ports() -> tuple[int, int]:
    sockets = [socket.socket() for _ in range(2)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports[0], ports[1]
