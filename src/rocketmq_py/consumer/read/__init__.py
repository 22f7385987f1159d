"""Reading topics without joining a group."""
