import functools
import re

import jax
import numpy as np
import pytest

import batchsim as bs
from batchsim.device import load_model

# Small ones compile in a moment; the sizes by default are loaded once, below.
SMALL = {"mlp": {"width": 32}, "convnet": {"width": 4}, "transformer": {"width": 32, "layers": 2}}
OUTPUTS = {"mlp": 10, "convnet": 10, "transformer": 256}


def small(name, **options):
    return load_model(name, **SMALL[name], **options)


@functools.cache
def shared(name):
    """One that several tests ask, so that each size of a batch is compiled once: 1 to 5."""
    return small(name)


@functools.cache
def shared_padded(name):
    return small(name, pad_to=[4])


def leaves(model):
    return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(model.weights)]


@pytest.fixture(params=sorted(SMALL))
def name(request):
    return request.param


def close(one, other):
    np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-4, atol=1e-5)


# What a model answers.


def test_a_batch_gets_one_output_an_item(name):
    model = shared(name)
    output = model(model.inputs(3))
    assert isinstance(output, jax.Array)
    assert output.shape == (3, OUTPUTS[name])
    assert np.isfinite(output).all()


def test_the_models_as_they_come_compute(name):
    model = load_model(name)
    output = np.asarray(model(model.inputs(2)))
    assert output.shape == (2, OUTPUTS[name])
    assert 0.1 < output.std() < 10  # the scale of what went in is kept through the layers


def test_the_mlp_is_matrices_and_relus():
    model = small("mlp", seed=3)
    inputs = model.inputs(5, seed=4)
    expected = inputs.astype(np.float64)
    layers = [(np.asarray(matrix, np.float64), np.asarray(bias)) for matrix, bias in model.weights]
    for depth, (matrix, bias) in enumerate(layers):
        expected = np.einsum("bi,io->bo", expected, matrix) + bias
        if depth < len(layers) - 1:
            expected = np.maximum(expected, 0)
    close(model(inputs), expected)


def test_a_convnet_doubles_its_channels_while_it_halves_the_image():
    *convolutions, (last, _) = load_model("convnet", width=4, layers=5).weights
    assert [kernel.shape[-1] for kernel, _ in convolutions] == [4, 8, 16, 16, 16]
    assert last.shape == (16, 10)


def test_one_convolution_of_the_convnet_is_a_window_that_moves():
    model = load_model("convnet", width=4, layers=1)
    inputs = model.inputs(2)
    (kernel, bias), (matrix, last_bias) = [tuple(map(np.asarray, pair)) for pair in model.weights]
    padded = np.pad(inputs, ((0, 0), (0, 1), (0, 1), (0, 0)))  # "SAME" for a stride of 2
    hidden = np.empty((2, 16, 16, 4))
    for row in range(16):
        for column in range(16):
            window = padded[:, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3]
            hidden[:, row, column] = np.einsum("bhwi,hwio->bo", window, kernel) + bias
    close(model(inputs), np.maximum(hidden, 0).mean(axis=(1, 2)) @ matrix + last_bias)


def test_every_token_of_the_past_matters_to_the_transformer():
    model = shared("transformer")
    inputs = model.inputs(1)
    changed = np.repeat(inputs, 16, axis=0)
    changed[np.arange(16), np.arange(16)] = (changed[np.arange(16), np.arange(16)] + 1) % 256
    difference = np.abs(np.asarray(model(changed)) - np.asarray(model(inputs))).max(axis=1)
    assert (difference > 1e-4).all()


def test_the_order_of_tokens_matters_to_the_transformer():
    model = load_model("transformer", width=32, layers=1)  # one that sees order by positions alone
    inputs = model.inputs(1)
    swapped = inputs[:, [1, 0, *range(2, 16)]]
    assert np.abs(np.asarray(model(swapped)) - np.asarray(model(inputs))).max() > 1e-4


def test_an_answer_does_not_depend_on_its_company(name):
    model = shared(name)
    inputs = model.inputs(4)
    alone = np.concatenate([np.asarray(model(item[None])) for item in inputs])
    close(model(inputs), alone)
    close(model(inputs[::-1]), alone[::-1])


# Padding.


def test_padding_does_not_change_an_answer(name):
    plain, padded = shared(name), shared_padded(name)
    inputs = plain.inputs(4)
    for size in (1, 2, 3, 4):
        output = padded(inputs[:size])
        assert isinstance(output, jax.Array)
        assert output.shape == (size, OUTPUTS[name])
        close(output, plain(inputs[:size]))


def test_only_padded_sizes_are_compiled(compilations):
    model = small("mlp", pad_to=[1, 2, 23])  # 23: nothing else here cuts an output of that size
    for size in (1, 2, 3, 22, 23):
        assert model(model.inputs(size)).shape == (size, 10)
    assert len(compilations) == 3


