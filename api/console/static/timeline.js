// The timeline of a machine, a server or a host: what was asked, and under it each action with its seconds.

import {badge, empty, fill, h, loading, mark, s} from "./dom.js";
import {ask, path} from "./api.js";
import {clock, kindOf, seconds} from "./words.js";

const kept = 400; // events that are held; older ones are in the API

// Timeline keeps the newest events of a subject and shows them.
export class Timeline {
  constructor(subject, signal) {
    this.subject = subject;
    this.signal = signal;
    this.events = [];
    this.running = undefined; // {job, action, since}
    this.body = h("div", {class: "timeline"}, loading("the timeline"));
    const tick = setInterval(() => this.tick(), 200);
    signal.addEventListener("abort", () => clearInterval(tick));
  }

  // read takes what is new.
  async read() {
    const query = {subject: this.subject, limit: kept};
    if (this.after) query.after = this.after;
    else query.last = kept;
    const page = await ask(path("/salvor/v1/events", [], query), {signal: this.signal});
    this.after = page.next || this.after;
    const have = new Set(this.events.map((e) => e.seq));
    const fresh = (page.events ?? []).filter((e) => !have.has(e.seq));
    if (fresh.length === 0 && this.shown) return [];
    this.events.push(...fresh);
    this.events.sort((a, b) => a.seq - b.seq);
    this.events.splice(0, this.events.length - kept);
    this.show();
    if (page.more) fresh.push(...await this.read());
    return fresh;
  }

  // now tells what runs at this moment, from the answer to why.
  now(job) {
    const since = job?.action && job.state === "running" ? job.action_started_at : undefined;
    const running = since ? {job: job.id, action: job.action, since} : undefined;
    if (JSON.stringify(running) === JSON.stringify(this.running)) return;
    this.running = running;
    this.show();
  }

  tick() {
    const cell = this.body.querySelector("[data-running]");
    if (cell && this.running) cell.textContent = seconds(Math.max(0, (Date.now() - Date.parse(this.running.since)) / 1000)) + " …";
  }

  show() {
    this.shown = true;
    if (this.events.length === 0) {
      fill(this.body, empty(h("p", null, "Nothing has happened yet.")));
      return;
    }
    fill(this.body, h("ol", {class: "groups"}, groups(this.events).reverse().map((g) => this.group(g))));
  }

  group(g) {
    const running = this.running && g.job === this.running.job ? this.running : undefined;
    const from = Math.min(...g.events.map(begin));
    const until = running ? Date.now() : Math.max(...g.events.map((e) => Date.parse(e.at)));
    const span = Math.max((until - from) / 1000, 0.001);
    const asked = g.events[0].type === "request" ? g.events[0] : undefined;
    const rest = asked ? g.events.slice(1) : g.events;
    const failed = g.events.some((e) => e.severity === "error");
    return h("li", {class: "group"},
      h("h3", null, asked ? asked.text : "By itself", asked?.user && h("span", {class: "who"}, "by " + asked.user), failed && badge("bad", "with errors"),
        h("span", {class: "when"}, clock(g.events[0].at), rest.length > 1 && h("span", {class: "took"}, "in " + seconds(span)))),
      h("ol", {class: "rows"}, rest.map((e) => row(e, from, span)),
        running && h("li", {class: "row action running"}, h("span", {class: "what"}, mark("work"), running.action), bar(Date.parse(running.since), until, from, span),
          h("span", {class: "secs", "data-running": ""}, "…"))));
  }
}

function begin(e) { return Date.parse(e.at) - (e.seconds ?? 0) * 1000; }

// groups cuts the events where something was asked, or where another job begins.
function groups(events) {
  const out = [];
  for (const e of events) {
    const last = out.at(-1);
    if (!last || e.type === "request" || e.job && last.job && e.job !== last.job) out.push({job: e.job, events: [e]});
    else {
      last.job ??= e.job || undefined;
      last.events.push(e);
    }
  }
  return out;
}

function row(e, from, span) {
  if (e.type === "state") {
    const [state, ...why] = e.text.split(": ");
    return h("li", {class: "row turn"}, h("span", {class: "what"}, badge(kindOf(state), state), why.length > 0 && h("span", {class: "bad"}, why.join(": "))), h("span", {class: "secs"}, clock(e.at)));
  }
  const failed = e.severity === "error";
  const timed = e.type === "action" && !failed && (e.text === e.action || e.text === "undo " + e.action); // it has ended
  return h("li", {class: "row " + (failed ? "failed" : timed ? "action" : "word")},
    h("span", {class: "what"}, mark(failed ? "bad" : timed ? "good" : e.type === "action" ? "wait" : "still"), e.text),
    timed && bar(begin(e), Date.parse(e.at), from, span),
    h("span", {class: "secs"}, timed ? seconds(e.seconds ?? 0) : clock(e.at)));
}

// bar shows when in the group an action ran, and how long.
function bar(a, b, from, span) {
  const x = Math.min(Math.max((a - from) / 10 / span, 0), 99.4);
  const width = Math.max(Math.min((b - a) / 10 / span, 100 - x), 0.6);
  return s("svg", {class: "bar", width: "100%", height: 8, "aria-hidden": "true"}, s("rect", {class: "track", width: "100%", height: 8, rx: 2}),
    s("rect", {class: "run", x: x + "%", width: width + "%", height: 8, rx: 2}));
}
