#!/usr/bin/env bash
# Installs a finished build into an empty folder, builds the consumer project against it and runs it; then builds the
# same project with kvpool as a subdirectory.
# Usage: tests/package/run.sh BUILD_FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?build folder}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >/dev/null
cmake -S "$here" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release >"$work/configure.log" ||
  { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build" | tail -n 1
"$work/build/readme_example"
"$work/build/chooses_pool"
"$work/build/uses_components"

# the README shows this very program
python3 - "$here/readme_example.cpp" "$here/../../README.md" <<'CHECK'
import sys
example, readme = (open(name).read() for name in sys.argv[1:])
sys.exit(0 if example.rstrip() in readme else "README.md does not show tests/package/readme_example.cpp as it is")
CHECK

# every public header compiles alone, with nothing but the installed include folder
count=0
while IFS= read -r header; do
  printf '#include <%s>\nint main() {}\n' "$header" | g++ -std=c++20 -I "$work/prefix/include" -fsyntax-only -x c++ -
  count=$((count + 1))
done < <(cd "$work/prefix/include" && find kvpool -name '*.hpp')
echo "consumer: $count public headers compile alone"
[ "$count" -gt 0 ]
if cmake -S "$here/unknown_component" -B "$work/unknown" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/unknown.log" 2>&1; then
  echo "an unknown component was accepted" >&2
  exit 1
fi
grep -q "unknown component 'teleport'" "$work/unknown.log"
