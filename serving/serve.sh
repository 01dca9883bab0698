#!/usr/bin/env bash
# Serves the exports in a folder on gRPC port 8500 and REST port 8501 of this machine: serving/serve.sh EXPORT_DIR [flag of tensorflow_model_server]…
# IMAGE=tensorflow/serving:latest-gpu and DOCKER_FLAGS="--gpus all" for a GPU.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export_dir=$(cd "${1:?which folder holds the exports?}" && pwd)
shift
# --init: the server has no signal handlers, and the first process of a container has no default ones either.
exec docker run --rm --init -p 127.0.0.1:8500:8500 -p 127.0.0.1:8501:8501 \
    -v "$export_dir:/models/translate:ro" -v "$here:/serving:ro" ${DOCKER_FLAGS:-} \
    --entrypoint tensorflow_model_server "${IMAGE:-tensorflow/serving:latest}" \
    --port=8500 --rest_api_port=8501 --rest_api_timeout_in_ms=60000 \
    --model_config_file=/serving/models.config --monitoring_config_file=/serving/monitoring.config \
    --tensorflow_intra_op_parallelism=1 --tensorflow_inter_op_parallelism="$(nproc)" \
    --enable_batching --batching_parameters_file=/serving/batching_parameters.txt "$@"
