"""The report of a fit: one self-contained HTML file."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import headspan.lab.pretrained.extra  # noqa: F401 - checks first that the optional dependencies are installed

# isort: split
import numpy as np
from matplotlib.figure import Figure

from headspan.explorer.page import POLICY
from headspan.fitting import SpanFit
from headspan.lab.pretrained.compare import Arm, Generation, arms, generations
from headspan.lab.pretrained.fit import Fitted, Settings
from headspan.lab.report.page import PAGE, figure, number_table, table, with_code
from headspan.lab.report.pictures import COLOURS, NARROW, for_page, reach_of_heads, style, to_svg
from headspan.lab.runs import replace_file
from headspan.ops.spans import farthest


def write_report(folder: Path, settings: Settings, fitted: Fitted) -> dict[str, Any]:
    """Measure the fitted spans beside their baselines, and write ``report.html`` and ``comparison.json``."""
    compared, generated = arms(fitted), generations(fitted.pretrained.model, fitted.held_out[:1])
    fit = fitted.fit
    full = compared["full attention"]
    fitted_excess, error = compared["fitted"].excess(full)
    share = compared["fitted"].cache_share
    name = html.escape(fitted.pretrained.name)
    note = ""
    if fit.state is not None and fit.state.step < fit.state.steps:
        text = (
            f"The fit stopped after {fit.state.step} of {fit.state.steps} steps. It goes on with "
            f"`headspan fit --resume {folder}`."
        )
        note = f'<p class="note">{with_code(text)}</p>'
    body = [
        f"<h1>The spans that the heads of {name} need</h1>",
        f"<p>With {share:.0%} of the bytes of its cache, the loss of the model changes by {fitted_excess:+.2%} "
        f"(standard error {error:.2%}) on {len(fitted.held_out)} held-out windows of {fit.tokens} tokens. "
        "The weights of the model do not change.</p>",
        "<h2>The span of each head</h2>",
        figure(for_page(to_svg(_spans(fit), "spans")), "spans of all key heads, layer by layer", wide=True),
        "<p>A column is a layer, a cell a key head with the query heads that share its keys. The colour is the number "
        "of tokens that the head reaches.</p>",
        "<h2>Loss against memory</h2>",
        figure(for_page(to_svg(_curve(fit, compared), "curve")), "increase of the loss against the share of the cache"),
        "<h2>Beside one span for each layer, and one for all heads</h2>",
        _arms_table(compared),
        "<p>Losses are of the tokens in the second half of each window, in nats. In brackets: the standard error of "
        "the increase over windows.</p>",
        "<h2>Generated tokens</h2>",
        _generation_table(generated),
        f"<p>After a prompt of {fit.tokens} tokens, on this machine.</p>",
        "<h2>Use the spans</h2>",
        f"<pre>{html.escape(_example(folder, settings))}</pre>",
        "<h2>How the spans were found</h2>",
        table(_about(settings, fit)),
    ]
    page = PAGE.format(title=f"headspan: {name}", policy=POLICY, style="", remarks=note, body="\n".join(body))
    replace_file(folder / "report.html", page.encode(errors="backslashreplace"))
    numbers = {
        "held_out": {
            name: {
                "cache_share": round(arm.cache_share, 4),
                "loss": float(arm.losses.mean()),
                "excess": arm.excess(full)[0],
                "standard_error": _finite(arm.excess(full)[1]),
                "losses": arm.losses.tolist(),
            }
            for name, arm in compared.items()
        },
        "generation": {name: generation._asdict() for name, generation in generated.items()},
    }
    replace_file(folder / "comparison.json", json.dumps(numbers, indent=1).encode())
    return numbers


def _finite(number: float) -> float | None:
    return number if np.isfinite(number) else None


def _spans(fit: SpanFit) -> Figure:
    longest = fit.spans.reshape(len(fit.spans), fit.num_key_heads, -1).max(axis=2)
    return reach_of_heads(farthest(longest, fit.ramp), fit.tokens, head="key head")


def _curve(fit: SpanFit, compared: dict[str, Arm]) -> Figure:
    """Draw the measured losses on the fitting data as lines, and the held-out losses as rings."""
    with style():
        drawing = Figure(figsize=(NARROW, 3.4))
        ax = drawing.add_subplot()
        for points, colour, label in (
            (fit.curve, COLOURS[0], "fitted"), (fit.uniform_curve, COLOURS[1], "one span for all heads"),
        ):  # fmt: skip
            shares = [100 * point.cache_bytes / fit.full_cache_bytes for point in points]
            losses = [100 * (point.loss / fit.fitted_before - 1) for point in points]
            ax.plot(shares, losses, marker=".", color=colour, label=label)
        full = compared["full attention"]
        for name, colour in (("fitted", COLOURS[0]), ("one span a layer", COLOURS[2]), ("one span", COLOURS[1])):
            arm = compared[name]
            ring = ax.plot(100 * arm.cache_share, 100 * arm.excess(full)[0], "o", mfc="none", ms=9, color=colour)[0]
            if name == "one span a layer":
                ring.set_label(name)
        ax.set_xlabel("bytes of the cache (% of full attention)")
        ax.set_ylabel("increase of the loss (%)")
        top = 3 * max(100 * compared["one span"].excess(full)[0], 1.0)
        lowest = min(100 * arm.excess(full)[0] for arm in compared.values())
        ax.set_ylim(min(lowest, 0) - 0.05 * top, top)
        ax.legend(title="lines: fitting data, rings: held out", title_fontsize=8)
    return drawing


def _arms_table(compared: dict[str, Arm]) -> str:
    full = compared["full attention"]
    rows = [["full attention", "100 %", f"{full.losses.mean():.4f}", ""]]
    for name, arm in compared.items():
        if arm is not full:
            excess, error = arm.excess(full)
            shown = [f"{100 * arm.cache_share:.0f} %", f"{arm.losses.mean():.4f}", f"{excess:+.2%} ({error:.2%})"]
            rows.append([name, *shown])
    return number_table(["", "cache", "loss", "increase"], rows)


def _generation_table(generated: dict[str, Generation]) -> str:
    rows = [
        [name, f"{one.milliseconds:.1f} ms", f"{one.cache_bytes / 2**20:.1f} MiB"] for name, one in generated.items()
    ]
    return number_table(["", "a token", "cache"], rows)


def _example(folder: Path, settings: Settings) -> str:
    return (
        "import headspan as hs, headspan.lab, headspan.torch\n\n"
        f'_, model, tokenizer = headspan.lab.load_pretrained("{settings.model}")\n'
        f'spans = hs.ModelSpans.load("{folder / "spans.json"}")\n'
        "headspan.torch.set_spans(model, spans.spans, ramp=spans.ramp, first_tokens=spans.first_tokens)\n"
        'inputs = tokenizer("Once upon a time", return_tensors="pt")\n'
        "model.generate(**inputs, cache=headspan.torch.head_cache(model), max_new_tokens=20)"
    )


def _about(settings: Settings, fit: SpanFit) -> dict[str, str]:
    goal = (
        f"the loss may grow by {settings.tolerance:.2%}"
        if settings.tolerance is not None
        else (f"{settings.budget:g} of the {'bytes of the cache' if settings.budget_of == 'cache' else 'pairs'}")
    )
    step, steps = (fit.state.step, fit.state.steps) if fit.state is not None else (0, settings.steps)
    return {
        "model": settings.model,
        "texts": ", ".join(Path(text["path"]).name for text in settings.texts),
        "goal": goal,
        "windows": f"{fit.tokens} tokens",
        "steps": f"{step} of {steps}, each on one batch, towards the model's own predictions",
        "ramp": f"{fit.ramp:g} tokens",
        "first tokens": f"{fit.first_tokens} that every head sees",
    }
