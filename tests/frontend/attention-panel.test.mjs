import assert from "node:assert/strict";
import { test } from "node:test";

import { plotlyMatrix, plotlyText } from "../../frontend/js/figure.js";
import { absentRuns, axisTicks, roundStep } from "../../frontend/js/panels/attention-axes.js";
import { RowCensus } from "../../frontend/js/panels/attention-census.js";
import { AttentionData, chosenRow } from "../../frontend/js/panels/attention-data.js";
import { matrixTip, wallTip } from "../../frontend/js/panels/attention-hover.js";
import { matrixSide, plotHeight, MARGIN } from "../../frontend/js/panels/attention-plot-canvas.js";
import { chooseHeads, chosenHeads, toggleHeads } from "../../frontend/js/panels/attention-selection.js";
import { exactWeight, headsTitle, largestPossible, rowFacts } from "../../frontend/js/panels/attention-words.js";

const SIZE = { layers: 3, heads: 2 };

/** A request of `tokens` tokens of which some queries have rows. Weight of key k: 1 / (k + 1), times head + 1. */
function request(tokens, captured, patch = {}) {
  const attention = new Map(
    captured.map((query) => {
      const keys = query + 1;
      const array = new Float32Array(SIZE.layers * SIZE.heads * keys);
      for (let row = 0; row < SIZE.layers * SIZE.heads; row++)
        for (let key = 0; key < keys; key++) array[row * keys + key] = ((row % SIZE.heads) + 1) / (key + 1) / 4;
      const row = (layer, head) => {
        const at = (layer * SIZE.heads + head) * keys;
        return layer < SIZE.layers && head < SIZE.heads ? array.slice(at, at + keys) : null;
      };
      return [
        query,
        {
          event: { position: query },
          parts: [{}],
          firstLayer: 0,
          layers: SIZE.layers,
          layerNumbers: Array.from({ length: SIZE.layers }, (_, layer) => layer),
          heads: SIZE.heads,
          keys,
          array,
          passing: () => array,
          row,
          has: (layer, head) => layer < SIZE.layers && head < SIZE.heads,
          summary: null,
        },
      ];
    }),
  );
  const token = (position) => ({ position, label: `t${position}`, text: `t${position}`, group: null });
  return {
    id: "r",
    tokens: Array.from({ length: tokens }, (_, p) => token(p)),
    attention,
    absent: [],
    refused: new Map(),
    released: new Set(),
    rows: [],
    residual: new Map(),
    finished: {},
    rejected: null,
    ...patch,
  };
}

test("axis labels are every token where they fit, and round numbers where they do not", () => {
  const label = (p) => `w${p}`;
  const few = axisTicks(3, 6, 60, label);
  assert.deepEqual(few, {
    labelled: true,
    ticks: [
      { at: 3, text: "w3" },
      { at: 4, text: "w4" },
      { at: 5, text: "w5" },
    ],
  });
  const many = axisTicks(0, 81, 300, label);
  assert.equal(many.labelled, false);
  assert.deepEqual(
    many.ticks.map((t) => t.at),
    [0, 10, 20, 30, 40, 50, 60, 70, 80],
  );
  assert.deepEqual(
    axisTicks(13, 60, 90, label).ticks.map((t) => t.at),
    [20, 40],
  );
  assert.equal(axisTicks(0, 1, 60, () => "🐱".repeat(20)).ticks[0].text, `${"🐱".repeat(11)}…`);
});

test("steps are 1, 2 and 5 times powers of ten, never less than asked", () => {
  assert.deepEqual([0.3, 1, 1.1, 3, 7, 12, 99, 101].map(roundStep), [1, 1, 2, 5, 10, 20, 100, 200]);
});

test("rows that are absent are told in runs", () => {
  assert.deepEqual(absentRuns([1, 0, 0, 2, 0, 0], 5), [
    [1, 3],
    [4, 5],
  ]);
  assert.deepEqual(absentRuns([1, 1], 2), []);
});

test("token text cannot become markup, an entity or a formula on a Plotly axis", () => {
  assert.equal(plotlyText('<a href="javascript:alert(1)">x</a>'), '&lt;a href="javascript:alert(1)"&gt;x&lt;/a&gt;');
  assert.equal(plotlyText("&lt;b&gt; <br>"), "&amp;lt;b&amp;gt; &lt;br&gt;");
  assert.doesNotMatch(plotlyText("<img src=x onerror=alert(1)> $x$"), /[<>$]/);
});

