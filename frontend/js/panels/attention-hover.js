/** What the pointer is on, in words: the tokens and the weight between them. */

import { absentText, whyAbsent } from "../absent.js";
import { summaryWords } from "../tensor-words.js";
import { quoted } from "../words.js";
import { chosenRow } from "./attention-data.js";
import { firstKey } from "./attention-pool.js";
import { exactWeight } from "./attention-words.js";

/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {{layer: number, head: number, query: number, key: number, x: number, y: number}} WallPoint  query, key: cells of the pooled matrix */

/**
 * The largest weight under a pooled cell, found again among the captured rows, and whose it is.
 * @param {RequestRecord} record
 * @param {import("./attention-pool.js").PooledMatrices} matrices
 * @param {WallPoint} point
 */
export function wallTip(record, matrices, { layer, head, query, key }) {
  const [queryFrom, queryTo] = matrices.tokensOf(query);
  const [keyFrom, keyTo] = matrices.tokensOf(key);
  let best = { weight: -1, query: -1, key: -1 };
  for (let q = queryFrom; q < queryTo; q++) {
    const rows = record.attention.get(q);
    const row = rows?.row(layer, head);
    if (!rows || !row) continue;
    const first = firstKey(rows);
    for (let k = Math.max(keyFrom, first); k < Math.min(keyTo, q + 1); k++) {
      if (row[k - first] > best.weight && !(rows.summary && row[k - first] === 0)) best = { weight: row[k - first], query: q, key: k };
    }
  }
  const title = `Layer ${layer}, head ${head}`;
  if (best.query < 0) {
    if (keyFrom >= queryTo) return `${title}\nA token cannot look at later ones`;
    return queryFrom >= record.tokens.length
      ? title
      : `${title}\n${absentText(whyAbsent(record, "attention", queryFrom, { layer, head }))}`;
  }
  const many =
    (queryTo - queryFrom) * (keyTo - keyFrom) > 1
      ? `\nlargest of ${queryTo - queryFrom} × ${keyTo - keyFrom} under this pixel`
      : "";
  return `${title}\n${pair(record, best.query, best.key)}: ${exactWeight(best.weight)}${many}`;
}

/**
 * @param {RequestRecord} record
 * @param {readonly import("./attention-pool.js").Head[]} chosen
 * @param {import("./attention-pool.js").Combine} combine
 * @param {{query: number, key: number}} point
 */
export function matrixTip(record, chosen, combine, { query, key }) {
  const rows = record.attention.get(query);
  const row = rows && chosenRow(rows, chosen, combine);
  const at = rows ? key - firstKey(rows) : -1;
  const missing = rows && chosen.find(({ layer, head }) => !rows.has(layer, head));
  const unlisted = rows?.summary && row && row[at] === 0;
  const weight = unlisted
    ? `not listed. ${summaryWords(rows)}`
    : row && at >= 0
      ? exactWeight(row[at])
      : absentText(whyAbsent(record, "attention", query, missing));
  return `${pair(record, query, key)}: ${weight}`;
}

/** @param {RequestRecord} record @param {number} query @param {number} key */
function pair(record, query, key) {
  return `${quoted(record.tokens[query])} at ${query} → ${quoted(record.tokens[key])} at ${key}`;
}
