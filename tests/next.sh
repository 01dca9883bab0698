#!/usr/bin/env bash
# Runs the tests with the newest TensorFlow and Keras, pre-releases too, and the newest versions of all other packages, in an environment of
# its own, .venv-next. Without a TF.Text for that TensorFlow, tests of exports are skipped. Arguments go to pytest.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
python="$root/.venv-next/bin/python"
if [ ! -x "$python" ]; then
  "${PYTHON:-python3}" -m venv "$root/.venv-next"
  "$python" -m pip install --quiet --upgrade pip setuptools
fi
# The names that setup.py has, without its bounds.
packages=$("$python" - << 'END'
import re, setuptools
asked = {}
setuptools.setup = asked.update
exec(compile(open("setup.py").read(), "setup.py", "exec"), {"__file__": "setup.py"})
names = {re.match(r"[\w.-]+", line)[0] for line in asked["install_requires"] + asked["extras_require"]["test"]}
print(*sorted(names - {"keras", "tensorflow", "tensorflow-text"}))
END
)
"$python" -m pip install --quiet --upgrade --pre keras tensorflow
"$python" -m pip install --quiet --upgrade $packages
release=$("$python" -c 'import importlib.metadata as m; print(".".join(m.version("tensorflow").split(".")[:2]))')
"$python" -m pip install --quiet --pre "tensorflow-text>=$release.dev0" "tensorflow==$release.*" || echo "TF.Text has no version for TensorFlow $release."
"$python" -m pip list | grep --ignore-case --extended-regexp "^(keras|numpy|protobuf|tensor)"
PYTHONPATH=$root exec "$python" -m pytest -n 2 --dist worksteal "$@"
