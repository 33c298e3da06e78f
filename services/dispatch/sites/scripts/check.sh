# $1 work directory, $2 atoll, $3 atoll-trainer, $4 store, $5 batch system: prints a line a check: ok|fail, name, detail (tab-separated).
say() { printf '%s\t%s\t%s\n' "$1" "$2" "$3"; }
missing=
for tool in flock setsid sync ln tail head dd grep cut wc; do
    command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
if [ -z "$missing" ]; then say ok tools "sh, flock, setsid and coreutils are there"; else say fail tools "missing:$missing"; fi
if [ "$5" = slurm ]; then
    missing=
    for tool in sbatch squeue scancel; do command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"; done
    if [ -n "$missing" ]; then
        say fail slurm "not in PATH:$missing"
    elif answer=$(squeue --me --noheader 2>&1 </dev/null); then
        say ok slurm "$(sbatch --version), which answers"
    else
        say fail slurm "$(printf '%s' "$answer" | tr '\n\t' '  ')"
    fi
fi
mkdir "$1" 2>/dev/null
if touch "$1/.atoll-check.$$" 2>/dev/null; then
    rm -f "$1/.atoll-check.$$"
    say ok work_dir "$1 is writable, $(df -Pk "$1" | awk 'NR == 2 { print int($4 / 1024) }') MiB free"
else
    say fail work_dir "$1 cannot be written"
fi
for program in "$2" "$3"; do
    if path=$(command -v "$program" 2>/dev/null); then
        say ok "${program##*/}" "$path"
    else
        say fail "${program##*/}" "$program is not there or cannot be run"
    fi
done
devices=$(timeout 10 "$3" report 2>/dev/null </dev/null | sed -n 's/.*"devices":\[\([^]]*\)\].*/\1/p' | tr -d '"')
if [ -n "$devices" ]; then say ok devices "$devices"; fi
if command -v "$2" >/dev/null 2>&1; then
    if answer=$("$2" ping --store "$4" 2>&1 </dev/null); then
        say ok store "$answer"
    else
        say fail store "$(printf '%s' "$answer" | tr '\n\t' '  ')"
    fi
fi
