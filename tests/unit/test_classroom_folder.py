"""The folder that is mounted, whose it is, and that nobody's work is lost."""

import os

import pytest
from distlab.classroom import folder
from distlab.classroom.settings import DEFAULTS, ClassroomError

USER, ROOT = 1234, 0


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """A workspace with runs and caches; who owns it and who asks is told by `owners` and `me`."""
    files = ("Start_Here.ipynb", "exercises/ddp.py", "distlab/__init__.py")
    rest = (
        "runs/first/run.json",
        "distlab/__pycache__/x.pyc",
        ".ipynb_checkpoints/x",
        "distlab.egg-info/x",
        ".ruff_cache/x",
    )
    for name in files + rest:
        path = tmp_path / "workspace" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    monkeypatch.setattr(folder, "ROOT", tmp_path)
    return tmp_path / "workspace"


@pytest.fixture
def asked(monkeypatch, workspace):
    """Asks for a folder as somebody, of a workspace that is somebody's; notes who was given what."""
    given: dict[str, tuple[int, int]] = {}

    def ask(owner: int, me: int, own: bool = True, **settings: str):
        def owner_of(path):
            if path == workspace:
                return owner, owner
            return given.get(str(path), (me, me))

        def give(path, uid, gid):
            # The copy is given away before it gets its name.
            given[str(workspace.parent / "seats" / "3" / "workspace")] = (uid, gid)

        monkeypatch.setattr(folder, "owner_of", owner_of)
        monkeypatch.setattr(folder, "give_away", give)
        monkeypatch.setattr(os, "geteuid", lambda: me)
        copy = workspace.parent / "seats" / "3" / "workspace"
        return folder.prepare(copy, DEFAULTS | settings, own), copy, given

    return ask


def test_ones_own_workspace_is_mounted_as_it_is(asked, workspace):
    place, copy, given = asked(owner=USER, me=USER, own=False)
    assert (place.folder, place.uid, place.gid, place.text) == (workspace, USER, USER, "")
    assert not copy.exists() and not given


def test_sudo_changes_nothing_about_it(asked, workspace):
    place, copy, given = asked(owner=USER, me=ROOT, own=False)
    assert (place.folder, place.uid) == (workspace, USER)
    assert not copy.exists() and not given


def test_a_seat_has_a_copy_of_what_an_attendee_needs(asked, workspace):
    place, copy, given = asked(owner=USER, me=USER)
    assert (place.folder, place.uid, place.gid) == (copy, USER, USER)
    assert place.text == f"works in seats/3/workspace, copied now, as {USER}:{USER}"
    found = sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file())
    assert found == ["Start_Here.ipynb", "distlab/__init__.py", "exercises/ddp.py"]
    assert not given and [path.name for path in copy.parent.iterdir()] == ["workspace"]
    assert copy.stat().st_mode == workspace.stat().st_mode


def test_a_copy_that_is_there_is_the_attendees_work(asked, workspace):
    _, copy, _ = asked(owner=USER, me=USER)
    (copy / "exercises/ddp.py").write_text("mine")
    (workspace / "new.py").write_text("new")
    place, _, given = asked(owner=USER, me=USER)
    assert (copy / "exercises/ddp.py").read_text() == "mine" and not (copy / "new.py").exists()
    assert "as it was left" in place.text and not given


@pytest.mark.parametrize("own", [True, False])
def test_roots_workspace_is_copied_and_given_away(asked, own):
    place, copy, given = asked(owner=ROOT, me=ROOT, own=own)
    assert (place.folder, place.uid, place.gid) == (copy, 1000, 1000)
    assert given == {str(copy): (1000, 1000)}
    assert "(workspace is root's, as whom containers do not run)" in place.text


def test_root_copies_for_whoever_owns_the_workspace(asked):
    place, copy, given = asked(owner=USER, me=ROOT)
    assert (place.uid, place.gid) == (USER, USER) and given == {str(copy): (USER, USER)}


def test_a_copy_that_root_made_by_hand_is_given_away_too(asked, workspace):
    copy = workspace.parent / "seats" / "3" / "workspace"
    copy.mkdir(parents=True)
    place, _, given = asked(owner=ROOT, me=ROOT)
    assert given == {str(copy): (1000, 1000)} and place.uid == 1000


def test_a_chosen_user_wins(asked):
    chosen = {"WORKSHOP_UID": "1500", "WORKSHOP_GID": "1600"}
    assert asked(owner=USER, me=USER, own=False, **chosen)[0].uid == 1500
    place, copy, given = asked(owner=ROOT, me=ROOT, **chosen)
    assert (place.uid, place.gid) == (1500, 1600) and given == {str(copy): (1500, 1600)}


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"WORKSHOP_UID": "0"}, "WORKSHOP_UID=0 is root"),
        ({"WORKSHOP_GID": "me"}, "WORKSHOP_GID=me is no number: write what `id -u` and `id -g` print"),
        ({"WORKSHOP_FOLDER": "nowhere"}, "WORKSHOP_FOLDER=nowhere is no folder"),
    ],
)
def test_settings_that_cannot_be(asked, settings, complaint):
    with pytest.raises(ClassroomError, match=complaint):
        asked(owner=USER, me=USER, **settings)


def test_roots_workspace_and_somebody_else_asks(asked):
    with pytest.raises(ClassroomError, match="belongs to root.*: sudo chown -R"):
        asked(owner=ROOT, me=USER)


def test_half_a_copy_is_never_seen(asked, workspace, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder.shutil, "copytree", full)
    with pytest.raises(OSError, match="No space"):
        asked(owner=USER, me=USER)
    assert list((workspace.parent / "seats" / "3").iterdir()) == []
