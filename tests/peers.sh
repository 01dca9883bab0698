#!/usr/bin/env bash
# Installs PyTorch, JAX, Flax, transformers, KerasHub, JoeyNMT, locust, mbrs and Argos Translate with the package into .venv-peers, and OpenNMT-tf
# and, if there is a Python 3.7, tensor2tensor into environments of their own. Then runs the tests that compare with them, slow ones too.
# Arguments go to pytest. PyPI's PyTorch brings several GB of CUDA; without: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}
[ -x "$root/.venv-peers/bin/python" ] || "$python" -m venv "$root/.venv-peers"
"$root/.venv-peers/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$root[test]" torch==2.13.0 'jax>=0.6' 'flax>=0.10' 'transformers>=4.56' 'keras-hub>=0.32' >&2
# JoeyNMT's requirements contradict TensorFlow's; its layers need few of them.
"$root/.venv-peers/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps joeynmt subword-nmt 'importlib_metadata<8' zipp >&2
"$root/.venv-peers/bin/python" -m pip install --quiet --disable-pip-version-check locust >&2
# Of mbrs, its chrF alone is used.
"$root/.venv-peers/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps mbrs fastchrf >&2
# Argos Translate's own requirements find sentences, for which the test has stand-ins.
"$root/.venv-peers/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps argostranslate >&2
# With SentencePiece 0.2.3, NLLB-200's tokenizer in transformers needs a newer protobuf than Apache Beam allows. These tests do not use Beam.
"$root/.venv-peers/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps 'protobuf>=7.36.1,<8' >&2
# OpenNMT-tf needs another TensorFlow, so it has an environment of its own, whose Python must have wheels of TensorFlow 2.13.
if ! [ -x "$root/.venv-opennmt/bin/python" ]; then
  "$python" -m venv "$root/.venv-opennmt"
  "$root/.venv-opennmt/bin/python" -m pip install --quiet --disable-pip-version-check tensorflow-cpu==2.13.1 'typeguard<3' pyyaml 'sacrebleu<3' rouge 'pyonmttok<2' 'setuptools<70' packaging >&2
  "$root/.venv-opennmt/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps tensorflow-addons==0.23.0 OpenNMT-tf==2.32.0 'ctranslate2>=3,<4' >&2
fi
export OPENNMT_PYTHON=${OPENNMT_PYTHON:-$root/.venv-opennmt/bin/python}
# tensor2tensor needs TensorFlow 1.15, which has wheels up to Python 3.7. Its own requirements are those of all its problems.
old=${TENSOR2TENSOR_PYTHON:-$root/.venv-tensor2tensor/bin/python}
if ! [ -x "$old" ] && command -v "${PYTHON37:-python3.7}" > /dev/null; then
  "${PYTHON37:-python3.7}" -m venv "$root/.venv-tensor2tensor"
  "$old" -m pip install --quiet --disable-pip-version-check tensorflow==1.15.5 'protobuf<3.21' 'numpy<1.19' six future requests tqdm 'scipy<1.5' \
    tensorflow-probability==0.7.0 sympy 'gin-config<0.6' tensorflow-datasets==3.2.1 Pillow bz2file >&2
  "$old" -m pip install --quiet --disable-pip-version-check --no-deps tensor2tensor==1.15.7 mesh-tensorflow==0.1.13 kfac tf_slim tensorflow-gan pypng \
    gym==0.15.4 cloudpickle==1.2.2 dopamine-rl==3.0.1 'opencv-python-headless<4.6' 'tensorflow-hub<0.13' 'tensorflow-metadata<1.3' >&2
fi
[ -x "$old" ] && export TENSOR2TENSOR_PYTHON=$old
cd "$root"
exec .venv-peers/bin/python -m pytest -m "slow or not slow" tests/test_benchmarks.py tests/test_bench_train.py tests/test_gpu_peers.py tests/test_import_peers.py tests/test_argos_format.py tests/test_mbrs.py tests/test_opennmt.py tests/test_saved_models.py tests/test_tensor2tensor.py "$@"
