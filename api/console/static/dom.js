// Elements of the page. All text goes in as text: there is no road from a string to markup here.

const SVG = "http://www.w3.org/2000/svg";

// printable writes a space for each control character and direction mark: a foreign text must not turn the line around in which it stands.
export function printable(text) {
  return String(text).replace(/[^\P{C}\n\t]|[\p{Zl}\p{Zp}]/gu, " ");
}

function make(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, fn] of Object.entries(value)) element.addEventListener(event, fn);
    } else if (name === "href" && !String(value).startsWith("#")) {
      throw new Error("links lead within the console only");
    } else if (name === "value") {
      element.value = value;
    } else {
      element.setAttribute(name, value === true ? "" : printable(value));
    }
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) add(element, child);
    else element.append(child instanceof Node ? child : printable(child)); // a string becomes a text node
  }
}

// h makes an HTML element: h("p", {class: "x"}, "text", child, [more]).
export function h(tag, props, ...children) {
  return make(document.createElement(tag), props, children);
}

// s makes an SVG element.
export function s(tag, props, ...children) {
  return make(document.createElementNS(SVG, tag), props, children);
}

// fill replaces what is in a container. The focus, and what was unfolded, stay with the elements of the same data-key;
// where the focused one is gone, its container has the focus if it can.
export function fill(container, ...children) {
  const inside = container.contains(document.activeElement) && container !== document.activeElement;
  const focused = inside ? document.activeElement.dataset?.key : undefined;
  const unfolded = [...container.querySelectorAll("details[open][data-key]")].map((d) => d.dataset.key);
  const fresh = document.createDocumentFragment();
  add(fresh, children);
  container.replaceChildren(fresh);
  const keyed = (key) => container.querySelector(`[data-key="${CSS.escape(key)}"]`);
  for (const key of unfolded) keyed(key)?.setAttribute("open", "");
  if (inside) ((focused && keyed(focused)) ?? container).focus({preventScroll: true});
}

// link leads to a place of the console; each part of the path is escaped.
export function link(parts, props, ...children) {
  return h("a", {...props, href: place(parts)}, ...children);
}

export function place(parts, query) {
  const text = query ? new URLSearchParams(Object.entries(query).filter(([, v]) => v)).toString() : "";
  return "#/" + parts.map(encodeURIComponent).join("/") + (text ? "?" + text : "");
}

// card is a titled part of a page.
export function card(title, id, ...children) {
  return h("section", {class: "card", "aria-labelledby": id}, h("h2", {id}, title), ...children);
}

// facts is a list of names with values; those without a value are left out.
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", {class: "facts"}, shown.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

// The two regions that screen readers read out, when their text changes.
export function say(text) { document.getElementById("say").textContent = printable(text); }
export function alarm(text) { document.getElementById("alert").textContent = printable(text); }

// trouble shows what went wrong, and how to try once more.
export function trouble(error, again) {
  return h("div", {class: "note bad", role: "alert"}, h("p", null, mark("bad"), " ", error.message),
    again && h("button", {type: "button", on: {click: again}}, "Try again"));
}

export function loading(what) {
  return h("p", {class: "loading", role: "status"}, `Loading ${what} …`);
}

export function empty(...children) {
  return h("div", {class: "empty"}, ...children);
}

// marks are shapes that say the same as the colour beside them.
const marks = {
  good: "M2 8.5 6 12.5 14 3.5", bad: "M3 3 13 13M13 3 3 13", warn: "M8 2 15 14 1 14ZM8 6.5V10M8 12v.6", wait: "M8 8V3.5M8 8l3 2M8 1.5a6.5 6.5 0 1 0 .01 0",
  work: "M3 3v10l9-5z", still: "M8 4.5a3.5 3.5 0 1 0 .01 0", rescue: "M8 2v12M2 8h12",
};

export function mark(kind) {
  return s("svg", {class: "mark " + kind, viewBox: "0 0 16 16", width: 12, height: 12, "aria-hidden": "true"}, s("path", {d: marks[kind] ?? marks.still}));
}

// badge is a word with its shape and colour.
export function badge(kind, text) {
  return h("span", {class: "badge " + kind}, mark(kind), h("span", null, text));
}

// copier puts a text on the clipboard.
export function copier(text, what) {
  const button = h("button", {type: "button", class: "quiet small", "aria-label": `Copy ${what}`}, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
      say(`${what} copied`);
    } catch {
      button.textContent = "Select and copy by hand";
    }
  });
  return button;
}

// heading is the title of a page, which takes the focus when the page comes.
export function heading(...text) {
  return h("h1", {tabindex: -1}, ...text);
}
