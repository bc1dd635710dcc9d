// Follows the timeline of the server: server-sent events, read by fetch because an EventSource cannot send a token.

import {headers, open} from "./api.js";

const base = "/salvor/v1/events";
const longest = 15000; // between two tries
const pollEvery = 10000; // where there is no stream to be had

// follow calls heard(event) for each event that comes, and state("live" | "away" | "off") when that changes,
// until the signal. After a break it goes on where it stood; gap() tells that something may have been missed.
export async function follow(query, {signal, heard, state, gap}) {
  let after = "now";
  let pause = 500;
  let missed = true; // between the look at things and the begin of the stream something may have happened
  while (!signal.aborted) {
    try {
      const search = new URLSearchParams(query);
      search.set("after", after);
      const path = `${base}?${search}`;
      const answer = await open(path, {headers: {...headers(path), Accept: "text/event-stream"}, signal});
      state("live");
      pause = 500;
      if (missed) gap();
      missed = false;
      for await (const message of messages(answer.body)) {
        if (message.id) after = message.id;
        if (message.event === "lost") gap();
        else if (message.data) heard(JSON.parse(message.data));
      }
    } catch (error) {
      if (signal.aborted) return;
      missed = true;
      if (error.status === 403 || error.status === 404) {
        state("off");
        await sleep(pollEvery, signal);
        gap();
        continue;
      }
      if (error.status === 401) return;
      if (error.status === 400) after = "now"; // a cursor that the server does not know any more
      state("away");
    }
    await sleep(pause, signal);
    pause = Math.min(pause * 2, longest);
  }
}

// messages reads the form of server-sent events: lines "field: value", a blank line ends one.
export async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let message = {};
  try {
    for (;;) {
      const {value, done} = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const raw of lines) {
        const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
        if (line === "") {
          yield message;
          message = {};
          continue;
        }
        const colon = line.indexOf(":");
        if (colon === 0) continue; // a comment keeps the line open
        const field = colon < 0 ? line : line.slice(0, colon);
        const text = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        message[field] = field === "data" && message.data !== undefined ? message.data + "\n" + text : text;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

export function sleep(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, {once: true});
  });
}
