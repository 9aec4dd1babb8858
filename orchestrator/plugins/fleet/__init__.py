"""Workers that look after several repositories, with a queue that they share."""
