"""Documents of several tables: the state that they are made of, and the events."""
