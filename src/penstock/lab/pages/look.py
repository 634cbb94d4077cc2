"""How all pages look: one style sheet, for light and dark ground, wide screens and phones.

Colours are variables, so that text, tables, maps, heat maps and plots (whose script reads them) follow the reader's
choice of light or dark. What is wider than a phone scrolls in its own box, never the page.
"""

from __future__ import annotations

CSS = """
:root { color-scheme: light dark; --ground: #fbfbf9; --card: #fff; --ink: #1b2126; --faint: #5a646b; --line: #dcdcd5;
  --grid: #e9e9e4; --accent: #0067a3; --good: #00704c; --bad: #b23c06; --warn: #8a5a00; --heat: #0067a3;
  --cell: #eeeeea; --soft: #f1f1ed; --blue: #0072b2; --orange: #c98500; --green: #00885f; --red: #cc5500;
  --sky: #2f9bd6; --purple: #b8578b; --yellow: #968400; --grey: #7d7d7d; --shade: #0002; }
@media (prefers-color-scheme: dark) { :root { --ground: #12161a; --card: #191f24; --ink: #e6e8e5; --faint: #9fa9b0;
  --line: #343d44; --grid: #2a3238; --accent: #6cb8ef; --good: #46d3a1; --bad: #ff925c; --warn: #f0b84a;
  --heat: #5fb4f2; --cell: #232a30; --soft: #20272d; --blue: #4ba6e3; --orange: #f0ad2e; --green: #2fc194;
  --red: #f47a3c; --sky: #8fd0f7; --purple: #df93ba; --yellow: #f0e442; --grey: #9a9a9a; --shade: #000a; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1.25rem clamp(.875rem, 3vw, 2rem) 4rem; max-width: 74rem; background: var(--ground);
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: clamp(1.45rem, 4vw, 2rem); line-height: 1.2; margin: .75rem 0 .35rem; letter-spacing: -.01em;
  text-wrap: balance; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 3rem 0 .4rem; padding-top: 1.1rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.5rem 0 .4rem; }
h1, h2, h3, figcaption, dd, li, .heat span { overflow-wrap: anywhere; min-width: 0; }
p { margin: .4rem 0 .8rem; max-width: 46rem; overflow-wrap: break-word; }
a { color: var(--accent); text-underline-offset: .15em; }
.source, figcaption, footer, .note { color: var(--faint); font-size: .9rem; }
cite { font-style: italic; }
figure { margin: 1rem 0; padding: .9rem; background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  min-width: 0; }
figcaption { margin: 0 0 .6rem; color: var(--ink); font-weight: 600; font-size: .95rem; line-height: 1.4; }
figure .note { margin: .5rem 0 0; }
.plot { width: 100%; }
.plot svg { display: block; }
.plot text { font-family: system-ui, sans-serif; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem; }
.pair.three { grid-template-columns: minmax(0, 1fr); }
@media (min-width: 60rem) { .pair.three { grid-template-columns: repeat(3, minmax(0, 1fr)); } }
.pair figure { margin: 0; }
.group { margin: 1rem 0; }
.legend { display: flex; flex-wrap: wrap; gap: .15rem 1.1rem; margin: .4rem 0; padding: 0; list-style: none;
  font-size: .875rem; }
.legend li { display: flex; align-items: center; gap: .4rem; }
.legend i { width: 1.1rem; height: .28rem; border-radius: .14rem; flex: none; }
.legend i.dashed { background: none !important; height: 0; border-top: 2px dashed; border-radius: 0; }
.legend i.box { height: .8rem; width: .8rem; border-radius: .15rem; }
.scroll { overflow-x: auto; margin: .6rem 0 1rem; background:
  linear-gradient(to right, var(--ground), transparent) left / 2rem 100% no-repeat local,
  linear-gradient(to left, var(--ground), transparent) right / 2rem 100% no-repeat local,
  linear-gradient(to right, var(--shade), transparent) left / .6rem 100% no-repeat scroll,
  linear-gradient(to left, var(--shade), transparent) right / .6rem 100% no-repeat scroll; }
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: .925rem; line-height: 1.4; }
th { font-weight: 600; color: var(--faint); font-size: .82rem; white-space: nowrap; vertical-align: bottom; }
th, td { text-align: left; padding: .42rem 1rem .42rem 0; border-bottom: 1px solid var(--line); }
th:last-child, td:last-child { padding-right: .25rem; }
td { vertical-align: top; }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.name { white-space: nowrap; font-weight: 600; }
td.wide { min-width: 15rem; }
td code { display: block; width: fit-content; max-width: 100%; margin: 0 0 .2rem; }
tr.group th { border-bottom: 0; padding-bottom: 0; }
@media (max-width: 760px) { td code { white-space: nowrap; max-width: none; } }
tbody tr:hover { background: var(--soft); }
.holds { color: var(--good); font-weight: 600; } .fails { color: var(--bad); font-weight: 600; }
.warn { color: var(--warn); font-weight: 600; }
code { font: .86em/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; background: var(--soft);
  border-radius: .25rem; padding: .1rem .35rem; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .75rem; margin: 1.25rem 0;
  padding: 0; }
.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .7rem .9rem; }
@media (max-width: 520px) { .tiles { grid-template-columns: 1fr 1fr; }
  .tiles div:last-child:nth-child(odd) { grid-column: 1 / -1; } }
.tiles dt { color: var(--faint); font-size: .82rem; }
.tiles dd { margin: .1rem 0 0; font-size: 1.45rem; line-height: 1.2; font-weight: 650;
  font-variant-numeric: tabular-nums; }
.tiles dd small { display: block; font-size: .8rem; line-height: 1.35; font-weight: 400; color: var(--faint); }
""".strip()

