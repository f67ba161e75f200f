/* A figure's layout in the colours of a page. */
(() => {
  "use strict";
  const table = (value) => value && typeof value === "object" && !Array.isArray(value);
  const merge = (below, above) => {
    const out = { ...below };
    for (const [key, value] of Object.entries(above || {})) out[key] = table(value) ? merge(out[key] || {}, value) : value;
    return out;
  };

  window.kvThemed = (layout, theme) => {
    const out = merge(structuredClone(layout), { font: theme.font, legend: theme.legend, hoverlabel: theme.hoverlabel });
    const axes = new Set(["xaxis", "yaxis", ...Object.keys(out).filter((k) => /^[xy]axis\d*$/.test(k))]);
    for (const axis of axes) {
      const own = merge({}, theme[axis[0] + "axis"]);
      out[axis] = merge(merge(own, out[axis]), { tickfont: own.tickfont, gridcolor: own.gridcolor });
    }
    return out;
  };
})();
