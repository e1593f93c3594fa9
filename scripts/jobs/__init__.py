"""Runnable jobs: the only place for argv, the environment and Spark sessions."""
