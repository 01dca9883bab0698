#!/usr/bin/env bash
# Makes .venv beside this folder, if need be, and installs the package into it. Argument: extras, such as "[test]"; none by default.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ ! -x "$root/.venv/bin/python" ]; then
  python=""
  for candidate in python3.13 python3.12 python3.11 python3; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      python=$candidate
      break
    fi
  done
  if [ -z "$python" ]; then
    echo "Expected Python 3.11, 3.12 or 3.13 on PATH. Received: $(python3 --version 2>&1 || echo none)." >&2
    exit 1
  fi
  echo "Making $root/.venv with $python …"
  if ! "$python" -m venv "$root/.venv"; then
    rm -rf "$root/.venv"
    echo "The venv module of $python does not work. On Debian and Ubuntu: apt-get install python3-venv" >&2
    exit 1
  fi
fi
extras=${1:-}
stamp="$root/.venv/installed$extras"
[ "$stamp" -nt "$root/setup.py" ] && exit 0
echo "Installing t2t_keras$extras into $root/.venv (the first time this fetches TensorFlow, about 600 MB) …"
"$root/.venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$root$extras"
touch "$stamp"
