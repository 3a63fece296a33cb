"""A stream in fixed memory as its documentation defines it: plain loops over rows, one key head at a time."""

import numpy as np

PIECE = 256


class PlainStream:
    """The rows of one key head of one batch item, in float64; `span` has one for each head, inf for no limit."""

    def __init__(self, slots, window, decay, merge=False, span=None, ramp=32):
        self.slots, self.window, self.decay, self.merge = slots, window, decay, merge
        self.span, self.ramp = span, ramp
        self.rows, self.count = [], 0  # dicts, in the order of their positions

    def attend(self, query, key, value, **options):
        """Attend with query (heads, n, dim), the last n of the c tokens of key and value, (c, dim)."""
        heads, asked, _ = query.shape
        out, lse = np.zeros((heads, asked, value.shape[-1])), np.zeros((heads, asked))
        skipped = len(key) - asked
        for first in range(0, len(key), PIECE):
            part = slice(first, first + PIECE)
            rows = slice(max(first - skipped, 0), max(min(first + PIECE, len(key)) - skipped, 0))
            out[:, rows], lse[:, rows] = self._piece(query[:, rows], key[part], value[part], rows, options)
        return out, lse

    def _piece(self, query, key, value, which, options):
        new = [
            {"key": k.astype(float), "value": v.astype(float), "at": self.count + i, "received": 0.0, "tokens": 1}
            for i, (k, v) in enumerate(zip(key, value, strict=True))
        ]
        self.rows += new
        self.count += len(new)
        heads, asked, _ = query.shape
        out, lse = np.zeros((heads, asked, value.shape[-1])), np.zeros((heads, asked))
        gains = np.zeros(len(self.rows))
        for head in range(heads):
            for i in range(asked):
                at = self.count - asked + i
                weights = [self._weight(query[head, i], row, at, head, which.start + i, options) for row in self.rows]
                sink = options["sinks"][head] if "sinks" in options else -np.inf
                total = sum(weights) + np.exp(sink)
                p = np.array(weights) / total
                out[head, i] = sum(share * row["value"] for share, row in zip(p, self.rows, strict=True))
                lse[head, i] = np.log(total)
                gains += self.decay ** (asked - 1 - i) * p
        for row, gain in zip(self.rows, gains, strict=True):
            old = row["received"] * self.decay ** len(new) if row["at"] < self.count - len(new) else 0
            row["received"] = old + gain
        self._let_go()
        return out, lse

    def _weight(self, query, row, at, head, token, options):
        x = at - row["at"]
        if x < 0:
            return 0.0
        scale = options.get("scale", len(query) ** -0.5)
        temperature = options["temperature"][head] if "temperature" in options else 1
        score = query.astype(float) @ row["key"] * scale / (temperature[token] if np.ndim(temperature) else temperature)
        if "softcap" in options:
            score = options["softcap"] * np.tanh(score / options["softcap"])
        if "alibi_slopes" in options:
            score -= options["alibi_slopes"][head] * x
        span = np.inf if self.span is None else self.span[head]
        mask = np.clip((self.ramp + span - x) / self.ramp, 0, 1) if self.ramp > 0 else float(x <= span)
        return mask * row["tokens"] * np.exp(score)

    def _let_go(self):
        too_many = len(self.rows) - self.slots
        if too_many <= 0:
            return
        old = self.rows[: len(self.rows) - self.window]
        gone = sorted(old, key=lambda row: (row["received"], row["at"]))[:too_many]
        positions = {row["at"] for row in gone}
        self.rows = [row for row in self.rows if row["at"] not in positions]
        if not self.merge:
            return
        into = [(self._most_alike(row), row) for row in gone]  # all targets are chosen before any row is added
        for target in {row["at"]: row for row, _ in into}.values():
            merged = [target, *(row for to, row in into if to is target)]
            counts = np.array([row["tokens"] for row in merged])
            for name in ("key", "value"):
                target[name] = sum(n * row[name] for n, row in zip(counts, merged, strict=True)) / counts.sum()
            target["tokens"] = counts.sum()
            target["received"] = sum(row["received"] for row in merged)

    def _most_alike(self, gone):
        def cosine(row):
            lengths = np.linalg.norm(gone["key"]) * np.linalg.norm(row["key"])
            return gone["key"] @ row["key"] / lengths if lengths else 0.0

        return max(self.rows, key=cosine)


def streams(batch, key_heads, rule, span=None, ramp=32):
    """A stream for each batch item and key head; those whose spans fit into the slots keep all rows."""
    each = None if span is None else np.reshape(span, (key_heads, -1)).astype(float)

    def of(head):
        if each is None:
            return PlainStream(**rule)
        reach = max(np.floor(each[head].max()), np.ceil(each[head].max() + ramp) - 1)
        rule_of_head = rule if reach >= rule["slots"] else rule | {"slots": 10**9}
        return PlainStream(**rule_of_head, span=each[head], ramp=ramp)

    return [[of(head) for head in range(key_heads)] for _ in range(batch)]


def attend(plain, query, key, value, **options):
    """Attend with all streams; options are numbers or of shape (batch, heads) or (batch, heads, queries)."""
    key_heads = len(plain[0])
    shared = query.shape[1] // key_heads
    out, lse = np.zeros((*query.shape[:3], value.shape[-1])), np.zeros(query.shape[:3])
    for i, of_item in enumerate(plain):
        for head, stream in enumerate(of_item):
            group = slice(head * shared, (head + 1) * shared)
            terms = {name: o[i, group] if np.ndim(o) else o for name, o in options.items()}
            out[i, group], lse[i, group] = stream.attend(query[i, group], key[i, head], value[i, head], **terms)
    return out, lse
