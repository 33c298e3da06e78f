# $1 attempt directory, $2 bytes of stdout.jsonl read before, $3 bytes of it to give at most, $4 bytes of end.json to
# give at most.
# Prints "started end_bytes log_bytes", a newline, then end.json, then the log's new bytes. Exit 75: not known, as
# where the whole file system is away.
cd "$1" 2>/dev/null || { [ ! -e "$1" ] && [ -d "${1%/*/*}" ] || exit 75; echo "0 0 0"; exit 0; }
started=0 end_bytes=0 log_bytes=0
[ ! -e started ] || started=1
# end.json is looked at before the log: when more than blanks is in it, the log is complete.
if LC_ALL=C grep -q '[^ ]' end.json 2>/dev/null; then
    end_bytes=$(wc -c <end.json) || exit 75
    [ "$end_bytes" -le "$4" ] || end_bytes=$4
fi
if [ -f stdout.jsonl ]; then
    size=$(wc -c <stdout.jsonl) || exit 75
    log_bytes=$((size - $2))
    [ "$log_bytes" -le "$3" ] || log_bytes=$3
    [ "$log_bytes" -ge 0 ] || log_bytes=0
fi
echo "$started $end_bytes $log_bytes"
[ "$end_bytes" -eq 0 ] || head -c "$end_bytes" end.json
[ "$log_bytes" -eq 0 ] || tail -c "+$(($2 + 1))" stdout.jsonl | head -c "$log_bytes"
