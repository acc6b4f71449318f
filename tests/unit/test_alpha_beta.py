"""Latency and bandwidth from times: found again in times made from them, small sizes included."""

import numpy as np
import pytest
from distlab.drawing.colours import RANKS
from distlab.drawing.units import words_of_size
from distlab.lessons.messages.pictures import latency
from distlab.measure.alpha_beta import AlphaBeta, fit
from matplotlib.colors import to_hex

SIZES = [1024 * 4**power for power in range(9)]


@pytest.mark.parametrize(("alpha", "beta"), [(50e-6, 1e9), (3e-3, 5e8), (1e-6, 3e11)])
def test_exact_times_give_back_what_made_them(alpha, beta):
    found = fit(SIZES, [alpha + size / beta for size in SIZES])
    assert found.alpha == pytest.approx(alpha, rel=1e-6)
    assert found.beta == pytest.approx(beta, rel=1e-6)
    assert found.error < 1e-6
    assert found.seconds(0) == pytest.approx(alpha)
    assert found.seconds(5_000_000) == pytest.approx(alpha + 5_000_000 / beta)
    assert found.half_size == pytest.approx(alpha * beta)


def test_half_of_the_bandwidth_is_reached_at_the_half_size():
    line = AlphaBeta(alpha=1e-4, beta=1e9, error=0.0)
    assert line.half_size / line.seconds(line.half_size) == pytest.approx(line.beta / 2)


def test_small_sizes_count_as_much_as_large_ones():
    # The largest message is off by a tenth: a plain least squares fit would bend to it and lose the latency.
    seconds = [50e-6 + size / 1e9 for size in SIZES]
    seconds[-1] *= 1.1
    found = fit(SIZES, seconds)
    assert found.alpha == pytest.approx(50e-6, rel=0.03)
    plain = np.polyfit(SIZES, seconds, 1)[1]
    assert abs(plain / 50e-6 - 1) > 0.5


def test_the_error_is_the_root_mean_square_of_relative_errors():
    noisy = [
        seconds * factor for seconds, factor in zip([1e-3 + size / 1e9 for size in SIZES], [1.2, 0.8] * 5, strict=False)
    ]
    found = fit(SIZES, noisy)
    relative = [found.seconds(size) / seconds - 1 for size, seconds in zip(SIZES, noisy, strict=True)]
    assert found.error == pytest.approx(np.sqrt(np.mean(np.square(relative))))
    assert 0.1 < found.error < 0.25
    # No other line is better.
    for alpha, beta in ((1.02, 1), (0.98, 1), (1, 1.02), (1, 0.98)):
        other = AlphaBeta(found.alpha * alpha, found.beta * beta, 0)
        assert np.mean(
            [(other.seconds(size) / seconds - 1) ** 2 for size, seconds in zip(SIZES, noisy, strict=True)]
        ) > (found.error**2)


def test_a_latency_is_never_negative():
    found = fit([1, 2, 4], [1e-9, 3e-9, 9e-9])
    assert found.alpha == 0 and found.beta > 0
    for beta in (found.beta * 1.01, found.beta * 0.99):
        worse = [size / beta / seconds - 1 for size, seconds in zip([1, 2, 4], [1e-9, 3e-9, 9e-9], strict=True)]
        assert np.mean(np.square(worse)) > found.error**2


@pytest.mark.parametrize(
    ("sizes", "seconds", "said"),
    [
        ([1, 2], [1, 2], "2 different sizes cannot carry a fit: measure 3 or more"),
        ([1, 1, 1, 2], [1, 1, 1, 2], "2 different sizes"),
        ([], [], "0 different sizes"),
        ([1, 2, 3], [1, 2], "3 sizes and 2 times: give one time for each size"),
        ([1, 2, 3], [1, 0, 2], "0 is no time that a message can have"),
        ([1, 2, 3], [1, float("nan"), 2], "nan is no time"),
        ([1, -2, 3], [1, 2, 3], "-2 is no size"),
        ([1, 2, float("inf")], [1, 2, 3], "inf is no size"),
        ([1, 2, 3], [5, 5, 5], "time does not grow with size"),
        ([1, 2, 3], [3, 2, 1], "time does not grow with size"),
    ],
)
def test_what_cannot_be_fitted_is_said(sizes, seconds, said):
    with pytest.raises(ValueError, match=said):
        fit(sizes, seconds)


def test_sizes_and_times_in_words():
    assert [words_of_size(1024 * 4**power) for power in (0, 4, 5, 8)] == ["1 KB", "256 KB", "1 MB", "64 MB"]
    assert str(AlphaBeta(0.00368, 6.5e8, 0.18)) == "3.68 ms + size / 0.65 GB/s, within 18%"


def test_picture_shows_points_line_and_half_size():
    line = AlphaBeta(1e-3, 1e9, 0.07)
    seconds = [1.1 * line.seconds(size) for size in SIZES]
    picture = latency.picture(SIZES, seconds, line, "all-reduce", held_out=(6_000_000, 0.02))
    (axes,) = picture.axes
    alpha, bandwidth, fitted, measured, held_out, half = axes.lines
    assert set(alpha.get_ydata()) == {1.0}
    curve = fitted.get_xdata()
    assert list(fitted.get_ydata()) == pytest.approx([1 + size / 1e6 for size in curve])
    assert list(bandwidth.get_ydata()) == pytest.approx([size / 1e6 for size in curve])
    assert list(measured.get_xdata()) == SIZES and list(measured.get_ydata()) == pytest.approx(
        [1e3 * t for t in seconds]
    )
    assert to_hex(measured.get_color()) == RANKS[0]
    assert (list(held_out.get_xdata()), list(held_out.get_ydata())) == ([6_000_000], [20.0])
    assert set(half.get_xdata()) == {1e6}
    assert axes.texts[0].get_text().split() == "half the bandwidth at 977 KB".split()
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert axes.get_ylabel() == "milliseconds" and axes.get_xlabel() == "size of the tensor on each rank"
    assert "within 7%" in axes.get_title(loc="left") and "977 KB" in picture.alt


def test_nothing_to_draw_is_said():
    with pytest.raises(ValueError, match="no 'time' records to draw"):
        latency.picture([], [], AlphaBeta(1, 1, 0))
