"""Image folders: what is an image of which class, what is damaged, what is kept."""

import os

import numpy as np
import pytest
import torch
from data_helpers import leftovers, picture, truncate
from distlab import data
from distlab.data import decoding, folder, photos
from distlab.data.sets import prepare
from distlab.data.store import find
from PIL import Image

RED, BLUE = (200, 10, 20), (10, 20, 200)


@pytest.fixture
def top(tmp_path):
    """train/ and val/ with 4 + 2 red cats and blue dogs, PNG and JPEG."""
    top = tmp_path / "animals"
    for split, count in (("train", 4), ("val", 2)):
        for name, colour in (("cat", RED), ("dog", BLUE)):
            for number in range(count):
                picture(top / split / name / f"{number}.{'png' if number % 2 else 'jpg'}", colour)
    return top


@pytest.fixture(params=["in memory", "on disk"])
def kept(request, monkeypatch):
    """Both ways of keeping a folder."""
    if request.param == "on disk":
        monkeypatch.setattr(folder, "CACHE_BYTES", 0)
    return request.param


def colour_of(images, index):
    """The colour of a sample's middle, undoing the normalisation, in grey levels."""
    pixels = images[index][0] * torch.tensor(images.std).view(-1, 1, 1) + torch.tensor(images.mean).view(-1, 1, 1)
    return (255 * pixels[:, pixels.shape[1] // 2, pixels.shape[2] // 2]).tolist()


def test_train_and_val(top, root, kept):
    images = data.load(top, size=16)
    assert (images.name, images.classes, images.note) == ("animals", ["cat", "dog"], "")
    assert (images.channels, images.height, images.width) == (3, 16, 16)
    assert images.train.labels.tolist() == [0] * 4 + [1] * 4
    assert images.val.labels.tolist() == [0] * 2 + [1] * 2
    for index, colour in ((0, RED), (3, RED), (4, BLUE), (7, BLUE)):
        assert colour_of(images.train, index) == pytest.approx(colour, abs=4)
        assert images.train[index][1] == (index >= 4)
    assert find(next(root.glob("animals-16px-*"))).facts["kind"] == ("arrays" if kept == "in memory" else "files")


def test_decoded_anew_or_kept_the_pixels_are_the_same(top, root, monkeypatch):
    kept = data.load(top, size=16).train
    monkeypatch.setattr(folder, "CACHE_BYTES", 0)
    read = data.load(top, size=16, root=root / "other").train
    every = torch.arange(8)
    assert type(kept).__name__ == "InMemory" and type(read).__name__ == "OnDisk"
    assert torch.equal(kept.pixels(every), read.pixels(every))


def test_examined_once_until_a_file_changes(top, monkeypatch):
    assert prepare(top).fresh and not prepare(top).fresh
    assert prepare(top, size=32).fresh
    picture(top / "train" / "cat" / "9.png", RED)
    changed = prepare(top)
    assert changed.fresh and changed.facts["train"] == 9
    # Of one folder at one size only the newest state is kept.
    assert len(list(changed.folder.parent.glob("animals-96px-*"))) == 1
    assert len(list(changed.folder.parent.glob("animals-32px-*"))) == 1
    old = (top / "train" / "cat" / "9.png").stat().st_mtime_ns
    os.utime(top / "train" / "cat" / "9.png", ns=(old + 1, old + 1))
    assert prepare(top).fresh


def test_class_folders_alone_hold_out_every_fifth(tmp_path):
    top = tmp_path / "flat"
    for name, count in (("a", 11), ("b", 2), ("c", 1)):
        for number in range(count):
            picture(top / name / f"{number:02d}.png", (10 * number, 0, 0))
    images = data.load(top, size=8)
    assert images.train.labels.tolist() == [0] * 9 + [1, 2]
    assert images.val.labels.tolist() == [0, 0, 1]
    assert [round(colour_of(images.val, index)[0]) for index in range(3)] == [40, 90, 10]
    assert "every fifth image of each class" in images.note


def test_hidden_files_and_folders_and_other_files_do_not_count(top):
    before = prepare(top, size=8).facts["digest"]
    picture(top / ".ipynb_checkpoints" / "x" / "0.png", RED)
    picture(top / "train" / ".ipynb_checkpoints" / "0.png", RED)
    picture(top / "train" / "cat" / ".hidden" / "0.png", RED)
    picture(top / "train" / "cat" / ".0.png", RED)
    (top / "train" / "cat" / "readme.txt").write_text("cats")
    (top / "train" / "list.csv").write_text("")
    after = prepare(top, size=8)
    assert after.facts["digest"] == before and not after.fresh
    picture(top / "train" / "cat" / "below" / "0.JPEG", RED)
    assert prepare(top, size=8).facts["train"] == 9


def test_an_empty_class_folder_is_named(top):
    (top / "train" / "cow").mkdir()
    (top / "val" / "cow").mkdir()
    (top / "train" / "cow" / "0.webp").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"class folder .*animals/train/cow holds no JPEG or PNG image"):
        data.load(top)


def test_no_class_folders(tmp_path):
    picture(tmp_path / "pictures" / "0.png", RED)
    with pytest.raises(ValueError, match=r"pictures has no class folders"):
        data.load(tmp_path / "pictures")


def test_classes_that_differ_are_named(top):
    picture(top / "train" / "cow" / "0.png", RED)
    picture(top / "val" / "hen" / "0.png", RED)
    picture(top / "val" / "pig" / "0.png", RED)
    with pytest.raises(ValueError, match=r"classes of .*animals differ: cow only in train/; hen, pig only in val/"):
        data.load(top)


@pytest.mark.parametrize(("present", "absent"), [("train", "val"), ("val", "train")])
def test_a_missing_split_is_named(top, present, absent):
    (top / absent).rename(top.parent / "elsewhere")
    with pytest.raises(ValueError, match=rf"animals has {present}/ but no {absent}/"):
        data.load(top)


def test_a_class_may_be_called_train(tmp_path):
    for name in ("bus", "train"):
        for number in range(5):
            picture(tmp_path / "cars" / name / f"{number}.png", RED)
    assert data.load(tmp_path / "cars").classes == ["bus", "train"]


def test_one_image_per_class_is_too_few(tmp_path):
    picture(tmp_path / "few" / "a" / "0.png", RED)
    with pytest.raises(ValueError, match="every class of .*few has one image"):
        data.load(tmp_path / "few")


def test_no_such_folder():
    with pytest.raises(ValueError, match="no data set 'nowhere'"):
        data.load("nowhere")


def test_a_truncated_image_stops_with_path_class_and_bytes(top, kept):
    victim = top / "train" / "dog" / "2.jpg"
    left = truncate(victim)
    with pytest.raises(ValueError, match=rf"(?i)^damaged image: {victim} \(class dog, {left} bytes\): .*truncated"):
        data.load(top)


def test_a_truncated_image_is_skipped_and_counted(top, kept):
    data.load(top)
    victim = top / "train" / "dog" / "1.png"
    truncate(victim)
    images = data.load(top, on_damaged="skip", size=16)
    assert images.note == f"skipped 1 damaged image: {victim}"
    assert images.train.labels.tolist() == [0] * 4 + [1] * 3
    assert [colour_of(images.train, index)[2] > 150 for index in range(7)] == [False] * 4 + [True] * 3
    # What was examined to skip still stops whoever asks for that.
    with pytest.raises(ValueError, match="damaged image: .*1.png"):
        data.load(top, size=16)


def test_every_kind_of_damage_is_found(top, kept):
    cat = top / "train" / "cat"
    truncate(cat / "0.jpg")
    (cat / "1.png").write_bytes(b"")
    (cat / "2.jpg").write_bytes(b"<html><body>404</body></html>")
    found = prepare(top, on_damaged="skip")
    reasons = {path.rsplit("/")[-1]: reason for path, _, reason in found.facts["damaged"]}
    assert set(reasons) == {"0.jpg", "1.png", "2.jpg"}
    assert "truncated" in reasons["0.jpg"].lower()
    assert reasons["1.png"] == "the file is empty"
    assert reasons["2.jpg"] == "no image that Pillow knows"
    assert found.note == f"skipped 3 damaged images: {cat / '0.jpg'}, and 2 more"
    with pytest.raises(ValueError, match=r"0\.jpg .*, and 2 more"):
        prepare(top)


def test_a_class_without_a_whole_image_is_named(top, kept):
    for victim in (top / "val" / "dog").iterdir():
        truncate(victim)
    with pytest.raises(ValueError, match=r"no whole image is left of class dog: .*val/dog/0.jpg"):
        data.load(top, on_damaged="skip")


def test_an_image_damaged_after_it_was_examined(top, monkeypatch):
    monkeypatch.setattr(folder, "CACHE_BYTES", 0)
    images = data.load(top)
    victim = top / "train" / "cat" / "2.jpg"
    left = truncate(victim)
    with pytest.raises(RuntimeError, match=rf"(?i)^damaged image: {victim} \(class cat, {left} bytes\): .*truncated"):
        images.train[2]


def test_an_unreadable_file_is_no_damage(top, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Image, "open", refuse)
    with pytest.raises(PermissionError, match=r"Permission denied: .*0.jpg"):
        data.load(top, on_damaged="skip")


def test_an_unknown_flag_is_refused(top):
    with pytest.raises(ValueError, match="on_damaged='ignore' is unknown: use 'stop' or 'skip'"):
        data.load(top, on_damaged="ignore")


def test_the_central_square_is_resized(tmp_path):
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, :20], wide[:, 20:40], wide[:, 40:] = RED, (90, 90, 90), BLUE
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert (decoding.decode(tmp_path / "wide.png", 10) == 90).all()
    Image.fromarray(wide.transpose(1, 0, 2)).save(tmp_path / "tall.png")
    assert (decoding.decode(tmp_path / "tall.png", 10) == 90).all()


