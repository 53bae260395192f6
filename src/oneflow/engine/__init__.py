"""The machinery behind the API, in data-flow order: see ARCHITECTURE.md."""
