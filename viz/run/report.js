/* Draws a report's figures and follows the reader's wish for light or dark. */
(() => {
  "use strict";
  const { themes, figures } = JSON.parse(document.getElementById("kv-report-data").textContent);
  const wish = matchMedia("(prefers-color-scheme: dark)");
  const CONFIG = {
    responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
    modeBarButtonsToRemove: ["sendChartToCloud", "sendDataToCloud", "select2d", "lasso2d"],
  };

  function paint() {
    const theme = document.body.classList.contains("dark") ? themes.dark : themes.light;
    document.querySelectorAll(".kv-plot[data-view]").forEach((plot) => {
      const { data, layout } = figures[plot.dataset.view];
      window.Plotly.react(plot, data, window.kvThemed(layout, theme), CONFIG);
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
