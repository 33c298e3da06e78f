#!/usr/bin/env bash
# A Slurm cluster on this machine's loopback, as a site has one: a login node (sshd), a controller, compute nodes, a user
# of its own. For tests; needs root and the Debian packages slurm-wlm, munge and openssh-server.
#
#   cluster.sh up NAME --port P [--nodes N] [--logins N] [--sacct] [--preempt] [--memory] [--gpus N]   starts what does not run
#   cluster.sh down NAME       ends it, its files stay
#   cluster.sh purge NAME      and removes files and user
#
# Uses ports P (login node), P+1 (controller), P+2 (second login node), P+3 (accounting), P+11… (compute nodes).
# --logins 2   a second login node, which sees no process of the first, as behind a name that stands for several
# --sacct      accounting with slurmdbd (packages.txt); ended jobs are soon
#              forgotten by the controller
# --preempt    jobs of partition "urgent" take nodes from those of "main", which are requeued
# --memory     the kernel holds each job to the memory that it asks for; needs cgroups of version 1
# --gpus N     each node says that it has N GPUs; there is no device behind them
#
# Files are below $ATOLL_CLUSTERS (/var/tmp/atoll-clusters): NAME/ssh/config for `ssh -F … NAME`, NAME/ssh/authority, which
# signs the certificates that sshd takes as well as the user's key, NAME/scratch for the user, NAME/log, NAME/run with the process ids. No systemd, and no cgroups but with --memory.
set -euo pipefail

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
fail() { printf 'cluster.sh: %s\n' "$*" >&2; exit 1; }
[ $# -ge 2 ] || usage
action=$1 name=$2
shift 2
[[ $name =~ ^[a-z][a-z0-9]{0,15}$ ]] || fail "a cluster's name has up to 16 lower-case letters and digits, got '$name'"
[ "$(id -u)" = 0 ] || fail "needs root: it makes a user, and its nodes run jobs as that user"
root=${ATOLL_CLUSTERS:-/var/tmp/atoll-clusters}/$name
user=atoll-$name
host=$(hostname -s)
export SLURM_CONF=$root/etc/slurm.conf

port=0 nodes=2 logins=1 sacct='' preempt='' memory='' gpus=0
while [ $# -gt 0 ]; do
    case $1 in
        --port | --nodes | --logins | --gpus) [[ ${2-} =~ ^[0-9]+$ ]] || usage && declare "${1#--}=$2" && shift ;;
        --sacct | --preempt | --memory) declare "${1#--}=yes" ;;
        *) usage ;;
    esac
    shift
done

is_running() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }
await() { # SECONDS WHAT COMMAND…
    local deadline=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || fail "$what did not start; see $root/log"
        sleep 0.1
    done
}

make_user() {
    id "$user" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$user"
    usermod --password '*' "$user" # no password, but not locked: sshd refuses '!'
    mkdir -p "$root"/{etc,state,log,run,munge,ssh,scratch,pmix,sql}
    chmod 755 "$root" "$root"/{etc,munge,ssh}
    chown "$user:" "$root/scratch"
}

node_lines() {
    local i gres=''
    ((gpus == 0)) || gres=" Gres=gpu:$gpus"
    for ((i = 1; i <= nodes; ++i)); do
        echo "NodeName=$name-n$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 10 + i)) CPUs=4 RealMemory=4000$gres State=UNKNOWN"
    done
}

