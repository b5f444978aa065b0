#!/usr/bin/env bash
# Builds kvpool and runs its tests; ends with ctest's summary.
#
#   tools/test.sh          g++ build and every test (minutes)
#   tools/test.sh --all    what CI runs: lint, g++, clang with ASan+UBSan, TSan, nvcc, Arm, package consumer, stress
#   tools/test.sh --long   hours: long model checking, soak, every seeded fault
#
# Missing Debian packages are installed first (as root or through sudo).
set -euo pipefail
cd "$(dirname "$0")/.."

tier=fast
case "${1:-}" in
  "") ;;
  --all) tier=all ;;
  --long) tier=long ;;
  *) sed -n '2,8p' "$0" | cut -c3-; exit 2 ;;
esac

jobs=$(nproc)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
report=()
started=0

step() {  # step NAME COMMAND...: runs it, remembers how long it took, stops everything when it fails
  local name=$1; shift
  echo; echo "=== $name"
  started=$SECONDS
  if ! "$@"; then
    echo "=== $name: FAILED after $((SECONDS - started)) s" >&2
    exit 1
  fi
  report+=("$(printf '%-34s %5d s' "$name" $((SECONDS - started)))")
}

# With ccache a second clone compiles nothing anew: paths below the project count as relative.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)

configure_and_build() {  # configure_and_build PRESET
  cmake --preset "$1" "${launcher[@]}" --log-level=STATUS | tail -n 4 && cmake --build --preset "$1" -j "$jobs" | tail -n 3
}
build_and_test() {  # build_and_test PRESET [ctest arguments]
  local preset=$1; shift
  configure_and_build "$preset" && ctest --preset "$preset" --no-tests=error "$@"
}

if [ "$tier" = fast ]; then
  tools/install_packages.sh test
  step "g++ build" configure_and_build dev
  step "tests" ctest --preset dev --no-tests=error
  exit 0
fi

tools/install_packages.sh all
step "lint" tools/lint.sh
step "g++: build and all tests" build_and_test dev
step "package consumer" tests/package/run.sh build/dev
step "clang, ASan+UBSan: all tests" build_and_test asan
step "TSan: canary and concurrent tests" tools/test_tsan.sh tsan
step "nvcc: compile and link" tools/test_cuda.sh
step "Arm: build, kernel tests in qemu" tools/test_neon.sh
step "stress smoke" tools/test_stress.sh 10
if [ "$tier" = long ]; then
  export KVPOOL_TEST_SCALE=long
  step "clang without sanitizers" build_and_test clang
  step "TSan with clang" tools/test_tsan.sh tsan-clang 60
  step "long tests" ctest --preset dev --no-tests=error --timeout 14400
  step "stress, 60 s a workload" tools/test_stress.sh 60
  step "seeded faults" tests/mutants/run.py
fi

echo; echo "=== all steps passed"
printf '%s\n' "${report[@]}"
