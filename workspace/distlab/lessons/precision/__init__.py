"""Half the bits and a better layout of images: what they save, cost and lose."""

from distlab.course import Lesson

LESSON = Lesson(
    file="05_mixed_precision_and_memory_format.ipynb",
    title="Mixed precision and memory format",
    minutes=60,
    shortest=8,
    teaches="fewer bits and a better layout, and when they pay",
    exercise="amp",
)
