#!/usr/bin/env bash
# Installs PyTorch, JAX, Flax, transformers, KerasHub, JoeyNMT, locust, mbrs, OpenNMT-tf and Argos Translate with the package into .venv-peers, then runs the tests that compare with them, slow
# ones too.
# Arguments go to pytest. PyPI's PyTorch brings several GB of CUDA; without: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}
[ -x "$root/.venv-peers/bin/python" ] || "$python" -m venv "$root/.venv-peers"
"$root/.venv-peers/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$root[test]" torch==2.13.0 'jax>=0.6' 'flax>=0.10' 'transformers>=4.56' 'protobuf>=5' 'keras-hub>=0.32' >&2
# JoeyNMT's requirements contradict TensorFlow's; its layers need few of them.
"$root/.venv-peers/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps joeynmt subword-nmt 'importlib_metadata<8' zipp >&2
"$root/.venv-peers/bin/python" -m pip install --quiet --disable-pip-version-check locust >&2
# Of mbrs, its chrF alone is used.
"$root/.venv-peers/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps mbrs fastchrf >&2
# Argos Translate's own requirements find sentences, for which the test has stand-ins.
"$root/.venv-peers/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps argostranslate >&2
# OpenNMT-tf needs another TensorFlow, so it has an environment of its own, whose Python must have wheels of TensorFlow 2.13.
if ! [ -x "$root/.venv-opennmt/bin/python" ]; then
  "$python" -m venv "$root/.venv-opennmt"
  "$root/.venv-opennmt/bin/python" -m pip install --quiet --disable-pip-version-check tensorflow-cpu==2.13.1 'typeguard<3' pyyaml 'sacrebleu<3' rouge 'pyonmttok<2' 'setuptools<70' packaging >&2
  "$root/.venv-opennmt/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps tensorflow-addons==0.23.0 OpenNMT-tf==2.32.0 'ctranslate2>=3,<4' >&2
fi
export OPENNMT_PYTHON=${OPENNMT_PYTHON:-$root/.venv-opennmt/bin/python}
cd "$root"
exec .venv-peers/bin/python -m pytest -m "slow or not slow" tests/test_benchmarks.py tests/test_bench_train.py tests/test_gpu_peers.py tests/test_import_peers.py tests/test_argos_format.py tests/test_mbrs.py tests/test_opennmt.py tests/test_saved_models.py "$@"
