"""The pictures of mixed precision and memory format show the numbers that ranks reported."""

import pytest
from distlab.drawing.colours import RANKS
from distlab.lessons.precision.pictures import clip as clipping
from distlab.lessons.precision.pictures import curves, formats, underflow
from distlab.lessons.precision.pictures import layout as memory_format
from distlab.lessons.precision.pictures import scale as loss_scale
from distlab.lessons.precision.pictures import speed as step_cost
from drawn import boxes, colours, texts, words
from matplotlib.colors import to_hex

# -- formats -------------------------------------------------------------------------------------

FP16 = {
    "name": "fp16",
    "largest": 65504.0,
    "smallest_normal": 2.0**-14,
    "smallest": 2.0**-24,
    "step": 2.0**-10,
    "values": [1.001, 70000.0],
    "rounded": ["1.0009765625", "inf"],
}
FP32 = FP16 | {
    "name": "fp32",
    "largest": 3.4028234663852886e38,
    "smallest_normal": 2.0**-126,
    "smallest": 2.0**-149,
    "step": 2.0**-23,
    "rounded": ["1.0010000467300415", "70000.0"],
}


def test_formats_are_counted_and_sorted_from_wide_to_narrow():
    assert (formats.steps(FP16), formats.powers(FP16)) == (1024, 30)
    assert (formats.steps(FP32), formats.powers(FP32)) == (8_388_608, 254)
    assert formats.table([FP16, FP32]) == [
        {
            "format": "fp32",
            "numbers from 1 to 2": "8,388,608",
            "largest": "3.4e+38",
            "1.001": "1.001",
            "70000": "70000",
        },
        {"format": "fp16", "numbers from 1 to 2": "1,024", "largest": "6.55e+04", "1.001": "1.00098", "70000": "inf"},
    ]


def test_a_bar_ends_where_a_format_ends():
    (axes,) = formats.picture([FP16, FP32]).axes
    ends = [(round(bar.get_x()), round(bar.get_x() + bar.get_width())) for bar in boxes(axes)]
    assert ends == [(-149, -126), (-126, 128), (-24, -14), (-14, 16)]
    assert texts(axes.get_yticklabels()) == ["fp32", "fp16"]
    assert "8,388,608" in words(axes) and "1,024" in words(axes)


# -- underflow -----------------------------------------------------------------------------------

SIZES = [
    {"rank": 0, "kind": "outputs", "histogram": {"-30": 10, "-10": 30}},
    {"rank": 1, "kind": "outputs", "histogram": {"-30": 10, "-12": 50}},
    {"rank": 0, "kind": "weights", "histogram": {"-3": 7}},
]
LOST = [
    {"rank": 0, "way": "fp16", "scale": 1.0, "outputs": 0.3, "weights": 0.0},
    {"rank": 1, "way": "fp16", "scale": 1.0, "outputs": 0.1, "weights": 0.0},
    {"rank": 0, "way": "fp16, loss x 65536", "scale": 65536.0, "outputs": 0.0, "weights": 0.0},
    {"rank": 0, "way": "bf16", "scale": 1.0, "outputs": 0.0, "weights": 0.0},
]


def test_gradients_of_all_ranks_are_counted_together():
    assert underflow.counts(SIZES, "outputs") == {-30: 20, -12: 50, -10: 30}
    assert underflow.share_lost(LOST, "fp16", "outputs") == pytest.approx(0.2)


def test_the_histogram_moves_with_the_scale_and_shows_what_lies_outside():
    plain, scaled = underflow.picture(SIZES, LOST).axes
    for axes, shift, outside in ((plain, 0, 1), (scaled, 16, 0)):
        columns = [bar for bar in boxes(axes) if bar.get_width() == pytest.approx(0.9)]
        assert [round(bar.get_x() + 0.45 - 0.5) - shift for bar in columns] == [-30, -12, -10]
        assert [bar.get_height() for bar in columns] == [20, 50, 30]
        assert sum(to_hex(bar.get_facecolor()) == RANKS[1] for bar in columns) == outside
    assert "20.00 % become zero" in words(plain) and "0.00 % become zero" in words(scaled)
    assert "16 powers of two" in scaled.get_title(loc="left")


