# $1 atoll. In the attempt's directory. The claim is that of a push, which ends as one does.
claim push.moving seal || exit
"$1" seal --dir out --seal seal.json >push.moving/out 2>push.moving/err </dev/null
end push.moving "$?"
