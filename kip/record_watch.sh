#!/bin/sh
# Records `rackgate watch` while rack b is unavailable: kip/evidence/watch.png and .svg; the recording itself is out/watch/watch.cast.
# usage: kip/record_watch.sh   (needs a built Kafka; takes about 90 s; chromium makes the PNG)
set -eu
cd "$(dirname "$0")/.."
bin=.venv/bin
out=out/watch/watch
mkdir -p out/watch
RACKGATE_STATE=$(mktemp -d)
export RACKGATE_STATE
trap '"$bin/rackgate" lab down --all >/dev/null; rm -rf "$RACKGATE_STATE"' EXIT
run=$RACKGATE_STATE/run
gate="--config min.insync.replicas=2 --config min.insync.racks=2"

"$bin/rackgate" lab up --run-dir "$run"
# replicas in racks a, a, b with the gate and without it, and in a, b, c with it
# shellcheck disable=SC2086 # several words on purpose
"$bin/rackgate" lab kafka topics --create --topic orders --replica-assignment 1:2:3 $gate
# shellcheck disable=SC2086
"$bin/rackgate" lab kafka topics --create --topic payments --replica-assignment 2:4:5 $gate
"$bin/rackgate" lab kafka topics --create --topic clicks --replica-assignment 1:2:4 --config min.insync.replicas=2
"$bin/rackgate" lab exec -- "$bin/python" -m pyhooks.workload.producer --mode probe --topics orders,payments,clicks \
    --bootstrap 10.77.1.10:9092,10.77.3.10:9092 --rate 5 --seconds 75 --history "$run/history.jsonl" &
load=$!
(sleep 15 && "$bin/rackgate" rack kill b --for 45s) &
fault=$!
"$bin/python" -m pyhooks.watch.terminal_capture --out "$out" --size 128x16 --at 50s -- "$bin/rackgate" watch
wait $fault $load
cp "$out-50s.svg" kip/evidence/watch.svg
cp "$out-50s.png" kip/evidence/watch.png
"$bin/rackgate" judge "$run/history.jsonl" --checker faults
