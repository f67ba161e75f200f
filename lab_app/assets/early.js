/* Which of the early page is shown, before anything else runs. It stands in the document itself. */
(() => {
  "use strict";
  const root = document.body.classList, look = new URLSearchParams(location.search);
  const kept = (store, key) => { try { return window[store].getItem(key); } catch { return null; } };
  const wish = look.get("__theme") || kept("localStorage", "kv-theme");
  root.toggle("dark", wish ? wish === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  // another page, a link, or a tab that comes back to its own bench: the first run is not what is asked for
  const other = /^#./.test(location.hash) && location.hash !== "#pipeline";
  const bare = other || look.get("lesson") === "1" || kept("sessionStorage", "kv-bench");
  root.add("kv-early-seen", ...(bare ? ["kv-early-bare"] : []));
  if (matchMedia("(max-width: 980px)").matches) root.add("kv-bench-closed");

  const there = () => document.querySelector("#kv-run") && document.querySelector("#kv-verdict .kv-verdict") &&
    document.querySelector("#kv-topbar .kv-topbar") && document.querySelector("#kv-nav .kv-nav");
  function leave() {
    if (!root.contains("kv-early-seen")) return;
    root.remove("kv-early-seen", "kv-early-bare");
    for (const gone of document.querySelectorAll(".kv-early")) gone.remove();
    window.dispatchEvent(new Event("resize"));
  }
  const look_again = setInterval(() => {
    if (!there() && root.contains("kv-early-seen")) return;
    clearInterval(look_again);
    leave();
  }, 100);
  window.kvEarlyLeave = leave;
})();