write_slurm_conf() {
    {
        cat <<CONF
ClusterName=$name
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$((port + 1))
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$root/munge/sock
CredType=cred/munge
StateSaveLocation=$root/state
SlurmdSpoolDir=$root/spool.%n
SlurmctldPidFile=$root/run/slurmctld.pid
SlurmdPidFile=$root/run/slurmd.%n.pid
SlurmctldLogFile=$root/log/slurmctld.log
SlurmdLogFile=$root/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/$([ -n "$memory" ] && echo cgroup || echo none)
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc=$root/log/jobcomp.txt
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
MessageTimeout=10
SlurmctldTimeout=10
SlurmdTimeout=60
MinJobAge=$([ -n "$sacct" ] && echo 2 || echo 300)
KillWait=10
JobRequeue=1
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,sched_min_interval=0,batch_sched_delay=0
CONF
        [ -z "$sacct" ] || cat <<CONF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((port + 3))
AccountingStoragePass=$root/munge/sock
AccountingStoreFlags=job_comment
CONF
        [ -z "$preempt" ] || printf 'PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n'
        ((gpus == 0)) || echo GresTypes=gpu
        node_lines
        echo "PartitionName=main Nodes=ALL Default=YES MaxTime=60 DefaultTime=10 PriorityTier=1 State=UP"
        echo "PartitionName=short Nodes=ALL MaxTime=5 DefaultTime=2 PriorityTier=1 State=UP"
        [ -z "$preempt" ] || echo "PartitionName=urgent Nodes=ALL MaxTime=60 PriorityTier=10 State=UP"
    } >"$SLURM_CONF"
    echo "PMIxCliTmpDirBase=$root/pmix" >"$root/etc/mpi.conf"
    [ -z "$memory" ] || printf 'CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\n' >"$root/etc/cgroup.conf"
    ((gpus == 0)) || {
        for ((i = 0; i < gpus; ++i)); do : >"$root/etc/gpu$i"; done
        echo "Name=gpu File=$root/etc/gpu[0-$((gpus - 1))]" >"$root/etc/gres.conf"
    }
}

start_munge() {
    ! is_running "$root/munge/pid" || return 0
    [ -s "$root/munge/key" ] || dd if=/dev/urandom of="$root/munge/key" bs=1024 count=1 status=none
    chown -R munge:munge "$root/munge"
    chmod 400 "$root/munge/key"
    (cd / && setsid -f setpriv --reuid=munge --regid=munge --clear-groups /usr/sbin/munged --force \
        --key-file="$root/munge/key" --socket="$root/munge/sock" --pid-file="$root/munge/pid" \
        --log-file="$root/munge/log" --seed-file="$root/munge/seed" --num-threads=2)
    await 60 munged munge -S "$root/munge/sock" -n
}

start_accounting() {
    if ! is_running "$root/run/mariadbd.pid"; then
        [ -d "$root/sql/mysql" ] || {
            chown mysql: "$root/sql"
            mariadb-install-db --no-defaults --user=mysql --datadir="$root/sql" >"$root/log/mariadb.log" 2>&1
        }
        (cd / && setsid -f mariadbd --no-defaults --user=mysql --datadir="$root/sql" --socket="$root/sql/sock" \
            --pid-file="$root/sql/pid" --skip-networking --innodb-buffer-pool-size=64M >>"$root/log/mariadb.log" 2>&1)
        await 60 mariadbd mariadb-admin --no-defaults -S "$root/sql/sock" ping
        cp "$root/sql/pid" "$root/run/mariadbd.pid"
    fi
    is_running "$root/run/slurmdbd.pid" && return 0
    cat >"$root/etc/slurmdbd.conf" <<CONF
AuthType=auth/munge
AuthInfo=socket=$root/munge/sock
DbdHost=$host
DbdAddr=127.0.0.1
DbdPort=$((port + 3))
SlurmUser=root
LogFile=$root/log/slurmdbd.log
PidFile=$root/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct
CONF
    chmod 600 "$root/etc/slurmdbd.conf"
    (cd / && MYSQL_UNIX_PORT=$root/sql/sock SLURM_CONF=$root/etc/slurmdbd.conf \
        setsid -f /usr/sbin/slurmdbd)
    await 120 slurmdbd sacctmgr -n show cluster
    sacctmgr -i add cluster "$name" >/dev/null || true
    sacctmgr -i add account atoll >/dev/null || true
    sacctmgr -i add user "$user" account=atoll >/dev/null || true
}

start_nodes() {
    local i
    is_running "$root/run/slurmctld.pid" || /usr/sbin/slurmctld -i -f "$SLURM_CONF"
    for ((i = 1; i <= nodes; ++i)); do
        ! is_running "$root/run/slurmd.$name-n$i.pid" || continue
        mkdir -p "$root/spool.$name-n$i"
        # A /tmp for PMIx of its own: nodes of one machine would meet in /tmp/spmix_appdir_*.
        unshare --mount --propagation private sh -c \
            "mount -t tmpfs -o mode=1777 tmpfs '$root/pmix' && exec /usr/sbin/slurmd -f '$SLURM_CONF' -N '$name-n$i'"
    done
}