MAP_CSS = """
.map { display: block; width: 100%; height: auto; }
.map .link { stroke: var(--faint); fill: none; stroke-linecap: round; opacity: .55; }
.map .link.lossy { stroke: var(--bad); opacity: .9; }
.map .broker { fill: var(--card); stroke: var(--faint); }
.map .bar { fill: var(--soft); }
.map text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.map text.name { font-weight: 650; font-size: 14px; }
.map text.client { font-weight: 600; }
.map text.filter { font: 11px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: var(--faint); }
.map .role { fill: var(--faint); font-weight: 400; }
.map .label { fill: var(--ground); stroke: var(--line); }
.map text.carried { font-size: 12px; text-anchor: middle; }
.map text.lost { font-size: 12px; text-anchor: middle; fill: var(--bad); font-weight: 650; }
.map.narrow { display: none; }
@media (max-width: 760px) { .map.wide { display: none; } .map.narrow { display: block; } }
""".strip()

HEAT_CSS = """
.heat { display: grid; grid-template-columns: fit-content(30%) minmax(0, 1fr) max-content; gap: 3px .6rem;
  font-size: .875rem; align-items: center; }
.heat .row, .heat .ticks { display: grid; grid-template-columns: repeat(var(--columns), minmax(0, 1fr)); gap: 1px; }
.heat .row i { height: 1.35rem; border-radius: 2px; }
.heat .row i, .legend .shade {
  background: color-mix(in srgb, var(--heat) var(--level, 0%), var(--cell)); }
.heat .row i.missed { box-shadow: inset 0 -.3rem var(--bad); }
.heat .ticks { font-size: .78rem; color: var(--faint); }
.heat .ticks span { white-space: nowrap; }
.heat .sum { text-align: right; font-variant-numeric: tabular-nums; color: var(--faint); }
.heat .head { color: var(--faint); font-size: .78rem; }
""".strip()

INDEX_CSS = """
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 1rem;
  margin: .75rem 0 0; padding: 0; list-style: none; }
.cards li { display: flex; flex-direction: column; gap: .35rem; padding: .9rem; background: var(--card);
  border: 1px solid var(--line); border-radius: .6rem; min-width: 0; }
.cards svg { display: block; width: 100%; height: 5.5rem; }
.cards h3 { margin: 0; font-size: 1rem; line-height: 1.3; }
.cards h3 a { color: inherit; text-decoration: none; }
.cards h3 a:hover { text-decoration: underline; }
.cards .source { font-size: .82rem; margin: 0; }
.cards dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .1rem .7rem; margin: .2rem 0 0;
  font-size: .875rem; overflow-wrap: anywhere; }
.cards dt { color: var(--faint); } .cards dd { margin: 0; font-variant-numeric: tabular-nums; }
.cards .verdict { margin: auto 0 0; padding-top: .35rem; font-size: .875rem; }
""".strip()
