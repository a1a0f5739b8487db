"""A study: arms of the same training over several seeds, what came out, and the page that says so."""
