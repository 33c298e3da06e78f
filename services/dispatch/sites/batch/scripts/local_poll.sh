# Arguments: directories of attempts. Prints for each: queued, running or absent. Exit 75: not known, as where the whole
# file system is away.
boot=$(cat /proc/sys/kernel/random/boot_id)
for directory; do
    [ -d "${directory%/*/*}" ] || exit 75
    state=absent
    if [ -s "$directory/jobid" ]; then
        read -r pid start job_boot <"$directory/jobid"
        if [ "$job_boot" = "$boot" ] && stat=$(cat "/proc/$pid/stat" 2>/dev/null); then
            set -- ${stat##*) }
            # Z: it ended and nobody has read its exit status yet.
            if [ "${20}" = "$start" ] && [ "$1" != Z ]; then
                state=queued
                [ ! -e "$directory/started" ] || state=running
            fi
        fi
    fi
    echo "$state"
done
