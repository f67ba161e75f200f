/* Pictures in steps (class kv-steps): shown one at a time, played, moved by arrow keys, saved as SVG. */
(() => {
  "use strict";
  if (window.kvSteps) return;
  window.kvSteps = true;
  const SECONDS = 4;
  const HEIGHT = 290; // of a picture with its name in a saved file
  const playing = new WeakMap();

  const sections = (group) => [...group.querySelectorAll(".kv-steps-stage > section")];

  function show(group, wish) {
    const all = sections(group), at = Math.max(0, Math.min(all.length - 1, wish));
    all.forEach((section, i) => section.classList.toggle("kv-now", i === at));
    group.querySelectorAll("[data-steps][aria-pressed]").forEach((button) =>
      button.setAttribute("aria-pressed", String(Number(button.dataset.steps) === at)));
  }

  const now = (group) => sections(group).findIndex((section) => section.classList.contains("kv-now"));

  function stop(group) {
    clearInterval(playing.get(group));
    playing.delete(group);
    group.querySelector('[data-steps="play"]').textContent = "Play";
  }

  function play(group) {
    if (playing.has(group)) return stop(group);
    if (now(group) === sections(group).length - 1) show(group, 0);
    group.querySelector('[data-steps="play"]').textContent = "Pause";
    playing.set(group, setInterval(() => {
      if (!group.isConnected) return clearInterval(playing.get(group));
      show(group, now(group) + 1);
      if (now(group) === sections(group).length - 1) stop(group);
    }, SECONDS * 1000));
  }

  /* All pictures in one SVG: below each other, or one after the other. */
  function drawing(group, moving) {
    const all = sections(group), total = all.length;
    const parts = all.map((section, i) => {
      const name = `<text x="12" y="24" font-size="17" fill="#1a1f26">${new Option(section.dataset.name).innerHTML}</text>`;
      const body = new XMLSerializer().serializeToString(section.querySelector("svg"));
      const times = [0, i / total, (i + 1) / total, 1].map((t) => t.toFixed(4)).join(";");
      const turn = `<animate attributeName="opacity" calcMode="discrete" dur="${total * SECONDS}s" ` +
        `repeatCount="indefinite" keyTimes="${times}" values="${i ? 0 : 1};1;0;0"/>`;
      return `<g transform="translate(0 ${moving ? 0 : i * HEIGHT})"${moving && i ? ' opacity="0"' : ""}>` +
        `${name}<g transform="translate(0 34)">${body}</g>${moving ? turn : ""}</g>`;
    });
    const height = moving ? HEIGHT : total * HEIGHT;
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 ${height}" font-family="system-ui, sans-serif">` +
      `<rect width="860" height="${height}" fill="#fff"/>${parts.join("")}</svg>`;
  }

  function save(group, moving) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([drawing(group, moving)], { type: "image/svg+xml" }));
    link.download = moving ? "kv-reuse-moving.svg" : "kv-reuse-filmstrip.svg";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-steps]") : null;
    const group = button && button.closest(".kv-steps");
    if (!group) return;
    const wish = button.dataset.steps;
    if (wish === "play") play(group);
    else if (wish === "film" || wish === "moving") save(group, wish === "moving");
    else { stop(group); show(group, Number(wish)); }
  });
  document.addEventListener("keydown", (event) => {
    const group = event.target instanceof Element ? event.target.closest(".kv-steps") : null;
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!group || !move) return;
    event.preventDefault();
    stop(group);
    show(group, now(group) + move);
  });
})();
