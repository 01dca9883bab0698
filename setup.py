"""Package t2t_keras, with its programs as console commands and its configs found by name."""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).parent
PROGRAMS = (
    "train", "translate", "evaluate", "export", "prepare", "data_service", "workers", "client", "quickstart",
    "attention", "compare", "curves", "filter", "parse", "pretrain", "classify", "table1", "table3", "grid",
    "attention_functions", "import_huggingface", "import_marian", "import_opennmt", "import_tensor2tensor", "serve"
)  # fmt: skip

setuptools.setup(
    name="t2t_keras",
    version=re.search(r'__version__ = "(.+)"', (ROOT / "t2t_keras/__init__.py").read_text(encoding="utf-8")).group(1),
    description=(
        "The Transformer of 'Attention Is All You Need' on TensorFlow 2.21 and Keras 3: train, score, translate."
    ),
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    # Beside the package, not in it: an editable install cannot map a folder into a package from elsewhere.
    packages=[*setuptools.find_packages(include=["t2t_keras*"]), "t2t_keras_tools", "t2t_keras_configs"],
    package_dir={"t2t_keras_tools": "tools", "t2t_keras_configs": "configs"},
    package_data={"t2t_keras_configs": ["*.flags"], "t2t_keras.reporting": ["*.html"], "t2t_keras.serving": ["*.html"]},
    python_requires=">=3.11,<3.15",
    install_requires=[
        "absl-py>=2",
        "keras>=3.15.1",  # Earlier ones load models unsafely.
        "matplotlib>=3.10",
        "num2words>=0.5.14",
        "sacrebleu>=2.4",
        "sacremoses>=0.1",
        # Earlier ones read outside of their memory for crafted models, and have no rules of normalization from Python.
        "sentencepiece>=0.2.3",
        "tensorboard>=2.20",  # tf.summary needs it, and tensorflow 2.21 does not bring it.
        "tensorflow>=2.21,<2.23",
        "tensorflow-datasets>=4.9.8",
        "tensorflow-serving-api>=2.21,<2.23",  # The format of warm-up requests.
        # For exports and to learn word pieces. 2.21.0 cannot be imported; each version needs that of TensorFlow.
        "tensorflow-text>=2.21.1,<2.23; python_version < '3.14' and sys_platform != 'win32'",
        "tqdm>=4",
        "werkzeug>=3",  # The server; TensorBoard needs it too.
    ],
    extras_require={
        "gpu": ["tensorflow[and-cuda]>=2.21,<2.23"],
        "backends": ["jax>=0.6", "torch>=2.6"],  # For the tests of layers on other backends of Keras.
        "beam": ["apache-beam>=2.77"],
        "client": ["requests>=2.32"],
        "ctranslate2": ["ctranslate2>=4.8.1"],
        "bench": ["ctranslate2>=4.8.1", "keras-hub>=0.32", "locust>=2.40", "torch>=2.6", "transformers>=4.56"],
        "embeddings": ["gensim>=4.4"],
        "filter": ["langcodes>=3.5", "py3langid>=0.4"],  # Earlier ones of py3langid unpickle their model.
        "interop": ["huggingface_hub>=1", "pyyaml>=6", "safetensors>=0.6"],
        "mutation": ["cosmic-ray>=8.4,<9"],
        "classifiers": ["scikit-learn>=1.5"],  # The bag of words to compare with.
        "rouge": ["rouge-score>=0.1.2"],
        "test": [
            "apache-beam>=2.77",
            "ctranslate2>=4.8.1",
            "gensim>=4.4",
            "huggingface_hub>=1",
            "import-linter>=2.13",
            "langcodes>=3.5",
            "py3langid>=0.4",
            "ipykernel>=6.29",  # Runs the notebooks of the course.
            "nbclient>=0.10",
            "nbformat>=5.10",
            "pytest>=8",
            "pytest-xdist>=3.5",
            "pyyaml>=6",
            "requests>=2.32",
            "rouge-score>=0.1.2",
            "ruff>=0.17,<0.18",
            "scikit-learn>=1.5",
            "safetensors>=0.6",
            "selenium>=4.20",
            "setuptools>=77",
        ],
    },
    entry_points={
        "console_scripts": [f"t2t-{name.replace('_', '-')}=t2t_keras_tools.{name}:main" for name in PROGRAMS]
    },
)