test("a matrix goes to Plotly as its bytes", () => {
  const matrix = plotlyMatrix(Float32Array.of(1, 2, 3, 4, 5, 6), 2, 3);
  assert.equal(matrix.shape, "2, 3");
  assert.deepEqual([...new Float32Array(matrix.bdata)], [1, 2, 3, 4, 5, 6]);
});

test("the matrix is a square, with room for its labels", () => {
  for (const labelled of [true, false]) {
    const { left, bottom } = labelled ? MARGIN.labels : MARGIN.numbers;
    assert.equal(300 - left - MARGIN.right, plotHeight(300, labelled) - bottom - MARGIN.top);
    assert.equal(matrixSide(300, labelled), 300 - left - MARGIN.right);
  }
});

test("mean and sum start from the current layer's heads and keep what was selected", () => {
  const choice = { combine: "one", heads: new Set() };
  assert.deepEqual(chosenHeads(choice, { layer: 2, head: 1 }), [{ layer: 2, head: 1 }]);
  chooseHeads(choice, "mean", 1, SIZE);
  assert.deepEqual([...choice.heads], ["1:0", "1:1"]);
  toggleHeads(choice, { layer: 1, head: 0 }, SIZE);
  chooseHeads(choice, "sum", 0, SIZE);
  assert.deepEqual(chosenHeads(choice, { layer: 0, head: 0 }), [{ layer: 1, head: 1 }]);
  chooseHeads(choice, "all", 0, SIZE);
  assert.equal(choice.heads.size, 6);
  chooseHeads(choice, "none", 0, SIZE);
  assert.deepEqual(chosenHeads(choice, { layer: 0, head: 0 }), []);
});

test("a layer's or a head's label toggles all of its cells", () => {
  const choice = { combine: "mean", heads: new Set(["0:0"]) };
  toggleHeads(choice, { layer: 0, head: null }, SIZE);
  assert.deepEqual([...choice.heads].sort(), ["0:0", "0:1"]);
  toggleHeads(choice, { layer: 0, head: null }, SIZE);
  assert.equal(choice.heads.size, 0);
  toggleHeads(choice, { layer: null, head: 1 }, SIZE);
  assert.deepEqual([...choice.heads].sort(), ["0:1", "1:1", "2:1"]);
});

test("what is combined is said", () => {
  const one = [{ layer: 2, head: 1 }];
  const layer = [
    { layer: 2, head: 0 },
    { layer: 2, head: 1 },
  ];
  assert.equal(headsTitle(one, "one", 3, 2), "Layer 2, head 1");
  assert.equal(headsTitle(layer, "mean", 3, 2), "Mean of all 2 heads of layer 2");
  assert.equal(headsTitle(one, "sum", 3, 2), "Sum of layer 2, head 1");
  assert.equal(headsTitle([...layer, { layer: 0, head: 0 }], "sum", 3, 2), "Sum of 3 heads in 2 layers");
  assert.equal(headsTitle([], "mean", 3, 2), "Mean of no head");
  assert.equal(largestPossible(layer, "sum"), 2);
  assert.equal(largestPossible(layer, "mean"), 1);
});

test("weights are written with the digits that they have", () => {
  assert.deepEqual([0.840234, 0.000123456, 0.0000123, 1, 0].map(exactWeight), [
    "0.8402",
    "0.0001235",
    "1.23e−5",
    "1",
    "0",
  ]);
});

test("a row's facts name its sum, its sink, its dtype, its step, and what was left out", () => {
  const event = {
    position: 4,
    dtype: "f16",
    source_dtype: "f32",
    step: 9,
    row_sum_error: 1.2e-7,
    omitted: "keys below 1e-4",
    omitted_mass: 0.02,
  };
  const facts = rowFacts(event, { sum: 0.98, sink: 0.5, entropyBits: 1 }, [{ layer: 0, head: 0 }], "one");
  const said = Object.fromEntries(facts);
  assert.equal(said["row 4 sums to"], "0.9800");
  assert.equal(said["sink (position 0) holds"], "0.50");
  assert.equal(said["stored as"], "float16");
  assert.equal(said["captured in"], "step 9");
  assert.equal(said["row-sum error ≤"], "1.2e−7");
  assert.equal(said["left out"], "keys below 1e-4 (at most 0.02 of a row)");
  const whole = rowFacts({ ...event, omitted: null }, { sum: 1, sink: null, entropyBits: 0 }, [], "one");
  assert.ok(!whole.some(([name]) => name === "left out"));
  assert.ok(whole.some(([, value]) => value === "outside the window"));
});

