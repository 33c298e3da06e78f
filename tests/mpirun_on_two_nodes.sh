#!/bin/sh
# mpirun_on_two_nodes.sh FIRST SECOND PROGRAM [ARG…]: FIRST + SECOND MPI ranks, which mpirun takes for those of two
# machines: this one under two names. Open MPI 4 only; with another MPI it exits with 77, skipped.
if [ "$1" = --start-here ]; then # how mpirun starts its daemon on a machine: NAME COMMAND…
    base=$OMPI_MCA_orte_tmpdir_base
    mkdir -p "$base/$2" # both daemons would make the same directories
    own=$base/$2
    export OMPI_MCA_btl_vader_backing_directory="$own" # and their ranks the same files of shared memory
    shift 2
    exec sh -c "$(printf '%s' "$*" | sed "s|\"$base\"|\"$own\"|")"
fi
mpirun --version | grep -q '(Open MPI) 4' || { echo "not Open MPI 4: $(mpirun --version | head -n 1)"; exit 77; }
first=$1 second=$2
shift 2
exec "$(dirname "$0")/mpirun.sh" $((first + second)) --host "one:$first,two:$second" \
    --mca plm_rsh_agent "$(realpath "$0") --start-here" --mca btl self,vader,tcp \
    --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo "$@"
