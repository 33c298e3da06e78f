# After tools.sh. $1 work directory, $2 atoll, $3 atoll-trainer, $4 store, $5 batch system, $6 its functions, $7 image or '',
# $8 names that a container's runtime may have, $9… partitions, if all are named. Prints what a login node can tell, a fact
# a line, KEY TAB VALUE, and judges nothing. What may take long is cut short, and the groups run side by side, so that all
# of it takes half a minute at most.
work=$1 atoll=$2 trainer=$3 store=$4 batch=$5 functions=$6 image=$7 runtimes=$8
shift 8
partitions=$*

# $1 key, $2… value, made one line. By the shell alone, as any tool may be missing.
tell() {
    key=$1
    shift
    set -f
    set -- $*
    printf '%s\t%s\n' "$key" "$*"
}

# $1 key: each line of standard input is a value.
tell_lines() {
    while IFS= read -r line || [ -n "$line" ]; do tell "$1" "$line"; done
}

has() { command -v "$1" >/dev/null 2>&1; }

# $1 seconds, $2… a command that may take as long.
limit() {
    if has timeout; then timeout -k 1 "$@"; else shift && "$@"; fi
}

tell clock "$(date +%s)"
tell host "$(uname -n)"
tell machine "$(uname -m)"
tell user "$(id -un)"
tell path "${PATH#"$work/programs:"}"
tell shell "${SHELL-}"
tell cpu_s "$(ulimit -t 2>/dev/null)"
tell memory_kib "$(ulimit -v 2>/dev/null)"

look_for_programs() {
    local=
    [ "$batch" != local ] || local=flock  # for its slots, on one machine
    for tool in $local $tools; do
        has "$tool" || tell missing "$tool"
    done
    ! has stat || stat -L -c '%s %Y %i %Z' / >/dev/null 2>&1 || tell missing "stat -c"
    ! has dd || dd if=/dev/null of=/dev/null bs=1 count=0 conv=notrunc 2>/dev/null || tell missing "dd conv=notrunc"
}

# $1 seconds
tell_queues() {
    if answer=$(limit "$1" sh -c "$functions
queue_limits" 2>&1 </dev/null); then
        printf '%s\n' "$answer" | tell_lines queue
    else
        tell no_limits "${answer:-no answer}"
    fi
}

probe_queues() {
    limit 14 sh -c "$functions
queue_probe" 2>/dev/null </dev/null | tell_lines refused
}

ask_slurm() {
    for tool in sbatch squeue scancel sinfo srun; do has "$tool" || tell no_slurm "$tool"; done
    if ! has sbatch; then
        # Where whoever logs in by hand has it.
        tell login_shell_has "$(limit 5 "${SHELL:-sh}" -lc 'command -v sbatch' 2>/dev/null </dev/null)"
        return
    fi
    tell slurm "$(limit 5 sbatch --version 2>/dev/null </dev/null)"
    # Without its controller squeue needs 19 s to say so.
    begun_s=$(date +%s)
    if ! answer=$(limit 22 squeue --me --states=all --format='%j|%A|%T|%r' 2>&1 </dev/null); then
        printf '%s\n' "${answer:-squeue gave no answer within 22 s}" | tell_lines no_queue
        return
    fi
    took_s=$(($(date +%s) - begun_s))
    if [ "$took_s" -gt 8 ]; then
        tell odd_queue "squeue took $took_s s to answer, and tasks wait for it for 8 s"
        return
    fi
    case "
$answer
" in
        *"
NAME|JOBID|STATE|REASON
"*) ;;
        *)
            tell odd_queue "squeue ignores --format (is it a wrapper?) and prints: $(printf '%s' "$answer" | head -n 1 | head -c 200)"
            return
            ;;
    esac
    limit 5 sacct --allocations --noheader --starttime=now >/dev/null 2>&1 </dev/null
    case $? in 0) tell accounting yes ;; 124 | 137) tell accounting silent ;; esac
    probe_queues &
    probes=$!
    tell_queues 9
    limit 5 srun --mpi=list 2>&1 </dev/null | tell_lines mpi
    wait "$probes"
}

# Of the compute nodes.
ask_machines() {
    limit 8 sh -c "$functions
queue_machines \"\$@\"" sh $partitions 2>/dev/null </dev/null | tell_lines node_machine
}

ask_scheduler() {
    ! has mpirun || tell mpirun "$(command -v mpirun)"
    if [ "$batch" = slurm ]; then ask_slurm; else tell_queues 2; fi
}

# $1 file: the machine that a program is for, as its ELF header numbers it; nothing of a script.
elf_machine() {
    [ "$(dd if="$1" bs=1 skip=1 count=3 2>/dev/null)" = ELF ] || return
    has od && od -An -tu1 -j18 -N1 "$1" 2>/dev/null
}

