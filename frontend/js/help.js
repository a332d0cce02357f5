// The help: what the page shows, in the order in which one reads it, and its keys.

import { fill, h, setText } from "./dom.js";
import { KEYS } from "./keys.js";
import { TABS } from "./tabs.js";

/** @type {[string, string][]} */
const PARTS = [
  ["Ribbon", "Every token of the conversation, prompt then answer. Pick one to follow it. Colours show what the followed token looked at, how probable each token was, or how unsure the model."],
  ["Walk", "The followed token’s way through the model. Its first act is the pass over the token before it, which chose it; its second act is its own pass, which led to what came next."],
  ["Layer rows", "Where the layer’s heads looked; how much attention and MLP added; which token would come out if the model ended here (the logit lens), and at which rank the real one stood."],
  ["Panels", "The same token, layer and head in detail. Memory: the KV blocks at that moment, who holds and shares them, and what the head read of each. Scheduler: the steps, and what ran together. Why and Compare: which layers made the token, and two requests side by side. Kernels and Wire: where time went, and how the text left."],
  ["Labels", "Point at a label, or come to it with Tab: what it is, how it was obtained, the formula, when it misleads. A “?” explains a whole view, “Save” writes it as picture or data."],
  ["Transport", "Through the tokens in the time they took. In a running request, follow the newest."],
];

/** Keys that are each other's opposite share a line. @returns {[string, string][]} */
function inPairs() {
  /** @type {[string, string][]} */
  const lines = [];
  for (const { shown, does, pair } of KEYS) {
    const last = lines[lines.length - 1];
    if (pair && last) lines[lines.length - 1] = [`${last[0]} ${shown}`, `${last[1]}, ${does}`];
    else lines.push([shown, does]);
  }
  return lines;
}

/** @param {HTMLDialogElement} dialog @param {import("./tour/tour.js").Tour} tour */
export function helpDialog(dialog, tour) {
  const keys = [...inPairs(), [`1–${TABS.length}`, "panel"], ["Ctrl Enter", "send the prompt"], ["↑ ↓", "in the empty prompt: what was asked before"]];
  const take = h("button", { type: "button", class: "primary", onclick: () => {
    dialog.close();
    tour.start();
  } });
  const close = h("button", { type: "button", onclick: () => dialog.close() }, "Close");
  fill(
    dialog,
    h(
      "div",
      null,
      h("h2", { id: "help-title" }, "One token’s way through a language model"),
      h("p", { class: "muted" }, "Every mark on this page is a recorded number. What was not computed or not kept says so, and why."),
      h(
        "div",
        { class: "columns" },
        h("div", null, h("h3", null, "Keys"), h("dl", null, keys.map(([shown, does]) => [h("dt", null, shown.split(" ").map((key) => h("kbd", null, key))), h("dd", null, does)]))),
        h("div", null, h("h3", null, "What you see"), PARTS.map(([name, text]) => h("p", { style: "margin-bottom:8px" }, h("b", null, name), h("span", { class: "muted" }, ` ${text}`)))),
      ),
      h("p", { class: "buttons" }, take, close),
    ),
  );
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  const open = () => {
    setText(take, tour.label());
    dialog.showModal();
  };
  return { open, close: () => dialog.close(), isOpen: () => dialog.open };
}
