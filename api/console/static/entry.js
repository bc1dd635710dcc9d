// The rescue session of a machine or a server: how its rescue system is entered, and the fields that ask for keys and an end.

import {card, copier, facts, fill, h} from "./dom.js";
import {ask, path} from "./api.js";
import {moment} from "./words.js";

// Entry is the card that shows a session once its rescue system runs. kind is node or server.
export class Entry {
  constructor(kind, id, signal) {
    this.kind = kind;
    this.path = path("/salvor/v1/rescue-sessions", [id]);
    this.signal = signal;
    this.body = h("div");
  }

  // read shows the session of what is called name; running says whether it is in rescue at all.
  async read(running, name) {
    let session;
    if (running) {
      session = await ask(this.path, {signal: this.signal}).catch((error) => {
        if (this.signal.aborted) throw error;
      });
    }
    const text = JSON.stringify(session?.state === "ready" ? [session, name] : null);
    if (text !== this.last) fill(this.body, session?.state === "ready" && show(this.kind, name, session));
    this.last = text;
  }
}

function show(kind, name, session) {
  const copied = (text, what) => text && [h("code", null, text), " ", copier(text, what)];
  return card("Rescue session", "card-session", facts([
    ["Address", session.addresses?.join(", ")],
    ["ssh host key", copied(session.fingerprint, "fingerprint")],
    ["Log in", session.host_key && copied(`salvor ${kind} ssh ${name}`, "command")],
    ["Ends by itself", session.expires_at && moment(session.expires_at)],
    ["Notice", session.notice],
  ]));
}

const ends = [["", "When someone ends it"], ["3600", "After 1 hour"], ["28800", "After 8 hours"], ["86400", "After 1 day"], ["604800", "After 7 days"]];

// sessionFields are fields for the rescue form.
export function sessionFields() {
  return [
    h("div", {class: "field"}, h("label", {for: "rescue-keys"}, "Public ssh keys, one in a line (optional)"), h("textarea", {id: "rescue-keys", name: "keys", rows: 2, spellcheck: "false", autocomplete: "off"})),
    h("div", {class: "field"}, h("label", {for: "rescue-ends"}, "The rescue ends"), h("select", {id: "rescue-ends", name: "ends"}, ends.map(([value, label]) => h("option", {value}, label)))),
  ];
}

// sessionWishes reads them: the keys, and the seconds after which the session ends; 0: never.
export function sessionWishes({keys, ends: seconds}) {
  return {keys: (keys ?? "").split("\n").map((line) => line.trim()).filter(Boolean), seconds: Number(seconds || 0)};
}
