"""What agents are asked and paid for: one job a file."""

from lit_cory.tasks.base import Task
from lit_cory.tasks.sentiment import SentimentTask

__all__ = ["SentimentTask", "Task"]
