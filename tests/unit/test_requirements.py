"""The engine of exercises: what is judged, in which order, and whose fault it is."""

import subprocess
import sys

import pytest
from distlab.checks import check, mistake, names
from distlab.checks.engine import Observed, Open, Requirements
from distlab.course import CourseError

SEEN = Observed(result=None, trouble="line 3: it broke")


def three(second) -> Requirements:
    """first holds, second is given, third needs both."""
    own = Requirements()

    @own.add()
    def first(observed):
        """the first thing.

        More words."""

    second.__name__ = "second"
    own.add(needs=("first",))(second)

    @own.add(needs=("first", "second"))
    def third(observed):
        return "the third one is wrong"

    return own


@pytest.mark.parametrize(
    ("second", "state", "said"),
    [
        (lambda observed: None, "holds", ""),
        (lambda observed: observed.trouble, "broken", "line 3: it broke"),
    ],
)
def test_each_holds_or_says_its_mistake(second, state, said):
    first, found, third = three(second).judge(SEEN)
    assert (first.name, first.text, first.state) == ("first", "the first thing", "holds")
    assert (found.state, found.mistake) == (state, said)
    assert third.text == "third"
    assert third.state == ("broken" if state == "holds" else "open")


def test_what_cannot_be_judged_is_open_and_so_is_what_needs_it():
    def unseen(observed):
        raise Open("nothing was seen")

    assert [found.state for found in three(unseen).judge(SEEN)] == ["holds", "open", "open"]


def test_what_rests_on_a_requirement():
    own = three(lambda observed: None)
    assert own.names == ["first", "second", "third"]
    assert own.resting_on("first") == {"second", "third"} and own.resting_on("third") == set()


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (lambda observed: observed.reslut, "AttributeError: 'Observed' object has no attribute 'reslut'"),
        (lambda observed: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda observed: (_ for _ in ()).throw(AssertionError("as in pytest")), "AssertionError: as in pytest"),
        (lambda observed: False, "it returned False, neither a sentence nor None"),
        (lambda observed: "", "it returned '', neither a sentence nor None"),
    ],
)
def test_fault_of_a_requirement_is_no_mistake_of_the_attendee(second, said):
    with pytest.raises(RuntimeError) as raised:
        three(second).judge(SEEN)
    assert str(raised.value).startswith(f"second in {__name__}: a requirement failed by its own fault")
    assert str(raised.value).endswith(said)


def test_needs_come_before_and_names_are_taken_once():
    own = three(lambda observed: None)
    with pytest.raises(ValueError, match="later is there already, or needs one of nobody that is not before it"):

        @own.add(needs=("nobody",))
        def later(observed):
            return None

    with pytest.raises(ValueError, match="first is there already"):

        @own.add()
        def first(observed):
            return None


def test_a_mistake_is_planted_once_and_knows_its_line():
    planted = mistake.Mistake("twice", [("b", "c")], "runs", "line {line} * wrong", at="c")
    assert mistake.plant("a\nb\n", planted.edits) == "a\nc\n"
    assert planted.sentence("a\nc\n") == "line 2 * wrong"
    for text, count in (("a\n", 0), ("bb", 2)):
        with pytest.raises(ValueError, match=f"'b' is {count} times in the solution"):
            mistake.plant(text, planted.edits)
    with pytest.raises(ValueError, match="no line has 'c'"):
        planted.sentence("a\nb\n")


@pytest.mark.parametrize("name", names())
def test_requirements_load_in_no_time(name):
    """Neither torch, which only ranks need, nor what draws, nor pytest, which attendees need not have."""
    code = f"import distlab; from distlab.checks.checking import requirements_of; requirements_of({name!r}); import sys"
    heavy = "print(sorted({'torch', 'matplotlib', 'pytest'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", f"{code}; {heavy}"], check=True, timeout=60, capture_output=True)
    assert done.stdout.decode() == "[]\n"


def test_a_file_that_is_none_of_pythons_is_said_before_anything_starts(tmp_path):
    (tmp_path / "mine.txt").write_text("x = 1\n")
    with pytest.raises(CourseError, match=r"mine\.txt is no Python file: name one that ends in \.py"):
        check("ddp", file=tmp_path / "mine.txt")
