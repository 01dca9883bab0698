"""The options of a run in TensorBoard's HPARAMS tab, beside the last metrics of its validation."""

import dataclasses
import os
from collections.abc import Collection

from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api, api_pb2, metadata, plugin_data_pb2

from t2t_keras.config import TrainConfig, options_with
from t2t_keras.runs import run_options

_TYPES = {
    bool: api_pb2.DATA_TYPE_BOOL,
    int: api_pb2.DATA_TYPE_FLOAT64,
    float: api_pb2.DATA_TYPE_FLOAT64,
    str: api_pb2.DATA_TYPE_STRING,
}


def row(values: dict) -> bytes:
    """A row of the table, options by name, as a serialized `Summary`.

    Its name is empty, which TensorBoard replaces by the name that it gives the run: the folder, relative to its
    `--logdir`.
    """
    return api.hparams_pb(values, trial_id="").SerializeToString()


def summaries(options: run_options.Options, compared: Collection[str] | None = None) -> list[bytes]:
    """The columns of the table and the run's row in it, each as a serialized `Summary`.

    TensorBoard takes the columns of one of the runs, and shows those first that are said to differ: `compared` or, by
    default, the options that differ from their defaults.
    """
    if compared is None:
        compared = {name for values in options.differing().values() for name in values}
    fields = [(group, field) for group in options.groups.values() for field in dataclasses.fields(group)]
    # NumPy's numbers are options, too.
    values = {field.name: field.type(getattr(group, field.name)) for group, field in fields}
    basenames = {name: os.path.basename(values[name]) for name in options_with(TrainConfig, "path")}
    values = {run_options.ARCHITECTURE: options.architecture} | values | basenames
    task = options.task
    # The one that selects checkpoints comes first.
    shown = sorted(task.metrics, key=lambda metric: metric.name != task.best_metrics[0])
    titles = {
        metric.name: metric.title if metric.title.isupper() else metric.title.lower()
        for metric in shown
        if metric.valid
    }
    # Not `api.hparams_config_pb`: a number would need an interval, and runs outside it would be hidden.
    experiment = api_pb2.Experiment(
        hparam_infos=[
            api_pb2.HParamInfo(name=name, type=_TYPES[type(value)], differs=name in compared)
            for name, value in values.items()
        ],
        metric_infos=[
            api.Metric(f"valid/{name}", display_name=f"validation {title}").as_proto() for name, title in titles.items()
        ],
    )
    columns = Summary()
    columns.value.add(
        tag=metadata.EXPERIMENT_TAG,
        metadata=metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(experiment=experiment)),
        tensor=metadata.NULL_TENSOR,
    )
    return [columns.SerializeToString(), row(values)]


def comparable(content: bytes) -> plugin_data_pb2.HParamsPluginData:
    """What a summary says apart from when the run started."""
    data = plugin_data_pb2.HParamsPluginData.FromString(content)
    if data.HasField("session_start_info"):
        data.session_start_info.start_time_secs = 0
    return data
