"""Evidence for the claims of the KIP and its background: the command that checks each claim, its result and verdict."""