def test_without_padding_every_size_is_compiled_once(compilations):
    model = small("mlp")
    for size in (1, 2, 3, 4, 3, 2, 1):
        model(model.inputs(size))
    assert len(compilations) == 4


def test_a_model_that_forgets_compiles_again_and_another_does_not(compilations):
    model, other = small("mlp"), small("mlp")
    inputs = model.inputs(2)
    before = np.asarray(model(inputs)), np.asarray(other(inputs))
    assert len(compilations) == 2
    model.forget_compiled()
    np.testing.assert_array_equal(model(inputs), before[0])
    np.testing.assert_array_equal(other(inputs), before[1])
    assert len(compilations) == 3


def test_a_batch_is_padded_to_the_next_size():
    model = small("mlp", pad_to=(1, 2, 8))
    assert [model.padded_size(size) for size in (1, 2, 3, 8)] == [1, 2, 8, 8]
    assert small("mlp").padded_size(3) == 3


def test_a_padded_batch_is_computed_from_the_host_or_from_the_device():
    model = small("mlp", pad_to=[1, 4])
    filled = model.padded(model.inputs(3))
    assert filled.shape == (4, 784)
    assert not filled[3].any()
    close(model.compute(filled)[:3], model(model.inputs(3)))
    close(model.compute(jax.device_put(filled)), model.compute(filled))
    assert model.lowered(filled).compile().cost_analysis()["flops"] > 4 * 2 * 784 * 32


# Seeds and inputs.


def test_one_seed_is_one_model(name):
    first, second, other = (leaves(small(name, seed=seed)) for seed in (1, 1, 2))
    for one, same, another in zip(first, second, other, strict=True):
        np.testing.assert_array_equal(one, same)
        assert np.ptp(one) == 0 or not np.allclose(one, another)  # a scale begins as ones
    assert sum(np.ptp(one) > 0 for one in first) > 2


def test_inputs_are_items_that_the_seed_decides(name):
    model = small(name)
    inputs = model.inputs(6, seed=1)
    assert isinstance(inputs, np.ndarray)
    assert inputs.shape == (6, *model.item_shape)
    assert inputs.dtype == model.dtype
    np.testing.assert_array_equal(inputs, model.inputs(6, seed=1))
    assert not np.array_equal(inputs, model.inputs(6, seed=2))


def test_inputs_of_the_transformer_are_token_ids():
    inputs = small("transformer").inputs(100)
    assert (inputs.min(), inputs.max()) == (0, 255)


def test_whole_numbers_and_doubles_are_taken_as_floats():
    model = small("mlp")
    inputs = np.arange(2 * 784).reshape(2, 784) % 7
    expected = np.asarray(model(inputs.astype(np.float32)))
    np.testing.assert_array_equal(model(inputs), expected)
    np.testing.assert_array_equal(model(inputs.astype(np.float64)), expected)
    np.testing.assert_array_equal(model(inputs.tolist()), expected)


def test_a_batch_may_be_overwritten_after_the_call():
    model = load_model("mlp", width=512)
    expected = np.asarray(model(model.inputs(4)))
    for _ in range(20):
        batch = model.inputs(4)
        output = model(batch)
        batch[:] = 0  # while the device may still be computing
        np.testing.assert_array_equal(output, expected)


# How it looks, and what it works with.


def test_a_model_says_what_it_is():
    model = load_model("mlp", width=64, layers=2, pad_to=[1, 2])
    assert model.parameters == 784 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10
    assert model.name == "mlp"
    assert model.item_shape == (784,)
    assert model.dtype == np.float32
    assert model.device
    assert repr(model) == (
        f"Model(mlp: 55,050 parameters, items (784,) of float32, on {model.device}, pad_to=[1, 2])"
    )


def test_a_model_cannot_be_changed():
    with pytest.raises(AttributeError, match="cannot assign to field 'name'"):
        small("mlp").name = "convnet"


def test_the_device_is_where_the_output_is():
    model = small("mlp")
    assert model(model.inputs(1)).devices() == {jax.devices()[0]}
    assert all(leaf.devices() == {jax.devices()[0]} for leaf in jax.tree_util.tree_leaves(model.weights))


def test_a_batcher_serves_a_model(name):
    model = shared_padded(name)
    inputs = model.inputs(3)
    batcher = bs.InferenceBatcher(model, max_batch_size=4, max_wait_ms=0)
    for index, item in enumerate(inputs):
        batcher.add_request(item, index)
    answers = batcher.process_batch()
    assert [answer["id"] for answer in answers] == [0, 1, 2]
    close([answer["output"] for answer in answers], model(inputs))


def test_batch_inference_answers_as_one_batch_does(name):
    model = shared(name)
    inputs = model.inputs(5)
    close(bs.batch_inference(model, inputs, batch_size=2), model(inputs))


