"""What the KIP and its background say, claim by claim, with the command that checks each and what came of it."""
