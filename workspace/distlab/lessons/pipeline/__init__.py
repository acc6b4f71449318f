"""A model cut into stages on several devices, and the schedules by which they work."""

from distlab.course import Lesson

LESSON = Lesson(
    file="06_pipeline_parallelism.ipynb",
    title="Pipeline parallelism",
    minutes=70,
    shortest=8,
    teaches="a model over several devices, its schedules",
    exercise="pipeline",
)
