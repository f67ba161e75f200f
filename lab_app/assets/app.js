/* The page's own script: theme, pages, bench. */
(() => {
  "use strict";
  if (window.KVLab) return;
  const THEME = "kv-theme";
  const { loadPlotly, figures, raw } = window.KVFigures; // figures.js

  const dark = () => document.body.classList.contains("dark");

  function remembered() {
    try { return localStorage.getItem(THEME); } catch { return null; }
  }

  function applyTheme() {
    const wish = remembered();
    if (wish && (wish === "dark") !== dark()) document.body.classList.toggle("dark", wish === "dark");
  }

  function press(id) {
    const button = document.querySelector("#" + id);
    if (!button) return;
    if (begun) button.click();
    else held = button;
  }

  /* ---- the visit: its page is to be seen some moments before the server answers ---------------- */

  const AT_ONCE = 'a, textarea, select, summary, [data-kv="theme"], [data-kv="bench"]'; // need no server
  let begun = document.body !== null && document.body.dataset.kvVisit === "begun";
  let held = null; // the last control pressed before; it is pressed again when the visit has begun

  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target : null;
    if (begun || !event.isTrusted || !target || target.closest(AT_ONCE)) return;
    const early = target.closest("[data-stands]");
    held = early ? early.dataset.stands : target; // the early page goes away: remember what it stood for
    document.querySelectorAll(".kv-early [data-held]").forEach((old) => old.removeAttribute("data-held"));
    if (early) early.dataset.held = "";
    event.preventDefault();
    event.stopPropagation();
  }, true);

  function begin() {
    begun = true;
    if (window.kvEarlyLeave) window.kvEarlyLeave();
    document.body.dataset.kvVisit = "begun";
    showPage();
    const kept = typeof held === "string" ? document.querySelector(held) : held;
    held = null;
    if (kept && kept.isConnected) {
      if (kept.matches("textarea, input[type=text], [role=listbox]")) kept.focus();
      else kept.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
    }
    setTimeout(loadPlotly, 0);
    if (window.KVShare) window.KVShare.watch();
  }

  /* ---- pages: the address names one; the server mounts it when it is first opened ------------ */

  const opened = new Set();

  function openPage(key) {
    if (opened.has(key) || !begun) return;
    opened.add(key);
    press("kv-open-" + key);
  }

  function showPage() {
    const links = [...document.querySelectorAll(".kv-nav a")];
    if (!links.length) { setTimeout(showPage, 60); return; }
    const wish = links.find((a) => a.hash === location.hash) || links[0];
    const key = wish.dataset.page;
    if (document.body.dataset.kvPage && document.body.dataset.kvPage !== key) window.scrollTo({ top: 0 });
    document.body.dataset.kvPage = key;
    links.forEach((a) => (a === wish ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current")));
    wish.closest("#kv-nav")?.scrollTo(wish.offsetLeft - 60, 0); // in sight on a phone
    if (wish !== links[0]) openPage(key);
    window.dispatchEvent(new Event("resize"));
  }

  function pressRun() {
    const key = document.body.dataset.kvPage;
    press(key && key !== "pipeline" ? `kv-${key}-run` : "kv-run");
  }

  /* Switch attention on and run. A fold that was never open has nothing in it yet. */
  function recordAttention() {
    const box = document.querySelector("#kv-attention input");
    if (!box) {
      const fold = document.querySelector("#kv-part-decoding .label-wrap:not(.open)");
      if (fold) fold.click();
      setTimeout(recordAttention, 60);
      return;
    }
    if (!box.checked) box.click();
    pressRun();
  }

  window.addEventListener("hashchange", showPage);
  document.addEventListener("click", (event) => {
    // The framework's <base> would make "#judge" the page without its query: a reload that loses lesson and class room.
    const link = event.target instanceof Element ? event.target.closest('a[href^="#"]') : null;
    if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      location.hash = link.getAttribute("href");
    }
    const there = event.target instanceof Element && event.target.closest(".kv-to-pipeline");
    if (there) location.hash = "#pipeline";
    if (there && there.id === "kv-judge-closer") {
      // once the run is there: a tab that is opened before asks for the figures of the run before
      new MutationObserver((_, seen) => {
        seen.disconnect();
        setTimeout(() => press("kv-tab-errors-button"), 200);
        whenThere('#kv-tab-errors [data-of="blame"]', (one) => one.click(), 600);
      }).observe(document.querySelector("#kv-verdict"), { childList: true, subtree: true, characterData: true });
    }
  });

  const narrow = () => window.matchMedia("(max-width: 980px)").matches;

  function toggleBench(close) {
    const closed = document.body.classList.toggle("kv-bench-closed", close);
    document.querySelectorAll('[data-kv="bench"]').forEach((b) => b.setAttribute("aria-expanded", String(!closed)));
    window.dispatchEvent(new Event("resize"));
  }

  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target.closest("[data-kv], .kv-panes button") : null;
    if (narrow() && event.target instanceof Element && event.target.closest("#kv-run, .kv-run-button")) {
      toggleBench(true);
      window.scrollTo({ top: 0 });
    }
    if (!target) {
      const open = document.querySelector(".kv-model[open]");
      if (open && !(event.target instanceof Element && event.target.closest(".kv-model"))) open.removeAttribute("open");
      return;
    }
    const kind = target.dataset.kv;
    if (kind === "theme") {
      const next = dark() ? "light" : "dark";
      try { localStorage.setItem(THEME, next); } catch { /* a private window may refuse */ }
      document.body.classList.toggle("dark", next === "dark");
    } else if (kind === "bench") toggleBench();
    else if (kind === "run") pressRun();
    else if (kind === "attention") recordAttention();
    else if (kind === "set") setBoxes(JSON.parse(target.dataset.boxes), "run" in target.dataset);
    else if (kind === "play") { press("kv-tab-play-button"); whenThere("#kv-tab-play .kv-steps", playIt, 80); }
    else if (kind === "prompt") openPrompt(target.dataset.agent);
    else if (target.dataset.pane) showPane(target);
    else if (kind === "column") {
      if (target.dataset.act === "duplicate") toggleBench(false);
      const { act, label, column } = target.dataset;
      document.dispatchEvent(new CustomEvent("kv-column", { detail: { act, label, column: column && JSON.parse(column) } }));
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) pressRun();
    if (["Enter", " "].includes(event.key) && event.target.matches('[data-kv="prompt"]')) {
      event.preventDefault();
      openPrompt(event.target.dataset.agent);
    }
    if (event.key === "Escape") document.querySelectorAll(".kv-model[open]").forEach((d) => d.removeAttribute("open"));
  });

  /* As if typed, by the boxes' ids; the last has the focus, so that whoever pressed finds what was set. */
  function setBoxes(values, run) {
    for (const [id, value] of Object.entries(values)) {
      const box = document.getElementById(id);
      box[box.type === "checkbox" ? "checked" : "value"] = value;
      box.dispatchEvent(new Event(box.type === "checkbox" ? "change" : "input"));
      box.focus({ preventScroll: true });
    }
    if (run) pressRun();
  }

  /* A node of the graph: the agent's prompt is opened, in sight and ready to be typed in; "?" is the request. */
  function openPrompt(agent) {
    const cards = [...document.querySelectorAll("#kv-part-agents .kv-agent")];
    const card = cards.find((one) => !one.hidden && one.querySelector(".kv-step").textContent === agent);
    if (card) card.open = true;
    const box = card ? card.querySelector(".kv-template-box textarea") : document.querySelector("#kv-value-0 textarea");
    box.focus({ preventScroll: true });
    (card || box).scrollIntoView({ block: card ? "start" : "center" });
  }

  /* One part of a page's results at a time; what belongs to which is in the style sheet. */
  function showPane(tab) {
    tab.closest(".kv-stage").dataset.pane = tab.dataset.pane;
    for (const one of tab.parentElement.children) {
      one.setAttribute("aria-selected", String(one === tab));
      one.tabIndex = one === tab ? 0 : -1;
    }
  }

  document.addEventListener("keydown", (event) => {
    const tab = event.target instanceof Element ? event.target.closest(".kv-panes button, .kv-figure-list button") : null;
    if (!tab || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    const all = [...tab.parentElement.children], step = event.key === "ArrowRight" ? 1 : all.length - 1;
    const next = all[(all.indexOf(tab) + step) % all.length];
    next.focus();
    next.click();
  });

  function whenThere(place, act, tries) {
    const found = document.querySelector(place);
    if (found) act(found);
    else if (tries) setTimeout(() => whenThere(place, act, tries - 1), 50);
  }

  function playIt(group) {
    group.scrollIntoView();
    group.querySelector('[data-steps="play"]').click();
  }

  /* ---- lines that open: what a visitor opened or folded stays so when it is drawn again ---- */

  const lines = new WeakMap(); // by comparison or strip: its lines and whether they are to be open

  document.addEventListener("click", (event) => {
    const head = event.target instanceof Element ? event.target.closest(".kv-agent > summary, .kv-reading > summary") : null;
    const host = head && head.closest('[id$="comparison"], [id$="strip"]');
    if (!host) return;
    if (!lines.has(host)) {
      lines.set(host, new Map());
      new MutationObserver(() => host.querySelectorAll(".kv-agent, .kv-reading").forEach((line) => {
        const wish = lines.get(host).get(line.dataset.row);
        if (wish !== undefined) line.open = wish;
      })).observe(host, { childList: true, subtree: true });
    }
    lines.get(host).set(head.parentElement.dataset.row, !head.parentElement.open);
  });

  applyTheme();
  setTimeout(applyTheme, 300);
  // On a narrow window the results come first and the bench opens on request.
  if (narrow()) setTimeout(() => toggleBench(true), 0);
  showPage();
  setTimeout(loadPlotly, 8000);
  if (begun) loadPlotly();
  window.KVLab = { begin, figures, raw };
})();
