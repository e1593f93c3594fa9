"""What lies behind a Spark session: its JVM where there is one, or Spark Connect, and what works with either.

May not know: rows, files, sinks or jobs, or why somebody asks. No other room reaches for the JVM, the SparkContext or
RDDs by itself: a session of Spark Connect has none of them.
"""
