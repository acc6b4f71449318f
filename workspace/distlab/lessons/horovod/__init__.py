"""The same training with another library."""

from distlab import horovod_wheel
from distlab.course import Lesson

LESSON = Lesson(
    file="04_horovod.ipynb",
    title="Horovod",
    minutes=45,
    shortest=8,
    teaches="the same training with another library",
    exercise="horovod_ddp",
    exercise_launcher="horovodrun",
    needs=("horovod",),
    builds=horovod_wheel.current,
)
