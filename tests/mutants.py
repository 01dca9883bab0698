"""Faults put into the code on purpose, one at a time. A fault is caught when the tests named beside it fail.

They are those that `mutation.py`, which draws faults at random, does not make: changes of several places or of wiring, and of files
outside of the package.

    python tests/mutants.py              # every fault, two at a time, after one run of the tests without any
    python tests/mutants.py dtype loss   # the faults whose name contains one of these words

Each fault replaces text that occurs exactly once in its file, in a copy of the repository. `test_mutants.py` checks the list
by default and runs it when slow tests are asked for. A new promise comes with a fault here, or with one that the tool makes.
"""

import concurrent.futures
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parent.parent
JOBS = 2
TIMEOUT = 900  # Seconds for one fault's tests.
PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "slow or not slow")


class Mutant(NamedTuple):
    """One fault.

    Attributes:
        name: the fault in words.
        file: path from the root of the repository.
        old: text that occurs once in the file.
        new: what the fault puts in its place.
        tests: pytest node ids from the root, of a whole test or one of its cases; at least one must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = (
    # Training: one update, its loop, what it logs.
    Mutant(
        "the finite check ignores the gradient",
        "t2t_keras/training/train_step.py",
        "tf.logical_and(tf.math.is_finite(norm), tf.math.is_finite(sums[task.objective]))",
        "tf.math.is_finite(sums[task.objective])",
        ("tests/test_train_step.py::test_an_update_is_skipped_where_the_loss_or_the_gradient_alone_is_not_finite",),
    ),
    Mutant(
        "the finite check ignores the loss",
        "t2t_keras/training/train_step.py",
        "tf.logical_and(tf.math.is_finite(norm), tf.math.is_finite(sums[task.objective]))",
        "tf.math.is_finite(norm)",
        ("tests/test_train_step.py::test_an_update_is_skipped_where_the_loss_or_the_gradient_alone_is_not_finite",),
    ),
    Mutant(
        "the loss is not multiplied by the loss scale",
        "t2t_keras/training/train_step.py",
        "loss = sums[task.objective] * scale",
        "loss = sums[task.objective]",
        ("tests/test_train_step.py::test_the_loss_scale_is_divided_out_of_the_step",),
    ),
    Mutant(
        "gradients are not divided by the loss scale",
        "t2t_keras/training/train_step.py",
        'scale = 1 / (sums["target_tokens"] * loss_scale)',
        'scale = 1 / sums["target_tokens"]',
        ("tests/test_train_step.py::test_the_loss_scale_is_divided_out_of_the_step",),
    ),
    Mutant(
        "there is no loss scale at all",
        "t2t_keras/training/train_step.py",
        "(batch, step, rate, loss_scale.scale)",
        "(batch, step, rate, tf.constant(1.0))",
        ("tests/test_train_step.py::test_a_float16_transformer_has_the_gradient_of_float32_by_its_loss_scale",),
    ),
    Mutant(
        "the model is float32 whatever --dtype says",
        "t2t_keras/training/run.py",
        "options.model, _policy(options.train.dtype))",
        'options.model, _policy("float32"))',
        ("tests/test_run.py::test_a_run_computes_in_the_dtype_that_was_asked_for_and_keeps_its_weights_in_float32",),
    ),
    Mutant(
        "training ignores --micro_batch_tokens",
        "t2t_keras/training/loop.py",
        "**reading), config.micro_batch_tokens, buckets)",
        "**reading), 10**6, buckets)",
        ("tests/test_options.py::test_an_option_has_the_effect_that_it_names[micro_batch_tokens]",),
    ),
    Mutant(
        "validation ignores --micro_batch_tokens",
        "t2t_keras/training/run.py",
        "devices.distribute(strategy, dataset, config.micro_batch_tokens)",
        "devices.distribute(strategy, dataset, 10**6)",
        ("tests/test_options.py::test_an_option_has_the_effect_that_it_names[micro_batch_tokens-1]",),
    ),
    Mutant(
        "--buckets_per_update is ignored",
        "t2t_keras/training/loop.py",
        "config.batch_tokens, config.buckets_per_update)\n    reading",
        "config.batch_tokens, 1)\n    reading",
        ("tests/test_options.py::test_an_option_has_the_effect_that_it_names[buckets_per_update]",),
    ),
    Mutant(
        "--learning_rate_factor is ignored",
        "t2t_keras/training/optimizer.py",
        "config.warmup_steps, config.learning_rate_factor)",
        "config.warmup_steps)",
        ("tests/test_options.py::test_an_option_has_the_effect_that_it_names[learning_rate_factor]",),
    ),
    Mutant(
        "--valid_sentences is ignored",
        "t2t_keras/tasks/translation.py",
        "lines[: options.train.valid_sentences]",
        "lines",
        ("tests/test_options.py::test_an_option_has_the_effect_that_it_names[valid_sentences]",),
    ),
    Mutant(
        "BLEU in TensorBoard is of the first weights",
        "t2t_keras/tasks/translation.py",
        "dataclasses.replace(options.decode, beam_size=1, diverse_groups=1))",
        "dataclasses.replace(options.decode, beam_size=1, diverse_groups=1), frozen=True)",
        ("tests/test_run.py::test_bleu_in_training_is_of_greedy_translations_by_the_weights_of_the_moment",),
    ),
    Mutant(
        "BLEU in TensorBoard is of beam search",
        "t2t_keras/tasks/translation.py",
        "Translator(model, tokenizer, dataclasses.replace(options.decode, beam_size=1, diverse_groups=1))",
        "Translator(model, tokenizer, options.decode)",
        ("tests/test_run.py::test_bleu_in_training_is_of_greedy_translations_by_the_weights_of_the_moment",),
    ),
    Mutant(
        "BLEU in TensorBoard is of lines in reverse",
        "t2t_keras/tasks/translation.py",
        "for result in translate_lines(greedy, sources, batch_size=greedy.limits.batch_size)]",
        "for result in translate_lines(greedy, sources, batch_size=greedy.limits.batch_size)][::-1]",
        ("tests/test_run.py::test_bleu_in_training_is_of_greedy_translations_by_the_weights_of_the_moment",),
    ),
    Mutant(
        "a good point beside a torn record is lost",
        "t2t_keras/reporting/tensorboard.py",
        "    return parts\n",
        "    return [[0, parts[-1][0]]]\n",
        ("tests/test_tensorboard.py::test_a_record_that_a_kill_cut_off_is_forgotten_and_all_before_it_stay",),
    ),
    Mutant(
        "a resumed run forgets where its options come from",
        "t2t_keras/run_folder.py",
        '            sources={name: source for name, source in sources.items() if source != "default"},\n',
        "            sources={},\n",
        ("tests/test_run_folder.py::test_the_table_of_options_tells_where_each_value_comes_from",),
    ),
    Mutant(
        "training starts TensorFlow before it looks for its text",
        "tools/train.py",
        "        corpora.check_files(chosen.data, chosen.task.texts)\n",
        "        pass\n",
        ("tests/test_tools.py::test_text_of_unequal_length_is_told_at_once[train]",),
    ),
    Mutant(
        "workers wait for a chief that has failed",
        "t2t_keras/training/devices.py",
        "float(error is not None)",
        "0.0",
        ("tests/test_devices.py::test_what_the_chief_cannot_do_ends_the_other_workers_in_a_sentence",),
    ),
    Mutant(
        "the launcher repeats each worker's error",
        "tools/workers.py",
        "if workers[0].returncode != 1:",
        "if True:",
        ("tests/test_workers.py::test_the_launcher_tells_the_cause_alone[both]",),
    ),
    Mutant(
        "a column of the HPARAMS tab is missing",
        "t2t_keras/reporting/hparams.py",
        "for group in options.groups.values() for field in",
        "for group in list(options.groups.values())[1:] for field in",
        ("tests/test_tensorboard.py::test_the_hparams_tab_has_every_option_and_the_scores_of_validation",),
    ),
    Mutant(
        "a chart names a curve that is not there",
        "t2t_keras/reporting/scalars.py",
        'f"train/{metric.name}": metric.train',
        'f"train/{metric.name}s": metric.train',
        ("tests/test_tensorboard.py::test_charts_are_of_curves_that_there_are",),
    ),
    Mutant(
        "target tokens are counted since the last point",
        "t2t_keras/training/state.py",
        'self.target_tokens += int(metrics["target_tokens"])',
        'self.target_tokens = int(metrics["target_tokens"])',
        ("tests/test_training.py::test_the_log_has_the_mean_losses_per_token_and_the_padding_since_the_last_point",),
    ),
    Mutant(
        "a profile never ends",
        "t2t_keras/reporting/profiler.py",
        "        if step >= self._last:\n            self._stop()",
        "        pass",
        ("tests/test_profiler.py::test_a_profile_is_written_after_its_last_update_and_leaves_no_other_event_file",),
    ),
    Mutant(
        "gradient norms of layers are clipped",
        "t2t_keras/reporting/histograms.py",
        "math.sqrt(sum_)",
        "min(math.sqrt(sum_), 1e-3)",
        ("tests/test_training.py::test_histograms_show_the_weights_and_each_layers_gradient_norm",),
    ),
    Mutant(
        "a stopped run's pictures are those of its last validation",
        "t2t_keras/training/loop.py",
        "        self._update_pictures()\n",
        "",
        ("tests/test_training.py::test_a_run_that_is_stopped_early_updates_its_pictures",),
    ),
    # Curves without TensorBoard.
    Mutant(
        "a picture that fails stops the run",
        "t2t_keras/reporting/pictures.py",
        "except Exception as error:",
        "except OSError as error:",
        ("tests/test_curves.py::test_a_picture_that_fails_warns_once_and_the_others_are_still_made",),
    ),
    Mutant(
        "a picture that fails warns each time",
        "t2t_keras/reporting/pictures.py",
        "failed.add(name)",
        "pass",
        ("tests/test_curves.py::test_a_picture_that_fails_warns_once_and_the_others_are_still_made",),
    ),
    Mutant(
        "the header of the sub-words is missing",
        "t2t_keras/reporting/embedding_projector.py",
        '["sub-word\\tid", *labels, ""]',
        '[*labels, ""]',
        ("tests/test_curves.py::test_the_projector_gets_the_embeddings_of_the_best_validation_with_their_sub_words",),
    ),
    Mutant(
        "half a record is read",
        "t2t_keras/reporting/event_files.py",
        "            if start > size:\n                return\n",
        "",
        ("tests/test_curves.py::test_a_point_that_is_being_written_is_left_out",),
    ),
    Mutant(
        "the table shows four digits",
        "t2t_keras/reporting/curves.py",
        ":.9g}",
        ":.4g}",
        ("tests/test_curves.py::test_the_table_has_a_row_for_each_step_and_an_empty_cell_where_nothing_was_measured",),
    ),
    Mutant(
        "the table repeats the last value where nothing was measured",
        "t2t_keras/reporting/curves.py",
        'if step in points else ""',
        'if step in points else "0"',
        ("tests/test_curves.py::test_the_table_has_a_row_for_each_step_and_an_empty_cell_where_nothing_was_measured",),
    ),
    Mutant(
        "colours and line styles of runs change together",
        "t2t_keras/reporting/curves.py",
        '_LINES = ("-", "--", "-.", ":")',
        '_LINES = ("-",)',
        ("tests/test_curves.py::test_each_of_many_runs_has_its_own_colour_and_line_style",),
    ),
    Mutant(
        "runs of one name are mixed up",
        "t2t_keras/reporting/curves.py",
        "if len(set(names)) == len(names):",
        "if names:",
        ("tests/test_curves.py::test_names_of_runs_are_short_and_distinct",),
    ),
    Mutant(
        "flags after operands are taken for operands",
        "t2t_keras/cli/flags.py",
        "set_gnu_getopt(bool(operands))",
        "set_gnu_getopt(False)",
        ("tests/test_curves.py::test_the_program_compares_runs_and_flags_may_follow_them",),
    ),
    Mutant(
        "the training loss in TensorBoard is smoothed",
        "t2t_keras/tasks/translation.py",
        'loss = sums["loss"]',
        'loss = sums["smoothed_loss"]',
        ("tests/test_training.py::test_the_log_has_the_mean_losses_per_token_and_the_padding_since_the_last_point",),
    ),
    Mutant(
        "the negative log likelihood has a gradient",
        "t2t_keras/model/loss.py",
        "(p - q) * upstream[0][..., None]",
        "(p - q) * ops.sum(upstream, axis=0)[..., None]",
        ("tests/test_loss.py::test_the_negative_log_likelihood_is_the_same_whatever_epsilon_and_has_no_gradient",),
    ),
    Mutant(
        "sums of an older version go into the next point",
        "t2t_keras/training/state.py",
        "if self.measured.keys() != counted.keys():",
        "if not self.measured:",
        ("tests/test_training.py::test_what_an_older_version_measured_is_left_out_of_the_next_point",),
    ),
    Mutant(
        "a redirected run writes no lines",
        "t2t_keras/reporting/console.py",
        "self._lines = shown and not terminal",
        "self._lines = False",
        ("tests/test_console.py::test_redirected_a_run_writes_one_line_with_the_time_at_each_log_interval",),
    ),
    Mutant(
        "one GPU of several is used",
        "t2t_keras/training/devices.py",
        "MirroredStrategy(gpus)",
        "MirroredStrategy(gpus[:1])",
        ("tests/test_devices.py::test_with_gpus_a_strategy_is_over_all_of_them_whatever_the_cpu_devices",),
    ),
    Mutant(
        "--cpu_devices is ignored",
        "t2t_keras/training/devices.py",
        "for index in range(cpu_devices)])",
        "for index in range(1)])",
        ("tests/test_devices.py::test_without_a_gpu_a_strategy_is_over_as_many_virtual_cpu_devices_as_asked_for",),
    ),
    Mutant(
        "each operation has all cores while several micro-batches are computed at a time",
        "t2t_keras/training/devices.py",
        "machine.cores() // at_once",
        "machine.cores()",
        ("tests/test_devices.py::test_the_threads_of_an_operation_are_the_cores_divided_by_the_micro_batches_computed_at_a_time",),
    ),
    Mutant(
        "workers divide their cores among the micro-batches of all workers",
        "t2t_keras/training/devices.py",
        "cpu_devices * max(_cluster_size(), 1)",
        "cpu_devices",
        ("tests/test_devices.py::test_workers_share_the_micro_batches_of_an_update",),
    ),
    Mutant(
        "train.py does not divide the cores",
        "tools/train.py",
        "devices.make_strategy(_CPU_DEVICES.value, chosen.train)",
        "devices.make_strategy(_CPU_DEVICES.value)",
        ("tests/test_devices.py::test_a_program_gives_its_options_to_the_strategy_before_it_uses_tensorflow[train-2]",),
    ),
    # Survival: kills, signals, exact resume, learning.
    Mutant(
        "noise on every curve",
        "t2t_keras/reporting/tensorboard.py",
        "tf.summary.scalar(name, value,",
        "tf.summary.scalar(name, value * (1 + __import__('secrets').randbelow(99) * 1e-6),",
        ("tests/test_survival.py::test_a_run_killed_in_bad_moments_ends_where_an_uninterrupted_one_ends",),
    ),
    Mutant(
        "what was measured since the last point is lost on resume",
        "t2t_keras/training/loop.py",
        "state.set_dtype(self.config.dtype)",
        "state.set_dtype(self.config.dtype); state.measured = TrainState().measured",
        ("tests/test_survival.py::test_a_run_killed_in_bad_moments_ends_where_an_uninterrupted_one_ends",),
    ),
    Mutant(
        "a stopped run exits with 0",
        "t2t_keras/cli/flags.py",
        "return EXIT_CODE",
        "return 0",
        ("tests/test_interruption.py::test_a_run_that_is_stopped_by_a_signal_or_a_time_limit_saves_and_exits_with_75",),
    ),
    Mutant(
        "Ctrl-C is not handled",
        "t2t_keras/training/interruption.py",
        "SIGNALS = (signal.SIGTERM, signal.SIGINT)",
        "SIGNALS = (signal.SIGTERM,)",
        ("tests/test_interruption.py::test_a_run_that_is_stopped_by_a_signal_or_a_time_limit_saves_and_exits_with_75",),
    ),
    Mutant(
        "--max_hours is ignored",
        "t2t_keras/training/loop.py",
        "Interruption(self.config.max_hours, self.called_at)",
        "Interruption()",
        ("tests/test_training.py::test_a_time_limit_saves_and_stops",),
    ),
    Mutant(
        "a worker cleans up while the others have left",
        "tools/train.py",
        "devices.exit_worker(ended.code)",
        "devices.process_index",
        ("tests/test_workers.py::test_two_workers_that_have_trained_report_no_crash",),
    ),
    Mutant(
        "the launcher of workers has no help",
        "tools/workers.py",
        'in (["--help"], ["-h"])',
        "in ()",
        ("tests/test_workers.py::test_the_launcher_prints_its_help",),
    ),
    # Folders: runs, checkpoints, resuming, hostile files.
    Mutant(
        "an unfinished file follows a link",
        "t2t_keras/files.py",
        'unfinished.open("xb")',
        'unfinished.open("wb")',
        ("tests/test_foreign_folders.py::test_a_file_replaces_another_and_follows_no_link",),
    ),
    Mutant(
        "training writes through links",
        "t2t_keras/training/run.py",
        "            run_folder.check_before_writing(model_dir)\n",
        "",
        ("tests/test_foreign_folders.py::test_training_refuses_a_link_where_something_of_the_run_belongs",),
    ),
    Mutant(
        "a run's folder chooses a data service",
        "t2t_keras/training/run.py",
        '        run_folder.check_given(model_dir, options, ["data_service"], "read the data from a service")\n',
        "",
        ("tests/test_foreign_folders.py::test_a_data_service_is_asked_only_if_it_is_given",),
    ),
    Mutant(
        "a run's folder chooses text to prepare",
        "t2t_keras/training/run.py",
        "*FILES]\n",
        "]\n",
        ("tests/test_foreign_folders.py::test_text_and_folders_outside_are_used_only_if_they_are_given",),
    ),
    Mutant(
        "a search may take more memory than is free",
        "t2t_keras/decoding/loading.py",
        "    _check_memory(combined(trained), decode_config)\n",
        "",
        ("tests/test_foreign_folders.py::test_a_search_that_does_not_fit_into_memory_is_refused_before_the_weights_are_read",),
    ),
    Mutant(
        "the demo waits for each byte of a request anew",
        "t2t_keras/visualization/demo.py",
        "max(self._deadline - time.monotonic(), 0.001)",
        "MAX_SECONDS",
        ("tests/test_demo.py::test_a_request_that_arrives_byte_by_byte_ends_too",),
    ),
    Mutant(
        "the demo answers pages of other origins",
        "t2t_keras/visualization/demo.py",
        "if origin is not None and",
        "if False and",
        ("tests/test_demo.py::test_a_page_of_another_origin_gets_no_translation",),
    ),
    Mutant(
        "preparing writes through links",
        "t2t_keras/data/prepare.py",
        "                files.check_no_links(*folder.iterdir())\n",
        "",
        ("tests/test_foreign_folders.py::test_preparing_refuses_a_link_in_the_data_folder",),
    ),
    Mutant(
        "an old manifest is removed before the new archive is on disk",
        "t2t_keras/checkpoint.py",
        "            os.fsync(file.fileno())\n",
        "",
        ("tests/test_checkpoint.py::test_a_disk_that_fails_while_an_archive_is_replaced_leaves_the_old_one",),
    ),
    Mutant(
        "the folder is synced instead of the file",
        "t2t_keras/files.py",
        "            os.fsync(file.fileno())\n",
        "            os.fsync(os.open(path.parent, os.O_RDONLY))\n",
        ("tests/test_checkpoint.py::test_archive_manifest_and_names_are_on_disk_each_before_what_relies_on_it",),
    ),
    Mutant(
        "the names in the folder are not synced",
        "t2t_keras/checkpoint.py",
        "        _sync_names(path.parent)\n",
        "",
        ("tests/test_checkpoint.py::test_archive_manifest_and_names_are_on_disk_each_before_what_relies_on_it",),
    ),
    Mutant(
        "a copy of a checkpoint is taken for the run's",
        "t2t_keras/checkpoint.py",
        "_NAME.fullmatch(path.name)) for path",
        "_NAME.match(path.name)) for path",
        ("tests/test_checkpoint.py::test_what_somebody_keeps_in_the_folder_is_not_used_and_not_removed",),
    ),
    Mutant(
        "of two weights with one name, a checkpoint holds one",
        "t2t_keras/checkpoint.py",
        " is not variable:",
        " is None:",
        ("tests/test_checkpoint.py::test_two_weights_of_one_name_are_refused_before_one_is_lost",),
    ),
    Mutant(
        "training resumes from a checkpoint whose optimizer is missing, as another model's",
        "t2t_keras/checkpoint.py",
        'if "optimizer/" in prefixes and',
        "if False and",
        ("tests/test_checkpoint.py::test_a_checkpoint_without_an_optimizer_is_loaded_and_averaged_but_not_resumed",),
    ),
    Mutant(
        "a model is made however small its checkpoints are",
        "t2t_keras/checkpoint.py",
        "sizes[largest] < 4 * weights",
        "sizes[largest] < 0",
        ("tests/test_checkpoint.py::test_files_too_small_for_a_model_are_found_before_it_is_made",),
    ),
    Mutant(
        "--checkpoint=STEP takes a later one",
        "t2t_keras/checkpoint.py",
        "step_of(path) == int(which)",
        "step_of(path) >= int(which)",
        ("tests/test_checkpoint.py::test_the_weights_after_an_update_are_chosen_by_its_number",),
    ),
    Mutant(
        "load(dtype=) is ignored",
        "t2t_keras/decoding/loading.py",
        "model.config, dtype)",
        "model.config)",
        ("tests/test_run.py::test_a_loaded_translator_calculates_in_the_type_that_was_asked_for",),
    ),
    Mutant(
        "a batch that fits a sub-batch is translated by one core",
        "t2t_keras/decoding/sub_batches.py",
        "    if cores > 1:",
        "    if cores > 99:",
        ("tests/test_sub_batches.py::test_a_batch_is_divided_among_the_cores",),
    ),
    Mutant(
        "a batch is divided into single rows",
        "t2t_keras/decoding/sub_batches.py",
        "MIN_ROWS = 4",
        "MIN_ROWS = 1",
        ("tests/test_sub_batches.py::test_a_batch_is_divided_among_the_cores",),
    ),
    Mutant(
        "sub-batches take turns",
        "t2t_keras/decoding/sub_batches.py",
        "parallel_iterations=parallel",
        "parallel_iterations=1",
        ("tests/test_sub_batches.py::test_a_sub_batch_runs_on_each_core_at_the_same_time",),
    ),
    Mutant(
        "more cores take more memory",
        "t2t_keras/decoding/sub_batches.py",
        "TOKENS_OF_ROW * min(rows, ROWS * fit // parallel)",
        "TOKENS_OF_ROW * rows",
        ("tests/test_sub_batches.py::test_limits_follow_from_cores_memory_and_device_unless_they_are_given",),
    ),
    Mutant(
        "a batch is divided on a GPU",
        "t2t_keras/decoding/sub_batches.py",
        "(1 if gpu else machine.cores())",
        "machine.cores()",
        ("tests/test_sub_batches.py::test_limits_follow_from_cores_memory_and_device_unless_they_are_given",),
    ),
    Mutant(
        "a CPU of any size computes two micro-batches at a time",
        "t2t_keras/training/devices.py",
        "max(min(machine.cores(), fit) // cpu_devices, MICRO_BATCHES_AT_ONCE)",
        "MICRO_BATCHES_AT_ONCE",
        ("tests/test_devices.py::test_micro_batches_at_a_time_follow_from_cores_memory_and_device_unless_they_are_given",),
    ),
    Mutant(
        "the largest micro-batches run one at a time",
        "t2t_keras/training/device_memory.py",
        "(at_once, rows, length_of",
        "(1, rows, length_of",
        ("tests/test_device_memory.py::test_as_many_micro_batches_run_as_are_computed_at_a_time_and_their_memory_is_told",),
    ),
    Mutant(
        "a loaded run takes all memory of the GPUs",
        "t2t_keras/decoding/loading.py",
        "    gpus.share()\n",
        "",
        ("tests/test_gpus.py::test_a_run_is_loaded_with_memory_that_grows_before_a_device_is_used",),
    ),
    Mutant(
        "preparing data sees GPUs",
        "tools/prepare.py",
        "gpus.hide()",
        "pass",
        ("tests/test_gpus.py::test_what_prepares_or_reads_data_sees_no_gpu",),
    ),
    Mutant(
        "a run translates in TF32 whatever it was trained in",
        "t2t_keras/decoding/loading.py",
        "choose_float32(train_config.tf32)",
        "choose_float32(True)",
        ("tests/test_gpus.py::test_a_run_translates_with_the_float32_that_it_was_trained_with",),
    ),
    Mutant(
        "the rows and cores of the search cannot be chosen",
        "t2t_keras/decoding/translator.py",
        "limits_here(config.search_rows, config.search_cores)",
        "limits_here()",
        ("tests/test_translator.py::test_long_translations_of_short_sources_are_searched_a_few_at_a_time",),
    ),
    Mutant(
        "the search divides no batch",
        "t2t_keras/decoding/translator.py",
        "cores=self.limits.cores,\n            outputs=[\n",
        "cores=1,\n            outputs=[\n",
        ("tests/test_translator.py::test_long_translations_of_short_sources_are_searched_a_few_at_a_time",),
    ),
    Mutant(
        "an export has the cores of the machine that wrote it",
        "t2t_keras/export/savedmodel.py",
        "    translator.limits = limits_of_server",
        "    limits_of_server",
        ("tests/test_savedmodel.py::test_an_export_divides_no_batch",),
    ),
    Mutant(
        "the search has all lengths of sources",
        "t2t_keras/decoding/translator.py",
        "SOURCE_MULTIPLE = 4",
        "SOURCE_MULTIPLE = 1",
        ("tests/test_translator.py::test_the_search_has_few_lengths_of_sources",),
    ),
    Mutant(
        "finished sentences stay in the state of the step",
        "t2t_keras/decoding/beam_search.py",
        "tf.cond(size < tf.size(state.rows), compacted",
        "tf.cond(size < 0, compacted",
        ("tests/test_beam_search.py::test_the_step_works_on_fewer_sentences_when_some_are_at_their_maximum",),
    ),
    Mutant(
        "the step has any number of sentences",
        "t2t_keras/decoding/beam_search.py",
        "size = tf.gather(_SIZES, tf.searchsorted(_SIZES, unfinished[None])[0])",
        "size = unfinished",
        ("tests/test_beam_search.py::test_the_step_works_on_fewer_sentences_when_some_are_at_their_maximum",),
    ),
    Mutant(
        "the states of hooks keep finished sentences",
        "t2t_keras/decoding/beam_search.py",
        "return tf.nest.map_structure(lambda x: tf.gather(x, kept), states)",
        "return (*tf.nest.map_structure(lambda x: tf.gather(x, kept), states[:2]), state.hooks)",
        ("tests/test_search_hooks.py::test_sentences_that_finish_early_do_not_disturb_the_states_of_others",),
    ),
    Mutant(
        "hypotheses go on in the order of their scores",
        "t2t_keras/decoding/beam_search.py",
        "self.best(tf.cast(~candidates.ends, tf.int32))",
        "self.best(tf.where(candidates.ends, IMPOSSIBLE, candidates.log_probs))",
        ("tests/test_search_hooks.py::test_hypotheses_go_on_in_the_order_of_the_selector_and_are_returned_best_first",),
    ),
    Mutant(
        "running hypotheses are returned in the order of the selector",
        "t2t_keras/decoding/beam_search.py",
        "[state.finished.sequences, _gather(state.running.sequences, order)]",
        "[state.finished.sequences, state.running.sequences]",
        ("tests/test_search_hooks.py::test_hypotheses_go_on_in_the_order_of_the_selector_and_are_returned_best_first",),
    ),
    Mutant(
        "groups of beams compete for places",
        "t2t_keras/decoding/diverse_beams.py",
        """    def groups(self, beam_size):
        return self._groups
