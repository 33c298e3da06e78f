# What our scripts and batch jobs call at a site, beside sh and the batch system's own commands.
tools="awk cat chmod cp cut date dd grep head id ln ls mkdir mktemp mv nice nproc readlink rm rmdir setsid sha256sum sleep stat \
    sync tail uname wc"
