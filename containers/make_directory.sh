#!/bin/bash
# make_directory.sh IMAGE.sif OUT.tar.gz: the trainer's image as a directory, for sites without Singularity or Apptainer. It
# holds the programs with every library, the C library's loader among them, so that it runs on any Linux of the image's
# architecture wherever it is unpacked: `programs: …/atoll-trainer/bin` in the facility's record. Its mpirun starts the ranks
# of one machine; the MPI of several nodes is better built at the site. Of the image for NVIDIA GPUs it has CUDA's libraries too, and
# takes the driver's where the machine has them.
set -euo pipefail
[ $# = 2 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
runtime=$(command -v apptainer || command -v singularity)
work=$(mktemp -d)
trap 'chmod -R u+rwX "$work" && rm -rf "$work"' EXIT
top=$work/atoll-trainer
mkdir -p "$top/root" "$top/bin"

"$runtime" --quiet exec --no-home --cleanenv "$1" sh -c 'cd / && exec tar -c --ignore-failed-read --warning=no-failed-read \
    --exclude="*/perl*" --exclude="*/gconv" --exclude="libapt-*" --exclude="*/security" opt/atoll/bin usr/lib/*-linux-gnu usr/lib/libpsm1 \
    usr/bin/orterun usr/bin/mpirun.openmpi usr/share/openmpi etc/openmpi etc/libibverbs.d \
    etc/ssl/certs/ca-certificates.crt $(find etc/alternatives -type l -lname "/usr/lib/*") $(ls -d opt/cuda/* 2>/dev/null)' | tar -C "$top/root" -x
# Absolute links, as those of etc/alternatives, would lead out.
find "$top/root" -type l -lname '/*' | while read -r link; do
    ln -sf "$(realpath -m --relative-to="$(dirname "$link")" "$top/root$(readlink "$link")")" "$link"
done
find "$top/root" -xtype l -delete

# As the image's environment.
cuda=
[ ! -d "$top/root/opt/cuda" ] || cuda='export CUDNN_LIB_CONFIG=GRAPH_JIT_ONLY'

# $1 name, $2 file below root/
wrap() {
    cat >"$top/bin/$1" <<WRAPPER
#!/bin/sh
here=\$(dirname "\$(dirname "\$(readlink -f "\$0")")")/root
libraries=\$(echo "\$here"/usr/lib/*-linux-gnu)
export OPAL_PREFIX="\$here/usr" PMIX_MCA_mca_base_component_path="\$libraries/pmix2/lib/pmix"
export OMPI_MCA_btl_vader_single_copy_mechanism=none PMIX_MCA_gds=hash
$cuda
[ -n "\${ATOLL_CA_FILE-}" ] || [ -e /etc/ssl/certs/ca-certificates.crt ] ||
    export ATOLL_CA_FILE="\$here/etc/ssl/certs/ca-certificates.crt"
exec "\$(echo "\$libraries"/ld-linux*.so.*)" --library-path "\$libraries:\$libraries/openblas-pthread:\$here/usr/lib/libpsm1:\$here/opt/cuda/lib" "\$here/$2" "\$@"
WRAPPER
    chmod 755 "$top/bin/$1"
}
wrap atoll opt/atoll/bin/atoll
wrap atoll-trainer opt/atoll/bin/atoll-trainer
wrap mpirun usr/bin/orterun
tar -C "$work" -czf "$2" atoll-trainer
echo "$2: $(($(stat -c %s "$2") / 1000000)) MB, unpacked $(($(du -sk "$top" | cut -f1) / 1000)) MB"
