"""Programs are run by the tests, not collected as tests."""

collect_ignore = ["programs"]