# -- loss scale ----------------------------------------------------------------------------------


def scaled(rank, step, scale, moved, finite=True):
    return {"rank": rank, "step": step, "scale": scale, "moved": moved, "own_finite": finite}


RISING = [
    *(scaled(rank, 1, 8.0, True) for rank in (0, 1)),
    scaled(0, 2, 16.0, False),
    scaled(1, 2, 16.0, False, finite=False),
    *(scaled(rank, 3, 8.0, True) for rank in (1, 0)),
]


def test_skipped_updates_and_who_caused_them():
    assert loss_scale.skipped(RISING) == {0: [2], 1: [2]}
    assert loss_scale.overflowed(RISING) == {2: [1]}


def test_the_scale_is_a_line_and_skips_are_crosses_with_the_rank_above():
    figure = loss_scale.picture(RISING)
    (axes,) = figure.axes
    line, crosses, rank_1 = axes.lines[:3]
    assert list(line.get_ydata()) == [3, 4, 3]
    assert (list(crosses.get_xdata()), list(crosses.get_ydata())) == ([2], [4])
    assert to_hex(rank_1.get_color()) == RANKS[1] and rank_1.get_ydata()[0] > 4
    assert "update 2 because of rank 1" in figure.alt


def test_a_run_without_skips_is_drawn_too():
    calm = [record | {"moved": True, "own_finite": True} for record in RISING]
    figure = loss_scale.picture(calm)
    assert "none" in figure.alt
    (axes,) = figure.axes
    assert not any(line.get_marker() == "X" for line in axes.lines)


# -- clipping ------------------------------------------------------------------------------------


def test_a_wrongly_clipped_gradient_has_its_own_colour():
    records = [
        {"way": "float32", "limit": 0.5, "seen": 0.8, "left": 0.5},
        {"way": "clip, then unscale", "limit": 0.5, "seen": 6503.0, "left": 6e-5},
    ]
    (axes,) = clipping.picture(records).axes
    assert colours(boxes(axes)) == list(RANKS[:2])
    assert [bar.get_x() + bar.get_width() for bar in boxes(axes)] == pytest.approx([0.5, 6e-5])
    assert axes.get_xscale() == "log"
    assert "6,503" in words(axes)[1]


# -- curves --------------------------------------------------------------------------------------


def test_each_way_has_a_line_of_loss_and_one_of_accuracy():
    runs = {
        "fp32": [{"epoch": 1, "loss": 2.0, "val_accuracy": 0.5}, {"epoch": 2, "loss": 1.0, "val_accuracy": 0.75}],
        "bf16": [{"epoch": 1, "loss": 2.1, "val_accuracy": 0.5}, {"epoch": 2, "loss": 1.1, "val_accuracy": 0.7}],
    }
    picture = curves.picture(runs, "alike")
    left, right = picture.axes
    assert [list(line.get_ydata()) for line in left.lines] == [[2.0, 1.0], [2.1, 1.1]]
    assert [list(line.get_ydata()) for line in right.lines] == [[50, 75], [50, pytest.approx(70)]]
    assert list(left.get_xticks()) == [1, 2]
    assert "bf16: loss 1.100, accuracy 70.0%" in picture.alt


# -- memory format -------------------------------------------------------------------------------

# One row of two pixels, three channels.
PLACES = [
    {"name": "NCHW", "strides": [6, 2, 2, 1], "places": [[c, 0, w] for c in range(3) for w in range(2)]},
    {"name": "NHWC", "strides": [6, 1, 6, 3], "places": [[c, 0, w] for w in range(2) for c in range(3)]},
]


def test_the_addresses_of_one_pixel():
    assert memory_format.addresses(PLACES[0], [0, 1]) == [1, 3, 5]
    assert memory_format.addresses(PLACES[1], [0, 1]) == [3, 4, 5]


