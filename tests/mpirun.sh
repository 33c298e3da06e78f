#!/bin/sh
# mpirun.sh RANKS PROGRAM [ARG…]: MPI ranks on this machine alone, also as root, in a container and with few cores.
ranks=$1
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1
# How ranks are started and placed: Open MPI 4 and, in variables of its launcher PRRTE, Open MPI 5.
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
export OMPI_MCA_plm_rsh_agent=/bin/false PRTE_MCA_plm_ssh_agent=/bin/false
# A rank that failed ends the others at once, not after a second.
export OMPI_MCA_odls_base_sigkill_timeout=0 PRTE_MCA_odls_base_sigkill_timeout=0
# A directory for each run: Open MPI 4 fails now and then where one run makes the common one just as another removes it.
# What earlier runs left goes.
scratch=${TMPDIR:-/tmp}/atoll-mpi-$(id -u)
for run in "$scratch"/*; do kill -0 "${run##*/}" 2>/dev/null || rm -rf "$run"; done
mkdir -p "$scratch/$$"
export OMPI_MCA_orte_tmpdir_base="$scratch/$$" PRTE_MCA_prte_tmpdir_base="$scratch/$$"
# MPI itself leaks; under the address sanitizer that would fail every rank.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
exec mpirun -n "$ranks" "$@"
