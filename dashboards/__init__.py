"""Dashboards built from code."""
