"""Teachers: what their advice to a frozen student is worth, as pure functions and data: no Ray, no engine, no I/O."""
