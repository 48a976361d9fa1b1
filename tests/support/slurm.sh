#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# slurm.sh DIRECTORY COMMAND...: runs a command in a Slurm of its own, of two nodes that are both this machine, with
# their daemons, keys and files in DIRECTORY. The daemons have namespaces of their own for processes, the network and
# the machine's name: they disturb no other Slurm, and are gone when the command ends, or whoever started this.
# Exit code: that of the command; 77, with the reason on standard output, where Slurm cannot run here.
set -euo pipefail

skip() {
  echo "slurm: $*"
  exit 77
}

if [[ ${1:-} != --inside ]]; then
  for program in munged mungekey slurmctld slurmd srun ip; do
    PATH=$PATH:/usr/sbin command -v "$program" > /dev/null ||
      skip "$program is not installed (Debian's packages slurm-wlm, munge and iproute2)"
  done
  ((EUID == 0)) || skip "its daemons need root here"
  apart=(unshare --net --uts --mount --pid --fork --kill-child --mount-proc)
  "${apart[@]}" ip link add eth0 type bridge 2> /dev/null || skip "this system makes no namespaces for it"
  exec setpriv --pdeathsig KILL "${apart[@]}" bash "$0" --inside "$@"
fi
shift
export PATH=$PATH:/usr/sbin
directory=$(realpath "$1")
shift

# Names are resolved only where an interface beside the loopback one has an address.
ip link set lo up
ip link add eth0 type bridge
ip addr add 10.78.0.1/24 dev eth0
ip link set eth0 up
hostname strata-slurm
mkdir -p "$directory"/{controller,node0,node1}
# The socket's path must be short.
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/munge
mungekey --create --keyfile "$directory/key"
export SLURM_CONF=$directory/slurm.conf
cat > "$SLURM_CONF" << END
ClusterName=strata
SlurmctldHost=strata-slurm(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=/run/munge/socket
SlurmUser=root
SlurmctldPidFile=$directory/controller/pid
SlurmctldLogFile=$directory/controller/log
StateSaveLocation=$directory/controller
SlurmdPidFile=$directory/%n/pid
SlurmdLogFile=$directory/%n/log
SlurmdSpoolDir=$directory/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/linear
ReturnToService=2
NodeName=node0 NodeHostname=strata-slurm NodeAddr=127.0.0.1 Port=6820 CPUs=2 State=UNKNOWN
NodeName=node1 NodeHostname=strata-slurm NodeAddr=127.0.0.1 Port=6821 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
END

# Some systems have directories above this one that others may write to, which munged refuses.
munged --force --foreground --socket /run/munge/socket --key-file "$directory/key" --pid-file "$directory/munged-pid" \
  --log-file "$directory/munged-log" --seed-file "$directory/seed" 2> "$directory/munged" &
slurmctld -D > "$directory/controller/said" 2>&1 &
for node in node0 node1; do slurmd -D -N "$node" > "$directory/$node/said" 2>&1 & done

while ((SECONDS < 30)); do
  if [[ $(timeout 5 sinfo --noheader --format %T%D 2> /dev/null) == idle2 ]]; then exec "$@"; fi
  sleep 0.1
done
for file in "$directory"/munged "$directory"/*/said; do tail -n 5 "$file" >&2; done
echo "slurm: its nodes did not come up in 30 s" >&2
exit 1
