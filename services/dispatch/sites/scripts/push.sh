# $1 atoll, $2 store, $3 model, $4 attempt directory, $5 bytes of meta.json. Standard input: the token, one line, then
# meta.json. Prints {"digest": …}. Exit 65: the program calls its input wrong; 72: it is not there, its name on standard
# output; 75, its own status too: the store is away or full, which is waited out.
umask 077
cd "$4" || exit 1
IFS= read -r token || exit 75
cat >"meta.json.$$" || exit 75
[ "$(wc -c <"meta.json.$$")" -eq "$5" ] || { rm -f "meta.json.$$"; exit 75; }
mv "meta.json.$$" meta.json || exit 1
command -v "$1" >/dev/null 2>&1 || { echo "${1##*/}"; exit 72; }
(
    flock -w 3000 9 || exit 75
    printf '%s\n' "$token" |
        "$1" push --store "$2" --model "$3" --kind update --dir out --meta meta.json --token-stdin
    status=$?
    [ "$status" -ne 2 ] || exit 65
    exit "$status"
) 9>push.lock
