"""The page's style sheet: one accent colour per verdict, a palette that colour-blind readers can tell apart."""

# Parts: Okabe & Ito (2008), darkened or lightened for contrast with the page; the last two are greys.
_PARTS_LIGHT = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8b8f98", "#d5d8de")
_PARTS_DARK = ("#3d9bd8", "#f0b432", "#2fbf92", "#dd94bb", "#8fd0f5", "#7c818c", "#3d424c")
_ACCENT_LIGHT = {
    "fault": "#c8401a",
    "demand": "#1c62b9",
    "none": "#0f766e",
    "inconclusive": "#6b4fa0",
}
_ACCENT_DARK = {
    "fault": "#ff7d52",
    "demand": "#6fb1ff",
    "none": "#3ec9b6",
    "inconclusive": "#b79cf0",
}

_LIGHT = """
  --page: #fbfbfa; --card: #ffffff; --ink: #1a1d23; --soft: #5b616e; --hair: #e4e6ea;
  --track: #eceef1; --band: #e3e7ec; --forecast: #8b93a1; --less: #aab0bb;"""
_DARK = """
  --page: #14161a; --card: #1b1e24; --ink: #e8eaee; --soft: #9ba2af; --hair: #2b2f37;
  --track: #2a2e36; --band: #2c323c; --forecast: #7d8697; --less: #59606d;"""

_RULES = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; color-scheme: light dark; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Inter", "Helvetica Neue", sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere;
}
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1.5rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.25; font-weight: 650; letter-spacing: -.015em; margin: .5rem 0 .25rem;
  text-wrap: balance; }
h2 { font-size: 1.0625rem; line-height: 1.3; font-weight: 650; letter-spacing: -.005em; margin: 0; }
h3 { font-size: 1rem; font-weight: 600; margin: 0; line-height: 1.4; }
p { margin: 0; }
code { font: .8125em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
section { margin-top: 2.25rem; }
section > header { display: flex; flex-wrap: wrap; gap: .125rem 1rem; align-items: baseline;
  justify-content: space-between; border-bottom: 1px solid var(--hair); padding-bottom: .5rem; }
.soft, section > header p { color: var(--soft); font-size: .8125rem; }
.none { color: var(--soft); padding: .75rem 0 0; }

.top { display: flex; justify-content: space-between; gap: 1rem; color: var(--soft); font-size: .8125rem; }
.top b { color: var(--ink); font-weight: 650; letter-spacing: -.01em; }
.lead { margin-top: 1.25rem; }
.badge { display: inline-block; color: var(--accent); border: 1px solid currentColor; border-radius: 999px;
  font-size: .75rem; font-weight: 650; line-height: 1; padding: .3125rem .625rem; }
.meaning { color: var(--soft); font-size: 1rem; max-width: 44rem; }
.figures { display: grid; grid-template-columns: repeat(4, auto); justify-content: space-between; gap: 1rem 2rem;
  margin: 1.25rem 0 0; }
.figures div { min-width: 0; }
dt { color: var(--soft); font-size: .8125rem; }
dd { margin: 0; }
.figures dd { font-size: 1.375rem; line-height: 1.3; font-weight: 600; letter-spacing: -.015em; }
.figures dd.changed { color: var(--accent); }
.figures small { display: block; color: var(--soft); font-size: .8125rem; font-weight: 400; letter-spacing: 0; }
figure { margin: 1.5rem 0 0; }
figcaption { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; color: var(--soft); font-size: .8125rem;
  margin-top: .375rem; }
figcaption span, .legend li { display: inline-flex; align-items: center; gap: .4375rem; }

svg { display: block; overflow: visible; }
svg text { font: 11.5px system-ui, -apple-system, "Segoe UI", Roboto, "Inter", sans-serif; fill: var(--soft);
  paint-order: stroke; stroke: var(--page); stroke-width: 3px; stroke-linejoin: round; }
.grid { stroke: var(--hair); } .base { stroke: var(--less); }
.band { fill: var(--band); }
.forecast, .observed { fill: none; vector-effect: non-scaling-stroke; }
.forecast { stroke: var(--forecast); stroke-width: 1.25; stroke-dasharray: 3 4; }
.observed { stroke: var(--ink); stroke-width: 1.75; stroke-linejoin: round; }
.since { fill: var(--accent); opacity: .07; }
.onset { stroke: var(--accent); stroke-width: 1; }
svg text.onset-label { fill: var(--accent); font-weight: 600; font-size: 12px; }
.out { fill: var(--accent); stroke: var(--page); stroke-width: 1.5; }
.end { text-anchor: end; }
.track { fill: var(--track); } .share { fill: var(--accent); } .less { fill: var(--less); }
.whisker { stroke: var(--ink); stroke-width: 1.25; }
.part { stroke: var(--page); stroke-width: 1; }
@parts

.cause { display: grid; grid-template-columns: 2rem 1fr; padding: 1.25rem 0 1.375rem;
  border-bottom: 1px solid var(--hair); }
.rank { color: var(--soft); font-size: 1rem; line-height: 1.9375rem; font-weight: 600; }
.cause > div { min-width: 0; }
.title { display: flex; justify-content: space-between; gap: 0 1.5rem; align-items: baseline; }
.title h3 { min-width: 0; } .title p { flex: none; white-space: nowrap; color: var(--soft); }
.title strong { font-size: 1.25rem; font-weight: 650; color: var(--ink); letter-spacing: -.01em; }
.cause:first-of-type .title strong { color: var(--accent); }
.tag { color: var(--soft); border: 1px solid var(--hair); border-radius: 4px; font-size: .75rem; font-weight: 500;
  padding: .0625rem .375rem; margin-left: .5rem; white-space: nowrap; }
.target { color: var(--soft); }
.cause .bar { margin: .5rem 0 .75rem; }

table { width: 100%; border-collapse: collapse; font-size: .875rem; }
th { text-align: left; font-weight: 500; color: var(--soft); font-size: .8125rem; }
thead th { padding: .5rem 1rem .375rem 0; vertical-align: bottom; }
td { padding: .375rem 1rem .375rem 0; vertical-align: top; }
td:last-child, th:last-child { padding-right: 0; }
tbody tr + tr td { border-top: 1px solid var(--hair); }
.num { text-align: right; white-space: nowrap; } .fixed { white-space: nowrap; }
td.wide { width: 40%; padding-top: .5rem; }
.facts td { padding-top: .3125rem; padding-bottom: .3125rem; }
.facts tbody tr + tr td { border-top: 0; }
.facts td.num { width: 6.5rem; }
.facts .group th { padding: .625rem 1rem .125rem 0; } .facts .group th:first-child { font-weight: 600; color: var(--ink); }
.facts .group th:last-child { padding-right: 0; }
.facts td:first-child { padding-left: .875rem; border-left: 2px solid var(--hair); }
.facts .for td:first-child { border-left-color: var(--accent); }
.query { color: var(--soft); display: block; }
.query code + code { margin-left: .75rem; }
.unexplained { display: grid; grid-template-columns: 2rem 1fr; padding-top: 1rem; color: var(--soft); }
.unexplained p { display: flex; justify-content: space-between; }
.unexplained .share { fill: var(--less); }
.missing-data { margin-top: 1.25rem; padding-left: 2rem; }
.missing-data h3 { font-size: .875rem; }
ul, ol { margin: .25rem 0 0; padding-left: 1.125rem; }
.missing-data li { color: var(--soft); font-size: .875rem; }
.service { min-width: 7rem; } .trace { min-width: 17rem; }
.settle { margin-top: .375rem; } .settle a { color: var(--accent); }
.stance { font-weight: 600; color: var(--accent); }
.legend { list-style: none; padding: 0; margin: .75rem 0 .25rem; display: flex; flex-wrap: wrap;
  gap: .25rem 1.25rem; color: var(--soft); font-size: .8125rem; }
.steps { list-style: none; padding: 0; margin: .5rem 0 0; counter-reset: step; }
.steps li { counter-increment: step; display: grid; grid-template-columns: 2rem 1fr; padding: .375rem 0; }
.steps li::before { content: counter(step); color: var(--accent); font-weight: 600; }
.steps .soft { white-space: nowrap; }
.decided { color: var(--soft); font-size: .8125rem; }
.decided table { font-size: .75rem; } .decided td, .decided thead th { padding-top: .1875rem; padding-bottom: .1875rem; }
.decided thead th { font-size: .75rem; } .decided tbody tr + tr td { border-top: 0; }
.decided tr.out td { color: var(--ink); } .decided tr.out td.sigma { color: var(--accent); font-weight: 600; }
.scroll { overflow-x: auto; }
.decided dl { display: grid; grid-template-columns: max-content 1fr; gap: .125rem 1.5rem; margin: 1rem 0 0; }
.decided dt { font-size: .75rem; } .decided dd { font-size: .75rem; }
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }

