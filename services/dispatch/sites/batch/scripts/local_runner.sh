# The local batch system's job: runs in a session of its own, in the attempt's directory. $1 slots, $2 slot locks, $3 the
# batch script. Whoever links `process` first is the one job of its name, also after a submission that was killed half
# way.
stat=$(cat "/proc/$$/stat")
me=$(mktemp process.XXXXXX) || exit 1
slots=$1
locks=$2
script=$3
# Fields after the command's closing bracket begin with the third; the 22nd is the start time.
set -- ${stat##*) }
# On a full disk there is room for a name and none for a line: an empty `process` would keep all others from being the one.
printf '%s %s %s %s\n' "$$" "${20}" "$(cat /proc/sys/kernel/random/boot_id)" "$(uname -n)" >"$me" && sync "$me" &&
    [ -s "$me" ] || { rm -f "$me"; exit 1; }
ln "$me" process 2>/dev/null || { rm -f "$me"; exit 0; }
rm -f "$me"
# The slot's lock is inherited by every process of the job, so it stays taken until the last of them is gone.
if [ "$slots" -eq 1 ]; then
    exec 8>"$locks/slot.1"
    flock -n 8 || { : >waiting; flock 8; }
else
    slot=1
    while :; do
        eval "exec 8>\"\$locks/slot.$slot\""
        flock -n 8 && break
        slot=$((slot % slots + 1))
        [ "$slot" -ne 1 ] || { : >waiting; sleep 0.2; }
    done
fi
rm -f waiting
exec sh "$script"
