"""Job runs off Glue: states, queue, launchers, triggers, and the requests as Glue's model has them."""
