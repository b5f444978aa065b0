#!/usr/bin/env bash
# Line coverage of the core (include/kvpool and src) by the tests that concern it; fails below the bar.
# Usage: tools/coverage.sh [percent]      default 95
set -euo pipefail
cd "$(dirname "$0")/.."
bar=${1:-95}
tools/install_packages.sh test
if ! command -v gcovr >/dev/null; then
  as_root=(); [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  echo "Installing Debian package: gcovr"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcovr >/dev/null
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
labels=(unit golden differential model concurrency field fuzz tools)
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
cmake --preset coverage "${launcher[@]}" | tail -n 4
cmake --build --preset coverage -j "$(nproc)" --target "${labels[@]/#/checks_}" | tail -n 1
find build/coverage -name '*.gcda' -delete
ctest --preset coverage --no-tests=error -L "$(IFS='|'; echo "${labels[*]}")" | tail -n 4
gcovr --root . --filter 'include/kvpool/(foundation|block|config|queue|prefix|pool|manager)/' --filter 'src/' --object-directory build/coverage \
      --exclude-throw-branches --fail-under-line "$bar" --print-summary
