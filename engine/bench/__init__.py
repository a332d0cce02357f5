"""Speed, measured against a peer in one run: interleaved rounds, medians, ratios.

A machine's clock, its neighbours and its temperature change from minute to minute. So all contestants do the same work
in turn, round after round in changing order, and a figure is the median of the ratios *within* a round. (Where a round
is one run, in which they take turns of some steps, it is the mean, with its standard error.)

| file | subject |
|---|---|
| `figures.py` | turns, ratios, and what a figure is held against |
| `prompts.py` | texts to continue: new ones for every round, so that no prompt cache answers |
| `contestants.py` | our engine as a server runs it |
| `one_stream.py` | one stream, at each capture level, against mlx-lm's loop |
| `streams.py` | several streams at once, against mlx-lm's BatchGenerator |
| `capture.py` | what each capture level costs |
| `in_turn.py` | likewise within one run, some steps of one level after some of another |
| `eager.py` | transformers with `output_attentions`, where PyTorch is installed |
| `prefix.py` | a second request that begins like the first |
| `waste.py` | KV memory that holds nothing |
| `folder.py` | a loaded model written out, for peers that want a folder |

What is measured over HTTP is in `backend.bench`.
"""
