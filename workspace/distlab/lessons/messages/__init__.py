"""Ranks that send each other messages, one by one and all together."""

from distlab.course import Lesson

LESSON = Lesson(
    file="02_message_passing.ipynb",
    title="Message passing",
    minutes=90,
    shortest=4,
    teaches="ranks, send and receive, collectives, a ring",
    exercise="ring",
    needs=("ipyparallel", "mpi4py"),
)
