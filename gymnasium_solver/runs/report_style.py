"""The style sheet of report.html: light and dark, narrow screens, print."""

STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1b1b1b; --quiet: #5c6370; --line: #d8dbe0;
  --grid: #eceef1; --soft: #f5f6f8; --good: #00714f; --bad: #a83f00; --alert: #b3005e; }
@media (prefers-color-scheme: dark) { :root { --back: #15171b; --text: #e6e8eb; --quiet: #9aa3b0;
  --line: #353a43; --grid: #262a31; --soft: #1d2026; --good: #35c796; --bad: #ff9a5c;
  --alert: #ff7ab8; } }
body { margin: 0; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 980px; margin: 0 auto; padding: 24px 16px 60px; }
h1 { font-size: 1.6rem; margin: 0 0 4px; } h2 { font-size: 1.15rem; margin: 34px 0 8px; }
h3 { font-size: 1rem; margin: 18px 0 6px; } p { margin: 6px 0; }
code, pre { font: 13px/1.5 ui-monospace, monospace; }
pre { background: var(--soft); padding: 10px 12px; overflow-x: auto; border-radius: 6px; }
.quiet { color: var(--quiet); }
.badge { font-size: .85rem; padding: 2px 10px; border-radius: 99px; border: 1px solid;
  vertical-align: middle; white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); } .plain { color: var(--quiet); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: 3px 18px 3px 0; text-align: left; border-bottom: 1px solid var(--grid);
  vertical-align: top; } th { color: var(--quiet); font-weight: 500; }
figure { margin: 8px 0; } figcaption { font-size: .85rem; color: var(--quiet); }
svg { width: 100%; height: auto; display: block; } video, figure img { max-width: 100%; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(280px, 1fr));
  gap: 8px 20px; }
.tick { font: 11px system-ui, sans-serif; fill: var(--quiet); } .panels .tick { font-size: 17px; }
.grid { stroke: var(--grid); } .axis { stroke: var(--line); }
.level { stroke: var(--quiet); stroke-dasharray: 6 5; stroke-width: 1.4; }
.alert line { stroke: var(--alert); stroke-dasharray: 2 4; } .alert circle { fill: var(--alert); }
.alert-box { border-left: 4px solid var(--alert); padding: 2px 0 2px 12px; margin: 10px 0; }
.key { margin-right: 14px; white-space: nowrap; } .key i { display: inline-block; width: 16px;
  height: 4px; margin-right: 6px; vertical-align: middle; }
.dot { display: inline-block; width: 10px; height: 10px; border-radius: 5px; margin-right: 8px; }
.bar { display: grid; grid-template-columns: 90px 1fr 50px; align-items: center; gap: 8px;
  max-width: 560px; font-size: .9rem; margin-top: 4px; }
.bar i { height: 10px; background: #0072b2; border-radius: 3px; } .bar b { font-weight: 500; }
"""