def test_the_strip_is_coloured_by_channel_and_frames_the_pixel():
    (axes,) = memory_format.picture(PLACES).axes
    cells = [bar for bar in boxes(axes) if bar.get_fill()]
    assert colours(cells[:6]) == [RANKS[c] for c in (0, 0, 1, 1, 2, 2)]
    assert colours(cells[6:]) == [RANKS[c] for c in (0, 1, 2) * 2]
    frames = [bar.get_x() for bar in boxes(axes) if not bar.get_fill()]
    assert frames == [1, 3, 5, 3, 4, 5]
    assert "strides (6, 1, 6, 3)" in words(axes)


def test_a_layer_that_changes_the_order_is_named():
    rows = [
        {"layer": "0 Conv2d", "given": "NHWC", "gives": "NHWC"},
        {"layer": "1 Shuffle", "given": "NHWC", "gives": "NCHW"},
    ]
    (axes,) = memory_format.layers(rows).axes
    assert colours(boxes(axes)) == [RANKS[0]] * 3 + [RANKS[1]]
    assert words(axes).count("changes it") == 1


# -- cost of a step ------------------------------------------------------------------------------

ROWS = [
    {"name": "float32", "milliseconds": 80.0, "kept_bytes": 8_000_000, "why_not": None},
    {"name": "both", "milliseconds": 100.0, "kept_bytes": 4_000_000, "why_not": None},
    {"name": "both, compiled", "why_not": "no C++ compiler here"},
]
MACHINE = {"device": "some CPU", "dtype": "bfloat16", "threads": 1, "units": {"bf16": [], "fp16": ["avx512_fp16"]}}


def test_cost_is_counted_from_float32_and_no_gain_has_its_own_colour():
    assert step_cost.times_faster(ROWS, "both") == pytest.approx(0.8)
    picture = step_cost.picture(ROWS, MACHINE)
    left, right = picture.axes
    assert [bar.get_width() for bar in boxes(left)] == [80, 100]
    assert [bar.get_width() for bar in boxes(right)] == [8, 4]
    assert colours(boxes(left)) == list(RANKS[:2])
    assert colours(boxes(right)) == [RANKS[0]] * 2
    assert any("no C++ compiler here" in text for text in words(left))
    assert "1.25 x" in " ".join(words(left)) and "0.50 x" in " ".join(words(right))


def test_a_compiled_row_says_how_long_compiling_took():
    done = {"name": "both, compiled", "milliseconds": 50.0, "kept_bytes": 3_000_000, "first_seconds": 11.4}
    left, _ = step_cost.picture([*ROWS[:2], done], MACHINE).axes
    assert texts(left.get_yticklabels()) == [
        "float32",
        "both",
        "both, compiled\n(it took 11 s)",
    ]


def test_the_machine_is_named_with_what_it_lacks():
    assert step_cost.words(MACHINE) == "some CPU, 1 thread; units for bf16: none, so they are emulated"
    able = MACHINE | {"threads": 2, "units": {"bf16": ["avx512_bf16", "amx_bf16"]}}
    assert step_cost.words(able) == "some CPU, 2 threads; units for bf16: avx512_bf16, amx_bf16"


# -- all -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draw", "event"),
    [
        (lambda: formats.picture([]), "format"),
        (lambda: underflow.picture([], LOST), "sizes"),
        (lambda: underflow.picture(SIZES, []), "lost"),
        (lambda: loss_scale.picture([]), "scaled"),
        (lambda: clipping.picture([]), "clipped"),
        (lambda: curves.picture({}, "nothing"), "epoch"),
        (lambda: curves.picture({"fp32": []}, "nothing"), "epoch"),
        (lambda: memory_format.picture([]), "places"),
        (lambda: memory_format.layers([]), "layer"),
        (lambda: step_cost.picture([], MACHINE), "row"),
    ],
)
def test_without_records_a_picture_says_what_it_needs(draw, event):
    with pytest.raises(ValueError, match=f"no '{event}' records to draw"):
        draw()