""",
        "",
        ("tests/test_diverse_beams.py::test_the_first_group_is_a_search_of_its_own",),
    ),
    Mutant(
        "a group is done when another is",
        "t2t_keras/decoding/beam_search.py",
        "tf.reduce_all(best_to_come <= self.grouped",
        "tf.reduce_any(best_to_come <= self.grouped",
        ("tests/test_diverse_beams.py::test_groups_equal_the_rule_of_the_paper",),
    ),
    Mutant(
        "unfinished hypotheses take the places of other groups",
        "t2t_keras/decoding/beam_search.py",
        "kept = tf.range(self.beam_size) % each < tf.repeat(lacking, each, axis=1)",
        "kept = tf.ones_like(log_probs, tf.bool)",
        ("tests/test_diverse_beams.py::test_places_that_a_group_lacks_go_to_its_own_unfinished_hypotheses",),
    ),
    Mutant(
        "diversity is taken from scores",
        "t2t_keras/decoding/diverse_beams.py",
        "for x in (totals, candidates))",
        "for x in (totals - self._diversity * times, candidates))",
        ("tests/test_diverse_beams.py::test_the_score_of_what_groups_find_is_that_of_the_model",),
    ),
    Mutant(
        "groups are kept from ending",
        "t2t_keras/decoding/diverse_beams.py",
        "goes_on = (candidates != self._eos_id) & (totals > IMPOSSIBLE)",
        "goes_on = totals > IMPOSSIBLE",
        ("tests/test_diverse_beams.py::test_groups_equal_the_rule_of_the_paper",),
    ),
    Mutant(
        "n-grams may come twice",
        "t2t_keras/decoding/translator.py",
        "yield NoRepeatedNgrams(self.config.no_repeat_ngram)",
        "yield NoRepeatedNgrams(self.config.no_repeat_ngram + 1)",
        ("tests/test_options.py::test_an_option_has_the_effect_that_it_names[no_repeat_ngram]",),
    ),
    Mutant(
        "a forced start that repeats itself has no translation",
        "t2t_keras/decoding/repetition.py",
        "tf.where(possible, allowed, rows)",
        "allowed",
        ("tests/test_repetition.py::test_a_forced_start_may_repeat_itself",),
    ),
    Mutant(
        "all draws of a sentence are the same",
        "t2t_keras/decoding/sampling.py",
        'keys(draws["seed"], draws["number"])',
        'keys(draws["seed"], 0 * draws["number"])',
        ("tests/test_sampling.py::test_a_draw_through_a_translator_is_that_of_the_search",),
    ),
    Mutant(
        "every fourth draw of a sentence is the same",
        "t2t_keras/decoding/sampling.py",
        'draws["first"] + tf.ragged.range',
        "tf.ragged.range",
        ("tests/test_sampling.py::test_a_draw_through_a_translator_is_that_of_the_search",),
    ),
    Mutant(
        "all positions have one random number",
        "t2t_keras/decoding/sampling.py",
        "random_bits(keys, tf.cast(position, tf.uint64))",
        "random_bits(keys, tf.constant(0, tf.uint64))",
        ("tests/test_sampling.py::test_draws_have_the_probabilities_of_all_that_could_be_written",),
    ),
    Mutant(
        "samples have the scores of their temperature",
        "t2t_keras/decoding/sampling.py",
        "lambda: of(normalized(logits))",
        "lambda: tf.math.log(of(probabilities))",
        ("tests/test_sampling.py::test_draws_have_the_probabilities_of_all_that_could_be_written",),
    ),
    Mutant(
        "a blank line may be drawn as text",
        "t2t_keras/decoding/translator.py",
        "absent = blank[:, None] | ~tf.math.is_finite(scores)",
        "absent = ~tf.math.is_finite(scores)",
        ("tests/test_signatures.py::test_samples_of_rows_in_one_batch_are_those_of_requests_of_their_own",),
    ),
    Mutant(
        "lines read ahead are numbered from 0 again",
        "t2t_keras/decoding/translator.py",
        "        done += len(ahead)\n",
        "",
        ("tests/test_sampling.py::test_a_translator_samples_text_by_the_numbers_of_lines",),
    ),
    Mutant(
        "requests of samples are numbered from 0 each",
        "t2t_keras/client.py",
        "        first += len(batch)\n",
        "",
        ("tests/test_client.py::test_the_program_prints_samples_by_the_seeds_of_their_lines",),
    ),
    Mutant(
        "a scorer is called at every position",
        "t2t_keras/decoding/beam_search.py",
        "any(each is True for each in applies)",
        "applies",
        ("tests/test_search_hooks.py::test_a_scorer_is_called_only_while_one_applies",),
    ),
    Mutant(
        "the last token of a prefix is not forced",
        "t2t_keras/decoding/search_hooks.py",
        "return position < self.length",
        "return position + 1 < self.length",
        ("tests/test_beam_search.py::test_rows_with_and_without_a_prefix_are_searched_by_the_same_rule",),
    ),
    Mutant(
        "a selector is called at every position",
        "t2t_keras/decoding/beam_search.py",
        "hooks = self.scorers if type(self.selector) is Best else (*self.scorers, self.selector)",
        "hooks = self.scorers",
        ("tests/test_search_hooks.py::test_a_selector_is_called_only_while_it_applies",),
    ),
    Mutant(
        "the progress of phrases stays with the place of its beam",
        "t2t_keras/decoding/constraints.py",
        "follow(progress, hypotheses.ancestors)",
        "progress",
        ("tests/test_constraints.py::test_a_wide_beam_finds_the_best_of_all_hypotheses_with_their_phrases",),
    ),
    Mutant(
        "a sub-word counts for two phrases",
        "t2t_keras/decoding/constraints.py",
        "free = progress.depth + 1 - longest",
        "free = progress.depth + 1",
        ("tests/test_constraints.py::test_the_progress_in_graphs_equals_a_trie_of_dictionaries_on_random_tokens",),
    ),
    Mutant(
        "hypotheses without their phrases may end",
        "t2t_keras/decoding/constraints.py",
        "((likely != self.eos_id) | may_end)",
        "True",
        ("tests/test_constraints.py::test_a_wide_beam_finds_the_best_of_all_hypotheses_with_their_phrases",),
    ),
    Mutant(
        "the beam is for the fullest bank",
        "t2t_keras/decoding/constraints.py",
        "turns = rank * (tf.reduce_max(banks) + 1) - banks",
        "turns = rank - 1000 * banks",
        ("tests/test_constraints.py::test_candidates_are_selected_from_all_banks_in_turn_by_hand",),
    ),
    Mutant(
        "a word is avoided in those that begin with it",
        "t2t_keras/decoding/translator.py",
        'Avoided(inputs["avoid"], inputs["max_length"], words, inputs["avoid_text"], spelling)',
        'Avoided(inputs["avoid"], inputs["max_length"])',
        ("tests/test_signatures.py::test_a_word_goes_on_after_one_that_is_avoided",),
    ),
    Mutant(
        "terms are found inside of words",
        "t2t_keras/phrases.py",
        'f"{_BOUNDARY}(?:{longest_first}){_BOUNDARY}"',
        "longest_first",
        ("tests/test_phrases.py::test_terms_are_found_as_whole_words_the_longest_first",),
    ),
    Mutant(
        "a state stays with the place of its beam",
        "t2t_keras/model/beams.py",
        "ancestors[:, :, -2:][:, :, 0]",
        "ancestors[:, :, -1]",
        ("tests/test_search_hooks.py::test_a_state_of_each_beam_is_right_where_beams_cross",),
    ),
    Mutant(
        "the second run of an ensemble is the first once more",
        "t2t_keras/decoding/loading.py",
        "checkpoint.load(folder, which, model)",
        "checkpoint.load(folders[0], which, model)",
        ("tests/test_ensemble.py::test_runs_are_loaded_together",),
    ),
    Mutant(
        "the weights of an ensemble stop at the command line",
        "t2t_keras/cli/flags.py",
        '"ensemble_weights": weights,',
        '"ensemble_weights": [],',
        ("tests/test_ensemble.py::test_flags_reach_the_ensemble",),
    ),
    Mutant(
        "programs translate with all threads in an operation",
        "t2t_keras/decoding/process_environment.py",
        """    choose_threads(environment)
