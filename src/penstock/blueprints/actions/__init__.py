"""The actions blueprint: automation with append-only logs."""
