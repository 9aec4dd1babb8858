// Keeps a page up to date from the server's stream of events, and counts times. It loads nothing from elsewhere.
"use strict";
(() => {
  const main = document.getElementById("main");
  const connection = document.getElementById("connection");
  const mostSteps = 3000;
  let source = null;
  let last = main.dataset.after || "";

  const say = (text) => { if (connection.textContent !== text) connection.textContent = text; };

  // A form that somebody writes into stays; what was unfolded stays so.
  function replace(name, html) {
    const part = document.getElementById("part-" + name);
    if (!part || part.innerHTML === html) return;
    const written = [...part.querySelectorAll("textarea")].filter((one) => one.value && !one.hidden);
    if (written.length || (part.contains(document.activeElement) && part.querySelector("textarea"))) return;
    const focused = part.contains(document.activeElement) ? place(part, document.activeElement) : -1;
    const open = new Set([...part.querySelectorAll("details[open][id]")].map((one) => one.id));
    part.innerHTML = html;
    for (const one of part.querySelectorAll("details[id]")) one.open = open.has(one.id);
    if (focused >= 0) focusable(part)[focused]?.focus();
  }
  const focusable = (part) => [...part.querySelectorAll("a, button, summary, [tabindex]")];
  const place = (part, element) => focusable(part).indexOf(element);

  function append(html) {
    const story = document.getElementById("story");
    if (!story) return;
    const below = window.innerHeight + window.scrollY >= document.body.scrollHeight - 80;
    story.insertAdjacentHTML("beforeend", html);
    while (story.children.length > mostSteps) story.children[1].remove();
    if (below) window.scrollTo(0, document.body.scrollHeight);
  }

  function connect() {
    if (source || document.hidden || !main.dataset.stream) return;
    source = new EventSource(main.dataset.stream + (last ? "?after=" + encodeURIComponent(last) : ""));
    source.onopen = () => say("live");
    source.onerror = () => say(source && source.readyState === EventSource.CLOSED ? "not connected" : "connecting again");
    source.onmessage = (event) => {
      if (event.lastEventId) last = event.lastEventId;
      const data = JSON.parse(event.data);
      for (const [name, html] of Object.entries(data.parts || {})) replace(name, html);
      if (data.steps) append(data.steps);
      if (data.ended) { close(); location.reload(); }
      tick();
    };
  }
  function close() { if (source) { source.close(); source = null; } }

  function words(seconds) {
    const whole = Math.max(Math.round(seconds), 0);
    if (whole < 60) return whole + " s";
    if (whole < 7200) return Math.round(whole / 60) + " min";
    if (whole < 172800) return Math.round(whole / 3600) + " h";
    return Math.round(whole / 86400) + " days";
  }
  function clock(seconds) {
    const whole = Math.max(Math.floor(seconds), 0);
    const two = (number) => String(number).padStart(2, "0");
    const hours = Math.floor(whole / 3600);
    const minutes = Math.floor(whole / 60) % 60;
    return hours ? hours + ":" + two(minutes) + ":" + two(whole % 60) : minutes + ":" + two(whole % 60);
  }
  function tick() {
    const now = Date.now();
    for (const one of document.querySelectorAll("[data-since]"))
      one.textContent = words((now - Date.parse(one.getAttribute("datetime"))) / 1000) + " ago";
    for (const one of document.querySelectorAll("[data-clock]"))
      one.textContent = clock((now - Date.parse(one.getAttribute("datetime"))) / 1000);
    for (const one of document.querySelectorAll("[data-until]")) {
      const left = (Date.parse(one.dataset.until) - now) / 1000;
      one.textContent = left > 7200 ? words(left) + " left" : left > 0 ? clock(left) + " left" : "now";
    }
  }

  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else connect(); });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", connect);
  setInterval(tick, 1000);
  tick();
  connect();
})();
