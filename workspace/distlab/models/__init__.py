"""The networks of the lessons: image classifiers by name, and a language model."""

from distlab.models.images import BUILDERS, DEFAULT, build, names
from distlab.models.language import VOCABULARY, LanguageModel, generate
from distlab.models.wrapped import unwrap

__all__ = ["BUILDERS", "DEFAULT", "VOCABULARY", "LanguageModel", "build", "generate", "names", "unwrap"]
