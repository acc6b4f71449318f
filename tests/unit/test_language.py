"""The language model, the text that it learns from, and the text that it writes."""

import pytest
import torch
from distlab import data, models
from distlab.data.stdlib import text
from torch import nn

CONTEXT = 12


def language(**options):
    return models.LanguageModel(3, 8, 2, CONTEXT, **options)


def some_bytes(number, length=CONTEXT, seed=0):
    return torch.randint(256, (number, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("length", [1, 5, CONTEXT])
def test_logits_for_each_place(length):
    assert language()(some_bytes(4, length)).shape == (4, 256, length)


@pytest.mark.parametrize("place", [0, 5, CONTEXT - 1])
def test_a_later_byte_changes_nothing_before_it(place):
    net, batch = language(), some_bytes(2)
    other = batch.clone()
    other[:, place] = (other[:, place] + 1) % 256
    with torch.no_grad():
        change = (net(batch) - net(other)).abs().amax((0, 1))
    assert change[:place].tolist() == [0.0] * place
    assert change[place:].min() > 0


def test_the_same_bytes_at_another_place_are_something_else():
    with torch.no_grad():
        logits = language()(torch.full((1, CONTEXT), 65))[0]
    assert not torch.allclose(logits[:, 0], logits[:, 1], atol=1e-3)


def vector(net):
    return nn.utils.parameters_to_vector(net.parameters())


def test_the_seed_decides_and_the_caller_s_random_numbers_go_on():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    one = language(seed=4)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(vector(one), vector(language(seed=4)))
    assert not torch.equal(vector(one), vector(language(seed=5)))


def test_a_tied_head_is_the_embedding():
    tied, untied = language(tied=True), language()
    assert tied.head.weight is tied.token_embedding.weight and untied.head.weight is not untied.token_embedding.weight
    assert len(vector(untied)) - len(vector(tied)) == 256 * 8
    assert list(tied.state_dict()) == list(untied.state_dict())
    tied(some_bytes(2)).logsumexp(1).sum().backward()
    # All bytes, seen or not, have a gradient, which an embedding alone has not.
    assert (tied.token_embedding.weight.grad.abs().sum(1) > 0).all()


def test_heads_must_share_the_width():
    with pytest.raises(ValueError, match="3 heads do not divide an embedding dimension of 8: use a multiple of 3"):
        models.LanguageModel(1, 8, 3, CONTEXT)


def test_every_parameter_learns():
    net = language()
    batch = some_bytes(8)
    nn.functional.cross_entropy(net(batch[:, :-1]), batch[:, 1:]).backward()
    assert all(parameter.grad.abs().max() > 0 for _, parameter in net.named_parameters())


def test_targets_are_the_bytes_that_follow():
    pieces, content = data.sequences(2000, CONTEXT).train, text(2000).long()
    assert len(pieces) == 1999 // CONTEXT
    for index in (0, 1, len(pieces) - 1):
        seen, follows = pieces[index]
        assert seen.dtype == follows.dtype == torch.int64 and seen.shape == follows.shape == (CONTEXT,)
        start = index * CONTEXT
        assert torch.equal(seen, content[start : start + CONTEXT])
        assert torch.equal(follows, content[start + 1 : start + CONTEXT + 1])


def test_a_batch_is_its_samples():
    pieces = data.sequences(2000, CONTEXT).train
    order = [7, 2, 100]
    for workers in (0, 1):
        ((seen, follows),) = data.loader(pieces, 3, sampler=order, workers=workers)
        assert torch.equal(seen, torch.stack([pieces[index][0] for index in order]))
        assert torch.equal(follows, torch.stack([pieces[index][1] for index in order]))
    ((seen, _),) = data.loader(data.shard(pieces, 1, len(pieces) // 2), 3)
    assert torch.equal(seen[0], pieces[1][0])


@pytest.mark.parametrize("multiple", [1, 8, 50])
def test_both_parts_are_multiples(multiple):
    found = data.sequences(8000, CONTEXT, multiple)
    assert len(found.train) % multiple == len(found.val) % multiple == 0
    assert 7999 // CONTEXT - multiple < len(found.train) <= 7999 // CONTEXT
    assert len(found.val) >= multiple


def test_a_last_piece_needs_a_byte_that_follows():
    assert len(data.sequences(10 * CONTEXT, CONTEXT).train) == 9
    assert len(data.sequences(10 * CONTEXT + 1, CONTEXT).train) == 10


def test_validation_is_other_text():
    found = data.sequences(30_000, CONTEXT)
    assert torch.equal(found.val.content, text(3000, split="val"))
    assert bytes(found.val.content[:200].tolist()) not in bytes(text(4_000_000).tolist())


def test_too_little_text_is_one_sentence():
    with pytest.raises(ValueError) as refused:
        data.sequences(100, CONTEXT, multiple=9)
    which = "100 bytes of text for training are fewer than 9 sequences of 12"
    assert str(refused.value) == f"{which}: use a larger --limit or a smaller --batch-size"
    assert len(data.sequences(109, CONTEXT, multiple=9).train) == 9


def saying(answer: bytes):
    """A model that is sure of what comes next: the byte of `answer` after as many as it has seen."""
    seen = []

    def model(batch):
        seen.append(bytes(batch[0].tolist()))
        logits = torch.zeros(1, 256, batch.shape[1])
        logits[0, answer[len(seen) - 1], -1] = 100.0
        return logits

    return model, seen


def test_generate_goes_on_byte_by_byte():
    model, seen = saying(b"return 7")
    assert models.generate(model, 8, context=6) == "def return 7"
    # No more than it can see, and always the newest.
    assert seen[:4] == [b"def ", b"def r", b"def re", b"ef ret"] and seen[-1] == b"eturn "


def test_generate_says_what_is_no_text_too():
    model, _ = saying(b"\xff\xc3\xa9")
    assert models.generate(model, 0, context=6, start=b"") == ""
    text = models.generate(model, 3, context=6, start=b"a")
    assert text == "a\N{REPLACEMENT CHARACTER}\N{LATIN SMALL LETTER E WITH ACUTE}"


def test_generate_depends_on_the_seed_alone():
    net = language()
    one, again, other = (models.generate(net.predict, 30, CONTEXT, seed) for seed in (1, 1, 2))
    assert one == again != other