@media (max-width: 40rem) {
  main { padding: 1.25rem 1rem 3rem; }
  h1 { font-size: 1.375rem; }
  .figures { grid-template-columns: 1fr 1fr; }
  .cause, .unexplained { grid-template-columns: 1.25rem 1fr; } .missing-data { padding-left: 0; }
  .stack thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .stack tr { display: flex; flex-wrap: wrap; gap: 0 1rem; padding: .375rem 0; }
  .stack tbody tr + tr { border-top: 1px solid var(--hair); }
  .stack td, .stack tbody tr + tr td { display: block; border-top: 0; padding: 0; text-align: left; }
  .stack .trace { min-width: 0; }
  .stack td:first-child, .stack td.wide { width: 100%; }
  .stack td[data-label]::before { content: attr(data-label) " "; color: var(--soft); }
  .facts.stack td.num { width: auto; }
  .facts.stack tr { padding: .25rem 0 .25rem .75rem; border-left: 2px solid var(--hair); }
  .facts.stack tr.for { border-left-color: var(--accent); }
  .facts.stack tr.group { padding-left: 0; border-left: 0; } .facts .group th.num { display: none; } .facts.stack tbody tr + tr { border-top: 0; }
  .facts td:first-child { padding-left: 0; border-left: 0; }
}
@media print {
  @page { margin: 14mm; }
  html { font-size: 12px; } body { font-size: 1rem; background: none; }
  main { max-width: none; padding: 0; }
  section { margin-top: 1.5rem; } section > header { break-after: avoid; }
  tr, .steps li, figure, section > header { break-inside: avoid; } .title, .target, .cause .bar, .facts .group, .legend { break-after: avoid; }
  svg, .badge { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""


def sheet(verdict: str) -> str:
    """Compose the style sheet with the accent of a verdict."""
    light = f":root {{{_LIGHT}\n  --accent: {_ACCENT_LIGHT[verdict]};{_palette(_PARTS_LIGHT)}\n}}"
    dark = f":root {{{_DARK}\n  --accent: {_ACCENT_DARK[verdict]};{_palette(_PARTS_DARK)}\n}}"
    # Print stays light whatever the screen prefers.
    scheme = f"@media screen and (prefers-color-scheme: dark) {{ {dark} }}"
    parts = "\n".join(f".part-{slot} {{ fill: var(--part-{slot}); }}" for slot in range(7))
    return f"{light}\n{scheme}\n{_RULES.replace('@parts', parts)}"


def _palette(colours: tuple[str, ...]) -> str:
    return "".join(f" --part-{slot}: {colour};" for slot, colour in enumerate(colours))
