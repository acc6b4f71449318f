"""What an elastic job lost and kept, worked out from records that were made up."""

import pytest
from distlab.drawing.colours import PAPER, RANKS
from distlab.lessons.horovod.pictures import elastic
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

HOSTS = {0: "node1", 1: "node1", 2: "node2", 3: "node2"}


def thing(what: str, rank: int, step: int, seconds: float, life: int = 0, **more: object) -> dict:
    who = {"hvd_rank": rank, "first_rank": rank, "hvd_host": HOSTS[rank], "world_size": 2 if life else 4, "life": life}
    return {"what": what, **who, "step": step, "seconds": seconds, **more}


def one_step(rank: int, step: int, end: float, life: int, samples: list[int]) -> dict:
    return thing("step", rank, step, end, life, began=end - 1, samples=samples)


def job() -> list[dict]:
    """Twelve samples: rank 2 is killed in step 3, after the commit of step 1; two ranks do steps 2 to 5."""
    records = [thing("started", rank, 0, 9.0) for rank in HOSTS]
    for step in (1, 2):
        records += [one_step(rank, step, 10.0 + step, 0, [4 * (step - 1) + rank]) for rank in HOSTS]
        records += [thing("commit", rank, step, 11.0) for rank in HOSTS if step == 1]
    records.append(thing("killed", 2, 3, 13.0, began=12.0))
    for rank in (0, 1, 3):
        records += [thing("lost", rank, 2, 13.5), thing("restored", rank, 1, 13.6)]
    records += [thing("resized", rank, 1, 14.0, 1) for rank in (0, 1)]
    records.append(thing("dropped", 3, 1, 14.0))
    for step in (2, 3, 4, 5):
        records += [one_step(rank, step, 13.0 + step, 1, [4 + 2 * (step - 2) + rank]) for rank in (0, 1)]
    return records + [thing("ended", rank, 5, 18.1, 1, weights="same") for rank in (0, 1)]


def without_loss() -> list[dict]:
    return [record for record in job() if record["life"] == 0 and record["what"] in ("started", "step", "commit")]


def test_steps_after_the_last_commit_are_lost_and_done_again():
    assert elastic.last_commit(job()) == 1
    assert elastic.lost(job()) == [2]
    assert elastic.lasting(job()) == [1, 2, 3, 4, 5]


def test_a_later_commit_of_those_left_is_not_the_one_they_went_back_to():
    assert elastic.last_commit([*job(), thing("commit", 0, 5, 18.0, 1)]) == 1


def test_a_step_that_one_rank_alone_finished_is_lost_too():
    records = [
        record
        for record in job()
        if not (record["what"] == "step" and record["step"] == 2 and record["first_rank"] != 3)
    ]
    assert elastic.lost(records) == [2]


def test_steps_that_were_left_out_or_done_twice_show():
    again = [*job(), one_step(0, 5, 19.0, 1, [0])]
    assert elastic.lasting(again) == [1, 2, 3, 4, 5]
    hole = [record for record in job() if not (record["life"] == 1 and record["step"] == 2)]
    assert elastic.lasting(hole) == [1, 3, 4, 5]
    # They went on after step 2, but said that they go back to the commit of step 1.
    later = [record | {"step": 2} if record["what"] == "restored" else record for record in job()]
    assert elastic.lasting(later) == [1, 2, 2, 3, 4, 5]


def test_each_sample_counts_once_although_some_were_seen_twice():
    assert elastic.samples(job()) == dict.fromkeys(range(12), 1)


def test_a_sample_that_counts_twice_or_never_is_told():
    padded = [*job(), one_step(0, 6, 19.0, 1, [0])]
    assert elastic.samples(padded)[0] == 2
    assert sum(elastic.samples(padded).values()) == 13
    gone = [record for record in job() if not (record["life"] == 1 and record["step"] == 2)]
    assert elastic.samples(gone) == dict.fromkeys([0, 1, 2, 3, 6, 7, 8, 9, 10, 11], 1)


def test_without_a_loss_all_counts():
    assert elastic.lost(without_loss()) == [] and elastic.lasting(without_loss()) == [1, 2]
    assert elastic.last_commit(without_loss()) == 1
    assert elastic.samples(without_loss()) == dict.fromkeys(range(8), 1)
    assert "killed" not in elastic.picture(without_loss()).alt


def test_worlds_have_their_time_and_their_size():
    assert elastic.worlds(job()) == [(10.0, 13.0, 4), (14.0, 18.0, 2)]


# -- picture -------------------------------------------------------------------------------------


def boxes(axes, rank: int) -> list[tuple[float, float, bool]]:
    """(begin, end, whether it counts) of each box of a rank."""
    found = []
    for patch in axes.patches:
        lane = isinstance(patch, Rectangle) and patch.get_height() == elastic.LANE
        if lane and round(patch.get_y() + patch.get_height() / 2) == rank:
            counts = not patch.get_hatch()
            assert to_hex(patch.get_facecolor()) == (RANKS[rank] if counts else PAPER)
            found.append((patch.get_x(), patch.get_x() + patch.get_width(), counts))
    return found


def test_boxes_are_steps_and_those_thrown_away_are_hatched():
    (axes,) = elastic.picture(job()).axes
    after = [(14.0, 15.0, True), (15.0, 16.0, True), (16.0, 17.0, True), (17.0, 18.0, True)]
    assert boxes(axes, 0) == [(10.0, 11.0, True), (11.0, 12.0, False), (12.0, 13.5, False), *after]
    assert boxes(axes, 2) == [(10.0, 11.0, True), (11.0, 12.0, False), (12.0, 13.0, False)]
    assert boxes(axes, 3) == [(10.0, 11.0, True), (11.0, 12.0, False), (12.0, 13.5, False)]
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"rank {r}, {host}" for r, host in HOSTS.items()]
    assert axes.get_xlabel() == "seconds since horovodrun was started"


def test_commits_the_kill_and_who_is_given_up_are_marked():
    (axes,) = elastic.picture(job()).axes
    marks = {(line.get_marker(), float(line.get_xdata()[0]), round(line.get_ydata()[0])) for line in axes.lines}
    assert {("X", 13.0, 2), ("s", 14.0, 3), ("v", 11.0, 1)} <= marks
    assert sum(mark == "X" for mark, *_ in marks) == 1


def test_world_sizes_and_the_gap_stand_above_and_the_text_says_all():
    figure = elastic.picture(job())
    said = [text.get_text() for text in figure.axes[0].texts]
    assert {"world size 4", "world size 2", "1.0 s"} <= set(said)
    title = figure.axes[0].get_title(loc="left")
    assert title == "Rank 2 is killed in step 3: the others go on from the commit of step 1"
    for words in (
        "Rank 2 on node2 is killed in step 3",
        "rank 3 is given up with its host node2",
        "1.0 s later from the commit of step 1",
        "thrown away and done again: 2",
        "world size 4 then 2",
    ):
        assert words in figure.alt


def test_killed_before_the_first_commit_they_start_anew():
    records = [
        record | {"step": 0} if record["what"] == "restored" else record
        for record in job()
        if record["what"] != "commit"
    ]
    assert elastic.last_commit(records) == 0 and elastic.lost(records) == [1, 2]
    assert "go on from the start, since nothing was committed" in elastic.picture(records).axes[0].get_title(loc="left")


@pytest.mark.parametrize("draw", [elastic.picture, elastic.lost, elastic.lasting, elastic.samples, elastic.worlds])
def test_without_records_it_says_what_it_needs(draw):
    with pytest.raises(ValueError, match="no 'elastic' records to draw"):
        draw([])
