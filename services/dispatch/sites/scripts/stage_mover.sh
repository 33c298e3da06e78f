# $1 for whom, $2 atoll, $3 store, $4 pin, $5… version digests. Standard input: the token, one line. In the work directory.
# Brings one version after another, up to one that another brings.
for=$1 program=$2 store=$3 pin=$4
shift 4
IFS= read -r token || exit
for digest; do
    target=models/$digest
    claim=$target.moving
    [ ! -d "$target" ] || continue
    claim "$claim" "$for" || exit
    if [ ! -d "$target" ]; then
        printf '%s\n' "$token" |
            "$program" stage --store "$store" --version "$digest" --out "$target" --token-stdin \
                --progress "$claim/progress" >"$claim/out" 2>"$claim/err"
        status=$?
        [ "$status" -ne 2 ] || status=65
        [ "$status" -eq 0 ] || { end "$claim" "$status"; exit; }
        read -r arrived bytes <"$claim/progress" && [ -e "$target.pins/$pin" ] &&
            printf '%s %s\n' "$for" "$bytes" >"$target.pins/$pin"
    fi
    still
    rm -rf "$claim"
done
