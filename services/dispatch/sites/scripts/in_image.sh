# $image, $work directory, $runtimes of which one is in PATH, names of more $variables; "$@": options of a container, the
# image, a command. Ranks of one node share memory through the host's /dev/shm, which --contain would hide, and find their
# launcher through its directories. Of the host's environment an image takes what it is given by name. Exit 75: no runtime,
# no image.
for runtime in $runtimes; do
    found=$(command -v "$runtime") && break
    found=
done
case $runtimes in *' '*) runtimes="${runtimes% *} and no ${runtimes#* }" ;; esac
[ -n "$found" ] || { echo "there is no $runtimes in PATH on $(uname -n)" >&2; exit 75; }
[ -r "$image" ] || { echo "there is no image $image on $(uname -n), or it cannot be read" >&2; exit 75; }
case $(readlink -f "$found") in  # singularity may be another name for apptainer
    *apptainer*) prefix=APPTAINERENV_ ;;
    *) prefix=SINGULARITYENV_ ;;
esac
for name in $(awk -v more="^($variables)\$" 'BEGIN {
    launchers = "^(PMIX|PMI|PMI2|OMPI|OPAL|PRTE|SLURM|UCX|FI|PSM2|HFI|MLX5|NCCL|RCCL|MIOPEN|CUDA|ROCR|HIP|GPU|OMP|KMP|" \
        "OPENBLAS|ATOLL)_[A-Za-z0-9_]+$"
    for (name in ENVIRON)
        if (name ~ more || name == "TMPDIR" || name ~ /^(https?|no|all|HTTPS?|NO|ALL)_(proxy|PROXY)$/ ||
            (name ~ launchers && name !~ /_(HOME|PATH|PREFIX)$/)) print name
}'); do
    eval "export $prefix$name=\"\$$name\""
done
for place in /dev/shm "${PMIX_SERVER_TMPDIR-}" "${PMIX_SYSTEM_TMPDIR-}" "${TMPDIR-}"; do
    case $place in
        *[:,]* | /tmp | /var/tmp) ;;  # it has these
        /*) [ ! -d "$place" ] || set -- --bind "$place" "$@" ;;
    esac
done
case $PWD/ in "$work"/*) set -- --pwd "$PWD" "$@" ;; esac
exec "$found" --quiet exec --no-home --cleanenv --bind "$work" "$@"
