"""Reports: one ReportView per comparison, drawn as text, markdown, JSON, JUnit XML or one HTML page."""
