"""The base of all errors that are meant for people."""


class DistlabError(Exception):
    """Something that a person can mend; its text is the whole message.

    In a notebook it shows as that text alone, since frames of this package would bury it. An error
    that is also one of Python's names both: `class CourseError(DistlabError, ValueError)`.
    """

    def __str__(self) -> str:
        # OSError would put its number in front of the sentence.
        return getattr(self, "strerror", None) or super().__str__()

    def _render_traceback_(self) -> list[str]:
        # IPython asks the error itself what to show, under this name.
        return [str(self)]


class SettingError(DistlabError, ValueError):
    """An option, an argument or an environment variable asks for what cannot be; says what can."""
