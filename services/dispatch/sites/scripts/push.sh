# $1 atoll, $2 store, $3 model, $4 attempt directory, $5 bytes of meta.json. Standard input: the token, one line, then
# meta.json. Prints what atoll push prints: {"digest": …} or {"refused": …, "error": …}. Exit 80: on its way, see
# follow(); 66: the attempt's directory is gone (and not the whole file system); 74: the work directory is not there; 72:
# the program is not there, its name on standard output. Any other status without an answer says nothing of the update.
umask 077
know_image 75 600
cd "$4" || { [ -d "${4%/*/*/*}" ] || exit 74; [ ! -e "$4" ] && [ -d "${4%/*/*}" ] && exit 66; exit 75; }
IFS= read -r token || exit 75
meta=$(mktemp meta.json.XXXXXX) && cat >"$meta" || exit 75
[ "$(wc -c <"$meta")" -eq "$5" ] || { rm -f "$meta"; exit 75; }
mv -T "$meta" meta.json || exit 1
command -v "$1" >/dev/null 2>&1 || { echo "${1##*/}"; exit 72; }
follow push.moving push '' "$1" "$2" "$3"
tell
