"""Access to the internals of a Spark session: its JVM if it has one, or Spark Connect, and code that works with both.

Must not depend on rows, files, sinks or jobs, or act differently by caller. No other package uses the JVM, the
SparkContext or RDDs directly, because a session of Spark Connect has none of them.
"""
