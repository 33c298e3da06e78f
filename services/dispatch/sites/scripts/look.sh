# $1 bytes of each stdout.jsonl to give at most, $2 bytes of each end.json to give at most, $3 number of attempts; then for
# each attempt its directory and the bytes of stdout.jsonl read before; then what queue_ask is asked, if anything.
# Prints for each "started end_bytes log_bytes free_kib", a newline, then end.json, then the log's new bytes; or "unknown"
# and the reason, where that one cannot be looked at; free_kib is what the work directory has room for, -1: not known; at the end what queue_ask prints, if it can. Exit 74: the work directory is not there; 75: not known, with the reason.
log_max=$1 end_max=$2 attempts=$3
shift 3
free_kib=$(($(stat -f -c '%a*%S/1024' "${1%/*/*/*}" 2>/dev/null || echo -1)))
look() {
    cd "$1" 2>/dev/null || {
        [ -d "${1%/*/*/*}" ] || exit 74
        [ -d "${1%/*/*}" ] || { echo "${1%/*/*} is not there" >&2; exit 75; }
        if [ -e "$1" ] || { [ -e "${1%/*}" ] && [ ! -x "${1%/*}" ]; }; then
            echo "unknown $1 cannot be entered"
        else
            echo "0 0 0 $free_kib"
        fi
        return
    }
    started=0 end_bytes=0 log_bytes=0
    [ ! -e started ] || started=1
    # end.json is looked at before the log: when more than blanks is in it, the log is complete.
    if LC_ALL=C grep -q '[^ ]' end.json 2>/dev/null; then
        end_bytes=$(wc -c <end.json) || { echo "unknown $1/end.json cannot be read"; return; }
        [ "$end_bytes" -le "$end_max" ] || end_bytes=$end_max
    fi
    if [ -f stdout.jsonl ]; then
        size=$(wc -c <stdout.jsonl) || { echo "unknown $1/stdout.jsonl cannot be read"; return; }
        log_bytes=$((size - $2))
        [ "$log_bytes" -le "$log_max" ] || log_bytes=$log_max
        [ "$log_bytes" -ge 0 ] || log_bytes=0
    fi
    echo "$started $end_bytes $log_bytes $free_kib"
    [ "$end_bytes" -eq 0 ] || head -c "$end_bytes" end.json
    [ "$log_bytes" -eq 0 ] || tail -c "+$(($2 + 1))" stdout.jsonl | head -c "$log_bytes"
}
while [ "$attempts" -gt 0 ]; do
    look "$1" "$2"
    shift 2
    attempts=$((attempts - 1))
done
[ $# -eq 0 ] || (queue_ask "$@") || :
