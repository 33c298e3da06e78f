# $1: the work directory; then the trainer's command that sees what an input is. Exit 74: the work directory is not there; else the
# command's.
cd "$1" || exit 74
shift
"$@" </dev/null >/dev/null
