import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchsim as bs
from batchsim.engines.draws import Streams
from batchsim.scenario.lengths import LONGEST

STEP = bs.StepTime(2, 8, 0.1)


def lengths(tokens, requests=20_000, seed=0):
    return Streams(bs.Scenario(bs.Poisson(1), bs.Continuous(), STEP, tokens=tokens), seed).lengths()(requests)


@pytest.mark.parametrize(
    ("kind", "mean", "deviation"),
    [
        (bs.Lognormal(300, 0.8), 300, 240),
        (bs.Geometric(200), 200, math.sqrt(200 * 199)),
        (bs.Uniform(20, 600), 310, 580 / math.sqrt(12)),
    ],
)
def test_lengths_have_the_mean_and_the_spread_that_were_asked_for(kind, mean, deviation):
    prompts, outputs, limits = lengths(bs.Tokens(kind, kind), 200_000)
    for drawn in (prompts, outputs):
        assert drawn.dtype == np.int64
        assert drawn.min() >= 1
        assert drawn.mean() == pytest.approx(mean, rel=0.01)
        assert drawn.std() == pytest.approx(deviation, rel=0.03)
    assert abs(np.corrcoef(prompts, outputs)[0, 1]) < 0.01
    assert np.array_equal(limits, outputs)


@pytest.mark.parametrize("kind", [bs.Lognormal(50, 1.5), bs.Geometric(50)], ids=repr)
@given(st.integers(0, 99), st.floats(1, 10))
def test_a_longer_mean_makes_no_request_shorter(kind, seed, factor):
    longer = type(kind)(**{**vars(kind), "mean": 50 * factor})
    (short, _, _), (long, _, _) = (lengths(bs.Tokens(each, 1), 50, seed) for each in (kind, longer))
    assert (short <= long).all()


def test_a_shorter_run_is_a_prefix_and_other_traffic_the_same_lengths():
    tokens = bs.Tokens(bs.Lognormal(300, 1), bs.Geometric(100))
    for short, long in zip(lengths(tokens, 10), lengths(tokens, 1000), strict=True):
        assert np.array_equal(short, long[:10])
    other = bs.Tokens(bs.Uniform(5, 9), bs.Geometric(100))
    assert np.array_equal(lengths(tokens)[1], lengths(other)[1])


def test_tokens_leave_the_arrivals_as_they_are():
    plain = bs.Scenario(bs.Poisson(9), bs.SizeOrWait(4, 10), bs.Affine(5, 1))
    with_tokens = plain.replace(service=STEP, tokens=bs.Tokens(10, 10))
    runs = [bs.simulate(scenario, 50, seed=3) for scenario in (plain, with_tokens)]
    assert np.array_equal(runs[0].arrival_s, runs[1].arrival_s)


def test_a_sample_is_taken_in_order_and_again_only_if_asked():
    pairs = [(7, 3), (9, 1), (5, 2)]
    assert [each.tolist() for each in lengths(bs.Tokens.sample(pairs), 2)[:2]] == [[7, 9], [3, 1]]
    assert lengths(bs.Tokens.sample(pairs, again=True), 5)[0].tolist() == [7, 9, 5, 7, 9]
    with pytest.raises(ValueError, match=r"a length for each of 4 requests, got 3"):
        lengths(bs.Tokens.sample(pairs), 4)
    scenario = bs.Scenario(bs.Poisson(1), bs.Continuous(), STEP, tokens=bs.Tokens.sample(pairs))
    assert len(bs.simulate(scenario).ttft_ms) == 3


def test_lengths_come_from_a_file(tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,91,16\n1,2,1\n")
    assert bs.Tokens.from_csv(path) == bs.Tokens.sample([(91, 16), (2, 1)])
    with pytest.raises(ValueError, match=r"a column 'Context'; did you mean 'ContextTokens'"):
        bs.Tokens.from_csv(path, prompt="Context")
    path.write_text("ContextTokens,GeneratedTokens\n91,16\n2,many\n")
    with pytest.raises(ValueError, match=r"whole numbers, got '2' and 'many' in line 3"):
        bs.Tokens.from_csv(path)


def test_a_limit_below_an_output_names_the_request():
    with pytest.raises(ValueError, match=r"got limit 10 and 12 tokens of request 1"):
        lengths(bs.Tokens([5, 5], [10, 12], limit=10), 2)


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (lambda: bs.Tokens(0, 1), ValueError, "prompt must be at least 1, got 0"),
        (lambda: bs.Tokens(1, math.nan), TypeError, "output must be a whole number, got nan"),
        (lambda: bs.Tokens(1, 2.5), TypeError, "output must be a whole number, got 2.5"),
        (lambda: bs.Tokens(1, LONGEST + 1), ValueError, "output must be at most 10,000,000"),
        (lambda: bs.Tokens([1, 0], 1), ValueError, "got 0 at index 1"),
        (lambda: bs.Tokens([], 1), ValueError, "list of whole numbers"),
        (lambda: bs.Tokens.sample([(1, 2), (3,)]), ValueError, "index 1"),
        (lambda: bs.Tokens.sample([(1, 2), (3, math.nan)]), TypeError, "outputs at index 1"),
        (lambda: bs.Tokens.sample([]), ValueError, "pairs must not be empty"),
        (lambda: bs.Lognormal(0.5, 1), ValueError, "mean must be at least 1, got 0.5"),
        (lambda: bs.Lognormal(5, math.nan), ValueError, "cv must be a number, got nan"),
        (lambda: bs.Geometric(math.inf), ValueError, "mean must be"),
        (lambda: bs.Uniform(5, 4), ValueError, "low must be at most high, 4, got 5"),
    ],
)
def test_lengths_that_make_no_sense_are_refused(wrong, error, words):
    with pytest.raises(error, match=words):
        wrong()
