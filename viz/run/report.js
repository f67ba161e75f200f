/* Draws a report's figures and follows the reader's wish for light or dark. */
(() => {
  "use strict";
  const { themes, figures } = JSON.parse(document.getElementById("kv-report-data").textContent);
  const wish = matchMedia("(prefers-color-scheme: dark)");
  const table = (value) => value && typeof value === "object" && !Array.isArray(value);
  const merge = (below, above) => {
    const out = { ...below };
    for (const [key, value] of Object.entries(above || {})) out[key] = table(value) ? merge(out[key] || {}, value) : value;
    return out;
  };
  const CONFIG = {
    responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
    modeBarButtonsToRemove: ["sendChartToCloud", "sendDataToCloud", "select2d", "lasso2d"],
  };

  function themed(layout) {
    const theme = document.body.classList.contains("dark") ? themes.dark : themes.light;
    const out = merge(layout, { font: theme.font, legend: theme.legend, hoverlabel: theme.hoverlabel });
    const axes = new Set(["xaxis", "yaxis", ...Object.keys(out).filter((k) => /^[xy]axis\d*$/.test(k))]);
    for (const axis of axes) {
      const own = theme[axis[0] + "axis"];
      out[axis] = merge(merge(own, out[axis]), { tickfont: own.tickfont, gridcolor: own.gridcolor });
    }
    return out;
  }

  function paint() {
    document.querySelectorAll(".kv-plot[data-view]").forEach((plot) => {
      const { data, layout } = figures[plot.dataset.view];
      window.Plotly.react(plot, data, themed(layout), CONFIG);
    });
  }

  function turn(dark) {
    document.body.classList.toggle("dark", dark);
    paint();
  }

  window.kvFigures = (more) => { Object.assign(figures, more); paint(); };
  document.getElementById("kv-report-theme").addEventListener("click", () => turn(!document.body.classList.contains("dark")));
  wish.addEventListener("change", (event) => turn(event.matches));
  turn(wish.matches);
})();
