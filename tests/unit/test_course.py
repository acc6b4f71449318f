"""The list of lessons and the courses made of it."""

import re

import pytest
from distlab import course


@pytest.mark.parametrize(("hours", "least_share"), [(2, 0.8), (4, 0.8), (8, 0.8)])
def test_a_course_fits_its_hours_and_fills_them(hours, least_share):
    minutes = course.Syllabus().minutes(hours)
    assert least_share * 60 * hours <= minutes <= 60 * hours


def test_a_longer_course_has_all_of_a_shorter_one_in_order():
    two, four, eight = (course.syllabus(hours) for hours in course.COURSES)
    assert set(two) < set(four) < set(eight) == {lesson for lesson in course.lessons() if lesson.shortest}
    assert [lesson.file for lesson in four] == sorted(
        (lesson.file for lesson in four), key=lambda file: (file[0] != "S", file)
    )


def test_a_lesson_may_be_in_no_course(monkeypatch):
    more = course.Lesson("98_more.ipynb", "More", 600, None, "what nobody has to know")
    monkeypatch.setattr(course, "folders", lambda: {"more": more})
    assert [lesson.title for lesson in course.syllabus(8)] == ["Start here", "Challenge"]
    assert "More" in repr(course.Syllabus())


def test_a_course_that_there_is_not():
    with pytest.raises(course.CourseError, match="no course of 3 hours: choose 2, 4, 8"):
        course.syllabus(3)


@pytest.mark.parametrize(
    "lesson", [lesson for lesson in course.lessons() if lesson.here], ids=lambda lesson: lesson.title
)
def test_a_notebook_says_the_minutes_of_the_list(lesson):
    told = re.search(r"It takes(?:\*\*)? (\d+) minutes", lesson.path.read_text())
    assert told and int(told[1]) == lesson.minutes


def test_only_lessons_that_are_here_are_linked():
    markup = course.Syllabus()._repr_html_()
    for lesson in course.lessons():
        assert (f'href="{lesson.file}"' in markup) == lesson.path.exists()
