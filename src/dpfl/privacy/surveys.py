"""What clients can be asked beside their updates."""

from __future__ import annotations

from typing import TypeAlias

from dpfl.privacy.columns import ColumnSurvey
from dpfl.privacy.histogram import Survey
from dpfl.privacy.mean import MeanSurvey
from dpfl.privacy.metric import MetricSurvey

AnySurvey: TypeAlias = Survey | MeanSurvey | ColumnSurvey | MetricSurvey