look_at_image() {
    if [ ! -r "$image" ]; then
        tell no_image "is not there, or cannot be read by $(id -un)"
    elif [ "$(dd if="$image" bs=1 skip=32 count=9 2>/dev/null)" != SIF_MAGIC ]; then
        tell no_image "is no SIF file"
    else
        tell image_machine "$(dd if="$image" bs=1 skip=45 count=2 2>/dev/null)"
    fi
    found=
    for runtime in $runtimes; do
        ! has "$runtime" || found=$runtime
        [ -z "$found" ] || break
    done
    tell runtime "$found"
    # Not hashed here: what a batch job or a staging has found holds while the file is the same.
    { read -r of && read -r digest; } 2>/dev/null <"$work/programs/sha256" || return
    [ "${of#* * * * }" = "$image" ] || return
    tell image_sha256 "$digest"
    [ "$of" = "$(stat -L -c '%s %Y %i %Z' "$image" 2>/dev/null) $image" ] || tell image_changed yes
}

# Of programs that are for another machine nothing is asked.
try_programs() {
    runs=yes
    [ -z "$image" ] || look_at_image
    for program in "$atoll" "$trainer"; do
        path=$(command -v "$program" 2>/dev/null)
        [ -n "$path" ] || { tell no_program "$program"; runs=; continue; }
        tell program "$path"
        [ -n "$image" ] || tell elf "$(elf_machine "$path")"
    done
    if [ -n "$runs" ] && version=$(limit 10 "$atoll" --version 2>&1 </dev/null); then
        tell version "$version"
        limit 8 "$trainer" report 2>/dev/null </dev/null | sed -n 's/.*"devices":\[\([^]]*\)\].*/\1/p' | tr -d '"' |
            tell_lines devices
    else
        [ -z "$runs" ] || tell version_error "$version"
        runs=
    fi
    try_store
}

# An address that is no URL, as a socket, is known to atoll alone.
is_url() {
    case $store in http://* | https://*) ;; *) return 1 ;; esac
}

try_store() {
    if [ -n "$runs" ]; then
        answer=$(limit 12 "$atoll" ping --store "$store" 2>&1 </dev/null)
    elif ! is_url; then
        return
    elif has curl; then
        answer=$(curl -fsS -o /dev/null --max-time 10 ${ATOLL_CA_FILE:+--cacert "$ATOLL_CA_FILE"} "$store/healthz" 2>&1)
    elif has wget; then
        answer=$(wget -q -O /dev/null -T 10 -t 1 ${ATOLL_CA_FILE:+--ca-certificate="$ATOLL_CA_FILE"} "$store/healthz" 2>&1)
    else
        return
    fi
    status=$?
    if [ "$status" -eq 0 ]; then tell store yes; else tell no_store "${answer:-no answer (exit status $status)}"; fi
}

# Kilobytes used and allowed, files used and allowed, as the file system's quota has them.
ask_quota() {
    if has lfs; then
        limit 5 lfs quota -q -u "$(id -un)" "$work" 2>/dev/null </dev/null | tr -d '*\n' |
            awk '$2 ~ /^[0-9]+$/ { print $2, ($4 ? $4 : $3), $6, ($8 ? $8 : $7) }'
    elif has quota; then
        device=$(df -P "$work" | awk 'NR == 2 { print $1 }')
        limit 5 quota -w -p 2>/dev/null </dev/null | tr -d '*' |
            awk -v device="$device" '$1 == device { print $2, ($4 ? $4 : $3), $6, ($8 ? $8 : $7) }'
    fi
}

make_work_dir() {
    [ -z "$has_work_dir" ] || { echo "it was there before; is its file system mounted?"; return 1; }
    mkdir "$work" 2>&1
}

try_work_dir() {
    if [ ! -d "$work" ] && ! why=$(make_work_dir); then
        tell no_work_dir "$why"
        return
    fi
    if ! why=$(mktemp "$work/.atoll-check.XXXXXX" 2>&1); then
        tell no_write "$why"
        return
    fi
    probe=$why
    if ! why=$(head -c 65536 /dev/zero 2>&1 >"$probe"); then
        tell no_write "${why:-no space is left}"
    else
        printf '#!/bin/sh\nexit 0\n' >"$probe"
        chmod 700 "$probe"
        "$probe" 2>/dev/null || tell noexec yes
    fi
    rm -f "$probe"
    # Of checks that nobody has waited for.
    find "$work/tasks" -maxdepth 1 -name 'check-*' -mtime +0 -exec rm -rf {} + 2>/dev/null
    # The oldest first; what is no task's, or no job's, is left out.
    ls -tr "$work/tasks" 2>/dev/null | grep '^[0-9A-Za-z]*$' | head -n 1000 | tell_lines task
    ls -tr "$work/kept" 2>/dev/null | grep '^[0-9A-Za-z]*$' | head -n 1000 | tell_lines kept
    tell space_kib "$(limit 5 df -Pk "$work" | awk 'NR == 2 { print $4 }')"
    tell files_free "$(limit 5 df -Pi "$work" 2>/dev/null | awk 'NR == 2 && $2 > 0 { print $4 }')"
    tell file_system "$(stat -f -c %T "$work" 2>/dev/null)"
    tell quota "$(ask_quota)"
}

look_for_programs
try_work_dir &
groups=$!
ask_scheduler &
groups="$groups $!"
ask_machines &
groups="$groups $!"
try_programs &
wait $groups $!
tell clock "$(date +%s)"
