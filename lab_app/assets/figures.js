/* Figures, and HTML that is replaced as a whole. Views announce selections as "kv-select" (viz/base/view.js). */
(() => {
  "use strict";
  if (window.KVFigures) return;
  const THEMES = window.KVThemes || { light: {}, dark: {} };
  const drawn = new Set();

  const dark = () => document.body.classList.contains("dark");

  const CONFIG = {
    responsive: true, displaylogo: false, showSendToCloud: false, displayModeBar: "hover",
    modeBarButtonsToRemove: ["sendChartToCloud", "sendDataToCloud", "select2d", "lasso2d", "toImage", "autoScale2d"],
  };

  function save(name, content, type) {
    const link = document.createElement("a");
    const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
    link.href = url;
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 5000);
  }

  async function exportImage(plot, name, format) {
    const box = plot.getBoundingClientRect();
    const paper = getComputedStyle(document.body).getPropertyValue("--kv-surface").trim() || "#fff";
    const copy = { data: plot.data, layout: { ...plot.layout, paper_bgcolor: paper, width: box.width, height: box.height } };
    const url = await window.Plotly.toImage(copy, { format, scale: format === "png" ? 2 : 1, width: box.width, height: box.height });
    save(name + "." + format, await (await fetch(url)).blob());
  }

  function card(view) {
    const figure = document.createElement("figure");
    figure.className = "kv-card kv-figure";
    figure.dataset.view = view.key;
    const words = [["figcaption", ""], ["h3", "kv-card-title"], ["p", "kv-finding"], ["div", "kv-plot"], ["p", "kv-how"]];
    const made = Object.fromEntries(words.map(([tag, name]) => {
      const element = document.createElement(tag);
      if (name) element.className = name;
      return [name || "caption", element];
    }));
    const tools = document.createElement("div");
    tools.className = "kv-tools";
    for (const format of ["png", "svg", "csv"]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = format.toUpperCase();
      button.setAttribute("aria-label", "Save this figure as " + format.toUpperCase());
      button.addEventListener("click", () => {
        const now = figure.kvView;
        if (format === "csv") save(now.key + ".csv", now.csv, "text/csv");
        else exportImage(made["kv-plot"], now.key, format);
      });
      tools.appendChild(button);
    }
    made.caption.append(made["kv-card-title"], tools, made["kv-finding"], unfolding(figure));
    figure.append(made.caption, made["kv-plot"], made["kv-how"]);
    figure.kvParts = { ...made, tools };
    return figure;
  }

  function panel(view) {
    const section = document.createElement("section");
    section.className = "kv-card kv-panel";
    section.dataset.view = view.key;
    section.innerHTML = '<h3 class="kv-card-title"></h3><p class="kv-finding"></p><div></div>';
    section.firstChild.after(unfolding(section));
    return section;
  }

  /* On a phone, and where many figures stand below a verdict, a figure is its title and finding until it is opened. */
  const phone = window.matchMedia("(max-width: 620px)");

  function unfolding(card) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "kv-small-button kv-unfold";
    button.addEventListener("click", () => fold(card, !card.classList.contains("kv-shut"), true));
    card.kvUnfold = button;
    return button;
  }

  function fold(card, shut, chosen) {
    if (chosen) card.kvChosen = true;
    card.classList.toggle("kv-shut", shut);
    card.kvUnfold.textContent = shut ? "Show" : "Fold";
    card.kvUnfold.setAttribute("aria-expanded", String(!shut));
    card.kvUnfold.setAttribute("aria-label", card.kvUnfold.textContent + ": " + card.kvView.title);
    if (chosen && !shut && card.kvDraw) card.kvDraw();
  }

  /* On Compare one figure of a pane is shown at a time: above it a list of all, and of the parts that measure (what
     they are made of, see app.css). What was chosen stays so when the figures are drawn again. */
  function listed(element, host, cards) {
    const asides = (host.dataset.asides || "").split("|").filter(Boolean).map((said) => {
      const [key, title] = said.split(":");
      return { key, title, box: {} };
    });
    const figures = cards.map((box) => ({ key: box.kvView.key, title: box.kvView.title, box }));
    const all = cards.length ? [...figures, ...asides] : [];
    if (!host.kvList) host.before(host.kvList = document.createElement("div"));
    const list = host.kvList;
    Object.assign(list, { className: "kv-figure-list", hidden: all.length < 2 });
    list.setAttribute("role", "tablist");
    list.setAttribute("aria-label", "Figures of this pane");
    while (list.children.length > all.length) list.lastChild.remove();
    while (list.children.length < all.length) list.append(document.createElement("button"));
    const choose = (one) => {
      all.forEach(({ box, key }, i) => {
        const tab = list.children[i];
        box.hidden = key !== one.key;
        tab.setAttribute("aria-selected", String(!box.hidden));
        tab.tabIndex = box.hidden ? -1 : 0;
      });
      if (host.dataset.asides) host.closest(".tabitem").dataset.shows = one.key;
      if (one.box.kvDraw) one.box.kvDraw();
    };
    all.forEach((one, i) => {
      const tab = list.children[i];
      Object.assign(tab, { type: "button", textContent: one.title, title: one.title, onclick: () => { host.kvChosen = one.key; choose(one); } });
      tab.setAttribute("role", "tab");
      tab.dataset.of = one.key;
    });
    if (all.length) choose(all.find((one) => one.key === host.kvChosen) || all[0]);
  }

  /* A legend whose lines change with the width is put where the old margin was; a second pass mends that. */
  async function fit(plot) {
    const before = plot.offsetWidth;
    if (plot.kvWidth === before) return;
    plot.kvWidth = before;
    await window.Plotly.Plots.resize(plot);
    if (plot.querySelector(".legend") && plot.offsetWidth === before) await window.Plotly.redraw(plot);
  }

  /* The strip itself may be in a pane that is not shown. */
  const chosenInStrip = () => {
    const key = document.body.dataset.kvPage || "pipeline";
    return document.querySelector((key === "pipeline" ? "#kv-strip" : `#kv-page-${key}`) + " .kv-selected[data-start]");
  };

  let framed = "";

  /* Paint again if another token is chosen. */
  function reframe() {
    const found = chosenInStrip();
    const now = found ? found.dataset.start + "-" + found.dataset.end : "";
    if (now === framed) return;
    framed = now;
    drawn.forEach((repaint) => repaint());
  }

  /* The token or segment that is chosen in the strip, framed in every figure that runs over the prompt's tokens. */
  function frameChosen(layout) {
    const found = chosenInStrip();
    const overTokens = (axis) => axis && axis.title && axis.title.text === "token of the prompt";
    const axes = Object.keys(layout).filter((name) => /^xaxis\d*$/.test(name));
    if (!found || !axes.some((name) => overTokens(layout[name]))) return;
    const look = { type: "rect", y0: 0, y1: 1, line: { color: "#dd7a28", width: 2 }, fillcolor: "rgba(0,0,0,0)" };
    const place = { x0: Number(found.dataset.start) - 0.5, x1: Number(found.dataset.end) - 0.5 };
    const frames = axes.map((name) => name.slice(5)).map((n) => ({ ...look, ...place, xref: "x" + n, yref: "y" + n + " domain" }));
    layout.shapes = [...(layout.shapes || []), ...frames];
  }

  /* The beginning and the end of a name: names that begin alike stay apart. */
  const cut = (name, most) => (name.length <= most ? name : name.slice(0, most - 4) + "…" + name.slice(-3));

  /* A figure in a narrow column: names on its axes cut, long titles on two lines, more height below a long legend, and of the
     names above a map's segments as much as has room. */
  function narrowed(data, layout, width) {
    const short = (names, most) => {
      const made = names.map((name) => cut(String(name), most));
      return new Set(made).size === new Set(names).size ? made : names;
    };
    for (const trace of data) for (const side of ["x", "y"]) {
      const values = trace[side];
      if (!Array.isArray(values) || !values.length) continue;
      const axis = layout[side + "axis" + (trace[side + "axis"] || side).slice(1)] ||= {};
      if (Array.isArray(values[0])) trace[side] = values.map((names, level) => short(names, level ? 15 : 9));
      else if (values.every((value) => typeof value === "string") && !axis.ticktext) {
        axis.kvNames = [...new Set([...(axis.kvNames || []), ...values])];
      }
    }
    const axes = Object.keys(layout).filter((name) => /^[xy]axis\d*$/.test(name));
    for (const axis of [...axes.map((name) => layout[name]), layout.template.layout.xaxis, layout.template.layout.yaxis]) {
      if (axis.kvNames) Object.assign(axis, { tickmode: "array", tickvals: axis.kvNames, ticktext: axis.kvNames });
      delete axis.kvNames;
      if (Array.isArray(axis.ticktext)) axis.ticktext = short(axis.ticktext, 15);
      const said = axis.title && axis.title.text, middle = said && said.indexOf(" ", said.length / 2 - 3);
      if (said && said.length > 24 && middle > 0) axis.title = { ...axis.title, text: said.slice(0, middle) + "<br>" + said.slice(middle + 1) };
    }
    const named = data.filter((trace) => trace.name && trace.showlegend !== false).length;
    if (layout.showlegend !== false && named > 3) layout.height += 16 * (named - 3);
    layout.margin = { ...layout.margin, l: Math.min(layout.margin.l, 44), r: Math.min(layout.margin.r, 64) };
    const [from, to] = (layout.xaxis && layout.xaxis.range) || [0, 0];
    const above = (layout.annotations || []).filter((a) => a.yref === "paper" && a.y === 1 && a.xref !== "paper" && typeof a.x === "number");
    if (to > from) above.sort((a, b) => a.x - b.x).forEach((mark, i) => {
      const gaps = [above[i - 1], above[i + 1]].filter(Boolean).map((next) => Math.abs(next.x - mark.x));
      const letters = Math.floor(((Math.min(to - from, ...gaps) / (to - from)) * (width - 130)) / 6.5);
      mark.text = letters < 4 ? "" : mark.text.length <= letters ? mark.text : mark.text.slice(0, letters - 1) + "…";
    });
  }

  function paint(figure) {
    const view = figure.kvView, plot = figure.kvParts["kv-plot"];
    if (!view.figure || !window.Plotly || figure.hidden || figure.classList.contains("kv-shut")) return;
    const { data, layout } = JSON.parse(view.figure);
    const shown = window.kvThemed(layout, dark() ? THEMES.dark : THEMES.light);
    shown.uirevision = view.key;
    shown.autosize = true;
    if (plot.offsetWidth && plot.offsetWidth < 480) {
      narrowed(data, shown, plot.offsetWidth);
      plot.style.minHeight = shown.height + "px";
    }
    frameChosen(shown);
    window.Plotly.react(plot, data, shown, CONFIG);
  }

  /* Drawing may take a second; what it stands beside is painted first. */
  function afterFrame(act) {
    if (document.hidden) setTimeout(act, 0);
    else requestAnimationFrame(() => setTimeout(act, 0));
  }

  function figures(element, props, trigger, watch) {
    const host = element.querySelector(".kv-figures");
    const redraw = () => {
      const views = (props.value && props.value.views) || [];
      const old = new Map([...host.children].map((c) => [c.dataset.view, c]));
      const next = views.map((view) => {
        const kind = view.html === undefined ? "kv-figure" : "kv-panel";
        let found = old.get(view.key);
        if (!found || !found.classList.contains(kind)) found = kind === "kv-panel" ? panel(view) : card(view);
        old.delete(view.key);
        found.kvView = view;
        return found;
      });
      for (const [, gone] of old) {
        const plot = gone.querySelector(".kv-plot");
        if (plot && window.Plotly) window.Plotly.purge(plot);
      }
      const listing = element.closest("#kv-tabs");
      const folds = next.length > 1 && !listing && !element.closest("#kv-page-tour") && (phone.matches || element.classList.contains("kv-folds"));
      host.classList.toggle("kv-folding", folds);
      for (const found of next) {
        found.kvDraw = found.kvParts && (() => draw(found));
        if (!found.kvChosen) fold(found, folds);
      }
      host.replaceChildren(...next);
      if (listing) listed(element, host, next);
      if (props.value && props.value.waits) trigger("change");
      for (const found of next) {
        const view = found.kvView;
        found.querySelector(".kv-card-title").textContent = view.title;
        if (view.html !== undefined) {
          found.querySelector(".kv-finding").textContent = view.finding;
          found.lastElementChild.innerHTML = view.html;
          continue;
        }
        const parts = found.kvParts;
        parts["kv-finding"].textContent = view.finding;
        parts["kv-how"].textContent = view.how;
        parts["kv-how"].hidden = !view.how;
        parts["kv-plot"].hidden = view.empty;
        parts["kv-plot"].style.minHeight = view.empty ? "0" : view.height + "px";
        parts.tools.hidden = view.empty;
      }
      // One a frame: the first is on the page while the others are drawn.
      const mine = host.kvDrawing = {}, left = next.filter((c) => c.kvParts);
      const step = () => {
        if (host.kvDrawing !== mine || !left.length) return;
        const found = left.shift();
        if (found.isConnected) draw(found);
        afterFrame(step);
      };
      afterFrame(step);
    };
    const draw = (found) => {
      paint(found);
      const plot = found.kvParts["kv-plot"];
      if (plot.kvBound || !plot.on) return;
      plot.kvBound = true;
      plot.on("plotly_click", (event) => {
        const point = event.points && event.points[0];
        if (!point) return;
        const custom = point.customdata === undefined ? null : point.customdata;
        trigger("select", { view: found.kvView.key, x: point.x, y: point.y, trace: point.data.name || "", custom });
      });
    };
    const repaint = () => { if (element.isConnected) [...host.children].forEach((c) => c.kvParts && paint(c)); };
    drawn.add(repaint);
    new ResizeObserver(() => [...host.children].forEach((c) => {
      const plot = c.querySelector(".kv-plot");
      if (plot && plot.kvBound && plot.offsetWidth) fit(plot);
    })).observe(host);
    watch("value", redraw);
    whenPlotly(redraw);
  }

  /* Megabytes of script that no word on the page waits for: after the visit has begun, or if it never does. */
  let asked = false;

  function loadPlotly() {
    if (asked) return;
    asked = true;
    const script = document.createElement("script");
    script.src = "lab/plotly.js";
    document.head.append(script);
  }

  function whenPlotly(then) {
    if (window.Plotly) then();
    else setTimeout(() => whenPlotly(then), 60);
  }

  /* ---- HTML that is replaced as a whole and reports selections ------------------------------ */

  function raw(element, props, trigger, watch) {
    const host = element.querySelector(".kv-raw");
    const redraw = () => {
      host.innerHTML = (props.value && props.value.html) || "";
      reframe();
    };
    watch("value", redraw);
    redraw();
    host.addEventListener("kv-select", (event) => {
      reframe();
      trigger("select", event.detail);
    });
    host.addEventListener("click", (event) => {
      const chosen = event.target instanceof Element ? event.target.closest("[data-pick]") : null;
      if (chosen) trigger("select", { token: Number(chosen.dataset.pick) });
    });
  }

  new MutationObserver(() => drawn.forEach((repaint) => repaint()))
    .observe(document.body || document.documentElement, { attributes: true, attributeFilter: ["class"] });
  window.KVFigures = { loadPlotly, figures, raw };
})();