""",
        "",
        (
            "tests/test_process_environment.py::test_an_operation_has_one_thread_unless_the_user_has_chosen",
            "tests/test_process_environment.py::test_programs_choose_before_tensorflow_is_imported",
        ),
    ),
    Mutant(
        "the demo translates an export with all threads in an operation",
        "tools/demo.py",
        "            process_environment.choose_threads()",
        "            pass",
        ("tests/test_process_environment.py::test_the_demo_chooses_too",),
    ),
    Mutant(
        "resuming takes the defaults",
        "t2t_keras/run_folder.py",
        "before = read(model_dir) if is_run else Options.default",
        "before = Options.default",
        ("tests/test_run_folder.py::test_a_run_that_is_started_again_has_every_option_that_it_had",),
    ),
    Mutant(
        "resuming forgets the data folder",
        "t2t_keras/run_folder.py",
        "if data_dir else before.data_dir\n",
        'if data_dir else ""\n',
        ("tests/test_run_folder.py::test_a_run_that_is_started_again_has_every_option_that_it_had",),
    ),
    Mutant(
        "only the first option that differs is named",
        "t2t_keras/run_folder.py",
        "in found if name in fixed or name in TEXTS)",
        "in found[:1])",
        ("tests/test_run_folder.py::test_all_options_that_may_not_change_are_named_at_once_with_both_values",),
    ),
    Mutant(
        "the seed may change",
        "t2t_keras/run_folder.py",
        '*("seed", "batch_tokens"',
        '*("batch_tokens"',
        ("tests/test_run_folder.py::test_what_decides_weights_or_the_order_of_the_data_may_not_change",),
    ),
    Mutant(
        "options change in silence",
        "t2t_keras/training/run.py",
        "        logger.info(f\"{'Changed' if",
        "        str(f\"{'Changed' if",
        ("tests/test_run.py::test_a_dry_run_of_a_run_that_is_there_changes_none_of_its_options",),
    ),
    Mutant(
        "a dry run changes a run's options",
        "t2t_keras/training/run.py",
        "keeps = not (resumed and dry_run)",
        "keeps = True",
        ("tests/test_run.py::test_a_dry_run_of_a_run_that_is_there_changes_none_of_its_options",),
    ),
    Mutant(
        "other workers keep their own options",
        "t2t_keras/training/run.py",
        "options if dry_run else run_folder.read(model_dir)",
        "options",
        ("tests/test_run.py::test_other_workers_take_the_options_of_the_chief_s_folder",),
    ),
    Mutant(
        "somebody's config.json is replaced",
        "t2t_keras/training/run.py",
        "            run_folder.check(model_dir)\n            run_folder.check_has",
        "            run_folder.check_has",
        ("tests/test_run.py::test_a_folder_of_somebody_s_own_files_stays_as_it_is",),
    ),
    Mutant(
        "loading does not look at the hash of the sub-words",
        "t2t_keras/decoding/loading.py",
        "vocabulary.load(run_folder.read_subwords(model_dir))",
        "vocabulary.load((model_dir / run_folder.SUBWORDS).read_bytes())",
        ("tests/test_run.py::test_sub_words_of_another_run_are_refused_by_all_that_use_a_run",),
    ),
    Mutant(
        "a lock follows a link",
        "t2t_keras/files.py",
        "os.O_NOFOLLOW | ",
        "",
        ("tests/test_lock.py::test_a_lock_that_is_a_link_does_not_change_what_it_points_to",),
    ),
    Mutant(
        "an option has a value of any type",
        "t2t_keras/config.py",
        "        _require(fields, fits, field.name, _TYPES[field.type])\n",
        "",
        ("tests/test_config.py::test_a_value_of_another_type_is_refused_by_name_in_every_field",),
    ),
    Mutant(
        "a whole number has no limit",
        "t2t_keras/config.py",
        "_require(fields, value <= maximum,",
        "_require(fields, True,",
        ("tests/test_config.py::test_a_whole_number_that_no_machine_has_room_for_is_refused_in_every_field",),
    ),
    Mutant(
        "deep nesting ends in a traceback",
        "t2t_keras/files.py",
        "except (ValueError, RecursionError) as error",
        "except ValueError as error",
        ("tests/test_config.py::test_a_file_of_another_shape_is_refused_in_a_sentence",),
    ),
    Mutant(
        "an index may hold any number",
        "t2t_keras/data/shards.py",
        "            if not (follows and",
        "            if False and not (follows and",
        ("tests/test_shards.py::test_a_number_that_cannot_be_in_the_index_is_told_with_its_line",),
    ),
    # Data: corpora, preparing, the data service.
    Mutant(
        "prepare ignores --normalization",
        "t2t_keras/data/prepare.py",
        "normalization=data.normalization,",
        'normalization="identity",',
        ("tests/test_prepare.py::test_text_is_normalised_as_asked",),
    ),
    Mutant(
        "prepare ignores --character_coverage",
        "t2t_keras/data/prepare.py",
        "character_coverage=data.character_coverage,",
        "character_coverage=0.9995,",
        ("tests/test_prepare.py::test_characters_are_covered_as_asked",),
    ),
    Mutant(
        "prepare ignores --vocab_sample",
        "t2t_keras/data/prepare.py",
        "sample=data.vocab_sample,",
        "sample=2_000_000,",
        ("tests/test_prepare.py::test_sub_words_are_learned_from_a_sample_as_large_as_asked_drawn_by_the_seed",),
    ),
    Mutant(
        "the sample of the sub-words ignores --seed",
        "t2t_keras/data/prepare.py",
        "sample=data.vocab_sample,\n        seed=seed,",
        "sample=data.vocab_sample,\n        seed=1,",
        ("tests/test_prepare.py::test_sub_words_are_learned_from_a_sample_as_large_as_asked_drawn_by_the_seed",),
    ),
    Mutant(
        "prepare ignores --skip_bad_lines",
        "t2t_keras/data/corpora.py",
        "skip_bad_lines=data.skip_bad_lines,",
        "skip_bad_lines=False,",
        ("tests/test_prepare.py::test_lines_that_are_not_utf8_stop_the_preparing_or_are_left_out_as_asked",),
    ),
    Mutant(
        "bad lines are skipped without --skip_bad_lines",
        "t2t_keras/data/corpora.py",
        "skip_bad_lines=data.skip_bad_lines,",
        "skip_bad_lines=True,",
        ("tests/test_prepare.py::test_lines_that_are_not_utf8_stop_the_preparing_or_are_left_out_as_asked",),
    ),
    Mutant(
        "prepare ignores --max_length",
        "t2t_keras/data/prepare.py",
        "pairs, subwords, data.max_length, report,",
        "pairs, subwords, 256, report,",
        ("tests/test_prepare.py::test_pairs_longer_than_the_limit_are_left_out_and_counted",),
    ),
    Mutant(
        "of a corpus the first MiB alone is compared",
        "t2t_keras/files.py",
        'hashlib.file_digest(file, "sha256").hexdigest()',
        "hashlib.sha256(file.read(2**20)).hexdigest()",
        ("tests/test_prepare.py::test_a_byte_that_changes_behind_the_first_mebibyte_makes_another_corpus",),
    ),
    Mutant(
        "what is read of a file is hashed in part",
        "t2t_keras/data/corpora.py",
        "memoryview(buffer)[:count]",
        "memoryview(buffer)[: min(count, 1000)]",
        ("tests/test_corpora.py::test_a_file_is_hashed_while_it_is_read",),
    ),
    Mutant(
        "a file is read once more for its hash",
        "t2t_keras/data/prepare.py",
        "_options(data, vocab_size, seed, task, text.hashes)",
        "_options(data, vocab_size, seed, task)",
        ("tests/test_prepare.py::test_preparing_reads_no_file_once_more_for_its_hash",),
    ),
    Mutant(
        "the first option that differs is named alone",
        "t2t_keras/data/prepare.py",
        "'; '.join(changes)",
        "changes[0]",
        ("tests/test_prepare.py::test_every_option_that_differs_is_named_with_both_values",),
    ),
    Mutant(
        "a folder prepared meanwhile is not compared with the options",
        "t2t_keras/data/prepare.py",
        "    check_folder(folder, data, vocab_size, seed, task)\n    logger",
        "    logger",
        ("tests/test_prepare.py::test_the_second_of_two_refuses_what_the_first_made_of_another_corpus",),
    ),
    Mutant(
        "data options without a corpus are not compared",
        "t2t_keras/data/prepare.py",
        'names = ["task", *(field.name',
        'names = ["task"] if True else [*(field.name',
        ("tests/test_prepare.py::test_data_options_are_compared_where_no_corpus_is_named",),
    ),
    Mutant(
        "a run does not keep what its data was prepared with",
        "t2t_keras/training/run.py",
        "        data = run_folder.prepared_with(folder)",
        "        data = options.data",
        ("tests/test_run.py::test_a_run_keeps_what_its_data_was_prepared_with",),
    ),
    Mutant(
        "a data folder of an older version is told to be of another corpus",
        "t2t_keras/data/prepare.py",
        "not _HASHED.search(",
        "False and _HASHED.search(",
        ("tests/test_prepare.py::test_a_folder_that_an_older_version_prepared_is_used_without_its_text_alone",),
    ),
    Mutant(
        "a corpus.json of other types is a traceback",
        "t2t_keras/run_folder.py",
        '    if not isinstance(options, dict):\n        raise ValueError(f"{path} is damaged',
        '    if options is None:\n        raise ValueError(f"{path} is damaged',
        ("tests/test_prepare.py::test_a_folder_whose_corpus_json_is_damaged_is_told",),
    ),
    Mutant(
        "preparing overwrites other files",
        "t2t_keras/data/prepare.py",
        "        _check_not_foreign(folder)\n",
        "",
        ("tests/test_prepare.py::test_a_folder_of_other_files_is_left_as_it_is",),
    ),
    Mutant(
        "a full disk under a shard is a traceback",
        "t2t_keras/data/prepare.py",
        "(OSError, *_WRITE_ERRORS)",
        "OSError",
        ("tests/test_prepare.py::test_a_full_disk_is_told_in_a_sentence_and_the_same_command_goes_on_when_there_is_room",),
    ),
    Mutant(
        "a folder counts as whole before it is",
        "t2t_keras/data/prepare.py",
        "    write_whole(folder / SUBWORDS, subwords.model)\n",
        '    write_whole(folder / SUBWORDS, subwords.model)\n    (folder / CORPUS).write_text("{}")\n',
        ("tests/test_prepare.py::test_a_full_disk_is_told_in_a_sentence_and_the_same_command_goes_on_when_there_is_room",),
    ),
    Mutant(
        "each validation pair in the training text counts once",
        "t2t_keras/data/prepare.py",
        "sum(pair in repeated for pair in text.valid_pairs)",
        "len(repeated)",
        ("tests/test_prepare.py::test_validation_pairs_that_are_in_the_training_text_are_counted",),
    ),
    Mutant(
        "identical sides go unseen",
        "t2t_keras/data/prepare.py",
        "identical += len(set(pair)) < len(pair)",
        "identical += 0",
        ("tests/test_prepare.py::test_training_text_that_is_mostly_the_same_on_both_sides_is_noticed",),
    ),
    Mutant(
        "compressed text is read as text",
        "t2t_keras/data/corpora.py",
        "                _check_is_text(path, file.peek(max(map(len, _NOT_TEXT))))\n",
        "",
        ("tests/test_corpora.py::test_a_file_that_is_not_text_or_is_in_utf16_is_told_with_what_makes_text_of_it",),
    ),
    Mutant(
        'too small a vocabulary is answered by "give more text"',
        "t2t_keras/text/byte_pairs.py",
        "required_chars. ",
        "required_words. ",
        ("tests/test_tokenizer.py::test_too_small_a_vocabulary_is_refused_with_the_smallest_that_can_be_learned",),
    ),
    Mutant(
        "a message of the client repeats a password",
        "t2t_keras/client.py",
        'ServerError(f"{self.shown} refused',
        'ServerError(f"{self.server} refused',
        ("tests/test_client.py::test_no_message_repeats_a_password",),
    ),
    Mutant(
        "an address that is refused is repeated with its password",
        "t2t_keras/client.py",
        "Received: {self.shown}.",
        "Received: {self.server}.",
        ("tests/test_client.py::test_a_password_in_an_address_that_is_refused_is_not_repeated",),
    ),
    Mutant(
        "a server's words are repeated with the password in them",
        "t2t_keras/client.py",
        "message.replace(self.server, self.shown)",
        "message",
        ("tests/test_client.py::test_no_message_repeats_a_password",),
    ),
    Mutant(
        "a second dispatcher shares the port",
        "tools/data_service.py",
        "    data_service.check_free(_PORT.value)\n",
        "",
        ("tests/test_data_service.py::test_a_second_dispatcher_or_worker_at_a_port_that_is_taken_is_refused_in_a_line",),
    ),
    Mutant(
        "the check of a port shares it",
        "t2t_keras/data/data_service.py",
        "dualstack_ipv6=dual)",
        "dualstack_ipv6=dual, reuse_port=True)",
        ("tests/test_data_service.py::test_a_port_that_is_taken_is_refused_and_free_when_it_is_given_back",),
    ),
    Mutant(
        "as localhost the data service listens everywhere",
        "tools/data_service.py",
        "    restrict(_HOST.value, _PORT.value)\n",
        "",
        ("tests/test_data_service.py::test_as_localhost_the_service_takes_calls_of_this_machine_alone",),
    ),
    Mutant(
        "one listener of the port alone is closed to others",
        "t2t_keras/data/data_service.py",
        'socket.SO_BINDTODEVICE, b"lo")',
        'socket.SO_BINDTODEVICE, b"lo")\n                    return',
        ("tests/test_data_service.py::test_a_port_that_is_kept_local_takes_calls_of_this_machine_alone",),
    ),
    Mutant(
        "nobody is warned of a data service that listens everywhere",
        "tools/data_service.py",
        "            file=sys.stderr,",
        "            file=sys.stdout,",
        ("tests/test_data_service.py::test_under_another_name_the_service_warns_that_it_listens_everywhere",),
    ),
    # Programs: translate, evaluate, export, console commands.
    Mutant(
        "alignments are of one head",
        "t2t_keras/model/transformer.py",
        "return ops.mean(layer.cross_attention.weights_of(x, memory.keys_values[len(before)], memory.mask), axis=1)",
        "return layer.cross_attention.weights_of(x, memory.keys_values[len(before)], memory.mask)[:, 0]",
        ("tests/test_oracle.py::test_alignments_of_a_padded_batch_are_the_papers_attention_in_the_last_layer_but_one",),
    ),
    Mutant(
        "alignments look at later target words",
        "t2t_keras/model/transformer.py",
        "x, _ = layer.self_attend(x, mask)",
        "x, _ = layer.self_attend(x, ops.ones_like(mask))",
        ("tests/test_oracle.py::test_alignments_of_a_padded_batch_are_the_papers_attention_in_the_last_layer_but_one",),
    ),
    Mutant(
        "alignments leave out the layers before",
        "t2t_keras/model/transformer.py",
        "self._decoder_layers(before, self.positions",
        "self._decoder_layers([], self.positions",
        ("tests/test_oracle.py::test_alignments_of_a_padded_batch_are_the_papers_attention_in_the_last_layer_but_one",),
    ),
    Mutant(
        "evaluate.py ignores --lowercase",
        "tools/evaluate.py",
        '"lowercase": _LOWERCASE.value',
        '"lowercase": False',
        ("tests/test_tools.py::test_existing_translations_are_scored_as_by_sacrebleu_blank_lines_too",),
    ),
    Mutant(
        "evaluate.py ignores --tokenize",
        "tools/evaluate.py",
        '"tokenize": _TOKENIZE.value, "samples"',
        '"tokenize": "13a", "samples"',
        ("tests/test_tools.py::test_existing_translations_are_scored_as_by_sacrebleu_blank_lines_too",),
    ),
    Mutant(
        "evaluate.py takes the first reference only",
        "tools/evaluate.py",
        "for name in _REFERENCE.value)]",
        "for name in _REFERENCE.value[:1])]",
        ("tests/test_tools.py::test_existing_translations_are_scored_as_by_sacrebleu_blank_lines_too",),
    ),
    Mutant(
        "evaluate.py leaves out blank lines",
        "t2t_keras/data/corpora.py",
        "found = [text(names) for",
        "found = [[line for line in text(names) if line.strip()] for",
        ("tests/test_tools.py::test_existing_translations_are_scored_as_by_sacrebleu_blank_lines_too",),
    ),
    Mutant(
        "ROUGE is by the first reference",
        "t2t_keras/evaluation/scores.py",
        "for reference in known]",
        "for reference in known[:1]]",
        ("tests/test_evaluation.py::test_rouge_of_several_references_is_by_the_best_of_each_sentence",),
    ),
    Mutant(
        "perplexity is of the first reference",
        "t2t_keras/evaluation/perplexity.py",
        "for side in references for pair",
        "for side in references[:1] for pair",
        ("tests/test_run.py::test_perplexity_is_of_all_references_and_leaves_out_pairs_with_a_blank_side",),
    ),
    Mutant(
        "evaluate.py finds a missing tokenizer after translating",
        "tools/evaluate.py",
        "scores.require(tokenize=_TOKENIZE.value, compound_split=_COMPOUND_SPLIT.value, rouge=_ROUGE.value)",
        "pass",
        ("tests/test_tools.py::test_evaluating_finds_out_what_cannot_be_before_it_loads_a_model",),
    ),
    Mutant(
        "evaluate.py writes Infinity and NaN",
        "tools/evaluate.py",
        "print(json.dumps(finite, allow_nan=False))",
        "print(json.dumps(found))",
        ("tests/test_tools.py::test_a_figure_that_is_not_finite_is_null_in_json",),
    ),
    Mutant(
        "evaluate.py ignores options of a model where there is none",
        "tools/evaluate.py",
        "    if ignored:",
        "    if False:",
        ("tests/test_tools.py::test_an_option_of_a_model_is_refused_where_there_is_none[--beam_size=2]",),
    ),
    Mutant(
        "evaluate.py does not compare the files' numbers of lines",
        "t2t_keras/data/corpora.py",
        "if len(set(map(len, found))) > 1:",
        "if False:",
        ("tests/test_tools.py::test_scored_files_of_unequal_length_are_told_by_their_flags",),
    ),
    Mutant(
        "evaluate.py has no samples by default",
        "tools/evaluate.py",
        '"bootstrap_samples", 1000,',
        '"bootstrap_samples", 0,',
        ("tests/test_tools.py::test_scores_have_a_confidence_interval_by_default",),
    ),
    Mutant(
        "intervals are tried in memory that is not there",
        "tools/evaluate.py",
        "        samples = 0",
        "        pass",
        ("tests/test_tools.py::test_intervals_that_need_too_much_memory_are_left_out",),
    ),
    Mutant(
        "systems of the same score differ for certain",
        "t2t_keras/evaluation/significance.py",
        "return 1.0 if found[test][system].score == found[test][0].score else found[test][system].p_value",
        "return found[test][system].p_value",
        ("tests/test_comparison.py::test_systems_of_the_same_score_do_not_differ",),
    ),
    Mutant(
        "the seed of the tests is sacreBLEU's",
        "t2t_keras/evaluation/significance.py",
        "os.environ[_SEED] = str(seed)",
        "pass",
        ("tests/test_comparison.py::test_the_seed_decides_the_samples_and_the_environment_stays",),
    ),
    Mutant(
        "sentences are compared with the first reference",
        "t2t_keras/evaluation/comparison.py",
        "rows = list(zip(*references, strict=True))",
        "rows = list(zip(references[0], strict=True))",
        ("tests/test_comparison.py::test_several_references_count_for_each_sentence",),
    ),
    Mutant(
        "compare.py puts runs before files",
        "tools/compare.py",
        "{name: systems[name] for name in operands},",
        "{name: systems[name] for name in [*runs, *dict(outputs)]},",
        ("tests/test_tools.py::test_runs_are_translated_and_compared_in_the_place_that_they_have",),
    ),
    Mutant(
        "compare.py ignores --lowercase",
        "tools/compare.py",
        "lowercase=_LOWERCASE.value,",
        "lowercase=False,",
        ("tests/test_tools.py::test_systems_are_compared_as_by_the_library",),
    ),
    Mutant(
        "minimum Bayes risk weighs all candidates the same",
        "t2t_keras/decoding/minimum_bayes_risk.py",
        "[float(np.exp(scores[place] - best)) for place in filled] if weighted",
        "() if weighted",
        ("tests/test_minimum_bayes_risk.py::test_an_n_best_list_is_reordered_by_its_probabilities",),
    ),
    Mutant(
        "reranking gives a translation back",
        "t2t_keras/decoding/reranking.py",
        "(target, source),  # P(X | Y)",
        "(source, target),  # P(X | Y)",
        ("tests/test_reranking.py::test_a_list_is_in_the_order_of_its_scores_and_those_of_the_other_model",),
    ),
    Mutant(
        "translate.py gives no weight to the other run",
        "tools/translate.py",
        "weight=_RERANK_WEIGHT.value",
        "weight=1.0",
        ("tests/test_tools.py::test_translations_are_reranked_by_another_run",),
    ),
    Mutant(
        "evaluate.py advises an option that it does not have",
        "t2t_keras/data/corpora.py",
        'raise ValueError(f"{_not_utf8(path, number, error)}.")',
        'raise ValueError(f"{_not_utf8(path, number, error)}, or leave such lines out with `skip_bad_lines`.")',
        ("tests/test_tools.py::test_a_scored_line_that_is_not_utf_8_is_told_without_advice_that_cannot_be_taken",),
    ),
    Mutant(
        "a link is replaced by the file that is written",
        "t2t_keras/text/lines.py",
        "pathlib.Path(os.path.realpath(path))",
        "path",
        ("tests/test_lines.py::test_what_a_link_points_to_is_written_and_the_link_stays",),
    ),
    Mutant(
        "a file that cannot be written is told at the end",
        "t2t_keras/text/lines.py",
        'open(partial, "wb", opener',
        'open("/dev/null", "wb", opener',
        ("tests/test_lines.py::test_a_file_that_cannot_be_written_is_told_before_it_is",),
    ),
    Mutant(
        "translate.py --n_best prints the worst first",
        "tools/translate.py",
        "strict=True))[:wanted]:",
        "strict=True))[:wanted][::-1]:",
        ("tests/test_tools.py::test_n_best_lines_are_numbered_scored_and_best_first",),
    ),
    Mutant(
        "translate.py --flush reads ahead",
        "tools/translate.py",
        "read_ahead=1 if at_keyboard or _FLUSH.value else 4096",
        "read_ahead=1 if at_keyboard else 4096",
        ("tests/test_tools.py::test_flushing_answers_a_line_before_the_next_comes",),
    ),
    Mutant(
        "translate.py names the line before the one that is cut",
        "tools/translate.py",
        'warn(f"Line {number}: only',
        'warn(f"Line {number - 1}: only',
        ("tests/test_tools.py::test_a_line_that_is_cut_is_told_by_its_number",),
    ),
    Mutant(
        "translate.py shows progress between translations on a terminal",
        "tools/translate.py",
        "hidden = True if at_keyboard or target.isatty() else None",
        "hidden = None",
        ("tests/test_tools.py::test_progress_is_shown_on_a_terminal_that_the_translations_do_not_go_to",),
    ),
    Mutant(
        "a negative alpha is taken",
        "t2t_keras/config.py",
        "0 <= self.alpha < 100",
        "abs(self.alpha) < 100",
        ("tests/test_config.py::test_an_invalid_option_is_refused_with_its_name_and_value",),
    ),
    Mutant(
        "wrong options are told after TensorFlow is imported",
        "t2t_keras/cli/flags.py",
        '    dataclasses.replace(*run_folder.groups(folders[0], "decode"), **search)\n',
        "",
        ("tests/test_tools.py::test_a_wrong_option_is_told_in_one_line_and_at_once",),
    ),
    Mutant(
        "help of the installed launcher names the file of a checkout",
        "tools/workers.py",
        "return options.name_programs(__doc__)",
        "return __doc__",
        ("tests/test_workers.py::test_help_of_the_installed_launcher_names_installed_programs",),
    ),
    Mutant(
        "the launcher sets how much TensorFlow says in its workers",
        "tools/workers.py",
        "from t2t_keras import __version__\n",
        "from t2t_keras import __version__, flags\n",
        ("tests/test_workers.py::test_workers_inherit_the_environment_of_a_person_and_no_more",),
    ),
    Mutant(
        "the launcher has no --version",
        "tools/workers.py",
        'if sys.argv[1:2] == ["--version"]:',
        "if False:",
        ("tests/test_tools.py::test_every_program_tells_its_version_without_tensorflow[workers]",),
    ),
    # The built-in corpus and the quick start.
    Mutant(
        "numbers below 1,000 are in the built-in training text by chance only",
        "t2t_keras/data/builtin_corpus.py",
        "small.pop() if small and index % 4 == 0 else pair",
        "pair",
        ("tests/test_builtin_corpus.py::test_every_number_below_1000_is_in_train_or_in_test",),
    ),
    Mutant(
        "the built-in corpus draws numbers of six digits",
        "t2t_keras/data/builtin_corpus.py",
        "digits = draw.randint(1, 7)",
        "digits = 6",
        ("tests/test_builtin_corpus.py::test_short_sentences_are_common_in_every_split",),
    ),
    Mutant(
        "exact_match_short counts sentences of any length",
        "t2t_keras/evaluation/scores.py",
        "if len(source.split()) <= max_words",
        "if source",
        ("tests/test_quickstart.py::test_short_sentences_are_counted_on_their_own",),
    ),
    Mutant(
        "the installed quick start writes into its own folder",
        "tools/quickstart.py",
        "_ROOT if _CHECKOUT else pathlib.Path()",
        "_ROOT",
        ("tests/test_quickstart.py::test_its_default_folder_is_in_the_checkout_or_where_a_person_works",),
    ),
    Mutant(
        "the demo's page shows typed text as HTML",
        "t2t_keras/visualization/demo.html",
        "word.textContent = byId",
        "word.innerHTML = byId",
        ("tests/test_demo.py::test_whatever_is_typed_is_shown_as_text",),
    ),
    Mutant(
        "the demo shades the wrong side's words",
        "t2t_keras/visualization/demo.html",
        "attention(best.alignment, targets[index], unit)",
        "attention(best.alignment, targets[0], unit)",
        ("tests/test_demo.py::test_typing_translates_after_a_pause_and_pointing_shows_the_alignment",),
    ),
    Mutant(
        "attention in TensorBoard is of sentences that do not fit",
        "t2t_keras/reporting/pictures.py",
        "return 1 < lengths.min() and lengths.max() <= MAX_PIECES",
        "return True",
        ("tests/test_training_pictures.py::test_the_first_pairs_that_fit_are_drawn",),
    ),
    Mutant(
        "--attention_images is ignored",
        "t2t_keras/tasks/translation.py",
        "options.train.attention_images)",
        "1)",
        ("tests/test_options.py::test_an_option_has_the_effect_that_it_names[attention_images]",),
    ),
    # Pictures of attention.
    Mutant(
        "pictures of attention label what the decoder has read with what it predicts",
        "t2t_keras/visualization/attention.py",
        "_tokens(tokenizer, [BOS, *predicted[:-1]])",
        "_tokens(tokenizer, predicted)",
        ("tests/test_attention_pictures.py::test_the_pieces_are_those_of_the_sentences",),
    ),
    Mutant(
        "attention from a word is a sum over its pieces",
        "t2t_keras/visualization/attention.py",
        ' / queries[:, None].astype("float32")',
        "",
        ("tests/test_attention_pictures.py::test_attention_to_a_word_is_a_sum_and_from_a_word_a_mean",),
    ),
    Mutant(
        "control characters make a picture of attention that is no XML",
        "t2t_keras/visualization/figures.py",
        'return "\\ufffd" if hidden else character',
        "return character",
        ("tests/test_attention_pictures.py::test_text_is_drawn_as_it_is",),
    ),
    Mutant(
        "a large picture of attention has as many dots per inch as a small one",
        "t2t_keras/visualization/figures.py",
        "dpi = min(_DPI, math.sqrt(_MAX_PIXELS / (width * height)))",
        "dpi = _DPI",
        ("tests/test_attention_pictures.py::test_a_picture_of_256_pieces_has_a_bounded_number_of_pixels",),
    ),
    Mutant(
        "lines of attention are opaque",
        "t2t_keras/visualization/attention_pictures.py",
        "to_rgba(color, min(1.0, float(drawn[t, s])))",
        "to_rgba(color, 1.0)",
        ("tests/test_attention_pictures.py::test_the_opacity_of_a_line_is_its_weight",),
    ),
    Mutant(
        "heat maps of attention are those of the first heads",
        "t2t_keras/visualization/attention_pictures.py",
        "    return weights[layer, heads], layer % layers, heads",
        "    return weights[layer, : len(heads)], layer % layers, heads",
        ("tests/test_attention_pictures.py::test_heat_maps_show_the_weights_of_the_chosen_heads",),
    ),
    Mutant(
        "text can end the data of the page of attention",
        "t2t_keras/visualization/pages.py",
        'for character in "<>&":',
        'for character in "":',
        ("tests/test_attention_pictures.py::test_no_text_gets_out_of_the_data_of_a_page",),
    ),
    # Sections 6.1 and 6.2: the cost of training, Table 3.
    Mutant(
        "the operations of cross-attention are left out",
        "t2t_keras/model/flops.py",
        "+ _attention(config, target * source)",
        "",
        ("tests/test_flops.py::test_a_forward_pass_and_its_gradient_have_the_counted_products",),
    ),
    Mutant(
        "the operations of the backward pass are left out",
        "t2t_keras/training/state.py",
        'self.flops += 3 * metrics["flops"]',
        'self.flops += metrics["flops"]',
        ("tests/test_flops.py::test_operations_are_counted_over_all_updates_and_per_second",),
    ),
    Mutant(
        "padding of the target is not counted",
        "t2t_keras/training/train_step.py",
        "model.flops(shapes[0][0], *(shape[1] for shape in shapes))",
        "model.flops(shapes[0][0], shapes[0][1], tf.reduce_sum(token_mask(counted[-1])) / shapes[0][0])",
        ("tests/test_flops.py::test_an_update_counts_the_operations_of_its_padded_micro_batches",),
    ),
    Mutant(
        "a flagfile overrides the row of Table 3",
        "t2t_keras/cli/flags.py",
        'kept = {option for option in own if sources.get(option) == "command line"}',
        "kept = set(given)",
        ("tests/test_flags.py::test_a_row_of_table_3_sets_its_options_between_a_flagfile_and_the_command_line",),
    ),
    Mutant(
        "train.py ignores --model",
        "tools/train.py",
        "given, sources = options.with_table_3(options.given_run(), options.sources())",
        "given, sources = options.given_run(), options.sources()",
        ("tests/test_table3.py::test_train_py_refuses_an_unknown_row",),
    ),
    Mutant(
        "a finished row is trained again",
        "t2t_keras/experiments/table3.py",
        "results = {row: _finished_result(row, output_dir / row, options) for row, options in rows.items()}",
        "results = dict.fromkeys(rows)",
        ("tests/test_table3.py::test_a_stopped_table_resumes_at_its_row_and_trains_no_row_twice",),
    ),
    Mutant(
        "a row with fewer updates counts as finished",
        "t2t_keras/experiments/table3.py",
        'if changed == {"train_steps"} and',
        "if False and",
        ("tests/test_table3.py::test_more_updates_train_on_and_options_without_effect_on_the_result_change_nothing",),
    ),
    Mutant(
        "table3.py lets the command line change a row",
        "tools/table3.py",
        'if sources.get(name) == "command line"]',
        "if False]",
        ("tests/test_table3.py::test_wrong_rows_and_options_that_rows_set_are_refused_in_a_line",),
    ),
    # Restricted self-attention.
    Mutant(
        "values and queries are exchanged where they have one width",
        "t2t_keras/layers/attention.py",
        "return ops.split(x, len(projections), axis=1) if",
        "return ops.split(x, len(projections), axis=1)[::-1] if",
        ("tests/test_attention.py::test_h_heads_are_the_sum_of_layers_of_one_head_each[d_k = d_v]",),
    ),
    Mutant(
        "restricted attention has no band inside blocks",
        "t2t_keras/layers/restricted_attention.py",
        "near = ops.logical_and(ops.abs(distance) <= reach, around_blocks(positions))",
        "near = ops.logical_and(ops.abs(distance) >= 0, around_blocks(positions))",
        ("tests/test_restricted_attention.py::test_of_five_positions_each_attends_to_itself_and_its_neighbors",),
    ),
    Mutant(
        "restricted attention attends to the zeros beyond the ends",
        "t2t_keras/layers/restricted_attention.py",
        "near = ops.logical_and(ops.abs(distance) <= reach, around_blocks(positions))",
        "near = ops.logical_and(ops.abs(distance) <= reach, around_blocks(positions) | True)",
        ("tests/test_restricted_attention.py::test_of_five_positions_each_attends_to_itself_and_its_neighbors",),
    ),
    Mutant(
        "restricted attention sees the block after as the block before",
        "t2t_keras/layers/restricted_attention.py",
        "blocks[:, :, 2:, :reach]",
        "blocks[:, :, :-2, :reach]",
        ("tests/test_restricted_attention.py::test_a_position_that_is_too_far_changes_nothing_and_the_farthest_in_reach_does",),
    ),
    Mutant(
        "restricted attention sees the wrong end of the block before",
        "t2t_keras/layers/restricted_attention.py",
        "blocks[:, :, :-2, block - reach :]",
        "blocks[:, :, :-2, :reach]",
        ("tests/test_restricted_attention.py::test_a_position_that_is_too_far_changes_nothing_and_the_farthest_in_reach_does",),
    ),
    Mutant(
        "restricted attention of padding alone leaves its neighborhood",
        "t2t_keras/layers/restricted_attention.py",
        "    return ops.logical_or(allowed, ops.logical_and(near, ops.logical_not(ops.any(allowed, axis=-1, keepdims=True))))",
        "    return allowed",
        ("tests/test_restricted_attention.py::test_a_neighborhood_of_padding_alone_is_not_masked_and_all_weights_stay_in_the_band",),
    ),
    Mutant(
        "one block holds the whole sequence",
        "t2t_keras/layers/restricted_attention.py",
        "_clip(max(window // 2, _SMALLEST_BLOCK), 1, length)",
        "_clip(10**6, 1, length)",
        ("tests/test_restricted_attention.py::test_no_tensor_of_the_forward_or_backward_pass_grows_faster_than_the_length",),
    ),
    Mutant(
        "the encoder ignores its window",
        "t2t_keras/model/encoder.py",
        ', "dropout", "attention_window")}',
        ', "dropout")}',
        ("tests/test_restricted_attention.py::test_the_encoder_attends_to_neighborhoods_and_the_decoder_to_everything",),
    ),
    Mutant(
        "an encoder layer forgets its window",
        "t2t_keras/layers/stacks.py",
        'return {**super().get_config(), "attention_window": self.attention_window}',
        "return super().get_config()",
        ("tests/test_stacks.py::test_a_saved_layer_comes_back_with_its_config_its_policy_and_its_outputs",),
    ),
    Mutant(
        "pictures show full attention of a restricted layer",
        "t2t_keras/layers/restricted_attention.py",
        "return self._attend(q, k, ops.eye(k.shape[2], dtype=k.dtype)[None, None], mask)",
        "return super()._weights(q, k, mask)",
        ("tests/test_restricted_attention.py::test_pictures_of_attention_show_the_band",),
    ),
    Mutant(
        "the cost of a micro-batch ignores the window",
        "t2t_keras/model/flops.py",
        "scores = computed_scores(config.attention_window, source) + source * target",
        "scores = computed_scores(0, source) + source * target",
        ("tests/test_restricted_attention.py::test_the_largest_micro_batch_is_the_one_that_needs_most_memory_with_the_window",),
    ),
    # Constituency parsing.
    Mutant(
        "index tags are kept in labels",
        "t2t_keras/parsing/trees.py",
        're.split("[-=]", label, maxsplit=1)',
        're.split("[-]", label, maxsplit=1)',
        ("tests/test_trees.py::test_function_tags_and_indices_are_removed_from_a_label",),
    ),
    Mutant(
        "-LRB- loses its name",
        "t2t_keras/parsing/trees.py",
        'return label if label.startswith("-") else ',
        "return ",
        ("tests/test_trees.py::test_function_tags_and_indices_are_removed_from_a_label",),
    ),
    Mutant(
        "traces are words",
        "t2t_keras/parsing/trees.py",
        "            if node.label != TRACE:\n",
        "            if node.label:\n",
        ("tests/test_trees.py::test_a_treebank_file_is_read_and_cleaned",),
    ),
    Mutant(
        "constituents without words stay",
        "t2t_keras/parsing/trees.py",
        "            if done.children:\n",
        "            if done:\n",
        ("tests/test_trees.py::test_a_treebank_file_is_read_and_cleaned",),
    ),
    Mutant(
        "U+00A0 separates words",
        "t2t_keras/parsing/trees.py",
        '_TOKEN = re.compile(r"[()]|[^()\\s]+", re.ASCII)',
        '_TOKEN = re.compile(r"[()]|[^()\\s]+")',
        ("tests/test_trees.py::test_a_word_may_have_any_character_but_brackets_and_ascii_spaces",),
    ),
    Mutant(
        "an open bracket at the end of a file is ignored",
        "t2t_keras/parsing/trees.py",
        "    if stack:\n        raise wrong(started",
        "    if not started:\n        raise wrong(started",
        ("tests/test_trees.py::test_an_error_names_the_file_and_the_line",),
    ),
    Mutant(
        "an unbalanced tree is reported at the end of the file",
        "t2t_keras/parsing/trees.py",
        "raise wrong(started, ",
        "raise wrong(number, ",
        ("tests/test_trees.py::test_an_error_names_the_file_and_the_line",),
    ),
    Mutant(
        "brackets in a sentence stay brackets",
        "t2t_keras/parsing/trees.py",
        "        sentence = sentence.replace(bracket, name)",
        "        sentence = sentence.replace(name, name)",
        ("tests/test_trees.py::test_words_are_separated_by_ascii_spaces_and_brackets_get_the_treebank_s_names",),
    ),
    Mutant(
        "balanced lines of broken trees are one tree",
        "t2t_keras/parsing/trees.py",
        "if number in (None, len(trees)) else",
        "if trees else",
        ("tests/test_trees.py::test_brackets_that_balance_over_two_broken_lines_are_two_broken_lines",),
    ),
    Mutant(
        "a closing bracket of another label closes",
        "t2t_keras/parsing/linearize.py",
        'elif bracket == ")" and open_labels.get(label):',
        'elif bracket == ")" and len(stack) > 1:',
        ("tests/test_linearize.py::test_each_rule_of_the_repair",),
    ),
    Mutant(
        "words without a tag are lost",
        "t2t_keras/parsing/linearize.py",
        "for word in words[used:])",
        "for word in words[used : used + 1])",
        ("tests/test_linearize.py::test_any_tokens_give_a_tree_with_exactly_the_words",),
    ),
    Mutant(
        "punctuation keeps the model's tag",
        "t2t_keras/parsing/linearize.py",
        "Tree(tag_of(words[used], label), word",
        "Tree(label, word",
        ("tests/test_linearize.py::test_punctuation_has_its_tag_and_no_other_word_has_one_of_these",),
    ),
    Mutant(
        "a word may have a tag of punctuation",
        "t2t_keras/parsing/linearize.py",
        "    if tag in DELETED and (word",
        '    if tag == "XX" and (word',
        ("tests/test_linearize.py::test_punctuation_has_its_tag_and_no_other_word_has_one_of_these",),
    ),
    Mutant(
        "PRT is not ADVP",
        "t2t_keras/parsing/evalb.py",
        'return "ADVP" if label == "PRT" else label',
        "return label",
        ("tests/test_evalb.py::test_a_sentence_is_scored_as_by_evalb",),
    ),
    Mutant(
        "equal brackets match several times",
        "t2t_keras/parsing/evalb.py",
        "(collections.Counter(gold_brackets) & collections.Counter(parsed_brackets)).total()",
        "sum(bracket in gold_brackets for bracket in parsed_brackets)",
        ("tests/test_evalb.py::test_a_sentence_is_scored_as_by_evalb",),
    ),
    Mutant(
        "TOP is counted",
        "t2t_keras/parsing/evalb.py",
        "frozenset((TOP, TRACE,",
        'frozenset(("", TRACE,',
        ("tests/test_evalb.py::test_a_sentence_is_scored_as_by_evalb",),
    ),
    Mutant(
        "other words are scored",
        "t2t_keras/parsing/evalb.py",
        "if [node.word for node in gold_words] != [node.word for node in parsed_words]:",
        "if len(gold_words) != len(parsed_words):",
        ("tests/test_evalb.py::test_a_sentence_with_other_words_is_an_error_and_one_without_words_is_skipped",),
    ),
    Mutant(
        "escape sequences reach the terminal",
        "t2t_keras/parsing/draw.py",
        "character if character.isprintable() else",
        "character if character else",
        ("tests/test_trees.py::test_a_picture_has_no_control_characters",),
    ),
    Mutant(
        "blank lines have a tree",
        "tools/parse.py",
        'if tree.children else ""',
        'if tree else ""',
        ("tests/test_parse.py::test_a_line_gives_a_tree_and_a_blank_line_a_blank_line",),
    ),
    Mutant(
        "the best hypothesis is repaired where a later one is well-formed",
        "t2t_keras/parsing/parser.py",
        "enumerate(hypotheses):",
        "enumerate(hypotheses[:1]):",
        ("tests/test_parse.py::test_sentences_of_any_length_keep_their_order_and_their_words",),
    ),
    Mutant(
        "words of one sentence get the tree of another",
        "t2t_keras/parsing/parser.py",
        "waiting.popleft()",
        "waiting.pop()",
        ("tests/test_parse.py::test_sentences_of_any_length_keep_their_order_and_their_words",),
    ),
    Mutant(
        "flags of another task are ignored",
        "tools/parse.py",
        "if flags.FLAGS[name].present):",
        "if not flags.FLAGS):",
        ("tests/test_parse.py::test_flags_that_do_not_fit_together_are_told_before_anything_is_written",),
    ),
    Mutant(
        "a word of more than 100 bytes is unknown",
        "t2t_keras/text/word_pieces.py",
        "max_bytes_per_word=2**31 - 1",
        "max_bytes_per_word=100",
        ("tests/test_word_pieces.py::test_a_word_of_any_length_is_not_unknown",),
    ),
    Mutant(
        "text that spells a special symbol becomes its id",
        "t2t_keras/text/word_pieces.py",
        "_NOT_IN_TEXT + piece.encode() for piece in",
        "piece.encode() for piece in",
        ("tests/test_tokenizer.py::test_a_line_that_spells_a_special_symbol_is_not_one",),
    ),
    Mutant(
        "word pieces cross letters and punctuation",
        "t2t_keras/text/word_pieces.py",
        "_kind(part[-1]) == _kind(character)",
        "True",
        ("tests/test_word_pieces.py::test_pieces_do_not_cross_letters_digits_and_other_characters",),
    ),
    Mutant(
        "characters of rare words have no word piece",
        "t2t_keras/text/word_pieces.py",
        " + [item for item in ranked[WORDS:] if len(item[0]) == 1]",
        "",
        ("tests/test_word_pieces.py::test_characters_of_words_too_rare_to_learn_from_have_pieces",),
    ),
    Mutant(
        "the first word keeps its space",
        "t2t_keras/text/word_pieces.py",
        'r"\\A "',
        'r"\\A  "',
        ("tests/test_tokenizer.py::test_any_line_of_nasty_characters_comes_back_as_it_was",),
    ),
    Mutant(
        "the sample of sub-words has the last lines only",
        "t2t_keras/text/subwords.py",
        "draw.randrange(index + 1)",
        "index % number",
        ("tests/test_tokenizer.py::test_another_seed_learns_from_another_sample",),
    ),
    Mutant(
        "data of a version without word pieces is refused",
        "t2t_keras/run_folder.py",
        '{"subwords": "bpe", "task"',
        '{"task"',
        ("tests/test_prepare.py::test_a_folder_of_a_version_without_word_pieces_has_byte_pair_encoding",),
    ),
    Mutant(
        "the recall of ROUGE is F1",
        "t2t_keras/evaluation/scores.py",
        '("recall", "recall")',
        '("recall", "fmeasure")',
        ("tests/test_evaluation.py::test_rouge_recall_is_the_share_of_the_reference_that_a_translation_has",),
    ),
    Mutant(
        "the gradients are not summed over the devices",
        "t2t_keras/training/train_step.py",
        'return tf.distribute.get_replica_context().all_reduce("SUM", values)',
        "return values",
        ("tests/test_train_step.py::test_an_update_is_that_of_one_tape_over_the_whole_batch",),
    ),
    Mutant(
        "the model of the sub-words has no name",
        "t2t_keras/compat.py",
        "hashlib.sha256(model).hexdigest()",
        '""',
        ("tests/test_compat.py::test_a_private_name_means_what_it_did[share_sentencepiece_model]",),
    ),
    Mutant(
        "a private name of Keras is used outside its module",
        "t2t_keras/layers/attention.py",
        "implicit = keras_mask(memory)",
        'implicit = getattr(memory, "_keras_mask", None)',
        ("tests/test_compat.py::test_a_file_uses_no_private_name_of_another_module[t2t_keras/layers/attention.py]",),
    ),
    Mutant(
        "collective operations of two strategies have the same keys",
        "t2t_keras/compat.py",
        "1_000_000 * number",
        "0",
        ("tests/test_train_step.py::test_two_strategies_in_one_process_train_models_of_other_sizes",),
    ),
    Mutant(
        "an update runs while the weights are validated",
        "t2t_keras/training/loop.py",
        "due = (config.valid_steps, config.checkpoint_steps,",
        "due = (config.checkpoint_steps,",
        ("tests/test_training.py::test_an_update_starts_before_the_figures_of_the_one_before_are_read",),
    ),
    Mutant(
        "an update runs while a checkpoint is written",
        "t2t_keras/training/loop.py",
        "due = (config.valid_steps, config.checkpoint_steps,",
        "due = (config.valid_steps,",
        ("tests/test_training.py::test_an_update_starts_before_the_figures_of_the_one_before_are_read",),
    ),
    Mutant(
        "the loss scale of an update that runs ahead is an old one",
        "t2t_keras/training/loop.py",
        "after.result.result()[1] if after else initial_scale",
        "initial_scale",
        ("tests/test_training.py::test_an_update_that_runs_ahead_has_the_loss_scale_of_the_one_before",),
    ),
    Mutant(
        "slow updates run ahead",
        "t2t_keras/training/loop.py",
        "self.update_seconds > RUN_AHEAD_SECONDS",
        "False",
        ("tests/test_training.py::test_slow_updates_do_not_run_ahead",),
    ),
    Mutant(
        "a run that is no longer finite loses the updates before",
        "t2t_keras/training/loop.py",
        "            self._save_last_good_state()\n",
        "",
        ("tests/test_training.py::test_updates_that_are_not_finite_lose_none_before_them",),
    ),
    Mutant(
        "several blocks of logits are in memory at once",
        "t2t_keras/model/linear_cross_entropy.py",
        "start + BLOCK + wait",
        "start + BLOCK",
        ("tests/test_linear_cross_entropy.py::test_a_block_waits_for_the_one_before",),
    ),
    Mutant(
        "what rounding p loses at the token is not added",
        "t2t_keras/model/linear_cross_entropy.py",
        "weight * (1 - label_smoothing - lost)",
        "weight * (1 - label_smoothing)",
        ("tests/test_linear_cross_entropy.py::test_a_confident_prediction_keeps_its_small_gradient_in_bfloat16",),
    ),
    Mutant(
        "p of float16 underflows",
        "t2t_keras/model/linear_cross_entropy.py",
        '"float32" if dtype == "float16" else dtype',
        "dtype",
        ("tests/test_linear_cross_entropy.py::test_the_gradient_of_float16_does_not_underflow_below_a_loss_scale",),
    ),
    Mutant(
        "the last block counts positions that are not there",
        "t2t_keras/model/linear_cross_entropy.py",
        'weight = ops.cast(place < tokens, "float32")',
        'weight = ops.ones((BLOCK,), "float32")',
        ("tests/test_linear_cross_entropy.py::test_loss_and_gradients_are_those_of_the_plain_equation",),
    ),
    Mutant(
        "a validation computes gradients",
        "t2t_keras/model/linear_cross_entropy.py",
        "not mode().inference\n",
        "True\n",
        ("tests/test_linear_cross_entropy.py::test_without_gradients_only_the_losses_are_computed",),
    ),
    Mutant(
        "Adam takes the count of updates without the one that it makes",
        "t2t_keras/training/optimizer.py",
        "tf.float32) + 1.0\n        # Under",
        "tf.float32)\n        # Under",
        ("tests/test_optimizer.py::test_adam_makes_the_updates_of_keras",),
    ),
    # The comparison of training speed.
    Mutant(
        "the ratio of speeds is inverted",
        "benchmarks/train_peers/results.py",
        "statistics.median(its / own for _, own, its in rounds)",
        "statistics.median(own / its for _, own, its in rounds)",
        ("tests/test_bench_train.py::test_ratios_and_shares_of_the_ceiling_are_medians_over_rounds",),
    ),
    Mutant(
        "our contestant leaves out the dropout",
        "benchmarks/train_peers/ours.py",
        'options = Options(ModelConfig(**task["model"]), TrainConfig(**task["train"]))',
        'options = Options(ModelConfig(**{**task["model"], "dropout": 0.0}), TrainConfig(**task["train"]))',
        ("tests/test_bench_train.py::test_our_contestant_makes_the_updates_of_the_product",),
    ),
    Mutant(
        "both systems compute at once",
        "benchmarks/train_peers/contestants.py",
        "        self._process.send_signal(signal.SIGSTOP)\n",
        "",
        ("tests/test_bench_train.py::test_a_contestant_is_stopped_between_requests_and_says_why_it_failed",),
    ),
    # BUILD.
    Mutant(
        "BUILD lacks a dependency",
        "BUILD",
        '    deps = [":decoding"],\n',
        "",
        ("tests/test_build.py::test_a_library_depends_on_what_its_files_import[parsing]",),
    ),
    Mutant(
        "BUILD has no binary of a program",
        "BUILD",
        '            "benchmarks/our_decoder.py",\n',
        '            "benchmarks/our_decoder.py",\n            "tools/translate.py",\n',
        ("tests/test_build.py::test_every_program_has_a_binary_and_every_test_file_a_test",),
    ),
    # Seams: architectures, tasks, weights of a parent.
    Mutant(
        "a state of the search stays with its place instead of its beam",
        "t2t_keras/model/beams.py",
        "    return ancestors[:, :, -2:][:, :, 0]",
        "    return ancestors[:, :, -1]",
        ("tests/test_architecture.py::test_scores_of_the_search_are_those_of_whole_sentences",),
    ),
    Mutant(
        "automatic names of weights depend on the models before",
        "t2t_keras/model/protocols.py",
        "    with own_names():\n        return",
        "    if True:\n        return",
        ("tests/test_architecture.py::test_it_trains_on_two_devices_and_resumes_to_the_last_bit",),
    ),
    Mutant(
        "the best checkpoint is that of the first metric of translation",
        "t2t_keras/run_folder.py",
        "train = TrainConfig(best_metric=registry.task_of(architecture).best_metrics[0])",
        'train = TrainConfig(best_metric="loss")',
        ("tests/test_task.py::test_validation_has_the_figures_of_the_task_and_selects_the_best_checkpoint_by_its_metric",),
    ),
    Mutant(
        "a column that is not counted is as if it were",
        "t2t_keras/data/prepare.py",
        "columns=task.counted",
        "columns=dict.fromkeys(task.counted, True)",
        ("tests/test_task.py::test_a_record_has_the_columns_of_the_task",),
    ),
    Mutant(
        "the record of the parent is lost when a run is resumed",
        "t2t_keras/run_folder.py",
        'read_json(model_dir / CONFIG).get("parent") if (model_dir / CONFIG).exists() else None',
        "None",
        ("tests/test_parent.py::test_the_folder_names_the_checkpoints_of_the_parent_and_keeps_them_when_it_is_resumed",),
    ),
)


def _copy(folder: pathlib.Path) -> pathlib.Path:
    ignored = shutil.ignore_patterns(".git", ".venv*", "runs", "build", "dist", "__pycache__", "*.egg-info", ".*_cache")
    return pathlib.Path(shutil.copytree(ROOT, folder, ignore=ignored, dirs_exist_ok=True))


def _pytest(root: pathlib.Path, tests, *options: str, timeout: float | None = None) -> tuple[int, str]:
    """The exit code of pytest (0: passed, 1: a test failed), and its output. It gets `timeout` seconds; None: as many as it takes."""
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *PYTEST, *options, *tests]
    result = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=timeout)
    return result.returncode, result.stdout[-3000:] + result.stderr[-1000:]


def verdict(mutant: Mutant, root: pathlib.Path) -> str:
    """`caught`, `survived`, `timed out`, or what else happened when the tests ran with the fault in a copy of the repository."""
    path = root / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        return f"not applied: its text occurs {text.count(mutant.old)} times"
    try:
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        code, output = _pytest(root, mutant.tests, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return "timed out"
    finally:
        path.write_text(text, encoding="utf-8")
    return {0: "survived", 1: "caught"}.get(code, f"pytest ended with {code}:\n{output}")


def run(mutants=MUTANTS, say=print) -> dict[str, str]:
    """Runs the tests without a fault, then with each one. Returns {name: verdict}.

    Raises:
        RuntimeError: the tests fail without any fault.
    """
    with tempfile.TemporaryDirectory() as folder:
        copies = queue.SimpleQueue()
        for index in range(JOBS):
            copies.put(_copy(pathlib.Path(folder) / str(index)))
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        root = copies.get()
        code, output = _pytest(root, tests, "-n", str(JOBS), "--dist", "loadfile")
        copies.put(root)
        if code:
            raise RuntimeError(f"Expected the tests to pass without a fault. pytest ended with {code}:\n{output}")

        def one(mutant: Mutant) -> str:
            root, started = copies.get(), time.monotonic()
            try:
                found = verdict(mutant, root)
            finally:
                copies.put(root)
            say(f"{found:10} {time.monotonic() - started:6.1f} s  {mutant.name}", flush=True)
            return found

        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            return dict(zip((mutant.name for mutant in mutants), pool.map(one, mutants), strict=True))


def main() -> None:
    words = sys.argv[1:]
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    try:
        verdicts = run(chosen)
    except RuntimeError as error:
        sys.exit(str(error))
    missed = [name for name, found in verdicts.items() if found != "caught"]
    print(f"{len(verdicts) - len(missed)} of {len(verdicts)} faults caught." + "".join(f"\n  {verdicts[name]}: {name}" for name in missed))
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
