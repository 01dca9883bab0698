"""TensorFlow checkpoints of strangers: what was written is read, and folders that do not fit give one sentence."""

import os
import re
import shutil
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from t2t_keras.interop import tensorflow_checkpoint
from t2t_keras.interop.marian_weights import Weights


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with two checkpoints of nested objects, and their arrays."""
    folder = tmp_path_factory.mktemp("written")
    layer = tf.Module()
    layer.kernel, layer.list = tf.Variable([[1.0, 2.0], [3.0, 4.0]]), [tf.Variable([5.0]), tf.Variable([6.0, 7.0])]
    root = tf.train.Checkpoint(model=layer, other=layer, step=tf.Variable(3, dtype=tf.int64))
    manager = tf.train.CheckpointManager(root, str(folder), None)
    for number in (10, 20):
        layer.kernel.assign_add(tf.fill([2, 2], float(number)))
        manager.save(number)
    return folder


@pytest.fixture
def folder(written, tmp_path):
    """A copy to break."""
    return shutil.copytree(written, tmp_path / "copy")


def name(path: str) -> str:
    return path + tensorflow_checkpoint.VALUE


@pytest.mark.parametrize(
    ("chosen", "added"), [("", 30), ("ckpt-20", 30), ("20", 30), ("10", 10), ("ckpt-10.index", 10)]
)
def test_arrays_are_those_that_were_written(written, chosen, added):
    checkpoint = tensorflow_checkpoint.read(written, chosen)
    np.testing.assert_array_equal(checkpoint[name("model/kernel")], np.array([[1, 2], [3, 4]]) + added)
    assert checkpoint.shape(name("model/list/1")) == (2,) and checkpoint[name("step")] == 3
    assert "nothing" not in checkpoint


def test_a_checkpoint_is_found_in_a_folder_below_and_without_the_file_checkpoint(folder):
    shutil.copytree(folder, folder / "avg")
    assert tensorflow_checkpoint.find(folder, "avg") == folder / "avg/ckpt-20"
    (folder / "checkpoint").unlink()
    (folder / "ckpt-10.index").unlink()
    assert tensorflow_checkpoint.find(folder) == folder / "ckpt-20"


def test_names_follow_the_objects(written, tmp_path):
    expected = {"model/kernel": name("model/kernel")} | {f"model/list/{i}": name(f"model/list/{i}") for i in (0, 1)}
    assert tensorflow_checkpoint.read(written).names_below("model") == expected
    wanted = {"other/kernel", "other/list/0", "other/list/1"}
    assert tensorflow_checkpoint.read(written).names_below("other", "model").keys() == wanted
    tf.raw_ops.SaveV2(  # As by tf.compat.v1.train.Saver: without objects.
        prefix=str(tmp_path / "model.ckpt-7"), tensor_names=["a/b"], shape_and_slices=[""], tensors=[tf.ones([2])]
    )
    assert tensorflow_checkpoint.read(tmp_path, "7")["a/b"].tolist() == [1, 1]
    assert tensorflow_checkpoint.read(tmp_path).names_below("a") == {}


def state(folder, content: str) -> None:
    (folder / "checkpoint").write_text(content)


def cut(folder, file: str) -> None:
    (folder / file).write_bytes((folder / file).read_bytes()[:-40])


def flip(folder, file: str, place: int) -> None:
    content = bytearray((folder / file).read_bytes())
    content[place] ^= 255
    (folder / file).write_bytes(content)


def linked(folder, file: str) -> None:
    (folder / file).rename(folder.parent / file)
    (folder / file).symlink_to(folder.parent / file)


def decoys(folder) -> None:
    """Shards of zeros that no index names."""
    for index in (0, 1):
        (folder / f"ckpt-20.data-0000{index}-of-00002").write_bytes(bytes(1000))


DATA = "ckpt-20.data-00000-of-00001"
NAMES = "name a checkpoint of its folder"
BROKEN = {
    "a path out of the folder": (lambda folder: state(folder, 'model_checkpoint_path: "../../etc/ckpt-1"'), NAMES),
    "an absolute path": (lambda folder: state(folder, 'model_checkpoint_path: "/etc/ckpt-1"'), NAMES),
    "the folder itself": (lambda folder: state(folder, 'model_checkpoint_path: ".."'), NAMES),
    "no path": (lambda folder: state(folder, "model: 1"), NAMES),
    "a missing checkpoint": (lambda folder: state(folder, 'model_checkpoint_path: "ckpt-30"'),
        "ckpt-30.index.*missing"),
    "a missing shard": (lambda folder: (folder / DATA).unlink(), f"{DATA}.*missing"),
    "one shard of two": (lambda folder: (folder / DATA).rename(folder / DATA.replace("1", "2")), "of-00002.*missing"),
    "a cut shard": (lambda folder: cut(folder, DATA), "damaged|hold its arrays"),
    "a cut index": (lambda folder: cut(folder, "ckpt-20.index"), "damaged"),
    "another number": (lambda folder: flip(folder, DATA, 3), "damaged"),
    "a linked shard": (lambda folder: linked(folder, DATA), "is a link"),
    # Story: the shards that the largest number counts were checked, and TensorFlow read the link.
    "a linked shard beside others": (lambda folder: [linked(folder, DATA), decoys(folder)], "is a link"),
    "a linked shard of 100,000": (lambda folder: (folder / "ckpt-20.data-00000-of-100000").symlink_to(folder / DATA),
        "is a link"),
    "shards of two numbers": (decoys, r"of one checkpoint, such as \*-of-00001, .*-of-00001, .*-of-00002.* Remove"),
    "a linked index": (lambda folder: linked(folder, "ckpt-20.index"), "is a link"),
    "a linked file of the newest": (lambda folder: linked(folder, "checkpoint"), "is a link"),
    "several": (lambda folder: (folder / "checkpoint").unlink(), "one checkpoint.*ckpt-10.index, ckpt-20.index"),
    "nothing": (lambda folder: [(folder / file).unlink() for file in os.listdir(folder)], "no|none"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_a_folder_that_does_not_fit_gives_one_sentence(folder, kind):
    break_it, message = BROKEN[kind]
    break_it(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        dict(tensorflow_checkpoint.read(folder))
    assert "\n" not in str(caught.value)


def test_a_folder_with_the_name_of_the_checkpoint_is_not_read(folder):
    """Story: TensorFlow read the newest checkpoint of that folder, which may be a link, and not the one beside it."""
    shutil.copytree(folder, folder / "ckpt-20")
    state(folder / "ckpt-20", 'model_checkpoint_path: "ckpt-10"')
    found = tensorflow_checkpoint.read(folder)[name("model/kernel")]
    np.testing.assert_array_equal(found, np.array([[1, 2], [3, 4]]) + 30)


@pytest.mark.parametrize("chosen", ["a[1]*", "*", "a?old", r"a\1old"])
def test_a_name_that_is_a_pattern_opens_no_other_file(folder, tmp_path, chosen):
    """Story: "a[1]*" fits no index, so TensorFlow read what it fits as a first version's file, which was a link."""
    tf.raw_ops.Save(filename=str(tmp_path / "secret"), tensor_names=["key"], data=[tf.ones([1])])
    (folder / "a1old").symlink_to(tmp_path / "secret")
    for ending in (".index", ".data-00000-of-00001"):
        (folder / f"{chosen}{ending}").write_bytes(bytes(4))
    state(folder, f'model_checkpoint_path: "{chosen}"')
    with pytest.raises(ValueError, match=f"pattern. Received: .*{re.escape(chosen)}. Rename the folder or the check"):
        tensorflow_checkpoint.read(folder)


