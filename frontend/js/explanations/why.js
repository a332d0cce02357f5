// Explanations of the why panel: what made the chosen token's logit.

export const WHY = {
  why: {
    name: "Why this token",
    what: "The token’s logit, taken apart into what each layer’s attention and MLP added to it (direct logit attribution).",
    how: "The residual stream is a sum, and the final norm with its scale held fixed is linear: so the logit is a sum too. Computed by the engine from captured arrays.",
    formula: "logit = Σ parts · (norm weight × scale × row of the head), and the sum is compared with the model’s own logit",
    careful: "Direct parts only: what an early layer did to make a late one write this counts as the late one’s. A large logit is not yet a large probability.",
  },
  "why.part": {
    name: "Part of the logit",
    what: "What this layer’s attention, or its MLP, wrote into the residual stream, as logits for this token.",
    how: "Attention’s output was captured; the MLP’s is what is left of the layer’s change.",
    formula: "output · gradient of the logit by the residual",
    careful: "Negative parts are common, and parts are as large as they are for many other tokens too: they compare with one another, not with 0.",
  },
  "why.after": {
    name: "Logit so far",
    what: "The sum of the parts up to and including this layer.",
    how: "Added up from the embedding on, with what norm and head add whatever they are given.",
    formula: "Σ parts of layers ≤ l",
    careful: "It uses the scale of the last norm throughout; the lens takes each layer’s own, so the two differ on the way and meet at the end.",
  },
  "why.rank": {
    name: "Path of ranks",
    what: "The place that this token had among all tokens after each layer, if that layer were the last.",
    how: "The logit lens: final norm and head applied to the residual after each layer.",
    formula: "rank r at 1 − ln r ÷ ln(vocabulary): first at the right, last at the left",
    careful: "A path that jumps late does not mean that nothing happened before: early layers speak in ways the head does not read.",
  },
  "why.logit": {
    name: "Logit",
    what: "The score by which the token competed with all others.",
    how: "By the model’s own norm and head, in float32.",
    formula: "probability = exp(logit) ÷ Σ exp(logits)",
    careful: "Only differences between logits matter: all of them could be 5 higher and nothing would change.",
  },
  "why.looked": {
    name: "Looked at most",
    what: "The tokens with the most attention of this pass, with the layers and heads that looked there most.",
    how: "Captured attention weights: the mean over all layers and heads, and for each token its largest single weights.",
    formula: "mean over l, h of A[l, h, query, token]; heads by A[l, h, query, token]",
    careful: "Attention says where a head read, not what it did with it.",
  },
};