# Bad input.


def refused(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}$")


def test_an_unknown_model_is_refused_with_the_nearest():
    with refused(ValueError, "there is no model 'transfomer'; did you mean 'transformer'?"):
        load_model("transfomer")
    with refused(ValueError, "there is no model 'x'; known: convnet, mlp, transformer"):
        load_model("x")
    with refused(ValueError, "there is no model ['mlp']; did you mean 'mlp'?"):
        load_model(["mlp"])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"seed": 1.5}, TypeError, "seed must be a whole number, got 1.5"),
        ({"width": 0}, ValueError, "width must be at least 1, got 0"),
        ({"layers": 0}, ValueError, "layers must be at least 1, got 0"),
        ({"layers": True}, TypeError, "layers must be a whole number, got True"),
        ({"pad_to": []}, ValueError, "pad_to must not be empty, got []"),
        ({"pad_to": 4}, TypeError, "pad_to must be a list of sizes, got 4"),
        ({"pad_to": [0, 1]}, ValueError, "a size in pad_to must be at least 1, got 0"),
        ({"pad_to": [1, 2.5]}, TypeError, "a size in pad_to must be a whole number, got 2.5"),
        ({"pad_to": [2, 1]}, ValueError, "pad_to must increase, got [2, 1]"),
        ({"pad_to": [1, 1]}, ValueError, "pad_to must increase, got [1, 1]"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    with refused(error, message):
        load_model("mlp", **options)


def test_a_transformer_is_made_of_whole_heads():
    with refused(ValueError, "width of a transformer must be a multiple of 32, got 100"):
        load_model("transformer", width=100)


SHAPE = "a batch of mlp must have shape (batch, 784), got"
KIND, TOKEN = "a batch of mlp must convert to float32, got", "a token must be between 0 and 255, got"


@pytest.mark.parametrize(
    ("name", "batch", "error", "message"),
    [
        ("mlp", np.zeros(784), ValueError, f"{SHAPE} (784,)"),
        ("mlp", np.zeros((2, 3)), ValueError, f"{SHAPE} (2, 3)"),
        ("mlp", 1.0, ValueError, f"{SHAPE} ()"),
        (
            "convnet", np.zeros((1, 3, 32, 32)), ValueError,
            "a batch of convnet must have shape (batch, 32, 32, 3), got (1, 3, 32, 32)",
        ),
        ("mlp", np.zeros((0, 784)), ValueError, "a batch must hold at least 1 item, got shape (0, 784)"),
        ("mlp", np.zeros((1, 784), complex), TypeError, f"{KIND} complex128"),
        ("mlp", np.full((1, 784), "1"), TypeError, f"{KIND} <U1"),
        (
            "transformer", np.zeros((1, 16)), TypeError,
            "a batch of transformer must convert to int32, got float64",
        ),
        *(
            ("transformer", np.full((2, 16), token), ValueError, f"{TOKEN} {token}")
            for token in (-1, 256, 2**40)
        ),
    ],
)  # fmt: skip
def test_a_wrong_batch_is_refused(name, batch, error, message):
    with refused(error, message):
        shared(name)(batch)


def test_a_batch_larger_than_the_padding_is_refused():
    with refused(ValueError, "a batch must be at most the largest of pad_to, 4, got 5"):
        shared_padded("mlp")(np.zeros((5, 784)))


def test_bad_counts_and_seeds_of_inputs_are_refused():
    model = shared("mlp")
    with refused(ValueError, "count must be at least 1, got 0"):
        model.inputs(0)
    with refused(ValueError, "seed must be at least 0, got -1"):
        model.inputs(1, seed=-1)
    with refused(ValueError, "batch_size must be at least 1, got 0"):
        model.padded_size(0)


def test_a_sequence_has_the_same_output_alone_and_padded_beside_longer_ones():
    model = load_model("transformer", width=32, layers=2, lengths=[4, 16, 64], pad_to=[1, 4])
    items = model.inputs(3, seed=1, sizes=np.array([3, 16, 60]))
    assert [int((item >= 0).sum()) for item in items] == [3, 16, 60]
    alone = [np.asarray(model(item[None]))[0] for item in items]
    np.testing.assert_allclose(np.asarray(model(items)), alone, atol=1e-5)
    assert [model.padded(item[None]).shape for item in items] == [(1, 4), (1, 16), (1, 64)]
    assert model.padded(items).shape == (4, 64)
    for wrong, why in (({"name": "mlp", "lengths": [4]}, "lengths must be None"),):
        with pytest.raises(ValueError, match=why):
            load_model(**wrong)
    with pytest.raises(ValueError, match="a size must be at most the largest of lengths, 64, got 65"):
        model.inputs(1, sizes=65)