def test_a_folder_whose_name_is_a_pattern_is_to_be_renamed(folder, tmp_path):
    """Story: such a checkpoint was called damaged."""
    folder.rename(tmp_path / "runs [v2]")
    with pytest.raises(ValueError, match=r"TensorFlow reads as a pattern. Received: .*runs \[v2\]/ckpt-20. Rename"):
        tensorflow_checkpoint.read(tmp_path / "runs [v2]")


@pytest.mark.parametrize(("chosen", "is_read"), [("ckpt-20", True), ("20", False), ("avg", False)])
def test_a_link_with_the_name_that_is_chosen_is_not_followed(folder, written, tmp_path, chosen, is_read):
    """Story: the checkpoint of the folder that the link leads to was read, though one of that name was beside it."""
    secret = shutil.copytree(written, tmp_path / "secret")
    state(secret, 'model_checkpoint_path: "ckpt-10"')
    (folder / chosen).symlink_to(secret)
    if is_read:
        found = tensorflow_checkpoint.read(folder, chosen)[name("model/kernel")]
        return np.testing.assert_array_equal(found, np.array([[1, 2], [3, 4]]) + 30)
    with pytest.raises(ValueError, match=f"{chosen} is a link"):
        tensorflow_checkpoint.read(folder, chosen)


