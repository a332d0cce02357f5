// Explanations of the kernels panel: where a step's time went.

export const KERNELS = {
  kernels: {
    name: "Kernels",
    what: "Where the time of the followed token’s step went: of any step its phases, of timed steps every operation.",
    how: "Phases are measured always. Operations are timed only when asked for, with a barrier after each.",
    formula: "operation = time from when all it needs was there until its result was",
    careful: "A timed step computes the same numbers but is slower: shares are telling, sums are not those of a normal step.",
  },
  "kernels.wall": {
    name: "Step wall",
    what: "How long the step took.",
    how: "From its submission, or the end of the step before, until its result was there; of a timed step from when its graph began to be built.",
    formula: "end − start, one clock",
    careful: "All rows of the batch share it: it is not this token’s alone.",
  },
  "kernels.wait": {
    name: "Waiting",
    what: "How long the engine’s thread had to wait for the result.",
    how: "Measured around the call that waits.",
    formula: "part of the step wall",
    careful: "Short means that the engine had other work meanwhile, not that the device was fast.",
  },
  "kernels.build": {
    name: "Build",
    what: "Building the step’s graph in Python.",
    how: "Measured around the model’s call, which computes nothing yet: MLX is lazy.",
    formula: "time",
    careful: "It overlaps with the step before: it is not part of the wall time unless it takes longer than that.",
  },
  "kernels.sample": {
    name: "Sampling",
    what: "Choosing the tokens of the step and their statistics.",
    how: "Measured on the host, after the result was there.",
    formula: "time",
    careful: "Of all rows of the batch together.",
  },
  "kernels.capture": {
    name: "Capture, on the host",
    what: "The engine’s thread’s work on what was captured: copying attention rows and residuals out of the result, and handing them on.",
    how: "Measured on the host, after sampling.",
    formula: "time",
    careful: "A part of the price of looking: what the device does for it is the operation “capture, on the device”. Light capture has none.",
  },
  "kernels.device": {
    name: "Capture, on the device",
    what: "The operations in the step’s graph that exist for what is captured: norms, choosing rows, changing their precision.",
    how: "Timed with a barrier after it, like every operation.",
    formula: "Σ over layers",
    careful: "The other part of the price of looking is the host’s, in “capture, on the host” above: the two are not parts of each other.",
  },
  "kernels.normal": {
    name: "Normally",
    what: "How long a step like this takes when it is not timed.",
    how: "Median of the latest normal steps with as many decoding rows and prompt positions.",
    formula: "median step wall; × = this step’s wall ÷ median",
    careful: "Like steps had other lengths of context, so it is near, not exact.",
  },
  "kernels.barriers": {
    name: "Timed with barriers",
    what: "The device was made to finish each operation before the next began.",
    how: "Everything an operation needs is computed first, then the operation alone is waited for.",
    formula: "exclusive times: what is timed inside another operation is not counted twice",
    careful: "On a GPU, starting an operation can cost more than the operation: small ones look larger than they are.",
  },
  "kernels.operation": {
    name: "Operation",
    what: "A kind of work in the pass; colours tell attention’s from the MLP’s.",
    how: "By where it ran: before the attention call, in it, after it, or elsewhere.",
    formula: "Σ over layers",
    careful: "“other” is the rest of its scope: residual adds, reshapes, gathering.",
  },
};
