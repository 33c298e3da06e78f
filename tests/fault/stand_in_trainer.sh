#!/bin/sh
# A facility's atoll-trainer: trains in a second what is one, hands in a real model of the base's shape. Each start and
# each end is a line in the facility's `runs`. Data sets are tokenised by the real trainer, beside it as `real-trainer`.
verb=$1
case $verb in
train | eval) ;;
*) exec "$(dirname "$0")/real-trainer" "$@" ;;
esac
while [ $# -gt 0 ]; do
    case $1 in --out) out=$2 ;; --model) model=$2 ;; esac
    shift
done
name="$ATOLL_BATCH_JOB $verb ${model##*/}"
runs=../../../runs
echo "start $name" >>"$runs"
if [ "$verb" = eval ]; then
    sleep 0.2
    echo '{"loss":2.0,"perplexity":7.389,"tokens":1000}'
    exit
fi
echo '{"step":1,"loss":3.5,"lr":0.01,"tokens_per_s":100.5}'
# 64 digits are 32 numbers of fp16 between 0.1 and 0.7: each attempt hands in another model.
digits=$(printf %s "$ATOLL_BATCH_JOB" | sha256sum | cut -c 1-64 | tr a-f 0-5)
sleep "0.$(printf %s "$digits" | cut -c 1-2)"
rm -rf "$out" && mkdir -p "$out" && cp "$model"/* "$out"/ || exit 1
chmod u+w "$out"/*
size=$(wc -c <"$out/model.safetensors")
printf %s "$digits" | dd of="$out/model.safetensors" bs=1 seek=$((size - 128)) conv=notrunc 2>/dev/null || exit 1
sleep 0.2
echo '{"step":2,"loss":3.0,"lr":0.01,"tokens_per_s":100.5}'
echo '{"summary":true,"steps":2,"samples":16,"tokens":4'"$(printf %s "$digits" | cut -c 3-4)"',"loss":3.0,"tokens_per_s":100.5,"wall_s":1.0}'
echo "end $name" >>"$runs"
