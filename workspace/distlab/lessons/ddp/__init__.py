"""One process per device, and gradients that are averaged while backward still runs."""

from distlab.course import Lesson

LESSON = Lesson(
    file="03_distributed_data_parallel.ipynb",
    title="Distributed data parallel",
    minutes=75,
    shortest=2,
    teaches="one process per device, gradients averaged while backward runs",
    exercise="ddp",
)
