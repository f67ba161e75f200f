/* Links, the address that follows the bench, and the tab's own memory of it: it outlives a reload and a server that
   went away, not the tab. */
(() => {
  "use strict";
  if (window.KVShare) return;
  const BENCH = "kv-bench";
  const LINK = /^#([cr]=[A-Za-z0-9_-]+)$/;
  const MOST = 900000; // characters; the server reads no more
  const address = () => (LINK.exec(location.hash) || ["", ""])[1];
  let touched = false, waiting = 0, watched = null, shown = null; // shown: the link that the address last stood for

  // Only what a person does is remembered, not what the page fills in by itself.
  for (const kind of ["input", "click", "keydown"]) {
    document.addEventListener(kind, (event) => {
      if (!event.isTrusted || !(event.target instanceof Element) || !event.target.closest("#kv-bench, [data-kv]")) return;
      touched = true;
      if (event.target.closest('#kv-run, [data-kv="run"]')) shown = null; // the result is the visitor's own from here on
      soon();
    }, true);
  }

  // The server says how it read the bench after every edit.
  function watch() {
    const place = document.querySelector("#kv-bench-kept");
    if (!place || place === watched) return;
    watched = place;
    new MutationObserver(() => { arrived(); soon(); }).observe(place, { attributes: true, childList: true, subtree: true });
    arrived();
    soon();
  }

  // The setup came by a link, and its run is soon done.
  function arrived() {
    const kept = document.querySelector(".kv-kept[data-run]");
    if (!kept) return;
    kept.removeAttribute("data-run");
    document.querySelector("#kv-run").click();
  }

  // What is copied out of the address bar is what is seen; other pages keep their own.
  function follow() {
    const kept = document.querySelector(".kv-kept");
    if (!kept || (location.hash && location.hash !== "#pipeline" && !address())) return;
    const { link } = kept.dataset;
    if (touched && link !== shown) {
      history.replaceState(history.state, "", location.pathname + location.search + (link ? "#" + link : ""));
    }
    shown = link;
  }

  function soon() {
    if (!waiting) waiting = setTimeout(write, 300);
  }

  // Texts are taken from their boxes as well: they may have been typed while the server was away.
  function typed() {
    const out = {};
    for (const box of document.querySelectorAll("#kv-bench textarea")) {
      const place = box.closest('[id^="kv-value-"], [id^="kv-template-"]');
      const found = place && /^kv-(value|template)-(\d+)$/.exec(place.id);
      if (found) out[found[1] + "_" + found[2]] = box.value;
    }
    return out;
  }

  function write() {
    clearTimeout(waiting);
    waiting = 0;
    const kept = document.querySelector(".kv-kept");
    follow();
    if (!touched || !kept) return;
    const run = document.querySelector("#kv-download");
    const scenario = document.querySelector("#kv-preset input");
    const text = JSON.stringify({
      address: address(), bench: JSON.parse(kept.dataset.bench), typed: typed(),
      scenario: scenario ? scenario.value : "", run: run ? run.getAttribute("href").split("/").pop() : "",
    });
    try {
      if (text.length <= MOST) sessionStorage.setItem(BENCH, text);
    } catch { /* a private window may refuse */ }
  }

  window.addEventListener("pagehide", write);
  // A link pasted over the address of an open page asks for another page.
  window.addEventListener("hashchange", () => {
    if (address() && address() !== shown) {
      touched = false; // what stands here is not what that link asks for
      try { sessionStorage.removeItem(BENCH); } catch { /* as above */ }
      location.reload();
    } else if (location.hash === "#pipeline") { shown = null; soon(); }
  });

  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest('[data-kv="copy"]') : null;
    if (!button) return;
    const link = button.parentElement.querySelector(".kv-shared-link");
    try {
      await navigator.clipboard.writeText(link.href);
      button.textContent = "Copied";
    } catch { // not allowed here: show it, selected, to be copied by hand
      link.textContent = link.href;
      getSelection().selectAllChildren(link);
    }
  });

  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.key.toLowerCase() !== "z") return;
    if (event.target instanceof Element && event.target.closest("input, textarea, [contenteditable]")) return; // its own undo
    const button = document.querySelector(event.shiftKey ? "#kv-redo" : "#kv-undo");
    if (button) { event.preventDefault(); button.click(); }
  });

  window.KVShare = { watch };
  if (document.body && document.body.dataset.kvVisit === "begun") watch();
})();
