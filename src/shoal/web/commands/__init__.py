"""Commands of the web page."""
