#!/usr/bin/env bash
# Installs into .venv with what the tests need, then runs ruff (format and lint), lint-imports and the small tests, one on each core. Arguments go to pytest.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/tools/venv.sh" "[test]" >&2
cd "$root"
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/lint-imports --no-logo
cores=$(nproc 2>/dev/null || echo 2)
# At most eight, each of which takes about 2 GB.
exec .venv/bin/python -m pytest -n $((cores < 8 ? cores : 8)) --dist worksteal "$@"
