"""Reports on a fitted model: records in; text, JSON, HTML and figures out."""

from pullback.reports.evaluation import Evaluation, Training, evaluate
from pullback.reports.figures import Profile
from pullback.reports.metrics import Direction, Metric, Metrics, measure
from pullback.reports.page import render_page, write_page
from pullback.reports.text import comparison_table, metrics_table
from pullback.reports.words import comparison, summary

__all__ = [
    "Direction",
    "Evaluation",
    "Metric",
    "Metrics",
    "Profile",
    "Training",
    "comparison",
    "comparison_table",
    "evaluate",
    "measure",
    "metrics_table",
    "render_page",
    "summary",
    "write_page",
]
