"""The options of a run in TensorBoard's HPARAMS tab, beside the last figures of its validation."""

import dataclasses
import os
import pathlib

from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api, api_pb2, metadata, plugin_data_pb2

from t2t_keras import run_folder

_TYPES = {bool: api_pb2.DATA_TYPE_BOOL, int: api_pb2.DATA_TYPE_FLOAT64, float: api_pb2.DATA_TYPE_FLOAT64, str: api_pb2.DATA_TYPE_STRING}


def summaries(options: run_folder.Options, model_dir: pathlib.Path) -> list[bytes]:
    """The columns of the table and the run's row in it, each as a serialized `Summary`.

    Args:
        options: all of the run's.
        model_dir: tells the run from others with the same options.
    """
    fields = [(group, field) for group in options.groups.values() for field in dataclasses.fields(group)]
    values = {field.name: field.type(getattr(group, field.name)) for group, field in fields}  # NumPy's numbers are options, too.
    values = {run_folder.ARCHITECTURE: options.architecture} | values
    figures = sorted(
        (figure for figure in options.task.figures if figure.valid), key=lambda figure: figure.name not in options.task.metrics[:1]
    )
    metrics = {
        f"valid/{figure.name}": f"validation {figure.title if figure.title.isupper() else figure.title.lower()}" for figure in figures
    }  # The one that selects comes first.
    # Not `api.hparams_config_pb`: a number would need an interval, and runs outside it would be hidden.
    experiment = api_pb2.Experiment(
        hparam_infos=[api_pb2.HParamInfo(name=name, type=_TYPES[type(value)]) for name, value in values.items()],
        metric_infos=[api.Metric(tag, display_name=name).as_proto() for tag, name in metrics.items()],
    )
    columns = Summary()
    columns.value.add(
        tag=metadata.EXPERIMENT_TAG,
        metadata=metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(experiment=experiment)),
        tensor=metadata.NULL_TENSOR,
    )
    row = api.hparams_pb(values, trial_id=os.path.abspath(model_dir))
    return [columns.SerializeToString(), row.SerializeToString()]


def comparable(content: bytes) -> plugin_data_pb2.HParamsPluginData:
    """What a summary says apart from when the run started and where its folder was then."""
    data = plugin_data_pb2.HParamsPluginData.FromString(content)
    if data.HasField("session_start_info"):
        data.session_start_info.start_time_secs = 0
        data.session_start_info.group_name = ""
    return data