def test_a_chain_of_objects_takes_little_memory(tmp_path):
    """Story: the paths of objects that each have the next one as their child took memory that grew with the square of
    their number. Here that of object k has 7 + 3 k characters, and 1,000 are the most.
    """
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    for index in range(4000):
        node = graph.nodes.add()
        node.children.add(node_id=index + 1, local_name="ab" if index else "encoder")
        node.attributes.add(name="v", checkpoint_key="key")
    arrays = {tensorflow_checkpoint.GRAPH: graph.SerializeToString(), "key": np.zeros(1, np.float32)}
    prefix = str(tmp_path / "ckpt")
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=[*arrays], shape_and_slices=["", ""], tensors=[*arrays.values()])
    paths = tensorflow_checkpoint.read(tmp_path).names_below("encoder")
    assert len(paths) == 332 and max(map(len, paths)) == 7 + 3 * 331 == 1000


def test_objects_with_a_long_path_take_little_memory(tmp_path):
    """Story: the path of each child was made before it was looked at, though all were the same object. Here that of
    each of 20,000 would have 990 characters, 20 MB in all.
    """
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    root, layer, kernel = (graph.nodes.add() for _ in range(3))
    root.children.add(node_id=1, local_name="encoder")
    layer.children.add(node_id=2, local_name="n" * 980)
    for _ in range(20_000):
        kernel.children.add(node_id=0, local_name="b")
    kernel.attributes.add(name="v", checkpoint_key="key")
    layer.attributes.add(name="v", checkpoint_key="not saved")
    arrays = {tensorflow_checkpoint.GRAPH: graph.SerializeToString(), "key": np.zeros(1, np.float32)}
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "ckpt"), tensor_names=[*arrays], shape_and_slices=["", ""], tensors=[*arrays.values()]
    )
    checkpoint = tensorflow_checkpoint.read(tmp_path)
    tracemalloc.start()
    try:
        assert checkpoint.names_below("encoder") == {"encoder/" + "n" * 980: "key"}
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()


def test_a_long_file_checkpoint_is_read_in_linear_time(folder):
    (folder / "checkpoint").write_text("\n" * 2**20)
    with pytest.raises(ValueError, match=NAMES):
        tensorflow_checkpoint.find(folder)


def test_the_variables_of_a_saved_model_are_no_link(folder, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (folder / "variables.index").touch()
    (model / "variables").symlink_to(folder)
    with pytest.raises(ValueError, match="variables is a link"):
        tensorflow_checkpoint.find(model)


def test_an_index_of_more_than_its_files_hold_is_refused_before_it_is_read(tmp_path):
    prefix = str(tmp_path / "large")
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=["a"], shape_and_slices=[""], tensors=[tf.zeros([2**14])])
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "small"), tensor_names=["a"], shape_and_slices=[""], tensors=[tf.zeros([9])]
    )
    shutil.copy(tmp_path / "small.data-00000-of-00001", tmp_path / "large.data-00000-of-00001")
    with pytest.raises(ValueError, match="65,536 bytes of arrays in 36 bytes"):
        tensorflow_checkpoint.read(tmp_path, "large")


def test_weights_are_taken_once_and_checked(written):
    checkpoint = tensorflow_checkpoint.read(written)
    weights = Weights(tensorflow_checkpoint.Chosen(checkpoint, checkpoint.names_below("model")))
    taken = weights.take("ours", "model/kernel", (2, 2), np.transpose)
    assert taken.path == "ours" and np.asarray(taken).tolist() == [[31, 33], [32, 34]]
    with pytest.raises(ValueError, match=r"model/list/0 of shape \(2,\).*Received: \(1,\)"):
        weights.take("ours", "model/list/0", (2,))
    with pytest.raises(ValueError, match="model/none.*missing"):
        weights.take("ours", "model/none", (2,))
    with pytest.raises(ValueError, match="weights of a toy. Received model/list/0 and 1 more besides"):
        weights.check_all_taken("a toy")
