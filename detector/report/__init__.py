"""The report's renderers: one report, four forms (terminal, HTML, Markdown, canonical JSON).

`view.py` decides once what is said, in which order and in which words (`text.py`, `units.py`);
a renderer only lays it out. To add a renderer: one file that draws from `view.build(report)`.
"""
