"""What is captured: table states, schemas, conditions, and the rounds over the catalog."""
