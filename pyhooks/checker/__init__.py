"""Pure functions of a history: valid, invalid or unknown."""