start_logins() {
    local i login_port
    [ -s "$root/ssh/host_key" ] || ssh-keygen -q -t ed25519 -N '' -C "$name" -f "$root/ssh/host_key"
    [ -s "$root/ssh/user_key" ] || ssh-keygen -q -t ed25519 -N '' -C "$user" -f "$root/ssh/user_key"
    [ -s "$root/ssh/authority" ] || ssh-keygen -q -t ed25519 -N '' -C "$name" -f "$root/ssh/authority"
    install -m 644 "$root/ssh/user_key.pub" "$root/ssh/authorized_keys"
    mkdir -p /run/sshd
    for ((i = 1; i <= logins; ++i)); do
        login_port=$((i == 1 ? port : port + 2))
        cat >"$root/ssh/sshd_config.$i" <<CONF
ListenAddress 127.0.0.1:$login_port
HostKey $root/ssh/host_key
PidFile $root/run/sshd.$i.pid
AuthorizedKeysFile $root/ssh/authorized_keys
TrustedUserCAKeys $root/ssh/authority.pub
AllowUsers $user
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
SetEnv SLURM_CONF=$SLURM_CONF
Subsystem sftp internal-sftp
MaxSessions 10
MaxStartups 10:30:60
LogLevel VERBOSE
CONF
        ! is_running "$root/run/sshd.$i.pid" || continue
        rm -f "$root/run/sshd.$i.pid"
        if ((i == 1)); then
            /usr/sbin/sshd -f "$root/ssh/sshd_config.1" -E "$root/log/sshd.1.log"
            # It goes to the background before it listens, and writes its number after that.
            await 60 sshd test -s "$root/run/sshd.1.pid"
        else
            setsid -f unshare --uts --pid --fork --mount-proc sh -c "hostname '$name-login2' && echo \$\$ >/dev/null &&
                exec /usr/sbin/sshd -D -f '$root/ssh/sshd_config.2' -E '$root/log/sshd.2.log'" >/dev/null 2>&1 </dev/null
            await 60 "the second sshd" test -s "$root/run/sshd.2.pid"
            # Its own word is the number that it has in its namespace.
            pgrep -f "sshd -D -f $root/ssh/sshd_config.2" | head -n 1 >"$root/run/sshd.2.pid" || true
        fi
    done
    {
        for ((i = 1; i <= logins; ++i)); do
            printf '[127.0.0.1]:%s %s\n' $((i == 1 ? port : port + 2)) "$(cut -d' ' -f1,2 "$root/ssh/host_key.pub")"
        done
    } >"$root/ssh/known_hosts"
    cat >"$root/ssh/config" <<CONF
Host $name ${name}2
  HostName 127.0.0.1
  User $user
  IdentityFile $root/ssh/user_key
  IdentitiesOnly yes
  UserKnownHostsFile $root/ssh/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
Host $name
  Port $port
Host ${name}2
  Port $((port + 2))
CONF
}

idle_nodes() { [ "$(sinfo -h -N -p main -t idle,mix,alloc -o %N 2>/dev/null | sort -u | wc -l)" = "$nodes" ]; }

up() {
    ((port > 0)) || usage
    make_user
    write_slurm_conf
    start_munge
    [ -z "$sacct" ] || start_accounting
    start_nodes
    start_logins
    await 120 "a compute node" idle_nodes
}

down() {
    local file pids=()
    scancel --user="$user" 2>/dev/null || true # its processes end with the jobs
    for file in "$root"/run/*.pid "$root/munge/pid"; do
        ! is_running "$file" || pids+=("$(cat "$file")")
    done
    ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null || true
    for pid in "${pids[@]}"; do
        for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null && sleep 0.1 || break; done
    done
    rm -f "$root"/run/*.pid
}

case $action in
    up) up ;;
    down) down ;;
    purge)
        down
        # A test's small disk, and what it bound over a program.
        awk -v below="$root/" 'index($2, below) == 1 { print $2 }' /proc/mounts | tac |
            while read -r mount; do umount "$mount"; done
        rm -rf "$root"
        find /sys/fs/cgroup -depth -type d -path "*/slurm_$name-n*" -exec rmdir {} + 2>/dev/null || true
        userdel --remove "$user" 2>/dev/null || true
        ;;
    *) usage ;;
esac
