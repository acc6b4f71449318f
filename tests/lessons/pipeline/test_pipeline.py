"""A model in stages on two hosts: it learns what one process learns, and says what is wrong with it."""

import re
from pathlib import Path

import distlab
import pytest
from blame import assert_blames
from distlab import stages
from running import TWO_BY_TWO
from same_training import assert_same_records, assert_same_state

pytestmark = pytest.mark.timeout(90)

PIPELINE, LANGUAGE = (Path(distlab.__file__).parent / "scripts" / f"{name}.py" for name in ("pipeline", "language"))
# 32 sequences: 4 updates.
SMALL = "--layers 8 --embedding-dim 16 --heads 2 --context 16 --batch-size 8 --limit 550 --generate 3".split()
RUINOUS = ("--lr", "1e30", "--warmup-epochs", "0")


@pytest.fixture(scope="module")
def twin(warm_module):
    """language.py in one process."""
    return warm_module(LANGUAGE, *SMALL, hosts="node1")


@pytest.mark.parametrize("hosts", ["node1:1,node2:1", TWO_BY_TWO])
@pytest.mark.parametrize("schedule", stages.SCHEDULES)
def test_stages_on_two_hosts_learn_what_one_process_learns(warm, twin, schedule, hosts):
    result = warm(PIPELINE, *SMALL, "--schedule", schedule, hosts=hosts)
    assert result.hosts == ["node1", "node2"]
    epochs = result.last("epoch")
    assert len(epochs) == (4 if hosts == TWO_BY_TWO else 2)
    for record in epochs.values():
        assert_same_records([record], twin.records("epoch"))
    assert_same_state(result.folder / "checkpoint.pt", twin.folder / "checkpoint.pt")
    assert result.text(0).endswith(twin.text(0).splitlines()[-1])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--microbatches", "3"), "a batch of 8 is not divisible by 3 microbatches: use one of 4, 8"),
        (("--layers", "3"), "3 layers cannot be cut into 4 stages: use --layers 4 or more, or fewer ranks"),
        (("--cut", "2,2,2,3"), "--cut 2,2,2,3 shares out 9 layers, but the model has 8"),
        (("--replicas", "3"), "4 ranks cannot make 3 pipelines of the same length: use --replicas with a divisor of 4"),
        (("--batch-size", "64"), "550 bytes of text for training are fewer than 64 sequences of 16"),
        (("--embedding-dim", "15"), "2 heads do not divide an embedding dimension of 15: use a multiple of 2"),
    ],
)
def test_what_does_not_fit_is_one_clear_sentence(warm, words, said):
    failure = warm.fails(PIPELINE, *SMALL, *words)
    first = failure.message.splitlines()[0]
    assert re.fullmatch(rf"rank \d on node\d raised (Setting|Data)Error: {re.escape(said)}.*", first)
    assert failure.message.count(said) <= 2 and failure.message.count("Traceback") <= 1
    assert failure.seconds < 10


@pytest.mark.parametrize("who", [0, 2, 3])
@pytest.mark.parametrize("mode", ["kill", "raise"])
def test_a_stage_dies_in_the_middle(warm, mode, who):
    failure = warm.fails("spoilt_pipeline", mode, str(who), *SMALL)
    how = "was killed by SIGKILL" if mode == "kill" else f"raised RuntimeError: stage {who} is broken"
    assert_blames(failure, f"rank {who} on {'node1' if who < 2 else 'node2'} {how}")


def test_a_stage_that_dies_in_a_schedule_that_turns_round(warm):
    failure = warm.fails("spoilt_pipeline", "kill", "3", *SMALL, "--schedule", "zero-bubble")
    assert_blames(failure, "rank 3 on node2 was killed by SIGKILL")


@pytest.mark.parametrize(("schedule", "last"), [("1f1b", "rank 3 on node2"), ("zero-bubble", "rank 0 on node1")])
def test_a_loss_that_is_no_number_names_the_rank_with_the_last_stage_and_the_step(warm, schedule, last):
    alone = warm.fails(LANGUAGE, *SMALL, *RUINOUS, hosts="node1").message.splitlines()[0]
    why = re.search(r"the loss is nan in epoch 1, step \d: .*", alone)[0]
    failure = warm.fails(PIPELINE, *SMALL, *RUINOUS, "--schedule", schedule)
    assert failure.message.startswith(f"{last} raised LossError: {last}: {why}")
    assert failure.seconds < 15
