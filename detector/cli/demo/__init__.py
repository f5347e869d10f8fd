"""`tailcause demo`: real load, a real fault, and a verdict that is checked against the truth."""
