"""Shared parts of HTML pages and plots: style, templates, and a browser that checks pages."""
