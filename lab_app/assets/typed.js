/* What a person changed in the forms of the pages beside Compare, kept by the tab: it outlives a reload and a server
   that went away. The server puts it back when the page is opened again (lab_app/ui/page.py). */
(() => {
  "use strict";
  if (window.KVTyped) return;
  window.KVTyped = true;
  const TYPED = "kv-typed";
  const MOST = 900000; // characters; the server reads no more
  const touched = new Set(); // ids of the components that hold what was changed

  for (const kind of ["input", "click"]) {
    document.addEventListener(kind, (event) => {
      if (!event.isTrusted || !(event.target instanceof Element)) return;
      const place = event.target.closest(".kv-fields") || event.target.closest("textarea");
      const block = place && place.closest(".kv-page") && place.closest('[id^="kv-"]');
      if (block) touched.add(block.id);
    }, true);
  }

  function write() {
    try {
      const kept = JSON.parse(sessionStorage.getItem(TYPED) || "{}");
      for (const id of touched) {
        const block = document.getElementById(id);
        if (block) kept[id] = block.kvValues ? block.kvValues() : block.querySelector("textarea").value;
      }
      const text = JSON.stringify(kept);
      if (touched.size && text.length <= MOST) sessionStorage.setItem(TYPED, text);
    } catch { /* a private window may refuse */ }
  }

  window.addEventListener("pagehide", write);
  document.addEventListener("visibilitychange", write); // a phone may end a hidden tab without a word
})();
