"""The import of a Marian or OPUS-MT model, by the name of its own; see `huggingface.import_huggingface`."""

from t2t_keras.interop.huggingface import import_huggingface

import_marian = import_huggingface
