#!/usr/bin/env bash
# Everything that can be said about the source without running it: format, layers, sizes, names.
# tidy looks at the files of the last change (KVPOOL_TIDY_BASE, default HEAD~1), or at all of them with --tidy-all.
set -euo pipefail
cd "$(dirname "$0")/.."

sources() { git ls-files '*.hpp' '*.cpp' '*.cuh' '*.cu' | grep -v '^tests/data/'; }

echo "format: $(sources | wc -l) files"
sources | xargs clang-format --dry-run --Werror
python3 tools/check_layers.py
python3 tools/check_sizes.py

# tidy needs compile commands; the dev preset gives them
[ -f build/dev/compile_commands.json ] || cmake --preset dev >/dev/null
base=${KVPOOL_TIDY_BASE:-HEAD~1}
if [ "${1:-}" = --tidy-all ]; then
  changed=$(git ls-files 'src/*.cpp' 'multigpu/*.cpp' 'tools/*.cpp' 'kernels/*.cpp' 'stress/*.cpp')
elif git rev-parse -q --verify "$base" >/dev/null; then
  changed=$(git diff --name-only --diff-filter=d "$base" -- 'src/*.cpp' 'multigpu/*.cpp' 'tools/*.cpp' 'kernels/*.cpp' 'stress/*.cpp')
else
  changed=$(git ls-files 'src/*.cpp')
fi
known=$(python3 -c 'import json; print("\n".join(e["file"] for e in json.load(open("build/dev/compile_commands.json"))))')
checked=()
for file in $changed; do
  grep -qxF -- "$PWD/$file" <<<"$known" && checked+=("$file")
done
echo "tidy: ${#checked[@]} changed files"
if [ ${#checked[@]} -gt 0 ]; then
  printf '%s\n' "${checked[@]}" | xargs -P "$(nproc)" -n 4 clang-tidy --quiet --extra-arg=-Wno-unknown-warning-option -p build/dev 2>/dev/null
fi
