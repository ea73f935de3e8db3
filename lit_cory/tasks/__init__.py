"""What agents are asked and paid for: one job a file."""

from lit_cory.tasks.base import Task
from lit_cory.tasks.gsm8k import Gsm8kTask
from lit_cory.tasks.sentiment import SentimentTask

__all__ = ["Gsm8kTask", "SentimentTask", "Task"]
