/* Lesson mode, the tour's steps in the address, and news of a class room. */
(() => {
  "use strict";
  if (window.KVTour) return;
  const NEWS_MS = 2500, MEMBER = "kv-member", KEY = "kv-room-";
  const $ = (query) => document.querySelector(query);
  const params = () => new URLSearchParams(location.search);

  function put(changes) {
    const now = params();
    for (const [name, value] of Object.entries(changes)) value === null ? now.delete(name) : now.set(name, value);
    const query = now.toString();
    const address = location.pathname + (query ? "?" + query : "") + location.hash;
    if (address !== location.pathname + location.search + location.hash) history.replaceState(history.state, "", address);
  }

  /* ---- lesson mode ---- */

  function applyLesson() {
    const on = params().get("lesson") === "1";
    document.body.classList.toggle("kv-lesson", on);
    document.querySelectorAll('[data-kv="lesson"]').forEach((b) => {
      if (b.getAttribute("aria-pressed") !== String(on)) b.setAttribute("aria-pressed", String(on));
    });
  }

  /* For the wall of a class room: large, and without what only the teacher needs. */
  function project(on) {
    document.body.classList.toggle("kv-projector", on);
    const button = $('[data-kv="projector"]');
    if (button && button.getAttribute("aria-pressed") !== String(on)) button.setAttribute("aria-pressed", String(on));
  }

  /* ---- what the tour is told ---- */

  let wish = null;

  function remembered(name) {
    try { return sessionStorage.getItem(name) || ""; } catch { return ""; } // a private window may refuse
  }

  function remember(name, value) {
    try { if (remembered(name) !== value) sessionStorage.setItem(name, value); } catch { /* as above */ }
  }

  /* A browser is known in a room by a random token, so that a reload neither loses a prediction nor gives two. */
  function member() {
    let found = remembered(MEMBER);
    if (!found) {
      found = [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
      remember(MEMBER, found);
    }
    return found;
  }

  function tell(what, more) {
    const button = $("#kv-tour-tell");
    if (!button) return false;
    wish = { what, ...more };
    button.click();
    return true;
  }

  function news() {
    const told = JSON.stringify(wish || {});
    wish = null;
    return told;
  }

  let entered = false;

  function enter() {
    if (entered || !$("#kv-tour-tell") || !$(".kv-tour-step")) return;
    entered = true;
    const now = params(), room = now.get("room"), step = Number(now.get("step"));
    if (room) tell("enter", { room, key: remembered(KEY + room), member: member() });
    else if (Number.isInteger(step) && step > 1) tell("enter", { step: step - 1 });
  }

  /* ---- following what is on the screen ---- */

  let step = null, inside = false;

  function follow() {
    const shown = $(".kv-tour-step");
    if (!shown || !entered) return;
    const now = shown.dataset.step;
    if (now === step) return;
    const first = step === null;
    step = now;
    if (document.body.dataset.kvPage !== "tour") return;
    put({ step: now === "0" ? null : String(Number(now) + 1) });
    if (first) return;
    window.scrollTo({ top: 0 });
    const heading = shown.querySelector("h2");
    if (heading) heading.focus({ preventScroll: true });
  }

  function rooms() {
    const card = $(".kv-room");
    if (card) {
      inside = true;
      put({ room: card.dataset.room });
      if (card.dataset.key) remember(KEY + card.dataset.room, card.dataset.key);
    } else if (inside) {
      inside = false;
      put({ room: null });
    }
    const code = $("img.kv-room-qr"), at = location.origin + location.pathname;
    if (card && code) {
      const source = "lab/room/" + encodeURIComponent(card.dataset.room) + "/qr.svg?at=" + encodeURIComponent(at);
      if (code.getAttribute("src") !== source) code.setAttribute("src", source); // the server does not know its address
    }
    project(params().get("projector") === "1" && Boolean(code));
    document.querySelectorAll("a.kv-room-link").forEach((a) => { if (a.textContent !== a.href) a.textContent = a.href; });
  }

  async function ask() {
    const card = $(".kv-room");
    if (!card || document.hidden) return;
    let found = null;
    try {
      const answer = await fetch("lab/room/" + encodeURIComponent(card.dataset.room), { cache: "no-store" });
      if (answer.status === 404) { tell("look"); return; }
      if (!answer.ok) return;
      found = await answer.json();
    } catch { return; } // the next one will do
    const leads = card.dataset.leads === "1";
    const grew = String(found.predicted) !== card.dataset.predicted || String(found.members) !== card.dataset.members;
    if (String(found.version) !== card.dataset.version || grew && leads) tell("look");
    else if (grew) {
      const count = $(".kv-room-predicted");
      if (count) count.textContent = found.predicted;
    }
  }

  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target.closest("[data-kv]") : null;
    if (!target) return;
    if (target.dataset.kv === "lesson") {
      put({ lesson: params().get("lesson") === "1" ? null : "1" });
      applyLesson();
      window.dispatchEvent(new Event("resize"));
    } else if (target.dataset.kv === "projector") {
      put({ projector: params().get("projector") === "1" ? null : "1" });
      rooms();
      window.dispatchEvent(new Event("resize"));
    } else if (target.dataset.kv === "tour-step") tell("go", { step: Number(target.dataset.step) });
  });

  let soon = 0;
  function announce() {
    const reveal = $("#kv-tour-reveal"); // it stays while its content is replaced, so that the new one is read out
    if (reveal && !reveal.hasAttribute("aria-live")) reveal.setAttribute("aria-live", "polite");
    const guess = $("#kv-tour-guess"), question = guess && guess.querySelector('[data-testid="block-info"]');
    if (question && guess.getAttribute("aria-label") !== question.textContent) guess.setAttribute("aria-label", question.textContent);
  }

  function settle() {
    if (soon) return;
    soon = requestAnimationFrame(() => { soon = 0; applyLesson(); enter(); follow(); rooms(); announce(); });
  }
  new MutationObserver(settle).observe(document.body || document.documentElement, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-step", "data-room", "data-kv-page"] });
  setInterval(ask, NEWS_MS);
  settle();
  window.KVTour = { news };
})();
