/** What the comparison says in sentences. */

import { absentText, whyAbsent, whyNoReading } from "../absent.js";
import { h } from "../dom.js";
import { count, percent, plural } from "../format.js";
import { candidateName } from "../token-names.js";
import { candidateWord, tokenInSentence } from "../words.js";
import { firstDifferences } from "./compare-data.js";

/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {import("./compare-data.js").LayerPair} LayerPair */

/**
 * How far two requests go together.
 * @param {RequestRecord} a
 * @param {RequestRecord} b
 * @param {number} common
 * @returns {import("../dom.js").Child[]}
 */
export function together(a, b, common) {
  const most = Math.max(a.tokens.length, b.tokens.length);
  if (common === most) return ["All ", h("b", null, count(common)), " tokens are the same."];
  const begin = common === 0 ? ["They differ from the first token on"] : ["The first ", h("b", null, count(common)), ` ${common === 1 ? "token is" : "tokens are"} the same`];
  const [one, other] = [a.tokens[common], b.tokens[common]];
  if (!one || !other) {
    const open = (one ? b : a).finished === null;
    return [...begin, `; then only ${one ? "this one" : "the other"} goes on`, open ? ", so far." : "."];
  }
  return [...begin, "; then, at ", h("b", null, count(common)), ", ", tokenInSentence(one), " here and ", tokenInSentence(other), " there."];
}

/**
 * What the two passes over a position have in common, and from which layer on they do not.
 * @param {object} of
 * @param {RequestRecord} of.a
 * @param {RequestRecord} of.b
 * @param {number} of.query
 * @param {number} of.common
 * @param {{layers: LayerPair[], embedding: number | null}} of.compared
 * @returns {(Node | string)[]}
 */
export function verdict({ a, b, query, common, compared }) {
  const first = firstDifferences(compared);
  // Where only one has a pass there is nothing to compare, which is said beside.
  if (query >= Math.min(a.tokens.length, b.tokens.length)) return [];
  /** @type {(Node | string)[]} */
  const said = [inputWords(query, common)];
  if (!first.known) return said;
  const strong = (/** @type {string} */ text) => h("b", null, text);
  if (compared.embedding !== null) {
    const size = first.residual === null ? null : first.residual < 0 ? compared.embedding : compared.layers[first.residual].residual;
    if (first.residual === null) said.push("The residuals are ", strong("the same in every layer"), ", to the last bit. ");
    else if (first.residual < 0) said.push("The residuals differ ", strong("from the embedding on"), ". ");
    else said.push("The residuals first differ ", strong(`after layer ${first.residual}`), `, by ${percent(size ?? 0)}. `);
  }
  if (first.guess !== null) {
    const { guessA, guessB } = compared.layers[first.guess];
    said.push("Their best guesses first differ in ", strong(`layer ${first.guess}`), ": ", guessA ? candidateWord(guessA, guessA.came) : "", " and ", guessB ? candidateWord(guessB, guessB.came) : "", ".");
  } else if (compared.layers.some(({ sameGuess }) => sameGuess)) said.push("Their best guesses are the same in every layer.");
  return said;
}

/** @param {number} query @param {number} common */
function inputWords(query, common) {
  if (query < common) return `Both passes read the same ${plural(query + 1, "token")}. `;
  return common === 0 ? "They read different tokens from the first on. " : `They read the same ${plural(common, "token")}, and different ones from ${count(common)} on. `;
}

/**
 * What is missing on which side.
 * @param {RequestRecord} a
 * @param {RequestRecord} b
 * @param {number} query
 * @param {[import("../absent.js").Standing, import("../absent.js").Standing]} standings of the two
 * @returns {string}
 */
export function missingWords(a, b, query, [ofA, ofB]) {
  const said = [];
  for (const [name, record, standing] of /** @type {const} */ ([["Here", a, ofA], ["There", b, ofB]])) {
    if (query >= record.tokens.length) said.push(`${name}, position ${count(query)} was never reached.`);
    else said.push(...absences(record, query, standing).map(([why, what]) => `${name}, no ${alternatives(what)}: ${lower(why)}.`));
  }
  return said.join(" ");
}

/** What is missing at a position, by the reason: often it is one for all. @param {RequestRecord} record @param {number} query @param {import("../absent.js").Standing} standing */
function absences(record, query, standing) {
  /** @type {Map<string, string[]>} */
  const byReason = new Map();
  for (const what of /** @type {const} */ (["attention", "residual", "lens"])) {
    if (record[what].has(query)) continue;
    const why = absentText(what === "lens" ? whyNoReading(record, what, query, standing) : whyAbsent(record, what, query));
    byReason.set(why, [...(byReason.get(why) ?? []), what]);
  }
  return [...byReason];
}

/** "a", "a or b", "a, b or c" @param {string[]} names */
function alternatives(names) {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
}

/** @param {string} text */
function lower(text) {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

/** One layer for the tip. @param {LayerPair} pair */
export function layerText({ layer, guessA, guessB, attention, residual }) {
  const guess = (/** @type {import("./compare-data.js").Guess | null} */ g) => (g ? `“${candidateName(g, g.came)}” ${percent(Math.exp(g.logprob))}` : "not here");
  return [
    `Layer ${layer}: best guess ${guess(guessA)} here, ${guess(guessB)} there`,
    attention === null ? "attention is not here of both" : `${percent(attention)} of the attention (mean of the heads) lies on other tokens`,
    residual === null ? "residuals are not here of both" : `residuals afterwards differ by ${percent(residual)} of the longer one`,
  ].join("\n");
}
