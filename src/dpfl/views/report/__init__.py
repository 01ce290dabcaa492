"""The report: one page of HTML on one run or on several."""
