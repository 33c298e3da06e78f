# $1 atoll, $2 store, $3 model. Standard input: the token, one line. In the attempt's directory.
IFS= read -r token || exit
claim push.moving push || exit
printf '%s\n' "$token" |
    "$1" push --store "$2" --model "$3" --kind update --dir out --meta meta.json --seal seal.json --token-stdin \
        --progress push.moving/progress >push.moving/out 2>push.moving/err
end push.moving "$?"
