"""What one process with several devices cuts, copies and adds up."""

from distlab.course import Lesson

LESSON = Lesson(
    file="01_data_parallel.ipynb",
    title="DataParallel",
    minutes=35,
    shortest=2,
    teaches="one process, several devices, and why it stops scaling",
    exercise="data_parallel",
)
