"""All options and their defaults: the networks, training (section 5), search (6.1) and data (5.1).

`cli.flags` turns each field into a flag, and `--help` prints its help text. This package imports neither TensorFlow nor
Keras.
"""

from t2t_keras.config.data import FILES, TERM_MARKS, TEXTS, DataConfig, FilterConfig, names_of_target, text_format
from t2t_keras.config.networks import (
    ADDITIVE,
    ATTENTION_FUNCTIONS,
    BOS,
    CELLS,
    EOS,
    NORMS,
    PAD,
    PAPER,
    POST,
    PRE,
    SCALED,
    SINUSOIDS,
    TENSOR2TENSOR,
    UNK,
    BertConfig,
    ClassifierConfig,
    ModelConfig,
    RnnConfig,
    vocabulary_size,
)
from t2t_keras.config.options import GROUPS, check_effects, check_fields, check_names, option, options_with
from t2t_keras.config.search import (
    ENSEMBLE_MEANS,
    MAX_ALPHA,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    OF_DEVICES,
    RERANK_DIRECTIONS,
    TEMPERATURES,
    TRANSLATING_DTYPES,
    DecodeConfig,
    SampleConfig,
    check_ensemble,
)
from t2t_keras.config.training import (
    AUGMENTATIONS,
    AUTO,
    AVERAGE,
    BEST,
    CHECKPOINTS,
    EMA,
    LATEST,
    STARTS,
    TrainConfig,
    grpc_address,
    is_checkpoint,
)
