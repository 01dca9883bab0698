#!/usr/bin/env bash
# Draws docs/pictures: curves of the quick start's run, attention and the page of the server of a translation run.
#
#   docs/make_pictures.sh [RUN SENTENCE]
#
# Without a run of your own, the quick start's is used for all pictures; it is trained if it is not there. The pages need Chromium and
# its driver (Debian: apt-get install chromium chromium-driver).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ -d "$root/runs/quickstart/checkpoints" ] || "$root/tools/quickstart.sh"
"$root/tools/venv.sh" "[test]" >&2
exec "$root/.venv/bin/python" "$root/docs/make_pictures.py" "$root/runs/quickstart" \
    "${1:-$root/runs/quickstart}" "${2:-forty-two thousand three hundred and nine}"