@pytest.mark.parametrize("mode", ["L", "LA", "P", "1", "RGBA", "CMYK"])
def test_other_modes_become_rgb(tmp_path, mode):
    ending = "jpg" if mode == "CMYK" else "png"
    Image.new("L", (16, 16), 255).convert("RGB").convert(mode).save(tmp_path / f"image.{ending}")
    pixels = decoding.decode(tmp_path / f"image.{ending}", 8)
    assert pixels.shape == (3, 8, 8) and pixels.dtype == np.uint8 and (pixels >= 250).all()


def test_16_bit_grey_is_scaled_not_clipped(tmp_path):
    Image.fromarray(np.full((16, 16), 128 * 256, np.uint16)).save(tmp_path / "deep.png")
    assert (decoding.decode(tmp_path / "deep.png", 8) == 128).all()


def test_photos(root, monkeypatch):
    monkeypatch.setattr(photos, "CROPS", {"train": 8, "val": 3})
    images = data.load("photos", size=24)
    assert (images.name, len(images.classes)) == ("photos", 13)
    assert (images.channels, images.height, images.width) == (3, 24, 24)
    assert images.train.labels.bincount().tolist() == [8] * 13
    assert images.val.labels.bincount().tolist() == [3] * 13
    assert "each class is one photograph" in images.note
    assert "CC BY 2.0" in (root / "photos" / "ATTRIBUTION.txt").read_text()
    assert leftovers(root) == []


def test_photo_crops_keep_to_their_bands(tmp_path):
    # The upper 70 % red, the rest blue: a crop that strays over the line shows both.
    photo = Image.new("RGB", (200, 300), RED)
    photo.paste(BLUE, (0, 210, 200, 300))
    photos._cut(photo, tmp_path, "flag", np.random.default_rng(1))
    for split, colour in (("train", RED), ("val", BLUE)):
        crops = [np.asarray(Image.open(path)) for path in sorted((tmp_path / split / "flag").iterdir())]
        assert len(crops) == photos.CROPS[split]
        assert all(np.abs(crop.astype(int) - colour).max() <= 6 for crop in crops)
