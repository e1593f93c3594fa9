"""The command `watermarks`, which shows, explains and repairs the watermarks of jobs."""
