#!/usr/bin/env bash
# Checks every model exhaustively, and checks that each planted mistake is found: a model that cannot fail proves nothing.
# Usage: tests/model/promela/run.sh WORK_FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:?work folder}
mkdir -p "$work"

check() {  # check MODEL [DEFINE]: prints the number of errors and states
  local model=$1 define=${2:-}
  (
    cd "$work"
    rm -rf "run-$model$define" && mkdir "run-$model$define" && cd "run-$model$define"
    spin -a ${define:+-D$define} "$here/$model.pml" >spin.log 2>&1 || { cat spin.log >&2; exit 2; }
    gcc -O2 -DSAFETY -DMEMLIM=4096 -o pan pan.c 2>gcc.log || { cat gcc.log >&2; exit 2; }
    ./pan -m200000 -w22 >pan.log 2>&1 || true
    grep -q "error: max search depth too small" pan.log && { echo "search cut off" >&2; exit 2; }
    sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log | head -n 1
    sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log | head -n 1
  )
}

failed=0
expect() {  # expect clean|found MODEL [DEFINE]
  local wanted=$1 model=$2 define=${3:-} errors states
  { read -r errors; read -r states; } < <(check "$model" "$define")
  local verdict=found
  [ "$errors" = 0 ] && verdict=clean
  printf '%-10s %-22s %-6s errors %s, states %s\n' "$model" "${define:-as designed}" "$verdict" "$errors" "$states"
  [ "$verdict" = "$wanted" ] || { echo "  expected: $wanted" >&2; failed=1; }
}

expect clean capacity
expect found capacity PLANT_EARLY_CREDIT
expect clean ring
expect found ring PLANT_NO_KILL
expect found ring PLANT_NO_LAP
expect clean state
expect found state PLANT_NO_GENERATION
expect found state PLANT_READ_WRITE
exit $failed
