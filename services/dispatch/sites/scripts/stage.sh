# After prepare_stage.sh. Standard input: the token, one line. Prints what tell_moved() does. Exit 80: on its way, see
# follow(); 65: the program calls its input wrong; 66, its own status too: the store has no such version, or not its bytes;
# 75, as well: the store is away or full. Any other says nothing of the version.
know_image 65 600
IFS= read -r token || exit 75
for digest; do
    follow "models/$digest.moving" "$for" "models/$digest" "$for" "$program" "$store" "$pin" "$@"
    [ -z "$ended" ] || tell
done
tell_moved "$@"
