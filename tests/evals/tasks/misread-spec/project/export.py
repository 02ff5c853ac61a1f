"""Writes measurement files: SPEC.md."""


def export(measurements):
    """The bytes of a file; `measurements` are pairs of seconds since 1970 and a value or None."""
    lines = ["MEAS 1"]
    for seconds, value in sorted(measurements, reverse=True):
        lines.append(f"{round(seconds)};{'' if value is None else f'{value:.2f}'}")
    lines.append(f"END {len(lines)}")
    return "\n".join(lines).encode()
