# What the page is made of. Scripts are joined in this order into one module, so a file may use what
# those before it define; styles likewise, later rules win.
set(PANDO_REPORT_PAGE page.html)
set(PANDO_REPORT_STYLES page.css chart.css print.css)
set(PANDO_REPORT_SCRIPTS
  format.js
  dom.js
  table.js
  scale.js
  lane.js
  cursor.js
  chart.js
  axes.js
  lines.js
  bars.js
  histogram.js
  figures.js
  replay.js
  plan.js
  compare.js
  main.js
)
