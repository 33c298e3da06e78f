# Functions for an image, the file $image. Its sha256 is kept in $kept with what tells the file that it is of from another
# one: size, time, inode and the time of the inode's last change, which nobody can set. So some gigabytes are read once;
# never within a script that is waited for on a login node.

# $1: a directory of ours that nobody else enters, made if it is not there. It is no link.
make_private() {
    mkdir -m 700 "$1" 2>/dev/null
    [ ! -L "$1" ] && [ -d "$1" ] && [ -O "$1" ] && chmod 700 "$1" && return
    echo "$1 is a link, belongs to somebody else or cannot be made" >&2
    return 75
}

# $stamp tells the file from another of its name.
stamp_image() {
    stamp=$(stat -L -c '%s %Y %i %Z' "$image" 2>/dev/null) && stamp="$stamp $image"
}

# $digest, where it is known of this very file.
find_digest() {
    stamp_image && { read -r of && read -r digest; } 2>/dev/null <"$kept" && [ "$of" = "$stamp" ] && return
    digest=
    return 1
}

# $1: the digest of what $stamp tells.
keep_digest() {
    make_private "${kept%/*}" && new=$(mktemp "$kept.XXXXXX") || return
    printf '%s\n%s\n' "$stamp" "$1" >"$new" && mv -f "$new" "$kept"
}

# For how many seconds nobody has written what $stamp tells, by the clock of the file system: this machine's may be wrong.
# A time to come says nothing: $1.
quiet_seconds() {
    written=${stamp#* }
    make_private "${kept%/*}" 2>/dev/null
    now=$(mktemp "$kept.now.XXXXXX" 2>/dev/null) && now_s=$(stat -c %Y "$now") && rm -f "$now" || now_s=$(date +%s)
    quiet_s=$((now_s - ${written%% *}))
    [ "$quiet_s" -gt -60 ] || quiet_s=$1
}
