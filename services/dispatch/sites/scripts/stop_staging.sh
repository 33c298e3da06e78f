# $1 work directory, $2 for whom, $3… version digests: what was begun for nobody else ends.
cd "$1" || exit 75
for=$2
shift 2
for digest; do
    [ "$(cat "models/$digest.moving/for" 2>/dev/null)" != "$for" ] || drop "models/$digest.moving"
done