test("the panel's data follows the request: new rows, another head, another length", () => {
  const record = request(4, [0, 1, 2]);
  const wanted = { layers: 3, heads: 2, wallSide: 16, headSide: 300, chosen: [{ layer: 1, head: 0 }], combine: "one" };
  const data = new AttentionData();
  data.want(record, wanted);
  assert.equal(data.fold(Infinity), true);
  assert.deepEqual([...data.head.into.rows], [1, 1, 1, 0]);
  assert.equal(data.head.into.values[2 * 4 + 1], 0.125);
  const { wallVersion, headVersion } = data;
  data.want(record, wanted);
  data.fold(Infinity);
  assert.deepEqual([data.wallVersion, data.headVersion], [wallVersion, headVersion]);
  data.want(record, { ...wanted, chosen: [{ layer: 1, head: 1 }] });
  data.fold(Infinity);
  assert.equal(data.head.into.values[2 * 4 + 1], 0.25);
  assert.equal(data.wallVersion, wallVersion);
  record.attention.set(3, request(4, [3]).attention.get(3));
  data.fold(Infinity);
  assert.deepEqual([...data.head.into.rows], [1, 1, 1, 1]);
  assert.ok(data.wallVersion > wallVersion);
});

test("a layer that a record lacks counts as absent, not as zero", () => {
  const data = new AttentionData();
  data.want(request(2, [0, 1]), {
    layers: 4,
    heads: 2,
    wallSide: 16,
    headSide: 300,
    chosen: [{ layer: 3, head: 0 }],
    combine: "one",
  });
  data.fold(Infinity);
  assert.deepEqual([...data.head.into.rows], [0, 0]);
  assert.equal(
    chosenRow(
      request(2, [1]).attention.get(1),
      [
        { layer: 0, head: 0 },
        { layer: 3, head: 0 },
      ],
      "mean",
    ),
    null,
  );
});

test("missing rows are counted with their reasons", () => {
  const absent = [{ what: "attention", reason: "over_budget", positions: [1, 3], detail: "12 MB of 10" }];
  const words = new RowCensus().words(request(5, [0, 4], { absent, rows: [{ step: 1, from: 0, to: 5 }] }), SIZE.layers);
  assert.match(words, /^2 of 5 rows captured\./);
  assert.match(words, /Hatched, 2: Left out: the capture budget was spent: 12 MB of 10\./);
  assert.match(words, /Hatched, 1: Not in this recording\./);
});

test("rows that were drawn before they were let go of are not said to be hatched", () => {
  const record = request(4, [2], { rows: [{ step: 1, from: 0, to: 4 }] });
  record.room = 1000;
  for (const position of [0, 1, 3]) record.released.add(`attention:${position}`);
  const census = new RowCensus();
  assert.match(census.words(record, SIZE.layers, new Set([0, 1, 2])), /^3 of 4 rows captured\. Drawn, but not in one piece any more, 2: No longer in this page's memory.*\. Hatched, 1: No longer/);
  assert.equal(census.brief, "3 of 4 rows, others hatched");
  assert.match(census.words(record, SIZE.layers), /^1 of 4/);
});

test("counting waits while tokens stream in, and is exact when they end", () => {
  const census = new RowCensus();
  const record = request(3, [0], { finished: null });
  const first = census.words(record, SIZE.layers, undefined, 1000);
  record.attention.set(1, request(2, [1]).attention.get(1));
  assert.equal(census.words(record, SIZE.layers, undefined, 1100), first);
  assert.match(census.words(record, SIZE.layers, undefined, 1500), /^2 of 3/);
  record.attention.set(2, request(3, [2]).attention.get(2));
  record.finished = {};
  assert.match(census.words(record, SIZE.layers, undefined, 1501), /^3 of 3/);
});

test("the pointer's weight is the captured one, and names its tokens", () => {
  const record = request(4, [0, 1, 3]);
  assert.equal(matrixTip(record, [{ layer: 0, head: 1 }], "one", { query: 3, key: 1 }), "“t3” at 3 → “t1” at 1: 0.25");
  assert.match(
    matrixTip(record, [{ layer: 0, head: 1 }], "one", { query: 2, key: 1 }),
    /“t2” at 2 → “t1” at 1: Not in this recording/,
  );
  const data = new AttentionData();
  data.want(record, { ...SIZE, wallSide: 2, headSide: 300, chosen: [{ layer: 0, head: 0 }], combine: "one" });
  data.fold(Infinity);
  const tip = (query, key) => wallTip(record, data.wall.into, { layer: 0, head: 1, query, key, x: 0, y: 0 });
  assert.equal(tip(1, 1), "Layer 0, head 1\n“t3” at 3 → “t2” at 2: 0.1667\nlargest of 2 × 2 under this pixel");
  assert.match(tip(0, 1), /cannot look at later ones/);
});
