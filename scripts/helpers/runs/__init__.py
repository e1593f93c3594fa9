"""Job runs off Glue: their records and states in the table, their queue, and the process that carries one out."""
