"""Vendors, one file each; the table in `wiring` lists them."""
