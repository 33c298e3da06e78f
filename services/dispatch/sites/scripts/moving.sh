# Functions of the verbs that move data. Such work runs detached, in a session of its own, and is looked at: no script is
# waited for longer than some seconds. It holds a claim, a directory (not every Lustre has flock), with
#   owner     the machine, its start, the process, the process's start
#   for       whom it was begun for
#   alive     a heartbeat: its time is what counts
#   progress  bytes moved and bytes in all, where that is known
#   out, err  what was printed
#   status    the exit status, once it has ended
# Where there is no status and the owner does not live, it was killed. Were two to run at once they would do one thing
# twice. $mover is the text of the script that does the work.
# Nobody can tell the name that a file or a directory has on its way: mktemp makes it, or names the place of what is moved
# as a whole (-u), for which also a full disk has room. Only in a claim, which nobody else enters, files have fixed names.
machine="$(uname -n) $(cat /proc/sys/kernel/random/boot_id)"
moving=
ticks=0

# $1 process: prints it as an owner is written. Z: it ended and nobody has read its exit status yet.
owner_of() {
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    set -- "$1" ${stat##*) }
    [ "$2" != Z ] || return 1
    echo "$machine $1 ${21}"
}

# $1 claim or lock, $2 a file in it that is touched while it is held: whether $owner lives. Of another machine only that
# file tells, by the file system's clock.
owner_lives() {
    if [ "${owner%% *}" = "${machine%% *}" ]; then
        process=${owner% *}
        [ "$(owner_of "${process##* }")" = "$owner" ]
        return
    fi
    asked_s=
    asked=$(mktemp "$1.asked.XXXXXX") && asked_s=$(stat -c %Y "$asked")
    rm -f "$asked"
    beat_s=$(stat -c %Y "$2" 2>/dev/null) && [ -n "$asked_s" ] && [ "$((asked_s - beat_s))" -lt 120 ]
}

# $1 claim: whether its owner, $owner, lives; 2: there is none.
lives() {
    [ -d "$1" ] || return 2
    owner=$(cat "$1/owner" 2>/dev/null)
    beat_file=$1/alive
    [ -e "$beat_file" ] || beat_file=$1
    owner_lives "$1" "$beat_file"
}

# $1 claim: ends what runs under it, at once on this machine and within seconds on another, and takes it away.
drop() {
    lives "$1" && [ "${owner%% *}" = "${machine%% *}" ] && kill -9 "-${process##* }" 2>/dev/null
    gone=$(mktemp -u "$1.gone.XXXXXX")
    mv -T "$1" "$gone" 2>/dev/null && rm -rf "$gone"
    return 0
}

# $1 claim: takes away what $owner has left, who lives no more.
bury() {
    gone=$(mktemp -u "$1.gone.XXXXXX")
    mv -T "$1" "$gone" 2>/dev/null || return 0
    if [ "$(cat "$gone/owner" 2>/dev/null)" = "$owner" ]; then
        rm -rf "$gone"
    else
        mv -T "$gone" "$1"  # it has another owner by now
    fi
}

# $1 lock: for some milliseconds. It is a directory with one file, named as its owner. One with that file already in it
# is moved to its place, which fails where another lies that is not empty; so nobody ever sees a lock without an owner,
# and who removes the file of an owner who lives no more removes no other's.
lock() {
    tries=0 locker=$(owner_of $$)
    locking=$(mktemp -d "$1.XXXXXX") || return 1
    true >"$locking/$locker" || { rm -rf "$locking"; return 1; }
    until mv -T "$locking" "$1" 2>/dev/null; do
        for held in "$1"/*; do
            owner=${held##*/}
            [ ! -e "$held" ] || owner_lives "$1" "$held" || rm -f "$held"
        done
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || { rm -rf "$locking"; return 1; }
        sleep 0.05
    done
}

unlock() {
    rm -f "$1/$locker"
    rmdir "$1" 2>/dev/null
    return 0
}

# For the mover alone. $1 claim, $2 for whom: takes it, a new directory of mode 0700, and keeps its heart beating. Whoever
# has lost it is killed with all that it has started.
claim() {
    mkdir -m 700 "$1" 2>/dev/null || return 1
    me=$(owner_of $$)
    { printf '%s\n' "$2" >"$1/for" && : >"$1/alive" && printf '%s\n' "$me" >"$1/owner"; } 2>/dev/null || {
        rm -rf "$1"
        return 1
    }
    (
        while sleep 1 && kill -0 $$ && [ "$(cat "$1/owner")" = "$me" ]; do : >"$1/alive"; done
        kill -9 0
    ) >/dev/null 2>&1 &
    beat=$!
}

still() {
    kill "$beat" 2>/dev/null
    wait "$beat" 2>/dev/null
}

# $1 claim, $2 exit status: it has ended and can be read.
end() {
    still
    printf '%s\n' "$2" >"$1/status.new" && mv "$1/status.new" "$1/status"
}

# Says that work has ended without a status, and whether its claim's place has room for one.
tell_lost() {
    room=$({ probe=$(mktemp "$claim.room.XXXXXX") && head -c 65536 /dev/zero >"$probe"; } 2>&1) || {
        rm -f "$claim".room.*
        echo "it has ended without a word: $room" >&2
        return
    }
    rm -f "$claim".room.*
    free_mib=$(($(stat -f -c '%a*%S/1048576' . 2>/dev/null || echo 0)))
    echo "it has ended without a word: was it killed? $free_mib MiB are free in $(pwd -P)" >&2
}

# $1 claim, $2 for whom, $3 a directory that is there when all is done ('': none), $4… arguments of the mover, which reads
# $token, a line of standard input. Begins the work unless it is under way or has ended, and is patient for two seconds
# with what it has begun. Returns when there is $3, or with what the work has left in the directory $ended; otherwise
# exits with 80, "moving" and two numbers of bytes on standard output, or with 75.
follow() {
    claim=$1 whom=$2 made=$3 ended=
    shift 3
    [ -n "$moving" ] && owner_of "$moving" >/dev/null || moving=
    while :; do
        # Looked at first: what has ended since has left what it made or a status.
        lives "$claim"
        life=$?
        [ "$life" -eq 0 ] || [ -z "$moving" ] || ! owner_of "$moving" >/dev/null || life=0
        [ -z "$made" ] || [ ! -d "$made" ] || return 0
        if [ -e "$claim/status" ]; then
            ended=$(mktemp -u "$claim.ended.XXXXXX")
            mv -T "$claim" "$ended" 2>/dev/null || {
                [ ! -e "$claim/status" ] || { echo "$claim cannot be moved away" >&2; exit 75; }
                moving= ended=
                continue  # another has taken it
            }
            [ "$(cat "$ended/for")" != "$whom" ] || return 0
            rm -rf "$ended"  # told to nobody else: their tokens are not ours, nor is their time
            ended= moving= life=2
        fi
        if [ "$life" -ne 0 ]; then
            [ -z "$moving" ] || { tell_lost; exit 75; }
            [ "$life" -eq 2 ] || bury "$claim"
            printf '%s\n' "$token" | setsid sh -c "$mover" atoll-mover "$@" >/dev/null 2>&1 &
            moving=$!
        elif [ -z "$moving" ] || [ "$ticks" -ge 60 ]; then
            echo "moving $(cat "$claim/progress" 2>/dev/null || echo 0 0)"
            exit 80
        fi
        ticks=$((ticks + 1))
        sleep 0.03
    done
}

# Exits as the work has that follow() found ended, with what it has printed.
tell() {
    status=$(cat "$ended/status")
    head -c 65536 "$ended/out"
    tail -c 4096 "$ended/err" >&2
    rm -rf "$ended"
    exit "$status"
}
