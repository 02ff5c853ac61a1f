"""The web for tools: pages, downloads and a search engine, within limits."""
