# $1 work directory, $2 pin, $3… task ids: removes what the finished job no longer needs and what it kept from round to round, keeps its logs. Exit 80: it goes
# on, see follow(); 74: the work directory is not there; 75: not known, with the reason.
umask 077
pin=$2
cd "$1" || exit 74
shift 2
token=
follow "clean.$pin.moving" "$pin" '' "$pin" "$@"
tell
