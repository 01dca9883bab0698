#!/usr/bin/env bash
# Installs PyTorch, JAX, transformers, KerasHub, JoeyNMT, locust, mbrs and Argos Translate with the package into .venv-peers, then runs the tests that compare with them, slow
# ones too.
# Arguments go to pytest. PyPI's PyTorch brings several GB of CUDA; without: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}
[ -x "$root/.venv-peers/bin/python" ] || "$python" -m venv "$root/.venv-peers"
"$root/.venv-peers/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$root[test]" torch==2.13.0 'jax>=0.6' 'transformers>=4.56' 'protobuf>=5' 'keras-hub>=0.32' >&2
# JoeyNMT's requirements contradict TensorFlow's; its layers need few of them.
"$root/.venv-peers/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps joeynmt subword-nmt 'importlib_metadata<8' zipp >&2
"$root/.venv-peers/bin/python" -m pip install --quiet --disable-pip-version-check locust >&2
# Of mbrs, its chrF alone is used.
"$root/.venv-peers/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps mbrs fastchrf >&2
# Argos Translate's own requirements find sentences, for which the test has stand-ins.
"$root/.venv-peers/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps argostranslate >&2
cd "$root"
exec .venv-peers/bin/python -m pytest -m "slow or not slow" tests/test_benchmarks.py tests/test_bench_train.py tests/test_import_peers.py tests/test_argos_format.py tests/test_mbrs.py tests/test_saved_models.py "$@"
