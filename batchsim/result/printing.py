"""How a result prints: its summary on a few lines."""

import math

from batchsim._format import decimals, number, whole_percent
from batchsim.result.metrics import COMPUTING, OF_ENERGY, Metrics
from batchsim.scenario import Continuous
from batchsim.scenario.tokens import a_request

LOST = ("rejected", "timed_out", "delayed")  # said only where there are some


def rows(metrics: Metrics, rate_range_per_s: tuple[float, float] | None) -> dict[str, str]:
    """Return the lines, by their heading."""
    s = metrics.summary(rate_range_per_s is not None)
    lost = "".join(f", {s[key]:,} {key.replace('_', ' ')}" for key in LOST if s.get(key))
    rate = "closed loop" if math.isnan(s["load"]) else f"load {decimals(s['load'])}"
    unstable = "" if s["stable"] else ", UNSTABLE: the queue grows without end"
    if not s["stable"] and s["load"] < 1:  # smaller batches could carry the rate, full ones cannot
        unstable += f" (full batches: {decimals(metrics.scenario.full_batches_per_s, 1)}/s)"
    # Some saturation rates are estimates, see `scenario/saturation.py`.
    about = "about " * (not metrics.scenario.saturation_error < 0.01)
    most = f"{about}{decimals(s['saturation_per_s'], 1)}/s"
    percentiles = ", ".join(f"p{q} {decimals(s[f'p{q}_ms'])}" for q in (50, 95, 99))
    shares = ", ".join(
        f"{key.removesuffix('_share')} {whole_percent(share)}" for key, share in metrics.shares().items()
    )
    lines = {
        "requests": f"{s['requests']:,}, {s['served']:,} served{lost}",
        "latency": f"mean {decimals(s['mean_latency_ms'])} ms, {percentiles}",
        "breakdown": ", ".join(
            f"{part.replace('_', ' ')} {decimals(s[f'mean_{part}_ms'])} ms" for part in metrics.components
        ),
        "throughput": f"{decimals(s['throughput_per_s'], 1)}/s of {most}, {rate}{unstable}",
        "utilisation": f"{s['utilisation']:.3f}",
        "batches": f"{s['batches']:,} of {s['mean_batch_size']:.2f} on average; {shares}".removesuffix("; "),
    }
    if s.get("padding"):
        lines["batches"] += f"; padding {whole_percent(s['padding'])}"
    fleet = [f"{s['mean_replicas']:.2f} replicas on average"] if "mean_replicas" in s else []
    fleet += [f"{number(s['cost_per_million'], 4)} per million requests"] if "cost_per_million" in s else []
    fleet += [f"{number(s[key], 4)} J a {key.rpartition('_')[2]}" for key in OF_ENERGY if key in s]
    if fleet:
        lines["cost"] = ", ".join(fleet)
    if "device_utilisation" in s:
        lines["utilisation"] += f", waiting for a device included; devices {s['device_utilisation']:.3f}"
    if "mean_ttft_ms" in s:
        of_computing = ", ".join(f"{part} {decimals(s[f'mean_{part}_ms'])}" for part in COMPUTING)
        lines["breakdown"] += f" ({of_computing})"
        if isinstance(metrics.scenario.rule, Continuous):
            del lines["batches"]
            lines["steps"] = f"{s['batches']:,} of {s['mean_batch_size']:.2f} rows on average"
        for name in ("ttft", "tpot", "itl"):
            percentiles = ", ".join(f"p{q} {decimals(s[f'{name}_p{q}_ms'])}" for q in (50, 95, 99))
            lines[name.upper()] = f"mean {decimals(s[f'mean_{name}_ms'])} ms, {percentiles}"
        lines["ITL"] += f"; longest of a request p99 {decimals(s['stall_p99_ms'])}"
        if s["served"] and math.isnan(s["mean_tpot_ms"]):
            lines |= dict.fromkeys(("TPOT", "ITL"), "none: each answer has one token")
        tokens = f"{s['output_tokens_per_s']:.1f}/s, {s['preempted_share']:.1%} of requests preempted"
        if not s["stable"] and metrics.scenario.tokens is not None:
            over = s["offered_per_s"] - s["saturation_per_s"]
            tokens += f"; the queue grows by {over * a_request(metrics.scenario.tokens):,.0f} tokens/s"
        lines["tokens"] = tokens
    if not s["served"]:  # there are no numbers of requests
        lines = {name: lines[name] for name in ("requests", "throughput", "utilisation")}
    if rate_range_per_s is not None:
        low, high = (f"{number(each, 4)}/s" for each in rate_range_per_s)
        lines["DRIFTING"] = f"from {low} to {high}: one percentile mixes them; look at the run over time"
    return lines
