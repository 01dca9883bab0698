"""One of several workers that train the toy: python toy_worker.py OUT writes the weights to
OUT-OPTIMIZER-WORKER.npz.
"""

import sys

import numpy as np
import tensorflow as tf
import toy

from t2t_keras.training import devices
from t2t_keras.training.train_step import LossScale, make_train_step

strategy = devices.make_strategy()
worker = strategy.cluster_resolver.task_id
for make_optimizer in (toy.sgd, toy.adam):
    with strategy.scope():
        model, optimizer = toy.Toy(), make_optimizer()
        optimizer.build(model.trainable_variables)
        toy.set_weights(model)
    dataset = tf.data.Dataset.from_generator(lambda: iter(toy.TWENTY), output_signature=toy.SUMS)
    batches = devices.distribute(strategy, dataset, 25, buckets=2)
    update = make_train_step(strategy, model, optimizer, toy.TASK, toy.TRAIN, batches.element_spec)
    reduced, moved = toy.devices_of_sums(update.get_concrete_function().graph)
    # Gradients stay here but for the sum.
    assert len(reduced) == 1 and f"task:{worker}" in reduced[0] and moved == set(), (reduced, moved)
    for batch in batches:
        update(batch, LossScale(tf.constant(1.0), tf.constant(0.0)), tf.constant(True))
    np.savez(f"{sys.argv[1]}-{make_optimizer.__name__}-{worker}.npz", **toy.weights_of(model))
assert devices.is_chief(strategy) == (worker == 0)
# More than float32 can tell apart.
assert devices.broadcast_from_chief(strategy, float(2**40 + 1 + worker)) == 2**40 + 1
assert devices.any_worker(strategy, worker == 1)
assert not devices.any_worker(strategy, False)
devices.exit_worker(0)
