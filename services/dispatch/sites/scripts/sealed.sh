# $1 atoll, $2 attempt directory, $3 bytes to give at most. Prints seal.json, which the batch job has left. Where it has
# not, as it was killed or the update is no good, it is made now; what `atoll seal` says of an update that is no good is
# printed in its place. Exit 80: that goes on, see follow(); 66: the attempt's directory is gone (and not the whole file
# system); 74: the work directory is not there; 72: the program is not there, its name on standard output.
umask 077
cd "$2" || { [ -d "${2%/*/*/*}" ] || exit 74; [ ! -e "$2" ] && [ -d "${2%/*/*}" ] && exit 66; exit 75; }
if [ ! -s seal.json ]; then
    know_image 75 600
    command -v "$1" >/dev/null 2>&1 || { echo "${1##*/}"; exit 72; }
    token=
    follow push.moving seal '' "$1"
    [ "$(cat "$ended/status")" -eq 0 ] || tell
    rm -rf "$ended"
fi
head -c "$3" seal.json
