// Why something waits: the answer of the server as a paragraph, and what it stands on.

import {badge, copier, fill, h, loading, mark} from "./dom.js";
import {ask, path} from "./api.js";
import {moment, seconds} from "./words.js";

const moods = {idle: ["still", "Idle"], working: ["work", "Working"], waiting: ["wait", "Waiting"], stuck: ["bad", "Stuck"]};

export class Why {
  constructor(kinds, id, signal) {
    this.path = path("/salvor/v1", [kinds, id, "why"]);
    this.signal = signal;
    this.body = h("div", null, loading("the reason"));
  }

  async read() {
    let why;
    try {
      why = await ask(this.path, {signal: this.signal});
    } catch (error) {
      if (this.signal.aborted) throw error;
      fill(this.body, h("p", null, "It cannot be said: ", error.message));
      return undefined;
    }
    const text = JSON.stringify({...why, at: ""});
    if (text !== this.last) fill(this.body, show(why));
    this.last = text;
    return why;
  }
}

function show(why) {
  const [kind, mood] = moods[why.mood] ?? moods.idle;
  return [
    h("p", {class: "mood"}, badge(kind, mood), why.waits_for && h("span", null, " for ", why.waits_for), why.waits_since && h("span", {class: "since"}, ", since ", moment(why.waits_since))),
    h("p", {class: "why-text"}, why.text),
    why.trouble?.length > 0 && h("ul", {class: "trouble"}, why.trouble.map((t) => h("li", null, mark("bad"), " ", t))),
    why.deadline && h("p", null, mark("wait"), ` ${why.deadline.what} ends in ${seconds(why.deadline.seconds)}`, why.deadline.running ? "" : " (the clock stands: no conductor lives)",
      why.deadline.then && `; then ${why.deadline.then}`, "."),
    why.words?.length > 0 && h("details", {"data-key": "words", "aria-label": "Last heard"}, h("summary", {"data-key": "heard"}, "Last heard"), h("ul", {class: "heard"}, why.words.map((w) => h("li", null,
      mark(w.ok ? "good" : "bad"), " ", h("b", null, w.from), " ", w.at && moment(w.at), " ", w.text)))),
    why.next?.length > 0 && [h("h3", null, "What to do next"), h("ul", {class: "commands"}, why.next.map((c) => h("li", null, h("code", null, c.run), copier(c.run, "command"), h("span", null, c.for))))],
  ];
}
