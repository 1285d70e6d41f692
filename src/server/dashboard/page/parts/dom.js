/** Creates elements. Values from the server are only set as text, so they can never become markup. */
const SVG = "http://www.w3.org/2000/svg";

/** `h("a.name", { href, onclick }, "text", child)` */
export function h(tag, props = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  return fill(document.createElement(name), classes, props, children);
}

export function svg(tag, props = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  return fill(document.createElementNS(SVG, name), classes, props, children);
}

function fill(element, classes, props, children) {
  for (const name of classes) element.classList.add(name);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === false) continue;
    if (name.startsWith("on")) element[name] = value;
    else if (name === "width%") element.style.width = `${value}%`;
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

const HANDLERS = ["onclick", "onsubmit", "oninput", "onchange", "onkeydown"];

/** Changes `now` to look like `next`. It reuses elements, so that they keep their focus, selection and scroll position. */
export function morph(now, next) {
  if (now.nodeType !== next.nodeType || now.nodeName !== next.nodeName) {
    now.replaceWith(next);
    return;
  }
  if (now.nodeType === Node.TEXT_NODE) {
    if (now.data !== next.data) now.data = next.data;
    return;
  }
  if (now.getAttribute("data-key") !== next.getAttribute("data-key")) {
    now.replaceWith(next);
    return;
  }
  if (next.hasAttribute("data-keep")) return;
  for (const name of Array.from(now.attributes, (each) => each.name)) {
    if (name !== "style" && name !== "open" && !next.hasAttribute(name)) now.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (name !== "style" && now.getAttribute(name) !== value) now.setAttribute(name, value);
  }
  if (now.style.cssText !== next.style.cssText) now.style.cssText = next.style.cssText;
  for (const name of HANDLERS) now[name] = next[name];
  morphChildren(now, next);
}

export function morphChildren(now, next) {
  const wanted = [...next.childNodes];
  for (const [index, child] of wanted.entries()) {
    const old = now.childNodes[index];
    if (old === undefined) now.append(child);
    else morph(old, child);
  }
  while (now.childNodes.length > wanted.length) now.lastChild.remove();
}
