"""Services that the system tests start on the nodes of a ducktape cluster."""
