"""What the writers of the formats share."""
